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

// pages are the documents whose ```console blocks are transcripts, by the cluster that a server has.
var pages = map[string][]string{
	"examples/shop": {"../README.md", "getting-started.md", "explain.md", "node.md", "simulate.md", "test.md"},
	"examples/tour": {"tour.md"},
}

// TestTranscripts runs each command of each transcript against a real server
// and compares what it prints.
func TestTranscripts(t *testing.T) {
	if _, err := exec.LookPath("dig"); err != nil {
		t.Skip("dig is not installed (Debian: bind9-dnsutils); bash test/all installs it")
	}
	bin := buildBinary(t)
	for manifests, all := range pages {
		s := serve(t, bin, manifests)
		for _, page := range all {
			checkPage(t, page, s)
		}
	}
}

// checkPage compares a document with what its commands print, or updates it.
func checkPage(t *testing.T, page string, s *served) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	got, commands := rerun(t, string(text), s)
	if commands == 0 {
		t.Errorf("%s: no command in any ```console block", page)
	}
	if *update {
		if err := os.WriteFile(page, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != string(text) {
		t.Errorf("%s is out of date; run go test ./docs -update. Now it would be:\n%s", page, got)
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

var listening = regexp.MustCompile(`listen="?\[127\.0\.0\.1:(\d+)\].* admin=127\.0\.0\.1:(\d+)`)

// served is a server, with the ports that stand for 1053 and 9153 in documents.
type served struct{ bin, port, admin string }

// serve serves manifests on free ports until the test ends.
func serve(t *testing.T, bin, manifests string) *served {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute)
	cmd := exec.CommandContext(
		ctx, filepath.Join(bin, "portolan"), "serve", "--admin", "127.0.0.1:0", "--manifests", filepath.Join("..", manifests),
		"--simulate", "--listen", "127.0.0.1:0",
	)
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
	s, loaded := &served{bin: bin}, false
	for lines := bufio.NewScanner(log); (s.port == "" || !loaded) && lines.Scan(); {
		if m := listening.FindStringSubmatch(lines.Text()); m != nil {
			s.port, s.admin = m[1], m[2]
		}
		loaded = loaded || strings.Contains(lines.Text(), "manifests loaded")
	}
	if s.port == "" || !loaded {
		t.Fatalf("the server said no port (%q), or not that it loaded (%v)", s.port, loaded)
	}
	awaitAnswer(t, net.JoinHostPort("127.0.0.1", s.port))
	return s
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
func rerun(t *testing.T, page string, s *served) (text string, commands int) {
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
			b.WriteString(run(t, strings.TrimSpace(line[2:]), s))
		}
	}
	return b.String(), commands
}

// What differs from run to run.
var (
	messageID = regexp.MustCompile(`id: \d+`)
	serial    = regexp.MustCompile(`\b[12]\d{9} 7200 `)
	eventTime = regexp.MustCompile(`(?m)^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z `)
)

// usage is the exit status of commands that are wrong.
const usage = 2

func run(t *testing.T, command string, s *served) string {
	t.Helper()
	ports := strings.NewReplacer("-p 1053", "-p "+s.port, "127.0.0.1:9153", "127.0.0.1:"+s.admin)
	cmd := exec.CommandContext(t.Context(), "bash", "-c", ports.Replace(command))
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "PATH="+s.bin+":"+os.Getenv("PATH"), "LC_ALL=C")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!strings.HasPrefix(command, "portolan ") || !errors.As(err, &exit) || exit.ExitCode() == usage) {
		t.Fatalf("%s: %v", command, err)
	}
	text := messageID.ReplaceAllString(string(out), "id: 4711")
	text = eventTime.ReplaceAllString(text, "2026-11-27T10:00:00.000Z ")
	return serial.ReplaceAllString(text, "1795235076 7200 ")
}
