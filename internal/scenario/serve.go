package scenario

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dns/autopath"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/filter"
	"portolan.dev/portolan/internal/dns/kubezone"
	"portolan.dev/portolan/internal/dns/localzone"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/zone"
)

// Serve returns a Responder with the scenario's configuration. It answers from the current
// content of the store that read, the source under test, returns.
func Serve(tb testing.TB, s *Scenario, read func(config.Config) *cluster.Store) Responder {
	tb.Helper()
	return serve(tb, s, read, func(db *zone.DB) (respond.Data, func()) { return db, func() {} })
}

// ServeSecondary is like Serve, but answers from secondary zones where zones can be
// transferred, and from the primary zones for other names.
func ServeSecondary(tb testing.TB, s *Scenario, read func(config.Config) *cluster.Store) Responder {
	tb.Helper()
	return serve(tb, s, read, func(db *zone.DB) (respond.Data, func()) {
		c := newSecondaries(tb, db)
		return c, func() { c.follow(tb) }
	})
}

// clientAddr is the address of all clients.
var clientAddr = netip.MustParseAddr("198.51.100.100")

// serve answers from what data makes of the zones; follow is called when they may
// have changed.
func serve(
	tb testing.TB,
	s *Scenario,
	read func(config.Config) *cluster.Store,
	data func(*zone.DB) (seen respond.Data, follow func()),
) Responder {
	tb.Helper()
	cfg := readConfig(tb, s.Config)
	compiled, err := cfg.Compile()
	if err != nil {
		tb.Fatal(err)
	}
	if compiled.DNS.Transfer.IsOn() {
		compiled.DNS.Zone.Instance = instance
	}
	compiler, err := kubezone.New(compiled.DNS.Zone)
	if err != nil {
		tb.Fatal(err)
	}
	db := newDB(tb, compiled, compiler)
	store := read(cfg)
	feed := store.Subscribe()
	tb.Cleanup(feed.Close)
	sender, err := transfers(compiled, db)
	if err != nil {
		tb.Fatal(err)
	}
	seen, follow := data(db)
	wiring := respond.Config{
		Transfers:     sender,
		Data:          seen,
		Upstreams:     upstreams(tb, s, cfg, compiled),
		Rules:         rulesOf(tb, compiled),
		Limiter:       filter.NewRateLimiter(compiled.DNS.RateLimit),
		UDPSize:       cfg.DNS.UDPSize,
		NSID:          cfg.DNS.Identity.NSID,
		ServerID:      cfg.DNS.Identity.ServerID,
		Version:       cfg.DNS.Identity.Version,
		Search:        autopath.New(compiled.DNS.Autopath),
		SearchSOA:     compiled.DNS.AutopathSOA,
		CookieSecrets: compiled.DNS.CookieSecrets,
		TCPIdle:       time.Duration(cfg.DNS.TCP.Idle),
		// The time of the example in RFC 9018, appendix A.1.
		Now: func() time.Time { return time.Unix(1559731985, 0) },
	}
	for i := range compiled.DNS.Views {
		if v := &compiled.DNS.Views[i]; v.Contains(clientAddr) {
			wiring = v.Config(wiring)
			break
		}
	}
	responder, err := respond.New(wiring)
	if err != nil {
		tb.Fatal(err)
	}
	worker := responder.NewWorker(0)
	return func(packet []byte, client respond.Client) []byte {
		compiler.Apply(store, feed, db)
		follow()
		client.Addr = clientAddr
		answer, later := worker.Respond(packet, client, make([]byte, 0, dnswire.MaxMessage))
		if later != nil {
			for answer := range later.Answers(tb.Context()) {
				return answer // the first message
			}
		}
		return answer
	}
}

// newDB makes the zones, with the content of the local ones.
func newDB(tb testing.TB, compiled *config.Compiled, compiler *kubezone.Compiler) *zone.DB {
	tb.Helper()
	cfg := compiled.DNS.LocalZones
	var err error
	if cfg.SOA, err = compiler.SOA(dnsname.Root); err != nil {
		tb.Fatal(err)
	}
	cfg.SOA.Serial = 1
	local, err := localzone.New(cfg, nil)
	if err != nil {
		tb.Fatal(err)
	}
	db, err := compiler.NewDB(local.SOAs()...)
	if err != nil {
		tb.Fatal(err)
	}
	local.Publish(db)
	return db
}

func rulesOf(tb testing.TB, compiled *config.Compiled) *filter.Filter {
	tb.Helper()
	made, err := filter.New(compiled.DNS.Rules)
	if err != nil {
		tb.Fatal(err)
	}
	return made
}

func readConfig(tb testing.TB, text []byte) config.Config {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "config.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		tb.Fatal(err)
	}
	cfg, err := config.Read(file)
	if err != nil {
		tb.Fatal(err)
	}
	return cfg
}
