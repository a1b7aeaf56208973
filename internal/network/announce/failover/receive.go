package failover

import (
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/network/announce/frame"
	"portolan.dev/portolan/internal/network/announce/plan"
)

// Receive takes a message of another node.
func (m *Machine) Receive(in *frame.Message) Output {
	from := plan.ID(in.From)
	if from == m.self {
		return Output{}
	}
	switch in.Kind {
	case frame.Probe:
		m.answer(from, in)
	case frame.Reply:
		m.replied(from, in)
	case frame.Vouch:
		m.vouched(plan.ID(in.About), in)
	case frame.Active:
		for _, a := range in.Addrs {
			m.claimed(from, a)
		}
	case frame.Release:
		for _, a := range in.Addrs {
			m.released(from, a, plan.ID(in.About))
		}
	case frame.Deny:
		if plan.ID(in.About) == m.self {
			for _, a := range in.Addrs {
				m.denied(from, a)
			}
		}
	}
	return m.take()
}

// answer answers a question about this node, or about one that this node heard since the last tick but one.
func (m *Machine) answer(to plan.ID, in *frame.Message) {
	about := plan.ID(in.About)
	out := frame.Message{Kind: frame.Reply, From: uint64(m.self), About: in.About}
	if about != m.self {
		p := m.peers[about]
		if p == nil || p.heard == 0 || m.tick-p.heard > 1 {
			return
		}
		out.Kind = frame.Vouch
	}
	for _, a := range in.Addrs {
		x := m.addrs[a]
		if x == nil {
			continue
		}
		s := stance{active: x.owned}
		if about != m.self {
			of := x.above[about]
			if of == nil || of.declined > 0 {
				continue
			}
			s = *of
		} else if !x.candidate || !x.serving || x.above[to] != nil { // or node "to" is ranked before this one
			continue
		}
		if s.active {
			out.Announced |= 1 << len(out.Addrs)
		}
		out.Addrs = append(out.Addrs, a)
	}
	m.out.Messages = append(m.out.Messages, Message{to, out})
}

// replied records that a node replied, and which addresses it announces, or would. It is no candidate for the others
// of the question.
func (m *Machine) replied(from plan.ID, in *frame.Message) {
	p := m.peers[from]
	if p == nil {
		return
	}
	p.unanswered, p.asked, p.heard = 0, false, m.tick
	for _, a := range p.question {
		x := p.above[a]
		if x == nil {
			continue // the plan changed since
		}
		s := x.above[from]
		if i := slices.Index(in.Addrs, a); i >= 0 {
			*s = stance{active: in.Announced>>i&1 != 0}
			if s.active {
				x.holder, x.heard = from, true
			}
		} else {
			*s = stance{declined: s.declined + 1}
		}
		m.settle(x)
		if s.active {
			m.moveBack(x, from)
		}
	}
}

// vouched records that a node is alive that this one does not hear, and which addresses it announces, or would. The
// next question goes to all again.
func (m *Machine) vouched(about plan.ID, in *frame.Message) {
	p := m.peers[about]
	if p == nil || p.unanswered < Misses-1 {
		return
	}
	p.unanswered, p.asked = Misses-2, true
	for i, a := range in.Addrs {
		if x := p.above[a]; x != nil {
			*x.above[about] = stance{active: in.Announced>>i&1 != 0}
		}
	}
	for _, x := range p.above {
		m.settle(x)
	}
}

// claimed records that a node announces an address.
func (m *Machine) claimed(from plan.ID, a netip.Addr) {
	x := m.addrs[a]
	if x == nil {
		return
	}
	x.heard = true
	x.claimer, x.claimedAt = from, m.tick
	if s := x.above[from]; s != nil {
		x.holder = from
		*s = stance{active: true}
		p := m.peers[from]
		p.unanswered = min(p.unanswered, Misses-2)
		m.settle(x)
	} else {
		m.claimedBehind(from, x)
	}
	m.moveBack(x, from)
}

// claimedBehind is claimed for a node that is not before this one.
func (m *Machine) claimedBehind(from plan.ID, x *address) {
	denied := x.owned && x.releasing == 0 && !slices.Contains(x.ranked, from)
	if !denied || x.holder == 0 {
		x.holder = from
	}
	switch {
	case !x.owned:
	case x.releasing > 0:
		m.disown(x)
	case !denied: // hosts may have its MAC
		m.announceAgain(x)
	default:
		m.announceAgain(x)
		m.out.Messages = append(m.out.Messages, Message{from, frame.Message{
			Kind: frame.Deny, From: uint64(m.self), About: uint64(from), Addrs: []netip.Addr{x.addr},
		}})
	}
}

// moveBack records that a node says that it has an address, which may be the former one.
func (m *Machine) moveBack(x *address, to plan.ID) {
	if x.former == to && x.returned == 0 {
		x.returned = m.tick
		m.returned[x.addr] = x
	}
}

// released records that a node does not announce an address, or would like to stop, and which node it leaves it to; 0
// is the next one, since it is no candidate itself. The connections of the address are at the last holder: that does
// not become a node which did not announce it here, or was denied it.
func (m *Machine) released(from plan.ID, a netip.Addr, to plan.ID) {
	x := m.addrs[a]
	if x == nil {
		return
	}
	x.heard = true
	if x.holder == 0 || x.holder == from || !x.owned && slices.Contains(x.ranked, from) {
		x.holder = from
		if x.owned {
			m.hand(x, from)
		}
	}
	if s := x.above[from]; s != nil && to == 0 {
		*s = stance{declined: declines}
		m.settle(x)
	}
	if x.claimer == from {
		x.claimer = 0
	}
	switch {
	case x.silent:
		if x.holder != 0 {
			m.hand(x, x.holder)
		}
		m.announce(x)
	case x.owned && to == m.self && x.handedAt != m.tick: // it may have said since that it has the address
		x.handedAt = m.tick
		m.announce(x)
	case x.owned && x.releasing == 0: // hosts may have the MAC of the other one
		m.announceAgain(x)
	}
}

// announceAgain announces an address, once in a tick at most.
func (m *Machine) announceAgain(x *address) {
	if x.since != m.tick {
		m.announce(x)
	}
}

// denied has a node be before this one for an address, though it is not in the plan: it knows another state of the
// cluster. If neither has the other in its plan, the one with the higher score announces the address.
func (m *Machine) denied(from plan.ID, a netip.Addr) {
	x := m.addrs[a]
	if x == nil || !x.owned {
		return
	}
	if !slices.Contains(x.ranked, from) && plan.Score(a, m.self) > plan.Score(a, from) {
		return
	}
	m.addAbove(x, from)
	x.above[from].active = true
	m.settle(x)
}
