// Package nft programs which packets of the node's Pods get an address of the node as source, and the ports of the
// node that lead to Pods (hostPort of core/v1 ContainerPort), into a table of nftables:
//
//	table inet portolan-network {
//		chain guard {  # input
//			udp dport 4789 ip saddr != @nodes4 drop
//			iifname "ptl*" icmpv6 type 133-137 drop
//			ip daddr 127.0.0.0/8 iif != "lo" ct status dnat accept
//			ip daddr 127.0.0.0/8 iif != "lo" drop
//			ip saddr 127.0.0.0/8 iif != "lo" drop
//		}
//		chain prerouting {  # nat, after Services; chain output has the jump only
//			ip daddr 127.0.0.0/8 iif != "lo" drop
//			ip saddr 127.0.0.0/8 iif != "lo" drop
//			jump host-ports
//		}
//		chain host-ports {
//			dnat ip to ip daddr . meta l4proto . th dport map @host-addresses4
//			fib daddr type local dnat ip to meta l4proto . th dport map @host-ports4
//		}
//		chain postrouting {  # nat, after Services
//			ct status dnat ip saddr . ip daddr @hairpin4 masquerade
//			ct status dnat ip saddr 127.0.0.0/8 masquerade
//			ip saddr @pods4 ip daddr != @cluster4 … masquerade fully-random
//		}
//	}
//
// Its chains for NAT come one after those of Services at the same hooks (priorities -100 and 100), and the kernel
// translates a connection once. So a Service has a port that a Pod wants as hostPort, too: the API server has
// promised a node port on every node, and hostPorts are the business of one. In postrouting, the proxy first drops
// what no proxy gave an endpoint.
//
// A process of the node reaches a hostPort at 127.0.0.1, too, if route_localnet is 1 on the node's end of the Pod's
// link (Linux, Documentation/networking/ip-sysctl.rst): answers come from there with a source that is 127.0.0.1
// after translation. Since the kernel would then take packets to 127.0.0.0/8 from the Pod, all that come from outside
// are dropped, on every device: the first of a connection before it could be translated, and those that chains for
// NAT do not see when they arrive. Packets between Pods pay for neither: a chain that they all pass costs 4 to 10% of
// their way. There is nothing like it for ::1, whose ports are not translated.
//
// A router solicitation is a neighbor of the node from then on, whose table has room for a thousand in all. Pods need
// no Neighbor Discovery, and get none.
//
// A tunnel has no key: whoever sends a datagram to its port has the node take the packet in it for one that another
// node has sent for a Pod. So the port is open to nodes only. A source that is not the sender's has to be kept off by
// the network between nodes, and by the check of what Pods send.
//
// One process owns the table, which stays when the process ends (NFT_TABLE_F_OWNER and _PERSIST, Linux 6.9);
// older kernels have a table that others can change, and Watch tells when they do.
package nft

import (
	"cmp"
	"errors"
	"fmt"

	"portolan.dev/portolan/internal/support/nfnetlink"
)

// DefaultName is the name of the table.
const DefaultName = "portolan-network"

// Config configures a Table.
type Config struct {
	// Name is the name of the table; empty is DefaultName.
	Name string
	// KeepSource: Pods keep their address also to destinations outside of the cluster.
	KeepSource bool
	// TunnelPort is the UDP port at which the node takes packets of other nodes' tunnels; 0 is none.
	TunnelPort uint16

	plain bool // without the owner flag, as on an older kernel
}

func (c Config) withDefaults() Config {
	c.Name = cmp.Or(c.Name, DefaultName)
	return c
}

// Errors of a Table.
var (
	// ErrOwned is wrapped if another process has the table.
	ErrOwned = errors.New("another process programs the table")
	// ErrNotSynced is wrapped before the first Sync, and after an error.
	ErrNotSynced = errors.New("Sync must be called first")
)

// Notice is what Watch reports. Sync repairs the table.
type Notice = nfnetlink.Notice

func tableError(name string, err error) error {
	return fmt.Errorf("nftables table inet %s: %w", name, err)
}
