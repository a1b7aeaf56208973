//go:build unix

package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"portolan.dev/portolan/test/freeport"
)

// vendor is another name server software, run as a secondary.
type vendor struct {
	binary, pkg string
	// config is the configuration with the placeholders OWN and PRIMARY for ports, SECRET
	// and DIR.
	config string
	args   []string // CONFIG is the path of the configuration
}

var vendors = map[string]vendor{
	"knot": {"knotd", "knot", `
server:
    rundir: "DIR"
    listen: "127.0.0.1@OWN"
database:
    storage: "DIR"
log:
  - target: stderr
    any: info
key:
  - id: secondary
    algorithm: hmac-sha256
    secret: "SECRET"
remote:
  - id: primary
    address: "127.0.0.1@PRIMARY"
    key: secondary
acl:
  - id: notify
    address: 127.0.0.1
    key: secondary
    action: notify
  - id: look
    address: 127.0.0.1
    action: transfer
zone:
  - domain: cluster.local
    storage: "DIR"
    master: primary
    acl: [notify, look]
`, []string{"-c", "CONFIG"}},
	"bind": {"named", "bind9", `
options {
	directory "DIR"; pid-file none; session-keyfile none; recursion no; dnssec-validation no; notify no;
	listen-on port OWN { 127.0.0.1; }; listen-on-v6 { none; }; allow-transfer { any; }; managed-keys-directory "DIR";
};
controls { };
key "secondary" { algorithm hmac-sha256; secret "SECRET"; };
zone "cluster.local" { type secondary; primaries { 127.0.0.1 port PRIMARY key secondary; }; allow-notify { 127.0.0.1; }; file "zone"; };
`, []string{"-g", "-n", "1", "-c", "CONFIG"}},
	"nsd": {"nsd", "nsd", `
server:
	ip-address: 127.0.0.1@OWN
	username: ""
	chroot: ""
	database: ""
	zonesdir: "DIR"
	pidfile: "DIR/pid"
	xfrdfile: "DIR/xfrd"
	xfrdir: "DIR"
	zonelistfile: "DIR/list"
	cookie-secret-file: ""
	verbosity: 2
remote-control:
	control-enable: no
key:
	name: secondary
	algorithm: hmac-sha256
	secret: "SECRET"
zone:
	name: cluster.local
	zonefile: zone
	request-xfr: 127.0.0.1@PRIMARY secondary
	allow-notify: 127.0.0.1 secondary
	provide-xfr: 127.0.0.1 NOKEY
`, []string{"-d", "-c", "CONFIG"}},
}

// require skips a test if a program is missing, or fails it where all tests must run.
func require(t *testing.T, binary, pkg string) (path string) {
	t.Helper()
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin") {
		path = filepath.Join(dir, binary)
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return path
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is missing (Debian: apt-get install %s)", binary, pkg)
	}
	t.Skipf("%s is missing (Debian: apt-get install %s)", binary, pkg)
	return ""
}

// run runs the server at an address of 127.0.0.1 until the test ends.
func (v vendor) run(t *testing.T, own netip.AddrPort, primary, secret string) {
	t.Helper()
	path, dir := require(t, v.binary, v.pkg), t.TempDir()
	_, primaryPort, err := net.SplitHostPort(primary)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "config")
	write(t, file, strings.NewReplacer("DIR", dir, "OWN", strconv.Itoa(int(own.Port())), "PRIMARY", primaryPort,
		"SECRET", base64.StdEncoding.EncodeToString([]byte(secret))).Replace(v.config))
	cmd := exec.Command(path, v.args...)
	for i, a := range cmd.Args {
		cmd.Args[i] = strings.ReplaceAll(a, "CONFIG", file)
	}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s says:\n%s", v.binary, log.String())
		}
	})
}

// primaryFor starts a primary that sends NOTIFY to a secondary. at is its address.
func primaryFor(t *testing.T, dir, at string, secondary netip.AddrPort, more string) *process {
	t.Helper()
	file := filepath.Join(t.TempDir(), "portolan.yaml")
	write(t, file, fmt.Sprintf("manifests: %s\nadmin: {listen: '%s'}\ndns:\n  listen: ['%s']\n  transfer: {keys: [{name: secondary, algorithm: hmac-sha256, secretFile: '%s'}], allow: [{key: secondary}], notify: ['%s']%s}",
		dir, anyPort, at, secretFile(t, transferSecret), secondary, more))
	p := start(t, "--config", file)
	p.await(patience, web, "10.96.0.7")
	return p
}

// soaAt queries a server for the zone's SOA record.
func soaAt(addr string) (*dns.SOA, error) {
	m, _, err := (&dns.Client{Timeout: time.Second}).Exchange(new(dns.Msg).SetQuestion("cluster.local.", dns.TypeSOA), addr)
	if err != nil {
		return nil, err
	}
	if len(m.Answer) != 1 {
		return nil, fmt.Errorf("%s", m)
	}
	return m.Answer[0].(*dns.SOA), nil
}

// awaitSame waits until the secondary has the primary's serial and name server.
func awaitSame(p *process, secondary string) {
	p.t.Helper()
	p.poll(3*patience, func() error {
		want, err := soaAt(p.addr)
		if err != nil {
			return err
		}
		got, err := soaAt(secondary)
		if err != nil || got.Serial != want.Serial || got.Ns != want.Ns {
			return fmt.Errorf("the secondary has %v (error %v), want %v", got, err, want) //nolint:errorlint // the error may be nil
		}
		return nil
	})
}

// wantZone checks that a secondary has the records that `portolan zone` prints.
func wantZone(t *testing.T, secondary, manifests string) {
	t.Helper()
	printed, err := exec.Command("portolan", "zone", "--manifests", manifests, "--config", settings(t, "manifests: "+manifests)).Output()
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	parser := dns.NewZoneParser(bytes.NewReader(printed), ".", "")
	for rr, ok := parser.Next(); ok; rr, ok = parser.Next() {
		if rr.Header().Rrtype != dns.TypeSOA && dns.IsSubDomain("cluster.local.", rr.Header().Name) {
			want = append(want, rr.String())
		}
	}
	if err := parser.Err(); err != nil {
		t.Fatal(err)
	}
	records, err := receiveTransfer(secondary, zoneQuery("cluster.local.", nil), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, rr := range records {
		if rr.Header().Rrtype != dns.TypeSOA {
			got = append(got, rr.String())
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" || len(want) < 10 {
		t.Errorf("records of the secondary (-want +got):\n%s", diff)
	}
}

// queries returns the number of completed transfers of a kind in the metrics.
func (p *process) queries(kind string) (n int) {
	p.t.Helper()
	_, body := p.admin("/metrics")
	prefix := fmt.Sprintf(`portolan_transfer_queries_total{kind="%s",result="done"} `, kind)
	_, rest, ok := strings.Cut(body, prefix)
	if _, err := fmt.Sscan(rest, &n); !ok || err != nil {
		p.t.Fatalf("no metric %s", prefix)
	}
	return n
}

// TestSecondariesFollowChanges checks that other name servers transfer the zone and
// follow 200 changes with NOTIFY and IXFR.
func TestSecondariesFollowChanges(t *testing.T) {
	t.Parallel()
	for name, v := range vendors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require(t, v.binary, v.pkg)
			dir, own := shop(t), freeport.Loopback(t)
			p, secondary := primaryFor(t, dir, anyPort, own, ""), own.String()
			v.run(t, own, p.addr, transferSecret)
			awaitSame(p, secondary)
			wantZone(t, secondary, dir)
			first, err := soaAt(p.addr)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 200 {
				addr := fmt.Sprintf("10.96.1.%d", i+1)
				write(t, filepath.Join(dir, "more.yaml"), service(fmt.Sprintf("more%d", i%7), addr))
				p.await(patience, fmt.Sprintf("more%d.shop.svc.cluster.local", i%7), addr)
			}
			awaitSame(p, secondary)
			wantZone(t, secondary, dir)
			last, err := soaAt(p.addr)
			if err != nil || last.Serial-first.Serial < 200 {
				t.Errorf("serials from %v to %v, %v", first, last, err)
			}
			full, incremental := p.queries("axfr")+p.queries("axfr_instead"), p.queries("ixfr")
			if full > incremental || incremental < 2 { // NSD sometimes requests a full transfer
				t.Errorf("%d full transfers and %d incremental ones", full, incremental)
			}
		})
	}
}

func TestSecondaryWithWrongKeyIsRefused(t *testing.T) {
	t.Parallel()
	for name, v := range vendors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require(t, v.binary, v.pkg)
			own := freeport.Loopback(t)
			p := primaryFor(t, shop(t), anyPort, own, "")
			v.run(t, own, p.addr, "another secret of some octets")
			p.poll(3*patience, func() error {
				if _, body := p.admin("/metrics"); !strings.Contains(body, `rcode="NOTAUTH"`) {
					return errors.New("no transfer was refused")
				}
				return nil
			})
			if soa, err := soaAt(own.String()); err == nil {
				t.Errorf("the secondary has %v", soa)
			}
		})
	}
}

// TestSecondaryGetsFullTransferWithoutHistory checks that a server without history of
// changes, or after a restart, responds to IXFR with the whole zone.
func TestSecondaryGetsFullTransferWithoutHistory(t *testing.T) {
	t.Parallel()
	for name, v := range vendors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require(t, v.binary, v.pkg)
			dir, own := shop(t), freeport.Loopback(t)
			at := freeport.Loopback(t).String()
			p, secondary := primaryFor(t, dir, at, own, ", history: {changes: 0}"), own.String()
			v.run(t, own, p.addr, transferSecret)
			awaitSame(p, secondary)
			write(t, filepath.Join(dir, "more.yaml"), service("more", "10.96.1.1"))
			p.await(patience, "more.shop.svc.cluster.local", "10.96.1.1")
			awaitSame(p, secondary)
			wantZone(t, secondary, dir)
			if p.queries("axfr_instead")+p.queries("axfr") < 2 || p.queries("ixfr") > 0 {
				t.Errorf("no full transfer instead of changes")
			}
			last, err := soaAt(p.addr)
			if err != nil {
				t.Fatal(err)
			}
			p.stop(syscall.SIGTERM)
			// The initial serial is the time in seconds.
			for time.Now().Unix() <= int64(last.Serial)+1 {
				time.Sleep(time.Until(time.Unix(int64(last.Serial)+2, 0)))
			}
			write(t, filepath.Join(dir, "more.yaml"), service("other", "10.96.1.2"))
			p = primaryFor(t, dir, at, own, "")
			awaitSame(p, secondary)
			wantZone(t, secondary, dir)
			if now, err := soaAt(p.addr); err != nil || now.Ns == last.Ns {
				t.Errorf("the name server is %v again, %v", now, err)
			}
			if p.queries("ixfr") > 0 {
				t.Errorf("got an incremental transfer from another history")
			}
		})
	}
}

// TestDigTransfers checks that dig can transfer the zone only with the key. Its IXFR
// queries do not identify the server of the serial, so that they get the whole zone.
func TestDigTransfers(t *testing.T) {
	dig := require(t, "dig", "bind9-dnsutils")
	p := serve(t, keySettings("hmac-sha256", secretFile(t, transferSecret)))
	_, port, err := net.SplitHostPort(p.addr)
	if err != nil {
		t.Fatal(err)
	}
	key := "hmac-sha256:secondary:" + base64.StdEncoding.EncodeToString([]byte(transferSecret))
	for name, c := range map[string]struct {
		args       []string
		want, lack string
	}{
		"axfr with the key":    {[]string{"-y", key, "cluster.local", "axfr"}, "\t10.96.0.7\n", "Transfer failed"},
		"axfr without":         {[]string{"cluster.local", "axfr"}, "Transfer failed", "10.96.0.7"},
		"axfr with another":    {[]string{"-y", "hmac-sha256:secondary:" + base64.StdEncoding.EncodeToString([]byte("another secret of octets")), "cluster.local", "axfr"}, "Transfer failed", "10.96.0.7"},
		"ixfr with the key":    {[]string{"-y", key, "cluster.local", "ixfr=1"}, "\t10.96.0.7\n", "Transfer failed"},
		"ixfr without":         {[]string{"cluster.local", "ixfr=1"}, "Transfer failed", "10.96.0.7"},
		"a query with the key": {[]string{"-y", key, web}, "TSIG PSEUDOSECTION", "verify"},
	} {
		printed, err := exec.Command(dig, append([]string{"@127.0.0.1", "-p", port}, c.args...)...).CombinedOutput()
		if err != nil && c.want != "Transfer failed" {
			t.Errorf("%s: %v", name, err)
		}
		if text := string(printed); !strings.Contains(text, c.want) || strings.Contains(text, c.lack) {
			t.Errorf("%s: want %q and not %q in\n%s", name, c.want, c.lack, text)
		}
	}
}
