package compile

import (
	"crypto/tls"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// testConfig is the Config of tests. A few Gateways can have addresses of their own.
var testConfig = Config{
	GatewayController: "portolan.dev/gateway", IngressController: "portolan.dev/ingress", Node: "n1",
	Pool:         []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")},
	Experimental: true,
	Publish:      Publish{Service: cluster.Key{Namespace: "a", Name: "s2"}},
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
func compileAll(store *cluster.Store) (c *Compiler, made Output) {
	c = NewCompiler(testConfig)
	store.View(func(v *cluster.View) { made = c.Apply(v, &cluster.Changes{Everything: true}) })
	return c, made
}

// routesOf returns what c has at each listener and hostname.
func routesOf(c *Compiler) map[string][]table.Route {
	all := make(map[string][]table.Route)
	for listener, hosts := range c.hosts {
		for hostname, h := range hosts {
			all[listener+" "+hostname] = h.Routes()
		}
	}
	return all
}

// ask returns the listener of a request, and what serves it.
func ask(t *table.Table, q *query) string {
	at := t.Port(table.Socket{Addr: q.addr, Port: q.port, Transport: q.transport})
	if at == nil {
		return "no port"
	}
	text := ""
	if at.TLS() {
		owner, certificate := at.Certificate(&tls.ClientHelloInfo{ServerName: q.host})
		text = fmt.Sprintf("TLS %t %p, ", owner != nil, certificate)
		if owner != nil {
			if demand := owner.Demand(new(tls.Config)); demand.ClientCAs != nil {
				text += fmt.Sprintf("%s of %q, ", demand.ClientAuth, demand.ClientCAs.Subjects()) //nolint:staticcheck // is not the system's
			}
		}
	}
	name := "no listener"
	if l, _ := at.Find(q.host, &table.Request{}); l != nil {
		name = fmt.Sprintf("%s %p", l.Name, l.ClientCertificate())
	}
	return text + name + ": " + compiled(t, q)
}

// testConfigs are those of clusters that change.
func testConfigs() []Config {
	unclassed, byDefault, bare := testConfig, testConfig, testConfig
	unclassed.Unclassed = true
	byDefault.PoolByDefault, byDefault.DefaultCertificate = true, true
	bare.Node, bare.Pool, bare.IngressPort = "", nil, 8080
	bare.Publish.Service, unclassed.Publish = cluster.Key{Namespace: "a", Name: "s1"}, Publish{Node: "n2"}
	annotated, both := testConfig, unclassed
	annotated.Annotated, both.Annotated = true, true
	return []Config{testConfig, unclassed, byDefault, bare, annotated, both}
}

// TestChangesEqualScratch changes clusters at random. After each change, what was compiled from the
// changes is what compiling everything yields. CHANGES is how many changes there are.
func TestChangesEqualScratch(t *testing.T) {
	t.Parallel()
	seeds, changes := 12, 150
	if testing.Short() {
		seeds, changes = 3, 60
	}
	if text := os.Getenv("CHANGES"); text != "" {
		all, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("CHANGES: %v", err)
		}
		seeds = (all + changes - 1) / changes
	}
	for seed := range seeds {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(uint64(seed))
			store := newStore(w.classes()...)
			feed := store.Subscribe()
			cfg := testConfigs()[seed%len(testConfigs())]
			incremental := &increments{c: NewCompiler(cfg), endpoints: make(map[table.Upstream][]netip.AddrPort)}
			for i := range changes {
				store.Update(func(tx *cluster.Tx) {
					for range 1 + w.IntN(4) {
						w.change(tx)
					}
				})
				changed := feed.Pending()
				store.View(func(v *cluster.View) { incremental.apply(v, &changed) })
				live := false
				if store.View(func(v *cluster.View) { live = v.Freshness(cluster.KindSecret) == cluster.Live }); !live {
					continue // certificates of Secrets that are not read are those of before
				}
				incremental.compare(t, store, w)
				if t.Failed() {
					t.Fatalf("change %d: %v", i, changed.Objects)
				}
			}
		})
	}
}

// increments is what came of all changes.
type increments struct {
	c         *Compiler
	table     *table.Table
	endpoints map[table.Upstream][]netip.AddrPort
}

// apply applies changes, and returns the objects whose verdicts may differ.
func (i *increments) apply(v *cluster.View, changes *cluster.Changes) map[cluster.Ref]struct{} {
	made := i.c.Apply(v, changes)
	i.table = made.Table
	for up, addrs := range made.Endpoints {
		if i.endpoints[up] = addrs; addrs == nil {
			delete(i.endpoints, up)
		}
	}
	return made.Changed
}

// compare compares it with what compiling everything yields.
func (i *increments) compare(t *testing.T, store *cluster.Store, w *world) {
	t.Helper()
	scratch := NewCompiler(i.c.cfg)
	maps.Copy(scratch.certificates.pairs, i.c.certificates.pairs) // Secrets keep those that they had
	var from Output
	store.View(func(v *cluster.View) { from = scratch.Apply(v, &cluster.Changes{Everything: true}) })
	if diff := cmp.Diff(from.Endpoints, i.endpoints, byValue); diff != "" {
		t.Errorf("endpoints (-scratch +changes):\n%s", diff)
	}
	if diff := cmp.Diff(routesOf(scratch), routesOf(i.c), byValue); diff != "" {
		t.Errorf("routes (-scratch +changes):\n%s", diff)
	}
	if diff := cmp.Diff(scratch.Verdicts(), i.c.Verdicts(), byValue); diff != "" {
		t.Errorf("verdicts (-scratch +changes):\n%s", diff)
	}
	at := sockets(from.Table)
	if all := sockets(i.table); !slices.Equal(at, all) {
		t.Errorf("sockets %v, from scratch %v", all, at)
	}
	for range 50 {
		q := w.query(at)
		if a, b := ask(from.Table, q), ask(i.table, q); a != b {
			t.Errorf("%v: %s, from scratch %s", q, b, a)
		}
	}
}

// byValue compares addresses and expressions.
var byValue = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
	cmp.Comparer(func(a, b *regexp.Regexp) bool { return a == b || a != nil && b != nil && a.String() == b.String() }),
}

func sockets(t *table.Table) []table.Socket {
	return slices.SortedFunc(t.Sockets(), func(a, b table.Socket) int {
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
}

// TestHostsShared: a change of a route leaves the hosts alone that it does not have.
func TestHostsShared(t *testing.T) {
	t.Parallel()
	objects := append(newWorld(1).classes(), &cluster.Frontend{
		Kind: cluster.KindGateway, Key: cluster.Key{Namespace: "a", Name: "g"}, Gateway: &cluster.GatewaySpec{
			Class: "ours", Listeners: []cluster.Listener{{
				Name: "http", Port: 80, Protocol: cluster.HTTPProtocol, Namespaces: cluster.AllowedNamespaces{From: cluster.FromAll},
			}},
		},
	})
	route := func(i int, path string) *cluster.Route {
		return &cluster.Route{
			Kind: cluster.KindHTTPRoute,
			Key:  cluster.Key{Namespace: "a", Name: fmt.Sprint("r", i)}, Hosts: []string{fmt.Sprintf("h%d.test", i)},
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
