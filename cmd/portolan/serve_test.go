//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
)

const anyPort = "127.0.0.1:0"

const web = "web.shop.svc.cluster.local."

// service returns the manifest of a Service with a cluster IP.
func service(name, clusterIP string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: shop}\nspec: {clusterIP: %s}\n", name, clusterIP)
}

// serveShop serves testdata/shop, or the given manifests, and waits until it answers web.
func serveShop(t *testing.T, args ...string) *process {
	t.Helper()
	if len(args) == 0 || args[0] != "--manifests" {
		args = append(args, "--manifests", "testdata/shop")
	}
	p := start(t, append(args, "--listen", anyPort)...)
	p.await(patience, web, "10.96.0.7")
	return p
}

// TestServe checks that the server answers over UDP and TCP until it is stopped.
func TestServe(t *testing.T) {
	t.Parallel()
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		p := serveShop(t)
		p.awaitDenial(patience, "wbe.shop.svc.cluster.local.")
		for _, network := range []string{"udp", "tcp"} {
			if err := wantData(p.ask(network, question(web)), "10.96.0.7"); err != nil {
				t.Errorf("%s: %v", network, err)
			}
			if m := p.ask(network, question("wbe.shop.svc.cluster.local")); m.Status != "NXDOMAIN" || len(m.Errors) != 1 {
				t.Errorf("%s: answer\n%swant NXDOMAIN and why", network, m)
			}
		}
		p.stop(signal)
		lines := strings.Split(strings.TrimSpace(p.logged()), "\n")
		wants := []string{" level=INFO msg=serving ", ` level=INFO msg="manifests loaded" path=testdata/shop objects=9 passedOver=0 problems=0`, " level=INFO msg=stopped"}
		if len(lines) != len(wants) {
			t.Fatalf("log after %s: %q, want one line each with %q", signal, lines, wants)
		}
		for i, want := range wants {
			if !strings.Contains(lines[i], want) {
				t.Errorf("log after %s, line %d: %q, want %q", signal, i+1, lines[i], want)
			}
		}
	}
}

// TestServeStopsWithOpenConnections checks that a connected client does not delay the
// shutdown.
func TestServeStopsWithOpenConnections(t *testing.T) {
	t.Parallel()
	p := serveShop(t)
	c := p.dial("tcp")
	if _, err := c.ask(question(web)); err != nil {
		t.Fatal(err)
	}
	p.stop(syscall.SIGTERM)
	c.wantClosed()
}

// TestServeListensOnAllAddresses checks that each --listen is served.
func TestServeListensOnAllAddresses(t *testing.T) {
	t.Parallel()
	p := serveShop(t, "--listen", anyPort)
	addrs := p.waitLog(`listen="\[(\S+) (\S+)\]"`)[1:]
	if addrs[0] == addrs[1] {
		t.Errorf("listens on %q, want two ports", addrs)
	}
	for _, p.addr = range addrs {
		for _, network := range []string{"udp", "tcp"} {
			if err := wantData(p.ask(network, question(web)), "10.96.0.7"); err != nil {
				t.Errorf("%s %s: %v", network, p.addr, err)
			}
		}
	}
}

// soon is the time within which a change of a manifest must be visible in answers.
const soon = 2 * time.Second

// TestServeAppliesManifestChanges checks that a change of the manifests is visible in
// answers without delay.
func TestServeAppliesManifestChanges(t *testing.T) {
	t.Parallel()
	dir := shop(t)
	p := serveShop(t, "--manifests", dir)
	const added = "added.shop.svc.cluster.local."
	file := filepath.Join(dir, "added.yaml")
	p.awaitDenial(patience, added)
	write(t, file, service("added", "10.96.0.20"))
	p.await(soon, added, "10.96.0.20")
	write(t, file, service("added", "10.96.0.21"))
	p.await(soon, added, "10.96.0.21")
	moved := filepath.Join(dir, "moved.yaml")
	write(t, moved+".new", service("added", "10.96.0.22"))
	if err := os.Rename(moved+".new", file); err != nil {
		t.Fatal(err)
	}
	p.await(soon, added, "10.96.0.22")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	p.awaitDenial(soon, added)
	sub := filepath.Join(dir, "sub")
	if err := os.Mkdir(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(sub, "added.yaml"), service("added", "10.96.0.23"))
	p.await(soon, added, "10.96.0.23")
	if err := wantData(p.ask("udp", question(web)), "10.96.0.7"); err != nil {
		t.Errorf("during the changes: %v", err)
	}
}

// TestServeKeepsLastValidDocument checks that a document that becomes invalid retains its
// last valid content, and that it is logged once.
func TestServeKeepsLastValidDocument(t *testing.T) {
	t.Parallel()
	dir := shop(t)
	file := filepath.Join(dir, "fragile.yaml")
	write(t, file, service("fragile", "10.96.0.30"))
	p := serveShop(t, "--manifests", dir)
	const fragile = "fragile.shop.svc.cluster.local."
	p.await(patience, fragile, "10.96.0.30")

	write(t, file, service("fragile", "[10.96.0.31]"))
	p.waitLog(`level=ERROR msg="manifest document rejected; its last good version, if any, stays" file=` + file + ` line=4 object="service shop/fragile" field=spec.clusterIP `)
	// Another change is applied, and the error is not logged again.
	write(t, filepath.Join(dir, "other.yaml"), service("other", "10.96.0.40"))
	p.await(soon, "other.shop.svc.cluster.local.", "10.96.0.40")
	for name, address := range map[string]string{fragile: "10.96.0.30", web: "10.96.0.7"} {
		if err := wantData(p.ask("udp", question(name)), address); err != nil {
			t.Errorf("while a document is broken: %v", err)
		}
	}
	if n := strings.Count(p.logged(), "level=ERROR"); n != 1 {
		t.Errorf("%d error lines, want 1:\n%s", n, p.logged())
	}

	write(t, file, service("fragile", "10.96.0.32"))
	p.await(soon, fragile, "10.96.0.32")
	p.stop(syscall.SIGTERM)
	if n := strings.Count(p.logged(), "level=ERROR"); n != 1 {
		t.Errorf("%d error lines, want 1:\n%s", n, p.logged())
	}
}

// slowManifest is a named pipe, which cannot be read until it is written to.
type slowManifest struct {
	t          *testing.T
	path, pipe string
}

func newSlowManifest(t *testing.T) *slowManifest {
	t.Helper()
	dir := t.TempDir()
	s := &slowManifest{t, filepath.Join(dir, "shop.yaml"), filepath.Join(dir, "pipe")}
	if err := syscall.Mkfifo(s.pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(s.pipe, s.path); err != nil {
		t.Fatal(err)
	}
	return s
}

// fill replaces the pipe by an ordinary file with the text, and writes it to the reader, if
// there is one already.
func (s *slowManifest) fill(text string) {
	s.t.Helper()
	file := s.path + ".new"
	write(s.t, file, text)
	if err := os.Rename(file, s.path); err != nil {
		s.t.Fatal(err)
	}
	pipe, err := os.OpenFile(s.pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ENXIO) { // nobody reads it
		return
	}
	if err != nil {
		s.t.Fatal(err)
	}
	defer pipe.Close()
	if _, err := pipe.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// TestServeWhileLoading checks that no name is denied before the manifests are loaded.
func TestServeWhileLoading(t *testing.T) {
	t.Parallel()
	manifest := newSlowManifest(t)
	p := start(t, "--manifests", manifest.path, "--listen", anyPort)
	for _, name := range []string{web, "wbe.shop.svc.cluster.local.", "7.0.96.10.in-addr.arpa."} {
		for _, network := range []string{"udp", "tcp"} {
			m := p.ask(network, question(name))
			if m.Status != "SERVFAIL" || len(m.Errors) != 1 || m.Errors[0].Code != uint16(dnswire.EDENotReady) {
				t.Errorf("while loading, over %s: answer\n%swant SERVFAIL, error %d", network, m, dnswire.EDENotReady)
			}
		}
	}
	// Names that do not depend on manifests are answered.
	version := dnswire.QuerySpec{Name: "dns-version.cluster.local.", Type: dnswire.TypeTXT}
	if m := p.ask("udp", version); m.Status != "NOERROR" || len(m.Answer) != 1 {
		t.Errorf("while loading: answer\n%swant the version", m)
	}
	manifest.fill(service("web", "10.96.0.7"))
	p.await(soon, web, "10.96.0.7")
	p.awaitDenial(soon, "wbe.shop.svc.cluster.local.")
}

// TestQueryWaitsForZones checks that a query that arrives while the manifests are read is
// answered from them.
func TestQueryWaitsForZones(t *testing.T) {
	t.Parallel()
	manifest := newSlowManifest(t)
	p := start(t, "--manifests", manifest.path, "--listen", anyPort)
	c := p.dial("udp")
	defer c.Close()
	result := make(chan error, 1)
	go func() {
		m, err := c.ask(question(web))
		if err == nil {
			err = wantData(m, "10.96.0.7")
		}
		result <- err
	}()
	manifest.fill(service("web", "10.96.0.7"))
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// TestServeStopsWhileReadingManifestBlocks checks that a manifest that blocks its reader
// does not delay the shutdown.
func TestServeStopsWhileReadingManifestBlocks(t *testing.T) {
	t.Parallel()
	p := start(t, "--manifests", newSlowManifest(t).path, "--listen", anyPort)
	p.stop(syscall.SIGTERM)
}

// TestSecondSignalEndsProcess checks that a second signal ends the process during the
// lameduck time.
func TestSecondSignalEndsProcess(t *testing.T) {
	t.Parallel()
	p := start(t, "--config", settings(t, "lameduck: 1h"))
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for running := true; running; {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			break
		}
		select {
		case <-p.ended:
			running = false
		case <-tick.C:
		case <-deadline:
			_ = p.cmd.Process.Kill()
			<-p.ended
			t.Fatalf("still running after %s of signals", patience)
		}
	}
	p.wait()
	if status := p.state.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGTERM {
		t.Errorf("ended: %s, want by the signal", p.state)
	}
}
