package flows

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

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

func (entries) Delete(_ ctnetlink.Family, all []ctnetlink.Identity) (int, error) {
	return len(all), nil
}
func (entries) Close() error { return nil }

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
		Denied: func(all []ruleset.Flow) []Denial {
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

// TestShares verifies that a Namespace whose policy ends more flows than the kernel can be told to drop leaves
// room for those of others, also if theirs come later, and that all are deleted.
func TestShares(t *testing.T) {
	t.Parallel()
	noisy, quiet := netip.MustParseAddr("10.244.1.7"), netip.MustParseAddr("10.244.1.8")
	flows := func(pod netip.Addr, n int) (all entries) {
		for i := range n {
			var e ctnetlink.Entry
			e.Original.Source = netip.AddrPortFrom(pod, uint16(i))
			e.Reply.Source = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i >> 16)}), 80)
			all = append(all, e)
		}
		return all
	}
	cut := make(map[netip.Addr]int)
	c := New(Config{
		Denied: func(all []ruleset.Flow) (denials []Denial) {
			for i, f := range all {
				denials = append(denials, Denial{Flow: i, Share: f.Client.Addr().String()})
			}
			return denials
		},
		Cut: func(all []ruleset.Flow) error {
			for _, f := range all {
				cut[f.Client.Addr()]++
			}
			return nil
		},
		CutTime: time.Hour, Log: slog.New(slog.DiscardHandler),
	})
	const many, few = maxHeld + 1, maxHeld / 8
	var p Pass
	if err := c.cut(flows(noisy, many), ctnetlink.IPv4, &p); err != nil || p.Cut != many || p.Uncut != many-maxHeld/2 {
		t.Errorf("cut: %v, %+v, want %d ended", err, p, many)
	}
	p = Pass{}
	if err := c.cut(flows(quiet, few), ctnetlink.IPv4, &p); err != nil || p.Cut != few || p.Uncut != 0 {
		t.Errorf("cut: %v, %+v, want %d ended, and all cut", err, p, few)
	}
	if cut[noisy] != maxHeld/2 || cut[quiet] != few {
		t.Errorf("the kernel is told to drop %v flows, want %d and %d", cut, maxHeld/2, few)
	}
}

// BenchmarkCut measures a look at 100,000 entries, one in a hundred of the node's Pods.
func BenchmarkCut(b *testing.B) {
	pod := netip.MustParseAddr("10.244.1.7")
	all := newEntries(100_000, pod)
	c := New(Config{
		IsPod:  func(a netip.Addr) bool { return a == pod },
		Denied: func([]ruleset.Flow) []Denial { return nil },
		Log:    slog.New(slog.DiscardHandler),
	})
	b.ReportAllocs()
	for b.Loop() {
		if err := c.cut(all, ctnetlink.IPv4, new(Pass)); err != nil {
			b.Fatal(err)
		}
	}
}
