package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"portolan.dev/portolan/internal/cluster"
)

// reading lists and watches the objects of one kind in one scope, over and
// over, and writes them into the Store. It is the Reflector's ListerWatcher
// and its store.
type reading struct {
	source   *Source
	resource *resource
	scope    scope
	listed   atomic.Bool // all objects were read once
	events   [eventTypes]atomic.Uint64
	lastWord atomic.Int64 // when the API was heard, by the monotonic clock

	mu      sync.Mutex
	watch   *openWatch // nil while there is none
	lost    time.Time  // since when there was none, when there is none
	problem error      // why there is none; nil when that is not known
	refused map[cluster.Key]string
}

// Retries begin at once and soon come every few seconds: an API server that is
// back should not wait long to be heard.
var backoff = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 7, Cap: 5 * time.Second, Jitter: 0.5}

func newReading(s *Source, r *resource, sc scope) *reading {
	return &reading{source: s, resource: r, scope: sc, lost: time.Now(), refused: make(map[cluster.Key]string)}
}

// run reads until ctx is done.
func (r *reading) run(ctx context.Context) error {
	b := backoff
	cache.NewReflectorWithOptions(r.listerWatcher(), r.resource.example, r, cache.ReflectorOptions{
		Name: r.resource.name, Backoff: &b,
	}).RunWithContext(ctx)
	return ctx.Err()
}

func (r *reading) listerWatcher() *cache.ListWatch {
	return &cache.ListWatch{ListWithContextFunc: r.list, WatchFuncWithContext: r.begin}
}

func (r *reading) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	// A server that stopped in the middle of a list must not hold it up.
	ctx, cancel := context.WithTimeout(ctx, r.source.cfg.Silence)
	defer cancel()
	list, err := r.source.clients.list(ctx, r, options)
	if err != nil {
		r.failed(ctx, err)
		return nil, err
	}
	r.heard()
	return list, nil
}

// begin begins a watch.
func (r *reading) begin(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	inner, err := r.source.clients.watch(ctx, r, options)
	if err != nil {
		r.failed(ctx, err)
		return nil, err
	}
	r.heard()
	w := &openWatch{Interface: inner, reading: r}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watch, r.lost = w, time.Time{}
	if r.problem != nil {
		r.problem = nil
		r.source.cfg.Log.Info("kubernetes api is heard again", "resource", r.resource.name)
	}
	return w, nil
}

// openWatch is a watch that tells its reading when it ends.
type openWatch struct {
	watch.Interface
	reading *reading
}

// Stop ends the watch; the Reflector calls it however the watch ended.
func (w *openWatch) Stop() {
	w.Interface.Stop()
	r := w.reading
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watch == w {
		r.watch, r.lost = nil, time.Now()
	}
}

// processStart is what lastWord counts from.
var processStart = time.Now()

func (r *reading) heard() {
	r.lastWord.Store(int64(time.Since(processStart)))
	r.source.heard()
}

// silence is how long the API was not heard.
func (r *reading) silence() time.Duration {
	return time.Since(processStart) - time.Duration(r.lastWord.Load())
}

// watchdog breaks off a watch on which nothing came for too long, be it that
// the connection is half open or that the server forgot it. The Reflector then
// begins another one where this one ended.
func (r *reading) watchdog(ctx context.Context, limit time.Duration) error {
	const looks = 4 // in that time
	ticker := time.NewTicker(limit / looks)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		r.mu.Lock()
		w := r.watch
		r.mu.Unlock()
		if silence := r.silence(); w != nil && silence > limit {
			r.source.cfg.Log.Warn("kubernetes api is silent; watching anew", "resource", r.resource.name, "for", silence.Round(time.Second))
			w.Stop()
			r.mu.Lock()
			r.lost = time.Now().Add(-silence)
			r.mu.Unlock()
		}
	}
}

// failed notes why there is no watch, and logs it once.
func (r *reading) failed(ctx context.Context, err error) {
	if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
		return // told to end
	}
	if renewed := r.source.clients.renew(); renewed != nil {
		err = renewed
	}
	err = r.explained(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.problem == nil || r.problem.Error() != err.Error() {
		r.source.cfg.Log.Error("kubernetes api can't be read; what was read stays, and it is tried again", "resource", r.resource.name, "err", err)
	}
	r.problem = err
}

// explained says which rule is missing where one is.
func (r *reading) explained(err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	return fmt.Errorf("%w; allow it with the rule {apiGroups: [%q], resources: [%s], verbs: [list, watch]}", err, r.resource.group.Group, r.resource.name)
}
