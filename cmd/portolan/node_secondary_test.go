//go:build unix

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// sendsZones are the settings of a server that allows zone transfers.
const sendsZones = "dns: {transfer: {allow: [{clients: [127.0.0.0/8]}]}}"

func init() {
	maps.Copy(effects, map[string]func(*testing.T){
		"node.mode": func(t *testing.T) {
			for mode, want := range map[string]string{"secondary": "\t10.96.0.7\n", "cache": "SERVFAIL"} {
				s := serve(t, sendsZones)
				p := startNode(t, "node: {mode: "+mode+", servers: ['"+s.addr+"']}")
				p.awaitReady()
				s.stop(syscall.SIGTERM)
				wantAnswer(t, p, web, want)
			}
		},
		"node.primaries": func(t *testing.T) {
			primary := serve(t, sendsZones)
			_, port, _ := strings.Cut(primary.addr, ":")
			s := serve(t, "dns: {hosts: {lines: [127.0.0.1 primary.shop.svc.cluster.local]}}")
			for _, list := range []string{primary.addr, "primary.shop.svc.cluster.local:" + port} {
				p := startNode(t, fmt.Sprintf("node: {servers: ['%s'], primaries: ['%s']}", s.addr, list))
				p.waitLog(`zone is followed.*` + primary.addr)
			}
			p := startNode(t, fmt.Sprintf("node: {servers: ['%s']}", s.addr))
			p.waitLog("primary server failed.*" + s.addr + ".*REFUSED")
		},
		"node.key": func(t *testing.T) {
			keys := keySettings("hmac-sha256", secretFile(t, transferSecret))
			s := serve(t, keys)
			p := startNode(t, "node: {servers: ['"+s.addr+"'], key: secondary}\n"+keys)
			p.waitLog("zone is followed")
			p = startNode(t, "node: {servers: ['"+s.addr+"']}\n"+keys)
			p.waitLog("primary server failed.*REFUSED")
		},
		"node.ca": func(t *testing.T) {
			own := newKeyPair(t, t.TempDir(), "primary.example")
			s := serve(t, fmt.Sprintf("dns:\n  tls: {listen: ['%s'], certificate: '%s', key: '%s'}\n%s", anyPort, own.certificate, own.key, sendsZones))
			addr := s.waitLog(`serving.* tls="?\[([0-9.:]+)\]`)[1]
			node := fmt.Sprintf("node: {servers: ['%s'], primaries: ['tls://%s#primary.example'], ", s.addr, addr)
			startNode(t, node+"ca: '"+own.certificate+"'}").waitLog("zone is followed")
			startNode(t, node+"}").waitLog("primary server failed.*certificate")
		},
		"node.file": func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "zones")
			s := serve(t, sendsZones)
			settings := "node: {servers: ['" + s.addr + "'], file: '" + file + "'}"
			p := startNode(t, settings)
			p.awaitReady()
			p.stop(syscall.SIGTERM)
			s.stop(syscall.SIGTERM)
			p = startNode(t, settings)
			p.waitLog("answering from the state file")
			wantAnswer(t, p, web, "\t10.96.0.7\n")
			wantAnswer(t, p, web, "error: 3 ")
		},
		"node.name": func(t *testing.T) {
			one, two := serve(t, sendsZones), serve(t, sendsZones)
			followed := make(map[string]bool)
			for i := range 12 {
				p := startNode(t, fmt.Sprintf("node: {servers: ['%s', '%s'], name: node-%d}", one.addr, two.addr, i))
				followed[p.waitLog(`zone is followed.* server=(\S+)`)[1]] = true
				if len(followed) == 2 {
					return
				}
			}
			t.Errorf("12 nodes all follow %v, want both servers", followed)
		},
		"node.check": func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "web.yaml"), service("web", "10.96.0.7"))
			s := serve(t, "manifests: "+dir+"\n"+sendsZones)
			often := startNode(t, "node: {servers: ['"+s.addr+"'], check: 100ms}")
			seldom := startNode(t, "node: {servers: ['"+s.addr+"'], check: 1h, stale: 2h}")
			often.awaitReady()
			seldom.awaitReady()
			write(t, filepath.Join(dir, "more.yaml"), service("more", "10.96.0.8"))
			often.await(patience, "more.shop.svc.cluster.local.", "10.96.0.8")
			wantAnswer(t, seldom, "more.shop.svc.cluster.local.", "NXDOMAIN")
		},
		"node.stale": func(t *testing.T) {
			s := serve(t, sendsZones)
			soon := startNode(t, "node: {servers: ['"+s.addr+"'], check: 100ms, stale: 200ms}")
			late := startNode(t, "node: {servers: ['"+s.addr+"'], check: 100ms, stale: 1h}")
			soon.awaitReady()
			late.awaitReady()
			s.stop(syscall.SIGTERM)
			soon.waitLog("the copy of a zone is stale")
			wantAnswer(t, soon, web, "error: 3 ")
			if m := queryForwarded(late, web); len(m.Errors) > 0 {
				t.Errorf("stale: 1h:\n%s", m)
			}
		},
	})
}

// awaitReady waits until /readyz reports that the process is ready.
func (p *process) awaitReady() {
	p.t.Helper()
	p.poll(patience, func() error {
		if status, body := p.admin("/readyz"); status != 200 {
			return fmt.Errorf("not ready: %s", body)
		}
		return nil
	})
}

// TestNodeQueriesServersUntilZonesAreTransferred checks that the agent forwards queries
// while it has no copy of the zones.
func TestNodeQueriesServersUntilZonesAreTransferred(t *testing.T) {
	t.Parallel()
	s := serve(t, "# no transfers")
	p := startNode(t, "node: {servers: ['"+s.addr+"']}")
	wantAnswer(t, p, web, "\t10.96.0.7\n")
	wantAnswer(t, p, searchedName, "\t10.96.0.7\n")
	wantAnswer(t, p, "none.search.shop.cluster.local.ap.k8s.io.", "NXDOMAIN")
	if status, body := p.admin("/readyz"); status == 200 || !strings.Contains(body, "zone cluster.local. is not loaded") {
		t.Errorf("readyz: %d %s", status, body)
	}
}

// TestNodeAnswersAsItsPrimary checks that a secondary's responses, including those to
// search paths, equal the primary's.
func TestNodeAnswersAsItsPrimary(t *testing.T) {
	t.Parallel()
	s := serve(t, sendsZones+"\ndns:\n  pods: insecure")
	p := startNode(t, "node: {servers: ['"+s.addr+"']}")
	p.awaitReady()
	for _, name := range []string{
		web, "none.shop.svc.cluster.local.", "shop.svc.cluster.local.", "svc.cluster.local.", "cluster.local.", "ns.dns.cluster.local.",
		"dns-version.cluster.local.", "10-1-2-3.shop.pod.cluster.local.", "db-spare.db.data.svc.cluster.local.", searchedName,
		"none.search.shop.cluster.local.ap.k8s.io.", "ap.k8s.io.", "_http._tcp.web.shop.svc.cluster.local.",
	} {
		for _, typ := range []dnswire.Type{dnswire.TypeA, dnswire.TypeSRV, dnswire.TypeTXT, dnswire.TypeSOA} {
			q := question(name)
			q.Type, q.Flags = typ, dnswire.FlagRD
			// Only the agent offers recursion.
			want := strings.Replace(s.ask("udp", q).String(), " rd\n", " rd ra\n", 1)
			if got := p.ask("udp", q).String(); got != want {
				t.Errorf("%s %s:\n%s\nthe server answers:\n%s", name, typ, got, want)
			}
		}
	}
}

// TestNodeSetsDamagedStateFileAside checks that a damaged state file is renamed and
// logged, and that the agent starts.
func TestNodeSetsDamagedStateFileAside(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "zones")
	write(t, file, "damaged")
	s := serve(t, sendsZones)
	p := startNode(t, "node: {servers: ['"+s.addr+"'], file: '"+file+"'}")
	p.awaitReady()
	p.waitLog("cannot use the state file")
	if _, err := os.Stat(file + ".bad"); err != nil {
		entries, _ := os.ReadDir(filepath.Dir(file))
		t.Errorf("%v; files %v", err, entries)
	}
}

// TestNodeReportsUnresolvablePrimaries checks that /readyz names primaries that do not
// resolve.
func TestNodeReportsUnresolvablePrimaries(t *testing.T) {
	t.Parallel()
	s := serve(t, sendsZones)
	p := startNode(t, "node: {servers: ['"+s.addr+"'], primaries: [none.shop.svc.cluster.local]}")
	p.waitLog("cannot find primary servers.*none.shop.svc.cluster.local.*NXDOMAIN")
	p.poll(patience, func() error {
		if _, body := p.admin("/readyz"); !strings.Contains(body, "none.shop.svc.cluster.local") {
			return fmt.Errorf("readyz: %s", body)
		}
		return nil
	})
}
