package cli

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/daemon"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/kube/source"
)

// shop has the manifest of one Service.
const shop = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.7}
`

// settings returns the settings of a process that reads shop and listens on any port.
func settings(t *testing.T) config.Config {
	t.Helper()
	c := config.Default()
	c.DNS.Listen, c.Admin.Listen = []string{"127.0.0.1:0"}, "127.0.0.1:0"
	c.Manifests = t.TempDir()
	if err := os.WriteFile(filepath.Join(c.Manifests, "shop.yaml"), []byte(shop), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// runServe runs the process of serve until ctx is done.
func runServe(ctx context.Context, t *testing.T, c config.Config, log *journal) error {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(log, nil))
	cfg, err := assembly{settings: c, stdin: strings.NewReader(""), log: logger}.serve()
	if err != nil {
		t.Fatalf("serve() of %+v: %v", c, err)
	}
	cfg.Settings, cfg.Version, cfg.Log = c, "test", logger
	return daemon.New(*cfg).Run(ctx)
}

// journal is a log writer that signals when a message was logged.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
	seen func(text string)
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.text.Write(p)
	if j.seen != nil {
		j.seen(j.text.String())
	}
	return len(p), nil
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// TestServeEnds checks that Run returns nil however its context ends.
func TestServeEnds(t *testing.T) {
	for claim, begin := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"canceled": context.WithCancel,
		"canceled for a reason": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			return ctx, func() { cancel(errors.New("terminated")) }
		},
		"past its deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithDeadline(ctx, time.Now().Add(200*time.Millisecond))
		},
	} {
		t.Run(claim, func(t *testing.T) {
			ctx, cancel := begin(t.Context())
			defer cancel()
			log := &journal{seen: func(text string) {
				if claim != "past its deadline" && strings.Contains(text, `"manifests loaded"`) {
					cancel()
				}
			}}
			if err := runServe(ctx, t, settings(t), log); err != nil {
				t.Errorf("Run: %v, want nil", err)
			}
			if !strings.HasSuffix(log.String(), "msg=stopped\n") {
				t.Errorf("log does not end with stopped:\n%s", log)
			}
		})
	}
	t.Run("before it began", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := runServe(ctx, t, settings(t), new(journal)); err != nil {
			t.Errorf("Run: %v, want nil", err)
		}
	})
}

// TestServeNothing checks that manifests without any name cause a warning as soon as
// they are read, and that others cause none.
func TestServeNothing(t *testing.T) {
	for claim, test := range map[string]struct {
		change func(*config.Config)
		want   bool
	}{
		"a Service":          {func(*config.Config) {}, false},
		"an empty directory": {func(c *config.Config) { c.Manifests = t.TempDir() }, true},
		"nothing on stdin":   {func(c *config.Config) { c.Manifests = "-" }, true},
		"nothing, simulated": {func(c *config.Config) { c.Manifests, c.Simulate.Enabled = "-", true }, true},
	} {
		c := settings(t)
		test.change(&c)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		const warning = `level=WARN msg="no object that names depend on is in the manifests"`
		log := &journal{seen: func(text string) {
			if strings.Contains(text, warning) || !test.want && strings.Contains(text, `"manifests loaded"`) {
				cancel()
			}
		}}
		err := runServe(ctx, t, c, log)
		cancel()
		if got := strings.Contains(log.String(), warning); err != nil || got != test.want {
			t.Errorf("%s: Run: %v, warned %t, want %t; log:\n%s", claim, err, got, test.want, log)
		}
	}
}

// TestServeMissing checks that missing manifests make the start fail before anything is
// logged.
func TestServeMissing(t *testing.T) {
	c := settings(t)
	c.Manifests = filepath.Join(c.Manifests, "missing")
	log := new(journal)
	err := runServe(t.Context(), t, c, log)
	if want := "manifests: stat " + c.Manifests + ": no such file or directory"; err == nil || err.Error() != want || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Run with a missing directory: %v, want %s", err, want)
	}
	if log.String() != "" {
		t.Errorf("log: %s, want none", log)
	}
}

// TestLoad checks that the server gives no answer, not even NXDOMAIN, before the
// manifests are read.
func TestLoad(t *testing.T) {
	l, err := openCluster(new(cobra.Command), source.Config{Settings: settings(t), Scope: source.Names})
	if err != nil {
		t.Fatal(err)
	}
	const name = "web.shop.svc.cluster.local."
	if m := ask(t, l, name); m.Status != "SERVFAIL" || len(m.Errors) != 1 || m.Errors[0].Code != uint16(dnswire.EDENotReady) {
		t.Errorf("before load: %s, want SERVFAIL with error %d", m, dnswire.EDENotReady)
	}
	if _, err := l.load(t.Context()); err != nil {
		t.Fatalf("load: %v", err)
	}
	if m := ask(t, l, name); m.Status != "NOERROR" || len(m.Answer) != 1 || m.Answer[0].Data != "10.96.0.7" {
		t.Errorf("after load: %s, want 10.96.0.7", m)
	}
}

func ask(t *testing.T, l *onceCluster, name string) *dnswire.Message {
	t.Helper()
	packet, err := dnswire.NewQuery(dnswire.QuerySpec{Name: name, Type: dnswire.TypeA, UDPSize: respond.DefaultUDPSize})
	if err != nil {
		t.Fatal(err)
	}
	wire, _ := l.dns.Responder().NewWorker(0).Respond(packet, respond.Client{}, make([]byte, 0, dnswire.MaxMessage))
	m, err := dnswire.ParseMessage(wire)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestRefused checks that invalid settings are refused before anything starts.
func TestRefused(t *testing.T) {
	c := config.Default()
	c.DNS.UDPSize = 100
	a := assembly{settings: c, log: slog.New(slog.DiscardHandler)}
	if _, err := a.serve(); err == nil || err.Error() != "dns.udpSize: 100 is not between 512 and 4096" {
		t.Errorf("serve() with dns.udpSize 100: %v", err)
	}
}
