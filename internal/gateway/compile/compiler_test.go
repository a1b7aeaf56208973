package compile

import (
	"crypto/tls"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/support/testcert"
)

// testConfig is the Config of tests. A few Gateways can have addresses of their own.
var testConfig = Config{
	GatewayController: "portolan.dev/gateway", IngressController: "portolan.dev/ingress", Node: "n1",
	Pool: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")},
}

// newStore returns a Store in which all kinds are loaded.
func newStore(objects ...cluster.Object) *cluster.Store {
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		for _, o := range objects {
			tx.Put(o)
		}
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
	})
	return store
}

// compileAll compiles all that is in a Store.
func compileAll(store *cluster.Store) (c *Compiler, made Output) { return compileWith(store, nil) }

// compileWith compiles all that is in a Store, and knows the key pairs that Secrets had.
func compileWith(store *cluster.Store, pairs map[cluster.Key]*keyPair) (c *Compiler, made Output) {
	c = NewCompiler(testConfig)
	maps.Copy(c.certificates.pairs, pairs)
	store.View(func(v *cluster.View) { made = c.Apply(v, &cluster.Changes{Everything: true}) })
	return c, made
}

// hostTexts returns what c has at each listener and hostname.
func hostTexts(c *Compiler) map[string]string {
	texts := make(map[string]string)
	for listener, hosts := range c.hosts {
		for hostname, h := range hosts {
			var b strings.Builder
			for _, r := range h.Routes() {
				fmt.Fprintf(&b, "%s: %s %d %s %d", &r.Match, r.Rule.Object, r.Rule.Index, r.Rule.Name, r.Rule.Status)
				for _, backend := range r.Rule.Backends {
					fmt.Fprintf(&b, " %v*%d %s", backend.Upstream, backend.Weight, backend.Reason)
				}
				b.WriteByte('\n')
			}
			texts[listener+" "+hostname] = b.String()
		}
	}
	return texts
}

// ask returns what serves a request at a socket.
func ask(t *table.Table, at table.Socket, host string, r *table.Request) string {
	p := t.Port(at)
	if p == nil {
		return "no port"
	}
	text := ""
	if p.TLS() {
		owner, certificate := p.Certificate(&tls.ClientHelloInfo{ServerName: host})
		text = fmt.Sprintf("TLS %t %p, ", owner != nil, certificate)
	}
	l, found := p.Find(host, r)
	switch {
	case l == nil:
		return text + "no listener"
	case found == nil:
		return text + l.Name + ": none"
	}
	return text + fmt.Sprintf("%s: %s %d", l.Name, found.Rule.Object, found.Rule.Index)
}

// TestChangesEqualScratch changes clusters at random. After each change, what was compiled from the
// changes is what compiling everything yields.
func TestChangesEqualScratch(t *testing.T) {
	t.Parallel()
	seeds, changes := uint64(12), 150
	if testing.Short() {
		seeds, changes = 3, 60
	}
	for seed := range seeds {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			w := &world{Rand: rand.New(rand.NewPCG(seed, 1))}
			store := newStore(w.classes()...)
			feed := store.Subscribe()
			c, endpoints := NewCompiler(testConfig), make(map[table.Upstream][]netip.AddrPort)
			live := false
			for i := range changes {
				store.Update(func(tx *cluster.Tx) {
					for range 1 + w.IntN(4) {
						w.change(tx)
					}
				})
				changed := feed.Pending()
				var made Output
				store.View(func(v *cluster.View) { made = c.Apply(v, &changed) })
				for up, addrs := range made.Endpoints {
					if endpoints[up] = addrs; addrs == nil {
						delete(endpoints, up)
					}
				}
				if store.View(func(v *cluster.View) { live = v.Freshness(cluster.KindSecret) == cluster.Live }); !live {
					continue // certificates of Secrets that are not read are those of before
				}
				scratch, from := compileWith(store, c.certificates.pairs)
				got, want := made.Table, from.Table
				if diff := cmp.Diff(from.Endpoints, endpoints, byValue); diff != "" {
					t.Fatalf("change %d, %v: endpoints (-scratch +changes):\n%s", i, changed.Objects, diff)
				}
				if diff := cmp.Diff(hostTexts(scratch), hostTexts(c)); diff != "" {
					t.Fatalf("change %d, %v: hosts (-scratch +changes):\n%s", i, changed.Objects, diff)
				}
				if diff := cmp.Diff(scratch.Verdicts(), c.Verdicts(), byValue); diff != "" {
					t.Fatalf("change %d, %v: verdicts (-scratch +changes):\n%s", i, changed.Objects, diff)
				}
				if a, b := sockets(want), sockets(got); !slices.Equal(a, b) {
					t.Fatalf("change %d: sockets %v, from scratch %v", i, b, a)
				}
				for range 50 {
					at, host, r := w.request(sockets(want))
					if a, b := ask(want, at, host, r), ask(got, at, host, r); a != b {
						t.Fatalf("change %d: %v %s %+v: %s, from scratch %s", i, at, host, r, b, a)
					}
				}
			}
		})
	}
}

// byValue compares addresses.
var byValue = cmp.Options{
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
}

func sockets(t *table.Table) []table.Socket {
	return slices.SortedFunc(t.Sockets(), func(a, b table.Socket) int {
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
}

// world makes random objects.
type world struct{ *rand.Rand }

func (w *world) of(all ...string) string { return all[w.IntN(len(all))] }

func (w *world) classes() []cluster.Object {
	return []cluster.Object{
		&cluster.GatewayClass{Name: "ours", Controller: testConfig.GatewayController},
		&cluster.GatewayClass{Name: "other", Controller: "example.com/other"},
		&cluster.IngressClass{Name: "ours", Controller: testConfig.IngressController},
		&cluster.Namespace{Name: "a", Labels: map[string]string{"team": "a"}},
		&cluster.Namespace{Name: "b"},
	}
}

func (w *world) namespace() string { return w.of("a", "b") }

func (w *world) key(names ...string) cluster.Key {
	return cluster.Key{Namespace: w.namespace(), Name: w.of(names...)}
}

func (w *world) meta() cluster.Meta {
	return cluster.Meta{Age: cluster.Age{Created: 1 + int64(w.IntN(4))}, Generation: int64(w.IntN(3))}
}

// hostname is one of a few that overlap.
func (w *world) hostname() string {
	return w.of("", "x.test", "*.x.test", "a.x.test", "*.a.x.test", "b.a.x.test", "y.test")
}

// change puts or deletes an object.
func (w *world) change(tx *cluster.Tx) {
	var o cluster.Object
	switch w.IntN(20) {
	case 15:
		f := cluster.Live
		if w.IntN(6) == 0 {
			f = cluster.Confirming
		}
		tx.SetFreshness(f, cluster.KindSecret)
		return
	case 16, 17:
		o = w.secret()
	case 11:
		tx.Put(&cluster.Node{Name: testConfig.Node, Zone: w.of("z1", "z2")})
		return
	case 0:
		o = &cluster.Namespace{Name: w.namespace(), Labels: map[string]string{"team": w.of("a", "b")}}
		tx.Put(o)
		return
	case 1:
		o = &cluster.GatewayClass{Name: "ours", Controller: testConfig.GatewayController}
	case 2:
		o = &cluster.IngressClass{
			Name: w.of("ours", "also"), Controller: w.of(testConfig.IngressController, "example.com/other"), Default: w.IntN(2) == 0,
		}
	case 3:
		o = w.gateway()
	case 4:
		o = &cluster.ListenerSet{
			Key: w.key("s1", "s2"), Meta: w.meta(), Listeners: w.listeners(),
			Parent: cluster.ObjectRef{Group: gatewayGroup, Kind: "Gateway", Namespace: w.namespace(), Name: w.of("g1", "own1")},
		}
	case 5:
		o = w.service()
	case 6:
		o = &cluster.ReferenceGrant{
			Key: w.key("grant"),
			From: []cluster.GrantFrom{
				{GroupKind: httpRoute, Namespace: w.namespace()},
				{GroupKind: cluster.GroupKind{Group: gatewayGroup, Kind: w.of("Gateway", "ListenerSet")}, Namespace: w.namespace()},
			},
			To: []cluster.GrantTo{
				{GroupKind: cluster.GroupKind{Kind: "Service"}, Name: w.of("", "s1")},
				{GroupKind: cluster.GroupKind{Kind: "Secret"}, Name: w.of("", "c1")},
			},
		}
	case 7, 8:
		o = w.ingress()
	case 9, 10:
		o = w.slice()
	default:
		o = w.route()
	}
	if w.IntN(3) == 0 {
		tx.Delete(o.Ref().Kind, o.Ref().Key)
		return
	}
	tx.Put(o)
}

func (w *world) allowed() cluster.AllowedNamespaces {
	return cluster.AllowedNamespaces{
		From:     cluster.From(w.of("All", "All", "Same", "Selector", "None")),
		Selector: &cluster.Selector{Labels: map[string]string{"team": "a"}},
	}
}

func (w *world) listeners() (all []cluster.Listener) {
	for i := range 1 + w.IntN(3) {
		l := cluster.Listener{
			Name: fmt.Sprint("l", i), Hostname: w.hostname(), Port: []uint16{80, 8080, 443}[w.IntN(3)],
			Protocol: cluster.HTTPProtocol, Namespaces: w.allowed(),
		}
		if l.Port == 443 && w.IntN(8) > 0 || w.IntN(8) == 0 {
			l.Protocol, l.TLS = cluster.HTTPSProtocol, &cluster.ListenerTLS{Mode: cluster.TLSTerminate}
			for range w.IntN(3) {
				l.TLS.Certificates = append(l.TLS.Certificates, cluster.ObjectRef{
					Kind: "Secret", Namespace: w.namespace(), Name: w.of("c1", "c2"),
				})
			}
		}
		if w.IntN(10) == 0 {
			l.Protocol = "example.com/other"
		}
		if w.IntN(6) == 0 {
			l.Kinds = []cluster.GroupKind{{Group: gatewayGroup, Kind: w.of("HTTPRoute", "OtherRoute")}}
		}
		all = append(all, l)
	}
	return all
}

func (w *world) gateway() *cluster.Frontend {
	spec := &cluster.GatewaySpec{
		Meta: w.meta(), Class: w.of("ours", "ours", "ours", "other"), Listeners: w.listeners(), ListenerSets: w.allowed(),
	}
	if w.IntN(2) == 0 {
		spec.Addresses = w.addresses()
	}
	if w.IntN(2) == 0 {
		spec.Status.Addresses = w.addresses()
	}
	return &cluster.Frontend{Kind: cluster.KindGateway, Key: w.key("g1", "g2", "own1", "own2"), Gateway: spec}
}

// addresses are those of a Gateway: in the pool or not, or any.
func (w *world) addresses() []cluster.GatewayAddress {
	of := []string{"192.0.2.1", "192.0.2.2", "192.0.2.2", "192.0.2.9", "", "", "here"}
	all := []cluster.GatewayAddress{{Type: cluster.AddressIP, Value: w.of(of...)}}
	switch w.IntN(8) {
	case 0:
		all[0].Type = cluster.AddressHostname
	case 1, 2:
		all = append(all, cluster.GatewayAddress{Type: cluster.AddressIP, Value: w.of(of...)})
	}
	return all
}

// certificatesOf returns key pairs for Secrets.
var certificatesOf = sync.OnceValue(func() (all []map[string]cluster.Confidential) {
	for _, name := range []string{"x.test", "a.x.test", "y.test"} {
		made, err := testcert.New(name, time.Now().Add(time.Hour))
		if err != nil {
			panic(err)
		}
		certificate, key := made.PEM()
		all = append(all, map[string]cluster.Confidential{"tls.crt": certificate, "tls.key": key})
	}
	return all
})

// secret is one with a key pair, or with something else.
func (w *world) secret() *cluster.Secret {
	s := &cluster.Secret{Key: w.key("c1", "c2"), Type: "kubernetes.io/tls"}
	all := certificatesOf()
	s.Data = all[w.IntN(len(all))]
	switch w.IntN(6) {
	case 0:
		s.Data = map[string]cluster.Confidential{"tls.crt": s.Data["tls.crt"], "tls.key": all[w.IntN(len(all))]["tls.key"]}
	case 1:
		s.Type = "Opaque"
	}
	return s
}

func (w *world) service() *cluster.Service {
	s := &cluster.Service{Key: w.key("s1", "s2"), Ports: []cluster.Port{{Name: "http", Number: 80, Protocol: cluster.TCP}}}
	if w.IntN(3) == 0 {
		s.Ports[0].Number = 81
	}
	if w.IntN(3) == 0 {
		s.Spec = &cluster.ServiceSpec{AppProtocols: []*string{new("kubernetes.io/" + w.of("h2c", "ws", "wss"))}}
	}
	return s
}

func (w *world) path() string { return w.of("/", "/a", "/a/b", "/b") }

func (w *world) ingress() *cluster.Frontend {
	backend := func() cluster.IngressBackend {
		b := cluster.IngressBackend{Backend: cluster.Backend{Field: "f", Service: w.of("s1", "s2"), Number: 80}}
		if w.IntN(3) == 0 {
			b.Port = "http"
		}
		return b
	}
	spec := &cluster.IngressSpec{Meta: w.meta(), Class: w.of("", "ours", "ours", "also")}
	for range w.IntN(3) {
		rule := cluster.IngressRule{Host: w.hostname()}
		for range w.IntN(3) {
			path := cluster.IngressPath{Path: w.path(), Type: cluster.PathType(w.of("Exact", "Prefix")), Backend: backend()}
			rule.Paths = append(rule.Paths, path)
		}
		spec.Rules = append(spec.Rules, rule)
	}
	if w.IntN(3) == 0 {
		spec.Default = new(backend())
	}
	for range w.IntN(3) {
		t := cluster.IngressTLS{Secret: w.of("c1", "c2", "c2", "")}
		if w.IntN(3) > 0 {
			t.Hosts = []string{w.of("x.test", "*.x.test", "a.x.test", "y.test")}
		}
		spec.TLS = append(spec.TLS, t)
	}
	return &cluster.Frontend{Kind: cluster.KindIngress, Key: w.key("i1", "i2", "i3"), Ingress: spec}
}

func (w *world) route() *cluster.Route {
	spec := &cluster.RouteSpec{Meta: w.meta()}
	for range 1 + w.IntN(2) {
		spec.Parents = append(spec.Parents, cluster.ParentRef{
			ObjectRef: cluster.ObjectRef{
				Group: gatewayGroup, Kind: w.of("Gateway", "Gateway", "ListenerSet"),
				Namespace: w.namespace(), Name: w.of("g1", "g2", "own1", "s1"),
			},
			Section: w.of("", "", "l0"), Port: []uint16{0, 0, 80}[w.IntN(3)],
		})
	}
	for range 1 + w.IntN(2) {
		rule := cluster.RouteRule{}
		for range 1 + w.IntN(2) {
			rule.Matches = append(rule.Matches, cluster.RouteMatch{
				Path:   cluster.PathMatch{Type: cluster.PathType(w.of("Exact", "PathPrefix")), Value: w.path()},
				Method: w.of("", "", "GET"),
			})
		}
		for range w.IntN(3) {
			rule.Backends = append(rule.Backends, cluster.RouteBackend{Weight: int32(w.IntN(3)), BackendRef: cluster.BackendRef{
				ObjectRef: cluster.ObjectRef{Kind: "Service", Namespace: w.namespace(), Name: w.of("s1", "s2")}, Port: 80,
			}})
		}
		if w.IntN(8) == 0 {
			rule.Unknown = []cluster.UnknownValue{{Field: "f", Value: "v"}}
		}
		spec.Rules = append(spec.Rules, rule)
	}
	r := &cluster.Route{Key: w.key("r1", "r2", "r3"), Spec: spec}
	for range w.IntN(3) {
		if h := w.hostname(); h != "" {
			r.Hosts = append(r.Hosts, h)
		}
	}
	return r
}

// request returns a request for one of a few names.
func (w *world) request(at []table.Socket) (table.Socket, string, *table.Request) {
	socket := table.Socket{Port: 80}
	if len(at) > 0 {
		socket = at[w.IntN(len(at))]
	}
	host := w.of("x.test", "a.x.test", "b.a.x.test", "c.a.x.test", "y.test", "z.test", "q.x.test")
	return socket, host, &table.Request{Method: w.of("GET", "PUT"), Path: w.of("/", "/a", "/a/b", "/a/b/c", "/b", "/c")}
}

// TestHostsShared: a change of a route leaves the hosts alone that it does not have.
func TestHostsShared(t *testing.T) {
	t.Parallel()
	w := &world{Rand: rand.New(rand.NewPCG(1, 1))}
	objects := append(w.classes(), &cluster.Frontend{
		Kind: cluster.KindGateway, Key: cluster.Key{Namespace: "a", Name: "g"}, Gateway: &cluster.GatewaySpec{
			Class: "ours", Listeners: []cluster.Listener{{
				Name: "http", Port: 80, Protocol: cluster.HTTPProtocol, Namespaces: cluster.AllowedNamespaces{From: cluster.FromAll},
			}},
		},
	})
	route := func(i int, path string) *cluster.Route {
		return &cluster.Route{
			Key: cluster.Key{Namespace: "a", Name: fmt.Sprint("r", i)}, Hosts: []string{fmt.Sprintf("h%d.test", i)},
			Spec: &cluster.RouteSpec{
				Parents: []cluster.ParentRef{{
					ObjectRef: cluster.ObjectRef{Group: gatewayGroup, Kind: "Gateway", Namespace: "a", Name: "g"},
				}},
				Rules: []cluster.RouteRule{{Matches: []cluster.RouteMatch{{
					Path: cluster.PathMatch{Type: cluster.PathPathPrefix, Value: path},
				}}}},
			},
		}
	}
	for i := range 100 {
		objects = append(objects, route(i, "/"))
	}
	store := newStore(objects...)
	c, before := compileAll(store)
	feed := store.Subscribe()
	feed.Pending()
	store.Update(func(tx *cluster.Tx) { tx.Put(route(7, "/x")) })
	changes := feed.Pending()
	var after Output
	store.View(func(v *cluster.View) { after = c.Apply(v, &changes) })
	at := table.Socket{Port: 80}
	for i := range 100 {
		name := fmt.Sprintf("h%d.test", i)
		_, was := before.Table.Port(at).Host(name)
		_, is := after.Table.Port(at).Host(name)
		if (was == is) != (i != 7) {
			t.Errorf("%s: the same host: %t, want %t", name, was == is, i != 7)
		}
	}
	if got := c.Verdicts().Gateways[cluster.Key{Namespace: "a", Name: "g"}].Listeners[0].AttachedRoutes; got != 100 {
		t.Errorf("%d attached routes, want 100", got)
	}
}

// slice is one of a Service, whose endpoints are in some state and place.
func (w *world) slice() *cluster.EndpointSlice {
	s := &cluster.EndpointSlice{
		Key: w.key("s1-a", "s1-b", "s2-a"), AddressType: cluster.IPv4, Spec: new(cluster.SliceSpec),
		Ports: []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 8000 + uint16(w.IntN(2))}},
	}
	s.Service = s.Name[:2]
	for i := range w.IntN(4) {
		terminating := w.IntN(4) == 0
		s.Endpoints = append(s.Endpoints, cluster.Endpoint{
			Addr: netip.AddrFrom4([4]byte{10, 0, byte(w.IntN(2)), byte(i)}), Ready: !terminating && w.IntN(4) > 0,
			Serving: w.IntN(4) > 0, Terminating: terminating,
		})
		place := cluster.Place{Node: w.of("n1", "n2")}
		if w.IntN(3) > 0 {
			place.Hints = &cluster.Hints{Zones: []string{w.of("z1", "z2")}}
		}
		s.Spec.Places = append(s.Spec.Places, place)
	}
	return s
}
