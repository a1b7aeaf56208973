package daemon

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/config/key"
)

// history records events in order.
type history struct {
	mu     sync.Mutex
	events []string
}

func (h *history) add(event string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, event)
}

func (h *history) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.events, " ")
}

// servingLog is a log handler that records in the history that the process serves.
type servingLog struct {
	slog.Handler
	history *history
}

func (l servingLog) Enabled(context.Context, slog.Level) bool { return true }
func (l servingLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "serving" {
		l.history.add(r.Message)
	}
	return nil
}

// fakePart is a Part that records calls of its methods.
type fakePart struct {
	name    string
	history *history
	bind    error
	fails   chan error // the error that ends Run
	refused string     // the level of the log whose settings Reconfigure refuses
}

func (p *fakePart) Name() string          { return p.name }
func (p *fakePart) Needs() []cluster.Kind { return []cluster.Kind{cluster.KindPod} }
func (p *fakePart) Bind(context.Context) ([]any, error) {
	p.history.add("bind-" + p.name)
	return nil, p.bind
}

func (p *fakePart) Start(context.Context) error {
	p.history.add("start-" + p.name)
	return nil
}

func (p *fakePart) Run(ctx context.Context) error {
	p.history.add("run")
	select {
	case <-ctx.Done():
		p.history.add("stop")
		return nil
	case err := <-p.fails:
		return err
	}
}

func (p *fakePart) Reconfigure(cfg config.Config) error {
	p.history.add(p.name + "-" + cfg.Log.Level)
	if cfg.Log.Level == p.refused {
		return errors.New("refused")
	}
	return nil
}
func (p *fakePart) Close()                             { p.history.add("close-" + p.name) }
func (p *fakePart) Ready() (missing, remarks []string) { return nil, []string{p.name + " is fine"} }
func (p *fakePart) Metrics() prometheus.Collector {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: p.name, Help: "A part."})
}

// two returns a process of two parts, without an admin server.
func two(h *history) (*Daemon, *fakePart, *fakePart) {
	one, other := &fakePart{"one", h, nil, make(chan error), ""}, &fakePart{"other", h, nil, make(chan error), ""}
	log := slog.New(servingLog{slog.DiscardHandler, h})
	cfg := Config{Settings: config.Default(), Parts: []Part{one, other}, Log: log}
	cfg.Settings.Admin.Listen = ""
	return New(cfg), one, other
}

// TestOrder checks that parts are bound, started, announced, run, stopped after the
// lameduck time and closed, in reverse order.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := new(history)
		d, _, _ := two(h)
		d.cfg.Settings.Lameduck = key.Duration(time.Minute)
		ctx, order := context.WithCancel(t.Context())
		began := time.Now()
		var stopped time.Duration
		go func() { time.Sleep(time.Hour); order() }()
		go func() {
			time.Sleep(time.Hour + time.Second)
			if missing, _ := d.ready(); !slices.Equal(missing, []string{"stopping"}) {
				t.Errorf("ready() after the order to stop: missing %q, want stopping", missing)
			}
		}()
		if err := d.Run(ctx); err != nil {
			t.Errorf("Run() = %v, want nil", err)
		}
		stopped = time.Since(began)
		if want := "bind-one bind-other start-one start-other serving run run stop stop close-other close-one"; h.String() != want {
			t.Errorf("history %s, want %s", h, want)
		}
		if want := time.Hour + time.Minute; stopped != want {
			t.Errorf("stopped after %s, want %s", stopped, want)
		}
	})
}

// endpoint is a Part that an EndpointSlice lists as serving until the given time.
type endpoint struct {
	*fakePart
	until time.Time
}

func (e endpoint) Advertised() bool { return time.Now().Before(e.until) }

// TestLameduck checks how long a process runs after the order to stop.
func TestLameduck(t *testing.T) {
	t.Parallel()
	const always = time.Hour
	tests := map[string]struct {
		lameduck, advertised, want time.Duration
	}{
		"the lameduck time if no EndpointSlice lists it":    {5 * time.Second, 0, 5 * time.Second},
		"the lameduck time if proxies have seen the change": {5 * time.Second, 2 * time.Second, 5 * time.Second},
		"longer if proxies may not have seen it":            {5 * time.Second, 4 * time.Second, 5750 * time.Millisecond},
		"while an EndpointSlice lists it":                   {5 * time.Second, 29 * time.Second, 30750 * time.Millisecond},
		"a minute if that never ends":                       {5 * time.Second, always, time.Minute},
		"the lameduck time if that is longer":               {2 * time.Minute, always, 2 * time.Minute},
		"not at all without a lameduck time":                {0, always, 0},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, one, _ := two(new(history))
				d.cfg.Settings.Lameduck = key.Duration(test.lameduck)
				d.cfg.Parts[0] = endpoint{one, time.Now().Add(time.Second + test.advertised)}
				ctx, order := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, order)
				start := time.Now()
				if err := d.Run(ctx); err != nil {
					t.Errorf("Run() = %v, want nil", err)
				}
				if got := time.Since(start) - time.Second; got != test.want {
					t.Errorf("Run(lameduck %s, advertised for %s) ended %s after the order, want %s", test.lameduck, test.advertised, got, test.want)
				}
			})
		})
	}
}

// TestFailedPart checks that readiness names a failed part, and that the other parts
// continue until none is left.
func TestFailedPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, one, other := two(new(history))
		ended := make(chan error, 1)
		go func() { ended <- d.Run(t.Context()) }()
		broken := errors.New("broken")
		one.fails <- broken
		synctest.Wait()
		missing, remarks := d.ready()
		if want := []string{"one failed: broken"}; !slices.Equal(missing, want) || !slices.Equal(remarks, []string{"other is fine"}) {
			t.Errorf("ready() = %q, %q, want %q and a remark of the other part", missing, remarks, want)
		}
		select {
		case err := <-ended:
			t.Fatalf("Run() = %v, want the other part to go on", err)
		default:
		}
		other.fails <- errors.New("too")
		if err := <-ended; !errors.Is(err, broken) {
			t.Errorf("Run() = %v, want the errors of both parts", err)
		}
	})
}

// TestBindFails checks that parts are closed if the Bind of another part fails.
func TestBindFails(t *testing.T) {
	h := new(history)
	d, _, other := two(h)
	other.bind = errors.New("taken")
	if err := d.Run(t.Context()); !errors.Is(err, other.bind) {
		t.Errorf("Run() = %v, want %v", err, other.bind)
	}
	if want := "bind-one bind-other close-other close-one"; h.String() != want {
		t.Errorf("history %s, want %s", h, want)
	}
}

// TestReconfigure checks that settings that one part refuses are taken back from the
// parts that have them.
func TestReconfigure(t *testing.T) {
	h, level := new(history), new(slog.LevelVar)
	d, _, other := two(h)
	other.refused = "warn"
	d.cfg.Reload = &Reload{
		Level:  level,
		Frozen: func(_, next config.Config) (config.Config, []string) { return next, nil },
	}
	next := d.cfg.Settings
	next.Log.Level = "debug"
	if err := d.apply(next); err != nil {
		t.Fatal(err)
	}
	next.Log.Level = "warn"
	if err := d.apply(next); err == nil || err.Error() != "other: refused" {
		t.Errorf("apply() of settings that a part refuses: %v", err)
	}
	if want := "one-debug other-debug one-warn other-warn one-debug"; h.String() != want {
		t.Errorf("history %s, want %s", h, want)
	}
	if level.Level() != slog.LevelDebug {
		t.Errorf("level of the log %s after a failed reload, want that before, DEBUG", level.Level())
	}
}
