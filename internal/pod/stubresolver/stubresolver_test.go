package stubresolver

import (
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/resolvconf"
	"portolan.dev/portolan/internal/pod/dnsconfig"
)

// world holds the servers' answers by name. A value has words: types with records, or
// one of nodata, alias, servfail, refused, formerr, timeout and closed, for all types
// or as TYPE=word. TYPE*N are N records. Over UDP, tc can be combined with a type.
// 2/NAME is an answer of the second server only. All other names are NXDOMAIN.
type world map[string]string

func (w world) ask(servers []netip.Addr) ServerFunc {
	return func(server netip.Addr, q Query) Response {
		for i, addr := range servers {
			if text, ok := w[fmt.Sprintf("%d/%s", i+1, q.Name)]; ok && addr == server {
				return w.reply(text, q)
			}
		}
		text, ok := w[q.Name]
		if !ok {
			return Response{RCode: dnswire.NXDomain}
		}
		return w.reply(text, q)
	}
}

func (world) reply(text string, q Query) Response {
	var reply Response
	for word := range strings.FieldsSeq(text) {
		if qtype, rest, ok := strings.Cut(word, "="); ok {
			if qtype != q.Type.String() {
				continue
			}
			word = rest
		}
		switch word {
		case "nodata":
		case "alias":
			reply.Alias = "elsewhere.k."
		case "nxdomain":
			reply.RCode = dnswire.NXDomain
		case "servfail":
			reply.RCode = dnswire.ServFail
		case "refused":
			reply.RCode = dnswire.Refused
		case "formerr":
			reply.RCode = dnswire.FormErr
		case "timeout":
			reply.Loss = Timeout
		case "closed":
			reply.Loss = Unreachable
		case "tc":
			reply.Truncated = !q.TCP
		default:
			n := 1
			if kind, times, ok := strings.Cut(word, "*"); ok {
				word = kind
				n, _ = strconv.Atoi(times)
			}
			if word == q.Type.String() {
				reply.Records = n
			}
		}
	}
	return reply
}

// conf parses a resolv.conf whose lines are separated by semicolons.
func conf(tb testing.TB, text string) resolvconf.Config {
	tb.Helper()
	c, problems, err := resolvconf.Parse(strings.NewReader(strings.ReplaceAll(text, ";", "\n")))
	if err != nil || len(problems) > 0 {
		tb.Fatalf("Parse(%q): %v, %v", text, problems, err)
	}
	return c
}

// pod is the resolv.conf of a Pod in namespace shop.
const pod = "search shop.svc.k svc.k k;nameserver 10.0.0.1;options ndots:5"

// two is pod with two servers.
const two = pod + ";nameserver 10.0.0.2"

// dump returns a Trace as one line: each candidate with its rounds in brackets. Servers
// are numbered from 1, and t marks TCP.
func dump(tr Trace, servers []netip.Addr) string {
	var b strings.Builder
	for _, t := range tr.Candidates {
		b.WriteString(t.Name)
		for _, round := range t.Rounds {
			b.WriteString(" [")
			for i, q := range round {
				if i > 0 {
					b.WriteByte(' ')
				}
				for n, addr := range servers {
					if addr == q.Server {
						fmt.Fprint(&b, n+1)
					}
				}
				if q.TCP {
					b.WriteByte('t')
				}
				b.WriteString(q.Type.String())
			}
			b.WriteByte(']')
		}
		if t.Skipped != "" {
			b.WriteString(" (" + t.Skipped + ")")
		}
		b.WriteString(" " + t.Outcome.String() + "; ")
	}
	return b.String() + "= " + tr.Outcome.String()
}

// lookup is one row of a resolver's table.
type lookup struct {
	conf  string
	name  string
	qtype string // "" is A and AAAA
	world world
	want  string // dump
	host  string // the Pod's hostname
}

// types maps mnemonics to types.
var types = map[string]dnswire.Type{
	"": 0, "A": dnswire.TypeA, "AAAA": dnswire.TypeAAAA, "SRV": dnswire.TypeSRV, "TXT": dnswire.TypeTXT,
}

func testTable(t *testing.T, libc dnsconfig.Libc, table map[string]lookup) {
	t.Helper()
	for claim, row := range table {
		t.Run(claim, func(t *testing.T) {
			c := conf(t, row.conf)
			servers := c.Nameservers
			if len(servers) == 0 {
				servers = []netip.Addr{loopback, netip.IPv6Loopback()}
			}
			l := Lookup{Libc: libc, Conf: c, Hostname: row.host, Name: row.name, Type: types[row.qtype]}
			got := Resolve(l, row.world.ask(servers))
			if text := dump(got, servers); text != row.want {
				t.Errorf("%s of %q %s with %q:\ngot  %s\nwant %s\nfor %s", row.name, row.conf, row.qtype, row.world, text, row.want, got.Why)
			}
			if got.Why == "" {
				t.Errorf("%q: no reason is given", row.name)
			}
		})
	}
}

// TestUnknown checks that the lookup of an unknown resolver sends no query.
func TestUnknown(t *testing.T) {
	got := Resolve(Lookup{Conf: conf(t, pod), Name: "web"}, world{}.ask(nil))
	if len(got.Candidates) > 0 || got.Outcome != Untried || got.Why == "" {
		t.Errorf("Resolve of LibcUnknown = %+v", got)
	}
}

// TestPackets checks the number of packets, and the cause and search domain of each
// candidate.
func TestPackets(t *testing.T) {
	got := Resolve(Lookup{Libc: dnsconfig.Glibc, Conf: conf(t, pod), Name: "www.example.com"}, world{"www.example.com.": "A AAAA"}.ask(nil))
	if got.Packets() != 8 || len(got.Candidates) != 4 {
		t.Fatalf("Packets() = %d in %d tries, want 8 in 4", got.Packets(), len(got.Candidates))
	}
	for i, want := range []struct {
		cause  Cause
		domain int
	}{{Searched, 0}, {Searched, 1}, {Searched, 2}, {Last, -1}} {
		if try := got.Candidates[i]; try.Cause != want.cause || try.Domain != want.domain {
			t.Errorf("try %d: %v, domain %d, want %v, %d", i, try.Cause, try.Domain, want.cause, want.domain)
		}
	}
	if q := got.Candidates[3].Rounds[0][1]; q.Name != "www.example.com." || q.Attempt != 1 || q.Size != 512 || q.Response.Records != 1 {
		t.Errorf("the last query is %+v", q)
	}
}

// TestWords checks that each outcome and cause has a different text.
func TestWords(t *testing.T) {
	seen := make(map[string]bool)
	for o := Untried; o <= Crashed; o++ {
		seen[o.String()] = true
	}
	for c := Searched; c <= AsGiven; c++ {
		seen[c.String()] = true
	}
	if len(seen) != int(Crashed)+1+int(AsGiven)+1 {
		t.Errorf("words are used twice: %v", seen)
	}
}

// TestAton follows inet_aton(3).
func TestAton(t *testing.T) {
	for text, want := range map[string]bool{
		"10.0.0.1": true, "127.1": true, "1": true, "0x7f.1": true, "017700000001": true, "4294967295": true, "1.2.65535": true,
		"": false, "1.": false, ".1": false, "256.1.1.1": false, "1.2.3.256": false, "1.2.3.4.5": false, "4294967296": false,
		"0b1": false, "1_0": false, "08": false, "0x": false, "a": false, "-1": false, "+1": false, "1.2.65536": false,
	} {
		if got := isAton(text); got != want {
			t.Errorf("isAton(%q) = %t", text, got)
		}
	}
}

// FuzzResolve checks that every lookup ends, sends no more queries than its candidates,
// servers and attempts allow, and is deterministic.
func FuzzResolve(f *testing.F) {
	for _, seed := range []struct {
		conf, host, name string
		libc             uint8
		qtype            uint16
		answers          uint64
	}{
		{pod, "web-0", "web", 1, 0, 0x1234567890},
		{two + ";options rotate attempts:5 use-vc", "", "a.b.c.d.e.f", 1, 1, 0xffff},
		{"search . a..b;nameserver ::1", "h.d", "web.", 2, 28, 7},
		{"options attempts:0 ndots:x single-request-reopen", "a.b.c", "10.0.0.1", 3, 33, 99},
		{"options attempts:999999;search " + strings.Repeat("x", 250), "", "_http._tcp.web", 3, 33, 0},
		{pod, "", "web", 4, 0, 3},
	} {
		f.Add(seed.conf, seed.host, seed.name, seed.libc, seed.qtype, seed.answers)
	}
	f.Fuzz(func(t *testing.T, text, host, name string, libc uint8, qtype uint16, answers uint64) {
		c, _, err := resolvconf.Parse(strings.NewReader(strings.ReplaceAll(text, ";", "\n")))
		if err != nil {
			t.Fatal(err)
		}
		l := Lookup{Libc: dnsconfig.Libc(libc % 5), Conf: c, Hostname: host, Name: name, Type: dnswire.Type(qtype)}
		got := Resolve(l, chance(answers))
		if again := Resolve(l, chance(answers)); !reflect.DeepEqual(got, again) {
			t.Errorf("%+v is\n%+v and\n%+v", l, got, again)
		}
		candidates := 3 * (len(c.Searches) + 3) // glibc may repeat the lookup
		if packets := got.Packets(); len(got.Candidates) > candidates || packets > candidates*maxNameservers*goMaxAttempts*4 {
			t.Errorf("%+v: %d tries, %d packets", l, len(got.Candidates), packets)
		}
		if (got.Outcome == Untried) != (l.Libc == dnsconfig.LibcUnknown) || got.Why == "" {
			t.Errorf("%+v ends with %v, for %q", l, got.Outcome, got.Why)
		}
		checkTries(t, got)
	})
}

// chance returns a ServerFunc whose answers depend on the seed and the query only.
func chance(seed uint64) ServerFunc {
	return func(server netip.Addr, q Query) Response {
		n := seed
		for _, c := range fmt.Sprint(server, q) {
			n = (n ^ uint64(c)) * 1099511628211
		}
		n >>= 7
		return Response{
			Loss:      []Loss{None, None, None, Timeout, Unreachable}[n%5],
			RCode:     []dnswire.RCode{0, dnswire.NXDomain, dnswire.ServFail, dnswire.Refused, dnswire.FormErr}[n/5%5],
			Records:   []int{0, 1, 0, 30}[n/25%4],
			Alias:     []string{"", "a.b."}[n/75%2],
			Truncated: n/100%4 == 0,
		}
	}
}

// checkTries checks that only valid names are queried and that only the last candidate
// is found.
func checkTries(t *testing.T, tr Trace) {
	t.Helper()
	for i, try := range tr.Candidates {
		if try.Outcome == Found && (i < len(tr.Candidates)-1 && try.Why == "" || i == len(tr.Candidates)-1 && tr.Outcome != Found) {
			t.Errorf("%s was found, and it goes on: %+v", try.Name, tr)
		}
		if try.Skipped != "" && len(try.Rounds) > 0 {
			t.Errorf("%s is passed over (%s) and asked for: %+v", try.Name, try.Skipped, try.Rounds)
		}
		for _, round := range try.Rounds {
			if len(round) == 0 {
				t.Errorf("%s has a round without queries", try.Name)
			}
			for _, q := range round {
				if fault(q.Name) != "" && !q.Malformed() || q.Malformed() && q.Response.Loss != Timeout || q.Name != try.Name || !strings.HasSuffix(q.Name, ".") {
					t.Errorf("%q is asked for instead of %q", q.Name, try.Name)
				}
			}
		}
	}
}
