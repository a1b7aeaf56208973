package zone_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dns/kubezone"
	"portolan.dev/portolan/internal/dns/zone"
	"portolan.dev/portolan/internal/kube/manifest"
	"portolan.dev/portolan/internal/scenario"
)

// TestRestoreScenarios checks that a secondary built from the records and
// metadata of each scenario's zones gives the same answers and lists the same
// names.
func TestRestoreScenarios(t *testing.T) {
	files, err := filepath.Glob("../../../testdata/scenarios/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scenarios, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			db := scenarioDB(t, file)
			checkRestored(t, db, restored(t, db))
		})
	}
}

// scenarioDB returns the zones of a scenario, fully loaded.
func scenarioDB(t *testing.T, file string) *zone.DB {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	manifests := filepath.Join(dir, "manifests")
	s.Manifests[".config.yaml"] = s.Config
	for name, data := range s.Manifests {
		path := filepath.Join(manifests, name)
		if name == ".config.yaml" {
			path = filepath.Join(dir, "config.yaml")
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(manifests, 0o700); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Read(filepath.Join(dir, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := cfg.Compile()
	if err != nil {
		t.Fatal(err)
	}
	compiler, err := kubezone.New(compiled.DNS.Zone)
	if err != nil {
		t.Fatal(err)
	}
	db, err := compiler.NewDB()
	if err != nil {
		t.Fatal(err)
	}
	store := cluster.NewStore()
	if _, err := manifest.New(manifest.Config{Path: manifests, Store: store, Log: slog.New(slog.DiscardHandler)}).Load(); err != nil {
		t.Fatal(err)
	}
	feed := store.Subscribe()
	defer feed.Close()
	compiler.Apply(store, feed, db)
	return db
}
