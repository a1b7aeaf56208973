package node

import (
	"testing"
	"time"

	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/test/netns/nodes"
)

func TestHeal(t *testing.T) {
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	queries := []nodes.Query{
		{Sent: at(0), Result: nodes.Lost},     // before the first mark
		{Sent: at(1500), Result: nodes.Lost},  // after the first mark
		{Sent: at(1600), Result: nodes.Right}, //
		{Sent: at(1980), Result: nodes.Lost},  // affected by the second mark
		{Sent: at(2100), Result: nodes.Failed},
	}
	got := heal(queries, []time.Time{at(1000), at(2000), at(3000)})
	if want := (rig.Spread{Median: .1, Least: 0, Most: .5}); got != want {
		t.Errorf("heal = %v, want %v", got, want)
	}
}

func TestBesideNoLoss(t *testing.T) {
	key := latencyKey{way: "way", libc: nodes.Musl, loss: 50}
	without := key
	without.loss = 0
	r := results{latencies: []latencies{
		{key: {p50: 3}, without: {p50: 2}},
		{key: {p50: 30}, without: {p50: 10}},
		{key: {p50: 8}, without: {p50: 8}},
	}}
	got, ok := r.besideNoLoss(key, p50)
	if want := (rig.Spread{Median: 1.5, Least: 1, Most: 3}); !ok || got != want {
		t.Errorf("besideNoLoss = %v, %t, want %v", got, ok, want)
	}
}

// TestNames checks that each fault and part names existing ways.
func TestNames(t *testing.T) {
	known := make(map[string]bool)
	for _, name := range wayNames() {
		known[name] = true
	}
	for _, f := range faults() {
		if len(f.ways) == 0 {
			t.Errorf("%s has no way", f.name)
		}
		for _, name := range f.ways {
			if !known[name] {
				t.Errorf("%s: no way %s", f.name, name)
			}
		}
	}
}
