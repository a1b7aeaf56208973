package source

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
)

// collected returns the metrics of a Source, a line each with labels; gauges say whether they are 1.
func collected(t *testing.T, s *Source) string {
	t.Helper()
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

// TestInvalidObjects checks that invalid objects are counted, whether they are in use or not, and whenever they become
// invalid.
func TestInvalidObjects(t *testing.T) {
	settings := config.Default()
	settings.Manifests = t.TempDir()
	for name, text := range map[string]string{
		"broken.yaml": "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: db, namespace: shop\n",
		"nameless.yaml": "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {namespace: shop}\n---\n" +
			"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: 3, namespace: shop}\n",
		"types.yaml": "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: api, namespace: shop}\nspec: 3\n",
		"policy.yaml": "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: web, namespace: shop}\n" +
			"spec: {ingress: [{ports: [{port: 0}, {port: 0}]}]}\n",
		"service.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {clusterIP: web}\n",
	} {
		if err := os.WriteFile(filepath.Join(settings.Manifests, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := New(Config{Settings: settings, Scope: Whole, Store: cluster.NewStore(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Run(ctx) // ends with its context
	}()
	defer func() {
		cancel()
		<-ended
	}()
	wantInvalid(t, s, "NetworkPolicy 4, Service 1, unknown 1")
	later := filepath.Join(settings.Manifests, "later.yaml")
	if err := os.WriteFile(later, []byte("x: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	wantInvalid(t, s, "NetworkPolicy 4, Service 1, unknown 2")
	want := []string{
		"invalid objects of kind NetworkPolicy: 4 (see the log)", "invalid objects of kind Service: 1 (see the log)",
		"invalid manifest documents that are no objects: 2 (see the log)",
	}
	if got := s.Invalid(); !slices.Equal(got, want) {
		t.Errorf("Invalid() = %q, want %q", got, want)
	}
	if err := os.Remove(later); err != nil {
		t.Fatal(err)
	}
	wantInvalid(t, s, "NetworkPolicy 4, Service 1, unknown 1")
}

// wantInvalid waits until the metrics count these invalid objects.
func wantInvalid(t *testing.T, s *Source, want string) {
	t.Helper()
	for range 1000 {
		if invalidObjects(t, s) == want {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("after 10 s, the invalid objects are %q, want %q", invalidObjects(t, s), want)
}

// invalidObjects returns the kinds that have invalid objects, and how many.
func invalidObjects(t *testing.T, s *Source) string {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(s)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if n := m.GetGauge().GetValue(); f.GetName() == "portolan_source_invalid_objects" && n > 0 {
				kinds = append(kinds, fmt.Sprintf("%s %v", m.GetLabel()[0].GetValue(), n))
			}
		}
	}
	return strings.Join(kinds, ", ")
}

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
	if got, want := collected(t, s), "portolan_source_state Service loading is 1\n"; !strings.Contains(got, want) {
		t.Errorf("before loading: %s\nwant %s", got, want)
	}
	if _, err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := collected(t, s)
	for _, want := range []string{"portolan_source_state Service live is 1", "portolan_source_state Service loading", "portolan_model_objects Service is 1"} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("after loading: %s\nwant %s", got, want)
		}
	}
}
