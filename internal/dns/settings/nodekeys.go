package settings

import "portolan.dev/portolan/internal/config/key"

// NodeKeys are the keys of the section node, in the order of the file.
var NodeKeys = key.Table{
	{Path: "node",
		Description: "The agent on each node, `portolan node`. See node.md."},
	{Path: "node.parts", Restart: []key.Condition{key.Always},
		Description: "What the agent does (`--parts`): `dns`, `proxy` for the service proxy of the section `proxy`, or " +
			"both. The other keys of this section are for `dns`."},
	{Path: "node.mode", Values: []string{"secondary", "cache"}, Restart: []key.Condition{key.Always},
		Description: "`secondary` keeps the cluster's zones, `cache` forwards to the cluster's servers (`--mode`)."},
	{Path: "node.addresses", Restart: []key.Condition{key.Always},
		Description: "Addresses to put on the node and listen on (`--address`); none when empty."},
	{Path: "node.port", Min: "1", Max: "65535", Restart: []key.Condition{key.Always},
		Description: "The port at these addresses."},
	{Path: "node.device", Restart: []key.Condition{key.Always},
		Description: "The prefix of the name of the device that has the addresses."},
	{Path: "node.servers", Restart: []key.Condition{key.Always},
		Description: "The cluster's DNS servers (`--server`), as in `dns.forward.routes.upstreams`, over TCP unless " +
			"the scheme says otherwise."},
	{Path: "node.option", Values: []string{"paths", "compact"}, Restart: []key.Condition{key.Always},
		Description: "In the mode cache, how the EDNS option tells servers the search paths."},
	{Path: "node.primaries", Restart: []key.Condition{key.Always},
		Description: "In the mode secondary, the primaries: addresses, or names that `node.servers` resolve; " +
			"`node.servers` when empty."},
	{Path: "node.key", Restart: []key.Condition{key.Always},
		Description: "The name of the key in `dns.transfer.keys` that signs transfers."},
	{Path: "node.ca", Restart: []key.Condition{key.Always},
		Description: "A file with the authorities that sign the primaries' certificates; the system's when empty."},
	{Path: "node.notify", Restart: []key.Condition{key.Always},
		Description: "Address and port where primaries announce changes (NOTIFY); nowhere when empty."},
	{Path: "node.file", Restart: []key.Condition{key.Always},
		Description: "A file that keeps the zones for the next start; none when empty."},
	{Path: "node.name", Restart: []key.Condition{key.Always},
		Description: "The name of the node, which spreads nodes over primaries; the host name when empty."},
	{Path: "node.check", Restart: []key.Condition{key.Always},
		Description: "How often a primary is asked for changes; more than 0s."},
	{Path: "node.stale", Restart: []key.Condition{key.Always},
		Description: "Without an answer from any primary for this time, answers are marked stale; more than `node.check`."},
}
