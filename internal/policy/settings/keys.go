package settings

import "portolan.dev/portolan/internal/config/key"

// Keys are the keys of the section policy, in the order of the file.
var Keys = key.Table{
	{
		Path: "policy",
		Description: "NetworkPolicies and ClusterNetworkPolicies of a node, the part `policy` of `portolan node`. " +
			"See policy.md.",
	},
	{Path: "policy.table", Restart: []key.Condition{key.Always},
		Description: "The name of the nftables table. Run `portolan cleanup` before it is changed: " +
			"the old one stays in force."},
	{Path: "policy.existing", Values: []string{Cut, Keep}, Restart: []key.Condition{key.Always},
		Description: "What becomes of connections that a change of policies forbids: `cut` ends them, " +
			"`keep` lets them go on until they end."},
	{Path: "policy.podRanges", Restart: []key.Condition{key.Always},
		Description: "The ranges that the node's Pods get addresses of; without them those of the Node's `spec.podCIDRs`. " +
			"Packets from or to an address in them that no known Pod has are dropped, unless other nodes have addresses in " +
			"the range."},
	{Path: "policy.daemonSet", Restart: []key.Condition{key.Always},
		Description: "The name of the agents' DaemonSet, in the namespace of their Pods. An agent that ends when it is " +
			"gone, or its next Pods lack the annotation `" + Annotation + "`, removes the table and, with " +
			"`policy.cni.install`, the plugin's entry. Otherwise both stay for the next agent."},
	{Path: "policy.cni",
		Description: "The CNI plugin `portolan cni`, by which a Pod starts when its rules are in the kernel."},
	{Path: "policy.cni.socket", Restart: []key.Condition{key.Always},
		Description: "The socket at which the plugin asks the agent (`--cni-socket`); empty turns it off."},
	{Path: "policy.cni.install", Restart: []key.Condition{key.Always},
		Description: "Install the plugin into the network of the node, and keep it there: its program, and an entry in " +
			"the configuration that the container runtime loads."},
	{Path: "policy.cni.binDir", Restart: []key.Condition{key.Always},
		Description: "The directory of CNI plugins of the container runtime."},
	{Path: "policy.cni.confDir", Restart: []key.Condition{key.Always},
		Description: "The directory of network configurations of the container runtime."},
	{Path: "policy.domains",
		Description: "Policies by domain name."},
	{Path: "policy.domains.leastTTL", Min: "1s", Max: "24h", Restart: []key.Condition{key.Always},
		Description: "The least time that an address may be connected to after the agent answered a Pod with it."},
	{Path: "policy.domains.grace", Min: "0s", Max: "24h", Restart: []key.Condition{key.Always},
		Description: "How much longer than the answer's TTL an address may be connected to."},
	{Path: "policy.domains.maxAddresses", Min: "1", Max: "65536", Restart: []key.Condition{key.Always},
		Description: "The highest number of addresses of one name; of more, those answered last count."},
	{Path: "policy.log",
		Description: "The log of packets that policies drop, or would drop in audit mode."},
	{Path: "policy.log.group", Min: "1", Max: "65535", Restart: []key.Condition{key.Always},
		Description: "The group of NFLOG that the kernel sends these packets to."},
	{Path: "policy.log.rate", Min: "1", Max: "10000", Restart: []key.Condition{key.Always},
		Description: "The highest number of packets per second that are logged of each reason."},
}
