package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/support/suggest"
)

// name diagnoses the Service or endpoint that the name stands for.
func (d *diagnoser) name() {
	m, ok := d.meaning()
	switch {
	case ok && (d.Linter.View.Service(m.service) != nil || !d.gatewayHost()):
		d.meant(m)
	case d.podAddress() || d.otherDomain() || d.withoutSvc() || d.suppressed():
	default:
		d.outside()
	}
}

// meant diagnoses the name of a Service, of one of its endpoints or of one of its ports.
func (d *diagnoser) meant(m meaning) {
	d.e.Meant = m.service
	if s := d.Linter.View.Service(m.service); s != nil {
		d.service(s, m)
		return
	}
	if ns := m.service.Namespace; d.Unread != nil && d.Unread(cluster.KindService, ns) {
		d.e.Outcome = unknown
		d.add("not-read", fmt.Sprintf("use an account that may list services in namespace %s, or --live", ns),
			"this command may not read the Services of namespace %s, so the cause is not known", ns)
		return
	}
	if d.subdomain(m) || d.statefulSet(m) || d.namespace(m) || d.podName(m) || d.workload(m) || d.otherNamespace(m) ||
		d.unnamedWorkload(m) || d.typo(m) {
		return
	}
	cure := "create it, or use another name"
	if names := d.servicesIn(m.service.Namespace); len(names) > 0 {
		cure += fmt.Sprintf("; namespace %s has %s", m.service.Namespace, firstFew(names))
	}
	if m.service == (cluster.Key{Namespace: "default", Name: "kubernetes"}) {
		cure = d.elseRead("or add it to the manifests", "check that the API server runs: it creates this Service")
	}
	d.add("no-service", cure, "Service %s does not exist", m.service)
}

// gatewayHost reports whether the name is a host that a Gateway, a route or an Ingress is for, and so one of DNS
// outside the cluster.
func (d *diagnoser) gatewayHost() bool {
	v, host := d.Linter.View, strings.ToLower(strings.TrimSuffix(d.Name, "."))
	if !v.Loaded(cluster.KindGateway) {
		return false
	}
	hosts := []string{host}
	for _, parent, ok := strings.Cut(host, "."); ok && parent != ""; _, parent, ok = strings.Cut(parent, ".") {
		hosts = append(hosts, "*."+parent)
	}
	return slices.ContainsFunc(hosts, func(h string) bool {
		return len(cluster.GatewaysByHost.Get(v, h)) > 0 || len(cluster.RoutesByHost.Get(v, h)) > 0 ||
			len(cluster.IngressesByHost.Get(v, h)) > 0
	})
}

// withoutSvc reports whether the name is in a cluster domain and has not the form of a
// Service's name.
func (d *diagnoser) withoutSvc() bool {
	name := strings.ToLower(strings.TrimSuffix(d.Name, "."))
	for _, domain := range d.Linter.Domains {
		rest, within := strings.CutSuffix(name, "."+domain)
		if !within {
			continue
		}
		labels := strings.Split(rest, ".")
		if last := len(labels) - 1; last == 1 && labels[1] == "svc" {
			d.namespaceName(labels[0])
			return true
		} else if suggest.Closest(labels[last], []string{"svc"}) != "" && d.existing(labels[:last], domain,
			": it has "+labels[last]+" instead of svc") {
			return true
		}
		if !d.existing(labels, domain, ": it lacks svc") {
			d.add("no-meaning", "the name of a Service is SERVICE.NAMESPACE.svc."+domain,
				"%s is in the cluster domain, and is not the name of a Service or a Pod", d.Name)
		}
		return true
	}
	return false
}

// existing reports whether labels are those of a Service before svc and the cluster domain.
func (d *diagnoser) existing(labels []string, domain, difference string) bool {
	m, ok := meaningOf(strings.Join(labels, ".")+".svc."+domain, d.Linter.Domains)
	if !ok || d.Linter.View.Service(m.service) == nil {
		return false
	}
	d.suggest("no-meaning", m, "", "%s is in the cluster domain, and is not the name of a Service or a Pod%s", d.Name,
		difference)
	return true
}

// namespaceName diagnoses a lookup of a namespace instead of a Service.
func (d *diagnoser) namespaceName(namespace string) {
	if d.Linter.View.Namespace(namespace) == nil && !isSystem(namespace) {
		d.add("no-namespace", "check that the label before svc is a namespace", "namespace %s does not exist", namespace)
		return
	}
	cure := "ask for a Service in it, of which there is none yet"
	for _, service := range d.servicesIn(namespace) {
		name, resolves := d.nameOf(meaning{service: cluster.Key{Namespace: namespace, Name: service}})
		if resolves {
			cure = fmt.Sprintf("ask for a Service in it, such as %q", name)
			break
		}
	}
	d.add("namespace-name", cure, "%s is the name of namespace %s, which has no address", d.Name, namespace)
}

// serverNames returns the names that the server tries for a candidate: those of the search
// list if the server applies it, else the candidate.
func (d *diagnoser) serverNames(candidate string) []string {
	if d.ServerSearch != nil {
		if names := d.ServerSearch(candidate); len(names) > 0 {
			return names
		}
	}
	return []string{candidate}
}

// meaning returns what the name was most likely meant to stand for, of the meanings of
// all names that the resolver tries.
func (d *diagnoser) meaning() (meaning, bool) {
	m, likely := d.likeliest(d.names)
	return m, likely > 0
}

// likeliest returns the most likely meaning of names, and its likelihood, 0 if they have
// none.
func (d *diagnoser) likeliest(names []string) (best meaning, most int) {
	for _, tried := range names {
		for _, name := range d.serverNames(tried) {
			if m, is := meaningOf(name, d.Linter.Domains); is {
				if n := d.likelihood(m); n > most {
					best, most = m, n
				}
			}
		}
	}
	return best, most
}

// inNamespace is the likelihood of the name of a Service in a namespace that exists.
const inNamespace = 4

// likelihood returns a number that is greater for more likely meanings, and 0 for those to
// ignore.
func (d *diagnoser) likelihood(m meaning) int {
	service := d.Linter.View.Service(m.service)
	name := strings.TrimSuffix(d.Name, ".")
	switch {
	case service != nil && (m.host == "" || service.Headless):
		return inNamespace + 2
	case m.host != "" && (d.underSubdomain(m.service) != nil || d.statefulSetOf(m) != nil):
		return inNamespace + 1
	case m.host == "" && d.Linter.View.Namespace(m.service.Namespace) != nil:
		return inNamespace
	case service != nil:
		return 3
	case m.host == "" && strings.Contains(name+".", ".svc."):
		return 2
	case m.host == "" && strings.Count(name, ".") <= 1 && !d.Routed &&
		(!lint.IsTLD(m.service.Namespace) || len(d.namespacesWith(m.service.Name)) > 0):
		return 2
	}
	return 0
}

// underSubdomain returns a Pod whose subdomain is the name of a Service, or nil.
func (d *diagnoser) underSubdomain(service cluster.Key) *dnsconfig.Subject {
	return dnsconfig.UnderSubdomain(d.Linter.View, service.Namespace, service.Name)
}

// statefulSetOf returns the StatefulSet whose Pods have names of the form of m.host, or
// nil.
func (d *diagnoser) statefulSetOf(m meaning) *cluster.Workload {
	dash := strings.LastIndexByte(m.host, '-')
	if dash < 0 {
		return nil
	}
	if _, err := strconv.Atoi(m.host[dash+1:]); err != nil {
		return nil
	}
	return d.Linter.View.Workload(cluster.KindStatefulSet,
		cluster.Key{Namespace: m.service.Namespace, Name: m.host[:dash]})
}

// statefulSet reports whether the name is that of a StatefulSet's Pod under a Service
// that does not exist.
func (d *diagnoser) statefulSet(m meaning) bool {
	w := d.statefulSetOf(m)
	if w == nil {
		return false
	}
	s := dnsconfig.SubjectOfWorkload(w)
	if d.addFindings(d.Linter.CheckSubject(&s), lint.StatefulSetNoService, lint.StatefulSetServiceMissing) {
		return true
	}
	right := meaning{service: cluster.Key{Namespace: w.Namespace, Name: w.Service}, host: m.host}
	d.suggest("other-service", right, "", "the names of statefulset %s's Pods are under Service %s, not %s", w.Key,
		w.Service, m.service.Name)
	return true
}

// outside diagnoses names outside the cluster. The outcome is not known if no server was
// queried.
func (d *diagnoser) outside() {
	last := d.e.last()
	if last == nil {
		return
	}
	names := d.serverNames(last.Name)
	name := names[len(names)-1]
	if slices.ContainsFunc(last.Exchanges, func(q Exchange) bool { return q.assumed }) {
		d.e.Outcome, d.e.Why = unknown, name+" is outside the cluster, and no server was queried"
		d.add("outside", "use --live to query the running server",
			"%s is outside the cluster: the answer depends on servers that were not queried", name)
		d.queries()
		return
	}
	refused := slices.ContainsFunc(last.Exchanges, func(q Exchange) bool { return q.Result == dnswire.Refused.String() })
	failed := slices.IndexFunc(last.Exchanges, func(q Exchange) bool { return isFailure(q.Result) })
	switch {
	case refused:
		d.add("no-upstream", upstreamCure, "the server has no upstream for %s, which is outside the cluster, and refuses it",
			name)
	case failed >= 0:
		q := &last.Exchanges[failed]
		d.add("upstream-fails", "check the server's upstreams (dns.forward.routes), its log and its metrics",
			"%s has no answer for %s, which is outside the cluster (%s%s)", q.Server, name, q.Result, noteOf(q))
	default:
		d.add("outside", "check the name", "%s is outside the cluster, and does not exist there either", name)
	}
}

// upstreamCure is the cure for names outside the cluster that a server does not resolve.
const upstreamCure = "configure an upstream (dns.forward.routes), if Pods should look up such names"

// subdomain reports whether Pods have the Service's name as subdomain, and the Service
// does not exist.
func (d *diagnoser) subdomain(m meaning) bool {
	s := d.underSubdomain(m.service)
	return s != nil && d.addFindings(d.Linter.CheckSubject(s), lint.PodSubdomainNoService)
}

// otherNamespace reports whether other namespaces have a Service of that name.
func (d *diagnoser) otherNamespace(m meaning) bool {
	others := d.namespacesWith(m.service.Name)
	if len(others) == 0 {
		return false
	}
	there := m
	there.service.Namespace = others[0]
	d.suggest("other-namespace", there, "", "Service %s is not in namespace %s; it is in %s", m.service.Name,
		m.service.Namespace, firstFew(others))
	return true
}

// namespacesWith returns the namespaces that have a Service of that name, sorted.
func (d *diagnoser) namespacesWith(service string) (names []string) {
	for s := range d.Linter.View.Services() {
		if s.Name == service {
			names = append(names, s.Namespace)
		}
	}
	slices.Sort(names)
	return names
}

// namespace reports whether the namespace does not exist. It suggests one that has the
// Service, or one with a similar name.
func (d *diagnoser) namespace(m meaning) bool {
	wrong := m.service.Namespace
	if isSystem(wrong) || d.Linter.View.Namespace(wrong) != nil {
		return false
	}
	having := d.namespacesWith(m.service.Name)
	if right := cmp.Or(suggest.Closest(wrong, having), first(having)); right != "" {
		m.service.Namespace = right
		d.suggest("no-namespace", m, ifMeant, "namespace %s does not exist", wrong)
		return true
	}
	var all []string
	for n := range d.Linter.View.Namespaces() {
		all = append(all, n.Name)
	}
	slices.Sort(all)
	cure := "check that the second label of the name is a namespace"
	if right := suggest.Closest(wrong, all); right != "" {
		cure = fmt.Sprintf("use namespace %s, if that is what is meant; it has no Service %s either", right, m.service.Name)
	}
	d.add("no-namespace", cure, "namespace %s does not exist", wrong)
	return true
}

// isSystem reports whether every cluster has a namespace of that name.
func isSystem(namespace string) bool {
	return slices.Contains([]string{"default", "kube-system", "kube-public", "kube-node-lease"}, namespace)
}

// first returns the first element, or "".
func first(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// typo reports whether the namespace has a Service with a similar name.
func (d *diagnoser) typo(m meaning) bool {
	near := suggest.Closest(m.service.Name, d.servicesIn(m.service.Namespace))
	if near == "" {
		return false
	}
	wrong := m.service
	m.service.Name = near
	d.suggest("typo", m, ifMeant, "Service %s does not exist; %s does", wrong, near)
	return true
}

// servicesIn returns the names of the Services in a namespace, sorted.
func (d *diagnoser) servicesIn(namespace string) (names []string) {
	for s := range d.Linter.View.Services() {
		if s.Namespace == namespace {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return names
}
