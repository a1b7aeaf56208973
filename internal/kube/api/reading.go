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
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"portolan.dev/portolan/internal/cluster"
)

// reading lists and watches the objects of one kind in one scope and writes them
// into the Store. It is the Reflector's ListerWatcher and its store.
type reading struct {
	source   *Source
	resource *resource
	scope    scope
	kept     fields       // of its objects
	server   string       // host and port of the last request; used by the goroutine that sends it
	lastPod  *cluster.Pod // that was converted; used by the Reflector's goroutine
	listed   atomic.Bool  // all objects were read once
	ended    atomic.Bool  // it must not change the Store any more
	events   [eventTypes]atomic.Uint64
	lastWord atomic.Int64 // time since processStart of the last response or event

	mu      sync.Mutex
	watch   *openWatch // nil while there is none
	lost    time.Time  // since when there is no watch; zero while there is one
	doubted bool       // the watch was silent for too long, and nothing came since
	problem error      // why there is no watch; nil when that is not known
	causes  []string   // of the problems that were logged since the API was lost
	refused map[cluster.Key]string
}

// backoff starts short and soon reaches a few seconds: an API server that is back
// should be watched without delay.
var backoff = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 7, Cap: 5 * time.Second, Jitter: 0.5}

func newReading(s *Source, r *resource, sc scope) *reading {
	return &reading{
		source:   s,
		resource: r,
		scope:    sc,
		kept:     s.cfg.kept()[r.Model.String()],
		lost:     time.Now(),
		refused:  make(map[cluster.Key]string),
	}
}

// run lists and watches until ctx is done.
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

// listerWatcher tells the Reflector whether to request lists as watches.
type listerWatcher struct {
	*cache.ListWatch
	noWatchList bool
}

// IsWatchListSemanticsUnSupported is called by the Reflector.
func (lw listerWatcher) IsWatchListSemanticsUnSupported() bool { return lw.noWatchList }

// begin starts a watch.
func (r *reading) begin(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	pause := backoff
	for {
		w, err := r.open(ctx, options)
		// The Reflector would wait as well, but before the first list it does not
		// stop when ctx is done.
		waits := utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)
		if err == nil || !waits || options.SendInitialEvents == nil {
			return w, err
		}
		if err := sleep(ctx, pause.Step()); err != nil {
			return nil, err
		}
	}
}

// The ways in which a server does not respond.
var (
	errUnanswered = errors.New("no answer")
	errHungUp     = fmt.Errorf("%w: connection closed or timed out", errUnanswered)
)

// unanswered returns the error of a request without response.
func (r *reading) unanswered() error {
	r.source.abandon()
	return fmt.Errorf("%w within %s", errUnanswered, r.source.cfg.Silence)
}

// open sends the request for a watch and waits for the response's header.
func (r *reading) open(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	// client-go applies the limit to all requests but watches.
	if err := r.source.clients.limit.Wait(ctx); err != nil {
		return nil, err
	}
	// A server that accepts connections and does not respond must not block it.
	asking, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(r.source.cfg.Silence, func() { cancel(errUnanswered) })
	inner, err := r.source.clients.watch(asking, r, options)
	late.Stop()
	switch {
	case errors.Is(context.Cause(asking), errUnanswered): // even if the response came just then
		err = r.unanswered()
	case err == nil && reflect.TypeOf(inner) == reflect.TypeOf(watch.NewEmptyWatch()):
		err = errHungUp // client-go hides the error
	}
	if err != nil {
		if inner != nil {
			inner.Stop()
		}
		cancel(nil)
		// An old server rejects lists as watches; the list that follows counts.
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

// found records that the API is watched again. It needs mu.
func (r *reading) found() {
	if r.problem != nil || r.doubted {
		r.source.cfg.Log.Info("kubernetes api responds again", "resource", r.resource.Resource)
	}
	if slices.Contains(r.causes, causeAbsent) {
		r.source.cfg.Log.Info("the cluster has the resource now", "resource", r.resource.Resource,
			"group", r.resource.Group.Group)
	}
	r.problem, r.causes, r.doubted = nil, nil, false
	if r.watch != nil {
		r.lost = time.Time{}
	}
}

// openWatch is a watch that updates its reading when it ends.
type openWatch struct {
	watch.Interface
	reading *reading
	cancel  context.CancelCauseFunc // of its request
}

// Stop ends the watch. The Reflector calls it for every watch.
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

// heard is called when the API responds.
func (r *reading) heard() {
	r.lastWord.Store(int64(time.Since(processStart)))
	r.source.heard()
}

// told is called for each event, bookmarks included. Only events end the doubt
// about a silent watch, other responses do not.
func (r *reading) told() {
	r.heard()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.doubted {
		r.found()
	}
}

// silence returns the time since the last response or event.
func (r *reading) silence() time.Duration {
	return time.Since(processStart) - time.Duration(r.lastWord.Load())
}

// watchdog stops a watch that is silent for too long, because its connection is
// half open or the server lost it. The Reflector then starts another one where
// it ended.
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

// doubt returns the watch if it is silent for too long, else nil, and logs that
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
		r.source.cfg.Log.Warn("kubernetes api is silent; restarting the watch", "resource", r.resource.Resource,
			"for", silence.Round(time.Second))
	}
	return r.watch
}

// failed records why there is no watch. It logs each cause once until there is a
// watch again. absent reports whether the cause is that the cluster lacks the kind.
func (r *reading) failed(ctx context.Context, err error) (absent bool) {
	if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
		return false // stopped
	}
	if absent, err = r.isAbsent(ctx, err); absent {
		r.noteAbsent()
		return true
	}
	err = r.explained(err)
	if renewed := r.source.clients.renew(); renewed != nil {
		err = renewed
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost.IsZero() {
		r.lost = time.Now() // there was no watch while the kind was absent
	}
	const most = 16 // causes that are told apart
	if c := cause(err); !slices.Contains(r.causes, c) && len(r.causes) < most {
		r.causes = append(r.causes, c)
		r.source.cfg.Log.Error("kubernetes api can't be read; the last known state stays in use; retrying",
			"resource", r.resource.Resource, "err", err)
	}
	r.problem = err
	return false
}

// explained adds the RBAC rule that is missing, if one is, and shortens the URL of
// a failed request to the server's address.
func (r *reading) explained(err error) error {
	if apierrors.IsForbidden(err) && !errors.Is(err, errDiscovery) {
		return fmt.Errorf("%w; allow it with the rule {apiGroups: [%q], resources: [%s], verbs: [list, watch]}", err,
			r.resource.Group.Group, r.resource.Resource)
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

// Refused reports whether a Problem is that the API server denies access. A
// server that has just started may do so for a moment.
func Refused(problem error) bool {
	return apierrors.IsForbidden(problem) || apierrors.IsUnauthorized(problem)
}

// Unreachable reports whether a Problem is that nothing listens at the server's address, or
// that its name does not exist. A server that has just started may be so for a moment.
func Unreachable(problem error) bool {
	for _, e := range []error{syscall.ECONNREFUSED, syscall.ENETUNREACH, syscall.EHOSTUNREACH} {
		if errors.Is(problem, e) {
			return true
		}
	}
	lookup, ok := errors.AsType[*net.DNSError](problem)
	return ok && lookup.IsNotFound
}

// cause returns what distinguishes an error from others: the same cause has many
// texts, with different requests and ports.
func cause(err error) string {
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return string(reason)
	}
	// Texts with a port or the time are different each time.
	if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		return "lookup of " + lookup.Name
	}
	if certificate, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return fmt.Sprintf("certificate, reason %d", certificate.Reason)
	}
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err.Error()
}
