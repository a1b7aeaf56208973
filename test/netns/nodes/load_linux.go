package nodes

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Patience is how long a client waits for an answer: as long as resolvers do, see
// timeout in resolv.conf(5).
const Patience = 5 * time.Second

// Query is a query that was sent, with its result.
type Query struct {
	Sent   time.Time
	Took   time.Duration // until the answer
	Result Result
}

// Ask sends a server one query for the IPv4 addresses of a name, over UDP from a new
// port of the place, and waits no longer than patience.
func (p *Place) Ask(server netip.Addr, want Want, patience time.Duration) (Query, error) {
	var conn net.Conn
	query := Query{Sent: time.Now()}
	err := p.Do(func() (err error) {
		conn, err = net.Dial("udp", netip.AddrPortFrom(server, 53).String())
		return err
	})
	if err != nil {
		return query, err
	}
	defer conn.Close()
	m := new(dns.Msg).SetQuestion(dns.Fqdn(want.Name), dns.TypeA)
	m.SetEdns0(1232, false)
	query.Result = exchange(conn, m, want, query.Sent.Add(patience))
	query.Took = time.Since(query.Sent)
	return query, nil
}

func exchange(conn net.Conn, q *dns.Msg, want Want, deadline time.Time) Result {
	c := &dns.Conn{Conn: conn, UDPSize: 1232}
	if err := c.SetDeadline(deadline); err != nil {
		return Lost
	}
	if err := c.WriteMsg(q); err != nil {
		return Lost
	}
	for {
		m, err := c.ReadMsg()
		switch {
		case err != nil:
			return Lost
		case m.Id != q.Id:
			continue
		case m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError:
			return Failed
		}
		return judge(m, want)
	}
}

// judge compares the IPv4 addresses of a response with those wanted.
func judge(m *dns.Msg, want Want) Result {
	var got, wanted []netip.Addr
	for _, rr := range m.Answer {
		if a, ok := rr.(*dns.A); ok {
			addr, _ := netip.AddrFromSlice(a.A)
			got = append(got, addr.Unmap())
		}
	}
	for _, a := range want.Addrs {
		if a.Is4() {
			wanted = append(wanted, a)
		}
	}
	if (Want{Addrs: wanted}).right(got) && (len(want.Addrs) > 0) == (m.Rcode == dns.RcodeSuccess) {
		return Right
	}
	return Wrong
}

// Load queries a server from a Pod at a fixed rate, each time from a new port.
type Load struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	queries []Query
	err     error
}

// StartLoad starts a Load, which queries one name after the other, once every pause.
func (p *Place) StartLoad(ctx context.Context, server netip.Addr, pause time.Duration, wants []Want) *Load {
	ctx, cancel := context.WithCancel(ctx)
	l := &Load{cancel: cancel}
	l.done.Go(func() {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			l.done.Go(func() { l.ask(p, server, wants[i%len(wants)]) })
		}
	})
	return l
}

func (l *Load) ask(p *Place, server netip.Addr, want Want) {
	q, err := p.Ask(server, want, Patience)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && l.err == nil {
		l.err = err
	}
	l.queries = append(l.queries, q)
}

// End stops the Load, waits for outstanding answers and returns all queries, in the
// order in which they ended.
func (l *Load) End() ([]Query, error) {
	l.cancel()
	l.done.Wait()
	return l.queries, l.err
}
