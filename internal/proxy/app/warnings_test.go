package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
)

// TestWarnings: the owner of a Service is told of its health check once it is not served, and a
// failure of that is logged and delays nobody.
func TestWarnings(t *testing.T) {
	t.Parallel()
	web := cluster.Key{Namespace: "shop", Name: "web"}
	taken := errors.New("the port is taken")
	for claim, test := range map[string]struct {
		fails  error
		logged string
	}{
		"delivered":     {nil, ""},
		"not delivered": {errors.New("forbidden"), `level=WARN msg="the owner of a Service is not told of a problem" service=shop/web err=forbidden`},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			var got []Warning
			settings := config.Default()
			settings.Proxy.NodeName = "node-1"
			p, err := New(Config{
				Settings: settings, Store: cluster.NewStore(), Log: slog.New(slog.NewTextHandler(&log, nil)),
				Warn: func(_ context.Context, w Warning) error { got = append(got, w); return test.fails },
			})
			if err != nil {
				t.Fatal(err)
			}
			for range maxWarnings + 1 { // more than wait
				p.reportCheck(web, taken)
			}
			p.reportCheck(web, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { _ = p.warnings.run(ctx) }()
			synctest.Wait()
			want := Warning{web, "node-1", "FailedToStartServiceHealthcheck", "Listen", "node node-1: the port is taken"}
			if len(got) != maxWarnings || got[0] != want {
				t.Errorf("%s: %d warnings, the first %+v, want %d of %+v", claim, len(got), got[:min(1, len(got))], maxWarnings, want)
			}
			if !strings.Contains(log.String(), test.logged) {
				t.Errorf("%s: logged\n%swant %s", claim, &log, test.logged)
			}
		})
	}
}

// TestNoWarnings: without an API server nobody is told, and nothing waits.
func TestNoWarnings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWarnings(nil, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = w.run(ctx) }()
		w.put(Warning{})
		synctest.Wait()
		if n := len(w.waiting); n > 0 {
			t.Errorf("%d warnings wait, want none", n)
		}
		cancel()
	})
}
