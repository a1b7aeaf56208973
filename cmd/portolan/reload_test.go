//go:build unix

package main

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"portolan.dev/portolan/internal/support/testcert"
)

// TestReloadOfFileRewrittenInPlace checks that answers do not change while the file is
// rewritten in place 40 times, with pauses between the pieces.
func TestReloadOfFileRewrittenInPlace(t *testing.T) {
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

// rewriteInPlace overwrites a file with the same text 40 times, in pieces.
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

// TestReloadOfEmptyFile checks that an empty file is reported and the current
// configuration stays in force.
func TestReloadOfEmptyFile(t *testing.T) {
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

// TestReloadOfNamedPipe checks that a named pipe in place of the file blocks neither
// answers nor shutdown.
func TestReloadOfNamedPipe(t *testing.T) {
	t.Parallel()
	file := settings(t, "dns: {ttl: 7}")
	text := contents(t, file)
	p := start(t, "--config", file)
	p.await(patience, web, "10.96.0.7")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	p.waitLog(`the configuration cannot be used; the one before stays in force.*no answer in time`)
	replace(t, file, strings.Replace(text, "ttl: 7", "ttl: 8", 1))
	p.waitLog(`msg="configuration reloaded"`)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", file); err != nil {
		t.Fatal(err)
	}
	p.waitLog(`the configuration cannot be used; the one before stays in force.*longer than 16 MiB`)
	p.await(patience, web, "10.96.0.7") // the test's cleanup checks the exit status
}

// TestReloadWithNamedPipesAsFiles checks that if files named in the configuration become
// named pipes, queries, handshakes and reloads use the previous content, and the process
// can be stopped.
func TestReloadWithNamedPipesAsFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, err := testcert.New("localhost", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile, err := cert.Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{
		"hosts": "192.0.2.7 router.example\n", "blocked": "ads.example\n", "resolv.conf": "nameserver 192.0.2.53\n",
		"secret": base64.StdEncoding.EncodeToString(make([]byte, 32)) + "\n",
	}
	for name, text := range texts {
		write(t, filepath.Join(dir, name), text)
	}
	text := fmt.Sprintf(`dns:
  tls: {listen: ['127.0.0.1:0'], certificate: %[1]s, key: %[2]s}
  hosts: {files: [%[3]s/hosts]}
  block: {files: [%[3]s/blocked]}
  forward: {routes: [{resolvConf: %[3]s/resolv.conf}]}
  transfer: {keys: [{name: k, algorithm: hmac-sha256, secretFile: %[3]s/secret}], allow: [{key: k}]}
`, certFile, keyFile, dir)
	file := settings(t, text)
	p := start(t, "--config", file)
	p.await(patience, "router.example.", "192.0.2.7")
	pipes := []string{certFile, keyFile}
	for name := range texts {
		pipes = append(pipes, filepath.Join(dir, name))
	}
	for _, path := range pipes {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.waitLog(`cannot read filter file; its previous content stays in use.*no answer in time`)
	handshake(t, p)
	write(t, file, strings.Replace(contents(t, file), "dns:", "dns:\n  ttl: 77", 1))
	p.poll(patience, func() error {
		if m := p.ask("udp", question(web)); len(m.Answer) != 1 || m.Answer[0].TTL != 77 {
			return fmt.Errorf("answer with the new TTL 77 missing:\n%s", m)
		}
		return nil
	})
	for name, address := range map[string]string{"router.example.": "192.0.2.7", web: "10.96.0.7"} {
		if err := wantData(p.ask("udp", question(name)), address); err != nil {
			t.Error(err)
		}
	}
	handshake(t, p)
	// Files that are regular again are read again.
	for path := range texts {
		replace(t, filepath.Join(dir, path), texts[path])
	}
	replace(t, filepath.Join(dir, "hosts"), "192.0.2.8 router.example\n")
	p.await(patience, "router.example.", "192.0.2.8")
	p.stop(syscall.SIGTERM)
}

// replace replaces whatever has a path by a file.
func replace(t *testing.T, path, text string) {
	t.Helper()
	write(t, path+".new", text)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// handshake completes a TLS handshake with the server.
func handshake(t *testing.T, p *process) {
	t.Helper()
	address := p.waitLog(`tls=\[(\S+)\]`)[1]
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: patience}, "tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatalf("handshake: %v", err)
	}
	conn.Close()
}

// TestStartWithNamedPipe checks that a start with a named pipe in place of a file that it
// needs fails with one error.
func TestStartWithNamedPipe(t *testing.T) {
	t.Parallel()
	pipe := namedPipe(t)
	for args, want := range map[string]string{
		"serve --config " + pipe:   "config: read " + pipe,
		"serve --corefile " + pipe: "corefile: read " + pipe,
	} {
		out, err := exec.Command("portolan", strings.Fields(args)...).CombinedOutput()
		if want := "portolan: " + want + ": no answer in time (3s)\n"; err == nil || string(out) != want {
			t.Errorf("%s: %v, printed %q, want %q", args, err, out, want)
		}
	}
}

// TestStartWithNamedPipeAsState checks that a process starts without its saved state if a
// named pipe is in the place of that.
func TestStartWithNamedPipeAsState(t *testing.T) {
	t.Parallel()
	pipe := namedPipe(t)
	startNode(t, "node: {servers: ['127.0.0.1:1'], file: '"+pipe+"'}").waitLog("no answer in time")
	serveAPI(t, newAPI(t), "", "snapshot: {file: "+pipe+"}").waitLog("no answer in time")
}

// namedPipe returns a named pipe that nobody writes to.
func namedPipe(t *testing.T) string {
	t.Helper()
	path := t.TempDir() + "/pipe"
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
