package forward_test

import (
	"fmt"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/forward"
)

// subnet returns the client subnet option of a query; nil if there is none.
func (q asked) subnet() dnswire.Subnet {
	var parsed dnswire.Query
	if parsed.ParseHeader(q.packet) != nil || parsed.ParseBody(q.packet) != nil {
		return nil
	}
	return parsed.EDNS.Subnet
}

// near returns the subnet 192.0.n.0/24 for a query.
func near(n byte) dnswire.Subnet { return dnswire.Subnet{0, 1, 24, 0, 192, 0, n} }

// scoped returns s for a reply with the given scope.
func scoped(s dnswire.Subnet, scope byte) dnswire.Subnet {
	return append(dnswire.Subnet{s[0], s[1], s[2], scope}, s[4:]...)
}

// askFrom is ask for a client that sends a subnet. It uses cached answers.
func askFrom(t *testing.T, f *forward.Forwarder, name string, from dnswire.Subnet) string {
	t.Helper()
	q, now := questionOf(name), time.Now()
	q.Subnet = from
	if e, _ := f.Cached(q, now); e != nil {
		return said(e, now)
	}
	request := f.Reserve(client, q)
	return said(request.Resolve(t.Context()))
}

// nearTo returns a Forwarder that forwards client subnets to the server.
func nearTo(t *testing.T, s *server) *forward.Forwarder {
	t.Helper()
	return newForwarder(t, settings(t, forward.Route{ClientSubnet: true, Upstreams: []forward.Upstream{{Addr: s.addr}}}))
}

// TestReplyForAnotherSubnetIsDropped checks that a reply for another subnet is dropped and the
// question repeated without a subnet, without effect on the upstream's state.
func TestReplyForAnotherSubnetIsDropped(t *testing.T) {
	s := serve(t, func(q asked) [][]byte {
		if q.subnet() == nil {
			return works(q)
		}
		return one(dnswire.AppendOption(q.reply(dnswire.NoError, 60, "192.0.2.66"), dnswire.OptionSubnet, scoped(near(9), 24)))
	})
	f := nearTo(t, s)
	const n = 5
	for i := range n {
		if got := askFrom(t, f, fmt.Sprintf("n%d.example.", i), near(2)); got != "192.0.2.1" {
			t.Errorf("answer %q, want that without a subnet", got)
		}
	}
	if u := f.Stats().Upstreams[0]; u.Down || u.Late != 0 || u.Failures != 0 || u.Forged != n || len(s.queries()) != 2*n {
		t.Errorf("%d queries, figures %+v; want %d, and as many replies dropped as names asked for", len(s.queries()), u, 2*n)
	}
}

// TestSubnetRefused checks that an upstream that rejects the option is queried
// without it, but with EDNS.
func TestSubnetRefused(t *testing.T) {
	for _, rcode := range []dnswire.RCode{dnswire.FormErr, dnswire.NotImp, dnswire.Refused} {
		t.Run(rcode.String(), func(t *testing.T) {
			s := serve(t, func(q asked) [][]byte {
				if q.subnet() == nil {
					return works(q)
				}
				m := q.reply(rcode, 0)
				m[11] = 0
				return one(m[:len(m)-11])
			})
			f := nearTo(t, s)
			if got := askFrom(t, f, "one.example.", dnswire.Subnet{0, 0, 0, 0}); got != "192.0.2.1" {
				t.Errorf("answer %q", got)
			}
			ask(t, f, "two.example.")
			all := s.queries()
			if len(all) != 3 || !all[1].edns() || !all[2].edns() {
				t.Errorf("%d queries, want 3, all with EDNS", len(all))
			}
		})
	}
}

// TestSubnetWithoutEDNS checks that missing support for EDNS is detected and
// remembered, also with a subnet.
func TestSubnetWithoutEDNS(t *testing.T) {
	s := serve(t, func(q asked) [][]byte {
		if !q.edns() {
			return works(q)
		}
		m := q.reply(dnswire.FormErr, 0)
		m[11] = 0
		return one(m[:len(m)-11])
	})
	f := nearTo(t, s)
	for _, name := range []string{"one.example.", "two.example."} {
		if got := askFrom(t, f, name, near(2)); got != "192.0.2.1" {
			t.Errorf("%s: %q", name, got)
		}
	}
	if n := len(s.queries()); n != 4 {
		t.Errorf("%d queries, want 4: with the option, with EDNS, without, and the next name", n)
	}
}

// TestFailureForASubnet checks that a failure is cached for all clients, unless it is
// for one subnet.
func TestFailureForASubnet(t *testing.T) {
	for name, c := range map[string]struct {
		rcode dnswire.RCode
		scope byte
		asked int
	}{
		"SERVFAIL of all":          {dnswire.ServFail, 0, 1},
		"SERVFAIL of a subnet":     {dnswire.ServFail, 24, 3},
		"a private address of all": {dnswire.NoError, 0, 1},
		"one of a subnet":          {dnswire.NoError, 24, 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(q asked) [][]byte {
				var addrs []string
				if c.rcode == dnswire.NoError {
					addrs = append(addrs, "10.0.0.1")
				}
				m := q.reply(c.rcode, 60, addrs...)
				if from := q.subnet(); from != nil {
					m = dnswire.AppendOption(m, dnswire.OptionSubnet, scoped(from, c.scope))
				}
				return one(m)
			})
			f := newForwarder(t, settings(t, forward.Route{ClientSubnet: true, NoPrivate: true, Upstreams: []forward.Upstream{{Addr: s.addr}}}))
			for _, from := range []dnswire.Subnet{near(2), near(3), nil} {
				askFrom(t, f, "www.example.", from)
			}
			if n := len(s.queries()); n != c.asked {
				t.Errorf("%d queries, want %d", n, c.asked)
			}
		})
	}
}

// TestPrefetchWithoutSubnet checks that a popular answer is refreshed without
// any client's subnet.
func TestPrefetchWithoutSubnet(t *testing.T) {
	s := serve(t, func(q asked) [][]byte {
		m := q.reply(dnswire.NoError, 60, "192.0.2.1")
		if from := q.subnet(); from != nil {
			m = dnswire.AppendOption(m, dnswire.OptionSubnet, from)
		}
		return one(m)
	})
	f := nearTo(t, s)
	askFrom(t, f, "www.example.", near(2))
	q := questionOf("www.example.")
	q.Subnet = near(3)
	for range 3 {
		f.Cached(q, time.Now().Add(58*time.Second))
	}
	await(t, "a prefetch", func() bool { return len(s.queries()) == 2 })
	if got := s.queries()[1].subnet(); got != nil {
		t.Errorf("asked for anew with subnet %x", got)
	}
}
