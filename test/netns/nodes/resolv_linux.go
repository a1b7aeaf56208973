package nodes

import (
	"fmt"
	"net/netip"
	"strings"
)

// Searched returns the name that a Pod of that Namespace queries if its search domain
// is that of the KEP "DNS Autopath in PodSpec".
func Searched(name, namespace string) string {
	return name + "." + SearchDomain(namespace)
}

// SearchDomain is that of the KEP.
func SearchDomain(namespace string) string { return "search." + namespace + ".cluster.local.ap.k8s.io" }

// ClusterFirst returns the resolv.conf that a kubelet writes for a Pod of that
// Namespace.
func ClusterFirst(namespace string, servers ...netip.Addr) string {
	return conf("NS.svc.cluster.local svc.cluster.local cluster.local", namespace, servers)
}

// WithSearch returns the resolv.conf with the search domain of the KEP.
func WithSearch(namespace string, servers ...netip.Addr) string {
	return conf(SearchDomain("NS"), namespace, servers)
}

func conf(search, namespace string, servers []netip.Addr) string {
	var text strings.Builder
	fmt.Fprintf(&text, "search %s\noptions ndots:5\n", strings.ReplaceAll(search, "NS", namespace))
	for _, s := range servers {
		fmt.Fprintf(&text, "nameserver %s\n", s)
	}
	return text.String()
}
