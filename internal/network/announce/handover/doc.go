// Package handover has connections go on that began at the node which announced an address before: nftables send
// their packets to that node, which knows their endpoints.
//
//	table ip portolan-handover-… {
//		map former { type ipv4_addr : ipv4_addr; }
//		chain prerouting {  # between connection tracking and NAT
//			tcp flags & syn == 0 ct state new,invalid dup to ip daddr map @former drop
//		}
//	}
//
// A segment without SYN of a connection that the node does not track is of one that began elsewhere (nf_conntrack
// takes it for new: Linux, Documentation/networking/nf_conntrack-sysctl.rst, nf_conntrack_tcp_loose). The former node
// answers the client directly. Where it does not know the connection either, the endpoint that it chooses resets it.
//
// The table is that of its socket (NFT_TABLE_F_OWNER, Linux 5.12), and ends with it: of an agent that was killed,
// nothing stays. It is there only while a node has addresses of which another one has connections.
package handover
