package live

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// The results of a connection or of a packet.
const (
	connected   = "connected"
	answered    = "answered"
	refused     = "refused"
	noAnswer    = "no answer"
	unreachable = "unreachable"
	// silent is no answer to a packet that need not have one.
	silent = "no answer, which a datagram need not have"
	// interrupted: the context ended before.
	interrupted = "not waited for"
)

// probed is the result of a connection or of a packet.
type probed struct {
	at     netip.AddrPort
	result string
	conn   net.Conn // of a connection that is kept; nil if there is none
}

// passed reports whether packets came to where they were sent, and back.
func (p *probed) passed() bool {
	return p.result == connected || p.result == answered || p.result == refused
}

// open reports whether something listens.
func (p *probed) open() bool { return p.result == connected || p.result == answered }

// lost reports whether no packet came back from there.
func (p *probed) lost() bool { return p.result == noAnswer || p.result == unreachable }

// dial opens a TCP connection, which the caller closes.
func (c *comparer) dial(ctx context.Context, at netip.AddrPort) probed {
	begin := time.Now()
	waiting, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	conn, err := c.Origin.Dialer.Dial(waiting, "tcp", at)
	p := probed{at: at, result: resultOf(ctx, err), conn: conn}
	c.record(fmt.Sprintf("TCP connection to %s", at), p.result, time.Since(begin))
	return p
}

// resultOf returns the result that an error is.
func resultOf(ctx context.Context, err error) string {
	switch {
	case err == nil:
		return connected
	case ctx.Err() != nil:
		return interrupted
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		return refused
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.Is(err, syscall.ETIMEDOUT):
		return noAnswer
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EACCES),
		errors.Is(err, syscall.EPERM):
		return unreachable
	}
	return err.Error()
}

// packet sends a datagram: a query to port 53, an empty one to others.
func (c *comparer) packet(ctx context.Context, at netip.AddrPort) probed {
	begin := time.Now()
	what, payload := "empty UDP packet", []byte{}
	if at.Port() == dnsPort {
		query, err := dnswire.NewQuery(dnswire.QuerySpec{Name: ".", Type: dnswire.TypeNS, UDPSize: 512})
		if err == nil {
			what, payload = "query of . NS", query
		}
	}
	p := probed{at: at, result: c.exchange(ctx, at, payload)}
	if p.result == noAnswer && at.Port() != dnsPort {
		p.result = silent
	}
	c.record(fmt.Sprintf("%s to %s", what, at), p.result, time.Since(begin))
	return p
}

// dnsPort is the port of DNS.
const dnsPort = 53

// exchange sends a datagram, and waits for one.
func (c *comparer) exchange(ctx context.Context, at netip.AddrPort, payload []byte) string {
	waiting, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	conn, err := c.Origin.Dialer.Dial(waiting, "udp", at)
	if err != nil {
		return resultOf(ctx, err)
	}
	defer conn.Close()
	defer context.AfterFunc(waiting, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := conn.Write(payload); err != nil {
		return resultOf(ctx, err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return resultOf(ctx, err)
	}
	return answered
}
