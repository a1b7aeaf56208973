package forward

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// udp queries over UDP, from connected sockets, so that the system chooses a random port
// (RFC 5452, section 9.2) and the socket receives packets of the upstream only. A query
// has a socket of its own until there are maxSockets; then queries share sockets, so that
// a slow upstream costs few. IDs are random, and unique on a socket.
type udp struct {
	of *upstream

	mu      sync.Mutex
	sockets []*socket // that may take queries
}

// Limits of the sockets that take queries: their number, and how long each takes them.
// A socket that takes none any more stays open until its queries have ended.
const (
	maxSockets = 32
	socketTime = time.Second
)

// maxForged is how many packets that are not its reply a query accepts, and how many that
// match no query a socket does for each of its queries. Then they are sent over TCP.
const maxForged = 16

// errFlood reports that maxForged was exceeded.
var errFlood = errors.New("too many packets that do not match the query")

// packetBuffers are for replies. Those of servers that ignore udpSize may be longer than
// that.
var packetBuffers = sync.Pool{New: func() any { return new([4096]byte) }}

// exchange sends a query, and again whenever again fires, and returns the reply to it. From
// the second time on, the query has another port: the first one may lead to a server behind
// the address that is dead.
func (t *udp) exchange(ctx context.Context, query []byte, again <-chan struct{}) (*dnswire.Reply, error) {
	first, err := t.send(query)
	if err != nil {
		return nil, err
	}
	defer first.leave()
	second := new(waiter) // never done
	for {
		select {
		case <-first.done:
			return first.result(query)
		case <-second.done:
			return second.result(query)
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-again:
		}
		t.of.counts.queries.Add(1)
		if second.socket != nil {
			err = second.send()
		} else if second, err = t.send(query); err == nil {
			defer second.leave()
		}
		if err != nil {
			return nil, err
		}
	}
}

// send sends a query from a socket.
func (t *udp) send(query []byte) (*waiter, error) {
	w, err := t.begin(query)
	if err != nil {
		return nil, err
	}
	if err := w.send(); err != nil {
		w.leave()
		return nil, err
	}
	return w, nil
}

// begin registers a query with a socket.
func (t *udp) begin(query []byte) (*waiter, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		t.sockets = slices.DeleteFunc(t.sockets, func(s *socket) bool { return !s.takesQueries() })
		if len(t.sockets) < maxSockets {
			break
		}
		if w := t.sockets[rand.IntN(len(t.sockets))].join(query); w != nil {
			return w, nil
		}
	}
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(t.of.Addr))
	if err != nil {
		return nil, err
	}
	s := &socket{conn: conn, opened: time.Now(), waiting: make(map[uint16]*waiter), counts: &t.of.counts}
	w := s.join(query)
	t.sockets = append(t.sockets, s)
	go s.read()
	return w, nil
}

// socket is a connected socket with the queries that wait for its packets. It is closed
// when none waits.
type socket struct {
	conn   *net.UDPConn
	opened time.Time
	counts *upstreamCounts

	mu      sync.Mutex
	waiting map[uint16]*waiter // by ID; nil for a query that has ended
	open    int                // queries that have not ended
	forged  int                // packets that matched no query
	full    bool               // it takes no more queries
}

// waiter is a query that waits for its reply.
type waiter struct {
	socket *socket
	id     uint16
	query  []byte // with that ID
	forged int    // packets with its ID that are not its reply; guarded by the socket
	done   chan struct{}
	// Set before done is closed:
	reply *dnswire.Reply
	err   error
}

// takesQueries reports whether the socket takes queries.
func (s *socket) takesQueries() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = s.full || time.Since(s.opened) >= socketTime
	return !s.full
}

// join registers a query under an ID of its own; it returns nil if the socket takes no
// more.
func (s *socket) join(query []byte) *waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full {
		return nil
	}
	w := &waiter{socket: s, id: binary.BigEndian.Uint16(query), query: slices.Clone(query), done: make(chan struct{})}
	for _, used := s.waiting[w.id]; used; _, used = s.waiting[w.id] {
		w.id = uint16(rand.Uint32())
	}
	binary.BigEndian.PutUint16(w.query, w.id)
	s.waiting[w.id] = w
	s.open++
	return w
}

// leave ends a query. Its ID stays in use, so that a late reply to it is not taken for a
// forged one.
func (w *waiter) leave() {
	s := w.socket
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[w.id] = nil
	if s.open--; s.open == 0 {
		s.full = true
		_ = s.conn.Close()
	}
}

// send sends the query. If nothing listens at the upstream's port, the system returns the
// error once, with whatever packet is sent or received next.
func (w *waiter) send() error {
	_, err := w.socket.conn.Write(w.query)
	if errors.Is(err, syscall.ECONNREFUSED) {
		w.socket.fail(err)
	}
	return err
}

// result returns the reply, with the ID of the query that it was asked for, or the error.
func (w *waiter) result(query []byte) (*dnswire.Reply, error) {
	if w.err != nil {
		return nil, w.err
	}
	w.reply.ID = binary.BigEndian.Uint16(query)
	return w.reply, nil
}

// read delivers packets to the queries that wait for them, until the socket is closed.
func (s *socket) read() {
	buf := packetBuffers.Get().(*[4096]byte)
	defer packetBuffers.Put(buf)
	for {
		n, err := s.conn.Read(buf[:])
		switch {
		case err == nil:
			s.receive(buf[:n])
		case errors.Is(err, net.ErrClosed):
			return
		default:
			s.fail(err)
		}
	}
}

// receive gives a packet to the query that it is the reply to.
func (s *socket) receive(packet []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var w *waiter
	if len(packet) >= dnswire.HeaderLen {
		var known bool
		if w, known = s.waiting[binary.BigEndian.Uint16(packet)]; known && w == nil { // it is late
			return
		}
	}
	reply, err := dnswire.ParseReply(packet)
	if w != nil && err == nil {
		if _, question, _ := reply.MatchQuery(w.query); question {
			w.reply = reply
			s.end(w)
			return
		}
	}
	s.counts.forged.Add(1)
	if w != nil {
		if w.forged++; w.forged == maxForged {
			w.err = errFlood
			s.end(w)
		}
		return
	}
	if s.forged++; s.forged >= maxForged*s.open {
		s.endAll(errFlood)
	}
}

// end wakes a query that has its result.
func (s *socket) end(w *waiter) {
	s.waiting[w.id] = nil
	close(w.done)
}

// fail ends all queries with an error.
func (s *socket) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endAll(err)
}

func (s *socket) endAll(err error) {
	s.full = true
	for _, w := range s.waiting {
		if w != nil {
			w.err = err
			s.end(w)
		}
	}
}
