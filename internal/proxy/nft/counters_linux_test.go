package nft_test

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/nft"
)

// TestConnections checks that connections are counted, whatever becomes of them; that counts
// outlast changes of endpoints and restarts, and go with the frontend.
func TestConnections(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	w.serve()
	counting := func(cfg *nft.Config) { cfg.Counters = true }
	plain, state := w.table(nil), new(frontend.State)
	for _, f := range families {
		state.Frontends = append(
			state.Frontends, tcp(vip(f, 1), frontend.Plain, endpoints(f, 3)...), tcp(vip(f, 2), frontend.Plain),
		)
	}
	elements := w.sync(plain, state)
	if list := w.list(); strings.Contains(list, "counter") {
		t.Errorf("without Counters there are some:\n%s", list)
	}
	plain.Close()
	table := w.table(counting)
	if n := w.sync(table, state); n != elements+len(state.Frontends) {
		t.Errorf("with Counters, another layout, Sync changed %d elements, want %d", n, elements+len(state.Frontends))
	}
	want := make(map[frontend.Address]uint64)
	for _, front := range state.Frontends {
		want[front.Address] = 0
	}
	check := func(when string) {
		t.Helper()
		got, err := nft.Connections(nft.Config{Families: []nft.Family{nft.IPv4, nft.IPv6}})
		must(t, err)
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	connect := func() {
		for i, front := range state.Frontends {
			for range i + 1 {
				f := 0
				if front.Addr.Is6() {
					f = 1
				}
				w.dial(w.pod, podClient[f], netip.AddrPortFrom(front.Addr, front.Port))
				want[front.Address]++
			}
		}
	}
	check("at first")
	connect()
	check("after connections")
	changed := *state.Frontends[0]
	changed.Endpoints = changed.Endpoints[:2]
	must(t, apply(table, &frontend.Changes{Put: []*frontend.Frontend{&changed}}))
	state.Frontends[0] = &changed
	connect()
	check("after a change of endpoints")
	counted := fmt.Sprintf("10.96.0.1 . tcp . 80 counter packets %d bytes", want[tcp(vip(0, 1), frontend.Plain).Address])
	if list := w.list(); !strings.Contains(list, counted) {
		t.Errorf("nft lists no %q:\n%s", counted, list)
	}
	table.Close()
	table = w.table(counting)
	if n := w.sync(table, state); n != 0 {
		t.Errorf("a restart changed %d elements", n)
	}
	connect()
	check("after a restart")
	gone := state.Frontends[1].Address
	must(t, apply(table, &frontend.Changes{Delete: []frontend.Address{gone}}))
	delete(want, gone)
	check("after a frontend was deleted")
}
