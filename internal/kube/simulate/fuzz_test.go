package simulate_test

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/simulate"
)

// FuzzManifests: whatever is declared, nothing breaks, no two have one address,
// and the same comes of it again.
func FuzzManifests(f *testing.F) {
	for _, pattern := range []string{"../../../examples/*/*/*.yaml", "../../../examples/*/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(string(text))
		}
	}
	f.Add(workload("StatefulSet", "db", "replicas: -3\nordinals: {start: 2147483647}"))
	f.Add(workload("Job", "x", "parallelism: -1\ncompletions: 2147483647\ncompletionMode: Indexed"))
	f.Fuzz(func(t *testing.T, text string) {
		small := settings(func(c *simulate.Config) { c.PodRanges = prefixes("10.244.0.0/24", "fd00::/112") })
		w := newWorld(t, small, nil)
		w.load(map[string]string{"a.yaml": text})
		first := w.all()
		fresh := newWorld(t, small, nil)
		fresh.load(map[string]string{"b.yaml": text})
		if again := fresh.all(); !maps.Equal(first, again) {
			t.Errorf("the same manifests gave\n%v\nand then\n%v", first, again)
		}
		w.load(nil)
		if left := w.all(); len(left) > 1 {
			t.Errorf("when they are gone there is %v", left)
		}
	})
}

// all are the addresses that were made up, and whose they are; no two may have
// one.
func (w *world) all() map[netip.Addr]cluster.Key {
	users := make(map[netip.Addr]cluster.Key)
	use := func(key cluster.Key, addrs []netip.Addr) {
		for _, addr := range addrs {
			if other, used := users[addr]; used {
				w.t.Errorf("%s is that of %s and of %s", addr, key, other)
			}
			users[addr] = key
		}
	}
	w.store.View(func(v *cluster.View) {
		for s := range v.Services() {
			use(s.Key, s.ClusterIPs)
		}
		for p := range v.Pods() {
			if p.Simulated && (p.Spec == nil || !p.Spec.HostNetwork) {
				use(p.Key, p.IPs)
			}
		}
	})
	return users
}
