// Package status has the API say what became of Ingresses and of the objects of Gateway API: it derives statuses
// from what the compiler says and from what is served, and writes those that differ from what the API has (Gateway
// API, GatewayStatus, RouteParentStatus; Kubernetes, "API conventions", "Typical status properties").
//
//	compile.Compiler ──► Look: the objects of a change ──► Report, once the change is served
//	addresses, sockets, versions of the CRDs ──►             │ judge.go: what a status is to say
//	                                                         │ apply.go: nothing, if it says that already
//	                                                         ▼
//	                          queue.go: kinds and Namespaces take turns ──► Writer, of one process alone
//
// A status is derived when something changes, in every process, so that one that takes over has what is left to
// be written and nothing else. At rest nothing is written.
package status

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/gateway/table"
)

// Writer writes to the API.
type Writer interface {
	// Update reads an object, and replaces its status by that of what change returns, if that is not nil. It reports
	// whether it wrote. If somebody else writes the object meanwhile it begins again.
	Update(ctx context.Context, of cluster.Ref, change func(cluster.Object) cluster.Object) (wrote bool, err error)
	// Warn writes an Event.
	Warn(ctx context.Context, w Warning) error
}

// Errors that a Writer wraps. Others are of one object alone.
var (
	// ErrGone: the object does not exist.
	ErrGone = errors.New("it does not exist")
	// ErrKind: the API refuses all of the kind, such as for a missing right.
	ErrKind = errors.New("the API refuses the kind")
	// ErrUnavailable: the API cannot be reached, or refuses everything.
	ErrUnavailable = errors.New("the API is not available")
)

// Warning is a problem of an object. Reason and Action are words in UpperCamelCase, as in Events of Kubernetes; the
// Note is for people.
type Warning struct {
	Object               cluster.Ref
	Reason, Action, Note string
}

// Config configures a Reporter.
type Config struct {
	// Controller is that of our GatewayClasses: the entries in statuses of routes that are ours.
	Controller string
	// Experimental: fields of the experimental channel have an effect.
	Experimental bool
	Writer       Writer
	// Lead calls work while this process leads, as often as it does, until ctx is done. Nil: it leads always.
	Lead func(ctx context.Context, work func(context.Context) error) error
	// Bundles follows the version of Gateway API that the cluster has, and calls set whenever it is known or
	// changes, until ctx is done. Nil: it is not known.
	Bundles func(ctx context.Context, set func(Bundle)) error
	// Wrote, unless nil, is called after each attempt.
	Wrote func(cluster.Kind, Result)
	Log   *slog.Logger
}

// Result is what became of an attempt to write a status.
type Result string

// The results. Unneeded: the API had the status already, or another spec than was judged.
const (
	Written  Result = "written"
	Unneeded Result = "unneeded"
	Failed   Result = "failed"
)

// Results lists the results.
func Results() []Result { return []Result{Written, Unneeded, Failed} }

// Kinds lists the kinds whose statuses are written.
func Kinds() []cluster.Kind {
	return append([]cluster.Kind{
		cluster.KindGatewayClass, cluster.KindGateway, cluster.KindListenerSet, cluster.KindIngress,
		cluster.KindBackendTLSPolicy, cluster.KindRoutePolicy, cluster.KindBackendTrafficPolicy,
	}, cluster.RouteKinds()...)
}

// Reporter writes statuses.
type Reporter struct {
	cfg     Config
	queue   *queue
	leading atomic.Bool

	mu     sync.Mutex
	around surroundings
	// known are the subjects whose statuses depend on surroundings, see isAround.
	known map[cluster.Ref]subject
	// nextExpiry is when the next certificate of a listener expires, or one that is gone would have; zero for never.
	nextExpiry time.Time
	// told are the problems that were told, of objects that have any.
	told map[cluster.Ref]map[problem]bool
}

// New returns a Reporter that knows of no object. It starts nothing.
func New(cfg Config) *Reporter {
	r := &Reporter{
		cfg: cfg, queue: newQueue(time.Now, Kinds()...), known: make(map[cluster.Ref]subject),
		told: make(map[cluster.Ref]map[problem]bool),
	}
	r.around.features = Features(cfg.Experimental)
	if cfg.Bundles == nil {
		r.around.bundle = &Bundle{Err: errors.New("the version of Gateway API is not read")}
	}
	if r.cfg.Wrote == nil {
		r.cfg.Wrote = func(cluster.Kind, Result) {}
	}
	return r
}

// Batch is what Look saw.
type Batch struct {
	subjects  []subject
	published []cluster.GatewayAddress
}

// Look reads, within the View that a change was compiled in, what the statuses of objects depend on: those of
// compile.Output.Changed.
func (r *Reporter) Look(v *cluster.View, c *compile.Compiler, changed map[cluster.Ref]struct{}) Batch {
	b := Batch{published: c.Published()}
	for ref := range changed {
		s := subject{ref: ref, object: v.Object(ref.Kind, ref.Key)}
		switch ref.Kind {
		case cluster.KindGatewayClass:
			if verdict, ok := c.Class(ref.Key); ok {
				s.class = &verdict
			}
		case cluster.KindGateway, cluster.KindListenerSet:
			s.gateway = c.Gateway(ref)
		case cluster.KindHTTPRoute, cluster.KindGRPCRoute, cluster.KindTLSRoute, cluster.KindTCPRoute, cluster.KindUDPRoute:
			s.parents = c.Route(ref)
		case cluster.KindBackendTLSPolicy:
			s.parents = c.Policy(ref.Key)
		case cluster.KindRoutePolicy:
			s.parents = c.RoutePolicy(ref.Key)
		case cluster.KindBackendTrafficPolicy:
			s.parents = c.TrafficPolicy(ref.Key)
		case cluster.KindIngress:
			if verdict, ok := c.Ingress(ref.Key); ok {
				s.ingress = &verdict
			}
		default:
			continue
		}
		b.subjects = append(b.subjects, s)
	}
	return b
}

// Report has the statuses of a batch be written, if they differ. What the batch is about must be served; trouble is
// why sockets of the table are not bound, which is not to be changed any more.
func (r *Reporter) Report(b Batch, trouble map[table.Socket]error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range b.subjects {
		if s := &b.subjects[i]; s.object == nil {
			delete(r.known, s.ref)
		} else if isAround(s.ref.Kind) {
			r.known[s.ref] = *s
		}
	}
	was := r.around
	r.around.published, r.around.trouble, r.around.now = b.published, trouble, time.Now()
	for i := range b.subjects {
		r.noteExpiry(&b.subjects[i])
	}
	if r.expires() || (was.published == nil) != (b.published == nil) ||
		!slices.Equal(was.published, b.published) ||
		!maps.EqualFunc(was.trouble, trouble, sameError) {
		r.judgeKnown()
	}
	for i := range b.subjects {
		r.judge(&b.subjects[i])
	}
}

// noteExpiry notes when the next certificate of a listener expires. It needs mu.
func (r *Reporter) noteExpiry(s *subject) {
	if s.gateway == nil {
		return
	}
	for i := range s.gateway.Listeners {
		at := s.gateway.Listeners[i].Expires
		if at.After(r.around.now) && (r.nextExpiry.IsZero() || at.Before(r.nextExpiry)) {
			r.nextExpiry = at
		}
	}
}

// expires reports whether a certificate of a listener may have expired since it was called last. It needs mu.
func (r *Reporter) expires() bool {
	if r.nextExpiry.IsZero() || !r.around.now.After(r.nextExpiry) {
		return false
	}
	r.nextExpiry = time.Time{}
	for _, s := range r.known {
		r.noteExpiry(&s)
	}
	return true
}

// isAround reports whether statuses of a kind depend on surroundings: those of routes and policies do not.
func isAround(k cluster.Kind) bool {
	switch k {
	case cluster.KindBackendTLSPolicy, cluster.KindRoutePolicy, cluster.KindBackendTrafficPolicy:
		return false
	}
	return !slices.Contains(cluster.RouteKinds(), k)
}

func sameError(a, b error) bool { return a.Error() == b.Error() }

// Bound is Report when nothing changed but sockets.
func (r *Reporter) Bound(trouble map[table.Socket]error) {
	r.mu.Lock()
	published := r.around.published
	r.mu.Unlock()
	r.Report(Batch{published: published}, trouble)
}

// setBundle sets the version of Gateway API that the cluster has.
func (r *Reporter) setBundle(b Bundle) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.around.bundle.equal(&b) {
		return
	}
	r.around.bundle = &b
	r.judgeKnown()
}

// judgeKnown judges all objects again whose statuses depend on surroundings. It needs mu.
func (r *Reporter) judgeKnown() {
	for _, s := range r.known {
		r.judge(&s)
	}
}

// judge puts an object into the queue if something is to be written about it, and takes it out otherwise. It needs
// mu.
func (r *Reporter) judge(s *subject) {
	var w *wanted
	if s.object != nil {
		w = r.around.judge(s)
	}
	if w == nil {
		delete(r.told, s.ref)
		r.queue.drop(s.ref)
		return
	}
	r.forget(w)
	if w.apply(s.object, r.cfg.Controller, time.Now()) == nil && len(r.untold(w)) == 0 {
		r.queue.drop(s.ref)
		return
	}
	r.queue.put(w)
}

// forget forgets problems that ended: when they begin again they are told again. It needs mu.
func (r *Reporter) forget(w *wanted) {
	told := r.told[w.ref]
	maps.DeleteFunc(told, func(p problem, _ bool) bool { return !slices.Contains(w.problems, p) })
	if len(told) == 0 {
		delete(r.told, w.ref)
	}
}

// untold returns the problems that are still to be told. It needs mu.
func (r *Reporter) untold(w *wanted) (left []problem) {
	for _, p := range w.problems {
		if !r.told[w.ref][p] {
			left = append(left, p)
		}
	}
	return left
}

// Waiting returns how many objects something is to be written about, by the process that leads.
func (r *Reporter) Waiting() int { return r.queue.len() }

// Leading reports whether this process writes.
func (r *Reporter) Leading() bool { return r.leading.Load() }

// Run writes statuses while this process leads, until ctx is done, and returns nil.
func (r *Reporter) Run(ctx context.Context) error {
	group, running := errgroup.WithContext(ctx)
	if r.cfg.Bundles != nil {
		group.Go(func() error { return r.cfg.Bundles(running, r.setBundle) })
	}
	group.Go(func() error {
		if r.cfg.Lead == nil {
			return r.work(running)
		}
		return r.cfg.Lead(running, r.work)
	})
	if err := group.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// writers is how many statuses are written at once.
const writers = 4

// work writes what is in the queue until ctx is done, and returns ctx's error.
func (r *Reporter) work(ctx context.Context) error {
	r.leading.Store(true)
	defer r.leading.Store(false)
	var group sync.WaitGroup
	defer group.Wait()
	free := make(chan struct{}, writers)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case free <- struct{}{}: // before taking, so that what is put meanwhile has its turn
		}
		i, err := r.next(ctx)
		if err != nil {
			return err
		}
		group.Go(func() {
			defer func() { <-free }()
			r.write(ctx, i)
		})
	}
}

// next waits for an item, or fails with ctx's error.
func (r *Reporter) next(ctx context.Context) (*item, error) {
	for {
		i, at := r.queue.take()
		if i != nil {
			return i, nil
		}
		if err := r.wait(ctx, at); err != nil {
			return nil, err
		}
	}
}

// wait waits until the queue may have an item: until due, unless it is zero.
func (r *Reporter) wait(ctx context.Context, due time.Time) error {
	timer := new(time.Timer)
	if !due.IsZero() {
		timer = time.NewTimer(time.Until(due))
		defer timer.Stop()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-r.queue.wake:
	case <-timer.C:
	}
	return nil
}

// write writes an object's status, and tells of its problems.
func (r *Reporter) write(ctx context.Context, i *item) {
	err := r.update(ctx, i.wanted)
	if err == nil {
		err = r.warn(ctx, i.wanted)
	}
	if errors.Is(err, ErrGone) {
		r.queue.abandon(i)
		return
	}
	if ctx.Err() != nil && err != nil {
		r.queue.done(i, interrupted)
		return
	}
	if err != nil {
		r.cfg.Log.Warn("a status is not written; it is tried again", "object", i.ref, "err", err)
	}
	r.queue.done(i, scopeOf(err))
}

// update writes a status if it differs.
func (r *Reporter) update(ctx context.Context, w *wanted) error {
	wrote, err := r.cfg.Writer.Update(ctx, w.ref, func(o cluster.Object) cluster.Object {
		return w.apply(o, r.cfg.Controller, time.Now())
	})
	switch {
	case errors.Is(err, ErrGone) || ctx.Err() != nil:
	case err != nil:
		r.cfg.Wrote(w.ref.Kind, Failed)
	case wrote:
		r.cfg.Wrote(w.ref.Kind, Written)
	default:
		r.cfg.Wrote(w.ref.Kind, Unneeded)
	}
	return err
}

// warn tells of problems, each once. One that the API refuses is in the log, and counts as told.
func (r *Reporter) warn(ctx context.Context, w *wanted) error {
	r.mu.Lock()
	left := r.untold(w)
	r.mu.Unlock()
	for _, p := range left {
		err := r.cfg.Writer.Warn(ctx, Warning{Object: w.ref, Reason: p.reason, Action: "Serve", Note: p.note})
		if errors.Is(err, ErrUnavailable) || ctx.Err() != nil {
			return err
		}
		if err != nil {
			r.cfg.Log.Warn("an Event is not written", "object", w.ref, "err", err)
		}
		r.tell(w.ref, p)
	}
	return nil
}

// tell notes that a problem was told, unless the object is gone.
func (r *Reporter) tell(of cluster.Ref, p problem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.known[of]; !ok {
		return
	}
	if r.told[of] == nil {
		r.told[of] = make(map[problem]bool)
	}
	r.told[of][p] = true
}

// scope is what a failure is of.
type scope uint8

const (
	none        scope = iota // there is none
	interrupted              // this process does not lead any more
	oneObject
	allOfKind
	all
)

func scopeOf(err error) scope {
	switch {
	case err == nil:
		return none
	case errors.Is(err, ErrUnavailable):
		return all
	case errors.Is(err, ErrKind):
		return allOfKind
	}
	return oneObject
}
