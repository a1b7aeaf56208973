package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/check"
	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dnswire"
	"portolan.dev/portolan/internal/podresolv"
	"portolan.dev/portolan/internal/resolvconf"
	"portolan.dev/portolan/internal/stub"
)

// Diagnosis is why it ended as it did, in a sentence, and the cure.
type Diagnosis struct {
	// Rule is that of the check that found it, or a word of explain's own.
	Rule string `json:"rule"`
	Why  string `json:"why"`
	Cure string `json:"cure"`
}

// diagnosis holds what a diagnosis is made from, and what was found so far.
type diagnosis struct {
	*Request
	e     *Explanation
	a     *asker
	conf  resolvconf.Config // the Pod's
	found []Diagnosis
}

// would is what the name came to with another resolv.conf, or resolver.
func (d *diagnosis) would(conf resolvconf.Config, libc podresolv.Libc) stub.Trace {
	return d.resolve(conf, libc, d.a)
}

func (d *diagnosis) add(rule, cure, format string, args ...any) {
	d.found = append(d.found, Diagnosis{Rule: rule, Why: fmt.Sprintf(format, args...), Cure: cure})
}

// take takes over findings of the given rules, and tells whether there were any.
func (d *diagnosis) take(findings []check.Finding, rules ...string) bool {
	before := len(d.found)
	for _, f := range findings {
		if slices.Contains(rules, f.Rule) {
			d.found = append(d.found, Diagnosis{Rule: f.Rule, Why: f.Object.String() + ": " + f.Message, Cure: f.Fix})
		}
	}
	return len(d.found) > before
}

// diagnose says why the name ended as it did. What keeps every name from
// resolving comes first; then only what is about this name, nearest first.
func (d *diagnosis) diagnose() []Diagnosis {
	d.take(d.Cluster.Subject(&d.Subject), check.NetworkPolicyBlocksDNS)
	switch {
	case d.e.Found():
		d.behind()
		d.queries()
	case d.policy() || d.resolver():
	default:
		d.name()
	}
	return d.found
}

// nobodyThere are the rules of Services that nobody answers for.
var nobodyThere = []string{check.ServiceNoReadyEndpoint, check.ServiceSelectsNoPod, check.ServiceNoEndpoints, check.ServiceTargetPortMissing, check.ServiceScaledToZero}

// behind tells when a name resolves, and nobody answers at the address.
func (d *diagnosis) behind() {
	if m, ok := d.meaning(); ok {
		if s := d.Cluster.View.Service(m.service); s != nil && s.ExternalName == "" {
			d.take(d.Cluster.Service(s), nobodyThere...)
		}
	}
}

// queries tells when it took more packets than needed.
func (d *diagnosis) queries() {
	least, tries := len(d.types()), d.e.Tries
	if d.e.Packets <= 2*least || len(tries) < 2 {
		return
	}
	last := tries[len(tries)-1].Name
	cure := fmt.Sprintf("ask for %q, with the closing dot: %s", last, packets(least))
	if strings.EqualFold(d.Name+".", last) {
		cure += "; or give the Pod the option ndots:1 in dnsConfig"
	}
	d.add("many-queries", cure, "%d of %s were for names of the search list that do not exist (ndots:%d)",
		d.e.Packets-least, packets(d.e.Packets), d.e.Ndots)
}

func packets(n int) string {
	if n == 1 {
		return "1 packet"
	}
	return fmt.Sprintf("%d packets", n)
}

// policy tells whether the Pod would find the name if it asked the cluster's
// DNS.
func (d *diagnosis) policy() bool {
	asksCluster := func(a netip.Addr) bool { return slices.Contains(d.Node.ClusterDNS, a) }
	if len(d.Node.ClusterDNS) == 0 || slices.ContainsFunc(d.conf.Nameservers, asksCluster) {
		return false
	}
	pod := d.Subject.Settings()
	pod.Policy, pod.DNSConfig = podresolv.ClusterFirstWithHostNet, nil
	if would := d.would(podresolv.Resolve(pod, d.Node).Config, d.Libc); would.Outcome != stub.Found {
		return false
	}
	cure := "set dnsPolicy: ClusterFirst"
	if pod.HostNetwork {
		cure = "set dnsPolicy: ClusterFirstWithHostNet, since the Pod is in the node's network"
	}
	d.add("not-cluster-dns", cure, "the Pod does not ask the cluster's DNS: its dnsPolicy is %s, in effect %s", policyName(d.Subject.Spec.DNSPolicy), d.e.Policy)
	return true
}

func policyName(policy string) string {
	if policy == "" {
		return string(podresolv.ClusterFirst)
	}
	return policy
}

// resolver tells whether another resolver would find the name.
func (d *diagnosis) resolver() bool {
	if d.Libc == podresolv.Glibc {
		return false
	}
	would := d.would(d.conf, podresolv.Glibc)
	if would.Outcome != stub.Found || len(would.Tries) == 0 {
		return false
	}
	name := would.Tries[len(would.Tries)-1].Name
	d.add("resolver", fmt.Sprintf("ask for the whole name, %q", name), "glibc's resolver would find %s; this one (%s) does not: %s", name, d.e.Resolver, d.e.Why)
	return true
}

// name says what is wrong with what the name stands for.
func (d *diagnosis) name() {
	m, ok := d.meaning()
	if !ok {
		d.outside()
		return
	}
	if s := d.Cluster.View.Service(m.service); s != nil {
		d.service(s, m)
		return
	}
	if d.subdomain(m) || d.namespace(m) || d.elsewhere(m) || d.slip(m) {
		return
	}
	cure := "create it, or ask for another name"
	if names := d.servicesIn(m.service.Namespace); len(names) > 0 {
		cure += fmt.Sprintf("; in namespace %s there are %s", m.service.Namespace, some(names))
	}
	d.add("no-service", cure, "there is no Service %s", m.service)
}

// meaning is what was meant: what the candidate stands for that comes nearest to
// something that is there.
func (d *diagnosis) meaning() (best meaning, ok bool) {
	most := 0
	for _, try := range d.e.Tries {
		if m, is := meaningOf(try.Name, d.Cluster.Domains); is {
			if n := d.likelihood(m); n > most {
				best, most, ok = m, n, true
			}
		}
	}
	return best, ok
}

// likelihood is greater for what is more likely to be meant, and 0 for what is
// not.
func (d *diagnosis) likelihood(m meaning) int {
	service := d.Cluster.View.Service(m.service)
	name := strings.TrimSuffix(d.Name, ".")
	switch {
	case service != nil && (m.host == "" || service.Headless):
		return 6
	case m.host != "" && d.hasSubdomain(m.service):
		return 5
	case m.host == "" && d.Cluster.View.Namespace(m.service.Namespace) != nil:
		return 4
	case service != nil:
		return 3
	case m.host == "" && (strings.Count(name, ".") <= 1 || strings.Contains(name+".", ".svc.")): // not a public name
		return 2
	}
	return 0
}

// hasSubdomain tells whether there are Pods of that subdomain in a Namespace.
func (d *diagnosis) hasSubdomain(service cluster.Key) bool {
	return slices.ContainsFunc(podresolv.Subjects(d.Cluster.View), func(s podresolv.Subject) bool {
		return s.Namespace == service.Namespace && s.Spec.Subdomain == service.Name
	})
}

// outside speaks of names that are not the cluster's.
func (d *diagnosis) outside() {
	if len(d.e.Tries) == 0 {
		return
	}
	last := d.e.Tries[len(d.e.Tries)-1]
	for _, q := range last.Queries {
		if rest, assumed := strings.CutPrefix(q.Note, assumedNote); assumed {
			d.add("outside", "give --live to ask the server that runs", "%s: %s", last.Name, rest)
			return
		}
	}
	d.add("outside", "see that the name is right, and that the server has an upstream (forward.routes)", "%s is no name of the cluster's, and nobody else's that the server knows", last.Name)
}

// service says what is wrong with a Service that is there.
func (d *diagnosis) service(s *cluster.Service, m meaning) {
	findings := d.Cluster.Service(s)
	switch {
	case s.ExternalName != "":
		if !d.take(findings, check.ExternalNameAddress, check.ExternalNameLoop, check.ExternalNameMissingService, check.ExternalNameUnqualified) {
			d.add("external-name", "see that the target resolves", "Service %s stands for %s, which has no such record", s.Key, s.ExternalName)
		}
	case m.port != "":
		d.port(s, m, findings)
	case m.host != "":
		d.host(s, m)
	case d.family(s):
	case d.take(findings, nobodyThere...):
	default:
		d.add("no-record", "ask for A, AAAA or SRV", "Service %s has no %s record", s.Key, strings.Join(d.e.Type, " and no "))
	}
}

// family says that a Service has addresses of the other family only.
func (d *diagnosis) family(s *cluster.Service) bool {
	want4 := d.Type == dnswire.TypeA
	if !want4 && d.Type != dnswire.TypeAAAA {
		return false
	}
	addrs := slices.Clone(s.ClusterIPs)
	for _, slice := range d.Cluster.View.SlicesOf(s.Key) {
		if s.Headless {
			for _, e := range slice.Endpoints {
				addrs = append(addrs, e.Addr)
			}
		}
	}
	if len(addrs) == 0 || slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.Is4() == want4 }) {
		return false
	}
	has, wants := "IPv6", "IPv4"
	if !want4 {
		has, wants = wants, has
	}
	d.add("other-family", "ask for the other type, or make the Service dual-stack (ipFamilyPolicy: PreferDualStack)", "Service %s has %s addresses and no %s ones", s.Key, has, wants)
	return true
}

// port says why a Service has no SRV record for a port.
func (d *diagnosis) port(s *cluster.Service, m meaning, findings []check.Finding) {
	var names []string
	for _, p := range s.Ports {
		if p.Name == "" {
			continue
		}
		if p.Name == m.port {
			if !strings.EqualFold(string(p.Protocol), m.protocol) {
				d.add("port-protocol", fmt.Sprintf("ask for _%s._%s", p.Name, strings.ToLower(string(p.Protocol))), "port %s of Service %s is of %s", p.Name, s.Key, p.Protocol)
				return
			}
			d.take(findings, nobodyThere...)
			return
		}
		names = append(names, p.Name)
	}
	if len(names) == 0 {
		if !d.take(findings, check.ServicePortUnnamed) {
			d.add("port-unnamed", "give its ports names", "Service %s has no port with a name, and SRV records are of named ports", s.Key)
		}
		return
	}
	d.add("no-port", "ask for one of these", "Service %s has no port named %s; it has %s", s.Key, m.port, strings.Join(names, ", "))
}

// host says why a headless Service has no such endpoint.
func (d *diagnosis) host(s *cluster.Service, m meaning) {
	if !s.Headless {
		d.add("host-of-cluster-ip", "ask for the Service itself, or make it headless (clusterIP: None)", "Service %s is not headless: its endpoints have no names of their own, such as %s", s.Key, m.host)
		return
	}
	var hosts, unready []string
	for _, slice := range d.Cluster.View.SlicesOf(s.Key) {
		for _, e := range slice.Endpoints {
			switch {
			case e.Hostname == m.host && !e.Ready && !s.PublishNotReady:
				unready = append(unready, e.Addr.String())
			case e.Hostname != "":
				hosts = append(hosts, e.Hostname)
			}
		}
	}
	if len(unready) > 0 {
		d.add("host-not-ready", "see why it is not ready, or set publishNotReadyAddresses on the Service",
			"endpoint %s of Service %s is not ready (%s)", m.host, s.Key, strings.Join(unready, ", "))
		return
	}
	if pod := d.Cluster.View.Pod(cluster.Key{Namespace: s.Namespace, Name: m.host}); pod != nil && d.take(d.Cluster.Subject(new(podresolv.SubjectOfPod(pod))),
		check.PodSubdomainNoHostname, check.PodSubdomainNotSelected) {
		return
	}
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	if len(hosts) == 0 {
		d.add("no-hostnames", fmt.Sprintf("give the Pods a hostname, and subdomain: %s", s.Name), "no endpoint of Service %s has a hostname", s.Key)
		return
	}
	d.add("no-host", "ask for one of these", "no endpoint of Service %s is called %s; there are %s", s.Key, m.host, some(hosts))
}

// mostNamed is how many names a diagnosis lists.
const mostNamed = 5

func some(names []string) string {
	if more := len(names) - mostNamed; more > 0 {
		return strings.Join(names[:mostNamed], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}

// subdomain says that Pods have the name for their subdomain, and no Service
// has it.
func (d *diagnosis) subdomain(m meaning) bool {
	for _, s := range podresolv.Subjects(d.Cluster.View) {
		if s.Namespace == m.service.Namespace && s.Spec.Subdomain == m.service.Name {
			return d.take(d.Cluster.Subject(&s), check.PodSubdomainNoService)
		}
	}
	return false
}

// elsewhere says that other Namespaces have a Service of that name.
func (d *diagnosis) elsewhere(m meaning) bool {
	others := d.namespacesWith(m.service.Name)
	if len(others) == 0 {
		return false
	}
	d.add("other-namespace", fmt.Sprintf("ask for %q", m.service.Name+"."+others[0]),
		"Service %s is not in namespace %s; it is in %s", m.service.Name, m.service.Namespace, some(others))
	return true
}

// namespacesWith are the Namespaces that have a Service of that name, in order.
func (d *diagnosis) namespacesWith(service string) (names []string) {
	for s := range d.Cluster.View.Services() {
		if s.Name == service {
			names = append(names, s.Namespace)
		}
	}
	slices.Sort(names)
	return names
}

// namespace says that there is no such Namespace, and which is perhaps meant:
// one that has the Service, if there is any.
func (d *diagnosis) namespace(m meaning) bool {
	if d.Cluster.View.Namespace(m.service.Namespace) != nil {
		return false
	}
	all := d.namespacesWith(m.service.Name)
	meant := check.Nearest(m.service.Namespace, all)
	if meant == "" && len(all) > 0 {
		meant = all[0]
	}
	if meant == "" {
		for n := range d.Cluster.View.Namespaces() {
			all = append(all, n.Name)
		}
		slices.Sort(all)
		meant = check.Nearest(m.service.Namespace, all)
	}
	cure := "see that the second label of the name is a Namespace"
	if meant != "" {
		cure = fmt.Sprintf("ask for %q, if that is what is meant", m.service.Name+"."+meant)
	}
	d.add("no-namespace", cure, "there is no Namespace %s", m.service.Namespace)
	return true
}

// slip says which Service has a name like it.
func (d *diagnosis) slip(m meaning) bool {
	near := check.Nearest(m.service.Name, d.servicesIn(m.service.Namespace))
	if near == "" {
		return false
	}
	d.add("slip", fmt.Sprintf("ask for %q, if that is what is meant", near), "there is no Service %s; there is %s", m.service, near)
	return true
}

// servicesIn are the names of the Services of a Namespace, in order.
func (d *diagnosis) servicesIn(namespace string) (names []string) {
	for s := range d.Cluster.View.Services() {
		if s.Namespace == namespace {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return names
}
