package ruleset

import (
	"net/netip"
	"slices"
	"time"
)

// Packet is the first packet of a flow, as the chains of a node judge it.
type Packet struct {
	// Source is the address before it is masqueraded, Destination the one after translation.
	Source, Destination netip.Addr
	Protocol            Protocol
	// DestinationPort is 0 for protocols without ports.
	DestinationPort uint16
	// Device is the index of the device by which it came; 0 is not known.
	Device uint32
	// ToNode: the destination is the node itself, so that the packet takes the input hook.
	ToNode bool
}

// Flow is the packets between two ends in both directions.
type Flow struct {
	Protocol Protocol
	// Client is where the first packet came from, and Server where it went after translation. Ports are 0
	// for protocols without.
	Client, Server netip.AddrPort
}

// Verdict is what a node does with a packet. The zero Verdict denies.
type Verdict struct {
	Allowed bool
	// Denial is why it is not allowed.
	Denial Denial
	// Reports are what would deny it, were it not in audit mode.
	Reports []Denial
	// Resolved is how much longer the address is in the set of kind Resolved that lets the packet pass. It is
	// 0 if there is none, or the times are not known, as to the function Judge.
	Resolved time.Duration
}

// Denial is a rule that denies a packet.
type Denial struct {
	Direction Direction
	// Chain is empty if the source for Egress, or the destination for Ingress, is an address for Pods of
	// the node that no Pod has, and if the source is none of the Pod that sends the packet.
	Chain string
	// Reason is that of the rule.
	Reason string
}

// Reasons of a Denial without Chain.
const (
	ReasonNoPod  = "no Pod has this address"
	ReasonForged = "the source is not an address of the Pod that sends this"
)

// reasonNoChain is the Reason of a Ruleset that lacks a chain of its own.
const reasonNoChain = "no such chain"

// Judge returns the verdict of a node about a packet: that of the chain for the egress of its source,
// and, if that allows it and it is not for the node, that of the chain for the ingress of its
// destination. The function resolved reports whether an address is in a set of kind Resolved. It is
// also called for sets of other kinds that lack the address, for which it must return false; nil
// is a function that returns false.
func Judge(rs Ruleset, p Packet, resolved func(set string, addr netip.Addr) bool) Verdict {
	j := judge{Ruleset: rs, packet: p, resolved: resolved}
	if !j.leaves() || !p.ToNode && !j.passes(Ingress, p.Destination) {
		return j.verdict
	}
	j.verdict.Allowed = true
	return j.verdict
}

// judge is a packet on its way through the chains.
type judge struct {
	Ruleset
	packet   Packet
	resolved func(set string, addr netip.Addr) bool
	verdict  Verdict
}

// leaves evaluates what its sender may send, which it enters in the verdict if that denies.
func (j *judge) leaves() bool {
	source := j.packet.Source
	device, known := j.Device(j.packet.Device)
	switch {
	case !known || slices.Contains(device.Addrs, source):
		return j.passes(Egress, source)
	case source.Is6() && source.IsLinkLocalUnicast():
		return j.follow(Egress, device.Egress)
	}
	j.verdict.Denial = Denial{Direction: Egress, Reason: ReasonForged}
	return false
}

// passes evaluates the chain of an address for a direction, which it enters in the verdict if it denies.
func (j *judge) passes(d Direction, addr netip.Addr) bool {
	pod, ok := j.Pod(addr)
	if !ok {
		for _, r := range j.Ranges() {
			if r.Contains(addr) {
				j.verdict.Denial = Denial{Direction: d, Reason: ReasonNoPod}
				return false
			}
		}
		return true
	}
	name := pod.Ingress
	if d == Egress {
		name = pod.Egress
	}
	return j.follow(d, name)
}

// follow evaluates a chain with those that it goes on in; empty passes.
func (j *judge) follow(d Direction, name string) bool {
	for name != "" {
		next, end := j.chain(d, name)
		if next == "" {
			return end == Accept
		}
		name = next
	}
	return true
}

// chain evaluates a chain. It returns the chain where the packet goes on, or else Accept or Deny.
func (j *judge) chain(d Direction, name string) (next string, end Action) {
	c := j.Chain(name)
	if c == nil {
		j.verdict.Denial = Denial{d, name, reasonNoChain}
		return "", Deny
	}
	for i := range c.Rules {
		r := &c.Rules[i]
		if !j.matches(d, r) {
			continue
		}
		switch r.Action {
		case Accept:
			return "", Accept
		case Report:
			j.verdict.Reports = append(j.verdict.Reports, Denial{d, name, r.Reason})
		case Goto:
			return r.Chain, Goto
		default:
			j.verdict.Denial = Denial{d, name, r.Reason}
			return "", Deny
		}
	}
	return "", Accept
}

// matches reports whether a rule matches the packet. Ports are compared first, since that is cheap.
func (j *judge) matches(d Direction, r *Rule) bool {
	p := &j.packet
	switch r.Where {
	case ToNode:
		if !p.ToNode {
			return false
		}
	case ToSelf:
		if p.Source != p.Destination {
			return false
		}
	}
	return matchesPorts(r.Ports, p) && (r.Peers == "" || j.contains(d, r.Peers))
}

func matchesPorts(ports []Ports, p *Packet) bool {
	for _, r := range ports {
		if r.Protocol == p.Protocol && r.First <= p.DestinationPort && p.DestinationPort <= r.Last {
			return true
		}
	}
	return len(ports) == 0
}

// contains reports whether the packet's peer is in a set.
func (j *judge) contains(d Direction, set string) bool {
	peer := j.packet.Source
	if d == Egress {
		peer = j.packet.Destination
	}
	return j.Contains(set, peer, j.packet.Protocol, j.packet.DestinationPort) ||
		j.resolved != nil && j.resolved(set, peer)
}

// Whole returns the prefix that has no other address.
func Whole(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }
