package scenario

import (
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
	"portolan.dev/portolan/internal/rules"
)

// Serve answers as the scenario's configuration says, from the store that read
// gives, as it is when a question is asked. Read is the source under test.
func Serve(t testing.TB, s *Scenario, read func(config.Config) *cluster.Store) Ask {
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
	store := read(cfg)
	feed := store.Subscribe()
	t.Cleanup(feed.Close)
	responder, err := respond.New(respond.Config{
		Data: db, Others: others(t, s, cfg, compiled), Rules: rulesOf(t, compiled), Limiter: rules.NewLimiter(compiled.RateLimit),
		UDPSize: cfg.UDPSize, NSID: cfg.Identity.NSID, ServerID: cfg.Identity.ServerID, Version: cfg.Identity.Version,
		CookieSecrets: compiled.CookieSecrets, TCPIdle: time.Duration(cfg.TCP.Idle),
		// That of the example in RFC 9018, appendix A.1.
		Now: func() time.Time { return time.Unix(1559731985, 0) },
	})
	if err != nil {
		t.Fatal(err)
	}
	worker := responder.NewWorker(0)
	return func(packet []byte, client respond.Client) []byte {
		compiler.Apply(store, feed, db)
		client.Addr = netip.MustParseAddr("198.51.100.100")
		answer, later := worker.Respond(packet, client, make([]byte, 0, dnswire.MaxMessage))
		if later != nil {
			return later.Answer(t.Context())
		}
		return answer
	}
}

func rulesOf(t testing.TB, compiled *config.Compiled) *rules.Rules {
	t.Helper()
	made, err := rules.New(compiled.Rules)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func readConfig(t testing.TB, text []byte) config.Config {
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
