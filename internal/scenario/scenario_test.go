package scenario_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/kube/manifest"
	"portolan.dev/portolan/internal/kube/simulate"
	"portolan.dev/portolan/internal/scenario"
)

const scenarioDir = "../../testdata/scenarios"

// TestScenarios verifies every scenario file with the manifest source, from the primary
// zones and from secondary zones.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(scenarioDir, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("Glob(%s) = %d files, %v", scenarioDir, len(files), err)
	}
	queries := 0
	for _, file := range files {
		s := parseFile(t, file)
		queries += len(s.Cases)
		t.Run(filepath.Base(file), func(t *testing.T) {
			for _, err := range s.Check(serve(t, s)) {
				t.Error(err)
			}
		})
		t.Run("secondary of "+filepath.Base(file), func(t *testing.T) {
			for _, err := range s.Check(scenario.ServeSecondary(t, s, func(cfg config.Config) *cluster.Store { return loadManifests(t, s, cfg) })) {
				t.Error(err)
			}
		})
	}
	const promised = 150
	if queries < promised {
		t.Errorf("%d query expectations, want at least %d", queries, promised)
	}
}

func parseFile(t *testing.T, file string) *scenario.Scenario {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Parse(data)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return s
}

// serve returns a Responder for a scenario's manifests.
func serve(t *testing.T, s *scenario.Scenario) scenario.Responder {
	t.Helper()
	return scenario.Serve(t, s, func(cfg config.Config) *cluster.Store { return loadManifests(t, s, cfg) })
}

func loadManifests(t *testing.T, s *scenario.Scenario, settings config.Config) *cluster.Store {
	t.Helper()
	dir := t.TempDir()
	for name, data := range s.Manifests {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	store := cluster.NewStore()
	cfg := manifest.Config{Path: dir, Store: store, Log: slog.New(slog.DiscardHandler)}
	if settings.Simulate.Enabled {
		cfg.ControlPlane = controlPlane(t, settings)
	}
	report, err := manifest.New(cfg).Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		t.Logf("problem: %v", p)
	}
	if s.Loaded != nil {
		store = partOf(store, s.Loaded)
	}
	store.Update(func(tx *cluster.Tx) {
		for k, f := range s.Freshness {
			tx.SetFreshness(f, k)
		}
	})
	return store
}

func controlPlane(t *testing.T, settings config.Config) *simulate.ControlPlane {
	t.Helper()
	made, err := settings.Compile()
	if err != nil {
		t.Fatal(err)
	}
	made.Simulate.Log = slog.New(slog.DiscardHandler)
	plane, err := simulate.New(made.Simulate)
	if err != nil {
		t.Fatal(err)
	}
	return plane
}

// partOf returns a store with the objects of some kinds, as while the other kinds are
// being loaded.
func partOf(full *cluster.Store, loaded []cluster.Kind) *cluster.Store {
	part := cluster.NewStore()
	full.View(func(v *cluster.View) {
		part.Update(func(tx *cluster.Tx) {
			for _, k := range loaded {
				for o := range v.Objects(k) {
					tx.Put(o)
				}
			}
			tx.SetFreshness(cluster.Live, loaded...)
		})
	})
	return part
}
