package explain

import (
	"path/filepath"
	"strings"
	"testing"

	"portolan.dev/portolan/bench/synthetic"
)

// newTestProcess returns a process with a cluster of some Services.
func newTestProcess(tb testing.TB, services int) *process {
	tb.Helper()
	paths := &synthetic.Paths{Namespaces: 10, Services: services, Policies: services / 10, Routes: services / 10}
	dir := tb.TempDir()
	if err := paths.WriteManifests(filepath.Join(dir, "cluster.yaml")); err != nil {
		tb.Fatal(err)
	}
	p, err := newProcess(tb.Context(), paths, settingsOf(dir))
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// TestExplanations: what is measured is explained to the end.
func TestExplanations(t *testing.T) {
	t.Parallel()
	p := newTestProcess(t, 100)
	for k, want := range map[kind]string{toURL: "httproute ns-003/site-3 rule 0 takes it", toService: "1 of 1 endpoints used"} {
		w, err := p.way(k, 3)
		if err != nil {
			t.Fatal(err)
		}
		e, err := p.pods.Path(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		var says []string
		for _, s := range e.Steps {
			says = append(says, s.Says)
		}
		if text := strings.Join(says, "; "); !strings.Contains(text, want) {
			t.Errorf("%s: %s, want %q in it", k, text, want)
		}
	}
}

func BenchmarkPath(b *testing.B) {
	p := newTestProcess(b, 10_000)
	for k := range kinds {
		for _, changing := range []bool{false, true} {
			name := strings.ReplaceAll(k.String(), " ", "-")
			if changing {
				name += "-after-a-change"
			}
			b.Run(name, func(b *testing.B) {
				b.ReportAllocs()
				for n := 0; b.Loop(); n++ {
					if changing {
						p.change(n % p.paths.Services)
					}
					if _, err := p.explain(b.Context(), k, n%p.paths.Services); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
