package announce

import (
	"net/netip"
	"slices"
	"time"

	"portolan.dev/portolan/internal/network/announce/failover"
	"portolan.dev/portolan/internal/network/announce/frame"
	"portolan.dev/portolan/internal/network/announce/plan"
)

// iface is an interface of the host.
type iface struct {
	index    int
	name     string
	mac      frame.MAC
	prefixes []netip.Prefix // sorted
}

func (i iface) equal(o iface) bool {
	return i.index == o.index && i.name == o.name && i.mac == o.mac && slices.Equal(i.prefixes, o.prefixes)
}

func (i *iface) contains(a netip.Addr) bool {
	return slices.ContainsFunc(i.prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// port is the sockets of a link. Its methods do not wait.
type port interface {
	// own has the port answer for addresses, and disown has it stop.
	own(addrs []netip.Addr)
	disown(addrs []netip.Addr)
	// flush has own and disown take effect.
	flush()
	// announce tells all hosts on the link of an address.
	announce(a netip.Addr)
	send(m *frame.Message, to frame.MAC)
	// renew lets the port answer for a while: a process that was stopped must not, before it knows what happened.
	renew()
	close()
}

// received is what a port received.
type received struct {
	index   int // of the interface
	from    frame.MAC
	message frame.Message
	// conflict is an address that a stranger with the MAC from announces; if it is valid, there is no message.
	conflict netip.Addr
}

// link is a link on which addresses are announced.
type link struct {
	iface
	port    port
	machine *failover.Machine
	addrs   map[netip.Addr]struct{}
	macs    map[plan.ID]frame.MAC // of other agents, whose Nodes are there
	// former are the nodes that had addresses before this one, and live. moved: they changed.
	former map[netip.Addr]plan.ID
	moved  bool
	// unannounced are addresses to announce, see flush.
	unannounced []netip.Addr
}

// do does what the machine says.
func (l *link) do(out failover.Output, c *counters, cluster uint64) {
	if len(out.Own) > 0 {
		l.port.own(out.Own)
	}
	l.moved = l.moved || len(out.Handed) > 0
	for _, h := range out.Handed {
		if l.former[h.Addr] = h.Former; h.Former == 0 {
			delete(l.former, h.Addr)
		}
	}
	l.unannounced = append(l.unannounced, out.Announce...)
	for i := range out.Messages {
		m := &out.Messages[i]
		to, known := l.macs[m.To]
		if !known {
			to = frame.Broadcast
		}
		m.Cluster = cluster
		l.port.send(&m.Message, to)
	}
	if len(out.Disown) > 0 {
		l.port.disown(out.Disown)
	}
	c.taken.Add(uint64(len(out.Own)))
	c.given.Add(uint64(len(out.Disown)))
	c.owned.Add(int64(len(out.Own) - len(out.Disown)))
}

// burst is how many addresses are announced at once, and burstPause the time until the next ones are: the queues of
// sockets and interfaces are short.
const (
	burst      = 100
	burstPause = 5 * time.Millisecond
)

// flush has the port do what it was told, and reports whether more is to be done after burstPause.
func (l *link) flush() (more bool) {
	l.port.flush()
	some := l.unannounced[:min(len(l.unannounced), burst)]
	for _, a := range some {
		if l.machine.Owns(a) { // still
			l.port.announce(a)
		}
	}
	l.unannounced = l.unannounced[len(some):]
	if len(l.unannounced) == 0 {
		l.unannounced = nil
	}
	return len(l.unannounced) > 0
}
