// Package api reads a cluster from the Kubernetes API and follows it.
//
// Each kind is listed and watched by client-go's Reflector, which writes
// straight into the model: objects become the model's types one by one as they
// come, so that no list is ever in memory whole, and no second copy is kept.
//
// What was read stays when the API is lost. A gap in a watch is healed by
// watching on from the last version that was heard or, where the server has
// forgotten that, by a list that changes only what differs.
package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"portolan.dev/portolan/internal/cluster"
)

// Config is what a Source is made from.
type Config struct {
	// Kubeconfig is a file that says where the API is and who asks; empty is
	// the account of the Pod that this runs in.
	Kubeconfig string
	// Namespaces are those that are read; all when empty.
	Namespaces []string
	// ServiceSelector is a label selector: other Services are not read.
	ServiceSelector string
	// Pods and Nodes tell whether these are read, beside Namespaces, Services
	// and EndpointSlices.
	Pods, Nodes bool
	// Whole reads all kinds, and keeps all that the model has room for of each
	// object.
	Whole bool
	// ForSlices reads Services, Pods and Nodes, and keeps what EndpointSlices are
	// made from; nothing else is read.
	ForSlices bool
	// WatchList has lists come as watches where the server has that (KEP-3157).
	WatchList bool
	// PodNames keeps the names of endpoints' Pods.
	PodNames bool
	// QPS is how many requests a second are sent to the API, over time, and
	// Burst how many at once; more wait.
	QPS   float32
	Burst int
	// Silence is how long a watch may be silent; then it is broken off and
	// begun again. API servers say something about once a minute.
	Silence time.Duration
	// Settle is how long names that a snapshot lacks are not denied, from the
	// moment that the API answers; by then its lists should be there.
	Settle time.Duration
	// UserAgent is what the API server sees as the client.
	UserAgent string
	// Between is called between two objects, of which many may come at once. It
	// must not use the Store. Nil is nothing.
	Between func()
	Store   *cluster.Store
	Log     *slog.Logger
}

// Source reads a cluster into a Store.
type Source struct {
	cfg      Config
	clients  *clients
	readings []*reading
	answered sync.Once
	settling chan struct{} // closed when the API answers
}

// ErrSelector is wrapped when a label selector is none.
var ErrSelector = errors.New("is no label selector")

// New makes a Source. It fails when the API can't be asked: a kubeconfig that
// can't be read or says too little, a selector that is none. That the API does
// not answer is no failure.
func New(cfg Config) (*Source, error) {
	if cfg.Between == nil {
		cfg.Between = func() {}
	}
	s := &Source{cfg: cfg, settling: make(chan struct{})}
	_, err := labels.Parse(cfg.ServiceSelector)
	if err != nil {
		return nil, fmt.Errorf("%q %w: %w", cfg.ServiceSelector, ErrSelector, err)
	}
	if s.clients, err = newClients(&s.cfg); err != nil {
		return nil, err
	}
	for _, r := range resources {
		if !r.reads(&cfg) {
			continue
		}
		for _, sc := range r.scopesOf(&cfg) {
			s.readings = append(s.readings, newReading(s, r, sc))
		}
	}
	return s, nil
}

// HeardLast says, before Run, when what the Store holds was heard.
func (s *Source) HeardLast(t time.Time) {
	for _, r := range s.readings {
		r.lost = t
	}
}

// Run reads until ctx is done, and returns ctx's error.
func (s *Source) Run(ctx context.Context) error {
	ctx = WithDebugLog(ctx, s.cfg.Log) // what matters is logged here
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.settle(ctx) })
	for _, r := range s.readings {
		group.Go(func() error { return r.run(ctx) })
		group.Go(func() error { return r.watchdog(ctx, s.cfg.Silence) })
	}
	return group.Wait()
}

// heard is called when the API answers. From the first time on, what comes
// from a snapshot is about to be confirmed, but not for long.
func (s *Source) heard() {
	s.answered.Do(func() {
		s.refreshes(cluster.Recalled, cluster.Confirming)
		close(s.settling)
	})
}

// abandon closes the connections to the API, if it was silent on all that is
// read: what is asked next must not go where nothing came from. Each watch that
// ends with them is in doubt, whoever noticed first.
func (s *Source) abandon() {
	talks := func(r *reading) bool { return r.silence() <= s.cfg.Silence }
	if slices.ContainsFunc(s.readings, talks) {
		return
	}
	for _, r := range s.readings {
		r.doubt(s.cfg.Silence)
	}
	s.clients.dialer.CloseAll()
}

// settle ends the time in which what comes from a snapshot is confirmed.
func (s *Source) settle(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.settling:
	}
	if err := sleep(ctx, s.cfg.Settle); err != nil {
		return err
	}
	s.refreshes(cluster.Confirming, cluster.Recalled)
	return nil
}

// sleep waits for a time, or fails with ctx's error.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// refreshes changes the freshness of the kinds that have the one given.
func (s *Source) refreshes(from, to cluster.Freshness) {
	s.cfg.Store.Update(func(tx *cluster.Tx) {
		for _, k := range cluster.KindsOfNames() {
			if tx.Freshness(k) == from {
				tx.SetFreshness(to, k)
			}
		}
	})
}

// listed is called when a reading of a kind has all its objects in tx. The kind
// is live when all its readings have; what is then in no reading's scope comes
// from a snapshot that was made with other settings.
func (s *Source) listed(tx *cluster.Tx, of *resource) {
	var scopes []scope
	for _, r := range s.readings {
		if r.resource != of {
			continue
		}
		if !r.listed.Load() {
			return
		}
		scopes = append(scopes, r.scope)
	}
	var strays []cluster.Key
	for o := range tx.Objects(of.Model) {
		k := o.Ref().Key
		if !slices.ContainsFunc(scopes, func(sc scope) bool { return sc.holds(k) }) {
			strays = append(strays, k)
		}
	}
	for _, k := range strays {
		tx.Delete(of.Model, k)
	}
	tx.SetFreshness(cluster.Live, of.Model)
}

// WithDebugLog returns a context under which client-go logs to log, everything at
// the level debug: at its own levels it logs each request.
func WithDebugLog(ctx context.Context, log *slog.Logger) context.Context {
	return klog.NewContext(ctx, logr.FromSlogHandler(&debugOnly{log.Handler()}))
}

// debugOnly lowers everything to the level debug.
type debugOnly struct{ slog.Handler }

func (h *debugOnly) Enabled(ctx context.Context, _ slog.Level) bool {
	return h.Handler.Enabled(ctx, slog.LevelDebug)
}

func (h *debugOnly) Handle(ctx context.Context, r slog.Record) error {
	if !h.Enabled(ctx, r.Level) {
		return nil // errors are handled without being asked for
	}
	r.Level = slog.LevelDebug
	return h.Handler.Handle(ctx, r)
}

func (h *debugOnly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &debugOnly{h.Handler.WithAttrs(attrs)}
}

func (h *debugOnly) WithGroup(name string) slog.Handler {
	return &debugOnly{h.Handler.WithGroup(name)}
}
