package settings

import "portolan.dev/portolan/internal/config/key"

// Keys are the keys of the section network.announce, in the order of the file.
var Keys = key.Table{
	{Path: "network.announce",
		Description: "How the addresses of Services of type LoadBalancer are announced. See announce.md."},
	{Path: "network.announce.enabled", Restart: []key.Condition{key.Always},
		Description: "Announce the addresses of the Services that `controller.loadBalancer.class` and " +
			"`controller.loadBalancer.withoutClass` name, by an agent with the part `proxy` or `network`."},
	{Path: "network.announce.interfaces", Restart: []key.Condition{key.Always},
		Description: "The interfaces on which all addresses are announced by ARP and Neighbor Discovery; when empty, " +
			"each is on those whose prefix contains it."},
	{Path: "network.announce.nodeSelector", Restart: []key.Condition{key.Always},
		Description: "Labels of the Nodes that announce addresses, as in `uplink=yes,rack=a`; all when empty."},
	{Path: "network.announce.bgp",
		Description: "Routers that are told of the addresses with BGP."},
	{Path: "network.announce.bgp.asn", Min: "0", Max: "4294967295", Restart: []key.Condition{key.Always},
		Description: "The AS number of the nodes."},
	{Path: "network.announce.bgp.routerID", Restart: []key.Condition{key.Always},
		Description: "What identifies the node to routers, in the form of an IPv4 address; when empty, the Node's first " +
			"InternalIP of IPv4."},
	{Path: "network.announce.bgp.holdTime", Min: "3s", Max: "65535s", Restart: []key.Condition{key.Always},
		Description: "For how long routers keep the routes of a node that they do not hear. They may ask for less."},
	{Path: "network.announce.bgp.peers", Restart: []key.Condition{key.Always},
		Description: "The routers."},
	{Path: "network.announce.bgp.peers.address", Restart: []key.Condition{key.Always},
		Description: "The router's address. Nodes connect to it, and do not listen."},
	{Path: "network.announce.bgp.peers.asn", Min: "0", Max: "4294967295", Restart: []key.Condition{key.Always},
		Description: "The router's AS number."},
	{Path: "network.announce.bgp.peers.port", Min: "0", Max: "65535", Restart: []key.Condition{key.Always},
		Description: "The router's port; 0 is 179."},
	{Path: "network.announce.bgp.peers.passwordFile", Restart: []key.Condition{key.Always},
		Description: "The file with the password of TCP MD5 signatures, 80 octets at most; it is read for each connection."},
	{Path: "network.announce.bgp.peers.communities", Restart: []key.Condition{key.Always},
		Description: "The communities of all routes, as in `65001:100` or `no-export`; 64 at most."},
	{Path: "network.announce.bgp.peers.localPreference", Min: "0", Max: "4294967295", Restart: []key.Condition{key.Always},
		Description: "The local preference of all routes, for routers with the nodes' AS number; 0 is 100."},
	{Path: "network.announce.bgp.peers.gracefulRestart", Min: "0s", Max: "4095s", Restart: []key.Condition{key.Always},
		Description: "For how long the router keeps the routes when the agent ends (RFC 4724); 0s is not at all."},
	{Path: "network.announce.bgp.peers.nodeSelector", Restart: []key.Condition{key.Always},
		Description: "Labels of the Nodes that connect to the router, as in `rack=a,edge=yes`; all when empty."},
}
