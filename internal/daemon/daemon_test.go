package daemon_test

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

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/daemon"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/respond"
)

// shop are manifests of one Service.
const shop = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.7}
`

// settings are those of a Daemon that reads shop and listens on any port.
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

func newDaemon(t *testing.T, c config.Config) *daemon.Daemon {
	t.Helper()
	d, err := daemon.New(c)
	if err != nil {
		t.Fatalf("New(%+v): %v", c, err)
	}
	return d
}

// journal is a log that says when a message was logged.
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

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// TestServeEnds: however its context ends, Serve ends well.
func TestServeEnds(t *testing.T) {
	for claim, begin := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"cancelled": context.WithCancel,
		"cancelled for a reason": func(ctx context.Context) (context.Context, context.CancelFunc) {
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
			if err := newDaemon(t, settings(t)).Serve(ctx, daemon.Options{Log: log.logger()}); err != nil {
				t.Errorf("Serve: %v, want nil", err)
			}
			if !strings.HasSuffix(log.String(), "msg=stopped\n") {
				t.Errorf("log does not end with stopped:\n%s", log)
			}
		})
	}
	t.Run("before it began", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := newDaemon(t, settings(t)).Serve(ctx, daemon.Options{Log: new(journal).logger()}); err != nil {
			t.Errorf("Serve: %v, want nil", err)
		}
	})
}

// TestServeNothing: manifests without a name are told as soon as they are read;
// others are not.
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
		d := newDaemon(t, c)
		d.Stdin = strings.NewReader("")
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		const warning = `level=WARN msg="no object that names depend on is in the manifests"`
		log := &journal{seen: func(text string) {
			if strings.Contains(text, warning) || !test.want && strings.Contains(text, `"manifests loaded"`) {
				cancel()
			}
		}}
		err := d.Serve(ctx, daemon.Options{Log: log.logger()})
		cancel()
		if got := strings.Contains(log.String(), warning); err != nil || got != test.want {
			t.Errorf("%s: Serve: %v, warned %t, want %t; log:\n%s", claim, err, got, test.want, log)
		}
	}
}

// TestServeMissing: it does not say that it serves and then that it can't.
func TestServeMissing(t *testing.T) {
	c := settings(t)
	c.Manifests = filepath.Join(c.Manifests, "missing")
	log := new(journal)
	err := newDaemon(t, c).Serve(t.Context(), daemon.Options{Log: log.logger()})
	if want := "manifests: stat " + c.Manifests + ": no such file or directory"; err == nil || err.Error() != want || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Serve of a missing directory: %v, want %s", err, want)
	}
	if log.String() != "" {
		t.Errorf("log: %s, want none", log)
	}
}

// TestLoad: until the manifests are read there is no answer, not even that a
// name does not exist.
func TestLoad(t *testing.T) {
	d := newDaemon(t, settings(t))
	const name = "web.shop.svc.cluster.local."
	if m := ask(t, d, name); m.Status != "SERVFAIL" || len(m.Errors) != 1 || m.Errors[0].Code != uint16(dnswire.EDENotReady) {
		t.Errorf("before Load: %s, want SERVFAIL with error %d", m, dnswire.EDENotReady)
	}
	if _, err := d.Load(t.Context(), "test", false); err != nil {
		t.Fatalf("Load: %v", err)
	}
	if m := ask(t, d, name); m.Status != "NOERROR" || len(m.Answer) != 1 || m.Answer[0].Data != "10.96.0.7" {
		t.Errorf("after Load: %s, want 10.96.0.7", m)
	}
}

func ask(t *testing.T, d *daemon.Daemon, name string) *dnswire.Message {
	t.Helper()
	packet, err := dnswire.NewQuery(dnswire.QuerySpec{Name: name, Type: dnswire.TypeA, UDPSize: respond.DefaultUDPSize})
	if err != nil {
		t.Fatal(err)
	}
	wire, _ := d.Responder().NewWorker(0).Respond(packet, respond.Client{}, make([]byte, 0, dnswire.MaxMessage))
	m, err := dnswire.ParseMessage(wire)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestNewRefuses: bad settings are refused before anything begins.
func TestNewRefuses(t *testing.T) {
	c := config.Default()
	c.DNS.UDPSize = 100
	if _, err := daemon.New(c); err == nil || err.Error() != "dns.udpSize: 100 is not between 512 and 4096" {
		t.Errorf("New with dns.udpSize 100: %v", err)
	}
}
