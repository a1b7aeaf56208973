package settings

import (
	"slices"

	"portolan.dev/portolan/internal/config/key"
	announce "portolan.dev/portolan/internal/network/announce/settings"
	"portolan.dev/portolan/internal/network/plan"
)

// Keys are the keys of the section network, in the order of the file.
var Keys = slices.Concat(ownKeys, announce.Keys)

var ownKeys = key.Table{
	{
		Path: "network",
		Description: "The network of a node's Pods, the part `network` of `portolan node`. " +
			"See network.md.",
	},
	{
		Path:    "network.encapsulation",
		Values:  []string{string(plan.CrossSubnet), string(plan.Always), string(plan.Never)},
		Restart: []key.Condition{key.Always},
		Description: "Which nodes are reached through a VXLAN tunnel: `crossSubnet` those that share no link " +
			"with this one, `always` all, `never` none.",
	},
	{Path: "network.mtu", Min: "0", Max: "65535", Restart: []key.Condition{key.Always},
		Description: "The MTU of Pods, in octets; 0 is that of the node's uplink, less what a tunnel adds unless " +
			"`network.encapsulation` is `never`."},
	{Path: "network.vxlan", Description: "The tunnels between nodes (RFC 7348). All nodes need the same values."},
	{Path: "network.vxlan.vni", Min: "1", Max: "16777215", Restart: []key.Condition{key.Always},
		Description: "The VXLAN network identifier."},
	{Path: "network.vxlan.port", Min: "1", Max: "65535", Restart: []key.Condition{key.Always},
		Description: "The UDP port of tunnels. Unless `network.encapsulation` is `never`, or all is encrypted, no other " +
			"program of a node can use it, also where no node is behind a tunnel: packets to it that are not of a node are " +
			"dropped."},
	{
		Path:    "network.vxlan.nodeAddresses",
		Restart: []key.Condition{key.Always},
		Description: "Pods reach the addresses of nodes behind a tunnel through it, too. `false` leaves these packets to " +
			"the network between nodes, which must let pass Pods' addresses as their source. See network.md.",
	},
	{
		Path:    "network.encryption",
		Values:  []string{string(plan.NoEncryption), string(plan.WireGuard)},
		Restart: []key.Condition{key.Always},
		Description: "How packets between Pods of different nodes, and between Pods and other nodes, are encrypted. With " +
			"`wireguard` all of them go through tunnels of WireGuard, which takes the place of `network.encapsulation`.",
	},
	{Path: "network.wireguard",
		Description: "The tunnels with `network.encryption: wireguard`. All nodes need the same values."},
	{Path: "network.wireguard.port", Min: "1", Max: "65535", Restart: []key.Condition{key.Always},
		Description: "The UDP port of encrypted tunnels."},
	{
		Path:    "network.wireguard.nodesWithoutKey",
		Values:  []string{string(plan.Unreachable), string(plan.Unencrypted)},
		Restart: []key.Condition{key.Always},
		Description: "What becomes of packets to Pods of a node that has published no key: `unreachable` refuses them, " +
			"`unencrypted` sends them as without encryption, while a cluster moves to it.",
	},
	{
		Path:    "network.masquerade",
		Restart: []key.Condition{key.Always},
		Description: "Packets of Pods to destinations outside the cluster leave the node with its address. The cluster " +
			"is the Pod ranges of all Nodes, their addresses, the ranges of cluster IPs, and `network.nonMasqueradeCIDRs`.",
	},
	{Path: "network.nonMasqueradeCIDRs", Restart: []key.Condition{key.Always},
		Description: "Ranges outside the cluster to which Pods keep their addresses."},
	{Path: "network.table", Restart: []key.Condition{key.Always},
		Description: "The name of the nftables table. Run `portolan cleanup` before it is changed: " +
			"the old one stays in force."},
	{Path: "network.cni",
		Description: "The CNI plugin `portolan cni`, by which the container runtime asks for a Pod's network."},
	{
		Path:    "network.cni.socket",
		Restart: []key.Condition{key.Always},
		Description: "The socket at which the plugin asks the agent (`--cni-socket`). The directory `network` " +
			"beside it has the records of Pods.",
	},
	{
		Path:    "network.cni.install",
		Restart: []key.Condition{key.Always},
		Description: "Install the plugin: its program, and the network configuration `" + ConfName + "`, which " +
			"is written when the agent can give Pods their network.",
	},
	{Path: "network.cni.binDir", Restart: []key.Condition{key.Always},
		Description: "The directory of CNI plugins of the container runtime."},
	{Path: "network.cni.confDir", Restart: []key.Condition{key.Always},
		Description: "The directory of network configurations of the container runtime."},
}
