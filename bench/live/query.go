package live

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"portolan.dev/portolan/bench/synthetic"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// fact is a name with one of its addresses.
type fact struct {
	name    string
	address netip.Addr
}

// query is the query for a fact's name, and the octets that a right answer contains.
type query struct{ wire, want []byte }

// facts returns what is true when everything is loaded: the last of the Services and
// Pods.
func facts(c *synthetic.Cluster) (all []fact) {
	last := c.Services[synthetic.ClusterIP] - 1
	all = append(all, fact{c.DNSName(synthetic.ClusterIP, last), c.ClusterIP(last)})
	if c.Pods > 0 {
		p := c.Pod(c.Pods - 1)
		name := strings.ReplaceAll(p.Status.PodIP, ".", "-") + "." + p.Namespace + ".pod." + synthetic.Domain
		all = append(all, fact{name, netip.MustParseAddr(p.Status.PodIP)})
	}
	return all
}

func (f fact) query() (*query, error) {
	wire, err := dnswire.NewQuery(dnswire.QuerySpec{Name: f.name, Type: dnswire.TypeA, UDPSize: 1232})
	return &query{wire: wire, want: append([]byte{0, net.IPv4len}, f.address.AsSlice()...)}, err
}

// outcome is the result of a query.
type outcome int

const (
	noReply outcome = iota // or ICMP port unreachable
	right
	servFail
	nxDomain
	without   // NOERROR without the address
	otherwise // another response code
	outcomes
)

func (q *query) judge(reply []byte) outcome {
	switch rcode := reply[3] & 0xf; {
	case rcode == 0 && bytes.Contains(reply, q.want):
		return right
	case rcode == 0:
		return without
	case rcode == 2:
		return servFail
	case rcode == 3:
		return nxDomain
	}
	return otherwise
}

const headerLen = 12 // RFC 1035, section 4.1.1

// asker sends one query after another to a server.
type asker struct {
	conn *net.UDPConn
	id   uint16
	buf  [4096]byte
}

func newAsker(server netip.AddrPort) (*asker, error) {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(server))
	return &asker{conn: conn}, err
}

func (a *asker) close() { a.conn.Close() }

// ask sends one query. It returns noReply after a timeout.
func (a *asker) ask(q *query) outcome {
	const patience = 100 * time.Millisecond
	a.id++
	binary.BigEndian.PutUint16(q.wire, a.id)
	if _, err := a.conn.Write(q.wire); err != nil {
		return noReply
	}
	_ = a.conn.SetReadDeadline(time.Now().Add(patience)) // never fails on an open socket
	for {
		n, err := a.conn.Read(a.buf[:])
		if err != nil {
			return noReply
		}
		if n >= headerLen && binary.BigEndian.Uint16(a.buf[:]) == a.id {
			return q.judge(a.buf[:n])
		}
	}
}

// until repeats the query until the answer is right.
func (a *asker) until(ctx context.Context, f fact) error {
	const patience = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	q, err := f.query()
	if err != nil {
		return err
	}
	for got := noReply; got != right; got = a.ask(q) {
		if ctx.Err() != nil {
			return fmt.Errorf("no answer of %s for %s: %w", f.address, f.name, ctx.Err())
		}
	}
	return nil
}

// metronome sends queries at a fixed interval, regardless of their answers.
type metronome struct {
	conn  *net.UDPConn
	query *query
	beats []beat
	ended sync.WaitGroup

	mu      sync.Mutex
	stopped bool
}

// beat is one query.
type beat struct {
	asked, answered time.Time // answered is zero without a reply
	outcome         outcome
}

// maxBeats is the highest number of queries, which is the number of IDs.
const maxBeats = 1 << 16

func startMetronome(server netip.AddrPort, f fact, pace time.Duration) (*metronome, error) {
	q, err := f.query()
	if err != nil {
		return nil, err
	}
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(server))
	if err != nil {
		return nil, err
	}
	m := &metronome{conn: conn, query: q}
	m.ended.Go(func() { m.ask(pace) })
	m.ended.Go(m.listen)
	return m, nil
}

func (m *metronome) ask(pace time.Duration) {
	next := time.Now()
	for id := range maxBeats {
		m.mu.Lock()
		if m.stopped {
			m.mu.Unlock()
			return
		}
		m.beats = append(m.beats, beat{asked: time.Now()})
		m.mu.Unlock()
		binary.BigEndian.PutUint16(m.query.wire, uint16(id))
		_, _ = m.conn.Write(m.query.wire) // an error means that there will be no reply
		next = next.Add(pace)
		time.Sleep(time.Until(next))
	}
}

func (m *metronome) listen() {
	var buf [4096]byte
	for {
		n, err := m.conn.Read(buf[:])
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n < headerLen {
			continue // the port is unreachable until the server listens
		}
		now, id := time.Now(), binary.BigEndian.Uint16(buf[:])
		m.mu.Lock()
		if int(id) < len(m.beats) {
			m.beats[id].answered, m.beats[id].outcome = now, m.query.judge(buf[:n])
		}
		m.mu.Unlock()
	}
}

// firstRight returns when the first right answer arrived; zero if there was none.
func (m *metronome) firstRight() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.beats {
		if b.outcome == right {
			return b.answered
		}
	}
	return time.Time{}
}

// stop stops the queries and, after a grace period, returns the outcomes of those sent
// within the given time after the first.
func (m *metronome) stop(within time.Duration) (counts [outcomes]int) {
	const grace = 200 * time.Millisecond
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	time.Sleep(grace)
	m.conn.Close()
	m.ended.Wait()
	for _, b := range m.beats {
		if b.asked.Sub(m.beats[0].asked) < within {
			counts[b.outcome]++
		}
	}
	return counts
}
