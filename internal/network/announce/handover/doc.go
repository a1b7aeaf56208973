// Package handover has connections go on that began at the node which announced an address before: nftables send
// their packets to that node, which knows their endpoints.
//
//	table ip portolan-handover-… {
//		map former { type ipv4_addr : ipv4_addr; }
//		chain prerouting {  # between connection tracking and NAT
//			ct state new tcp flags & syn == 0 ip ttl > 1 dup to ip daddr map @former drop
//			ct state invalid tcp flags & (fin | rst) != 0 ip ttl > 1 dup to ip daddr map @former drop
//		}
//	}
//
// A segment without SYN of a connection that the node does not track is of one that began elsewhere. Connection
// tracking takes it for new (Linux, Documentation/networking/nf_conntrack-sysctl.rst, nf_conntrack_tcp_loose, which is
// 1 by default), or, with FIN or RST, for invalid (net/netfilter/nf_conntrack_proto_tcp.c, tcp_conntracks). Other
// invalid segments are left alone: connections that the node tracks have them too, when a segment is outside of the
// window, and the former node would take such a segment for the begin of a connection and have it reset. For the same
// reason no connections go on where nf_conntrack_tcp_loose is 0.
//
// The former node answers the client directly. Where it does not know the connection either, it sends the segment to
// the node before it, if it has one; otherwise the endpoint that it chooses resets the connection. For a moment two
// nodes may be each other's former one (failover.Machine). A segment that none of them knows ends at its last hop
// then: dup takes one from it (net/ipv4/netfilter/nf_dup_ipv4.c), without a look at how many are left.
//
// The table is that of its socket (NFT_TABLE_F_OWNER, Linux 5.12), and ends with it: of an agent that was killed,
// nothing stays. It is there only while another node has connections of addresses that the node has or had.
package handover
