package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// TestWarningsAreBounded checks that 64 warnings wait, beside the one that is being delivered, while an
// API server does not answer, that nobody waits for it, and that each attempt ends after 10 s.
func TestWarningsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []Warning
		var took []time.Duration
		w := newWarnings(func(ctx context.Context, one Warning) error {
			began := time.Now()
			<-ctx.Done()
			got, took = append(got, one), append(took, time.Since(began))
			return ctx.Err()
		}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.run(ctx) }()
		began := time.Now()
		for i := range 1000 {
			w.put(Warning{Note: strconv.Itoa(i)})
			synctest.Wait() // the first is being delivered
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("put of 1000 warnings took %s, want none", waited)
		}
		time.Sleep(time.Hour)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		const want = 64 + 1
		if len(got) != want || got[0].Note != "0" || got[want-1].Note != strconv.Itoa(want-1) {
			t.Errorf("%d warnings were delivered, want the first %d", len(got), want)
		}
		for _, d := range took {
			if d != 10*time.Second {
				t.Errorf("an attempt took %s, want 10s", d)
			}
		}
	})
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
