package flows

import (
	"log/slog"
	"net/netip"
	"testing"

	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/support/ctnetlink"
)

// entries is a table of connection tracking.
type entries []ctnetlink.Entry

func (all entries) Each(f ctnetlink.Filter, each func(*ctnetlink.Entry)) error {
	if f.Family == ctnetlink.IPv6 {
		return nil
	}
	for i := range all {
		each(&all[i])
	}
	return nil
}

func (entries) Delete(ctnetlink.Family, []ctnetlink.Identity) (int, error) { return 0, nil }
func (entries) Close() error                                               { return nil }

// newEntries returns n flows, of which one in a hundred is of the Pod.
func newEntries(n int, pod netip.Addr) (all entries) {
	for i := range n {
		addr := netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})
		if i%100 == 0 {
			addr = pod
		}
		var e ctnetlink.Entry
		e.Original.Source, e.Reply.Source = netip.AddrPortFrom(addr, 1000), at("198.51.100.7:80")
		all = append(all, e)
	}
	return all
}

// TestJudgesOwnFlows checks that only flows with an end that policies judge are asked about.
func TestJudgesOwnFlows(t *testing.T) {
	t.Parallel()
	pod := netip.MustParseAddr("10.244.1.7")
	asked := 0
	c := New(Config{
		IsPod: func(a netip.Addr) bool { return a == pod },
		Denied: func(all []ruleset.Flow) []int {
			asked += len(all)
			return nil
		},
		Log: slog.New(slog.DiscardHandler),
	})
	if err := c.cut(newEntries(1000, pod), ctnetlink.IPv4, new(Pass)); err != nil || asked != 10 {
		t.Errorf("cut asked about %d flows, %v; want 10", asked, err)
	}
	asked = 0
	own := newEntries(100, pod)
	for i := range own { // answered by the Pod
		own[i].Original.Source, own[i].Reply.Source = own[i].Reply.Source, own[i].Original.Source
	}
	if err := c.cut(own, ctnetlink.IPv4, new(Pass)); err != nil || asked != 1 {
		t.Errorf("cut asked about %d flows to Pods, %v; want 1", asked, err)
	}
}

// BenchmarkCut measures a look at 100,000 entries, one in a hundred of the node's Pods.
func BenchmarkCut(b *testing.B) {
	pod := netip.MustParseAddr("10.244.1.7")
	all := newEntries(100_000, pod)
	c := New(Config{
		IsPod:  func(a netip.Addr) bool { return a == pod },
		Denied: func([]ruleset.Flow) []int { return nil },
		Log:    slog.New(slog.DiscardHandler),
	})
	b.ReportAllocs()
	for b.Loop() {
		if err := c.cut(all, ctnetlink.IPv4, new(Pass)); err != nil {
			b.Fatal(err)
		}
	}
}
