package netns

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/dns/resolvconf"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/stubresolver"
)

// setting is a resolv.conf, and what is looked up with it.
type setting struct {
	conf string
	host string // the hostname; "" is one without a domain
	// names are looked up by every resolver, those of some by only these. A name
	// may be followed by its type.
	names string
	some  map[dnsconfig.Libc]string
	// explained has `portolan explain` predict, for a Pod with that resolv.conf,
	// instead of package stubresolver, which explain calls.
	explained bool
}

const (
	search = "search shop.svc.cluster.local svc.cluster.local cluster.local\n"
	first  = "nameserver 127.0.0.1\n"
	second = "nameserver 127.0.0.2\n"
	// deaf receives queries and answers none; nothing listens at closed.
	deaf   = "nameserver 127.0.0.8\n"
	closed = "nameserver 127.0.0.9\n"
)

var settings = map[string]setting{
	"a Pod": {conf: search + first + "options ndots:5\n", names: `
		web
		dual
		six
		six AAAA
		six A
		web A
		web AAAA
		web.shop
		web.shop.svc
		web.shop.svc.cluster.local
		web.shop.svc.cluster.local.
		web.
		WEB.Shop
		web.data
		db.data
		db-0.db.data
		db-9.db.data
		10-0-1-1.db.data
		many.data
		many.data A
		n24.data
		n25.data
		n81.data A
		n82.data A
		extmany
		peers
		missing
		missing.shop
		missing.shop.svc.cluster.local
		missing.shop.svc.cluster.local.
		shop
		svc
		data.svc
		cluster.local
		ext
		gone
		half
		half A
		half AAAA
		literal
		www.example.test
		www.example.test.
		WWW.example.test A
		six.example.test
		six.example.test.
		four.example.test AAAA
		none.example.test
		none.example.test.
		nodata.example.test
		nodata.example.test.
		alias.example.test
		alias.example.test.
		dangling.example.test.
		a.b.c.d.example.test
		a.b.c.d.e.example.test
		10-0-2-1.shop.pod
		10-0-2-1.shop.pod.cluster.local
		10-0-2-9.shop.pod
		10.0.0.1
		10.0.0.1 AAAA
		::1
		127.1
		localhost
		kubernetes.default
		kubernetes.default.svc
		_http._tcp.web SRV
		_http._tcp.web.shop.svc SRV
		_http._tcp.web.shop.svc.cluster.local. SRV
		_none._tcp.web SRV
		db.data SRV
		web_1
		a..b
		-web
		web-
		we!b
		.
		` + long + ` A
		` + strings.Repeat("x", 64) + `
	`, explained: true},
	"no ndots": {conf: search + first, names: `
		web
		web.data
		web.shop.svc.cluster.local
		www.example.test
		missing
		missing.example.test
		missing.shop A
		nodata.example.test
		dangling.example.test
		_http._tcp.web SRV
	`},
	"ndots 2": {conf: search + first + "options ndots:2\n", names: `
		web
		web.data
		web.data.svc
		www.example.test
		example.test
		missing.data.svc
		db-0.db.data
	`},
	"ndots 0": {conf: search + first + "options ndots:0\n", names: `
		web
		web.data
		web.
	`},
	"no search": {conf: first + "options ndots:5\n", names: `
		web
		web.shop.svc.cluster.local
		www.example.test
		missing.example.test.
	`},
	"NODATA and then a hit": {conf: "search one.test two.test three.test\n" + first + "options ndots:5\n", explained: true, names: `
		nodata
		nodata A
		mixed
		mixed A
		mixed AAAA
		alias
		gone
		late
		late A
	`},
	"other namespaces": {conf: "search shop.svc.cluster.local data.svc.cluster.local example.test\n" + first + "options ndots:5\n", names: `
		web
		db
		six A
		www
		ext
		half
		nodata
	`},
	"one that fails": {conf: "search one.test two.test\n" + first + "options ndots:5 timeout:1\n", names: `
		broken A
		onlysix
		sixbroken
		late
	`, some: map[dnsconfig.Libc]string{
		// musl's retries are for A and AAAA together; which takes how many is
		// chance.
		dnsconfig.Glibc:      "broken \n broken AAAA \n broken.one.test. \n twobroken \n twobroken A \n _broken._tcp SRV",
		dnsconfig.GoResolver: "broken \n broken AAAA \n broken.one.test. \n twobroken \n twobroken A \n _broken._tcp SRV",
	}},
	"one that refuses": {conf: "search refused.example one.test\n" + first + "options ndots:5 timeout:1\n", names: `
		late A
	`},
	"two servers": {conf: search + first + second + "options ndots:5\n", names: `
		web
		web.data A
		missing
		www.example.test
		_http._tcp.web SRV
	`},
	// musl takes the first answer of any server.
	"the first server fails": {conf: search + first + second + "options timeout:1\n", some: map[dnsconfig.Libc]string{
		dnsconfig.Glibc: "broken.one.test A \n broken.one.test", dnsconfig.GoResolver: "broken.one.test A \n broken.one.test",
	}},
	"the first server is deaf": {conf: search + deaf + first + "options timeout:1 attempts:2\n", names: `
		web A
		missing.
	`},
	"nobody answers": {conf: "search one.test two.test\n" + deaf + "options timeout:1 attempts:1\n", names: "web A"},
	"nobody listens": {conf: search + closed + "options timeout:1 attempts:2\n", names: `
		web
		web.data
	`},
	"the first server is not there": {conf: search + closed + first + "options timeout:1 attempts:2\n", names: `
		web
		missing.
	`},
	"single-request": {conf: search + first + "options ndots:5 single-request\n", names: "web\n missing\n many.data"},
	"single-request fails": {conf: "search one.test\n" + first + "options single-request timeout:1 attempts:1\n", some: map[dnsconfig.Libc]string{
		dnsconfig.Glibc: "broken\n onlysix\n sixbroken", dnsconfig.GoResolver: "broken\n onlysix\n sixbroken",
	}},
	"use-vc":                                 {conf: search + first + "options ndots:5 use-vc\n", names: "web\n missing\n www.example.test"},
	"use-vc fails":                           {conf: "search one.test\n" + first + "options use-vc timeout:1\n", some: map[dnsconfig.Libc]string{dnsconfig.Glibc: "broken A", dnsconfig.GoResolver: "broken A"}},
	"edns0":                                  {conf: search + first + "options edns0\n", names: "many.data.svc\n web"},
	"no-aaaa":                                {conf: search + first + "options ndots:5 no-aaaa\n", names: "web\n six\n web AAAA\n missing"},
	"no-tld-query":                           {conf: search + first + "options no-tld-query\n", names: "missing"},
	"attempts 1":                             {conf: "search one.test\n" + first + "options timeout:1 attempts:1\n", names: "broken A"},
	"attempts 4":                             {conf: "search one.test\n" + first + "options timeout:1 attempts:4\n", names: "broken A"},
	"attempts 0":                             {conf: search + first + "options attempts:0\n", names: "web"},
	"timeout 0":                              {conf: search + first + "options timeout:0\n", names: "web"},
	"attempts none":                          {conf: search + first + "options attempts:x timeout:x\n", names: "web"},
	"rotate":                                 {conf: search + first + second + "options rotate\n", some: map[dnsconfig.Libc]string{dnsconfig.GoResolver: "missing A", dnsconfig.Musl: "missing A"}},
	"a hostname with a domain":               {conf: first, host: "db-0.data.svc.cluster.local", names: "db\n web A\n missing A"},
	"the root, and a hostname with a domain": {conf: "search .\n" + first, host: "db-0.data.svc.cluster.local", some: map[dnsconfig.Libc]string{dnsconfig.GoResolver: "db", dnsconfig.Glibc: "db"}},
	"the root":                               {conf: "search . shop.svc.cluster.local\n" + first + "options ndots:5 timeout:1\n", names: "web\n missing A"},
	"a domain that is none":                  {conf: "search a..b shop.svc.cluster.local\n" + first, names: "web\n missing A"},
	"a long domain": {conf: "search " + strings.Repeat(strings.Repeat("d", 50)+".", 4) + "test shop.svc.cluster.local\n" + first + "options ndots:5\n",
		names: "web\n " + strings.Repeat("w", 60) + " A"},
	"a long search line": {conf: "search " + strings.Repeat("shop.svc.cluster.local ", 11) + "\n" + first, names: "web"},
	"ndots that is none": {conf: search + first + "options ndots:x\n", names: "web A\n web.data A"},
}

// long is a name of the greatest length there is, 253 octets.
var long = strings.Repeat(strings.Repeat("l", 62)+".", 4) + "l"

// libcs are the resolvers, and how they are built.
var libcs = map[dnsconfig.Libc]string{
	dnsconfig.Glibc:      "glibc",
	dnsconfig.Musl:       "musl",
	dnsconfig.GoResolver: "go",
}

// minimum is how many names each resolver must have looked up as `portolan
// explain` predicted.
const minimum = 60

// TestResolvers looks the names up, each in a process of its own.
func TestResolvers(t *testing.T) {
	if os.Getenv(inside) == "" {
		enter(t)
		return
	}
	w := newWorld(t, os.Getenv(inside))
	for libc, program := range libcs {
		t.Run(program, func(t *testing.T) {
			if _, err := os.Stat(filepath.Join(w.dir, program)); err != nil {
				t.Skip("it was not built")
			}
			n, explained := 0, 0
			for claim, s := range settings {
				conf := parse(t, s.conf)
				write(t, "/etc/resolv.conf", s.conf)
				if err := unix.Sethostname([]byte(cmp.Or(s.host, "client"))); err != nil {
					t.Fatal(err)
				}
				for line := range strings.Lines(s.names + "\n" + s.some[libc]) {
					name, kind, _ := strings.Cut(strings.TrimSpace(line), " ")
					if name == "" {
						continue
					}
					n++
					if kind == "" {
						kind = "0"
					}
					t.Run(claim+"/"+name+"_"+kind, func(t *testing.T) {
						l := stubresolver.Lookup{Libc: libc, Conf: conf, Hostname: s.host, Name: name, Type: types[kind]}
						var f predicted
						if s.explained {
							explained++
							f = w.explain(t, l, kind, program)
						} else {
							f = w.predict(l)
						}
						w.compare(t, f, program, kind, name)
					})
				}
			}
			if explained < minimum {
				t.Errorf("%d names were explained, want at least %d", explained, minimum)
			}
			t.Logf("%d names, of which %d were explained", n, explained)
		})
	}
}

func parse(t *testing.T, text string) resolvconf.Config {
	t.Helper()
	conf, problems, err := resolvconf.Parse(strings.NewReader(text))
	if err != nil || len(problems) > 0 {
		t.Fatalf("%q: %v, %v", text, problems, err)
	}
	return conf
}

// sent is a query as a server receives it: protocol, name and type.
type sent string

// malformed is how Portolan logs a packet without a question that it can parse.
const malformed = "udp . TYPE0"

// predicted is the outcome and the queries that a lookup must have.
type predicted struct {
	// rounds are the queries with their servers. Those of one round arrive in any
	// order. If the resolver does not wait for all of them, the queries that follow
	// belong to the same round.
	rounds  []map[netip.Addr][]sent
	outcome string
}

// predict queries the servers as the resolver would.
func (w *world) predict(l stubresolver.Lookup) predicted {
	trace := stubresolver.Resolve(l, w.ask)
	return expect(&trace, trace.Outcome.String(), l.Libc)
}

// expect turns a trace into a prediction.
func expect(trace *stubresolver.Trace, outcome string, libc dnsconfig.Libc) predicted {
	f := predicted{outcome: outcome}
	loose := false
	for _, try := range trace.Candidates {
		for _, round := range try.Rounds {
			if !loose {
				f.rounds = append(f.rounds, make(map[netip.Addr][]sent))
			}
			last := f.rounds[len(f.rounds)-1]
			for _, q := range round {
				last[q.Server] = append(last[q.Server], asSeen(q))
			}
			loose = loose || libc != dnsconfig.GoResolver && goesOn(round)
		}
	}
	return f
}

// goesOn reports whether the C libraries go on before a round has all its answers:
// musl takes the first of several servers, and glibc goes over to TCP.
func goesOn(round []stubresolver.Exchange) bool {
	return slices.ContainsFunc(round, func(q stubresolver.Exchange) bool { return q.Server != round[0].Server || q.TCP != round[0].TCP })
}

func asSeen(q stubresolver.Exchange) sent {
	if q.Malformed() {
		return malformed
	}
	proto := "udp"
	if q.TCP {
		proto = "tcp"
	}
	return sent(fmt.Sprintf("%s %s %s", proto, strings.ToLower(q.Name), q.Type))
}

// compare runs the program and compares its outcome and queries with the prediction.
func (w *world) compare(t *testing.T, f predicted, program, kind, name string) {
	t.Helper()
	w.mark(t) // forgets the queries of the prediction
	out, err := exec.CommandContext(t.Context(), filepath.Join(w.dir, program), kind, name).CombinedOutput()
	got := strings.TrimSpace(string(out))
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled() {
		got = stubresolver.Crashed.String()
	} else if err != nil {
		got += " " + err.Error()
	}
	if got != f.outcome {
		t.Errorf("the program is told %q, predicted %q", got, f.outcome)
	}
	for addr, s := range w.servers {
		n := 0
		for _, round := range f.rounds {
			n += len(round[addr])
		}
		s.await(n)
	}
	seen := w.mark(t)
	for server := range w.servers {
		if problem := inOrder(seen[server], f.rounds, server); problem != "" {
			t.Errorf("%s saw\n\t%q\n%s; predicted are\n\t%v", server, seen[server], problem, f.rounds)
		}
	}
}

// inOrder describes where the queries that a server received differ from the rounds.
func inOrder(seen []sent, rounds []map[netip.Addr][]sent, server netip.Addr) string {
	for i, round := range rounds {
		want := slices.Sorted(slices.Values(round[server]))
		if len(seen) < len(want) {
			return fmt.Sprintf("round %d is not all there", i+1)
		}
		got := slices.Sorted(slices.Values(seen[:len(want)]))
		if !slices.Equal(got, want) {
			return fmt.Sprintf("in round %d are %q, want %q", i+1, got, want)
		}
		seen = seen[len(want):]
	}
	if len(seen) > 0 {
		return fmt.Sprintf("%q is too much", seen)
	}
	return ""
}
