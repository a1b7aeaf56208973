package nft_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"portolan.dev/portolan/internal/policy/nft"
	"portolan.dev/portolan/internal/policy/ruleset"
)

// TestCutFull cuts as many flows as there is room for. The next one is refused, also after
// a Sync, until one is not cut any more.
func TestCutFull(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	table := w.table()
	must(t, table.Sync(rules(nil, nil)))
	var all []ruleset.Flow
	for i := range nft.MaxCut + 1 {
		all = append(all, ruleset.Flow{
			Protocol: ruleset.TCP, Server: netip.AddrPortFrom(outside[0], 443),
			Client: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, 2, byte(i >> 16)}), uint16(i)),
		})
	}
	for some := range slices.Chunk(all[:nft.MaxCut], 4096) {
		must(t, table.Cut(some))
	}
	next := all[nft.MaxCut:]
	if err := table.Cut(next); !errors.Is(err, nft.ErrCutFull) {
		t.Fatalf("Cut of one flow more: %v, want %v", err, nft.ErrCutFull)
	}
	must(t, table.Sync(rules(nil, nil)))
	if err := table.Cut(next); !errors.Is(err, nft.ErrCutFull) {
		t.Fatalf("Cut after a Sync: %v, want %v", err, nft.ErrCutFull)
	}
	must(t, table.Uncut(all[:1]))
	must(t, table.Cut(next))
}
