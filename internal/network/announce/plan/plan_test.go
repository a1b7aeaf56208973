package plan

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
)

// newStore returns a Store in which all kinds are loaded.
func newStore(objects ...cluster.Object) *cluster.Store {
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
		for _, o := range objects {
			tx.Put(o)
		}
	})
	return store
}

// All returns all addresses.
func (c *Compiler) All() map[netip.Addr]Address {
	all := make(map[netip.Addr]Address, len(c.addrs))
	for a, held := range c.addrs {
		all[a] = held.output()
	}
	return all
}

// compileAll compiles what a Store has from scratch.
func compileAll(store *cluster.Store, cfg Config, links ...netip.Prefix) map[netip.Addr]Address {
	c := NewCompiler(cfg)
	c.SetLinks(links)
	store.View(func(v *cluster.View) { c.Apply(v, cluster.Changes{Everything: true}) })
	return c.All()
}

func readyNode(name string) *cluster.Node { return &cluster.Node{Name: name, Ready: true} }

func balancer(name string, addrs ...string) *cluster.Service {
	s := &cluster.Service{Key: cluster.Key{Namespace: "shop", Name: name}, Spec: &cluster.ServiceSpec{Type: cluster.LoadBalancer}}
	for _, a := range addrs {
		s.Spec.Ingress = append(s.Spec.Ingress, cluster.IngressIP{Addr: netip.MustParseAddr(a)})
	}
	return s
}

// endpointsOn returns the slice of a Service with an endpoint on each of some nodes, made by make.
func endpointsOn(service string, change func(*cluster.Endpoint), nodes ...string) *cluster.EndpointSlice {
	s := &cluster.EndpointSlice{
		Key: cluster.Key{Namespace: "shop", Name: service}, Service: service, AddressType: cluster.IPv4, Spec: new(cluster.SliceSpec),
	}
	for i, n := range nodes {
		e := cluster.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}), Ready: true, Serving: true}
		if change != nil {
			change(&e)
		}
		s.Endpoints = append(s.Endpoints, e)
		s.Spec.Places = append(s.Spec.Places, cluster.Place{Node: n})
	}
	return s
}

// TestCandidates: which nodes announce an address.
func TestCandidates(t *testing.T) {
	t.Parallel()
	const vip = "192.0.2.1"
	at := func(objects ...cluster.Object) []string {
		var names []string
		for _, a := range compileAll(newStore(objects...), Config{}) { // there is one
			names = append(names, a.Ranked...)
		}
		slices.Sort(names)
		return names
	}
	local := func(s *cluster.Service) *cluster.Service {
		s.Spec.ExternalLocal = true
		return s
	}
	change := func(n *cluster.Node, how func(*cluster.Node)) *cluster.Node {
		how(n)
		return n
	}
	terminating := func(e *cluster.Endpoint) { e.Ready, e.Terminating = false, true }
	a, b, c := readyNode("a"), readyNode("b"), readyNode("c")
	unready := func(name string) *cluster.Node { return &cluster.Node{Name: name} }
	tests := map[string]struct {
		objects []cluster.Object
		want    []string // sorted
	}{
		"all nodes":         {[]cluster.Object{balancer("web", vip), a, b, c}, []string{"a", "b", "c"}},
		"not those unready": {[]cluster.Object{balancer("web", vip), a, unready("b"), c}, []string{"a", "c"}},
		"unready ones, if all are": {
			[]cluster.Object{balancer("web", vip), unready("b"), unready("c")}, []string{"b", "c"},
		},
		"not those that leave": {
			[]cluster.Object{balancer("web", vip), a, change(readyNode("b"), func(n *cluster.Node) { n.Leaving = true })},
			[]string{"a"},
		},
		"not those excluded": {
			[]cluster.Object{balancer("web", vip), a, change(readyNode("b"), func(n *cluster.Node) {
				n.Labels = map[string]string{labelExcluded: ""}
			})},
			[]string{"a"},
		},
		"policy Local: those with an endpoint": {
			[]cluster.Object{local(balancer("web", vip)), a, b, c, endpointsOn("web", nil, "b", "gone")}, []string{"b"},
		},
		"policy Local: none without endpoints": {[]cluster.Object{local(balancer("web", vip)), a, b}, nil},
		"policy Local: terminating endpoints, if there are no others": {
			[]cluster.Object{local(balancer("web", vip)), a, b, endpointsOn("web", terminating, "b")}, []string{"b"},
		},
		"policy Local: an endpoint of the other family does not count": {
			[]cluster.Object{local(balancer("web", "2001:db8::1")), a, b, endpointsOn("web", nil, "b")}, nil,
		},
		"shared: those that serve all": {
			[]cluster.Object{
				local(balancer("web", vip)), local(balancer("mail", vip)), balancer("dns", vip), a, b, c,
				endpointsOn("web", nil, "a", "b"), endpointsOn("mail", nil, "b", "c"),
			}, []string{"b"},
		},
		"shared: nobody, if none serves all": {
			[]cluster.Object{
				local(balancer("web", vip)), local(balancer("mail", vip)), a, b,
				endpointsOn("web", nil, "a"), endpointsOn("mail", nil, "b"),
			}, nil,
		},
	}
	for claim, test := range tests {
		got := at(test.objects...)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: candidates %q, want %q", claim, got, test.want)
		}
	}
}

// TestCordoned: a cordoned node is after all that are not, and the only candidate if there is no other.
func TestCordoned(t *testing.T) {
	t.Parallel()
	const vip = "192.0.2.1"
	nodes := []*cluster.Node{readyNode("a"), readyNode("b"), readyNode("c"), readyNode("d")}
	ranked := func() []string {
		objects := []cluster.Object{balancer("web", vip)}
		for _, n := range nodes {
			objects = append(objects, n)
		}
		return compileAll(newStore(objects...), Config{})[netip.MustParseAddr(vip)].Ranked
	}
	cordon := func(name string, is bool) {
		nodes[slices.IndexFunc(nodes, func(n *cluster.Node) bool { return n.Name == name })].Cordoned = is
	}
	before := ranked()
	cordon(before[0], true)
	if got := ranked(); len(got) != Ranks || got[0] != before[1] || got[1] != before[2] || slices.Contains(got, before[0]) {
		t.Errorf("with %s cordoned: %q, want %q and the fourth node", before[0], got, before[1:])
	}
	cordon(before[0], false)
	cordon(before[1], true)
	if got := ranked(); got[0] != before[0] || slices.Contains(got, before[1]) {
		t.Errorf("with %s cordoned: %q, want %s first", before[1], got, before[0])
	}
	nodes = nodes[:1]
	if cordon("a", true); !slices.Equal(ranked(), []string{"a"}) {
		t.Errorf("with the only node cordoned: %q, want it", ranked())
	}
}

// TestNodeSelector: candidates have all labels of the selector.
func TestNodeSelector(t *testing.T) {
	t.Parallel()
	labeled := func(name string, labels map[string]string) *cluster.Node {
		n := readyNode(name)
		n.Labels = labels
		return n
	}
	got := compileAll(newStore(
		balancer("web", "192.0.2.1"), labeled("a", map[string]string{"uplink": "yes", "rack": "1"}), readyNode("c"),
		labeled("b", map[string]string{"uplink": "no", "rack": "1"}), labeled("d", map[string]string{"uplink": "yes"}),
	), Config{Node: "b", NodeSelector: map[string]string{"uplink": "yes", "rack": "1"}})
	if is := got[netip.MustParseAddr("192.0.2.1")]; !slices.Equal(is.Ranked, []string{"a"}) || is.Mine {
		t.Errorf("the candidates are %+v, want a alone", is)
	}
}

// TestLinks: on a link, the candidates are the nodes that are on it, if their addresses say so.
func TestLinks(t *testing.T) {
	t.Parallel()
	at := func(name, addr string) *cluster.Node {
		n := readyNode(name)
		n.Addresses = []netip.Addr{netip.MustParseAddr(addr)}
		return n
	}
	store := newStore(
		balancer("web", "192.0.2.1", "203.0.113.1", "198.51.100.1"), at("a", "192.0.2.2"), at("b", "192.0.2.3"), at("c", "198.18.0.4"),
	)
	got := compileAll(store, Config{Node: "c"}, netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("203.0.113.0/24"))
	for addr, want := range map[string]int{
		"192.0.2.1":    2, // a and b
		"203.0.113.1":  3, // on a link that no Node has an address of
		"198.51.100.1": 3, // on no link
	} {
		is := got[netip.MustParseAddr(addr)]
		if len(is.Ranked) != want || want == 2 && slices.Contains(is.Ranked, "c") || !is.Mine {
			t.Errorf("%s: %+v, want %d candidates, and c among those for routers", addr, is, want)
		}
		if unshown := addr == "203.0.113.1"; is.Unshown != unshown {
			t.Errorf("%s: Unshown is %t, want %t", addr, is.Unshown, unshown)
		}
	}
}

// TestAddresses: which addresses are announced.
func TestAddresses(t *testing.T) {
	t.Parallel()
	proxied, other := balancer("proxied", "192.0.2.2"), balancer("other", "192.0.2.3")
	proxied.Spec.Ingress[0].Proxy = true
	other.Spec.Type = cluster.ClusterIP
	foreign := balancer("foreign", "192.0.2.4")
	bare := &cluster.Service{Key: cluster.Key{Namespace: "shop", Name: "bare"}}
	store := newStore(balancer("web", "192.0.2.1", "2001:db8::1", "192.0.2.1"), proxied, other, foreign, bare, readyNode("a"))
	got := compileAll(store, Config{Ours: func(s *cluster.Service) bool { return s.Name != "foreign" }})
	addrs := slices.SortedFunc(maps.Keys(got), netip.Addr.Compare)
	if want := "[192.0.2.1 2001:db8::1]"; fmt.Sprint(addrs) != want {
		t.Errorf("addresses %v, want %s", addrs, want)
	}
}

// TestFewMove: when a node comes or goes, the owner of about one address in as many as there are nodes changes, and
// owners have about the same number of addresses.
func TestFewMove(t *testing.T) {
	t.Parallel()
	const nodes, addrs = 20, 2000
	store := newStore()
	store.Update(func(tx *cluster.Tx) {
		for i := range nodes {
			tx.Put(readyNode(fmt.Sprint("node-", i)))
		}
		for i := range addrs {
			tx.Put(balancer(fmt.Sprint("web-", i), fmt.Sprintf("192.0.%d.%d", i>>8, i&255)))
		}
	})
	before := compileAll(store, Config{})
	store.Update(func(tx *cluster.Tx) { tx.Put(readyNode("new")) })
	after := compileAll(store, Config{})
	moved, owned := 0, make(map[string]int)
	for a, is := range after {
		owned[is.Ranked[0]]++
		if was := before[a].Ranked[0]; was != is.Ranked[0] {
			if moved++; is.Ranked[0] != "new" {
				t.Errorf("%s moved from %s to %s, which is not the new node", a, was, is.Ranked[0])
			}
		}
	}
	if fair := addrs / (nodes + 1); moved < fair/2 || moved > 2*fair {
		t.Errorf("%d of %d addresses moved, want about %d", moved, addrs, fair)
	}
	for name, n := range owned {
		if fair := addrs / (nodes + 1); n < fair/2 || n > 2*fair {
			t.Errorf("%s owns %d addresses, want about %d", name, n, fair)
		}
	}
}

// TestScoresStay: nodes of all versions compute the same.
func TestScoresStay(t *testing.T) {
	t.Parallel()
	for in, want := range map[[2]string]uint64{
		{"192.0.2.1", "node-a"}:   0x93c2acb8454e7a3c,
		{"2001:db8::1", "node-b"}: 0xfa96f71c80360fb4,
	} {
		if got := Score(netip.MustParseAddr(in[0]), IDOf(in[1])); got != want {
			t.Errorf("Score(%s, %s) = %#x, want %#x", in[0], in[1], got, want)
		}
	}
}

// TestIncrementalEqualsFull checks that after any changes, coalesced in any way, what the changes led to equals what
// is compiled from the final state; and that no change is told that is none.
func TestIncrementalEqualsFull(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		links := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.0.2.2/31")}
		r := &random{rand.New(rand.NewPCG(seed, 5))}
		cfg := Config{Node: "a", NodeSelector: map[string]string{"uplink": "yes"}, Ours: func(s *cluster.Service) bool { return !s.Headless }}
		store := newStore()
		feed := store.Subscribe()
		c, told := NewCompiler(cfg), make(map[netip.Addr]Address)
		for step := range 30 {
			store.Update(r.change)
			if r.IntN(3) == 0 { // the compiler is busy
				continue
			}
			store.View(func(v *cluster.View) { follow(t, told, c.Apply(v, feed.Pending())) })
			on := links[:r.IntN(3)]
			follow(t, told, c.SetLinks(on))
			want := compileAll(store, cfg, on...)
			if diff := cmp.Diff(want, told); diff != "" {
				t.Fatalf("seed %d, step %d: the changes led to something else (-want +got):\n%s", seed, step, diff)
			}
			if diff := cmp.Diff(want, c.All()); diff != "" {
				t.Fatalf("seed %d, step %d: All differs (-want +got):\n%s", seed, step, diff)
			}
		}
		feed.Close()
	}
}

// follow applies changes to what was told before.
func follow(t *testing.T, told map[netip.Addr]Address, changes Changes) {
	t.Helper()
	for _, a := range changes.Delete {
		if _, known := told[a]; !known {
			t.Errorf("%s is deleted, and was not there", a)
		}
		delete(told, a)
	}
	for a, is := range changes.Put {
		if was, known := told[a]; known && cmp.Equal(was, is) {
			t.Errorf("%s is put, and did not change", a)
		}
		told[a] = is
	}
}

// random makes random changes of few objects, so that they often concern each other.
type random struct{ *rand.Rand }

func pick[T any](r *random, from ...T) T { return from[r.IntN(len(from))] }

func (r *random) nodeName() string { return pick(r, "a", "b", "c", "d", "e") }
func (r *random) service() string  { return pick(r, "one", "two", "three") }

func (r *random) change(tx *cluster.Tx) {
	key := func(name string) cluster.Key { return cluster.Key{Namespace: "shop", Name: name} }
	switch r.IntN(12) {
	case 0:
		tx.Delete(cluster.KindService, key(r.service()))
	case 1:
		tx.Delete(cluster.KindEndpointSlice, key(r.service()))
	case 2:
		tx.Delete(cluster.KindNode, cluster.Key{Name: r.nodeName()})
	case 3, 4, 5, 6:
		n := &cluster.Node{Name: r.nodeName(), Ready: r.IntN(3) > 0, Leaving: r.IntN(8) == 0, Cordoned: r.IntN(4) == 0}
		n.Addresses = []netip.Addr{netip.MustParseAddr(pick(r, "192.0.2.3", "192.0.2.9", "198.51.100.1"))}
		n.Labels = map[string]string{"uplink": pick(r, "yes", "yes", "yes", "no")}
		if r.IntN(8) == 0 {
			n.Labels[labelExcluded] = "true"
		}
		tx.Put(n)
	case 7, 8:
		s := endpointsOn(r.service(), func(e *cluster.Endpoint) {
			e.Ready, e.Terminating = r.IntN(2) == 0, r.IntN(2) == 0
			e.Serving = e.Ready || r.IntN(2) == 0
		}, r.nodeName(), r.nodeName())
		s.AddressType = pick(r, cluster.IPv4, cluster.IPv6)
		tx.Put(s)
	default:
		s := balancer(r.service())
		for range r.IntN(3) {
			s.Spec.Ingress = append(s.Spec.Ingress, cluster.IngressIP{
				Addr: netip.MustParseAddr(pick(r, "192.0.2.1", "192.0.2.2", "2001:db8::1")), Proxy: r.IntN(8) == 0,
			})
		}
		s.Spec.ExternalLocal, s.Headless = r.IntN(2) == 0, r.IntN(8) == 0
		tx.Put(s)
	}
}

// BenchmarkChange measures the work for a Node that becomes ready, and for one change of a Service, among 1,000
// addresses and 1,000 nodes.
func BenchmarkChange(b *testing.B) {
	store := newStore()
	store.Update(func(tx *cluster.Tx) {
		for i := range 1000 {
			tx.Put(readyNode(fmt.Sprint("node-", i)))
			tx.Put(balancer(fmt.Sprint("web-", i), fmt.Sprintf("192.0.%d.%d", i>>8, i&255)))
		}
	})
	for name, change := range map[string]func(i int) cluster.Object{
		"node":    func(i int) cluster.Object { return &cluster.Node{Name: "node-1", Ready: i%2 == 0} },
		"service": func(i int) cluster.Object { return balancer("web-1", fmt.Sprintf("192.0.2.%d", i%2)) },
	} {
		b.Run(name, func(b *testing.B) {
			c, feed := NewCompiler(Config{}), store.Subscribe()
			defer feed.Close()
			store.View(func(v *cluster.View) { c.Apply(v, feed.Pending()) })
			for i := range b.N {
				store.Update(func(tx *cluster.Tx) { tx.Put(change(i)) })
				store.View(func(v *cluster.View) { c.Apply(v, feed.Pending()) })
			}
		})
	}
}
