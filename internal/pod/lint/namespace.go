package lint

import (
	"golang.org/x/net/publicsuffix"

	"portolan.dev/portolan/internal/cluster"
)

// Namespace judges a Namespace by its name, which is the end of short names.
func (c *Linter) CheckNamespace(n *cluster.Namespace) []Finding {
	j := c.reporterFor(cluster.KindNamespace, cluster.Key{Name: n.Name})
	switch {
	case n.Name == "svc" || n.Name == "pod":
		j.add(NamespaceNamedSvc, "metadata.name", "give it another name",
			"Pods that ask for SERVICE.NAMESPACE.%s are led into this Namespace first: the search domain svc.%s comes before %s", n.Name, j.domain(), j.domain())
	case IsTLD(n.Name):
		services := c.indexed().services[n.Name]
		if len(services) == 0 {
			break
		}
		names := make([]string, len(services))
		for i, s := range services {
			names[i] = s.Name + "." + n.Name
		}
		j.add(NamespaceIsTLD, "metadata.name", "give it a name that is no top-level domain, or write names on the internet with a closing dot",
			".%s is a top-level domain of the internet, and Pods that ask for %s are led into this Namespace", n.Name, some(names))
	}
	return j.found()
}

// IsTLD tells whether a label is a public top-level domain.
func IsTLD(label string) bool {
	suffix, icann := publicsuffix.PublicSuffix("x." + label)
	return icann && suffix == label
}

// dnsServiceMissing: where the namespace of the DNS Service is known, the
// Service is, too.
func (j *reporter) dnsServiceMissing() {
	key := j.DNSService
	if !j.loaded(cluster.KindService) || key.Name == "" || j.View.Service(key) != nil {
		return
	}
	if x := j.indexed(); len(x.services[key.Namespace]) == 0 && !x.occupied[key.Namespace] {
		return
	}
	j.add(DNSServiceMissing, "", "make the Service, with UDP and TCP port 53, and the address that the kubelets have as clusterDNS; or name another in the setting dns.nameServer.service",
		"there is no Service of this name%s, which Pods ask for names", mean(j.indexed().nearestService(key.Namespace, key.Name)))
}

// dnsServicePorts: DNS is port 53 of both protocols.
func (j *reporter) dnsServicePorts(s *cluster.Service) {
	for _, p := range []cluster.Protocol{cluster.UDP, cluster.TCP} {
		if hasPort(s, p) {
			continue
		}
		what := "no name resolves"
		if p == cluster.TCP {
			what = "answers that do not fit a packet are lost"
		}
		j.add(DNSServicePorts, "spec.ports", "add port 53 of protocol "+string(p), "the cluster's DNS has no %s port 53: %s", p, what)
	}
}

// hasPort tells whether a Service has port 53 of the protocol.
func hasPort(s *cluster.Service, p cluster.Protocol) bool {
	for _, port := range s.Ports {
		if port.Number == 53 && port.Protocol == p {
			return true
		}
	}
	return false
}
