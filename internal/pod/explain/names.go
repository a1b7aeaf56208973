package explain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/support/suggest"
)

// name diagnoses the Service or endpoint that the name stands for.
func (d *diagnoser) name() {
	m, ok := d.meaning()
	if !ok {
		if !d.withoutSvc() {
			d.outside()
		}
		return
	}
	if s := d.Linter.View.Service(m.service); s != nil {
		d.service(s, m)
		return
	}
	if d.subdomain(m) || d.statefulSet(m) || d.namespace(m) || d.otherNamespace(m) || d.typo(m) {
		return
	}
	cure := "create it, or use another name"
	if names := d.servicesIn(m.service.Namespace); len(names) > 0 {
		cure += fmt.Sprintf("; namespace %s has %s", m.service.Namespace, firstFew(names))
	}
	if m.service == (cluster.Key{Namespace: "default", Name: "kubernetes"}) {
		cure = "read the cluster itself (--kubeconfig FILE)"
	}
	d.add("no-service", cure, "Service %s does not exist", m.service)
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
		cure := "the name of a Service is SERVICE.NAMESPACE.svc." + domain
		if m, ok := meaningOf(rest+".svc."+domain, d.Linter.Domains); ok && d.Linter.View.Service(m.service) != nil {
			cure = fmt.Sprintf("ask for %q", d.nameOf(m.service, m.host))
		}
		d.add("no-meaning", cure, "%s is in the cluster domain, and is not the name of a Service or a Pod", d.Name)
		return true
	}
	return false
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
// all candidates.
func (d *diagnoser) meaning() (best meaning, ok bool) {
	most := 0
	for _, try := range d.e.Candidates {
		for _, name := range d.serverNames(try.Name) {
			if m, is := meaningOf(name, d.Linter.Domains); is {
				if n := d.likelihood(m); n > most {
					best, most, ok = m, n, true
				}
			}
		}
	}
	return best, ok
}

// likelihood returns a number that is greater for more likely meanings, and 0 for those to
// ignore.
func (d *diagnoser) likelihood(m meaning) int {
	service := d.Linter.View.Service(m.service)
	name := strings.TrimSuffix(d.Name, ".")
	switch {
	case service != nil && (m.host == "" || service.Headless):
		return 6
	case m.host != "" && (d.underSubdomain(m.service) != nil || d.statefulSetOf(m) != nil):
		return 5
	case m.host == "" && d.Linter.View.Namespace(m.service.Namespace) != nil:
		return 4
	case service != nil:
		return 3
	case m.host == "" && strings.Contains(name+".", ".svc."):
		return 2
	case m.host == "" && strings.Count(name, ".") <= 1 &&
		(!lint.IsTLD(m.service.Namespace) || len(d.namespacesWith(m.service.Name)) > 0):
		return 2
	}
	return 0
}

// underSubdomain returns a Pod whose subdomain is the name of a Service, or nil.
func (d *diagnoser) underSubdomain(service cluster.Key) *dnsconfig.Subject {
	all := dnsconfig.Subjects(d.Linter.View)
	i := slices.IndexFunc(all, func(s dnsconfig.Subject) bool {
		return s.Namespace == service.Namespace && s.Spec.Subdomain == service.Name
	})
	if i < 0 {
		return nil
	}
	return &all[i]
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
	d.add("other-service",
		fmt.Sprintf("ask for %q", d.nameOf(cluster.Key{Namespace: w.Namespace, Name: w.Service}, m.host)),
		"the names of statefulset %s's Pods are under Service %s, not %s", w.Key, w.Service, m.service.Name)
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
	d.add("outside", "check the name", "%s is outside the cluster, and does not exist there either", name)
}

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
	d.add("other-namespace",
		fmt.Sprintf("ask for %q", d.nameOf(cluster.Key{Namespace: others[0], Name: m.service.Name}, m.host)),
		"Service %s is not in namespace %s; it is in %s", m.service.Name, m.service.Namespace, firstFew(others))
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
	switch m.service.Namespace {
	case "default", "kube-system", "kube-public", "kube-node-lease": // every cluster has them
		return false
	}
	if d.Linter.View.Namespace(m.service.Namespace) != nil {
		return false
	}
	all := d.namespacesWith(m.service.Name)
	meant := suggest.Closest(m.service.Namespace, all)
	if meant == "" && len(all) > 0 {
		meant = all[0]
	}
	if meant == "" {
		for n := range d.Linter.View.Namespaces() {
			all = append(all, n.Name)
		}
		slices.Sort(all)
		meant = suggest.Closest(m.service.Namespace, all)
	}
	cure := "check that the second label of the name is a namespace"
	if meant != "" {
		cure = fmt.Sprintf("ask for %q, if that is what is meant",
			d.nameOf(cluster.Key{Namespace: meant, Name: m.service.Name}, m.host))
	}
	d.add("no-namespace", cure, "namespace %s does not exist", m.service.Namespace)
	return true
}

// typo reports whether the namespace has a Service with a similar name.
func (d *diagnoser) typo(m meaning) bool {
	near := suggest.Closest(m.service.Name, d.servicesIn(m.service.Namespace))
	if near == "" {
		return false
	}
	key := cluster.Key{Namespace: m.service.Namespace, Name: near}
	d.add("typo", fmt.Sprintf("ask for %q, if that is what is meant", d.nameOf(key, m.host)),
		"Service %s does not exist; %s does", m.service, near)
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
