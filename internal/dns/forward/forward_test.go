package forward_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/support/budget"
)

// TestRandom checks that queries have random ports, IDs and case (RFC 5452,
// section 9.2).
func TestRandom(t *testing.T) {
	s := serve(t, works)
	f := to(t, s)
	const n = 64
	for i := range n {
		if got := ask(t, f, fmt.Sprintf("name%d.abcdefghijklmnop.example.", i)); got != "192.0.2.1" {
			t.Fatalf("answer %q", got)
		}
	}
	ports, ids, spellings := map[uint16]bool{}, map[uint16]bool{}, map[string]bool{}
	for _, q := range s.queries() {
		ports[q.from.Port()], ids[q.id()] = true, true
		spellings[string(bytes.SplitN(q.question(), []byte{16}, 2)[1])] = true
	}
	// A few may be equal by chance.
	if len(ports) < n-8 || len(ids) < n-2 || len(spellings) < n-4 {
		t.Errorf("%d queries from %d ports, with %d IDs and %d spellings", n, len(ports), len(ids), len(spellings))
	}
}

// TestMismatchedPacketsAreIgnored checks that packets that do not match the query are ignored.
func TestMismatchedPacketsAreIgnored(t *testing.T) {
	edit := func(m []byte, do func([]byte)) []byte {
		m = bytes.Clone(m)
		do(m)
		return m
	}
	for name, forge := range map[string]func(asked) []byte{
		"another ID": func(q asked) []byte {
			return edit(q.reply(dnswire.NoError, 60, "192.0.2.66"), func(m []byte) { m[0] ^= 1 })
		},
		"another name": func(q asked) []byte {
			return edit(q.reply(dnswire.NoError, 60, "192.0.2.66"), func(m []byte) { m[13] = 'x' })
		},
		"another type": func(q asked) []byte {
			return edit(q.reply(dnswire.NoError, 60, "192.0.2.66"), func(m []byte) { m[12+len(q.question())-3] = 28 })
		},
		"a query": func(q asked) []byte { return q.packet },
		"cut":     func(q asked) []byte { return q.reply(dnswire.NoError, 60, "192.0.2.66")[:20] },
		"nothing": func(asked) []byte { return nil },
		"a loop of pointers": func(q asked) []byte {
			return edit(q.reply(dnswire.NoError, 60, "192.0.2.66"), func(m []byte) { m[12+len(q.question())+1] = byte(12 + len(q.question())) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(q asked) [][]byte { return [][]byte{forge(q), q.reply(dnswire.NoError, 60, "192.0.2.1")} })
			if got := ask(t, to(t, s), "www.example."); got != "192.0.2.1" {
				t.Errorf("answer %q, want that of the second packet", got)
			}
		})
	}
}

// TestForgeryAttemptsSwitchToTCP checks that a query goes over TCP after many packets that do not
// match.
func TestForgeryAttemptsSwitchToTCP(t *testing.T) {
	s := serve(t, func(q asked) (all [][]byte) {
		if q.tcp {
			return works(q)
		}
		for range 100 {
			all = append(all, []byte("not a message"))
		}
		return all
	})
	if got := ask(t, to(t, s), "www.example."); got != "192.0.2.1" {
		t.Errorf("answer %q", got)
	}
}

func TestTruncated(t *testing.T) {
	s := serve(t, func(q asked) [][]byte {
		m := q.reply(dnswire.NoError, 60, "192.0.2.1")
		if !q.tcp {
			m = q.reply(dnswire.NoError, 60)
			m[2] |= 2
		}
		return one(m)
	})
	if got := ask(t, to(t, s), "www.example."); got != "192.0.2.1" {
		t.Errorf("answer %q", got)
	}
}

// TestFoldsCase checks that a server that changes case is verified over TCP and
// then queried in lower case.
func TestFoldsCase(t *testing.T) {
	lower := func(q asked) [][]byte {
		m := q.reply(dnswire.NoError, 60, "192.0.2.1")
		copy(m[12:], bytes.ToLower(q.question()))
		return one(m)
	}
	for name, handle := range map[string]func(asked) [][]byte{
		"over TCP neither": lower,
		"no TCP": func(q asked) [][]byte {
			if q.tcp {
				return one(closing)
			}
			return lower(q)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, handle)
			f := to(t, s)
			for i := range 3 {
				if got := ask(t, f, fmt.Sprintf("abcdefghijklmnop%d.example.", i)); got != "192.0.2.1" {
					t.Fatalf("answer %d: %q", i, got)
				}
			}
			all := s.queries()
			for _, q := range all[len(all)-2:] {
				if q.tcp || !bytes.Equal(q.question(), bytes.ToLower(q.question())) {
					t.Errorf("asked %q (TCP: %v), want lower case over UDP", q.question(), q.tcp)
				}
			}
		})
	}
}

func TestWithoutEDNS(t *testing.T) {
	s := serve(t, func(q asked) [][]byte {
		if q.edns() {
			m := q.reply(dnswire.FormErr, 0)
			m[11] = 0
			return one(m[:len(m)-11])
		}
		return works(q)
	})
	f := to(t, s)
	for _, name := range []string{"one.example.", "two.example."} {
		if got := ask(t, f, name); got != "192.0.2.1" {
			t.Errorf("%s: answer %q", name, got)
		}
	}
	if n := len(s.queries()); n != 3 {
		t.Errorf("%d queries, want 3: it is remembered", n)
	}
}

// TestPipelining checks that queries share a connection and that replies may
// come in any order.
func TestPipelining(t *testing.T) {
	const n = 20
	var waiting sync.WaitGroup
	waiting.Add(n)
	s := serve(t, func(q asked) [][]byte {
		waiting.Done()
		waiting.Wait()
		number := q.question()[5] // of nameA, nameB
		return one(q.reply(dnswire.NoError, 60, fmt.Sprintf("192.0.2.%d", number)))
	})
	f := newForwarder(t, settings(t, forward.Route{Upstreams: []forward.Upstream{{Addr: s.addr, Transport: forward.TCP}}}))
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			letter := 'a' + rune(i)
			if got, want := ask(t, f, fmt.Sprintf("name%c.example.", letter)), fmt.Sprintf("192.0.2.%d", letter); got != want {
				t.Errorf("name%c: %q, want %q", letter, got, want)
			}
		})
	}
	wg.Wait()
	for _, q := range s.queries() {
		if q.conn != 1 {
			t.Errorf("a query on connection %d, want all on the first", q.conn)
		}
	}
}

// TestClosedConnectionIsReopened checks that a connection closed by the server is opened again, and
// that one closed within a reply makes the query go to another upstream.
func TestClosedConnectionIsReopened(t *testing.T) {
	var closes atomic.Bool
	s := serve(t, func(q asked) [][]byte {
		if closes.Swap(false) {
			return one(closing)
		}
		return works(q)
	})
	route := forward.Route{Upstreams: []forward.Upstream{{Addr: s.addr, Transport: forward.TCP}}}
	f := newForwarder(t, settings(t, route))
	ask(t, f, "one.example.")
	closes.Store(true)
	if got := ask(t, f, "two.example."); got != "192.0.2.1" {
		t.Errorf("on a connection closed meanwhile: %q", got)
	}
	always := serve(t, func(asked) [][]byte { return one(closing) })
	route.Upstreams = []forward.Upstream{{Addr: always.addr, Transport: forward.TCP}, {Addr: s.addr, Transport: forward.TCP}}
	if got := ask(t, newForwarder(t, settings(t, route)), "three.example."); got != "192.0.2.1" {
		t.Errorf("with one that always closes: %q", got)
	}
}

// TestLateUpstreamIsHedged checks that another upstream is queried when one is late, and that
// one that is late repeatedly is not queried first until it replies.
func TestLateUpstreamIsHedged(t *testing.T) {
	var dead atomic.Bool
	dead.Store(true)
	first := serve(t, func(q asked) [][]byte {
		if dead.Load() {
			return nil
		}
		return one(q.reply(dnswire.NoError, 60, "192.0.2.1"))
	})
	second := serve(t, func(q asked) [][]byte { return one(q.reply(dnswire.NoError, 60, "192.0.2.2")) })
	f := to(t, first, second)
	run(t, f)
	began := time.Now()
	for i := range 3 {
		if got := ask(t, f, fmt.Sprintf("late%d.example.", i)); got != "192.0.2.2" {
			t.Fatalf("answer %q", got)
		}
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("three answers took %s", took)
	}
	asked := len(first.queries())
	began = time.Now()
	for i := range 20 {
		ask(t, f, fmt.Sprintf("down%d.example.", i))
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("twenty answers with one upstream down took %s", took)
	}
	if more := len(first.queries()) - asked; more > 5 {
		t.Errorf("the upstream that is down was asked %d times for 20 queries", more)
	}
	dead.Store(false)
	await(t, "the first upstream is asked again", func() bool {
		return ask(t, f, fmt.Sprintf("up%d.example.", time.Now().UnixNano())) == "192.0.2.1"
	})
}

// TestLostPacketIsRetransmitted checks that a lost packet is retransmitted long before a client
// would retry.
func TestLostPacketIsRetransmitted(t *testing.T) {
	var n atomic.Int32
	s := serve(t, func(q asked) [][]byte {
		if n.Add(1)%2 == 1 {
			return nil
		}
		return works(q)
	})
	f := to(t, s)
	for i := range 4 {
		began := time.Now()
		if got := ask(t, f, fmt.Sprintf("name%d.example.", i)); got != "192.0.2.1" {
			t.Errorf("answer %q", got)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("answer after %s", took)
		}
	}
}

// TestNextUpstream checks that the next upstream is queried at once when one
// fails at once.
func TestNextUpstream(t *testing.T) {
	for name, rcode := range map[string]dnswire.RCode{"SERVFAIL": dnswire.ServFail, "REFUSED": dnswire.Refused, "NOTIMP": dnswire.NotImp} {
		t.Run(name, func(t *testing.T) {
			bad := serve(t, func(q asked) [][]byte { return one(q.reply(rcode, 0)) })
			good := serve(t, works)
			if got := ask(t, to(t, bad, good), "www.example."); got != "192.0.2.1" {
				t.Errorf("answer %q", got)
			}
		})
	}
}

// TestEqualQuestionsShareAQuery checks that concurrent equal questions share one query.
func TestEqualQuestionsShareAQuery(t *testing.T) {
	release := make(chan struct{})
	s := serve(t, func(q asked) [][]byte {
		<-release
		return works(q)
	})
	f := to(t, s)
	var wg sync.WaitGroup
	for range 10 {
		request := f.Reserve(client, questionOf("www.example."))
		wg.Go(func() {
			if got := said(request.Resolve(t.Context())); got != "192.0.2.1" {
				t.Errorf("answer %q", got)
			}
		})
	}
	await(t, "all wait for one query", func() bool {
		is := f.Stats()
		return len(s.queries()) > 0 && is.Misses+is.Joined == 10
	})
	close(release)
	wg.Wait()
	for _, q := range s.queries()[1:] { // it may have been retransmitted
		if !bytes.EqualFold(q.question(), s.queries()[0].question()) {
			t.Errorf("asked %q, too", q.question())
		}
	}
	if got := f.Stats(); got.Misses != 1 || got.Joined != 9 {
		t.Errorf("figures %+v, want 1 miss, 9 joined", got)
	}
}

// TestLimits checks which query loses its place: of a client with its share, or else of the
// client with the most, the one that has waited the longest, except for those that stay.
func TestLimits(t *testing.T) {
	s := serve(t, silent)
	cfg := settings(t, forward.Route{Upstreams: []forward.Upstream{{Addr: s.addr}}})
	cfg.Limits = budget.Limits{Total: 3, PerSource: 2}
	f := newForwarder(t, cfg)
	const ofClient = "too many queries of this client are waiting for upstream servers"
	others := netip.MustParseAddr("192.0.2.101")
	lost := make(map[string]<-chan string)
	for _, tt := range []struct {
		client           netip.Addr
		name, loses, why string
	}{
		{client, "one.example.", "", ""},
		{client, "two.example.", "", ""},
		{client, "three.example.", "two.example.", ofClient}, // the first one stays
		{others, "four.example.", "", ""},
		{others, "five.example.", "three.example.", "too many queries are waiting for upstream servers"},
		{others, "six.example.", "four.example.", ofClient},
	} {
		r, answer := f.Reserve(tt.client, questionOf(tt.name)), make(chan string, 1)
		go func() { answer <- said(r.Resolve(context.Background())) }()
		lost[tt.name] = answer
		if tt.loses == "" {
			continue
		}
		select {
		case got := <-lost[tt.loses]:
			if got != tt.why {
				t.Errorf("%s is answered %q when %s comes, want %q", tt.loses, got, tt.name, tt.why)
			}
		case <-time.After(time.Second):
			t.Errorf("%s keeps its place when %s comes", tt.loses, tt.name)
		}
	}
	if got, want := f.Stats().Waiting, (budget.Stats{Account: "forward", Used: 3, Limit: 3, Full: 1, SourceFull: 2}); got != want {
		t.Errorf("figures %+v, want %+v", got, want)
	}
}

// TestSlowNamesCostFewSockets checks that many questions to a silent upstream share
// sockets.
func TestSlowNamesCostFewSockets(t *testing.T) {
	s := serve(t, silent)
	cfg := settings(t, forward.Route{Timeout: 20 * time.Second, Upstreams: []forward.Upstream{{Addr: s.addr}}})
	const places = 600
	cfg.Limits = budget.Limits{Total: places, PerSource: places}
	f := newForwarder(t, cfg)
	before := openFiles(t)
	for i := range 5 * places {
		r := f.Reserve(client, questionOf(fmt.Sprintf("n%d.example.", i)))
		go func() { r.Resolve(t.Context()) }()
	}
	await(t, "the questions are sent", func() bool { return len(s.queries()) > places })
	if more := openFiles(t) - before; more > 100 {
		t.Errorf("%d questions have %d sockets, want 100 at most", places, more)
	}
}

// TestSlowUpstreamAnswersSome checks that an upstream whose answers take longer than places
// last answers some questions.
func TestSlowUpstreamAnswersSome(t *testing.T) {
	const latency, places, interval = 500 * time.Millisecond, 20, 10 * time.Millisecond
	s := serve(t, func(q asked) [][]byte {
		time.Sleep(latency)
		return works(q)
	})
	cfg := settings(t, forward.Route{Upstreams: []forward.Upstream{{Addr: s.addr}}})
	cfg.Limits = budget.Limits{Total: places, PerSource: places}
	f := newForwarder(t, cfg)
	var answered atomic.Int32
	var all sync.WaitGroup
	for i := range 10 * places {
		r := f.Reserve(client, questionOf(fmt.Sprintf("n%d.example.", i)))
		all.Go(func() {
			if said(r.Resolve(t.Context())) == "192.0.2.1" {
				answered.Add(1)
			}
		})
		time.Sleep(interval)
	}
	all.Wait()
	if n := answered.Load(); n < places {
		t.Errorf("%d of %d questions answered, want %d at least", n, 10*places, places)
	}
}

// openFiles returns the number of open files of the process.
func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc:", err)
	}
	return len(files)
}

// TestErrorsNameRouteAndUpstreams checks that failures name the route and the upstreams.
func TestErrorsNameRouteAndUpstreams(t *testing.T) {
	s := serve(t, silent)
	cfg := settings(t, forward.Route{Upstreams: []forward.Upstream{{Addr: s.addr}}, Timeout: 300 * time.Millisecond})
	if got, want := ask(t, newForwarder(t, cfg), "www.example."), fmt.Sprintf("route .: no answer from %s within 300ms", s.addr); got != want {
		t.Errorf("silence: %q, want %q", got, want)
	}
	// Nothing listens there.
	cfg = settings(t, forward.Route{Upstreams: []forward.Upstream{{Addr: netip.MustParseAddrPort("127.0.0.1:1")}}})
	if got := ask(t, newForwarder(t, cfg), "www.example."); got != "route .: 127.0.0.1:1: connection refused" {
		t.Errorf("closed port: %q", got)
	}
	bad := serve(t, func(q asked) [][]byte { return one(q.reply(dnswire.ServFail, 0)) })
	if got, want := ask(t, to(t, bad), "www.example."), "route .: an upstream server answers SERVFAIL"; got != want {
		t.Errorf("SERVFAIL: %q, want %q", got, want)
	}
	why := serve(t, func(q asked) [][]byte {
		m := q.reply(dnswire.ServFail, 0)
		m[len(m)-1] = 4 + 2 + 5 // the OPT record has one option of 7 octets
		return one(append(m, 0, 15, 0, 7, 0, 20, 'b', 'e', 'c', 'a', 'u'))
	})
	if got, want := ask(t, to(t, why), "www.example."), fmt.Sprintf("route .: %s says: becau", why.addr); got != want {
		t.Errorf("SERVFAIL with an error: %q, want %q", got, want)
	}
}

// TestRoutes checks that the longest suffix determines the route.
func TestRoutes(t *testing.T) {
	answers := func(addr string) *server {
		return serve(t, func(q asked) [][]byte { return one(q.reply(dnswire.NoError, 60, addr)) })
	}
	all, corp, deep := answers("192.0.2.1"), answers("192.0.2.2"), answers("192.0.2.3")
	cfg := settings(t, forward.Route{Upstreams: []forward.Upstream{{Addr: all.addr}}})
	for suffix, s := range map[string]*server{"corp.example.": corp, "deep.corp.example.": deep} {
		r := cfg.Routes[0]
		r.Suffix, r.Upstreams = dnsnameOf(suffix), []forward.Upstream{{Addr: s.addr}}
		cfg.Routes = append(cfg.Routes, r)
	}
	f := newForwarder(t, cfg)
	for name, want := range map[string]string{
		"www.example.": "192.0.2.1", "notcorp.example.": "192.0.2.1", "example.": "192.0.2.1",
		"corp.example.": "192.0.2.2", "www.corp.example.": "192.0.2.2",
		"deep.corp.example.": "192.0.2.3", "a.b.deep.corp.example.": "192.0.2.3",
	} {
		if got := ask(t, f, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestPolicies checks which upstream each policy queries first.
func TestPolicies(t *testing.T) {
	slow := serve(t, func(q asked) [][]byte {
		time.Sleep(5 * time.Millisecond)
		return works(q)
	})
	fast := serve(t, works)
	for policy, want := range map[forward.SelectionPolicy]func(slow, fast int) bool{
		forward.Sequential: func(slow, fast int) bool { return slow >= 100 && fast < 20 },
		forward.Fastest:    func(slow, fast int) bool { return slow < 40 && fast > 60 },
		forward.Random:     func(slow, fast int) bool { return slow > 25 && fast > 25 },
	} {
		t.Run(string(policy), func(t *testing.T) {
			f := newForwarder(t, settings(t, forward.Route{Policy: policy, Upstreams: []forward.Upstream{{Addr: slow.addr}, {Addr: fast.addr}}}))
			slowBefore, fastBefore := len(slow.queries()), len(fast.queries())
			for i := range 100 {
				ask(t, f, fmt.Sprintf("name%d.example.", i))
			}
			if s, f := len(slow.queries())-slowBefore, len(fast.queries())-fastBefore; !want(s, f) {
				t.Errorf("the slow one, first in order, was asked %d times, the fast one %d", s, f)
			}
		})
	}
}

// TestPublicNamesHaveNoPrivateAddresses checks that a public name cannot resolve to a private address.
func TestPublicNamesHaveNoPrivateAddresses(t *testing.T) {
	for addr, want := range map[string]bool{
		"10.0.0.1": true, "127.0.0.1": true, "169.254.1.1": true, "0.0.0.0": true, "100.64.0.1": true,
		"192.0.2.1": false, "::1": true, "fd00::1": true, "fe80::1": true, "::ffff:10.0.0.1": true, "2001:db8::1": false,
		"64:ff9b::10.0.0.1": true, "64:ff9b::192.0.2.1": false, "64:ff9b:1::10.0.0.1": true, "64:ff9b:1::192.0.2.1": true,
		"2002:a00:1::1": true, "2002:c000:201::1": false,
	} {
		s := serve(t, func(q asked) [][]byte { return one(q.reply(dnswire.NoError, 60, addr)) })
		f := newForwarder(t, settings(t, forward.Route{NoPrivate: true, Upstreams: []forward.Upstream{{Addr: s.addr}}}))
		if got := strings.Contains(ask(t, f, "www.example."), "private address"); got != want {
			t.Errorf("%s refused: %v, want %v", addr, got, want)
		}
	}
}

// TestLoop checks that an upstream that forwards back to this server is
// detected.
func TestLoop(t *testing.T) {
	var f *forward.Forwarder
	ready := make(chan struct{})
	s := serve(t, func(q asked) [][]byte {
		<-ready
		name := bytes.ToLower(q.question())
		question := questionOf("x.")
		question.Name = name[:len(name)-5]
		question.Type = dnswire.Type(binary.BigEndian.Uint16(name[len(name)-4:]))
		if e, _ := f.Cached(question, time.Now()); e == nil {
			f.Reserve(client, question).Resolve(t.Context())
		}
		return one(q.reply(dnswire.ServFail, 0))
	})
	f = to(t, s)
	close(ready)
	run(t, f)
	await(t, "the loop is seen", func() bool {
		return strings.Contains(ask(t, f, fmt.Sprintf("n%d.example.", time.Now().UnixNano())), "forwarding loop")
	})
}

// TestForgedProbe checks that names like those of probes do not block an upstream.
func TestForgedProbe(t *testing.T) {
	probes := make(chan string, 100)
	s := serve(t, func(q asked) [][]byte {
		if name := bytes.ToLower(q.question()); bytes.Contains(name, []byte("portolan-loop")) {
			probes <- string(name[:len(name)-5])
			return one(q.reply(dnswire.NXDomain, 0))
		}
		return works(q)
	})
	f := to(t, s)
	run(t, f)
	sent := <-probes
	await(t, "the probe is answered", func() bool { return ask(t, f, "www.example.") == "192.0.2.1" })
	const token = 1 + 32 // octets of the first label
	for _, name := range []string{"\x139223372036854775807" + sent, "\x20" + strings.Repeat("a", 32) + sent[token:]} {
		f.Reserve(client, cache.Key{Name: []byte(name), Type: dnswire.TypeTXT}).Resolve(t.Context())
		if got := ask(t, f, fmt.Sprintf("n%d.example.", len(name))); got != "192.0.2.1" {
			t.Fatalf("after %q: %q", name, got)
		}
	}
}

// TestSubnetsAreNotJoined checks that concurrent questions with different
// subnets are sent separately.
func TestSubnetsAreNotJoined(t *testing.T) {
	release := make(chan struct{})
	s := serve(t, func(q asked) [][]byte {
		<-release
		return works(q)
	})
	f := newForwarder(t, settings(t, forward.Route{ClientSubnet: true, Upstreams: []forward.Upstream{{Addr: s.addr}}}))
	var wg sync.WaitGroup
	for _, subnet := range []dnswire.Subnet{nil, {0, 1, 8, 0, 10}, {0, 1, 8, 0, 11}, {0, 1, 8, 0, 11}} {
		question := questionOf("www.example.")
		question.Subnet = subnet
		request := f.Reserve(client, question)
		wg.Go(func() {
			if got := said(request.Resolve(t.Context())); got != "192.0.2.1" {
				t.Errorf("answer %q", got)
			}
		})
	}
	options := func() map[string]bool {
		seen := make(map[string]bool)
		for _, q := range s.queries() {
			var parsed dnswire.Query
			if parsed.ParseHeader(q.packet) == nil && parsed.ParseBody(q.packet) == nil {
				seen[string(parsed.EDNS.Subnet)] = true
			}
		}
		return seen
	}
	await(t, "three subnets", func() bool { return len(options()) == 3 })
	close(release)
	wg.Wait()
}
