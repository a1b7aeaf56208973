package world

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// Lookup is what became of one.
type Lookup struct {
	// Name is the name that has Addrs, out of the search list; empty if there is none.
	Name  string
	Addrs []netip.Addr
	// Status is the last one of DNS, such as NXDOMAIN, or "no answer".
	Status string
}

// Found reports whether there are addresses.
func (l *Lookup) Found() bool { return len(l.Addrs) > 0 }

// The Status of a lookup that no server answers, and of one that the Pod's /etc/hosts answers.
const (
	noAnswer  = "no answer"
	fromHosts = "in /etc/hosts"
)

// resolver is a resolv.conf as a resolver reads it (resolv.conf(5)).
type resolver struct {
	servers, search []string
	ndots           int
}

// parse reads a resolv.conf.
func parse(text string) resolver {
	r := resolver{ndots: 1}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case "nameserver":
			r.servers = append(r.servers, words[1])
		case "search":
			r.search = words[1:]
		case "options":
			for _, o := range words[1:] {
				if n, ok := strings.CutPrefix(o, "ndots:"); ok {
					r.ndots, _ = strconv.Atoi(n)
				}
			}
		}
	}
	return r
}

// candidates are the names that are asked for, in order.
func (r *resolver) candidates(name string) (all []string) {
	if strings.HasSuffix(name, ".") {
		return []string{name}
	}
	for _, s := range r.search {
		all = append(all, name+"."+strings.TrimSuffix(s, ".")+".")
	}
	if strings.Count(name, ".") >= r.ndots {
		return append([]string{name + "."}, all...)
	}
	return append(all, name+".")
}

// Lookup looks a name up as the Pod's resolver does, by its resolv.conf: the addresses of both families, over UDP. A
// name with addresses ends the search.
func (c *Client) Lookup(ctx context.Context, name string) (Lookup, error) {
	if slices.ContainsFunc(c.hosts, func(own string) bool { return strings.EqualFold(own, name) }) {
		return Lookup{Name: name, Addrs: c.Addrs, Status: fromHosts}, nil
	}
	r := parse(c.resolve)
	last := Lookup{Status: noAnswer}
	for _, candidate := range r.candidates(name) {
		l, err := c.lookup(ctx, &r, candidate)
		if err != nil {
			return l, err
		}
		if l.Found() || l.Status == noAnswer {
			return l, nil
		}
		last = l
	}
	return last, nil
}

// lookup asks for the addresses of a name.
func (c *Client) lookup(ctx context.Context, r *resolver, name string) (l Lookup, err error) {
	l.Status = noAnswer
	for _, t := range []uint16{dns.TypeA, dns.TypeAAAA} {
		m, err := c.query(ctx, r, new(dns.Msg).SetQuestion(name, t))
		if err != nil || m == nil {
			return Lookup{Status: noAnswer}, err
		}
		l.Status = dns.RcodeToString[m.Rcode]
		for _, rr := range m.Answer {
			var ip net.IP
			switch rr := rr.(type) {
			case *dns.A:
				ip = rr.A
			case *dns.AAAA:
				ip = rr.AAAA
			}
			if addr, ok := netip.AddrFromSlice(ip); ok {
				l.Addrs = append(l.Addrs, addr.Unmap())
				l.Name = name
			}
		}
	}
	return l, nil
}

// query asks the servers, twice each. It returns nil if none answers.
func (c *Client) query(ctx context.Context, r *resolver, q *dns.Msg) (*dns.Msg, error) {
	for _, patience := range []time.Duration{firstTry, secondTry} {
		for _, server := range r.servers {
			addr, err := netip.ParseAddr(server)
			if err != nil {
				return nil, fmt.Errorf("resolv.conf of %s: %w", c.Name, err)
			}
			m, err := c.exchange(ctx, netip.AddrPortFrom(addr, 53), q, patience)
			if err == nil {
				return m, nil
			}
			if !isTimeout(err) && !isRefusal(err) {
				return nil, fmt.Errorf("%s asks %s: %w", c.Name, server, err)
			}
		}
	}
	return nil, nil
}

// exchange sends a query to a server.
func (c *Client) exchange(
	ctx context.Context,
	to netip.AddrPort,
	q *dns.Msg,
	patience time.Duration,
) (*dns.Msg, error) {
	network := "udp"
	for {
		conn, err := c.dial(ctx, network, to, patience)
		if err != nil {
			return nil, err
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		d := &dns.Conn{Conn: conn}
		err = d.WriteMsg(q)
		var m *dns.Msg
		if err == nil {
			m, err = d.ReadMsg()
		}
		conn.Close()
		if err != nil || !m.Truncated || network == "tcp" {
			return m, err
		}
		network = "tcp" // RFC 7766, section 5
	}
}
