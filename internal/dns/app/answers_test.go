package app

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dns/dnsname"
	dnssettings "portolan.dev/portolan/internal/dns/settings"
	"portolan.dev/portolan/internal/support/testcert"
)

// TestGather checks that the first pass waits a limited time for what Services need,
// and does not wait for Pods.
func TestGather(t *testing.T) {
	const (
		namespaces, services, endpoints, pods = cluster.KindNamespace, cluster.KindService, cluster.KindEndpointSlice, cluster.KindPod
		soon                                  = 100 * time.Millisecond
	)
	for claim, test := range map[string]struct {
		loaded, soon []cluster.Kind
		any          bool
		waits        time.Duration
	}{
		"nothing is there":           {nil, nil, false, 0},
		"all is there":               {cluster.Kinds(), nil, true, 0},
		"Pods are missing":           {[]cluster.Kind{namespaces, services, endpoints}, nil, true, 0},
		"endpoints come soon":        {[]cluster.Kind{namespaces, services}, []cluster.Kind{endpoints}, true, soon},
		"endpoints do not come":      {[]cluster.Kind{namespaces, services, pods}, nil, true, gatherTimeout},
		"only something else is new": {[]cluster.Kind{namespaces}, []cluster.Kind{pods}, true, gatherTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			cfg := config.Default()
			cfg.DNS.Pods = "verified"
			store := cluster.NewStore()
			d, err := New(Config{Settings: cfg, Store: store, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			store.Update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Live, test.loaded...) })
			zones := &compiledZones{dns: d, feed: store.Subscribe()}
			defer zones.feed.Close()
			go func() {
				time.Sleep(soon)
				store.Update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Live, test.soon...) })
			}()
			began := time.Now()
			if got := zones.gather(t.Context(), d.newest); got != test.any || time.Since(began) != test.waits {
				t.Errorf("%s: gather = %v after %s, want %v after %s", claim, got, time.Since(began), test.any, test.waits)
			}
			time.Sleep(soon) // until the goroutine has updated the store
		})
	}
}

// TestSerialAfterMissingFile checks that a local zone has its file's serial if the file
// appears after the start and the configuration is loaded again.
func TestSerialAfterMissingFile(t *testing.T) {
	t.Parallel()
	file, cfg := filepath.Join(t.TempDir(), "corp.zone"), config.Default()
	cfg.DNS.LocalZones = []dnssettings.LocalZone{{Zone: "corp.example", File: file}}
	d, err := New(Config{Settings: cfg, Store: cluster.NewStore(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("@ SOA ns admin 7 3600 600 86400 60\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.DNS.TTL++
	if err := d.Reconfigure(cfg); err != nil {
		t.Fatal(err)
	}
	for _, soa := range d.newest.db.SOAs() {
		if soa.Zone == dnsname.MustParse("corp.example") && soa.Serial != 7 {
			t.Errorf("serial of corp.example. = %d, want 7, which the file has", soa.Serial)
		}
	}
}

// TestReconfigureReadsAuthoritiesAgain checks that a reload of equal settings keeps the
// upstreams, and replaces them if the file of their certificate authorities has changed.
func TestReconfigureReadsAuthoritiesAgain(t *testing.T) {
	dir := t.TempDir()
	authorities := func() (file string) {
		t.Helper()
		cert, err := testcert.New("dns.example", time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if file, _, err = cert.Write(dir); err != nil {
			t.Fatal(err)
		}
		return file
	}
	cfg := config.Default()
	cfg.DNS.Forward.Routes = []dnssettings.Route{{Upstreams: []string{"tls://192.0.2.1#dns.example"}, CA: authorities()}}
	d, err := New(Config{Settings: cfg, Store: cluster.NewStore(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		claim string
		kept  bool
	}{{"the same", true}, {"other", false}, {"the same as then", true}} {
		if !tt.kept {
			authorities()
		}
		before := d.newest.upstreams
		if err := d.Reconfigure(cfg); err != nil {
			t.Fatal(err)
		}
		if kept := d.newest.upstreams == before; kept != tt.kept {
			t.Errorf("with %s authorities, upstreams kept: %t, want %t", tt.claim, kept, tt.kept)
		}
	}
}
