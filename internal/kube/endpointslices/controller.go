package endpointslices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	endpointsliceutil "k8s.io/endpointslice/util"

	"portolan.dev/portolan/internal/cluster"
)

// DefaultSyncs is the default number of Services that a Controller processes
// concurrently (kube-controller-manager, --concurrent-service-endpoint-syncs).
const DefaultSyncs = 5

// The backoff between attempts at one Service starts at firstBackoff and doubles up
// to maxBackoff after failures, up to maxStaleBackoff while the watch lags behind.
// The latter is counted separately: a Service may fail for a long time because the
// Node of one Pod is missing while its other Pods change.
const (
	firstBackoff    = 10 * time.Millisecond
	maxBackoff      = 5 * time.Minute
	maxStaleBackoff = time.Second
)

// foreignDelay delays the update of a Service whose slices another client changed, so
// that two clients that disagree do not write in a tight loop (as the endpointslice
// controller of kube-controller-manager, endpointSliceChangeMinSyncDelay).
const foreignDelay = time.Second

// orphanDelay is how long slices may outlive their Service before a warning is
// logged. The garbage collector needs some of it.
const orphanDelay = time.Minute

// SyncResult is the outcome of one attempt to update the slices of a Service.
type SyncResult string

// The results. SyncStale: the watch has not yet delivered what was written before.
const (
	SyncDone   SyncResult = "done"
	SyncStale  SyncResult = "stale"
	SyncFailed SyncResult = "failed"
)

// SyncObserver is notified of every attempt of a Controller and how long it took.
type SyncObserver interface {
	Synced(result SyncResult, took time.Duration)
}

// ControllerConfig configures a Controller.
type ControllerConfig struct {
	// Store is the model, with Services, Pods and Nodes. A source fills it.
	Store *cluster.Store
	// Reader lists and watches the slices of the API. Writer writes them; its
	// requests must have a timeout.
	Reader, Writer kubernetes.Interface
	// Namespaces are those whose slices are read; empty means all.
	Namespaces []string
	// MaxEndpoints is the greatest number of endpoints in a slice, Syncs the number
	// of Services processed concurrently.
	MaxEndpoints, Syncs int
	Observer            SyncObserver
	Log                 *slog.Logger
}

// Controller maintains the EndpointSlices of the API, as the endpointslice controller
// of kube-controller-manager does. Follow may run in many processes, Work only in the
// leader.
type Controller struct {
	cfg     ControllerConfig
	queue   workqueue.TypedRateLimitingInterface[cluster.Key]
	stale   workqueue.TypedRateLimiter[cluster.Key] // backoff while the watch lags behind
	feed    *cluster.Feed
	nodes   *Nodes
	tracker *endpointsliceutil.EndpointSliceTracker
	api     *apiSlices

	mu    sync.Mutex // guards the fields below
	index *Index
	// orphaned has, by Service, since when only its slices exist.
	orphaned map[cluster.Key]time.Time
}

// errStale is the reason why an attempt was postponed.
var errStale = errors.New("the watch has not yet delivered what was written before")

// NewController returns a Controller that is subscribed to the Store.
func NewController(cfg ControllerConfig) *Controller {
	c := &Controller{
		cfg:      cfg,
		feed:     cfg.Store.Subscribe(),
		nodes:    NewNodes(NodesKnown),
		tracker:  endpointsliceutil.NewEndpointSliceTracker(),
		index:    NewIndex(),
		orphaned: make(map[cluster.Key]time.Time),
		stale:    workqueue.NewTypedItemExponentialFailureRateLimiter[cluster.Key](firstBackoff, maxStaleBackoff),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[cluster.Key](firstBackoff, maxBackoff)),
	}
	c.api = newAPISlices(c)
	return c
}

// Waiting returns the number of queued Services.
func (c *Controller) Waiting() int { return c.queue.Len() }

// Slices returns the number of slices labeled ManagedBy, as last read from the API.
func (c *Controller) Slices() int { return c.api.len() }

// Missing returns, in words, which kinds have not been read completely yet.
func (c *Controller) Missing() (missing []string) {
	c.cfg.Store.View(func(v *cluster.View) { missing = v.Unread(readKinds...) })
	if !c.api.synced() {
		missing = append(missing, cluster.KindEndpointSlice.String()+"s are not read completely")
	}
	return missing
}

// Problem returns why the slices of the API cannot be read; nil if they can.
func (c *Controller) Problem() error { return c.api.problem() }

// ReadKinds lists the kinds that slices depend on.
func ReadKinds() []cluster.Kind { return slices.Clone(readKinds) }

var readKinds = []cluster.Kind{cluster.KindService, cluster.KindPod, cluster.KindNode}

// Follow reads slices and queues the Services that changes affect, until ctx is done;
// it returns ctx's error. It may be called once.
func (c *Controller) Follow(ctx context.Context) error {
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() { c.api.run(ctx) })
	defer c.feed.Close()
	defer c.queue.ShutDown() // ends Work
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.feed.Ready():
			c.mu.Lock()
			c.cfg.Store.View(c.absorb)
			c.mu.Unlock()
		}
	}
}

// absorb applies the changes of the model to the index and queues the affected
// Services. It postpones that until all kinds are loaded.
func (c *Controller) absorb(v *cluster.View) {
	if !v.Loaded(readKinds...) {
		return
	}
	changes := c.feed.Pending()
	if changes.Empty() {
		return
	}
	if changes.Everything || hasNodes(changes) {
		c.nodes.Set(v)
	}
	for key := range c.index.Update(v, changes) {
		c.queue.Add(key)
	}
}

// Work waits until everything is read, then processes the queue until ctx is done. It
// then cancels requests in flight, sends no more, and returns ctx's error. It may be
// called once.
func (c *Controller) Work(ctx context.Context) error {
	if err := c.awaitRead(ctx); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, c.queue.ShutDown)()
	var working sync.WaitGroup
	for range c.cfg.Syncs {
		r := NewReconciler(ReconcilerConfig{
			Client:       writerUntil(ctx, c.cfg.Writer),
			Nodes:        c.nodes,
			MaxEndpoints: c.cfg.MaxEndpoints,
			Tracker:      c.tracker,
			Events:       events{c.cfg.Log},
		})
		working.Go(func() {
			for c.workOnNext(ctx, r) {
			}
		})
	}
	working.Wait()
	return ctx.Err()
}

// awaitRead waits until everything that slices depend on is read.
func (c *Controller) awaitRead(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for len(c.Missing()) > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// workOnNext processes the next Service and reports whether there may be more.
func (c *Controller) workOnNext(ctx context.Context, r *Reconciler) bool {
	key, ended := c.queue.Get()
	if ended {
		return false
	}
	defer c.queue.Done(key)
	if ctx.Err() != nil {
		return true // the next leader processes the rest of the queue
	}
	began := time.Now()
	err := c.sync(r, key)
	if !errors.Is(err, errStale) {
		c.stale.Forget(key)
	}
	result := SyncDone
	switch {
	case err != nil && ctx.Err() != nil:
		return true // canceled
	case err == nil:
		c.queue.Forget(key)
	case errors.Is(err, errStale):
		result = SyncStale
		c.queue.AddAfter(key, c.stale.When(key))
	default:
		result = SyncFailed
		c.cfg.Log.Warn("slices not updated, will retry", "service", key, "attempt", c.queue.NumRequeues(key)+1, "err", err)
		c.queue.AddRateLimited(key)
	}
	c.cfg.Observer.Synced(result, time.Since(began))
	return true
}

// sync updates the slices of a Service. It leaves the slices of a deleted Service to
// the garbage collector, which follows their owner reference, and keeps those of a
// Service that has no selector any more (EndpointSlices, "Ownership") or that the
// source refused.
func (c *Controller) sync(r *Reconciler, key cluster.Key) error {
	service, pods := c.lookup(key)
	if service == nil {
		c.forget(key)
		c.watchOrphans(key)
		return nil
	}
	if !HasSlices(service) {
		return nil
	}
	existing := c.api.of(key)
	named := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if c.tracker.StaleSlices(named, existing) {
		return fmt.Errorf("slices of service %s: %w", key, errStale)
	}
	defer r.library.DeleteService(key.Namespace, key.Name) // the library's metrics are not exported
	return r.Reconcile(Request{Service: service, Pods: pods, Existing: existing})
}

// lookup returns a Service and the Pods that it selects, from one view.
func (c *Controller) lookup(key cluster.Key) (service *cluster.Service, pods []*cluster.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cfg.Store.View(func(v *cluster.View) {
		c.absorb(v)
		service, pods = v.Service(key), c.index.Pods(key)
	})
	if service != nil {
		delete(c.orphaned, key)
	}
	return service, pods
}

// forget drops the state about a deleted Service.
func (c *Controller) forget(key cluster.Key) {
	c.tracker.DeleteService(key.Namespace, key.Name)
	c.nodes.forget(key)
}

// watchOrphans logs a warning if slices stay although the model lacks their Service.
// A Service that the source refused looks like a deleted one, except that the garbage
// collector does not delete its slices.
func (c *Controller) watchOrphans(key cluster.Key) {
	remaining := len(c.api.of(key))
	c.mu.Lock()
	defer c.mu.Unlock()
	if remaining == 0 {
		delete(c.orphaned, key)
		return
	}
	since, known := c.orphaned[key]
	if !known {
		since = time.Now()
		c.orphaned[key] = since
	}
	if left := orphanDelay - time.Since(since); left > 0 {
		c.queue.AddAfter(key, left) // each time: the queue keeps the earliest
		return
	}
	delete(c.orphaned, key)
	c.cfg.Log.Warn(
		"slices not maintained: their service was refused, or was deleted and the garbage collector has not removed them",
		"service", key, "slices", remaining)
}

// sliceChanged handles a slice of the API that was added or changed.
func (c *Controller) sliceChanged(s *discoveryv1.EndpointSlice) {
	if c.tracker.ShouldSync(s) {
		c.queueFor(s)
	}
}

// sliceDeleted handles a slice of the API that was deleted.
func (c *Controller) sliceDeleted(s *discoveryv1.EndpointSlice) {
	if c.tracker.Has(s) && !c.tracker.HandleDeletion(s) {
		c.queueFor(s)
	}
}

// queueFor queues the Service of a slice that another client changed.
func (c *Controller) queueFor(s *discoveryv1.EndpointSlice) {
	if key := serviceOf(s); key.Name != "" {
		c.queue.AddAfter(key, foreignDelay)
	}
}

func serviceOf(s *discoveryv1.EndpointSlice) cluster.Key {
	return cluster.Key{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
}

// withoutDeleted removes slices that are being deleted: endpoints must not move there.
func withoutDeleted(all []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	return slices.DeleteFunc(all, func(s *discoveryv1.EndpointSlice) bool { return s.DeletionTimestamp != nil })
}
