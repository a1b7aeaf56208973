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

// FuzzManifests checks that any manifests load without a crash, that no two objects share
// an address, and that loading the same manifests again gives the same result.
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
		first := w.allocated()
		fresh := newWorld(t, small, nil)
		fresh.load(map[string]string{"b.yaml": text})
		if again := fresh.allocated(); !maps.Equal(first, again) {
			t.Errorf("the same manifests gave\n%v\nand then\n%v", first, again)
		}
		w.load(nil)
		if left := w.allocated(); len(left) > 1 {
			t.Errorf("after all manifests are deleted, there are still %v", left)
		}
	})
}

// allocated returns the allocated addresses and their holders. It fails the test if two objects
// share one.
func (w *world) allocated() map[netip.Addr]cluster.Key {
	users := make(map[netip.Addr]cluster.Key)
	use := func(key cluster.Key, addrs []netip.Addr) {
		for _, addr := range addrs {
			if other, used := users[addr]; used {
				w.t.Errorf("%s and %s share the address %s", key, other, addr)
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
