package nft_test

import (
	"net/netip"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/proxy/frontend"
)

// TestHashedPackets connects through frontends that choose by hash, and compares each endpoint
// with the evaluator's, while endpoints come and go.
func TestHashedPackets(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	w.serve()
	table, state := w.table(nil), new(frontend.State)
	for _, f := range families {
		for i, choice := range []frontend.Choice{frontend.ClientHash, frontend.ConnectionHash} {
			front := tcp(vip(f, i+1), frontend.Plain, endpoints(f, 3)...)
			front.Choice = choice
			local := tcp(vip(f, i+3), frontend.ExternalLocal, endpoints(f, 3)...)
			local.Choice, local.Local = choice, endpoints(f, 2)
			state.Frontends = append(state.Frontends, front, local)
		}
	}
	w.sync(table, state)
	t.Log(w.list())
	evaluator := frontend.NewEvaluator(frontend.Node{Pods: frontend.Pods{CIDRs: podCIDRs}}, state)
	for round := range 3 {
		for _, f := range families {
			seen := make(map[netip.AddrPort]bool)
			for i := range 40 {
				source := netip.AddrPortFrom(outClient[f], uint16(20000+1000*round+i))
				to := frontend.Address{Addr: vip(f, 1+i%4), Protocol: frontend.TCP, Port: 80}
				want := evaluator.Forward(frontend.Connection{Source: source.Addr(), SourcePort: source.Port(), To: to}).Chosen
				got := w.dialFrom(w.outside, source, netip.AddrPortFrom(to.Addr, to.Port))
				if got.err != "" || got.server != want || !want.IsValid() {
					t.Errorf("%s to %s: %s, want %s", source, to, got, want)
				}
				seen[got.server] = true
			}
			if len(seen) < 2 {
				t.Errorf("all connections go to %v", seen)
			}
		}
		changes := new(frontend.Changes)
		for _, front := range state.Frontends {
			changed := *front
			changed.Endpoints = changed.Endpoints[round : 3-round/2]
			changes.Put = append(changes.Put, &changed)
		}
		must(t, apply(table, changes))
		evaluator.Apply(changes)
	}
	if n := w.sync(table, evaluator.State()); n != 0 {
		t.Errorf("a Sync of the same state changed %d elements", n)
	}
	if list := w.list(); !strings.Contains(list, "jhash") {
		t.Errorf("nft lists no hash:\n%s", list)
	}
	w.sync(table, new(frontend.State))
	if list := w.list(); strings.Contains(list, "jhash") {
		t.Errorf("chains that no frontend uses stay:\n%s", list)
	}
}

// TestWeightedPackets checks that endpoints get connections in the proportion of their slots, with
// each choice, and that a restart and changes of weights leave the slots in order.
func TestWeightedPackets(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	w.serve()
	table, state := w.table(nil), new(frontend.State)
	for i, choice := range []frontend.Choice{frontend.Random, frontend.ConnectionHash} {
		front := tcp(vip(0, i+1), frontend.Plain, endpoints(0, 2)...)
		front.Choice, front.Shares = choice, []uint8{5, 1}
		state.Frontends = append(state.Frontends, front)
	}
	w.sync(table, state)
	for _, shares := range [][]uint8{{5, 1}, {1, 3}} {
		changes := new(frontend.Changes)
		for i, front := range state.Frontends {
			changed := *front
			changed.Shares = shares
			changes.Put, state.Frontends[i] = append(changes.Put, &changed), &changed
		}
		must(t, apply(table, changes))
		table.Close()
		table = w.table(nil)
		if n := w.sync(table, state); n != 0 {
			t.Errorf("shares %d: a restart changed %d elements", shares, n)
		}
		for _, front := range state.Frontends {
			const connections = 300
			first, expected := 0, connections*int(shares[0])/int(shares[0]+shares[1])
			for range connections {
				if a := w.dial(w.pod, podClient[0], netip.AddrPortFrom(front.Addr, front.Port)); a.server == front.Endpoints[0] {
					first++
				} else if a.err != "" {
					t.Errorf("%s: %s", front.Choice, a)
				}
			}
			if likely := 50; first < expected-likely || first > expected+likely { // more than six standard deviations
				t.Errorf("%s, shares %d: %d of %d connections go to the first, want %d±%d", front.Choice, shares, first, connections, expected, likely)
			}
		}
	}
}
