package status

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/gateway/table"
)

// controller is that of the GatewayClass ours, other that of another one.
const (
	controller = "portolan.dev/gateway"
	other      = "example.com/other"
)

// server is an API server, and the model that a source keeps of it. What is written is in the model at once.
type server struct {
	store *cluster.Store

	mu       sync.Mutex
	objects  map[cluster.Ref]cluster.Object
	writes   []string // in the order of time
	events   []string // all
	attempts int      // of updates
	fail     func(cluster.Ref) error
	pause    time.Duration // of each update
	// written, unless nil, is called after each write.
	written func(cluster.Ref)
}

func newServer(objects ...cluster.Object) *server {
	s := &server{store: cluster.NewStore(), objects: make(map[cluster.Ref]cluster.Object)}
	s.store.Update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Live, cluster.Kinds()...) })
	s.put(objects...)
	return s
}

// put has objects be as a user writes them.
func (s *server) put(objects ...cluster.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store.Update(func(tx *cluster.Tx) {
		for _, o := range objects {
			s.objects[o.Ref()] = o
			tx.Put(o)
		}
	})
}

func (s *server) delete(ref cluster.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, ref)
	s.store.Update(func(tx *cluster.Tx) { tx.Delete(ref.Kind, ref.Key) })
}

// get returns an object.
func get[T cluster.Object](s *server, ref cluster.Ref) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, _ := s.objects[ref].(T)
	return o
}

// taken returns what was written since the last call.
func (s *server) taken() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.writes
	s.writes = nil
	return all
}

// Update implements Writer.
func (s *server) Update(
	_ context.Context, of cluster.Ref, change func(cluster.Object) cluster.Object,
) (wrote bool, err error) {
	s.mu.Lock()
	pause := s.pause
	s.mu.Unlock()
	time.Sleep(pause)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts++
	if s.fail != nil {
		if err := s.fail(of); err != nil {
			return false, err
		}
	}
	was := s.objects[of]
	if was == nil {
		return false, fmt.Errorf("%v: %w", of, ErrGone)
	}
	is := change(was)
	if is == nil {
		return false, nil
	}
	s.objects[of] = is
	s.writes = append(s.writes, of.String())
	s.store.Update(func(tx *cluster.Tx) { tx.Put(is) })
	if s.written != nil {
		s.written(of)
	}
	return true, nil
}

// Warn implements Writer.
func (s *server) Warn(_ context.Context, w Warning) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		if err := s.fail(w.Object); err != nil {
			return err
		}
	}
	s.events = append(s.events, fmt.Sprintf("%s: %s: %s", w.Object, w.Reason, w.Note))
	return nil
}

// process is a gateway: its compiler, its sockets and its Reporter.
type process struct {
	*Reporter
	t        *testing.T
	compiler *compile.Compiler
	server   *server
	bundles  chan Bundle
	troubles chan map[table.Socket]error
	results  map[Result]int
}

// supported is the version of Gateway API that clusters have.
var supported = Bundle{Versions: map[string]string{"gateways": "v1.6.3"}}

// follow starts a gateway, which ends with ctx.
func follow(ctx context.Context, t *testing.T, s *server, change func(*Config)) *process {
	t.Helper()
	return followAt(ctx, t, s, compile.Publish{Addresses: []string{"192.0.2.1"}}, change)
}

// followAt is follow for a gateway with other addresses.
func followAt(
	ctx context.Context, t *testing.T, s *server, publish compile.Publish, change func(*Config),
) *process {
	t.Helper()
	p := &process{
		t: t, server: s, bundles: make(chan Bundle, 1), troubles: make(chan map[table.Socket]error), results: make(map[Result]int),
		compiler: compile.NewCompiler(compile.Config{
			GatewayController: controller, IngressController: "portolan.dev/ingress", Publish: publish,
		}),
	}
	p.bundles <- supported
	cfg := Config{
		Controller: controller, Writer: s, Log: slog.New(slog.DiscardHandler),
		Bundles: func(ctx context.Context, set func(Bundle)) error {
			for {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case b := <-p.bundles:
					set(b)
				}
			}
		},
		Wrote: func(_ cluster.Kind, r Result) {
			s.mu.Lock()
			defer s.mu.Unlock()
			p.results[r]++
		},
	}
	if change != nil {
		change(&cfg)
	}
	p.Reporter = New(cfg)
	go func() {
		if err := p.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	go p.compile(ctx)
	return p
}

// compile reports what changes.
func (p *process) compile(ctx context.Context) {
	feed := p.server.store.Subscribe()
	defer feed.Close()
	var trouble map[table.Socket]error
	for {
		select {
		case <-ctx.Done():
			return
		case trouble = <-p.troubles:
			p.Bound(trouble)
		case <-feed.Ready():
			changes := feed.Pending()
			var b Batch
			p.server.store.View(func(v *cluster.View) {
				b = p.Look(v, p.compiler, p.compiler.Apply(v, &changes).Changed)
			})
			p.Report(b, trouble)
		}
	}
}

// test runs a test in a bubble, with an API server and a gateway.
func test(t *testing.T, objects []cluster.Object, do func(p *process)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(objects...)
		ctx, stop := context.WithCancel(t.Context())
		p := follow(ctx, t, s, nil)
		synctest.Wait()
		do(p)
		stop()
		synctest.Wait()
	})
}

// The objects of tests.
var (
	ourClass   = &cluster.GatewayClass{Name: "ours", Meta: cluster.Meta{Generation: 1}, Controller: controller}
	otherClass = &cluster.GatewayClass{Name: "other", Meta: cluster.Meta{Generation: 1}, Controller: other}
	ourIngress = &cluster.IngressClass{Name: "ours", Controller: "portolan.dev/ingress", Default: true}
)

func base(more ...cluster.Object) []cluster.Object {
	return append([]cluster.Object{
		ourClass, otherClass, ourIngress, &cluster.Namespace{Name: "a"}, &cluster.Namespace{Name: "b"},
		&cluster.Service{
			Key: cluster.Key{Namespace: "a", Name: "s"}, Ports: []cluster.Port{{Number: 80, Protocol: cluster.TCP}},
		},
	}, more...)
}

// gateway returns a Gateway of a class with listeners as in "http:80".
func gateway(name, class string, generation int64, listeners ...string) *cluster.Frontend {
	spec := &cluster.GatewaySpec{
		Meta: cluster.Meta{Generation: generation}, Class: class, ListenerSets: cluster.AllowedNamespaces{From: cluster.FromSame},
	}
	for _, text := range listeners {
		spec.Listeners = append(spec.Listeners, listener(text))
	}
	return &cluster.Frontend{Kind: cluster.KindGateway, Key: cluster.Key{Namespace: "a", Name: name}, Gateway: spec}
}

func listener(text string) cluster.Listener {
	l := cluster.Listener{Protocol: cluster.HTTPProtocol, Namespaces: cluster.AllowedNamespaces{From: cluster.FromAll}}
	_, err := fmt.Sscanf(strings.Replace(text, ":", " ", 1), "%s %d", &l.Name, &l.Port)
	if err != nil {
		panic(err)
	}
	l.Hostname = l.Name + ".test"
	return l
}

func parent(gateway string) cluster.ParentRef {
	return cluster.ParentRef{ObjectRef: cluster.ObjectRef{
		Group: "gateway.networking.k8s.io", Kind: "Gateway", Namespace: "a", Name: gateway,
	}}
}

// route returns an HTTPRoute of Gateways.
func route(namespace, name string, generation int64, gateways ...string) *cluster.Route {
	spec := &cluster.RouteSpec{Meta: cluster.Meta{Generation: generation}, Rules: []cluster.RouteRule{{
		Matches: []cluster.RouteMatch{{Path: cluster.PathMatch{Type: cluster.PathPathPrefix, Value: "/"}}},
	}}}
	for _, g := range gateways {
		spec.Parents = append(spec.Parents, parent(g))
	}
	return &cluster.Route{Kind: cluster.KindHTTPRoute, Key: cluster.Key{Namespace: namespace, Name: name}, Spec: spec}
}

// policy returns a RoutePolicy of HTTPRoutes.
func policy(name string, generation int64, routes ...string) *cluster.RoutePolicy {
	p := &cluster.RoutePolicy{Key: cluster.Key{Namespace: "a", Name: name}, Meta: cluster.Meta{Generation: generation}}
	for _, r := range routes {
		p.Targets = append(p.Targets, cluster.PolicyTarget{ObjectRef: cluster.ObjectRef{
			Group: "gateway.networking.k8s.io", Kind: "HTTPRoute", Namespace: "a", Name: r,
		}})
	}
	return p
}

// leading returns a route whose rule leads to a Service.
func leading(r *cluster.Route, service string) *cluster.Route {
	r.Spec.Rules[0].Backends = []cluster.RouteBackend{{Weight: 1, BackendRef: cluster.BackendRef{
		ObjectRef: cluster.ObjectRef{Kind: "Service", Namespace: r.Namespace, Name: service}, Port: 80,
	}}}
	return r
}

// trafficPolicy returns an XBackendTrafficPolicy of a Service.
func trafficPolicy(name string, generation int64, service string) *cluster.BackendTrafficPolicy {
	return &cluster.BackendTrafficPolicy{
		Key: cluster.Key{Namespace: "a", Name: name}, Meta: cluster.Meta{Generation: generation},
		Targets: []cluster.PolicyTarget{{ObjectRef: cluster.ObjectRef{Kind: "Service", Namespace: "a", Name: service}}},
	}
}

// ingress returns an Ingress with a backend.
func ingress(name, service string) *cluster.Frontend {
	return &cluster.Frontend{Kind: cluster.KindIngress, Key: cluster.Key{Namespace: "a", Name: name}, Ingress: &cluster.IngressSpec{
		Meta:    cluster.Meta{Generation: 1},
		Default: &cluster.IngressBackend{Backend: cluster.Backend{Field: "spec.defaultBackend", Service: service, Number: 80}},
	}}
}

// text returns conditions in words.
func text(all []cluster.StatusCondition) string {
	var texts []string
	for _, c := range all {
		texts = append(texts, fmt.Sprintf("%s=%s %s %d", c.Type, c.Status, c.Reason, c.Generation))
	}
	return strings.Join(texts, ", ")
}

// said returns the status of an object in words, a line for each part.
func said(o cluster.Object) (lines []string) {
	listeners := func(all []cluster.ListenerStatus) {
		for _, l := range all {
			var kinds []string
			for _, k := range l.SupportedKinds {
				kinds = append(kinds, k.Kind)
			}
			lines = append(lines, fmt.Sprintf(
				"%s: %s, %d routes, %s", l.Name, strings.Join(kinds, " "), l.AttachedRoutes, text(l.Conditions),
			))
		}
	}
	ancestors := func(all []cluster.ParentStatus) {
		for _, s := range all {
			lines = append(lines, fmt.Sprintf("%s %s of %s: %s", s.Parent.Kind, s.Parent.Name, s.Controller, text(s.Conditions)))
		}
	}
	switch o := o.(type) {
	case *cluster.GatewayClass:
		lines = append(lines, text(o.Conditions), strings.Join(o.Features, " "))
	case *cluster.ListenerSet:
		lines = append(lines, text(o.Conditions))
		listeners(o.ListenerStatuses)
	case *cluster.Route:
		for _, s := range o.Spec.Statuses {
			lines = append(lines, fmt.Sprintf("%s of %s: %s", s.Parent.Name, s.Controller, text(s.Conditions)))
		}
	case *cluster.RoutePolicy:
		ancestors(o.Ancestors)
	case *cluster.BackendTrafficPolicy:
		ancestors(o.Ancestors)
	case *cluster.Frontend:
		if o.Ingress != nil {
			return append(lines, fmt.Sprint(o.Ingress.LoadBalancer))
		}
		s := &o.Gateway.Status
		lines = append(lines, text(s.Conditions), fmt.Sprintf("%v, %d sets", s.Addresses, s.AttachedListenerSets))
		listeners(s.Listeners)
	}
	return lines
}

// errDenied is of one object.
var errDenied = errors.New("denied by a webhook")

func sorted(all []string) []string { return slices.Sorted(slices.Values(all)) }

// later waits within a bubble, until all that is due then is done.
func later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// statuses returns those of all objects, without times.
func (s *server) statuses() map[cluster.Ref]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	made := make(map[cluster.Ref]string)
	for ref, o := range maps.All(s.objects) {
		made[ref] = strings.Join(said(o), "\n")
	}
	return made
}
