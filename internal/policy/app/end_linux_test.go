package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// withSocket returns settings with a socket of the test's own.
func withSocket(t *testing.T) config.Config {
	t.Helper()
	settings := config.Default()
	settings.Policy.CNI.Socket, settings.Policy.CNI.Install = filepath.Join(t.TempDir(), "s"), false
	return settings
}

// bound returns the Policy of Node n1 in an empty cluster, with its socket bound, until the test ends.
func bound(t *testing.T, cfg Config) *Policy {
	t.Helper()
	cfg.Store, cfg.Node, cfg.Loaded = cluster.NewStore(), "n1", func() {}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	if _, err := p.Bind(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestEndServesNetwork: a network in this process has sandboxes admitted and released while the agent ends, until it
// says that it is done.
func TestEndServesNetwork(t *testing.T) {
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return
	}
	p := bound(t, Config{Settings: withSocket(t), Linked: true, Log: slog.New(slog.DiscardHandler)})
	web := attachment("web-0", "u1", "10.244.1.7")
	web.Network = "pods"
	p.cfg.Store.Update(func(tx *cluster.Tx) {
		tx.Put(&cluster.Node{Name: "n1"})
		tx.Put(webPod("u1"))
		tx.SetFreshness(cluster.Live, p.Needs()...)
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	p.Admission().Begin()
	<-p.worker.loaded
	cancel()
	bounded, stop := context.WithTimeout(t.Context(), await.Answer)
	defer stop()
	if err := p.Admission().Admit(bounded, web.Sandbox, web.Addresses, attach.Device{Name: "ptl0", Index: 7}); err != nil {
		t.Errorf("Admit: %v", err)
	}
	if err := p.Admission().Release(bounded, web.ID); err != nil {
		t.Errorf("Release: %v", err)
	}
	p.Admission().End()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v", err)
	}
}

// TestBegin: the Policy of a process that does not make the network of its node leaves the lock of the table to another.
func TestBegin(t *testing.T) {
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return
	}
	settings := withSocket(t)
	run := func() *Policy {
		p := bound(t, Config{Settings: settings, Linked: true, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			p.Admission().End()
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("Run: %v", err)
			}
		})
		return p
	}
	first, second := run(), run()
	second.Admission().Begin()
	select {
	case <-second.owned:
	case <-time.After(await.Answer):
		t.Fatal("the process that makes the network does not get the table")
	}
	select {
	case <-first.owned:
		t.Error("the other one has it, too")
	default:
	}
}

// TestEndAnswersPlugin verifies that an ADD that waits for its Pod gets one clear error when the agent ends, and
// that its attachment is released from the kernel before.
func TestEndAnswersPlugin(t *testing.T) {
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return
	}
	settings := withSocket(t)
	var log bytes.Buffer // read when nothing writes any more
	p := bound(t, Config{
		Settings: settings, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	p.cfg.Store.Update(func(tx *cluster.Tx) {
		tx.Put(&cluster.Node{Name: "n1"})
		tx.SetFreshness(cluster.Live, p.Needs()...)
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended, answered := make(chan error, 1), make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	<-p.worker.loaded
	go func() {
		a := attachment("web-0", "u1", "10.244.1.7")
		a.Network = "pods"
		answered <- attach.Call(time.Now().Add(await.Patience), settings.Policy.CNI.Socket, attach.Request{
			Verb: attach.Admit, Sandbox: a.Sandbox, Addresses: []string{"10.244.1.7"},
		})
	}()
	await.NoError(t, func() error {
		if !p.worker.isPod(netip.MustParseAddr("10.244.1.7")) {
			return errors.New("the attachment is not in the kernel")
		}
		return nil
	})
	cancel()
	if err := <-answered; err == nil || err.Error() != attach.ErrStopped.Error() {
		t.Errorf("ADD: %v, want %v", err, attach.ErrStopped)
	}
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v", err)
	}
	if p.worker.isPod(netip.MustParseAddr("10.244.1.7")) {
		t.Error("the attachment is not released")
	}
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), `err="the agent ends"`) {
		t.Errorf("the log has %d lines, want one with the error:\n%s", n, &log)
	}
}
