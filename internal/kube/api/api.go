// Package api reads a cluster from the Kubernetes API and follows its changes
// (Kubernetes, "API concepts": lists, watches, resource versions).
//
//	API server ──► Reflector ──► resource.convert ──► reading ──► cluster.Store
//	               (list, watch) (decode, trim)       (one per kind and scope)
//
// client-go's Reflector writes straight into the model: each object is converted
// as it arrives, so that no list is in memory as a whole and there is no second
// copy. Which kinds there are is in object.Kinds. Secrets and ConfigMaps are read one
// by one, see referenced.
//
// Objects stay when the API is unreachable. After a gap a watch continues at the
// last resource version or, if the server no longer has that, with a list, of
// which only differences are applied.
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

// Config configures a Source.
type Config struct {
	// Kubeconfig is a file with the API server's address and credentials, or a list of
	// files as in the environment variable KUBECONFIG; empty is the service account of the
	// Pod that this runs in.
	Kubeconfig string
	// Context is the context of the kubeconfig; empty is its current context.
	Context string
	// Namespaces are the Namespaces that are read; all when empty.
	Namespaces []string
	// ServiceSelector is a label selector: other Services are not read.
	ServiceSelector string
	// Kinds are the kinds that are read; of cluster.ReferencedKinds, only the objects that others
	// refer to.
	Kinds []cluster.Kind
	// Detail is how much is kept of each object.
	Detail Detail
	// Node is the name of the only Node that is read; empty is all.
	Node string
	// External has Services keep how they are reached from outside.
	External bool
	// Announce has Services keep their class of load balancers, and Nodes whether they are ready and cordoned, in
	// addition to ForPolicy.
	Announce bool
	// WatchList requests lists as watches where the server supports it (KEP-3157).
	WatchList bool
	// QPS limits the requests per second to the API on average, and Burst those at
	// once; more wait.
	QPS   float32
	Burst int
	// Silence is how long a watch may be silent before it is restarted. API servers
	// send a bookmark about once a minute.
	Silence time.Duration
	// Settle is how long after the API's first response names that are missing from
	// a snapshot are not denied; by then the lists should have arrived.
	Settle time.Duration
	// AbsentPause is the time between two requests for a kind that the API server does
	// not have.
	AbsentPause time.Duration
	// UserAgent is what the API server sees as the client.
	UserAgent string
	// Between, unless nil, is called between two objects of a list, which can be
	// long. It must not use the Store.
	Between func()
	Store   *cluster.Store
	Log     *slog.Logger
}

// Detail is how much of an object is kept.
type Detail uint8

// The details.
const (
	// ForNames is what DNS answers depend on, except PodNames.
	ForNames Detail = iota
	// ForPodNames is ForNames with the names of the Pods of endpoints.
	ForPodNames
	// ForSlices is what EndpointSlices are made from.
	ForSlices
	// ForProxy is what a node's service proxy needs of Services, EndpointSlices, Nodes and
	// ServiceCIDRs.
	ForProxy
	// ForGateway is what a gateway needs of cluster.KindsOfGateway.
	ForGateway
	// ForPolicy is ForProxy, and what a node's policies need of Pods, Namespaces, Nodes and the Services
	// of DNS.
	ForPolicy
	// ForLoadBalancer is what a controller of load balancers needs of Services and Namespaces.
	ForLoadBalancer
	// All is all that the model has fields for.
	All
)

// Source reads a cluster into a Store.
type Source struct {
	cfg        Config
	clients    *clients
	readings   []*reading  // that last as long as the Source
	referenced *referenced // further ones; nil for none
	answered   sync.Once
	settling   chan struct{} // closed at the API's first response
}

// ErrSelector is wrapped when a label selector is invalid.
var ErrSelector = errors.New("is not a label selector")

// New returns a Source. It fails when the kubeconfig can't be read or is
// incomplete, or when a selector is invalid. It does not need the API to be
// reachable.
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
		if !slices.Contains(cfg.Kinds, r.Model) || slices.Contains(cluster.ReferencedKinds(), r.Model) {
			continue
		}
		for _, sc := range r.scopesOf(&cfg) {
			s.readings = append(s.readings, newReading(s, r, sc))
		}
	}
	s.referenced = newReferenced(s)
	return s, nil
}

// all returns all readings, those of a kind together.
func (s *Source) all() []*reading { return append(slices.Clip(s.readings), s.referenced.all()...) }

// HeardLast sets, before Run, when the objects in the Store were received.
func (s *Source) HeardLast(t time.Time) {
	for _, r := range s.readings {
		r.lost = t
	}
}

// Run reads and follows the cluster until ctx is done, and returns ctx's error.
func (s *Source) Run(ctx context.Context) error {
	ctx = WithDebugLog(ctx, s.cfg.Log) // what matters is logged here
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.settle(ctx) })
	if s.referenced != nil {
		group.Go(func() error { return s.referenced.run(ctx) })
	}
	for _, r := range s.readings {
		group.Go(func() error { return r.run(ctx) })
		group.Go(func() error { return r.watchdog(ctx, s.cfg.Silence) })
	}
	return group.Wait()
}

// heard is called when the API responds. At the first response, kinds that were
// restored from a snapshot become Confirming, until settle.
func (s *Source) heard() {
	s.answered.Do(func() {
		s.refreshes(cluster.Recalled, cluster.Confirming)
		close(s.settling)
	})
}

// abandon closes the connections to the API if all readings are silent, so that
// the next request opens a new one. Each watch that ends with them is doubted.
func (s *Source) abandon() {
	talks := func(r *reading) bool { return r.silence() <= s.cfg.Silence }
	all := s.all()
	if slices.ContainsFunc(all, talks) {
		return
	}
	for _, r := range all {
		r.doubt(s.cfg.Silence)
	}
	s.clients.dialer.CloseAll()
}

// settle turns kinds that are still Confirming back into Recalled.
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

// sleep waits for d, or fails with ctx's error.
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

// refreshes sets the freshness of the kinds that have the freshness from.
func (s *Source) refreshes(from, to cluster.Freshness) {
	s.cfg.Store.Update(func(tx *cluster.Tx) {
		for _, k := range cluster.KindsOfNames() {
			if tx.Freshness(k) == from {
				tx.SetFreshness(to, k)
			}
		}
	})
}

// listed is called when tx holds all objects of a reading. The kind is
// live when all its readings are listed. Objects in no reading's scope are then
// from a snapshot that was taken with other settings, and are deleted.
func (s *Source) listed(tx *cluster.Tx, by *reading) {
	of := by.resource
	if slices.Contains(cluster.ReferencedKinds(), of.Model) {
		s.referenced.listed(tx, by)
		return
	}
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

// debugOnly lowers all records to the level debug.
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
