package nft

import (
	"fmt"
	"slices"
	"strings"
)

// What kube-proxy puts into a kernel beside its chains.
const (
	kubeProxyTable  = "kube-proxy" // in mode nftables, for each family
	kubeProxyDevice = "kube-ipvs0" // in mode ipvs
)

// kubeProxyChains are the chains that kube-proxy adds to tables of iptables in its modes iptables
// and ipvs (pkg/proxy/iptables and pkg/proxy/ipvs of k8s.io/kubernetes v1.36.3); a name that ends
// with "-" is a prefix. The kubelet's KUBE-FIREWALL, KUBE-KUBELET-CANARY and KUBE-IPTABLES-HINT
// are not among them.
var kubeProxyChains = map[string][]string{
	"nat": {
		"KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", "KUBE-MARK-MASQ", "KUBE-PROXY-CANARY",
		"KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-", "KUBE-XLB-",
		"KUBE-NODE-PORT", "KUBE-LOAD-BALANCER",
	},
	"filter": {
		"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-FORWARD", "KUBE-PROXY-FIREWALL",
		"KUBE-PROXY-CANARY", "KUBE-NODE-PORT", "KUBE-SOURCE-RANGES-FIREWALL", "KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER",
	},
	"mangle": {"KUBE-PROXY-CANARY"},
}

// ofKubeProxy reports whether kube-proxy adds a chain of this name to a table of iptables.
func ofKubeProxy(table, chain string) bool {
	return slices.ContainsFunc(kubeProxyChains[table], func(name string) bool {
		return chain == name || strings.HasSuffix(name, "-") && strings.HasPrefix(chain, name)
	})
}

// chainJump is a rule that jumps to a chain.
type chainJump struct {
	from, to string
	handle   string // as the kernel has it
}

// leftovers are what kube-proxy left in a table of iptables.
type leftovers struct {
	family Family
	table  string
	chains []string
	jumps  []chainJump // to them, from the built-in chains
}

// String describes the leftovers.
func (l *leftovers) String() string {
	noun := "chains"
	if len(l.chains) == 1 {
		noun = "chain"
	}
	return fmt.Sprintf("%d %s of kube-proxy in table %s %s", len(l.chains), noun, l.family, l.table)
}

// find adds the leftovers among the chains and jumps of the table. Chains that another program's
// chain jumps to, such as a port mapper's to KUBE-MARK-MASQ, are not among them.
func (l *leftovers) find(chains []string, isBuiltIn map[string]bool, jumps []chainJump) {
	needed := make(map[string]bool)
	for more := true; more; {
		more = false
		for _, j := range jumps {
			others := !isBuiltIn[j.from] && !ofKubeProxy(l.table, j.from)
			if (others || needed[j.from]) && !needed[j.to] {
				needed[j.to], more = true, true
			}
		}
	}
	for _, name := range chains {
		if ofKubeProxy(l.table, name) && !needed[name] {
			l.chains = append(l.chains, name)
		}
	}
	for _, j := range jumps {
		if isBuiltIn[j.from] && ofKubeProxy(l.table, j.to) {
			l.jumps = append(l.jumps, j)
		}
	}
}
