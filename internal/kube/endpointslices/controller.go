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

// DefaultSyncs is how many Services a Controller works on at once by default, as
// kube-controller-manager does (--concurrent-service-endpoint-syncs).
const DefaultSyncs = 5

// Pauses between attempts at one Service, of which each is twice the last. Those
// after attempts that failed get long. Those for a watch that has not told yet what
// was written a moment ago do not, however often the Service failed before: it may,
// as long as the Node of one of its Pods is missing, and all else goes on.
const (
	firstPause     = 10 * time.Millisecond
	lastPause      = 5 * time.Minute
	lastStalePause = time.Second
)

// foreignPause is how long a Service waits whose slices somebody else changed:
// two who disagree shall not do so at full speed (as the endpointslice controller
// of kube-controller-manager, endpointSliceChangeMinSyncDelay).
const foreignPause = time.Second

// collectTime is how long slices of a Service that is not there may stay before
// that is worth a word: the garbage collector does not come at once.
const collectTime = time.Minute

// SyncResult is what became of one attempt at the slices of a Service.
type SyncResult string

// The results. Stale: the watch has not yet told what was written before.
const (
	SyncDone   SyncResult = "done"
	SyncStale  SyncResult = "stale"
	SyncFailed SyncResult = "failed"
)

// SyncObserver is notified of every attempt of a Controller.
type SyncObserver interface {
	Synced(result SyncResult, took time.Duration)
}

// ControllerConfig is what a Controller is made from.
type ControllerConfig struct {
	// Store is read into by someone else: Services, Pods and Nodes.
	Store *cluster.Store
	// Reader lists and watches the slices of the API, Writer writes them; its
	// requests must have a bound.
	Reader, Writer kubernetes.Interface
	// Namespaces are those whose slices are read; all when empty.
	Namespaces []string
	// MaxEndpoints is how many endpoints a slice holds at most, Syncs how many
	// Services are worked on at once.
	MaxEndpoints, Syncs int
	Observer            SyncObserver
	Log                 *slog.Logger
}

// Controller keeps up the EndpointSlices of a real API, as the endpointslice
// controller of kube-controller-manager does. Follow may run in many processes,
// Work only in one at a time.
type Controller struct {
	cfg     ControllerConfig
	queue   workqueue.TypedRateLimitingInterface[cluster.Key]
	stale   workqueue.TypedRateLimiter[cluster.Key] // the pauses for the watch
	feed    *cluster.Feed
	nodes   *Nodes
	tracker *endpointsliceutil.EndpointSliceTracker
	api     *apiSlices

	mu    sync.Mutex // of what follows
	index *Index
	// orphaned is since when Services are not there whose slices are.
	orphaned map[cluster.Key]time.Time
}

// errStale is why an attempt was put off.
var errStale = errors.New("the watch has not told yet what was written before")

// NewController makes a Controller, which follows the Store from now on.
func NewController(cfg ControllerConfig) *Controller {
	c := &Controller{
		cfg: cfg, feed: cfg.Store.Subscribe(), nodes: NewNodes(NodesKnown), tracker: endpointsliceutil.NewEndpointSliceTracker(), index: NewIndex(), orphaned: make(map[cluster.Key]time.Time),
		stale: workqueue.NewTypedItemExponentialFailureRateLimiter[cluster.Key](firstPause, lastStalePause),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[cluster.Key](firstPause, lastPause)),
	}
	c.api = newAPISlices(c)
	return c
}

// Waiting is how many Services wait to be worked on.
func (c *Controller) Waiting() int { return c.queue.Len() }

// Slices is how many slices it keeps up, as far as the API told.
func (c *Controller) Slices() int { return c.api.len() }

// Missing says in words what has not been read yet of that slices are made from.
func (c *Controller) Missing() (missing []string) {
	c.cfg.Store.View(func(v *cluster.View) {
		for _, k := range readKinds {
			if !v.Loaded(k) {
				missing = append(missing, k.String()+"s are not all read")
			}
		}
	})
	if !c.api.synced() {
		missing = append(missing, cluster.KindEndpointSlice.String()+"s are not all read")
	}
	return missing
}

// Problem is why the slices of the API can't be read; nil when they can.
func (c *Controller) Problem() error { return c.api.problem() }

// readKinds are those that slices are made from.
var readKinds = []cluster.Kind{cluster.KindService, cluster.KindPod, cluster.KindNode}

// Follow keeps up what there is to do, until ctx is done; it returns ctx's error.
// It may be called once.
func (c *Controller) Follow(ctx context.Context) error {
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() { c.api.run(ctx) })
	defer c.feed.Close()
	defer c.queue.ShutDown() // Work, where it runs, has ended then, or ends
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

// absorb takes in what changed in the model and queues the Services that are
// touched. Before all is read it leaves that for later.
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

// Work writes what has to change, until ctx is done, when it sends nothing more and
// breaks off requests under way; it returns ctx's error. It waits until everything
// is read. It may be called once.
func (c *Controller) Work(ctx context.Context) error {
	if err := c.awaitRead(ctx); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, c.queue.ShutDown)()
	var working sync.WaitGroup
	for range c.cfg.Syncs {
		r := NewReconciler(ReconcilerConfig{
			Client: writerUntil(ctx, c.cfg.Writer), Nodes: c.nodes, MaxEndpoints: c.cfg.MaxEndpoints, Tracker: c.tracker, Events: events{c.cfg.Log},
		})
		working.Go(func() {
			for c.workOnNext(ctx, r) {
			}
		})
	}
	working.Wait()
	return ctx.Err()
}

// awaitRead waits until all is there that slices are made from.
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

// workOnNext works on the next Service, and tells whether there may be more.
func (c *Controller) workOnNext(ctx context.Context, r *Reconciler) bool {
	key, ended := c.queue.Get()
	if ended {
		return false
	}
	defer c.queue.Done(key)
	if ctx.Err() != nil {
		return true // the rest of the queue is for who leads next
	}
	began := time.Now()
	err := c.sync(r, key)
	if !errors.Is(err, errStale) {
		c.stale.Forget(key)
	}
	result := SyncDone
	switch {
	case err != nil && ctx.Err() != nil:
		return true // broken off
	case err == nil:
		c.queue.Forget(key)
	case errors.Is(err, errStale):
		result = SyncStale
		c.queue.AddAfter(key, c.stale.When(key))
	default:
		result = SyncFailed
		c.cfg.Log.Warn("slices not brought up to date; tried again", "service", key, "attempt", c.queue.NumRequeues(key)+1, "err", err)
		c.queue.AddRateLimited(key)
	}
	c.cfg.Observer.Synced(result, time.Since(began))
	return true
}

// sync brings the slices of a Service up to date. Those of a Service that went
// are for the garbage collector, which their owner reference tells of it; those
// of one that selects no more stay (EndpointSlices, "Ownership"), and so do those of
// one that was refused when it was read.
func (c *Controller) sync(r *Reconciler, key cluster.Key) error {
	service, pods := c.look(key)
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
	defer r.library.DeleteService(key.Namespace, key.Name) // figures that nobody asks for
	return r.Reconcile(Request{Service: service, Pods: pods, Existing: existing})
}

// look gives a Service and the Pods that it selects, of one moment.
func (c *Controller) look(key cluster.Key) (service *cluster.Service, pods []*cluster.Pod) {
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

// forget drops what is remembered of a Service that went.
func (c *Controller) forget(key cluster.Key) {
	c.tracker.DeleteService(key.Namespace, key.Name)
	c.nodes.forget(key)
}

// watchOrphans says that slices are not kept up when they stay although their
// Service is not there. One that was never read, as it was refused, looks the same
// as one that went: only that nobody collects its slices tells them apart.
func (c *Controller) watchOrphans(key cluster.Key) {
	stay := len(c.api.of(key))
	c.mu.Lock()
	defer c.mu.Unlock()
	if stay == 0 {
		delete(c.orphaned, key)
		return
	}
	since, known := c.orphaned[key]
	if !known {
		since = time.Now()
		c.orphaned[key] = since
	}
	if left := collectTime - time.Since(since); left > 0 {
		c.queue.AddAfter(key, left) // each time: a shorter wait takes the place of a longer one
		return
	}
	delete(c.orphaned, key)
	c.cfg.Log.Warn("slices not kept up: their service was refused when it was read, or is gone and they are not collected", "service", key, "slices", stay)
}

// sliceChanged is told of a slice of the API that is new or different.
func (c *Controller) sliceChanged(s *discoveryv1.EndpointSlice) {
	if c.tracker.ShouldSync(s) {
		c.queueFor(s)
	}
}

// sliceGone is told of a slice that went.
func (c *Controller) sliceGone(s *discoveryv1.EndpointSlice) {
	if c.tracker.Has(s) && !c.tracker.HandleDeletion(s) {
		c.queueFor(s)
	}
}

// queueFor queues the Service of a slice that somebody else changed.
func (c *Controller) queueFor(s *discoveryv1.EndpointSlice) {
	if key := serviceOf(s); key.Name != "" {
		c.queue.AddAfter(key, foreignPause)
	}
}

func serviceOf(s *discoveryv1.EndpointSlice) cluster.Key {
	return cluster.Key{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
}

// withoutDeleted are those slices that are not told to end: they are no place
// for endpoints.
func withoutDeleted(all []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	return slices.DeleteFunc(all, func(s *discoveryv1.EndpointSlice) bool { return s.DeletionTimestamp != nil })
}
