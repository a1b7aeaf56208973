//go:build unix

package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func init() {
	effects["admin.probes"] = effectOfProbes
	effects["admin.coreDNSMetrics"] = func(t *testing.T) {
		for setting, want := range map[string]bool{"false": false, "true": true} {
			p := serve(t, "admin: {listen: '"+anyPort+"', coreDNSMetrics: "+setting+"}")
			_, body := p.admin("/metrics")
			if got := strings.Contains(body, "\ncoredns_dns_requests_total{"); got != want {
				t.Errorf("coreDNSMetrics: %s: CoreDNS' names are there: %v", setting, got)
			}
		}
	}
}

// effectOfProbes: CoreDNS' paths and metrics, and nothing else, are there.
func effectOfProbes(t *testing.T) {
	p := serve(t, "admin: {listen: '', probes: ['"+anyPort+"', '"+anyPort+"']}")
	for _, addr := range p.probes() {
		wantProbes(p, addr)
	}
	socket := "unix:" + filepath.Join(t.TempDir(), "probes")
	serve(t, "admin: {listen: '', probes: ['"+socket+"']}")
	for what, want := range map[string]string{"live": "ok\n", "ready": "ok\n"} {
		if out, err := exec.Command("portolan", "probe", what, socket).CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("portolan probe %s: %q, %v; want %q", what, out, err, want)
		}
	}
}

// probes are the addresses for probes alone.
func (p *process) probes() (addrs []string) {
	p.t.Helper()
	for _, port := range regexp.MustCompile(`:(\d+)`).FindAllString(p.waitLog(`serving.* probes=(.*)`)[1], -1) {
		addrs = append(addrs, "127.0.0.1"+port)
	}
	return addrs
}

func wantProbes(p *process, addr string) {
	p.t.Helper()
	p.poll(patience, func() error {
		for path, want := range map[string]struct {
			status int
			words  string
		}{
			"/health": {http.StatusOK, "ok"}, "/ready": {http.StatusOK, "ok"}, "/metrics": {http.StatusOK, "portolan_build_info"},
			"/debug/zone": {http.StatusNotFound, ""}, "/debug/pprof/": {http.StatusNotFound, ""},
		} {
			if status, body := get(p.t, addr, path); status != want.status || !strings.Contains(body, want.words) {
				return fmt.Errorf("%s: %d %q, want %d and %q", path, status, body, want.status, want.words)
			}
		}
		return nil
	})
}

// kubeadm is the Corefile of kubeadm, but for ports, the API and the upstream.
// %s are the latter two.
const kubeadm = `.:0 {
    errors
    health :0 {
       lameduck 1s
    }
    ready :0
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       kubeconfig %s
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :0
    forward . %s {
       max_concurrent 1000
    }
    cache 30 {
       disable success cluster.local
       disable denial cluster.local
    }
    loop
    reload
    loadbalance
}
`

// asCoreDNS starts the program as a Deployment of CoreDNS does.
func asCoreDNS(t *testing.T, corefile string, more ...string) *process {
	t.Helper()
	p := follow(t, exec.Command("portolan", append([]string{"-conf", corefile}, more...)...))
	p.addr = "127.0.0.1:" + p.waitLog(`serving listen="\[0\.0\.0\.0:(\d+)`)[1]
	return p
}

// TestAsCoreDNS: with CoreDNS' flags and its Corefile names are answered, those
// of the cluster and others; probes and metrics are there; a Corefile that
// changes is read again.
func TestAsCoreDNS(t *testing.T) {
	t.Parallel()
	dir, up := t.TempDir(), upstream(t, answers("192.0.2.1"))
	corefile, pidFile := filepath.Join(dir, "Corefile"), filepath.Join(dir, "pid")
	text := fmt.Sprintf(kubeadm, newAPI(t).Kubeconfig(t), up.addr)
	write(t, corefile, text)
	p := asCoreDNS(t, corefile, "-dns.port", "53", "-pidfile", pidFile)
	p.await(patience, web, "10.96.0.7")
	if m := p.ask("udp", question(web)); m.Answer[0].TTL != 30 {
		t.Errorf("answer:\n%swant TTL 30", m)
	}
	p.await(patience, "10-9-9-9.shop.pod.cluster.local.", "10.9.9.9")
	wantAnswer(t, p, "www.example.", "192.0.2.1")
	for _, addr := range p.probes() {
		wantProbes(p, addr)
	}
	if got := strings.TrimSpace(contents(t, pidFile)); got != strconv.Itoa(p.cmd.Process.Pid) {
		t.Errorf("pid file: %s, want %d", got, p.cmd.Process.Pid)
	}
	if n := strings.Count(p.logged(), "directive=prometheus"); n != 1 {
		t.Errorf("a note was logged %d times, want once", n)
	}

	// A bad one leaves the one before.
	write(t, corefile, "nonsense {")
	p.waitLog("the configuration cannot be used; the one before stays in force.*" + corefile + ":1: ")
	p.await(patience, web, "10.96.0.7")
	write(t, corefile, strings.Replace(text, "ttl 30", "ttl 31", 1))
	if err := p.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	p.poll(patience, func() error {
		if m := p.ask("udp", question(web)); m.Answer[0].TTL != 31 {
			return fmt.Errorf("answer:\n%swant TTL 31", m)
		}
		return nil
	})
	p.stop(syscall.SIGTERM)
	if _, err := os.Stat(pidFile); !os.IsNotExist(err) {
		t.Errorf("pid file after the end: %v", err)
	}
}

// TestCorefileImports: what a Corefile imports is followed as well.
func TestCorefileImports(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	corefile := filepath.Join(dir, "Corefile")
	write(t, corefile, ".:0 {\n  bind 127.0.0.1\n  kubernetes cluster.local\n  import *.override\n}\n")
	p := start(t, "--corefile", corefile, "--manifests", "testdata/shop")
	p.await(patience, web, "10.96.0.7")
	write(t, filepath.Join(dir, "one.override"), "hosts {\n  192.0.2.9 written.example\n  fallthrough\n}\n")
	p.await(patience, "written.example.", "192.0.2.9")
}

// TestCorefileFromStdin: with "-conf stdin" it is read from there, once, and what it
// imports is followed. An interface stands for its addresses.
func TestCorefileFromStdin(t *testing.T) {
	t.Parallel()
	dir, api := t.TempDir(), newAPI(t)
	cmd := exec.Command("portolan", "-conf", "stdin")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(".:0 {\n  bind %s\n  kubernetes cluster.local {\n    kubeconfig %s\n  }\n  import %s/*.override\n}\n",
		loopback(t), api.Kubeconfig(t), dir))
	p := follow(t, cmd)
	p.addr = "127.0.0.1:" + p.waitLog(`serving listen="?\[?127\.0\.0\.1:(\d+)`)[1]
	p.await(patience, web, "10.96.0.7")
	write(t, filepath.Join(dir, "one.override"), "hosts {\n  192.0.2.9 written.example\n  fallthrough\n}\n")
	p.await(patience, "written.example.", "192.0.2.9")
}

// TestCorefileLog: queries of the names and classes that log says are logged, and
// no others, also with -quiet.
func TestCorefileLog(t *testing.T) {
	t.Parallel()
	corefile := filepath.Join(t.TempDir(), "Corefile")
	write(t, corefile, fmt.Sprintf(".:0 {\n  kubernetes cluster.local {\n    kubeconfig %s\n  }\n  log cluster.local {\n    class denial\n  }\n}\n",
		newAPI(t).Kubeconfig(t)))
	p := asCoreDNS(t, corefile, "-quiet")
	p.await(patience, web, "10.96.0.7")
	p.ask("udp", question("gone."+web))
	p.waitLog(`msg=query .*qname=gone\.` + regexp.QuoteMeta(web) + ` .*rcode=NXDOMAIN`)
	if strings.Contains(p.logged(), "rcode=NOERROR") {
		t.Errorf("queries that log does not name are logged")
	}
}

// loopback is the name of the interface that has 127.0.0.1.
func loopback(t *testing.T) string {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if i.Flags&net.FlagLoopback != 0 {
			return i.Name
		}
	}
	t.Skip("there is no loopback interface")
	return ""
}
