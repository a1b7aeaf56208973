package app

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
)

type openGate struct{}

func (openGate) Hold(netip.Addr, []byte, []byte) (wait func(context.Context)) { return nil }

// TestGateStays: new settings leave the Gate in place.
func TestGateStays(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	d, err := New(Config{Settings: cfg, Store: cluster.NewStore(), Log: slog.New(slog.DiscardHandler), Gate: openGate{}})
	if err != nil {
		t.Fatal(err)
	}
	cfg.DNS.UDPSize = 1400
	if err := d.Reconfigure(cfg); err != nil {
		t.Fatal(err)
	}
	if d.current.Load().wiring.Gate == nil || d.newest.wiring.Gate == nil || d.newest == d.current.Load() {
		t.Errorf("answers without a Gate: %v at first, %v after new settings", d.current.Load().wiring.Gate, d.newest.wiring.Gate)
	}
}
