//go:build unix

package main

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// effectsOfForward are the effects of the keys of forwarding.
var effectsOfForward = map[string]func(*testing.T){
	"dns.forward.routes.upstreams": func(t *testing.T) {
		up := newUpstream(t, answersWith("192.0.2.1"))
		wantForwarded(t, "", "REFUSED")
		wantForwarded(t, routeTo(up), "192.0.2.1")
	},
	"dns.forward.routes.suffix": func(t *testing.T) {
		p := serve(t, routeTo(newUpstream(t, answersWith("192.0.2.1")), "suffix: corp.example"))
		wantAnswer(t, p, "www.corp.example.", "192.0.2.1")
		wantAnswer(t, p, "www.example.", "REFUSED")
	},
	"dns.forward.routes.resolvConf": effectOfResolvConf,
	"dns.forward.routes.policy": func(t *testing.T) {
		for policy, first := range map[string]bool{"sequential": true, "random": false} {
			one, two := newUpstream(t, answersWith("192.0.2.1")), newUpstream(t, answersWith("192.0.2.2"))
			p := serve(t, fmt.Sprintf("dns: {forward: {routes: [{upstreams: ['%s', '%s'], policy: %s}]}}", one.addr, two.addr, policy))
			for i := range 100 {
				queryForwarded(p, fmt.Sprintf("name%d.example.", i))
			}
			if asked := two.count("name"); (asked < 25) != first {
				t.Errorf("%s: the second upstream was asked %d of 100 times", policy, asked)
			}
		}
	},
	"dns.forward.routes.timeout": func(t *testing.T) {
		wantForwarded(t, routeTo(newUpstream(t, neverReplies), "timeout: 200ms"), "within 200ms")
	},
	"dns.forward.routes.ca": func(t *testing.T) {
		up, ca := newTLSUpstream(t, answersWith("192.0.2.1"))
		wantForwarded(t, fmt.Sprintf("dns: {forward: {routes: [{upstreams: ['tls://%s'], timeout: 1s}]}}", up.addr), "SERVFAIL")
		wantForwarded(t, fmt.Sprintf("dns: {forward: {routes: [{upstreams: ['tls://%s'], ca: '%s'}]}}", up.addr, ca), "192.0.2.1")
		wantForwarded(t, fmt.Sprintf("dns: {forward: {routes: [{upstreams: ['tls://%s#example.com'], ca: '%s'}]}}", up.addr, ca), "192.0.2.1")
		wantForwarded(t, fmt.Sprintf("dns: {forward: {routes: [{upstreams: ['tls://%s#other.example'], ca: '%s', timeout: 1s}]}}", up.addr, ca), "other.example")
	},
	"dns.forward.routes.trustDenials": func(t *testing.T) {
		for setting, asked := range map[string]bool{"trustDenials: false": true, "trustDenials: true": false} {
			up := newUpstream(t, deniesAll)
			p := serve(t, routeTo(up, setting))
			wantAnswer(t, p, "gone.example.", "NXDOMAIN")
			wantAnswer(t, p, "below.gone.example.", "NXDOMAIN")
			if got := up.count("below"); (got > 0) != asked {
				t.Errorf("%s: asked %d times for what is below, want any: %t", setting, got, asked)
			}
		}
	},
	"dns.forward.routes.noPrivate": func(t *testing.T) {
		up := newUpstream(t, answersWith("10.0.0.1"))
		wantForwarded(t, routeTo(up), "10.0.0.1")
		wantForwarded(t, routeTo(up, "noPrivate: true"), "private address")
	},
	"dns.forward.routes.clientSubnet": func(t *testing.T) {
		q := question("www.example.")
		q.Flags = dnswire.FlagRD
		q.Options = map[dnswire.OptionCode][]byte{dnswire.OptionSubnet: {0, 1, 24, 0, 198, 51, 100}}
		for setting, want := range map[string]string{"clientSubnet: false": "", "clientSubnet: true": "00011818c63364"} {
			p := serve(t, routeTo(newUpstream(t, answersWith("192.0.2.1")), setting))
			if got := p.ask("udp", q).Options[dnswire.OptionSubnet]; got != want {
				t.Errorf("%s: the answer's option is %q, want %q", setting, got, want)
			}
		}
	},
	"dns.forward.maxInFlight": func(t *testing.T) {
		wantPlaceLost(t, "maxInFlight: 1")
	},
	"dns.forward.maxInFlightPerClient": func(t *testing.T) {
		wantPlaceLost(t, "maxInFlightPerClient: 1")
	},
	"dns.cache.size": func(t *testing.T) {
		for setting, then := range map[string]string{"size: 1Mi": "192.0.2.1", "size: 0": "192.0.2.2"} {
			up := newUpstream(t, answersWith("192.0.2.1"))
			p := serve(t, routeTo(up)+"\ndns:\n  cache: {"+setting+"}")
			wantAnswer(t, p, "www.example.", "192.0.2.1")
			up.set(answersWith("192.0.2.2"))
			wantAnswer(t, p, "www.example.", then)
		}
	},
	"dns.cache.minTTL":         func(t *testing.T) { wantTTL(t, answersWith("192.0.2.1"), "minTTL: 100", 60, 100) },
	"dns.cache.maxTTL":         func(t *testing.T) { wantTTL(t, answersWith("192.0.2.1"), "maxTTL: 10, maxNegativeTTL: 5", 60, 10) },
	"dns.cache.maxNegativeTTL": func(t *testing.T) { wantTTL(t, deniesAll, "maxNegativeTTL: 7", 30, 7) },
	"dns.cache.stale": func(t *testing.T) {
		for setting, want := range map[string]string{"stale: 1h": "192.0.2.1", "stale: 0s": "SERVFAIL"} {
			p := serveWithStaleAnswer(t, "timeout: 300ms", setting)
			wantAnswer(t, p, "www.example.", want)
		}
	},
	"dns.cache.staleAfter": func(t *testing.T) {
		p := serveWithStaleAnswer(t, "timeout: 4s", "staleAfter: 100ms")
		began := time.Now()
		wantAnswer(t, p, "www.example.", "192.0.2.1")
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the stale answer came after %s", took)
		}
	},
}

func init() { maps.Copy(effects, effectsOfForward) }

// replier returns the records and the code of a response, or the code silent for no
// response.
type replier func(name string) (records []string, rcode int)

const silent = -1

func answersWith(addr string) replier {
	return func(name string) ([]string, int) { return []string{name + " 60 A " + addr}, dns.RcodeSuccess }
}

func deniesAll(string) ([]string, int) {
	return []string{"example. 30 SOA ns.example. host.example. 1 2 3 4 30"}, dns.RcodeNameError
}

func neverReplies(string) ([]string, int) { return nil, silent }

// upstreamServer is an upstream that counts queries.
type upstreamServer struct {
	addr string

	mu    sync.Mutex
	reply replier
	names []string
}

// count returns the number of queries for names with a prefix.
func (u *upstreamServer) count(begin string) (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, name := range u.names {
		if strings.HasPrefix(name, begin) {
			n++
		}
	}
	return n
}

func (u *upstreamServer) set(r replier) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.reply = r
}

func (u *upstreamServer) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	name := strings.ToLower(q.Question[0].Name)
	u.mu.Lock()
	u.names = append(u.names, name)
	reply := u.reply
	u.mu.Unlock()
	records, rcode := reply(name)
	if rcode == silent {
		return
	}
	m := new(dns.Msg)
	m.SetRcode(q, rcode)
	for _, text := range records {
		rr, err := dns.NewRR(text)
		if err != nil {
			panic(err)
		}
		if rr.Header().Rrtype == dns.TypeSOA {
			m.Ns = append(m.Ns, rr)
		} else {
			m.Answer = append(m.Answer, rr)
		}
	}
	m.SetEdns0(1232, false)
	for _, o := range q.IsEdns0().Option {
		if subnet, ok := o.(*dns.EDNS0_SUBNET); ok {
			subnet.SourceScope = subnet.SourceNetmask
			m.IsEdns0().Option = append(m.IsEdns0().Option, subnet)
		}
	}
	_ = w.WriteMsg(m)
}

// newUpstream starts an upstream over UDP on a free port.
func newUpstream(t *testing.T, reply replier) *upstreamServer {
	t.Helper()
	return newUpstreamAt(t, anyPort, reply)
}

func newUpstreamAt(t *testing.T, addr string, reply replier) *upstreamServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", addr)
	if err != nil {
		if errors.Is(err, syscall.EACCES) {
			t.Skip("port 53 needs root: ", err)
		}
		t.Fatal(err)
	}
	u := &upstreamServer{addr: conn.LocalAddr().String(), reply: reply}
	runServer(t, &dns.Server{PacketConn: conn, Handler: u})
	return u
}

// newTLSUpstream starts an upstream over TLS. Its certificate for 127.0.0.1 and
// example.com is in the file ca.
func newTLSUpstream(t *testing.T, reply replier) (u *upstreamServer, ca string) {
	t.Helper()
	web := httptest.NewTLSServer(nil)
	t.Cleanup(web.Close)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	write(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})))
	l, err := tls.Listen("tcp", anyPort, &tls.Config{Certificates: web.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	u = &upstreamServer{addr: l.Addr().String(), reply: reply}
	runServer(t, &dns.Server{Listener: l, Handler: u})
	return u, ca
}

func runServer(t *testing.T, s *dns.Server) {
	t.Helper()
	started := make(chan struct{})
	s.NotifyStartedFunc = func() { close(started) }
	go func() { _ = s.ActivateAndServe() }()
	<-started
	t.Cleanup(func() { _ = s.Shutdown() })
}

// routeTo returns a configuration with one route.
func routeTo(u *upstreamServer, settings ...string) string {
	return fmt.Sprintf("dns: {forward: {routes: [{upstreams: ['%s'], %s}]}}", u.addr, strings.Join(settings, ", "))
}

// queryForwarded queries a name outside the cluster's zones.
func queryForwarded(p *process, name string) *dnswire.Message {
	p.t.Helper()
	q := question(name)
	q.Flags = dnswire.FlagRD
	return p.ask("udp", q)
}

// wantAnswer checks that the response to an A query contains words.
func wantAnswer(t *testing.T, p *process, name, words string) {
	t.Helper()
	if m := queryForwarded(p, name); !strings.Contains(m.String(), words) {
		t.Errorf("%s:\n%swant %q", name, m, words)
	}
}

// wantForwarded starts a server with settings and checks the response to a forwarded
// query.
func wantForwarded(t *testing.T, settings, words string) {
	t.Helper()
	if settings == "" {
		settings = "# the defaults"
	}
	wantAnswer(t, serve(t, settings), "www.example.", words)
}

// wantTTL checks the TTL of the only record without and with a setting.
func wantTTL(t *testing.T, reply replier, setting string, without, with uint32) {
	t.Helper()
	for settings, want := range map[string]uint32{"{}": without, "{" + setting + "}": with} {
		m := queryForwarded(serve(t, routeTo(newUpstream(t, reply))+"\ndns:\n  cache: "+settings), "www.example.")
		all := append(m.Answer, m.Authority...)
		if len(all) != 1 || all[0].TTL > want || all[0].TTL+5 < want {
			t.Errorf("%s:\n%swant TTL %d", settings, m, want)
		}
	}
}

// wantPlaceLost checks that a query that waits for an upstream is answered when a second
// one needs its place.
func wantPlaceLost(t *testing.T, setting string) {
	t.Helper()
	up := newUpstream(t, neverReplies)
	p := serve(t, strings.TrimSuffix(routeTo(up), "}}")+", "+setting+"}}")
	waiting := p.dial("udp")
	q := question("first.example.")
	q.Flags = dnswire.FlagRD
	packet, err := dnswire.NewQuery(q)
	if err != nil {
		t.Fatal(err)
	}
	if err := waiting.send(packet); err != nil {
		t.Fatal(err)
	}
	p.poll(patience, func() error {
		if up.count("first") == 0 {
			return errors.New("the first query does not reach the upstream")
		}
		return nil
	})
	other := p.dial("udp")
	defer other.Close()
	if packet, err = dnswire.NewQuery(dnswire.QuerySpec{Name: "second.example.", Type: dnswire.TypeA, Flags: dnswire.FlagRD}); err != nil {
		t.Fatal(err)
	}
	if err := other.send(packet); err != nil {
		t.Fatal(err)
	}
	wire, err := waiting.receive()
	if err != nil {
		t.Fatal(err)
	}
	m, err := dnswire.ParseMessage(wire)
	if err != nil {
		t.Fatal(err)
	}
	if m.Status != "SERVFAIL" || !strings.Contains(m.String(), "too many queries") {
		t.Errorf("%s:\n%swant SERVFAIL and why", setting, m)
	}
}

// serveWithStaleAnswer starts a server with a stale answer in its cache and an upstream
// that no longer replies.
func serveWithStaleAnswer(t *testing.T, route, cache string) *process {
	t.Helper()
	up := newUpstream(t, func(name string) ([]string, int) { return []string{name + " 1 A 192.0.2.1"}, dns.RcodeSuccess })
	p := serve(t, routeTo(up, route)+"\ndns:\n  cache: {"+cache+"}")
	wantAnswer(t, p, "www.example.", "192.0.2.1")
	up.set(neverReplies)
	time.Sleep(1100 * time.Millisecond) // until its TTL expires
	return p
}

// effectOfResolvConf checks that the servers in the file are queried, and the new ones
// after it changes.
func effectOfResolvConf(t *testing.T) {
	newUpstreamAt(t, "127.0.0.77:53", answersWith("192.0.2.77"))
	newUpstreamAt(t, "127.0.0.78:53", answersWith("192.0.2.78"))
	file := filepath.Join(t.TempDir(), "resolv.conf")
	write(t, file, "nameserver 127.0.0.77\n")
	p := serve(t, "dns:\n  forward: {routes: [{resolvConf: '"+file+"'}]}\n  cache: {size: 0}")
	wantAnswer(t, p, "www.example.", "192.0.2.77")
	write(t, file, "nameserver 127.0.0.78\n")
	p.poll(patience, func() error {
		return wantData(queryForwarded(p, "www.example."), "192.0.2.78")
	})
}

// TestForwardingLoop checks that a forwarding loop is detected, logged and answered with
// SERVFAIL.
func TestForwardingLoop(t *testing.T) {
	t.Parallel()
	relay := newUpstream(t, neverReplies) // forwards back to the server below
	p := serve(t, routeTo(relay, "timeout: 1s"))
	back := new(dns.Client)
	relay.set(func(name string) ([]string, int) {
		q := new(dns.Msg)
		q.SetQuestion(name, dns.TypeTXT)
		if m, _, err := back.Exchange(q, p.addr); err == nil {
			return nil, m.Rcode
		}
		return nil, silent
	})
	p.poll(patience, func() error {
		if m := queryForwarded(p, fmt.Sprintf("n%d.example.", time.Now().UnixNano())); m.Status != "SERVFAIL" || !strings.Contains(m.String(), "forwarding loop") {
			return fmt.Errorf("answer:\n%swant a forwarding loop", m)
		}
		return nil
	})
	p.waitLog("forwarding loop")
	p.await(patience, web, "10.96.0.7")
}
