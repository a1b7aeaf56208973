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

// effectOfProbes checks that the address serves CoreDNS' paths and metrics only.
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

// probes returns the addresses of admin.probes.
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

// kubeadm is kubeadm's Corefile with other ports. The two %s are the API server and the
// upstream.
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

// startAsCoreDNS starts the program with the arguments of a CoreDNS Deployment.
func startAsCoreDNS(t *testing.T, corefile string, more ...string) *process {
	t.Helper()
	p := follow(t, exec.Command("portolan", append([]string{"-conf", corefile}, more...)...))
	p.addr = "127.0.0.1:" + p.waitLog(`serving listen="\[0\.0\.0\.0:(\d+)`)[1]
	return p
}

// TestRunsAsCoreDNS checks that, started with CoreDNS' flags and Corefile, the server
// answers names of the cluster and forwarded ones, serves probes and metrics, and applies
// changes of the Corefile.
func TestRunsAsCoreDNS(t *testing.T) {
	t.Parallel()
	dir, up := t.TempDir(), newUpstream(t, answersWith("192.0.2.1"))
	corefile, pidFile := filepath.Join(dir, "Corefile"), filepath.Join(dir, "pid")
	text := fmt.Sprintf(kubeadm, newAPI(t).Kubeconfig(t), up.addr)
	write(t, corefile, text)
	p := startAsCoreDNS(t, corefile, "-dns.port", "53", "-pidfile", pidFile)
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

	// An invalid Corefile leaves the current one in force.
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

// TestCorefileImports checks that changes of imported files are applied.
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

// TestCorefileFromStdin checks that "-conf stdin" reads standard input once and follows
// imported files, and that an interface is replaced by its addresses.
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

// TestCorefileLog checks that only queries in the names and classes of log are logged,
// also with -quiet.
func TestCorefileLog(t *testing.T) {
	t.Parallel()
	corefile := filepath.Join(t.TempDir(), "Corefile")
	write(t, corefile, fmt.Sprintf(".:0 {\n  kubernetes cluster.local {\n    kubeconfig %s\n  }\n  log cluster.local {\n    class denial\n  }\n}\n",
		newAPI(t).Kubeconfig(t)))
	p := startAsCoreDNS(t, corefile, "-quiet")
	p.await(patience, web, "10.96.0.7")
	p.ask("udp", question("gone."+web))
	p.waitLog(`msg=query .*qname=gone\.` + regexp.QuoteMeta(web) + ` .*rcode=NXDOMAIN`)
	if strings.Contains(p.logged(), "rcode=NOERROR") {
		t.Errorf("queries that log does not name are logged")
	}
}

// loopback returns the name of the interface with 127.0.0.1.
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
