package upstreams

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/zone"
	"portolan.dev/portolan/internal/support/budget"
	"portolan.dev/portolan/internal/support/testcert"
	"portolan.dev/portolan/test/e2e/debian"
	"portolan.dev/portolan/test/e2e/process"
	"portolan.dev/portolan/test/freeport"
)

// patience is how long a server may take to start.
const patience = 20 * time.Second

// zoneText is what the servers have. The TXT records do not fit a packet.
var zoneText = `$ORIGIN upstream.example.
$TTL 300
@ SOA ns hostmaster 1 7200 1800 86400 60
@ NS ns
ns A 192.0.2.53
@ MX 10 mail
www A 192.0.2.1
www A 192.0.2.2
www AAAA 2001:db8::1
alias CNAME www
_sip._udp SRV 1 2 5060 www
naptr NAPTR 1 2 "u" "sip+E2U" "!^.*$!sip:info@upstream.example!" .
` + largeRRset()

// largeRRset is records that only a connection can carry.
func largeRRset() string {
	var b strings.Builder
	for i := range 40 {
		fmt.Fprintf(&b, "large TXT \"%02d %s\"\n", i, strings.Repeat("x", 100))
	}
	return b.String()
}

// daemon is a server: the Debian package, its program, and its configuration, in
// which DIR stands for the directory, PORT for the port and TLS for that for TLS.
type daemon struct {
	pkg, program string
	args         []string // the file of the configuration is the last one
	config       string
	tls          bool
}

var daemons = map[string]daemon{
	"knot": {pkg: "knot", program: "knotd", args: []string{"--config"}, config: `server:
    rundir: "DIR"
    listen: 127.0.0.1@PORT
log:
  - target: stderr
    any: warning
database:
    storage: "DIR"
zone:
  - domain: upstream.example
    file: "DIR/zone"
    zonefile-sync: -1
    journal-content: none
`},
	"nsd": {pkg: "nsd", program: "nsd", args: []string{"-d", "-c"}, tls: true, config: `server:
    server-count: 1
    ip-address: 127.0.0.1@PORT
    ip-address: 127.0.0.1@TLS
    tls-port: TLS
    tls-service-key: "DIR/tls.key"
    tls-service-pem: "DIR/tls.crt"
    do-ip6: no
    username: ""
    zonesdir: "DIR"
    zonelistfile: "DIR/zones"
    xfrdfile: ""
    xfrdir: "DIR"
    pidfile: ""
    database: ""
remote-control:
    control-enable: no
zone:
    name: upstream.example
    zonefile: "DIR/zone"
`},
	"unbound": {pkg: "unbound", program: "unbound", args: []string{"-d", "-c"}, tls: true, config: `server:
    directory: "DIR"
    chroot: ""
    username: ""
    pidfile: ""
    use-syslog: no
    do-daemonize: no
    module-config: iterator
    interface: 127.0.0.1@PORT
    interface: 127.0.0.1@TLS
    tls-port: TLS
    tls-service-key: "DIR/tls.key"
    tls-service-pem: "DIR/tls.crt"
    do-ip6: no
auth-zone:
    name: upstream.example
    zonefile: "DIR/zone"
    for-upstream: no
    for-downstream: yes
    fallback-enabled: no
remote-control:
    control-enable: no
`},
}

// server is one that runs.
type server struct {
	plain, tls netip.AddrPort
	roots      *x509.CertPool
}

// start starts a server, and waits until it answers.
func (d daemon) start(t *testing.T) *server {
	t.Helper()
	path, libraries, err := debian.Program(t.Context(), slog.New(slog.DiscardHandler), d.pkg, d.program)
	if err != nil {
		if _, missing := exec.LookPath("apt-get"); missing != nil && os.Getenv("CI") == "" {
			t.Skip("the package is not here, and can't be fetched: ", err)
		}
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := &server{plain: freeport.Loopback(t), tls: freeport.Loopback(t)}
	s.roots = certify(t, dir)
	write(t, filepath.Join(dir, "zone"), zoneText)
	config := filepath.Join(dir, "config")
	place := strings.NewReplacer("DIR", dir, "PORT", strconv.Itoa(int(s.plain.Port())), "TLS", strconv.Itoa(int(s.tls.Port())))
	write(t, config, place.Replace(d.config))
	p := &process.Process{
		Path: "/usr/bin/env", Args: append([]string{"LD_LIBRARY_PATH=" + libraries, path}, append(d.args, config)...),
		Log: filepath.Join(dir, "log"),
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Stop(time.Second)
		if t.Failed() {
			log, _ := os.ReadFile(p.Log)
			t.Logf("%s said:\n%s", d.program, log)
		}
	})
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if m := ask(t, forward.Upstream{Addr: s.plain}, "www.upstream.example.", dnswire.TypeA); m.Status == "NOERROR" && len(m.Answer) == 2 {
			return s
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not answer within %s", d.program, patience)
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// certify puts a certificate for 127.0.0.1 and its key into dir.
func certify(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	c, err := testcert.New("upstream.example", time.Now().Add(time.Hour))
	if err == nil {
		_, _, err = c.Write(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c.Roots
}

// ask asks through a server that knows nothing itself, over TCP.
func ask(t *testing.T, to forward.Upstream, name string, qtype dnswire.Type) *dnswire.Message {
	t.Helper()
	kept, err := cache.New(cache.Config{Size: 1 << 20, MaxTTL: 86400, MaxNegativeTTL: 3600})
	if err != nil {
		t.Fatal(err)
	}
	f, err := forward.New(forward.Config{
		Routes: []forward.Route{{Upstreams: []forward.Upstream{to}, Policy: forward.Sequential, Timeout: 2 * time.Second}},
		Cache:  kept, Limits: budget.Limits{Total: 10, PerSource: 10},
	})
	if err != nil {
		t.Fatal(err)
	}
	db, err := zone.New(dnswire.SOA{Zone: dnsname.MustParse("cluster.local")})
	if err != nil {
		t.Fatal(err)
	}
	r, err := respond.New(respond.Config{Data: db, Upstreams: f})
	if err != nil {
		t.Fatal(err)
	}
	packet, err := dnswire.NewQuery(dnswire.QuerySpec{Name: name, Type: qtype, UDPSize: 1232, Flags: dnswire.FlagRD})
	if err != nil {
		t.Fatal(err)
	}
	answer, later := r.NewWorker(0).Respond(packet, respond.Client{Addr: netip.MustParseAddr("192.0.2.9"), Transport: respond.TCP}, make([]byte, 0, dnswire.MaxMessage))
	if later != nil {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		answer = later.Answer(ctx)
	}
	m, err := dnswire.ParseMessage(answer)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestUpstreams: what these servers answer is what comes out, whatever way they
// are asked.
func TestUpstreams(t *testing.T) {
	for name, d := range daemons {
		t.Run(name, func(t *testing.T) {
			s := d.start(t)
			ways := map[string]forward.Upstream{"udp": {Addr: s.plain}, "tcp": {Addr: s.plain, Transport: forward.TCP}}
			if d.tls {
				ways["tls"] = forward.Upstream{Addr: s.tls, Transport: forward.TLS, Roots: s.roots}
			}
			for way, to := range ways {
				t.Run(way, func(t *testing.T) { checkAll(t, to) })
			}
		})
	}
}

func checkAll(t *testing.T, to forward.Upstream) {
	t.Helper()
	for question, want := range map[string][]string{
		"www.upstream.example. A":         {"NOERROR", "www.upstream.example. A 192.0.2.1", "www.upstream.example. A 192.0.2.2"},
		"WWW.Upstream.Example. AAAA":      {"NOERROR", "www.upstream.example. AAAA 2001:db8::1"},
		"alias.upstream.example. A":       {"NOERROR", "alias.upstream.example. CNAME www.upstream.example.", "www.upstream.example. A 192.0.2.1", "www.upstream.example. A 192.0.2.2"},
		"upstream.example. MX":            {"NOERROR", "upstream.example. MX 10 mail.upstream.example."},
		"_sip._udp.upstream.example. SRV": {"NOERROR", "_sip._udp.upstream.example. SRV 1 2 5060 www.upstream.example."},
		"naptr.upstream.example. NAPTR":   {"NOERROR", `naptr.upstream.example. NAPTR 1 2 "u" "sip+E2U" "!^.*$!sip:info@upstream.example!" .`},
		"www.upstream.example. TXT":       {"NOERROR"},
		"gone.upstream.example. A":        {"NXDOMAIN"},
	} {
		name, typ, _ := strings.Cut(question, " ")
		qtype, err := dnswire.ParseType(typ)
		if err != nil {
			t.Fatal(err)
		}
		m := ask(t, to, name, qtype)
		got := []string{}
		for _, r := range m.Answer {
			got = append(got, fmt.Sprintf("%s %s %s", strings.ToLower(r.Name), r.Type, r.Data))
		}
		slices.Sort(got)
		if got = append([]string{m.Status}, got...); !slices.Equal(got, want) {
			t.Errorf("%s:\n%q, want\n%q", question, got, want)
		}
		if denied := len(m.Answer) == 0; denied && (len(m.Authority) != 1 || m.Authority[0].Type != "SOA" || m.Authority[0].TTL != 60) {
			t.Errorf("%s: authority %v, want an SOA with TTL 60", question, m.Authority)
		}
	}
	if m := ask(t, to, "large.upstream.example.", dnswire.TypeTXT); m.Status != "NOERROR" || len(m.Answer) != 40 {
		t.Errorf("large.upstream.example. TXT: %s with %d records, want 40", m.Status, len(m.Answer))
	}
}
