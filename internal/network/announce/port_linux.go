package announce

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/network/announce/frame"
)

// maxFrame is the longest frame that is read: a message has up to 1,106 octets.
const maxFrame = 2048

// linuxPort is three sockets for frames of a link (packet(7)), so that a flood of questions does not keep agents from
// hearing each other, and the memberships of groups that solicitations are sent to.
type linuxPort struct {
	iface
	counters                     *counters
	received                     chan<- received
	requests, solicits, messages *socket
	groups                       groups
	done                         context.Context // of the readers
	cancel                       context.CancelFunc
	readers                      sync.WaitGroup

	mu    sync.RWMutex
	owned map[netip.Addr]struct{}
	until time.Time // until when it answers

	stale bool // the sockets' filters are, see flush
}

func (host) open(i iface, c *counters, in chan<- received) (port, error) {
	p := &linuxPort{iface: i, counters: c, received: in, owned: make(map[netip.Addr]struct{}), groups: newGroups(i.index)}
	p.done, p.cancel = context.WithCancel(context.Background())
	for _, s := range []struct {
		into     **socket
		protocol uint16
		filter   []bpf.Instruction
		read     func(*limiter, []byte)
	}{
		{&p.requests, unix.ETH_P_ARP, addressFilter(nil), p.request},
		{&p.solicits, unix.ETH_P_IPV6, neighborFilter(nil), p.solicit},
		{&p.messages, unix.ETH_P_ARP, messageFilter(), p.message},
	} {
		opened, err := openSocket(i.index, s.protocol, s.filter)
		if err != nil {
			p.close()
			return nil, fmt.Errorf("open a packet socket on %s: %w", i.name, err)
		}
		*s.into = opened
		p.readers.Go(func() { p.read(opened, s.read) })
	}
	return p, nil
}

// read reads frames until the port is closed.
func (p *linuxPort) read(s *socket, take func(*limiter, []byte)) {
	limit, b := newLimiter(), make([]byte, maxFrame)
	for p.done.Err() == nil {
		pause := limit.read(time.Now())
		if pause == 0 {
			n, err := s.file.Read(b)
			if err == nil {
				take(limit, b[:n])
				continue
			}
			pause = readPause // the interface is down, or the port is closed
		}
		select {
		case <-p.done.Done():
		case <-time.After(pause):
		}
	}
}

// readPause is the pause after a read that failed.
const readPause = 50 * time.Millisecond

// answers reports whether the port answers for an address now.
func (p *linuxPort) answers(a netip.Addr) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	_, owned := p.owned[a]
	return owned && time.Now().Before(p.until)
}

func (p *linuxPort) request(limit *limiter, b []byte) {
	claim, claimed := frame.ParseARPClaim(b)
	r, asks := frame.ParseRequest(b)
	switch {
	case !claimed && !asks:
		p.counters.malformed.Add(1)
	case claimed && p.answers(claim.Addr):
		p.claimed(limit, claim)
	case !asks || !p.answers(r.Target) || r.SenderMAC == p.mac:
	case !limit.allow(time.Now(), r.SenderMAC):
		p.counters.limited.Add(1)
	default:
		p.counters.replies.Add(1)
		p.write(p.requests, frame.AppendReply(nil, &r, p.mac))
	}
}

func (p *linuxPort) solicit(limit *limiter, b []byte) {
	claim, claimed := frame.ParseNeighborClaim(b)
	s, asks := frame.ParseSolicitation(b)
	switch {
	case !claimed && !asks:
		p.counters.malformed.Add(1)
	case claimed && p.answers(claim.Addr):
		p.claimed(limit, claim)
	case !asks || !p.answers(s.Target):
	case !limit.allow(time.Now(), s.SenderMAC):
		p.counters.limited.Add(1)
	default:
		p.counters.replies.Add(1)
		p.write(p.solicits, frame.AppendAdvertisement(nil, &s, p.mac))
	}
}

// claimed passes on that another host has an address of this node.
func (p *linuxPort) claimed(limit *limiter, c frame.Claim) {
	switch {
	case c.MAC == p.mac:
	case !limit.allow(time.Now(), c.MAC):
		p.counters.limited.Add(1)
	default:
		p.pass(received{index: p.index, from: c.MAC, conflict: c.Addr})
	}
}

func (p *linuxPort) message(_ *limiter, b []byte) {
	m, from, ok := frame.ParseMessage(b)
	if !ok {
		p.counters.malformed.Add(1)
		return
	}
	p.pass(received{index: p.index, from: from, message: m})
}

// pass passes something on, unless too much waits.
func (p *linuxPort) pass(r received) {
	select {
	case p.received <- r:
	default:
		p.counters.limited.Add(1)
	}
}

// write sends a frame, or drops it if the queue is full.
func (p *linuxPort) write(s *socket, b []byte) {
	if err := s.send(b); err != nil {
		p.counters.unsent.Add(1)
	}
}

func (p *linuxPort) own(addrs []netip.Addr) {
	p.mu.Lock()
	for _, a := range addrs {
		p.owned[a] = struct{}{}
	}
	p.mu.Unlock()
	p.stale = true
	for _, a := range addrs {
		if a.Is6() {
			if err := p.groups.join(frame.SolicitedGroup(a)); err != nil {
				p.counters.unsent.Add(1)
			}
		}
	}
}

func (p *linuxPort) disown(addrs []netip.Addr) {
	p.mu.Lock()
	for _, a := range addrs {
		delete(p.owned, a)
	}
	p.mu.Unlock()
	p.stale = true
	for _, a := range addrs {
		if a.Is6() {
			p.groups.leave(frame.SolicitedGroup(a))
		}
	}
}

// flush has the sockets accept questions about the addresses that are owned, and no others.
func (p *linuxPort) flush() {
	if !p.stale {
		return
	}
	p.stale = false
	var four, six []netip.Addr
	p.mu.RLock()
	for a := range p.owned {
		if a.Is4() {
			four = append(four, a)
		} else {
			six = append(six, a)
		}
	}
	p.mu.RUnlock()
	slices.SortFunc(four, netip.Addr.Compare)
	slices.SortFunc(six, netip.Addr.Compare)
	if err := errors.Join(p.requests.filter(addressFilter(four)), p.solicits.filter(neighborFilter(six))); err != nil {
		p.counters.unsent.Add(1)
	}
}

func (p *linuxPort) announce(a netip.Addr) {
	frames := [][]byte{frame.Advertisement(a, p.mac)}
	if a.Is4() {
		frames = frame.Announcements(a, p.mac)
	}
	for _, b := range frames {
		p.counters.announced.Add(1)
		p.write(p.requests, b) // so that messages have a queue of their own
	}
}

func (p *linuxPort) send(m *frame.Message, to frame.MAC) {
	p.write(p.messages, frame.AppendMessage(nil, m, to, p.mac))
}

func (p *linuxPort) renew() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = time.Now().Add(pausedTime)
}

func (p *linuxPort) close() {
	p.cancel()
	for _, s := range []*socket{p.requests, p.solicits, p.messages} {
		if s != nil {
			s.file.Close()
		}
	}
	p.readers.Wait()
	p.groups.close()
}
