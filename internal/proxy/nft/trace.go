package nft

import (
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/proxy/frontend"
)

// TraceConfig says which packets Trace follows.
type TraceConfig struct {
	// Sources are ranges of clients; none is the node's own packets.
	Sources []netip.Prefix
	// Except are ranges of Sources that are no clients. With any, the node is none either.
	Except []netip.Prefix
	// To are the destinations; none is all. One with port 0 is an address with all its protocols and
	// ports.
	To []frontend.Address
	// All follows every packet; else, of TCP connections, only those that open one.
	All bool
	// Each is called with each event, in order.
	Each func(TraceEvent)
	// Started is called when packets are followed.
	Started func()
	// Lost is called when the kernel lost events.
	Lost func()
}

// TraceEvent is a message of the kernel about a packet that is traced: a rule that it matched, or
// the end of a chain (linux/netfilter/nf_tables.h, enum nft_trace_attributes).
type TraceEvent struct {
	// Packet identifies the packet. Later packets may have it, too.
	Packet uint32
	// Begins and Ends: the event is of the chains in which Trace sees packets first and last. Of
	// those, Hook is the name.
	Begins, Ends bool
	Hook         string
	Table        string // family and name, such as "ip filter"
	Chain        string
	Rule         uint64 // handle; 0 for the end of a chain
	// Verdict is as in nft: accept, drop, continue, jump, goto, return or queue.
	Verdict string
	Target  string // the chain, of jump and goto
	// Headers are those of the packet; nil except in the first event of each hook of a table.
	Headers *TraceHeaders
}

// TraceHeaders are what matters of a packet's headers and of its way.
type TraceHeaders struct {
	// Source and Destination have port 0 in protocols without ports.
	Source, Destination netip.AddrPort
	Protocol            frontend.Protocol
	Opens               bool   // a TCP connection: SYN without ACK
	In, Out             string // interfaces; empty if there is none
}

// OfProxy reports whether a table, as family and name, is one of the tables of a name, or serves
// while they are replaced.
func OfProxy(table, name string) bool {
	_, of, _ := strings.Cut(table, " ")
	return of == name || of == name+bridgeSuffix
}

// WhyDropped returns why the table dropped or rejected a packet that visited the given chains,
// in order, in words. rejected reports whether the client gets a TCP reset
// or an ICMP error.
func WhyDropped(chains []string) (why string, rejected bool) {
	if len(chains) == 0 {
		return "", false
	}
	switch last := chains[len(chains)-1]; {
	case last == chainRefuse && slices.Contains(chains, chainAgain):
		return "the cluster IP has no such port", true
	case last == chainRefuse:
		return "no endpoint", true
	case last == chainLimited:
		return "loadBalancerSourceRanges exclude the client", false
	case last == hookPostrouting:
		return "no Service has this cluster IP", false
	}
	return "no endpoint on this node, and the traffic policy is Local", false
}

// TraceInput is the Hook of packets to the node itself.
const TraceInput = hookInput

// The base chains of the service proxy and of Trace.
const (
	hookPrerouting  = "prerouting"
	hookOutput      = "output"
	hookInput       = "input"
	hookPostrouting = "postrouting"
)
