package source

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
)

// TestMetrics checks that loaded kinds are live and counted.
func TestMetrics(t *testing.T) {
	settings := config.Default()
	settings.Manifests = filepath.Join(t.TempDir(), "web.yaml")
	manifest := "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {clusterIP: 10.96.0.7}\n"
	if err := os.WriteFile(settings.Manifests, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Settings: settings, Store: cluster.NewStore(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if late, remarks := s.Staleness(0); len(late)+len(remarks) > 0 {
		t.Errorf("Staleness() of manifests = %q, %q, want none", late, remarks)
	}
	collected := func() string {
		r := prometheus.NewPedanticRegistry()
		r.MustRegister(s)
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, f := range families {
			for _, m := range f.GetMetric() {
				b.WriteString(f.GetName())
				for _, l := range m.GetLabel() {
					b.WriteString(" " + l.GetValue())
				}
				if m.GetGauge().GetValue() == 1 {
					b.WriteString(" is 1")
				}
				b.WriteString("\n")
			}
		}
		return b.String()
	}
	if got, want := collected(), "portolan_source_state Service loading is 1\n"; !strings.Contains(got, want) {
		t.Errorf("before loading: %s\nwant %s", got, want)
	}
	if _, err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := collected()
	for _, want := range []string{"portolan_source_state Service live is 1", "portolan_source_state Service loading", "portolan_model_objects Service is 1"} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("after loading: %s\nwant %s", got, want)
		}
	}
}
