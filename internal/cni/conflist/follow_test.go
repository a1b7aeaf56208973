package conflist

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"portolan.dev/portolan/test/await"
)

// lines is a log that a test reads.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}

const (
	otherNet = `{"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "ptp"}]}`
	joined   = `{"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "ptp"},{"type":"portolan","socket":"/s"}]}`
)

func follow(t *testing.T, dir string) (Config, *lines) {
	t.Helper()
	cfg := Config{ConfDir: dir, BinDir: t.TempDir(), Socket: "/s", Program: filepath.Join(directory(t, map[string]string{"p": "x"}), "p")}
	log := new(lines)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- Follow(ctx, cfg, slog.New(slog.NewTextHandler(log, nil))) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Follow: %v", err)
		}
	})
	return cfg, log
}

func awaitText(t *testing.T, path, want string) {
	t.Helper()
	await.NoError(t, func() error {
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			return fmt.Errorf("%s: %s, %w", path, text, err)
		}
		return nil
	})
}

func awaitLog(t *testing.T, log *lines, want string) {
	t.Helper()
	await.NoError(t, func() error {
		if log.count(want) == 0 {
			return errors.New("nothing logged about " + want)
		}
		return nil
	})
}

// TestFollow: the plugin comes into each configuration that the runtime is going to load.
func TestFollow(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "net.d") // the other network's installer has not run yet
	cfg, log := follow(t, dir)
	awaitLog(t, log, "no network configuration")
	must(t, os.Mkdir(dir, 0o700))
	net := filepath.Join(dir, "10-net.conflist")
	must(t, os.WriteFile(net, []byte(otherNet), 0o600))
	awaitText(t, net, joined)

	must(t, os.WriteFile(net, []byte(otherNet), 0o600)) // its installer runs again
	awaitText(t, net, joined)
	must(t, os.WriteFile(net, []byte(otherNet[:40]), 0o600)) // and again, in two steps
	awaitLog(t, log, "is empty or cut off")
	must(t, os.WriteFile(net, []byte(otherNet), 0o600))
	awaitText(t, net, joined)

	first := filepath.Join(dir, "05-first.conflist") // a new network
	must(t, os.WriteFile(first, []byte(otherNet), 0o600))
	awaitText(t, first, joined)
	must(t, os.Remove(first))
	must(t, os.Remove(filepath.Join(cfg.BinDir, "portolan")))
	must(t, os.WriteFile(net, []byte(otherNet), 0o600))
	awaitText(t, net, joined)
	awaitText(t, filepath.Join(cfg.BinDir, "portolan"), "x")
}

// TestFollowContested: a program that undoes each change is not followed at its pace.
func TestFollowContested(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	net := filepath.Join(dir, "05-cilium.conflist")
	must(t, os.WriteFile(net, []byte(otherNet), 0o600))
	_, log := follow(t, dir)
	const changed = "the CNI plugin is in the configuration"
	const reported = "again and again"
	for log.count(reported) == 0 {
		await.NoError(t, func() error {
			if text, _ := os.ReadFile(net); string(text) != joined && log.count(reported) == 0 {
				return errors.New("neither repaired nor reported")
			}
			return nil
		})
		must(t, os.WriteFile(net, []byte(otherNet), 0o600))
	}
	if n := log.count(changed); n != contestCount+1 {
		t.Errorf("%d changes before it is reported, want %d", n, contestCount+1)
	}
}

// TestFollowObserved: a configuration that the plugin cannot be in is reported, and when it can.
func TestFollowObserved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	net := filepath.Join(dir, "10-net.conflist")
	must(t, os.WriteFile(net, []byte(strings.Replace(otherNet, "1.0.0", "0.2.0", 1)), 0o600))
	var last atomic.Value
	program := filepath.Join(directory(t, map[string]string{"p": "x"}), "p")
	cfg := Config{ConfDir: dir, BinDir: t.TempDir(), Socket: "/s", Program: program,
		Observe: func(err error) { last.Store(fmt.Sprint(err)) }}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- Follow(ctx, cfg, slog.New(slog.DiscardHandler)) }()
	observed := func(want string) {
		t.Helper()
		await.NoError(t, func() error {
			if text, _ := last.Load().(string); !strings.Contains(text, want) {
				return fmt.Errorf("Observe was called with %q, want %q", text, want)
			}
			return nil
		})
	}
	observed(`cniVersion "0.2.0"`)
	must(t, os.WriteFile(net, []byte(otherNet), 0o600))
	observed("<nil>")
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Follow: %v", err)
	}
}

// TestFollowOwn: the list of the own network is there, is repaired, and goes.
func TestFollowOwn(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "net.d")
	cfg := Config{
		ConfDir: dir, BinDir: t.TempDir(), Socket: "/s", Own: "05-own.conflist",
		Program: filepath.Join(directory(t, map[string]string{"p": "x"}), "p"),
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- Follow(ctx, cfg, slog.New(slog.DiscardHandler)) }()
	file := filepath.Join(dir, "05-own.conflist")
	const want = `{
  "cniVersion": "1.1.0",
  "name": "portolan",
  "plugins": [
    {"type": "portolan", "socket": "/s", "capabilities": {"portMappings": true, "bandwidth": true}}
  ]
}
`
	awaitText(t, file, want)
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	awaitText(t, file, want)
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Follow: %v", err)
	}
	if changed, err := Leave(cfg); len(changed) > 0 || err != nil {
		t.Errorf("Leave: %v, %v, want nothing: it is no other network's", changed, err)
	}
	for _, want := range []string{file, ""} {
		if got, err := RemoveOwn(cfg); got != want || err != nil {
			t.Errorf("RemoveOwn: %q, %v, want %q", got, err, want)
		}
	}
}

// TestFollowOwnWords: what is logged of the own network is what happens to its Pods, which have no policies to wait for.
func TestFollowOwnWords(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "net.d")
	must(t, os.WriteFile(dir, nil, 0o600)) // no directory can be made
	cfg := Config{
		ConfDir: dir, BinDir: t.TempDir(), Socket: "/s", Own: "05-own.conflist",
		Program: filepath.Join(directory(t, map[string]string{"p": "x"}), "p"),
	}
	log := new(lines)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- Follow(ctx, cfg, slog.New(slog.NewTextHandler(log, nil))) }()
	awaitLog(t, log, `msg="the CNI plugin cannot be installed" effect="Pods cannot start meanwhile"`)
	must(t, os.Remove(dir))
	awaitLog(t, log, "the CNI plugin can be installed again")
	file := filepath.Join(dir, "05-own.conflist")
	const reported = "again and again"
	for log.count(reported) == 0 {
		await.NoError(t, func() error {
			if text, _ := os.ReadFile(file); string(text) != string(cfg.own()) && log.count(reported) == 0 {
				return errors.New("neither repaired nor reported")
			}
			return nil
		})
		must(t, os.WriteFile(file, []byte("{}"), 0o600))
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Follow: %v", err)
	}
	if log.count(`effect="Pods cannot start meanwhile"`) != 2 || log.count("polic") > 0 {
		t.Errorf("the log says\n%s", &log.text)
	}
}
