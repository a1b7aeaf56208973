package load

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/bench/mmsg"
)

// socket is one of the client's sockets, with its outstanding queries.
type socket struct {
	*book
	carrier
}

// carrier sends queries and receives answers without blocking.
type carrier interface {
	// send sends queries whose IDs are set, and returns how many were accepted.
	send(queries [][]byte) (int, error)
	// receive calls each for every available message. A message is valid until the next
	// call.
	receive(each func(message []byte)) error
}

func (g *generator) openSockets(most int) (all []*socket, err error) {
	exchange := newExchange()
	for range g.Sockets {
		s := &socket{book: newBook(most, g.patience)}
		switch g.Transport {
		case UDP:
			s.carrier, err = g.dialUDP(exchange)
		case TLS:
			s.carrier, err = g.dialTLS()
		default:
			s.carrier, err = g.dialTCP()
		}
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// ask sends n queries that are due at a time.
func (g *generator) ask(s *socket, n int, at time.Duration) error {
	queries := g.asking[:0]
	for range min(n, batch) {
		q := g.take()
		id, lost, ok := s.ask(at)
		g.lost += lost
		if !ok {
			g.untake(1)
			break
		}
		binary.BigEndian.PutUint16(q, id)
		queries = append(queries, q)
	}
	if len(queries) == 0 {
		return nil
	}
	sent, err := s.send(queries)
	for _, q := range queries[sent:] {
		s.withdraw(binary.BigEndian.Uint16(q))
	}
	g.untake(len(queries) - sent)
	if err != nil {
		return g.errorAt(err)
	}
	return nil
}

// hear receives the available answers. Answers received together have the same time.
func (g *generator) hear(s *socket) (answers int, err error) {
	if s.waiting == 0 {
		return 0, nil
	}
	before := g.answered
	g.hearing, g.heardAt = s.book, 0
	if err := s.receive(g.note); err != nil {
		return 0, g.errorAt(err)
	}
	return g.answered - before, nil
}

// noteMessage counts a message if it answers an outstanding query. Late answers count
// as lost.
func (g *generator) noteMessage(message []byte) {
	if !isAnswer(message) {
		return
	}
	at, ok := g.hearing.answer(binary.BigEndian.Uint16(message))
	if !ok {
		return
	}
	g.count(message)
	if g.Rate > 0 && at >= g.Warm {
		if g.heardAt == 0 {
			g.heardAt = g.now()
		}
		g.slices.Add(g.heardAt - at)
	}
}

// exchange has the buffers of all UDP sockets.
type exchange struct {
	out, in *mmsg.Messages
	buffers [batch][4096]byte
}

func newExchange() *exchange {
	e := &exchange{out: mmsg.New(batch), in: mmsg.New(batch)}
	for i := range e.buffers {
		e.in.SetBuffer(i, e.buffers[i][:])
	}
	return e
}

// udp is a connected UDP socket.
type udp struct {
	fd int
	*exchange
}

func (g *generator) dialUDP(e *exchange) (*udp, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	const room = 4 << 20 // so that no answer is lost here; the system may grant less
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, room); err != nil {
		return nil, err
	}
	return &udp{fd, e}, g.connect(fd)
}

func (g *generator) connect(fd int) error {
	return unix.Connect(fd, &unix.SockaddrInet4{Port: int(g.Server.Port()), Addr: g.Server.Addr().As4()})
}

func (u *udp) send(queries [][]byte) (int, error) {
	for i, q := range queries {
		u.out.SetBuffer(i, q)
	}
	n, err := u.out.Send(u.fd, len(queries), unix.MSG_DONTWAIT)
	return n, unlessLater(err)
}

func (u *udp) receive(each func(message []byte)) error {
	n, err := u.in.Receive(u.fd, unix.MSG_DONTWAIT)
	for i := range n {
		each(u.buffers[i][:min(u.in.Len(i), len(u.buffers[i]))])
	}
	return unlessLater(err)
}

// unlessLater returns nil for errors after which the caller tries again.
func unlessLater(err error) error {
	switch err {
	case unix.EAGAIN, unix.EINTR, unix.ENOBUFS:
		return nil
	}
	return err
}
