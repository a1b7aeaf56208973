package nodes

import (
	"net/netip"
	"strings"
)

// Searched is a name as a Pod of that Namespace asks for it when its search domain
// is that of the KEP "DNS Autopath in PodSpec".
func Searched(name, namespace string) string {
	return name + "." + SearchDomain(namespace)
}

// SearchDomain is that of the KEP.
func SearchDomain(namespace string) string { return "search." + namespace + ".cluster.local.ap.k8s.io" }

// ClusterFirst is the resolv.conf that a kubelet gives a Pod of that Namespace;
// WithSearch the one with the search domain of the KEP.
func ClusterFirst(namespace string, servers ...netip.Addr) string {
	return conf("NS.svc.cluster.local svc.cluster.local cluster.local", namespace, servers)
}

// WithSearch is explained with ClusterFirst.
func WithSearch(namespace string, servers ...netip.Addr) string {
	return conf(SearchDomain("NS"), namespace, servers)
}

func conf(search, namespace string, servers []netip.Addr) string {
	text := "search " + strings.ReplaceAll(search, "NS", namespace) + "\noptions ndots:5\n"
	for _, s := range servers {
		text += "nameserver " + s.String() + "\n"
	}
	return text
}
