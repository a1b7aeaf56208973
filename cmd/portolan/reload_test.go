//go:build unix

package main

import (
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// TestReloadInPlace: queries are answered as before while the file is rewritten in
// place 40 times, with pauses between the pieces.
func TestReloadInPlace(t *testing.T) {
	t.Parallel()
	file := settings(t, "dns: {zones: [a.example], access: [{action: refuse, clients: [192.0.2.1]}]}")
	const name = "web.shop.svc.a.example"
	p := start(t, "--config", file)
	p.await(patience, name, "10.96.0.7")
	text := contents(t, file)
	written := make(chan error, 1)
	go func() { written <- rewriteInPlace(file, text) }()
	queries, wrong := 0, 0
	for done := false; !done; {
		select {
		case err := <-written:
			if err != nil {
				t.Fatal(err)
			}
			done = true
		default:
		}
		queries++
		if err := wantData(p.ask("udp", question(name)), "10.96.0.7"); err != nil {
			if wrong++; wrong == 1 {
				t.Error(err)
			}
		}
	}
	if t.Logf("%d queries, %d without the answer", queries, wrong); wrong > 0 {
		t.Errorf("%d of %d queries without the answer", wrong, queries)
	}
}

// rewriteInPlace writes a text over itself 40 times, in pieces.
func rewriteInPlace(path, text string) error {
	random := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			return err
		}
		for rest := text; rest != ""; {
			time.Sleep(time.Duration(1+random.IntN(200)) * time.Millisecond)
			n := min(len(rest), 1+random.IntN(len(text)/2))
			if _, err := f.WriteString(rest[:n]); err != nil {
				return err
			}
			rest = rest[n:]
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// TestReloadEmpty: an empty file is reported, and the configuration before stays in
// force.
func TestReloadEmpty(t *testing.T) {
	t.Parallel()
	file := settings(t, "dns: {zones: [a.example]}")
	p := start(t, "--config", file)
	p.await(patience, "web.shop.svc.a.example", "10.96.0.7")
	text := contents(t, file)
	write(t, file, "")
	p.waitLog(`level=WARN msg="the configuration cannot be used; the one before stays in force" err="the configuration file is empty"`)
	p.awaitAdmin("/readyz", http.StatusOK, "earlier settings are in force: the configuration file is empty")
	p.awaitAdmin("/metrics", http.StatusOK, "portolan_config_reload_success 0")
	p.await(patience, "web.shop.svc.a.example", "10.96.0.7")
	write(t, file, text)
	p.awaitAdmin("/metrics", http.StatusOK, "portolan_config_reload_success 1")
}

// TestReloadBlocked: a named pipe in the place of the file stops neither answers
// nor the end of the process.
func TestReloadBlocked(t *testing.T) {
	t.Parallel()
	file := settings(t, "dns: {ttl: 7}")
	p := start(t, "--config", file)
	p.await(patience, web, "10.96.0.7")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	p.waitLog(`the configuration cannot be used; the one before stays in force.*no answer in time`)
	p.await(patience, web, "10.96.0.7") // and the end of the test wants the process to end well
}

// TestStartBlocked: a start with a named pipe fails with one error.
func TestStartBlocked(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/portolan.yaml"
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("portolan", "serve", "--config", file).CombinedOutput()
	if want := "portolan: config: read " + file + ": no answer in time (3s)\n"; err == nil || string(out) != want {
		t.Errorf("serve: %v, printed %q, want %q", err, out, want)
	}
}
