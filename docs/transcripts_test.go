// Package docs holds no code; its test runs what the documentation shows.
package docs

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/test/program"
)

var update = flag.Bool("update", false, "write what the commands print into the documents")

// pages are the documents whose ```console blocks are transcripts.
var pages = []string{"../README.md", "getting-started.md", "explain.md", "node.md", "simulate.md", "test.md"}

// TestTranscripts runs each command of each transcript against a real server
// and compares what it prints.
func TestTranscripts(t *testing.T) {
	if _, err := exec.LookPath("dig"); err != nil {
		t.Skip("dig is not installed (Debian: bind9-dnsutils); bash test/all installs it")
	}
	bin := buildBinary(t)
	port := serveShop(t, bin)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		got, commands := rerun(t, string(text), bin, port)
		if commands == 0 {
			t.Errorf("%s: no command in any ```console block", page)
		}
		if *update {
			if err := os.WriteFile(page, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got != string(text) {
			t.Errorf("%s is out of date; run go test ./docs -update. Now it would be:\n%s", page, got)
		}
	}
}

// buildBinary builds portolan and returns its directory.
func buildBinary(t *testing.T) (dir string) {
	t.Helper()
	file, err := program.Build(t.Context(), program.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(file)
}

var listening = regexp.MustCompile(`listen="?\[127\.0\.0\.1:(\d+)\]`)

// serveShop serves the example on a free port until the test ends.
func serveShop(t *testing.T, bin string) (port string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "portolan"), "serve", "--admin", "", "--manifests", "../examples/shop", "--listen", "127.0.0.1:0")
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // killed
	})
	loaded := false
	for lines := bufio.NewScanner(log); (port == "" || !loaded) && lines.Scan(); {
		if m := listening.FindStringSubmatch(lines.Text()); m != nil {
			port = m[1]
		}
		loaded = loaded || strings.Contains(lines.Text(), "manifests loaded")
	}
	if port == "" || !loaded {
		t.Fatalf("the server said no port (%q), or not that it loaded (%v)", port, loaded)
	}
	awaitAnswer(t, net.JoinHostPort("127.0.0.1", port))
	return port
}

// awaitAnswer waits until the loaded manifests show in answers.
func awaitAnswer(t *testing.T, server string) {
	t.Helper()
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, server)
	}}
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		if addrs, err := resolver.LookupHost(t.Context(), "kubernetes.default.svc.cluster.local."); err == nil && len(addrs) > 0 {
			return
		}
	}
	t.Fatal("the server does not answer")
}

const fence = "```"

// rerun is the page with the output of its commands as they print it now.
func rerun(t *testing.T, page, bin, port string) (text string, commands int) {
	t.Helper()
	var b strings.Builder
	inBlock := false
	for line := range strings.Lines(page) {
		switch {
		case strings.HasPrefix(line, fence+"console"):
			inBlock = true
		case strings.HasPrefix(line, fence):
			inBlock = false
		case inBlock && !strings.HasPrefix(line, "$ "):
			continue // old output
		}
		b.WriteString(line)
		if inBlock && strings.HasPrefix(line, "$ ") {
			commands++
			b.WriteString(run(t, strings.TrimSpace(line[2:]), bin, port))
		}
	}
	return b.String(), commands
}

// What differs from run to run.
var (
	messageID = regexp.MustCompile(`id: \d+`)
	serial    = regexp.MustCompile(`\b[12]\d{9} 7200 `)
)

// usage is the exit status of commands that are wrong.
const usage = 2

func run(t *testing.T, command, bin, port string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", strings.ReplaceAll(command, "-p 1053", "-p "+port))
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "LC_ALL=C")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!strings.HasPrefix(command, "portolan ") || !errors.As(err, &exit) || exit.ExitCode() == usage) {
		t.Fatalf("%s: %v", command, err)
	}
	text := messageID.ReplaceAllString(string(out), "id: 4711")
	return serial.ReplaceAllString(text, "1795235076 7200 ")
}
