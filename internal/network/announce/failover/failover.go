// Package failover decides which of the addresses of load balancers a node announces on one link. It is a state
// machine without clock and sockets: whoever runs it passes ticks and messages in, and does what comes out.
//
//	Put, Remove (the plan) ─┐
//	Tick, Overdue (time) ───┼─► Machine ─► Output: addresses to answer for, to announce, to stop; messages
//	Receive (other agents) ─┘
//
// The first candidate of an address announces it. The others ask those before them at each tick whether they do. One
// that leaves Misses questions in a row without a reply counts as dead, and the next candidate announces the address,
// until one before it says that it announces the address itself. So the times at which two nodes answer for an
// address on a link are short:
//
//   - A node dies, or its agent: never, since the next one waits for it.
//   - Two parts of a link that were separated are joined: until the next tick of the later candidate.
//   - Two candidates do not hear each other and a third one hears both: never, since that one vouches for the earlier
//     one. If there is no third one, as long as that lasts: it is not to be told from death.
//   - An agent was stopped and goes on: see Resume. It answers for addresses again of which it is the first candidate;
//     the other one stops at the next message.
//   - Two nodes have different states of the cluster: until the next message Active of either, AdvertTicks at most.
package failover

import (
	"maps"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/network/announce/frame"
	"portolan.dev/portolan/internal/network/announce/plan"
)

const (
	// Misses is how many questions a node leaves without a reply until it counts as dead.
	Misses = 3
	// AdvertTicks is after how many ticks a node says again what it announces.
	AdvertTicks = 2
	// releaseTicks is for how many ticks a node answers for an address that it wants to stop announcing, until another
	// one does.
	releaseTicks = 4
	// returnTicks is for how many ticks a node has a former node that has the address again.
	returnTicks = 2
	// refreshTicks is after how many ticks a node announces its addresses to all hosts again, in case one believes another
	// node whose messages this one never heard.
	refreshTicks = 240
	// declines is how many replies without an address say that the node is no candidate for it: the first one may be
	// older than the news that it is.
	declines = 2
)

// repeats are the ticks after which an address is announced again (RFC 5227, section 2.3, and RFC 4861, section 7.2.6,
// repeat announcements, as packets are lost).
var repeats = []uint64{1, 2, 4, 8}

// Output is what a call has led to.
type Output struct {
	// Own are addresses that the node answers for from now on, and Disown those that it does not any more.
	Own, Disown []netip.Addr
	// Handed are addresses that this node has taken over from one that lives, or of which the former node is none now.
	Handed []Handed
	// Announce are those to tell all hosts on the link of.
	Announce []netip.Addr
	Messages []Message
}

// Handed is an address, and the node that announced it before; 0 for none.
type Handed struct {
	Addr   netip.Addr
	Former plan.ID
}

// Message is a message to another node; to all if To is 0.
type Message struct {
	To plan.ID
	frame.Message
}

// Machine is the state of the addresses on a link. It is not safe for concurrent use.
type Machine struct {
	self     plan.ID
	tick     uint64
	addrs    map[netip.Addr]*address
	active   map[netip.Addr]*address // those of addrs that are owned
	returned map[netip.Addr]*address // those of addrs that have moved back, or are about to
	peers    map[plan.ID]*peer
	stopping bool
	out      Output
}

// peer is a node that may be before this one.
type peer struct {
	above map[netip.Addr]*address // the addresses at which it is before this node
	// unanswered is how many questions it left without a reply, and asked that the last one has none yet.
	unanswered int
	asked      bool
	// heard is the last tick at which it replied, 0 for never.
	heard uint64
	// question are the addresses that the last question was about, and next is that with which the next one begins, if
	// not all fit.
	question []netip.Addr
	next     int
}

func (p *peer) dead() bool { return p.unanswered >= Misses }

// address is an address that this node knows of.
type address struct {
	addr      netip.Addr
	ranked    []plan.ID
	candidate bool // this node is among ranked
	serving   bool
	// above are the nodes before this one, and what they say of the address.
	above map[plan.ID]*stance
	// owned: this node answers for the address.
	owned bool
	since uint64 // the tick at which it was last announced anew
	// holder is the other node that last said that it announces the address, or announced it, and was not denied it; 0 if
	// there is none, or it died.
	holder plan.ID
	// former is the node that this one took the address over from, 0 for none. It stays when the address moves on, and for
	// returnTicks when that node has the address again, as hosts take a while to learn of it. Not for longer: there are to
	// be no two nodes that are each other's former one. returned is the tick at which that node said that it has the
	// address again, 0 if it did not.
	former   plan.ID
	returned uint64
	// claimer is the other node that last said that it announces the address, at a tick. It may be before this one in a
	// plan that this node learns of later.
	claimer   plan.ID
	claimedAt uint64
	// handedAt is the tick at which another node last left the address to this one.
	handedAt uint64
	// heard: a node said so, or died. Before, another node may have the address.
	heard bool
	// silent: this node owns the address, and has told agents only.
	silent bool
	// releasing is the tick at which this node stops to answer, though nobody else has begun; 0 if it does not want to.
	releasing uint64
}

// stance is what a node says of an address.
type stance struct {
	active bool // it announces the address
	// declined is how many replies in a row said that it is no candidate, or cannot serve.
	declined int
}

// out reports whether the node does not announce the address, and will not.
func (s *stance) out(p *peer) bool { return p.dead() || s.declined >= declines }

// New returns a Machine for a node, which knows of no address.
func New(self plan.ID) *Machine {
	return &Machine{
		self: self, tick: 1, addrs: make(map[netip.Addr]*address), active: make(map[netip.Addr]*address),
		returned: make(map[netip.Addr]*address),
		peers:    make(map[plan.ID]*peer),
	}
}

// take returns what the call has led to.
func (m *Machine) take() Output {
	out := m.out
	m.out = Output{}
	return out
}

// Candidates are the nodes that may announce an address.
type Candidates struct {
	// Ranked are their identifiers, the owner's first.
	Ranked []plan.ID
	// Serving: this node can pass packets to the Services of the address.
	Serving bool
}

// Put sets the candidates of an address.
func (m *Machine) Put(a netip.Addr, of Candidates) Output {
	x := m.addrs[a]
	if x == nil {
		x = &address{addr: a, above: make(map[plan.ID]*stance)}
		m.addrs[a] = x
	}
	x.serving = of.Serving
	if x.ranked == nil || !slices.Equal(x.ranked, of.Ranked) {
		x.ranked = slices.Clone(of.Ranked)
		rank := slices.Index(of.Ranked, m.self)
		x.candidate = rank >= 0 && !m.stopping
		m.setAbove(x, of.Ranked[:max(0, rank)])
	}
	m.settle(x)
	return m.take()
}

// Remove forgets an address.
func (m *Machine) Remove(a netip.Addr) Output {
	if x := m.addrs[a]; x != nil {
		m.setAbove(x, nil)
		if x.owned {
			m.disown(x)
			m.tell(frame.Release, 0, a)
		}
		m.hand(x, 0)
		delete(m.returned, a)
		delete(m.addrs, a)
	}
	return m.take()
}

// Stop has the node release all addresses. It is done when Owned yields none.
func (m *Machine) Stop() Output {
	m.stopping = true
	for _, x := range m.addrs {
		x.candidate = false
		m.setAbove(x, nil)
		m.settle(x)
	}
	return m.take()
}

// Resume is called in place of Tick if much more time has passed since the last one: the process was stopped. Others
// announce its addresses. It takes those back whose first candidate it is, and asks again about the others.
func (m *Machine) Resume() Output {
	for _, p := range m.peers {
		p.unanswered, p.asked, p.heard = 0, false, 0
	}
	for _, x := range m.addrs {
		for _, s := range x.above {
			*s = stance{}
		}
		switch {
		case !x.owned:
		case len(x.above) == 0:
			m.announce(x)
		default:
			m.disown(x)
		}
	}
	return m.advance()
}

// Owned returns how many addresses the node answers for.
func (m *Machine) Owned() int { return len(m.active) }

// Owns reports whether the node answers for an address.
func (m *Machine) Owns(a netip.Addr) bool { return m.active[a] != nil }

// setAbove has these nodes be the ones before this one for an address.
func (m *Machine) setAbove(x *address, ids []plan.ID) {
	for id := range x.above {
		if slices.Contains(ids, id) {
			continue
		}
		p := m.peers[id]
		delete(x.above, id)
		if delete(p.above, x.addr); len(p.above) == 0 {
			delete(m.peers, id)
		}
	}
	for _, id := range ids {
		m.addAbove(x, id)
	}
}

// addAbove has a node be one before this one for an address.
func (m *Machine) addAbove(x *address, id plan.ID) {
	if x.above[id] != nil {
		return
	}
	x.above[id] = &stance{active: x.claimer == id && m.tick-x.claimedAt <= 1}
	p := m.peers[id]
	if p == nil {
		p = &peer{above: make(map[netip.Addr]*address)}
		m.peers[id] = p
	}
	p.above[x.addr] = x
}

// settle has the node begin or stop to announce an address, as the state says.
func (m *Machine) settle(x *address) {
	switch {
	case x.owned && !x.serving:
		m.disown(x)
		m.tell(frame.Release, 0, x.addr)
	case x.owned && !x.candidate:
		if x.releasing == 0 {
			x.releasing = m.tick + releaseTicks
			m.tell(frame.Release, 0, x.addr)
		}
	case x.owned:
		x.releasing = 0
		if id := m.activeAbove(x); id != 0 {
			m.disown(x)
			m.tell(frame.Release, id, x.addr)
		}
	case x.candidate && x.serving && m.allOut(x):
		m.own(x)
	}
}

// activeAbove returns a node before this one that announces the address, or 0.
func (m *Machine) activeAbove(x *address) plan.ID {
	for id, s := range x.above {
		if s.active && !m.peers[id].dead() {
			return id
		}
	}
	return 0
}

// allOut reports whether no node before this one announces the address, or is about to.
func (m *Machine) allOut(x *address) bool {
	for id, s := range x.above {
		if !s.out(m.peers[id]) {
			return false
		}
	}
	return true
}

// own has the node answer for an address. Nodes that are before it though they are not in the plan are forgotten: all
// before it are out. Hosts are told at the next tick, if nobody was heard to have the address.
func (m *Machine) own(x *address) {
	m.setAbove(x, x.ranked[:slices.Index(x.ranked, m.self)])
	x.owned, x.releasing = true, 0
	m.active[x.addr] = x
	m.out.Own = append(m.out.Own, x.addr)
	if x.holder != 0 {
		m.hand(x, x.holder)
	}
	if !x.heard { // a node that has the address gives it up first, so that its connections are known: see released
		x.silent, x.since = true, m.tick
		m.tell(frame.Active, 0, x.addr)
		return
	}
	m.announce(x)
}

// hand sets the former node of an address.
func (m *Machine) hand(x *address, former plan.ID) {
	x.returned = 0
	if x.former != former {
		x.former = former
		m.out.Handed = append(m.out.Handed, Handed{x.addr, former})
	}
}

// announce tells hosts and agents that this node has the address, and has hosts told again.
func (m *Machine) announce(x *address) {
	x.since, x.silent = m.tick, false
	m.out.Announce = append(m.out.Announce, x.addr)
	m.tell(frame.Active, 0, x.addr)
}

func (m *Machine) disown(x *address) {
	x.owned, x.releasing, x.silent = false, 0, false
	delete(m.active, x.addr)
	m.out.Disown = append(m.out.Disown, x.addr)
}

// tell adds an address to the messages of a kind to a node, or to all.
func (m *Machine) tell(k frame.Kind, to plan.ID, addrs ...netip.Addr) {
	for i := range m.out.Messages {
		o := &m.out.Messages[i]
		if o.Kind == k && o.To == to && len(o.Addrs)+len(addrs) <= frame.MaxAddrs {
			o.Addrs = append(o.Addrs, addrs...)
			return
		}
	}
	for some := range slices.Chunk(addrs, frame.MaxAddrs) {
		m.out.Messages = append(m.out.Messages, Message{to, frame.Message{
			Kind: k, From: uint64(m.self), About: uint64(to), Addrs: slices.Clone(some),
		}})
	}
}

// ask has a question be sent to a node.
func (m *Machine) ask(id plan.ID, p *peer) {
	of := slices.SortedFunc(maps.Keys(p.above), netip.Addr.Compare)
	some := of
	if len(of) > frame.MaxAddrs {
		p.next %= len(of)
		some = append(of[p.next:], of[:p.next]...)[:frame.MaxAddrs]
		p.next += frame.MaxAddrs
	}
	to := id
	if p.unanswered >= Misses-1 { // others may hear it
		to = 0
	}
	m.out.Messages = append(m.out.Messages, Message{to, frame.Message{
		Kind: frame.Probe, From: uint64(m.self), About: uint64(id), Addrs: some,
	}})
	p.asked, p.question = true, some
}
