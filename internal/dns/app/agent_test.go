package app

import (
	"encoding/base64"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	dnssettings "portolan.dev/portolan/internal/dns/settings"
	"portolan.dev/portolan/internal/dns/transfer"
)

// TestAgentNeedsServers checks that an agent needs the cluster's servers even if
// configured routes cover all names that it would forward to them.
func TestAgentNeedsServers(t *testing.T) {
	cfg := config.Default()
	for _, suffix := range []string{"cluster.local", "in-addr.arpa", "ip6.arpa"} {
		cfg.DNS.Forward.Routes = append(cfg.DNS.Forward.Routes, dnssettings.Route{Suffix: suffix, Upstreams: []string{"192.0.2.53"}})
	}
	if _, err := NewAgent(Config{Settings: cfg, Store: cluster.NewStore(), Log: slog.New(slog.DiscardHandler)}); !errors.Is(err, errNoServers) {
		t.Errorf("NewAgent() without servers: %v, want %v", err, errNoServers)
	}
	cfg.Node.Servers = []string{"192.0.2.1"}
	if _, err := NewAgent(Config{Settings: cfg, Store: cluster.NewStore(), Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Errorf("NewAgent() with servers: %v", err)
	}
}

// TestAgentRefusesViews checks that an agent has no views in either mode.
func TestAgentRefusesViews(t *testing.T) {
	t.Parallel()
	for _, mode := range []dnssettings.NodeMode{dnssettings.NodeCache, dnssettings.NodeSecondary} {
		cfg := config.Default()
		cfg.Node.Servers, cfg.Node.Mode = []string{"192.0.2.1"}, string(mode)
		cfg.DNS.Views = []dnssettings.View{{Clients: []string{"10.0.0.0/8"}}}
		_, err := NewAgent(Config{Settings: cfg, Store: cluster.NewStore(), Log: slog.New(slog.DiscardHandler)})
		if !errors.Is(err, errViews) {
			t.Errorf("NewAgent() in mode %s with views: %v, want %v", mode, err, errViews)
		}
	}
}

// TestAgentSuppressesOutside checks that dns.suppress of an agent leaves the names alone
// that it forwards to the cluster's servers.
func TestAgentSuppressesOutside(t *testing.T) {
	t.Parallel()
	for _, mode := range []dnssettings.NodeMode{dnssettings.NodeCache, dnssettings.NodeSecondary} {
		cfg := config.Default()
		cfg.Node.Servers, cfg.Node.Mode = []string{"192.0.2.1"}, string(mode)
		cfg.DNS.Suppress = []dnssettings.Suppress{{Types: []string{"AAAA"}}}
		cfg.DNS.External.Zones = []string{"out.example"}
		d, err := NewAgent(Config{Settings: cfg, Store: cluster.NewStore(), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]bool{
			"web.shop.svc.cluster.local": false, "web.shop.out.example": false, "www.example.com": true, "out.example.com": true,
		} {
			labels := []byte(dnsname.MustParse(name).WireLabels())
			if got := d.newest.filter.Suppresses(netip.MustParseAddr("10.0.0.1"), labels, dnswire.TypeAAAA); got != want {
				t.Errorf("mode %s: Suppresses(%s, AAAA) = %t, want %t", mode, name, got, want)
			}
		}
	}
}

// TestAddressesOf checks the errors for a failure and for an answer that expired while
// it was awaited.
func TestAddressesOf(t *testing.T) {
	for want, e := range map[string]*cache.Entry{
		errExpired.Error(): {Reply: new(dnswire.Reply)},
		"nobody answers":   {Failure: &cache.Failure{Text: "nobody answers"}},
	} {
		if _, err := addressesOf(e, time.Now()); err == nil || err.Error() != want {
			t.Errorf("addressesOf() = %v, want %s", err, want)
		}
	}
}

// TestRereadKey checks that a key file is read at most once a second, however often the
// key is used.
func TestRereadKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	write := func(secret string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first, second := strings.Repeat("a", 32), strings.Repeat("b", 32)
	encoded := base64.StdEncoding.EncodeToString
	synctest.Test(t, func(t *testing.T) {
		write(encoded([]byte(first)))
		log := new(strings.Builder)
		file := transfer.KeyFile{Name: dnsname.MustParse("key"), Algorithm: dnswire.HMACSHA256, File: path}
		key, err := rereadKey(file, slog.New(slog.NewTextHandler(log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		want := func(when, secret string) {
			t.Helper()
			if got := string(key().Secret); got != secret {
				t.Errorf("%s: secret %q, want %q", when, got, secret)
			}
		}
		write(encoded([]byte(second)))
		want("at once", first)
		time.Sleep(keyTime)
		want("later", second)
		write("no secret")
		for range 3 {
			time.Sleep(keyTime)
			want("with a bad file", second)
		}
		if n := strings.Count(log.String(), "the one before stays in force"); n != 1 {
			t.Errorf("it is said %d times, want once:\n%s", n, log)
		}
		write(encoded([]byte(first)))
		time.Sleep(keyTime)
		want("with a good file again", first)
	})
}
