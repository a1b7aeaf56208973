package takeover

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"portolan.dev/portolan/test/namespace"
)

// The Service and its endpoints.
const (
	serviceIP = "10.96.0.50"
	tcpPort   = "80"
	udpPort   = "81"
)

// serve echoes TCP and UDP on port 8080, until ctx is done.
func serve(ctx context.Context) error {
	l, err := net.Listen("tcp", ":8080")
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				conn.Close()
			}()
		}
	}()
	var packets []net.PacketConn // of each address, from which the answers are
	for _, addr := range endpoints {
		p, err := net.ListenPacket("udp", addr+":8080")
		if err != nil {
			return err
		}
		packets = append(packets, p)
		go func() {
			buf := make([]byte, 64)
			for {
				n, from, err := p.ReadFrom(buf)
				if err != nil {
					return
				}
				_, _ = p.WriteTo(buf[:n], from) // a client that misses it reports that
			}
		}()
	}
	context.AfterFunc(ctx, func() {
		l.Close()
		for _, p := range packets {
			p.Close()
		}
	})
	return nil
}

const (
	// patience is how long a client waits for an answer.
	patience = 2 * time.Second
	// pause is the time between two requests of a client.
	pause = 3 * time.Millisecond
)

// client sends one request after the other.
type client struct {
	name string
	from *namespace.Network
	// request sends one; the connection is that of the one before, nil for a new one.
	request func(net.Conn) (net.Conn, error)

	mu     sync.Mutex
	sent   int
	failed []error
}

// clients are those of the test: new connections from the node and a Pod, and a connection and a
// flow that last.
func clients(from *namespace.Network) []*client {
	return []*client{
		{name: "new connections from a Pod", from: from, request: anew},
		{name: "new connections from the node", request: anew},
		{name: "a connection that lasts", from: from, request: again("tcp", tcpPort)},
		{name: "a UDP flow that lasts", from: from, request: again("udp", udpPort)},
	}
}

// run sends requests until ctx is done.
func (c *client) run(ctx context.Context) error {
	return c.from.Do(func() error {
		var conn net.Conn
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				if conn != nil {
					conn.Close()
				}
				return nil
			case <-tick.C:
			}
			began := time.Now()
			var err error
			conn, err = c.request(conn)
			c.mu.Lock()
			c.sent++
			if err != nil {
				c.failed = append(c.failed, fmt.Errorf("%s, after %v: %w", began.Format(time.TimeOnly), time.Since(began), err))
			}
			c.mu.Unlock()
		}
	})
}

// figures returns how many requests were sent, and the errors.
func (c *client) figures() (sent int, failed []error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent, c.failed
}

// anew asks over a new connection.
func anew(net.Conn) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(serviceIP, tcpPort), patience)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if tcp, ok := conn.(*net.TCPConn); ok {
		if err := tcp.SetLinger(0); err != nil { // ports are free again at once
			return nil, err
		}
	}
	return nil, echo(conn)
}

// again asks over the connection of the request before. After an error, the connection is
// dialed again, so that each loss counts.
func again(network, port string) func(net.Conn) (net.Conn, error) {
	return func(conn net.Conn) (net.Conn, error) {
		if conn == nil {
			var err error
			if conn, err = net.DialTimeout(network, net.JoinHostPort(serviceIP, port), patience); err != nil {
				return nil, err
			}
		}
		if err := echo(conn); err != nil {
			conn.Close()
			return nil, err
		}
		return conn, nil
	}
}

// echo sends a few octets and reads them.
func echo(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("ping")); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 4))
	return err
}
