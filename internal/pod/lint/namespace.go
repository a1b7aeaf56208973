package lint

import (
	"fmt"
	"slices"

	"golang.org/x/net/publicsuffix"

	"portolan.dev/portolan/internal/cluster"
)

// CheckNamespace checks the name of a namespace, which ends short names of Services.
func (c *Linter) CheckNamespace(n *cluster.Namespace) []Finding {
	j := c.reporterFor(cluster.KindNamespace, cluster.Key{Name: n.Name})
	switch {
	case n.Name == "svc" || n.Name == "pod":
		j.add(NamespaceNamedSvc, "metadata.name", "rename the namespace",
			"lookups of SERVICE.NAMESPACE.%s try this namespace first: the search domain svc.%s comes before %s",
			n.Name, j.domain(), j.domain())
	case IsTLD(n.Name):
		services := c.indexed().services[n.Name]
		if len(services) == 0 {
			break
		}
		names := make([]string, len(services))
		for i, s := range services {
			names[i] = s.Name + "." + n.Name
		}
		j.add(NamespaceIsTLD, "metadata.name", "rename the namespace, or write names on the internet with a trailing dot",
			".%s is a top-level domain, and Pods that look up %s get Services of this namespace", n.Name, firstFew(names))
	}
	return j.found()
}

// IsTLD reports whether a label is a public top-level domain.
func IsTLD(label string) bool {
	suffix, icann := publicsuffix.PublicSuffix("x." + label)
	return icann && suffix == label
}

// dnsServiceMissing checks that the Service of the cluster DNS exists, if any object
// of its namespace is known.
func (j *reporter) dnsServiceMissing() {
	key := j.DNSService
	if !j.loaded(cluster.KindService) || key.Name == "" || j.View.Service(key) != nil {
		return
	}
	if x := j.indexed(); len(x.services[key.Namespace]) == 0 && !x.occupied[key.Namespace] {
		return
	}
	j.add(DNSServiceMissing, "",
		"create the Service with UDP and TCP port 53 and the kubelets' clusterDNS as its cluster IP, or name another "+
			"one in the setting dns.nameServer.service",
		"the Service of the cluster DNS does not exist%s: Pods send their queries to its cluster IP",
		didYouMean(j.indexed().similarService(key.Namespace, key.Name)))
}

// dnsServicePorts checks that the cluster DNS has UDP and TCP port 53.
func (j *reporter) dnsServicePorts(s *cluster.Service) {
	for _, p := range []cluster.Protocol{cluster.UDP, cluster.TCP} {
		if hasPort(s, p) {
			continue
		}
		what := "no name resolves"
		if p == cluster.TCP {
			what = "responses that do not fit a UDP packet are lost"
		}
		j.add(DNSServicePorts, "spec.ports", fmt.Sprintf("add %s port 53", p),
			"the Service of the cluster DNS has no %s port 53: %s", p, what)
	}
}

// unansweredRules are the rules about Services at whose addresses nothing answers.
var unansweredRules = []string{ServiceNoReadyEndpoint, ServiceSelectsNoPod, ServiceNoEndpoints, ServiceScaledToZero}

// dnsServiceEndpoints makes a finding about missing endpoints of the cluster DNS an error:
// without them no name resolves. Manifests that have no Pod and no workload of its
// namespace do not show whether it has any.
func (j *reporter) dnsServiceEndpoints() {
	if !j.Observed && !j.indexed().occupied[j.object.Namespace] {
		return
	}
	for i := range j.findings {
		if f := &j.findings[i]; slices.Contains(unansweredRules, f.Rule) {
			f.Rule, f.Severity = DNSServiceNoEndpoint, Error
		}
	}
}

// hasPort reports whether a Service has port 53 of the protocol.
func hasPort(s *cluster.Service, p cluster.Protocol) bool {
	for _, port := range s.Ports {
		if port.Number == 53 && port.Protocol == p {
			return true
		}
	}
	return false
}
