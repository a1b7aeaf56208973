package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// connectionLoop sends each query on a new connection, with as many at once as there
// are sockets.
func (g *generator) connectionLoop() (first, last *moment, err error) {
	calls := make([]*socket, g.Sockets)
	for i := range calls {
		w := &wire{fd: -1}
		calls[i] = &socket{newBook(1, g.patience), newStream(w, w)}
		if err := g.reconnect(calls[i], 0); err != nil {
			return nil, nil, g.errorAt(err)
		}
	}
	return g.measured(func(now time.Duration) error {
		for _, c := range calls {
			if err := g.follow(c, now); err != nil {
				return err
			}
		}
		return nil
	})
}

// follow handles the events of a connection. When its query is answered or lost, the
// next one starts.
func (g *generator) follow(c *socket, now time.Duration) error {
	if _, err := c.send(nil); err != nil { // data that waited for the connection
		return g.errorAt(err)
	}
	if _, err := g.hear(c); err != nil {
		return err
	}
	g.lost += c.expire(now)
	if c.waiting > 0 {
		return nil
	}
	return g.reconnect(c, now)
}

// reconnect closes the connection, opens a new one and sends a query on it.
func (g *generator) reconnect(c *socket, now time.Duration) error {
	s := c.carrier.(*stream)
	if s.fd >= 0 {
		if err := s.Close(); err != nil {
			return err
		}
	}
	s.unsent, s.received = s.unsent[:0], nil
	var err error
	if s.fd, err = g.dialFrom(); err != nil {
		return err
	}
	return g.ask(c, 1, now)
}

// dialFrom connects from one of many loopback addresses, so that there are enough free
// ports while recently closed connections still occupy theirs.
func (g *generator) dialFrom() (fd int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
		return 0, err
	}
	source := unix.SockaddrInet4{Addr: source(g.next)}
	if err := unix.Bind(fd, &source); err != nil {
		return 0, err
	}
	// A server that accepts slowly must not block the other connections.
	if err := unix.SetNonblock(fd, true); err != nil {
		return 0, err
	}
	if err := g.connect(fd); err != unix.EINPROGRESS {
		return 0, err
	}
	return fd, nil
}

// source returns one of many loopback addresses, in rotation.
func source(n int) [4]byte {
	const sources = 64
	return [4]byte{127, 0, 1, byte(1 + n%sources)}
}
