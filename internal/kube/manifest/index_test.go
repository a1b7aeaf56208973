package manifest

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
)

// TestChangesEqualReload changes files at random and compares the model, and
// what is reported, with those of a Source that reads the same tree from
// scratch.
func TestChangesEqualReload(t *testing.T) {
	t.Parallel()
	for _, simulated := range []bool{false, true} {
		for seed := range uint64(6) {
			r := rand.New(rand.NewPCG(seed, 1))
			w := newWorld(t)
			if simulated {
				w.source.cfg.ControlPlane = idle{}
			}
			for step := range 60 {
				for range 1 + r.IntN(3) {
					path := filepath.Join(w.dir, fmt.Sprintf("%d.yaml", r.IntN(5)))
					if r.IntN(5) == 0 {
						_ = os.Remove(path) // it may be absent
						continue
					}
					w.must(os.WriteFile(path, []byte(randomManifest(r)), 0o600))
					// The step is finer than what time stamps tell apart.
					w.must(os.Chtimes(path, time.Time{}, time.Unix(int64(1000*step), int64(r.IntN(1e9)))))
				}
				got := w.load()
				fresh := New(Config{Path: w.dir, Store: cluster.NewStore(), Log: slog.New(slog.DiscardHandler), ControlPlane: w.source.cfg.ControlPlane})
				want, err := fresh.Load()
				w.must(err)
				if d := cmp.Diff(dump(fresh.cfg.Store), dump(w.store)); d != "" {
					t.Fatalf("simulated %t, seed %d, step %d: model: (-reload +changes)\n%s", simulated, seed, step, d)
				}
				if d := cmp.Diff(texts(want), texts(got)); d != "" {
					t.Fatalf("simulated %t, seed %d, step %d: report: (-reload +changes)\n%s", simulated, seed, step, d)
				}
			}
		}
	}
}

// randomManifest has a few objects of few names, so that they meet those of
// other files.
func randomManifest(r *rand.Rand) string {
	var text strings.Builder
	for range r.IntN(4) {
		name, ns := []string{"a", "b"}[r.IntN(2)], []string{"x", "y"}[r.IntN(2)]
		text.WriteString("---\n")
		switch r.IntN(7) {
		case 0:
			fmt.Fprintf(&text, "{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {l: '%d'}}}\n", ns, r.IntN(2))
		case 1:
			fmt.Fprintf(&text, "{apiVersion: v1, kind: Service, metadata: {name: %s, namespace: %s}, spec: {clusterIP: 10.0.0.%d}}\n", name, ns, 1+r.IntN(2))
		case 2:
			fmt.Fprintf(&text, "{apiVersion: v1, kind: Service, metadata: {name: %s, namespace: %s}, spec: {selector: {app: web}}}\n", name, ns)
		case 3:
			fmt.Fprintf(&text, "{apiVersion: v1, kind: Endpoints, metadata: {name: %s, namespace: %s}, subsets: [{addresses: [{ip: 192.0.2.%d}]}]}\n", name, ns, r.IntN(3))
		case 4:
			slice := []string{"a-mirror-0-ipv4", "own"}[r.IntN(2)]
			fmt.Fprintf(&text, "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: %s, namespace: %s, labels: {kubernetes.io/service-name: %s}}, addressType: IPv4, endpoints: []}\n", slice, ns, name)
		case 5:
			fmt.Fprintf(&text, "{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s}}\n", name, ns)
		case 6:
			fmt.Fprintf(&text, "{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: %s}}\n", name, ns)
		}
	}
	return text.String()
}

// dump returns the objects of a Store as text, sorted.
func dump(store *cluster.Store) (lines []string) {
	store.View(func(v *cluster.View) {
		for _, k := range cluster.Kinds() {
			for o := range v.Objects(k) {
				text, err := json.Marshal(o)
				lines = append(lines, fmt.Sprintf("%s %s %v", o.Ref(), text, err))
			}
		}
	})
	slices.Sort(lines)
	return lines
}

// texts returns what stands in a report as text.
func texts(r Report) []string {
	lines := []string{fmt.Sprintf("%d objects, %d passed over, %d no objects", r.Objects, r.PassedOver, r.NotObjects)}
	for _, p := range r.Problems {
		lines = append(lines, p.Error())
	}
	return lines
}
