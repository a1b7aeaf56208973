package synthetic_test

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"portolan.dev/portolan/bench/synthetic"
	model "portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/source"
)

func cluster() *synthetic.Cluster {
	return &synthetic.Cluster{Namespaces: 3, Services: [synthetic.Kinds]int{7, 3, 2, 4, 2}, Pods: 2}
}

func TestManifestsAreTheSameEachTime(t *testing.T) {
	write := func() []byte {
		file := filepath.Join(t.TempDir(), "cluster.yaml")
		if err := cluster().WriteManifests(file); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	one := write()
	if !bytes.Equal(one, write()) {
		t.Error("two files differ")
	}
	const wide = 5 // EndpointSlices of 100
	if got, want := bytes.Count(one, []byte("---\n")), 3+2*(7+3+2+4)+2+2*wide; got != want {
		t.Errorf("%d objects, want %d", got, want)
	}
}

func TestEachEndpointHasAnAddressOfItsOwn(t *testing.T) {
	c := cluster()
	seen := make(map[string]bool)
	for o := range c.AllSlices() {
		for _, e := range o.Endpoints {
			if seen[e.Addresses[0]] {
				t.Errorf("%s is there twice", e.Addresses[0])
			}
			seen[e.Addresses[0]] = true
		}
	}
	want := 0
	for k, n := range c.Services {
		want += n * synthetic.Kind(k).Endpoints()
	}
	if len(seen) != want {
		t.Errorf("%d endpoints, want %d", len(seen), want)
	}
}

// TestRangesDoNotMeet checks that the address ranges do not overlap, for numbers as
// high as the flags may be set.
func TestRangesDoNotMeet(t *testing.T) {
	many := [synthetic.Kinds]int{100_000, 20_000, 100_000, 40_000, 1000}
	c := &synthetic.Cluster{Namespaces: 100, Services: many, Pods: 1_000_000}
	ends := []struct{ first, last netip.Addr }{
		{c.ClusterIP(0), c.ClusterIP(many[synthetic.ClusterIP] - 1)},
		{netip.MustParseAddr(c.Pod(0).Status.PodIP), netip.MustParseAddr(c.Pod(c.Pods - 1).Status.PodIP)},
	}
	for k, n := range many {
		kind := synthetic.Kind(k)
		ends = append(ends, struct{ first, last netip.Addr }{c.EndpointIP(kind, 0, 0), c.EndpointIP(kind, n-1, kind.Endpoints()-1)})
	}
	for i := 1; i < len(ends); i++ {
		if !ends[i-1].last.Less(ends[i].first) {
			t.Errorf("%s is not before %s", ends[i-1].last, ends[i].first)
		}
	}
}

// TestPaths checks that what paths need is there, and that all objects are different ones.
func TestPaths(t *testing.T) {
	for _, sliceless := range []bool{false, true} {
		p := &synthetic.Paths{Namespaces: 3, Services: 7, Policies: 5, Routes: 4, Sliceless: sliceless}
		file := filepath.Join(t.TempDir(), "paths.yaml")
		if err := p.WriteManifests(file); err != nil {
			t.Fatal(err)
		}
		store := model.NewStore()
		report, err := source.ReadFiles(source.Files{Paths: []string{file}}, store)
		if err != nil || len(report.Problems) > 0 {
			t.Fatal(err, report.Problems)
		}
		store.View(func(v *model.View) {
			for kind, want := range map[model.Kind]int{
				model.KindService: 7 + 2, model.KindPod: 7 + 1, model.KindNetworkPolicy: 5, model.KindHTTPRoute: 4,
			} {
				if got := v.Len(kind); got != want {
					t.Errorf("sliceless %t: %d of %s, want %d", sliceless, got, kind, want)
				}
			}
		})
	}
}
