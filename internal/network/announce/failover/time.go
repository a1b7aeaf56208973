package failover

import (
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/network/announce/frame"
	"portolan.dev/portolan/internal/network/announce/plan"
)

// Tick is called at regular intervals. It asks the nodes before this one, and announces what was announced a short
// time ago again.
func (m *Machine) Tick() Output {
	for id, p := range m.peers {
		m.miss(id, p)
	}
	return m.advance()
}

// Overdue is called between two ticks, when a reply to the last questions takes too long. It makes Misses questions
// as many intervals less the time that is left.
func (m *Machine) Overdue() Output {
	for id, p := range m.peers {
		if p.asked && p.unanswered == Misses-1 {
			m.miss(id, p)
		}
	}
	return m.take()
}

// miss counts a question to a node that has no reply.
func (m *Machine) miss(id plan.ID, p *peer) {
	if !p.asked || p.dead() {
		return
	}
	p.asked = false
	if p.unanswered++; p.dead() {
		for _, x := range p.above {
			*x.above[id] = stance{} // when it returns, it says what it announces
			x.heard = true
			if x.holder == id {
				x.holder = 0
			}
			m.settle(x)
		}
	}
}

// advance does what is due at a tick.
func (m *Machine) advance() Output {
	m.tick++
	for id, p := range m.peers {
		m.ask(id, p)
	}
	for a, x := range m.returned {
		switch {
		case x.returned == 0: // it was taken over from another node since
			delete(m.returned, a)
		case !x.owned && m.tick-x.returned >= returnTicks:
			m.hand(x, 0)
			delete(m.returned, a)
		}
	}
	var mine []netip.Addr
	for _, x := range m.active {
		switch {
		case x.releasing > 0 && m.tick >= x.releasing:
			m.disown(x)
			continue
		case x.releasing > 0:
			m.tell(frame.Release, 0, x.addr)
			continue
		case slices.Contains(repeats, m.tick-x.since), (m.tick+plan.Score(x.addr, m.self))%refreshTicks == 0:
			x.silent = false
			m.out.Announce = append(m.out.Announce, x.addr)
		}
		mine = append(mine, x.addr)
	}
	if m.tick%AdvertTicks == 0 && len(mine) > 0 {
		slices.SortFunc(mine, netip.Addr.Compare)
		m.tell(frame.Active, 0, mine...)
	}
	return m.take()
}
