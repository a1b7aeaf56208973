//go:build unix

package main

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dns/filter"
	dnssettings "portolan.dev/portolan/internal/dns/settings"
)

func init() {
	maps.Copy(effects, map[string]func(*testing.T){
		"dns.access.action": func(t *testing.T) {
			wantAnswer(t, serveUnchecked(t, "dns: {access: [{action: allow}]}"), web, "\t10.96.0.7\n")
			wantAnswer(t, serveUnchecked(t, "dns: {access: [{action: refuse}]}"), web, "REFUSED")
			if got := countResponses(t, serveUnchecked(t, "dns: {access: [{action: drop}]}"), 3, "127.0.0.1"); got.all != 0 {
				t.Errorf("drop: %+v", got)
			}
		},
		"dns.access.clients": func(t *testing.T) {
			wantAnswer(t, serveUnchecked(t, "dns: {access: [{action: refuse, clients: [127.0.0.2]}]}"), web, "\t10.96.0.7\n")
			wantAnswer(t, serveUnchecked(t, "dns: {access: [{action: refuse, clients: [127.0.0.0/30]}]}"), web, "REFUSED")
		},
		"dns.access.names": func(t *testing.T) {
			p := serveUnchecked(t, "dns: {access: [{action: refuse, names: [shop.svc.cluster.local]}]}")
			wantAnswer(t, p, web, "REFUSED")
			wantAnswer(t, p, "dns-version.cluster.local", "NOERROR")
		},
		"dns.rateLimit.perSecond": func(t *testing.T) {
			wantResponses(t, "perSecond: 0", 50, 50, 0)
			wantResponses(t, "perSecond: 1, burst: 5, slip: 0", 50, 5, 0)
		},
		"dns.rateLimit.burst": func(t *testing.T) { wantResponses(t, "perSecond: 1, burst: 20, slip: 0", 50, 20, 0) },
		"dns.rateLimit.slip":  func(t *testing.T) { wantResponses(t, "perSecond: 1, burst: 5, slip: 1", 50, 50, 45) },
		"dns.rateLimit.prefix4": func(t *testing.T) {
			for setting, want := range map[string]int{"prefix4: 32": 5, "prefix4: 24": 0} {
				p := serveUnchecked(t, "dns:\n  rateLimit: {perSecond: 1, burst: 20, slip: 0, "+setting+"}")
				countResponses(t, p, 50, "127.0.0.1")
				if got := countResponses(t, p, 5, "127.0.0.2"); got.all < want || want == 0 && got.all > 1 {
					t.Errorf("%s: %+v of another address, want %d", setting, got, want)
				}
			}
		},
		"dns.rateLimit.prefix6": func(t *testing.T) {
			for bits, want := range map[int]filter.LimitVerdict{64: filter.Send, 48: filter.SendNothing} {
				c := config.Default()
				c.DNS.RateLimit = dnssettings.RateLimit{PerSecond: 1, Burst: 1, Prefix6: bits}
				made, err := c.Compile()
				if err != nil {
					t.Fatal(err)
				}
				l := filter.NewRateLimiter(made.DNS.RateLimit)
				l.Count(netip.MustParseAddr("2001:db8:0:1::1"), time.Now())
				if got := l.Count(netip.MustParseAddr("2001:db8:0:2::1"), time.Now()); got != want {
					t.Errorf("prefix6: %d: %d, want %d", bits, got, want)
				}
			}
		},
		"dns.rewrite.from":  effectOfRewrite,
		"dns.rewrite.to":    effectOfRewrite,
		"dns.rewrite.exact": effectOfRewrite,
		"dns.block.names": func(t *testing.T) {
			wantChange(t, "dns: {block: {names: [shop.svc.cluster.local]}}", "\t10.96.0.7\n", "NXDOMAIN", web)
		},
		"dns.block.files": func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "blocked")
			write(t, file, "# bad names\n0.0.0.0 web.shop.svc.cluster.local\nother.example\n")
			wantChange(t, "dns:\n  block: {files: ["+file+"]}", "\t10.96.0.7\n", "NXDOMAIN", web)
			p := serveUnchecked(t, "dns:\n  block: {files: ["+file+"]}")
			wantAnswer(t, p, web, "error: 15 (the name is blocked here)")
			write(t, file, "other.example\n")
			p.await(patience, web, "10.96.0.7")
		},
		"dns.block.answer": func(t *testing.T) {
			wantPrinted(t, "dns: {block: {names: [ads.example], answer: zero}}", "\t0.0.0.0\n", "www.ads.example")
			wantPrinted(t, "dns: {block: {names: [ads.example], answer: zero}}", "\t::\n", "www.ads.example", "AAAA")
			wantPrinted(t, "dns: {block: {names: [ads.example], answer: zero}}", "status: NOERROR", "www.ads.example", "TXT")
		},
		"dns.block.ttl": func(t *testing.T) {
			wantPrinted(t, "dns: {block: {names: [ads.example], answer: zero, ttl: 7}}", "ads.example.\t7\tIN\tA", "ads.example")
		},
		"dns.hosts.lines": func(t *testing.T) {
			const setting = "dns: {hosts: {lines: ['192.0.2.9 nine.example also.example', '2001:db8::9 nine.example']}}"
			wantPrinted(t, setting, "nine.example.\t60\tIN\tA\t192.0.2.9\n", "nine.example")
			wantPrinted(t, setting, "\t2001:db8::9\n", "nine.example", "AAAA")
			wantPrinted(t, setting, "status: NOERROR", "nine.example", "TXT")
			wantPrinted(t, setting, "\tnine.example.\n9.2.0.192.in-addr.arpa.\t60\tIN\tPTR\talso.example.\n", "9.2.0.192.in-addr.arpa", "PTR")
			wantPrinted(t, setting, "REFUSED", "below.nine.example")
		},
		"dns.hosts.files": func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "hosts")
			write(t, file, "192.0.2.9 nine.example\nnonsense\n")
			p := serveUnchecked(t, "dns:\n  hosts: {files: ["+file+"]}")
			wantAnswer(t, p, "nine.example", "\t192.0.2.9\n")
			p.waitLog(`invalid line ignored.*hosts:2: .*nonsense`)
			write(t, file, "192.0.2.10 nine.example\n")
			p.await(patience, "nine.example", "192.0.2.10")
		},
		"dns.hosts.ttl": func(t *testing.T) {
			wantPrinted(t, "dns: {hosts: {lines: ['192.0.2.9 nine.example'], ttl: 7}}", "nine.example.\t7\tIN\tA", "nine.example")
		},
	})
}

// TestReloadWithMissingFilterFile checks that if a filter file is missing at a reload,
// its previous content stays in force.
func TestReloadWithMissingFilterFile(t *testing.T) {
	t.Parallel()
	blocked := filepath.Join(t.TempDir(), "blocked")
	write(t, blocked, "ads.shop.svc.cluster.local\n")
	file := settings(t, "dns:\n  ttl: 5\n  block: {files: ["+blocked+"]}")
	p := start(t, "--config", file)
	wantTTL := func(ttl uint32) {
		p.poll(patience, func() error {
			if m := p.ask("udp", question(web)); len(m.Answer) != 1 || m.Answer[0].TTL != ttl {
				return fmt.Errorf("answer:\n%swant TTL %d", m, ttl)
			}
			return nil
		})
	}
	wantTTL(5)
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	write(t, file, strings.Replace(contents(t, file), "ttl: 5", "ttl: 6", 1))
	wantTTL(6)
	wantAnswer(t, p, "ads.shop.svc.cluster.local", "error: 15 (the name is blocked here)")
}

// serveUnchecked is serve without waiting for an answer, which filters may refuse.
func serveUnchecked(t *testing.T, text string) *process {
	t.Helper()
	p := start(t, "--config", settings(t, text))
	p.waitLog("manifests loaded")
	p.poll(patience, func() error {
		if status, body := p.admin("/readyz"); status != 200 {
			return fmt.Errorf("not ready: %s", body)
		}
		return nil
	})
	return p
}

// effectOfRewrite checks that a rewritten name has the target's records under the queried
// name.
func effectOfRewrite(t *testing.T) {
	const suffix = "dns: {rewrite: [{from: old.example, to: shop.svc.cluster.local}]}"
	wantChange(t, suffix, "REFUSED", "\nweb.old.example.\t5\tIN\tA\t10.96.0.7\n", "web.old.example")
	const exact = "dns: {rewrite: [{from: web.old.example, to: web.shop.svc.cluster.local, exact: true}]}"
	wantPrinted(t, exact, "\nweb.old.example.\t5\tIN\tA\t10.96.0.7\n", "web.old.example")
	wantPrinted(t, exact, "REFUSED", "_http._tcp.web.old.example", "SRV")
	p := serve(t, routeTo(newUpstream(t, answersWith("192.0.2.1")))+"\ndns:\n  rewrite: [{from: old.example, to: new.example}]")
	wantAnswer(t, p, "www.old.example.", "\nwww.old.example.\t60\tIN\tA\t192.0.2.1\n")
	wantAnswer(t, p, "www.old.example.", "\nwww.old.example.\t60\tIN\tA\t192.0.2.1\n")
}

// responses is the number of responses, and of the truncated ones among them.
type responses struct{ all, cut int }

// countResponses sends n queries from an address at once and counts the responses until
// none arrives for a moment.
func countResponses(t *testing.T, p *process, n int, from string) (got responses) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(from)}}
	conn, err := d.Dial("udp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(web), dns.TypeA)
	packet, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if _, err := conn.Write(packet); err != nil {
			t.Fatal(err)
		}
	}
	buf := make([]byte, 4096)
	for {
		_ = conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if _, err := conn.Read(buf); err != nil {
			return got
		}
		got.all++
		if buf[2]&2 != 0 {
			got.cut++
		}
	}
}

// wantResponses checks the approximate number of responses to n queries, and of the
// truncated ones.
func wantResponses(t *testing.T, setting string, n, all, cut int) {
	t.Helper()
	p := serveUnchecked(t, "dns:\n  rateLimit: {"+setting+"}")
	got := countResponses(t, p, n, "127.0.0.1")
	if near := 2; got.all < all-near || got.all > all+near || got.cut < cut-near || got.cut > cut+near {
		t.Errorf("%s: of %d queries %+v were answered, want %d, %d of them cut", setting, n, got, all, cut)
	}
	// TCP is not limited.
	if err := wantData(p.ask("tcp", question(web)), "10.96.0.7"); err != nil {
		t.Error(err)
	}
}
