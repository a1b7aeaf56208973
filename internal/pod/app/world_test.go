package app

import (
	"log/slog"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	dnsapp "portolan.dev/portolan/internal/dns/app"
	"portolan.dev/portolan/internal/kube/source"
)

// world is a cluster read once from manifests.
type world struct {
	*Inspector
	loaded source.Loaded
}

func newWorld(t *testing.T, c config.Config) *world {
	t.Helper()
	store, log := cluster.NewStore(), slog.New(slog.DiscardHandler)
	served := c
	served.DNS.Forward.Routes = nil // the model answers, and forwards nothing
	dns, err := dnsapp.New(dnsapp.Config{Settings: served, Store: store, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	src, err := source.New(source.Config{Settings: c, Scope: source.Whole, Store: store, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	w := new(world)
	if w.loaded, err = src.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	dns.Compile()
	if w.Inspector, err = New(c, store, dns.Responder()); err != nil {
		t.Fatal(err)
	}
	return w
}
