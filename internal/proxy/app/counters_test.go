package app

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/nft"
	"portolan.dev/portolan/internal/proxy/plan"
)

// TestCountersDelayNoChange checks that the worker can record owners while the kernel is read,
// which takes long in large clusters.
func TestCountersDelayNoChange(t *testing.T) {
	t.Parallel()
	at := frontend.Address{Addr: netip.MustParseAddr("10.96.0.1"), Protocol: frontend.TCP, Port: 80}
	c := newCounters(slog.New(slog.DiscardHandler))
	c.config.Families = []nft.Family{nft.IPv4}
	c.owners = map[frontend.Address]servicePort{at: {cluster.Key{Namespace: "shop", Name: "web"}, "http", "tcp", plan.ClusterIP}}
	c.connections = func(nft.Config) (map[frontend.Address]uint64, error) {
		if !c.mu.TryLock() {
			t.Error("Collect holds the lock of changes while it reads the kernel")
		} else {
			c.mu.Unlock()
		}
		return map[frontend.Address]uint64{at: 3}, nil
	}
	metrics := make(chan prometheus.Metric, 2)
	c.Collect(metrics)
	if len(metrics) != 1 {
		t.Errorf("Collect sent %d metrics, want 1", len(metrics))
	}
}

// TestCountersAreReadSeldom checks that the kernel is read once in 5 s, however often metrics are
// collected and even if it cannot be read.
func TestCountersAreReadSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCounters(slog.New(slog.DiscardHandler))
		c.config.Families = []nft.Family{nft.IPv4}
		began := time.Now()
		var reads []time.Duration
		c.connections = func(nft.Config) (map[frontend.Address]uint64, error) {
			reads = append(reads, time.Since(began))
			if len(reads) == 2 {
				return nil, errors.New("interrupted")
			}
			return nil, nil
		}
		for time.Since(began) <= 15*time.Second {
			c.Collect(make(chan prometheus.Metric))
			time.Sleep(100 * time.Millisecond)
		}
		if want := seconds(0, 5, 10, 15); !slices.Equal(reads, want) {
			t.Errorf("the kernel is read after %v, want %v", reads, want)
		}
	})
}
