package query

import (
	"strings"

	"portolan.dev/portolan/bench/synthetic"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// lookup adds the queries of a resolver for one lookup of a program in a Pod. With
// ndots:5, a name with fewer dots is first tried with each domain of the search list, A
// and AAAA each time, until one exists.
//
// Of 100 lookups, 40 are of a Service in the Pod's Namespace (2 queries), 25 of a Service
// in another (4), 15 of a fully qualified name (8), 10 of a name outside the cluster (6; the
// seventh and eighth query are outside the zone and are omitted), 5 of SERVICE.NS.svc (6),
// 3 of a headless Service with 20 endpoints (2), and 2 are SRV queries for such a Service
// (1). Of the 398 answers, 220 are NXDOMAIN (55 %), 88 NODATA (22 %), 85 addresses of
// Services (21 %), 3 headless and 2 SRV.
func (a *asker) lookup() {
	namespace := a.NamespaceName(a.random.IntN(a.Namespaces))
	service, other := a.any(synthetic.ClusterIP), a.any(synthetic.ClusterIP)
	otherName := a.ServiceName(synthetic.ClusterIP, other) + "." + a.NamespaceName(other)
	headless := a.any(synthetic.Headless)
	switch share := a.random.IntN(100); {
	case share < 40:
		a.search(a.ServiceName(synthetic.ClusterIP, service), a.NamespaceName(service), 1)
	case share < 65:
		a.search(otherName, namespace, 2)
	case share < 80:
		a.search(otherName+".svc.cluster.local", namespace, 4)
	case share < 90:
		a.search(outside[a.random.IntN(len(outside))], namespace, 3)
	case share < 95:
		a.search(otherName+".svc", namespace, 3)
	case share < 98:
		a.search(a.ServiceName(synthetic.Headless, headless), a.NamespaceName(headless), 1)
	default:
		a.add("_http._tcp."+a.DNSName(synthetic.Headless, headless), dnswire.TypeSRV, usualEDNS)
	}
}

// outside are names outside the cluster.
var outside = []string{"api.example.com", "registry.example.org", "storage.eu-1.example.net", "example.com"}

// search queries a name with the given number of domains of the search list. The last
// of the four is the empty domain.
func (a *asker) search(name, namespace string, domains int) {
	searches := []string{namespace + ".svc." + synthetic.Domain, "svc." + synthetic.Domain, synthetic.Domain, ""}
	for _, domain := range searches[:domains] {
		whole := strings.TrimSuffix(name+"."+domain, ".") + "."
		a.add(whole, dnswire.TypeA, noEDNS)
		a.add(whole, dnswire.TypeAAAA, noEDNS)
	}
}
