package status

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/gateway/table"
)

// crowd returns a Gateway, n routes of it in the namespace a, and some of others.
func crowd(n int, others ...cluster.Object) []cluster.Object {
	all := base(append([]cluster.Object{gateway("g", "ours", 1, "http:80")}, others...)...)
	for i := range n {
		all = append(all, route("a", fmt.Sprint("r", i), 1, "g"))
	}
	return all
}

// TestNamespacesTakeTurns: a Namespace with thousands of routes delays neither a route of another one, nor the status
// of a Gateway.
func TestNamespacesTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(crowd(3000)...)
		added := false
		s.written = func(of cluster.Ref) {
			if of.Kind == cluster.KindHTTPRoute && !added {
				added = true // when the queue is full
				b := route("b", "one", 1, "g")
				s.objects[b.Ref()] = b
				s.store.Update(func(tx *cluster.Tx) { tx.Put(b) })
			}
		}
		s.pause = time.Millisecond
		ctx, stop := context.WithCancel(t.Context())
		follow(ctx, t, s, nil)
		later(time.Minute)
		writes := s.taken()
		if n := slices.Index(writes, "httproute b/one"); n < 0 || n > 20 {
			t.Errorf("the route of the other Namespace is written as number %d of %d", n, len(writes))
		}
		if n := slices.Index(writes, "gateway a/g"); n < 0 || n > 20 {
			t.Errorf("the Gateway is written as number %d of %d", n, len(writes))
		}
		if routes := len(writes) - strings.Count(strings.Join(writes, "\n"), "gateway"); routes != 3001 {
			t.Errorf("%d routes are written, want 3001", routes)
		}
		stop()
		synctest.Wait()
	})
}

// TestKindsTakeTurns: a kind that always has something to be written does not delay another one.
func TestKindsTakeTurns(t *testing.T) {
	t.Parallel()
	q := newQueue(time.Now, Kinds()...)
	var got []string
	for i := range 3 {
		q.put(&wanted{ref: of(cluster.KindHTTPRoute, fmt.Sprint("r", i))})
	}
	for i := range 6 {
		q.put(&wanted{ref: of(cluster.KindGateway, fmt.Sprint("g", i))})
		taken, _ := q.take()
		got = append(got, taken.ref.Key.Name)
		q.done(taken, none)
	}
	if want := []string{"g0", "r0", "g1", "r1", "g2", "r2"}; !slices.Equal(got, want) {
		t.Errorf("taken: %q, want %q", got, want)
	}
}

// TestProportional: the change of one route of thousands has its own status derived, and that of what counts it.
func TestProportional(t *testing.T) {
	t.Parallel()
	test(t, crowd(2000), func(p *process) {
		t := p.t
		p.server.taken()
		p.server.put(route("a", "new", 1, "g"))
		synctest.Wait()
		want := []string{"gateway a/g", "httproute a/new"}
		if got := sorted(p.server.taken()); !slices.Equal(got, want) {
			t.Errorf("written: %q, want %q", got, want)
		}
	})
}

// TestAway: while the API is away the queue has each object once, and there are few attempts. Then all is written.
func TestAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(crowd(500)...)
		s.fail = func(cluster.Ref) error { return fmt.Errorf("connection refused: %w", ErrUnavailable) }
		ctx, stop := context.WithCancel(t.Context())
		p := follow(ctx, t, s, nil)
		for i := range 10 {
			later(time.Minute)
			s.put(gateway("g", "ours", int64(i+2), "http:80"))
		}
		synctest.Wait()
		if n := p.Waiting(); n != 502 {
			t.Errorf("%d objects wait, want 500 routes, a Gateway and a GatewayClass", n)
		}
		// Each of 3 kinds is tried after 1, 2, 4, ... 30 s by up to 4 writers.
		if s.attempts == 0 || s.attempts > 3*4*25 {
			t.Errorf("%d attempts in 10 min", s.attempts)
		}
		s.mu.Lock()
		s.fail = nil
		s.mu.Unlock()
		later(time.Minute)
		if n := len(s.taken()); n < 502 || p.Waiting() != 0 {
			t.Errorf("%d statuses are written, %d wait", n, p.Waiting())
		}
		stop()
		synctest.Wait()
	})
}

// TestFailures: what the API refuses is of one object, or of a kind; others are written. It is tried again with pauses.
func TestFailures(t *testing.T) {
	t.Parallel()
	for claim, tt := range map[string]struct {
		fail func(cluster.Ref) error
		left int // objects that wait
		most int // attempts in 10 min
	}{
		"one object": {func(of cluster.Ref) error {
			if of.Key.Name == "r7" {
				return errDenied
			}
			return nil
		}, 1, 52 + 25},
		"a kind": {func(of cluster.Ref) error {
			if of.Kind == cluster.KindHTTPRoute {
				return fmt.Errorf("forbidden: %w", ErrKind)
			}
			return nil
		}, 50, 2 + 4*25},
		"an object that is gone": {func(of cluster.Ref) error {
			if of.Key.Name == "r7" {
				return fmt.Errorf("not found: %w", ErrGone)
			}
			return nil
		}, 0, 52},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer(crowd(50)...)
				s.fail = tt.fail
				ctx, stop := context.WithCancel(t.Context())
				p := follow(ctx, t, s, nil)
				later(10 * time.Minute)
				if n := p.Waiting(); n != tt.left || s.attempts > tt.most || tt.left > 0 && s.attempts < 60 {
					t.Errorf("%d objects wait after %d attempts, want %d after up to %d", n, s.attempts, tt.left, tt.most)
				}
				if n := p.results[Failed]; (n > 0) != (tt.left > 0) {
					t.Errorf("%d attempts failed", n)
				}
				s.mu.Lock()
				s.fail = nil
				s.mu.Unlock()
				later(time.Minute)
				if n := p.Waiting(); n != 0 {
					t.Errorf("later %d objects wait", n)
				}
				stop()
				synctest.Wait()
			})
		})
	}
}

// TestTakeOver: of two processes one writes. The other one has the same to write, less and less of it; when it takes
// over it writes what is left, and at rest nothing.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(crowd(100)...)
		lease := make(chan struct{}, 1)
		lead := func(c *Config) {
			c.Lead = func(ctx context.Context, work func(context.Context) error) error {
				select {
				case lease <- struct{}{}:
				case <-ctx.Done():
					return ctx.Err()
				}
				err := work(ctx)
				<-lease
				return err
			}
		}
		left := errors.New("the API is away: " + ErrUnavailable.Error())
		s.fail = func(cluster.Ref) error {
			if s.attempts > 40 {
				return fmt.Errorf("%w: %w", left, ErrUnavailable)
			}
			return nil
		}
		first, die := context.WithCancel(t.Context())
		a := follow(first, t, s, lead)
		synctest.Wait()
		ctx, stop := context.WithCancel(t.Context())
		b := follow(ctx, t, s, lead)
		synctest.Wait()
		if !a.Leading() || b.Leading() || a.Waiting() != b.Waiting() || b.Waiting() == 0 {
			t.Fatalf("they lead: %t, %t, and have %d and %d to write", a.Leading(), b.Leading(), a.Waiting(), b.Waiting())
		}
		written := s.taken()
		die()
		s.mu.Lock()
		s.fail = nil
		s.mu.Unlock()
		synctest.Wait()
		if !b.Leading() || b.Waiting() > 0 {
			t.Errorf("the second leads: %t, and %d objects wait", b.Leading(), b.Waiting())
		}
		rest := s.taken()
		if again := slices.ContainsFunc(rest, func(ref string) bool {
			return strings.HasPrefix(ref, "httproute") && slices.Contains(written, ref)
		}); again || len(rest) < 60 {
			t.Errorf("the second writes %d statuses, some again: %t", len(rest), again)
		}
		later(time.Hour)
		if rest = s.taken(); len(rest) > 0 {
			t.Errorf("at rest %q are written", rest)
		}
		stop()
		synctest.Wait()
	})
}

// TestNotLeading: a process that does not lead writes nothing, and holds no more than there are objects, however often
// they change.
func TestNotLeading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(crowd(20)...)
		ctx, stop := context.WithCancel(t.Context())
		p := follow(ctx, t, s, func(c *Config) {
			c.Lead = func(ctx context.Context, _ func(context.Context) error) error { <-ctx.Done(); return ctx.Err() }
		})
		for i := range 500 {
			s.put(route("a", "r0", int64(i+2), []string{"g", "none"}[i%2]), gateway("g", "ours", int64(i+2), "http:80"))
			synctest.Wait()
		}
		ready := 0
		for _, k := range p.queue.kinds {
			for _, l := range k.lanes {
				for e := l.items.first; e != nil; e = e.next {
					ready++
				}
			}
		}
		if p.Leading() || p.Waiting() > 22 || ready != p.Waiting() || len(s.taken()) > 0 {
			t.Errorf("it leads: %t; %d objects wait, the lists have %d", p.Leading(), p.Waiting(), ready)
		}
		stop()
		synctest.Wait()
	})
}

// TestOthersRewrite: two controllers that each want another status do not keep the API busy.
func TestOthersRewrite(t *testing.T) {
	t.Parallel()
	objects := base(gateway("g", "ours", 1, "http:80"))
	test(t, objects, func(p *process) {
		t := p.t
		s := p.server
		rewrite := func(of cluster.Ref) {
			if g, ok := s.objects[of].(*cluster.Frontend); ok {
				again := *g
				spec := *g.Gateway
				spec.Status.Conditions = nil
				again.Gateway = &spec
				s.objects[of] = &again
				s.store.Update(func(tx *cluster.Tx) { tx.Put(&again) })
			}
		}
		s.mu.Lock()
		s.written = rewrite
		s.writes = nil
		rewrite(of(cluster.KindGateway, "g"))
		s.mu.Unlock()
		later(10 * time.Minute)
		if n := len(s.taken()); n < 10 || n > 30 {
			t.Errorf("%d writes in 10 min, want one each 30 s", n)
		}
		s.mu.Lock()
		s.written = nil
		s.mu.Unlock()
		later(2 * time.Minute)
		s.taken()
		s.put(gateway("g", "ours", 2, "http:81"))
		synctest.Wait()
		if n := len(s.taken()); n != 1 {
			t.Errorf("%d writes for a new generation, want one at once", n)
		}
	})
}

// TestStaleModel: what the API has is newer than what was judged. Nothing is written until that is judged, too.
func TestStaleModel(t *testing.T) {
	t.Parallel()
	test(t, base(gateway("g", "ours", 1, "http:80"), route("a", "r", 3, "g")), func(p *process) {
		t := p.t
		s := p.server
		s.taken()
		s.mu.Lock()
		newer := route("a", "r", 4, "none")
		newer.Spec.Statuses = s.objects[newer.Ref()].(*cluster.Route).Spec.Statuses
		s.objects[newer.Ref()] = newer // the watch is late
		s.mu.Unlock()
		s.delete(of(cluster.KindGateway, "g"))
		synctest.Wait()
		if writes := s.taken(); len(writes) > 0 || p.results[Unneeded] == 0 {
			t.Errorf("written: %q, unneeded: %d", writes, p.results[Unneeded])
		}
		s.put(newer)
		synctest.Wait()
		if n := p.Waiting(); n > 0 {
			t.Errorf("%d objects wait", n)
		}
	})
}

// TestEvents: a problem is told when it begins, once, also by a process that takes over, and again if it begins again.
func TestEvents(t *testing.T) {
	t.Parallel()
	objects := base(ingress("i", "none"), gateway("g", "ours", 1, "http:80", "http:80"))
	test(t, objects, func(p *process) {
		t := p.t
		told := func() (all []string) {
			synctest.Wait()
			p.server.mu.Lock()
			defer p.server.mu.Unlock()
			all, p.server.events = sorted(p.server.events), nil
			return all
		}
		const missing = "ingress a/i: NotServed: spec.defaultBackend: Service a/none does not exist"
		conflict := "gateway a/g: HostnameConflict: listener http: "
		got := told()
		if len(got) != 3 || !strings.HasPrefix(got[0], conflict) || !strings.HasPrefix(got[1], conflict) || got[2] != missing {
			t.Errorf("Events %q", got)
		}
		p.server.put(gateway("h", "ours", 1, "x:81"))
		p.server.put(route("a", "r", 1, "g"))
		later(time.Hour)
		if got := told(); len(got) > 0 {
			t.Errorf("Events again: %q", got)
		}
		p.server.put(ingress("i", "s"))
		if got := told(); len(got) > 0 {
			t.Errorf("without a problem: Events %q", got)
		}
		p.server.put(ingress("i", "none"))
		if got := told(); !slices.Equal(got, []string{missing}) {
			t.Errorf("Events %q, want that of the Ingress again", got)
		}
		many := ingress("m", "s")
		many.Ingress.Rules = []cluster.IngressRule{{}}
		for i := range 50 {
			many.Ingress.Rules[0].Paths = append(many.Ingress.Rules[0].Paths, cluster.IngressPath{
				Path: "/", Type: cluster.PathPrefix,
				Backend: cluster.IngressBackend{Backend: cluster.Backend{Field: fmt.Sprint("f", i), Service: "none", Number: 80}},
			})
		}
		p.server.put(many)
		if got := told(); len(got) != maxProblems || !strings.HasSuffix(got[maxProblems-1], "; and 42 more problems") {
			t.Errorf("Events of 50 problems: %q", got)
		}
		p.server.delete(many.Ref())
		p.server.delete(of(cluster.KindIngress, "i"))
		synctest.Wait()
		if n := len(p.told); n != 1 {
			t.Errorf("problems of %d objects are kept, want those of the Gateway", n)
		}
	})
}

// TestEventsRefused: without the right to write Events statuses are written, and nothing is tried again and again.
func TestEventsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(base(ingress("i", "none"))...)
		refusing := &refusingEvents{server: s}
		ctx, stop := context.WithCancel(t.Context())
		p := follow(ctx, t, s, func(c *Config) { c.Writer = refusing })
		later(time.Hour)
		if refusing.asked != 1 || p.Waiting() > 0 || len(s.taken()) != 2 {
			t.Errorf("%d attempts of an Event, %d objects wait", refusing.asked, p.Waiting())
		}
		stop()
		synctest.Wait()
	})
}

// TestEventOfDeleted: nothing is kept of an object that is deleted while a problem of it is told.
func TestEventOfDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(base(ingress("i", "none"))...)
		ctx, stop := context.WithCancel(t.Context())
		p := follow(ctx, t, s, func(c *Config) { c.Writer = &slowEvents{s} })
		synctest.Wait()
		s.delete(of(cluster.KindIngress, "i"))
		later(time.Second)
		if len(p.told) > 0 || p.Waiting() > 0 {
			t.Errorf("kept: problems %v, %d objects wait", p.told, p.Waiting())
		}
		stop()
		synctest.Wait()
	})
}

// slowEvents takes a second for an Event.
type slowEvents struct{ *server }

func (s *slowEvents) Warn(context.Context, Warning) error {
	time.Sleep(time.Second)
	return nil
}

// refusingEvents refuses Events.
type refusingEvents struct {
	*server
	asked int
}

func (r *refusingEvents) Warn(context.Context, Warning) error {
	r.asked++
	return errDenied
}

// TestIncrementsEqualScratch changes clusters at random. The statuses that result are those that a process writes that
// starts with the last state, and the API then is at rest.
func TestIncrementsEqualScratch(t *testing.T) {
	t.Parallel()
	seeds, changes := 10, 100
	if testing.Short() {
		seeds, changes = 3, 40
	}
	for seed := range seeds {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			t.Parallel()
			w := &world{Rand: rand.New(rand.NewPCG(uint64(seed), 2))}
			test(t, base(), func(p *process) {
				t := p.t
				p.server.mu.Lock()
				p.server.pause = time.Millisecond // so that objects change while they are written
				p.server.mu.Unlock()
				for range changes {
					w.change(p)
					later(time.Duration(w.IntN(3)) * time.Millisecond / 2)
				}
				later(time.Minute) // those that change too often
				want := w.scratch(p)
				if diff := cmp.Diff(want, p.server.statuses()); diff != "" {
					t.Errorf("statuses (-scratch +changes):\n%s", diff)
				}
				p.server.taken()
				later(time.Hour)
				if writes := p.server.taken(); len(writes) > 0 || p.Waiting() > 0 {
					t.Errorf("at rest %q are written, %d wait", writes, p.Waiting())
				}
			})
		})
	}
}

// world changes objects at random.
type world struct {
	*rand.Rand
	generation int64
	trouble    map[table.Socket]error
	bundle     Bundle
}

func (w *world) of(all ...string) string { return all[w.IntN(len(all))] }

// change changes an object as a user or another controller does, or something else that statuses depend on.
func (w *world) change(p *process) {
	w.generation++
	port := func(name string) string { return name + w.of(":80", ":80", ":81") }
	switch w.IntN(11) {
	case 10:
		p.server.put(policy(w.of("p", "q"), w.generation, w.of("r", "s"), w.of("r", "none")))
	case 0:
		p.server.put(gateway(w.of("g", "h"), w.of("ours", "ours", "other"), w.generation, port("x"), port("y")))
	case 1, 2:
		p.server.put(route(w.of("a", "b"), w.of("r", "s"), w.generation, w.of("g", "h", "none"), w.of("g", "set")))
	case 3:
		p.server.put(ingress(w.of("i", "j"), w.of("s", "none")))
	case 4:
		p.server.put(&cluster.ListenerSet{
			Key: cluster.Key{Namespace: w.of("a", "b"), Name: "set"}, Meta: cluster.Meta{Generation: w.generation},
			Parent: parent(w.of("g", "h")).ObjectRef, Listeners: []cluster.Listener{listener(port(w.of("x", "z")))},
		})
	case 5:
		class := *ourClass
		class.Generation = w.generation
		if w.IntN(2) == 0 {
			class.Controller = other
		}
		p.server.put(&class)
	case 6:
		w.trouble = map[table.Socket]error{{Port: []uint16{80, 81}[w.IntN(2)]}: errors.New(w.of("taken", "refused"))}
		p.troubles <- w.trouble
	case 7:
		w.bundle = Bundle{Versions: map[string]string{"gateways": w.of("v1.6.3", "v1.5.0")}}
		p.bundles <- w.bundle
	case 8:
		p.server.delete(of(cluster.Kind(w.IntN(len(cluster.Kinds()))), w.of("g", "r", "i", "set", "p")))
	case 9: // another controller's entry, and a condition of somebody else
		r := get[*cluster.Route](p.server, of(cluster.KindHTTPRoute, "r"))
		if r == nil {
			return
		}
		spec, again := *r.Spec, *r
		spec.Statuses = slices.DeleteFunc(slices.Clone(spec.Statuses), func(cluster.ParentStatus) bool {
			return w.IntN(2) == 0
		})
		spec.Statuses = append(spec.Statuses, cluster.ParentStatus{Parent: parent("g"), Controller: other})
		again.Spec = &spec
		p.server.put(&again)
	}
}

// scratch returns the statuses that all objects are to have, as one pass over them says.
func (w *world) scratch(p *process) map[cluster.Ref]string {
	c := compile.NewCompiler(compile.Config{
		GatewayController: controller, IngressController: "portolan.dev/ingress",
		Publish: compile.Publish{Addresses: []string{"192.0.2.1"}},
	})
	r := New(p.cfg)
	bundle := w.bundle
	if bundle.Versions == nil {
		bundle = supported
	}
	made := make(map[cluster.Ref]string)
	p.server.store.View(func(v *cluster.View) {
		b := r.Look(v, c, c.Apply(v, &cluster.Changes{Everything: true}).Changed)
		around := surroundings{b.published, w.trouble, time.Now(), Features(false), &bundle}
		for k := range p.server.objects {
			made[k] = strings.Join(said(v.Object(k.Kind, k.Key)), "\n")
		}
		for _, s := range b.subjects {
			if wanted := around.judge(&s); wanted != nil {
				if o := wanted.apply(s.object, controller, time.Now()); o != nil {
					made[s.ref] = strings.Join(said(o), "\n")
				}
			}
		}
	})
	return made
}
