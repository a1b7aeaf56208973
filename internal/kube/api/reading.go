package api

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
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
	kept     fields      // of its objects
	server   string      // host and port that were asked last; for the goroutine that asks
	listed   atomic.Bool // all objects were read once
	events   [eventTypes]atomic.Uint64
	lastWord atomic.Int64 // when the API was heard, by the monotonic clock

	mu      sync.Mutex
	watch   *openWatch // nil while there is none
	lost    time.Time  // since when the API is not heard; zero while it is
	doubted bool       // it was silent for too long, and nothing came since
	problem error      // why there is no watch; nil when that is not known
	causes  []string   // of the problems that were logged since it was heard
	refused map[cluster.Key]string
}

// Retries begin at once and soon come every few seconds: an API server that is
// back should not wait long to be heard.
var backoff = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 7, Cap: 5 * time.Second, Jitter: 0.5}

func newReading(s *Source, r *resource, sc scope) *reading {
	return &reading{source: s, resource: r, scope: sc, kept: s.cfg.kept()[r.Model.String()], lost: time.Now(), refused: make(map[cluster.Key]string)}
}

// run reads until ctx is done.
func (r *reading) run(ctx context.Context) error {
	b := backoff
	cache.NewReflectorWithOptions(r.listerWatcher(), r.resource.New(), r, cache.ReflectorOptions{
		Name: r.resource.Resource, Backoff: &b,
	}).RunWithContext(ctx)
	return ctx.Err()
}

func (r *reading) listerWatcher() listerWatcher {
	lw := &cache.ListWatch{ListWithContextFunc: r.list, WatchFuncWithContext: r.begin}
	return listerWatcher{lw, !r.source.cfg.WatchList}
}

// listerWatcher tells the Reflector whether lists may come as watches.
type listerWatcher struct {
	*cache.ListWatch
	noWatchList bool
}

// IsWatchListSemanticsUnSupported is what the Reflector asks.
func (lw listerWatcher) IsWatchListSemanticsUnSupported() bool { return lw.noWatchList }

// begin begins a watch.
func (r *reading) begin(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	pause := backoff
	for {
		w, err := r.open(ctx, options)
		// The Reflector would wait as well, but before the first list is there
		// it does not end while it waits.
		if waits := utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err); err == nil || !waits || options.SendInitialEvents == nil {
			return w, err
		}
		if err := sleep(ctx, pause.Step()); err != nil {
			return nil, err
		}
	}
}

// The ways in which a server does not answer.
var (
	errUnanswered = errors.New("no answer")
	errHungUp     = fmt.Errorf("%w: connection closed or timed out", errUnanswered)
)

// unanswered is the error of a request that nobody answered.
func (r *reading) unanswered() error {
	r.source.abandon()
	return fmt.Errorf("%w within %s", errUnanswered, r.source.cfg.Silence)
}

// open sends the request for a watch, and waits for the answer's beginning.
func (r *reading) open(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	// client-go holds to the limit in everything but watches.
	if err := r.source.clients.limit.Wait(ctx); err != nil {
		return nil, err
	}
	// A server that takes connections and answers nothing must not hold it up.
	asking, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(r.source.cfg.Silence, func() { cancel(errUnanswered) })
	inner, err := r.source.clients.watch(asking, r, options)
	late.Stop()
	switch {
	case context.Cause(asking) == errUnanswered: // be it that it came just then
		err = r.unanswered()
	case err == nil && reflect.TypeOf(inner) == reflect.TypeOf(watch.NewEmptyWatch()):
		err = errHungUp // which client-go hides
	}
	if err != nil {
		if inner != nil {
			inner.Stop()
		}
		cancel(nil)
		// An old server refuses lists as streams; the list that follows counts.
		if options.SendInitialEvents == nil || !apierrors.IsInvalid(err) {
			r.failed(ctx, err)
		}
		return nil, err
	}
	r.heard()
	w := &openWatch{Interface: inner, reading: r, cancel: cancel}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watch = w
	if !r.doubted {
		r.found()
	}
	return w, nil
}

// found notes, with mu held, that the API is heard.
func (r *reading) found() {
	if r.problem != nil || r.doubted {
		r.source.cfg.Log.Info("kubernetes api is heard again", "resource", r.resource.Resource)
	}
	r.problem, r.causes, r.doubted = nil, nil, false
	if r.watch != nil {
		r.lost = time.Time{}
	}
}

// openWatch is a watch that tells its reading when it ends.
type openWatch struct {
	watch.Interface
	reading *reading
	cancel  context.CancelCauseFunc // of its request
}

// Stop ends the watch; the Reflector calls it however the watch ended.
func (w *openWatch) Stop() {
	w.Interface.Stop()
	w.cancel(nil)
	r := w.reading
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watch != w {
		return
	}
	r.watch = nil
	if r.lost.IsZero() {
		r.lost = time.Now()
	}
}

// processStart is what lastWord counts from.
var processStart = time.Now()

// heard is called when the API answers.
func (r *reading) heard() {
	r.lastWord.Store(int64(time.Since(processStart)))
	r.source.heard()
}

// told is called when the API tells of objects, or that they are as they were.
// An answer without that does not end the doubt that a silence raised.
func (r *reading) told() {
	r.heard()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.doubted {
		r.found()
	}
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
		if w := r.doubt(limit); w != nil {
			r.source.abandon()
			w.Stop()
		}
	}
}

// doubt gives the watch that is silent for too long, if it is, and logs that
// once.
func (r *reading) doubt(limit time.Duration) *openWatch {
	r.mu.Lock()
	defer r.mu.Unlock()
	silence := r.silence()
	if r.watch == nil || silence <= limit {
		return nil
	}
	if !r.doubted {
		r.doubted, r.lost = true, time.Now().Add(-silence)
		r.source.cfg.Log.Warn("kubernetes api is silent; watching anew", "resource", r.resource.Resource, "for", silence.Round(time.Second))
	}
	return r.watch
}

// failed notes why there is no watch, and logs each cause once until the API is
// heard.
func (r *reading) failed(ctx context.Context, err error) {
	if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
		return // told to end
	}
	err = r.explained(err)
	if renewed := r.source.clients.renew(); renewed != nil {
		err = renewed
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	const most = 16 // causes that are told apart
	if c := cause(err); !slices.Contains(r.causes, c) && len(r.causes) < most {
		r.causes = append(r.causes, c)
		r.source.cfg.Log.Error("kubernetes api can't be read; what was read stays, and it is tried again", "resource", r.resource.Resource, "err", err)
	}
	r.problem = err
}

// explained says which rule is missing where one is, and where the API was
// looked for instead of all that it was asked.
func (r *reading) explained(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w; allow it with the rule {apiGroups: [%q], resources: [%s], verbs: [list, watch]}", err, r.resource.Group.Group, r.resource.Resource)
	}
	var asked *url.Error
	switch {
	case errors.As(err, &asked):
		err = asked.Err
	case !errors.Is(err, errUnanswered):
		return err
	}
	return fmt.Errorf("%s: %w", r.server, err)
}

// Refused tells whether a Problem is that the API server will not have its
// reader. A server that has just started may say so and mean it no longer a
// moment later.
func Refused(problem error) bool {
	return apierrors.IsForbidden(problem) || apierrors.IsUnauthorized(problem)
}

// cause is what an error comes down to. Of one cause there are many texts: it
// was a list or a watch, from one port or another.
func cause(err error) string {
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return string(reason)
	}
	// Texts that hold a port or the time differ each time.
	var lookup *net.DNSError
	if errors.As(err, &lookup) {
		return "lookup of " + lookup.Name
	}
	var certificate x509.CertificateInvalidError
	if errors.As(err, &certificate) {
		return fmt.Sprintf("certificate, reason %d", certificate.Reason)
	}
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err.Error()
}
