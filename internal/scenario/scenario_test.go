package scenario_test

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dnswire"
	"portolan.dev/portolan/internal/kubezone"
	"portolan.dev/portolan/internal/respond"
	"portolan.dev/portolan/internal/scenario"
	"portolan.dev/portolan/internal/source/manifest"
)

const scenarioDir = "../../testdata/scenarios"

// TestScenarios replays every scenario file through the manifest source.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(scenarioDir, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("Glob(%s) = %d files, %v", scenarioDir, len(files), err)
	}
	queries := 0
	for _, file := range files {
		s := parseFile(t, file)
		queries += len(s.Queries)
		t.Run(filepath.Base(file), func(t *testing.T) {
			for _, err := range s.Check(serve(t, s)) {
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

// serve compiles a scenario's manifests and answers from them.
func serve(t *testing.T, s *scenario.Scenario) scenario.Ask {
	t.Helper()
	cfg := readConfig(t, s.Config)
	compiled, err := cfg.Compile()
	if err != nil {
		t.Fatal(err)
	}
	compiler, err := kubezone.New(compiled.Zone)
	if err != nil {
		t.Fatal(err)
	}
	db, err := compiler.NewDB()
	if err != nil {
		t.Fatal(err)
	}
	store := loadManifests(t, s)
	feed := store.Subscribe()
	defer feed.Close()
	compiler.Apply(store, feed, db)
	responder, err := respond.New(respond.Config{
		Data: db, UDPSize: cfg.UDPSize, NSID: cfg.Identity.NSID, ServerID: cfg.Identity.ServerID, Version: cfg.Identity.Version,
		CookieSecrets: compiled.CookieSecrets, TCPIdle: time.Duration(cfg.TCP.Idle),
		// That of the example in RFC 9018, appendix A.1.
		Now: func() time.Time { return time.Unix(1559731985, 0) },
	})
	if err != nil {
		t.Fatal(err)
	}
	worker := responder.NewWorker()
	return func(packet []byte, client respond.Client) []byte {
		client.Addr = netip.MustParseAddr("198.51.100.100")
		return worker.Respond(packet, client, make([]byte, 0, dnswire.MaxMessage))
	}
}

func readConfig(t *testing.T, text []byte) config.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func loadManifests(t *testing.T, s *scenario.Scenario) *cluster.Store {
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
	report, err := manifest.New(manifest.Config{Path: dir, Store: store, Log: slog.New(slog.DiscardHandler)}).Load()
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
		for k, f := range s.Aged {
			tx.SetFreshness(f, k)
		}
	})
	return store
}

// partOf is a store of the objects of some kinds, as it is while the others
// are being loaded.
func partOf(full *cluster.Store, loaded []cluster.Kind) *cluster.Store {
	feed := full.Subscribe()
	defer feed.Close()
	part := cluster.NewStore()
	has := make(map[cluster.Kind]bool)
	for _, k := range loaded {
		has[k] = true
	}
	full.View(func(v *cluster.View) {
		part.Update(func(tx *cluster.Tx) {
			for ch := range feed.Pending() {
				switch {
				case ch.Freshness:
				case ch.Kind == cluster.KindNamespace && has[ch.Kind]:
					tx.PutNamespace(v.Namespace(ch.Key.Name))
				case ch.Kind == cluster.KindPod && has[ch.Kind]:
					tx.PutPod(v.Pod(ch.Key))
				case ch.Kind == cluster.KindService:
					if has[ch.Kind] {
						tx.PutService(v.Service(ch.Key))
					}
					for _, slice := range v.SlicesOf(ch.Key) {
						if has[cluster.KindEndpointSlice] {
							tx.PutEndpointSlice(slice)
						}
					}
				}
			}
			tx.SetFreshness(cluster.Live, loaded...)
		})
	})
	return part
}
