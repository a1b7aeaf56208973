package dnsconfig

import (
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/dns/resolvconf"
)

// ParseNode parses a node's resolv.conf as the kubelet does, which differs from
// resolvers: keywords may be indented, domain lines are ignored, a search line without a
// name empties the list, and search domains lose a trailing dot. The problems are those
// of resolvconf.Parse. With a nameserver line without an address, a kubelet starts no
// Pod.
func ParseNode(text string) (resolvconf.Config, []resolvconf.Problem) {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		line = strings.TrimSpace(line)
		switch words := strings.Fields(line); {
		case len(words) > 0 && words[0] == "domain":
			line = ""
		case len(words) == 1 && words[0] == "search":
			line = "search ."
		}
		lines[i] = line
	}
	// Reading from a strings.Reader returns no error.
	config, problems, _ := resolvconf.Parse(strings.NewReader(strings.Join(lines, "\n")))
	config.Searches = withoutDots(config.Searches)
	return config, problems
}

// withoutDots returns the search domains without trailing dots and without the root, nil
// if there are none.
func withoutDots(searches []string) []string {
	var list []string
	for _, search := range searches {
		if search != "." {
			list = append(list, strings.TrimSuffix(search, "."))
		}
	}
	return list
}

// nodeSearches returns the search domains of the node's resolv.conf.
func (f *builder) nodeSearches() []string {
	if f.node.ResolvConf == nil {
		return nil
	}
	return withoutDots(f.node.ResolvConf.Searches)
}

// nodeLists returns the lists of the policy Default. Without a resolv.conf the Pod has
// its own loopback address and the root as search domain: in effect it has no DNS.
func (f *builder) nodeLists() lists {
	if f.node.Unknown {
		return lists{}
	}
	if f.node.ResolvConf == nil {
		return lists{nameservers: loopbacks(f.node.Addrs), searches: []string{"."}}
	}
	l := lists{searches: f.nodeSearches(), options: slices.Clone(f.node.ResolvConf.Options)}
	for _, addr := range f.node.ResolvConf.Nameservers {
		l.nameservers = append(l.nameservers, addr.String())
	}
	return l
}

// loopbacks returns a loopback address of the same family for each address, and the IPv4
// one for no addresses.
func loopbacks(addrs []netip.Addr) []string {
	var list []string
	for _, addr := range addrs {
		if addr.Unmap().Is6() {
			list = append(list, "::1")
		} else {
			list = append(list, "127.0.0.1")
		}
	}
	if len(list) == 0 {
		return []string{"127.0.0.1"}
	}
	return list
}
