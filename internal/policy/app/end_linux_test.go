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

// TestEndServesNetwork: a network in this process has sandboxes admitted and released while the agent ends, until it
// says that it is done.
func TestEndServesNetwork(t *testing.T) {
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return
	}
	settings := config.Default()
	settings.Policy.CNI.Socket, settings.Policy.CNI.Install = filepath.Join(t.TempDir(), "s"), false
	p, err := New(Config{
		Settings: settings, Store: cluster.NewStore(), Node: "n1", Loaded: func() {}, Linked: true,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Bind(t.Context()); err != nil {
		t.Fatal(err)
	}
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
	settings := config.Default()
	settings.Policy.CNI.Socket, settings.Policy.CNI.Install = filepath.Join(t.TempDir(), "s"), false
	run := func() (p *Policy) {
		p, err := New(Config{
			Settings: settings, Store: cluster.NewStore(), Node: "n1", Loaded: func() {}, Linked: true,
			Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Bind(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			p.Admission().End()
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("Run: %v", err)
			}
			p.Close()
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
	settings := config.Default()
	settings.Policy.CNI.Socket, settings.Policy.CNI.Install = filepath.Join(t.TempDir(), "s"), false
	var log bytes.Buffer // read when nothing writes any more
	p, err := New(Config{
		Settings: settings, Store: cluster.NewStore(), Node: "n1", Loaded: func() {},
		Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Bind(t.Context()); err != nil {
		t.Fatal(err)
	}
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
