package secondary

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/forward"
)

// found is a Finder with a fixed result.
type found struct {
	servers []forward.Upstream
	err     error
}

func (f *found) Find(context.Context) ([]forward.Upstream, error) { return f.servers, f.err }

func someServers(n int) (all []forward.Upstream) {
	for i := range n {
		all = append(all, forward.Upstream{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}), 53), Transport: forward.TCP})
	}
	return all
}

func newChooser(t *testing.T, node string, f *found) *Secondary {
	t.Helper()
	r, err := New(Config{Zones: testZones, Node: node, Finder: f, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestChoosePrimary checks that nodes spread over primaries regardless of their order,
// that few change when one goes, and that a failed one is the last choice.
func TestChoosePrimary(t *testing.T) {
	const nodes = 900
	all := someServers(3)
	count := make(map[forward.Upstream]int)
	moved := 0
	for i := range nodes {
		f := &found{servers: all}
		r := newChooser(t, fmt.Sprintf("node-%d", i), f)
		first, wait, ok := r.choose(t.Context(), time.Now())
		if !ok || wait != 0 {
			t.Fatalf("choose() waits %v, %v", wait, ok)
		}
		count[first]++
		f.servers = slices.Clone(all)
		slices.Reverse(f.servers)
		if again, _, _ := r.choose(t.Context(), time.Now()); again != first {
			t.Fatalf("%v is chosen, and %v where they come in another order", first, again)
		}
		f.servers = all[:2]
		if less, _, _ := r.choose(t.Context(), time.Now()); less != first {
			if first != all[2] {
				t.Fatalf("%v is left though it is there", first)
			}
			moved++
		}
		f.servers = all
		r.fail(first, errors.New("gone"))
		if next, wait, _ := r.choose(t.Context(), time.Now()); next == first || wait != 0 {
			t.Fatalf("%v is chosen, which failed", next)
		}
	}
	for s, n := range count {
		if n < nodes/3-90 || n > nodes/3+90 {
			t.Errorf("%v has %d of %d nodes", s, n, nodes)
		}
	}
	if moved != count[all[2]] {
		t.Errorf("%d nodes left the server that went, of %d", moved, count[all[2]])
	}
}

// TestRetriesAfterAllFail checks that the primary that failed first is retried first, after
// a growing but bounded pause, and that there is a pause without any primary.
func TestRetriesAfterAllFail(t *testing.T) {
	f := &found{servers: someServers(2)}
	r := newChooser(t, "node", f)
	for range 20 {
		for _, s := range f.servers {
			r.fail(s, errors.New("gone"))
		}
	}
	s, wait, ok := r.choose(t.Context(), time.Now())
	if !ok || wait < maxPause/3 || wait > maxPause {
		t.Errorf("choose() = %v, %v, %v, want a wait of about %v", s, wait, ok, maxPause)
	}
	f.err = errors.New("no resolver")
	f.servers = nil
	if _, _, ok := r.choose(t.Context(), time.Now()); !ok {
		t.Error("servers are forgotten when they can't be found")
	}
	none := newChooser(t, "node", &found{})
	if _, wait, ok := none.choose(t.Context(), time.Now()); ok || wait <= 0 {
		t.Errorf("without servers: wait %v, %v", wait, ok)
	}
}

// TestNotifyEndsThePause checks that a NOTIFY of a primary ends the pause after its
// failure.
func TestNotifyEndsThePause(t *testing.T) {
	p := newPrimary(t, "a.ns.dns.cluster.local")
	s := newServer(t, p, nil)
	cfg := testConfig(s)
	hang := func(int, []byte) []byte { return nil }
	s.spoil.Store(&hang)
	r := run(t, cfg)
	r.wait("many failures", func() bool { return r.Status().Counters.Failures >= 4 })
	s.spoil.Store(nil)
	began := time.Now()
	r.wait("current", func() bool {
		r.Notify([]byte(clusterZone.WireLabels()), s.addr().Addr(), false)
		return r.current(p)
	})
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %v", took)
	}
}
