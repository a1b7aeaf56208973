package world

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/test/namespace"
)

// Client is a place that packets are sent from: a Pod, a node or an address outside.
type Client struct {
	// Network is its namespace; that of a Pod with hostNetwork is its node's.
	Network *namespace.Network
	// Name is NAMESPACE/POD, the name of the node, or the address outside.
	Name string
	// Node is the node that it is on, or that its packets arrive at.
	Node string
	// Addrs are its addresses.
	Addrs []netip.Addr

	resolve string         // its resolv.conf
	hosts   []string       // names of its own in its /etc/hosts
	mark    int            // of packets that are to arrive at the node; 0 is none
	marks   map[string]int // of outside, by the names of nodes
	program bool           // it is a program of portolan
}

// ResolvConf is the file that it has; empty outside.
func (c *Client) ResolvConf() string { return c.resolve }

// Outcome is what becomes of a connection.
type Outcome string

// The outcomes. Refused: the client is told so, by a reset or by an ICMP error.
const (
	Connected Outcome = "connected"
	Refused   Outcome = "refused"
	Dropped   Outcome = "dropped"
)

// The times in which an answer comes. The first one is shorter than that after which the kernel sends the first packet
// of a connection again (RFC 6298).
const (
	firstTry  = 700 * time.Millisecond
	secondTry = 900 * time.Millisecond
	answering = 30 * time.Second
)

// Connection is what became of one.
type Connection struct {
	Outcome Outcome
	// Server is the name of the Pod that answers, or outside; empty if it is another program.
	Server string
	// Why is the error of a connection that is refused.
	Why string
}

// Connect opens a connection of TCP, or sends a packet of UDP, and asks who is there. What has no answer is tried again
// once, from another port, before it is Dropped: a Service may choose another endpoint then.
func (c *Client) Connect(ctx context.Context, network string, to netip.AddrPort) (r Connection, err error) {
	for _, patience := range []time.Duration{firstTry, secondTry} {
		if r, err = c.try(ctx, network, to, patience); err != nil || r.Outcome != Dropped {
			break
		}
	}
	return r, err
}

// Try is Connect with one packet, which is not sent again.
func (c *Client) Try(ctx context.Context, network string, to netip.AddrPort) (Connection, error) {
	return c.try(ctx, network, to, secondTry)
}

func (c *Client) try(
	ctx context.Context,
	network string,
	to netip.AddrPort,
	patience time.Duration,
) (Connection, error) {
	conn, err := c.dial(ctx, network, to, patience)
	switch {
	case err == nil:
		defer conn.Close()
		r, err := ask(conn, network, patience)
		if isTimeout(err) {
			return Connection{Outcome: Dropped}, nil
		}
		return r, err
	case isRefusal(err):
		return Connection{Outcome: Refused, Why: err.Error()}, nil
	case isTimeout(err):
		return Connection{Outcome: Dropped}, nil
	}
	return Connection{}, fmt.Errorf("%s to %s: %w", c.Name, to, err)
}

// ask asks who is at the other end.
func ask(conn net.Conn, network string, patience time.Duration) (Connection, error) {
	if network == "tcp" {
		patience = answering // it is connected
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, err := conn.Write([]byte(question))
	buf := make([]byte, 1500)
	n := 0
	if err == nil {
		n, err = conn.Read(buf)
	}
	r := Connection{Outcome: Connected}
	switch {
	case err == nil:
		name, ours := strings.CutSuffix(string(buf[:n]), "\n")
		if ours && !strings.Contains(name, "\n") {
			r.Server = name
		}
	case network == "udp" && isRefusal(err):
		return Connection{Outcome: Refused, Why: err.Error()}, nil
	case network == "udp":
		return r, err
	}
	return r, nil
}

// isRefusal reports whether an error says that the other end, or a router, refused a packet.
func isRefusal(err error) bool {
	return slices.ContainsFunc([]error{
		syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EACCES, syscall.EPERM,
	}, func(is error) bool { return errors.Is(err, is) })
}

func isTimeout(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, syscall.ETIMEDOUT)
}

// Dial opens a connection or a socket in the client's namespace, until the context ends.
func (c *Client) Dial(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
	return c.dial(ctx, network, to, 0)
}

// dial opens a socket in the client's namespace.
func (c *Client) dial(
	ctx context.Context,
	network string,
	to netip.AddrPort,
	patience time.Duration,
) (conn net.Conn, err error) {
	d := net.Dialer{Timeout: patience}
	if c.mark != 0 {
		from := c.addrFor(to.Addr())
		if !from.IsValid() {
			return nil, fmt.Errorf("%s has no address of the family of %s", c.Name, to)
		}
		d.LocalAddr = &net.TCPAddr{IP: from.AsSlice()}
		if network == "udp" {
			d.LocalAddr = &net.UDPAddr{IP: from.AsSlice()}
		}
		d.Control = func(_, _ string, raw syscall.RawConn) (err error) {
			failed := raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, c.mark)
			})
			return errors.Join(failed, err)
		}
	}
	err = c.Network.Do(func() error {
		conn, err = d.DialContext(ctx, network, to.String())
		return err
	})
	return conn, err
}

// addrFor returns the client's first address of the family of another one.
func (c *Client) addrFor(other netip.Addr) netip.Addr {
	for _, a := range c.Addrs {
		if a.Is4() == other.Is4() {
			return a
		}
	}
	return netip.Addr{}
}
