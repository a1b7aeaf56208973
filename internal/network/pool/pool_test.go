package pool

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
)

func rangesOf(texts ...string) (all []Range) {
	for _, text := range texts {
		r, err := ParseRange(text)
		if err != nil {
			panic(err)
		}
		all = append(all, r)
	}
	return all
}

// TestParseRange checks which texts are ranges.
func TestParseRange(t *testing.T) {
	t.Parallel()
	const wrong = " is not a range, such as 192.0.2.0/28, 192.0.2.40-192.0.2.60 or 192.0.2.1"
	for text, want := range map[string]string{
		"192.0.2.0/28":             "192.0.2.0-192.0.2.15",
		"192.0.2.40-192.0.2.60":    "192.0.2.40-192.0.2.60",
		"192.0.2.40 - 192.0.2.40":  "192.0.2.40-192.0.2.40",
		"192.0.2.1":                "192.0.2.1-192.0.2.1",
		"2001:db8::/120":           "2001:db8::-2001:db8::ff",
		"2001:db8::1-2001:db8::ff": "2001:db8::1-2001:db8::ff",
		"::/0":                     "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
		"192.0.2.9-192.0.2.1":      "the last address of 192.0.2.9-192.0.2.1 is less than the first",
		"192.0.2.1/28":             `"192.0.2.1/28"` + wrong,
		"192.0.2.1-2001:db8::":     `"192.0.2.1-2001:db8::"` + wrong,
		"fe80::1%eth0":             `"fe80::1%eth0"` + wrong,
		"::ffff:192.0.2.0/124":     `"::ffff:192.0.2.0/124"` + wrong,
		"all":                      `"all"` + wrong,
		"":                         `""` + wrong,
	} {
		r, err := ParseRange(text)
		got := r.String()
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("ParseRange(%q) = %q, want %q", text, got, want)
		}
	}
}

// TestCheck checks which configurations are refused.
func TestCheck(t *testing.T) {
	t.Parallel()
	a, b := Pool{Name: "a", Ranges: rangesOf("192.0.2.0/28")}, Pool{Name: "b", Ranges: rangesOf("192.0.2.16/28", "2001:db8::/64")}
	for claim, test := range map[string]struct {
		cfg  Config
		want string
	}{
		"two pools":      {Config{Class: "c", Pools: []Pool{a, b}}, ""},
		"no class":       {Config{WithoutClass: true, Pools: []Pool{a}}, ""},
		"nothing":        {Config{Pools: []Pool{a}}, "no Service gets an address: class is empty, and withoutClass is false"},
		"no name":        {Config{Class: "c", Pools: []Pool{{Ranges: a.Ranges}}}, "a pool has no name"},
		"one name twice": {Config{Class: "c", Pools: []Pool{a, a}}, "two pools are called a"},
		"no ranges":      {Config{Class: "c", Pools: []Pool{{Name: "a"}}}, "pool a has no ranges"},
		"overlap": {
			Config{Class: "c", Pools: []Pool{a, {Name: "b", Ranges: rangesOf("192.0.2.15-192.0.2.20")}}},
			"ranges 192.0.2.0-192.0.2.15 and 192.0.2.15-192.0.2.20 overlap",
		},
		"reserved of another": {
			Config{Class: "c", Pools: []Pool{{Name: "a", Ranges: a.Ranges, Reserved: rangesOf("192.0.2.16")}}},
			"reserved addresses 192.0.2.16-192.0.2.16 are not in pool a",
		},
	} {
		got := ""
		if err := test.cfg.Check(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: Check() = %q, want %q", claim, got, test.want)
		}
	}
}

// world is a cluster in which what an Assigner says is written.
type world struct {
	t     *testing.T
	store *cluster.Store
	feed  *cluster.Feed
	a     *Assigner
}

func newWorld(t *testing.T, pools ...Pool) *world {
	t.Helper()
	w := &world{t: t, store: cluster.NewStore(), a: NewAssigner(Config{Class: "lb", Pools: pools})}
	if err := w.a.cfg.Check(); err != nil {
		t.Fatal(err)
	}
	w.feed = w.store.Subscribe()
	t.Cleanup(w.feed.Close)
	w.change(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Live, cluster.KindService, cluster.KindNamespace) })
	return w
}

// change changes the model, and has the Assigner follow it.
func (w *world) change(change func(*cluster.Tx)) map[cluster.Key]struct{} {
	w.store.Update(change)
	var changed map[cluster.Key]struct{}
	w.store.View(func(v *cluster.View) { changed = w.a.Update(v, w.feed.Pending()) })
	return changed
}

func (w *world) put(all ...cluster.Object) {
	w.change(func(tx *cluster.Tx) {
		for _, o := range all {
			tx.Put(o)
		}
	})
}

func keyOf(name string) cluster.Key { return cluster.Key{Namespace: "shop", Name: name} }

func (w *world) remove(name string) {
	w.change(func(tx *cluster.Tx) { tx.Delete(cluster.KindService, keyOf(name)) })
}

// service returns a Service of the class lb that is changed.
func service(name string, changes ...func(*cluster.Service)) *cluster.Service {
	s := &cluster.Service{
		Key: keyOf(name), Ports: []cluster.Port{{Protocol: cluster.TCP, Number: 80}}, Selector: map[string]string{"app": name},
		Spec: &cluster.ServiceSpec{
			Type: cluster.LoadBalancer, Families: []cluster.AddressType{cluster.IPv4}, FamilyPolicy: cluster.SingleStack,
			LoadBalancer: &cluster.LoadBalancerSpec{Class: "lb"},
		},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

func created(at int64) func(*cluster.Service) { return func(s *cluster.Service) { s.Created = at } }
func key(k string) func(*cluster.Service) {
	return func(s *cluster.Service) { s.Spec.LoadBalancer.SharingKey = k }
}
func from(pool string) func(*cluster.Service) {
	return func(s *cluster.Service) { s.Spec.LoadBalancer.Pool = pool }
}
func asks(ips string) func(*cluster.Service) {
	return func(s *cluster.Service) { s.Spec.LoadBalancer.Addresses = ips }
}
func local(s *cluster.Service) { s.Spec.ExternalLocal = true }
func selects(app string) func(*cluster.Service) {
	return func(s *cluster.Service) { s.Selector = map[string]string{"app": app} }
}

func port(protocol cluster.Protocol, number uint16) func(*cluster.Service) {
	return func(s *cluster.Service) { s.Ports = []cluster.Port{{Protocol: protocol, Number: number}} }
}

func families(p cluster.FamilyPolicy, all ...cluster.AddressType) func(*cluster.Service) {
	return func(s *cluster.Service) { s.Spec.FamilyPolicy, s.Spec.Families = p, all }
}

func has(addrs ...string) func(*cluster.Service) {
	return func(s *cluster.Service) {
		for _, text := range addrs {
			s.Spec.Ingress = append(s.Spec.Ingress, cluster.IngressIP{Addr: netip.MustParseAddr(text)})
		}
	}
}

// of returns what a Service has: addresses, and the first words of its problem.
func (w *world) of(name string) string {
	var got Assignment
	w.store.View(func(v *cluster.View) { got = w.a.Of(v.Service(keyOf(name))) })
	var texts []string
	for _, addr := range got.Addrs {
		texts = append(texts, addr.String())
	}
	if got.Problem != "" {
		texts = append(texts, "! "+got.Problem)
	}
	if got.Left {
		texts = append(texts, "left")
	}
	return strings.Join(texts, " ")
}

// want checks what Services have; an item of want is a Service's name, and the start of what it has.
func (w *world) want(claim string, want ...string) {
	w.t.Helper()
	for _, text := range want {
		name, start, _ := strings.Cut(text, " ")
		if got := w.of(name); !strings.HasPrefix(got, start) || start == "" && got != "" {
			w.t.Errorf("%s: Service %s has %q, want %q", claim, name, got, start)
		}
	}
}

func public(change func(*Pool), ranges ...string) Pool {
	p := Pool{Name: "public", Ranges: rangesOf(ranges...), Automatic: true}
	if change != nil {
		change(&p)
	}
	return p
}

// TestLowest checks that Services get the lowest free address, older ones first, and keep it.
func TestLowest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, public(func(p *Pool) { p.Reserved = rangesOf("192.0.2.0", "192.0.2.2-192.0.2.3") }, "192.0.2.0-192.0.2.5"))
	w.put(service("b", created(1)), service("a", created(2)))
	w.want("by age", "b 192.0.2.1", "a 192.0.2.4")
	w.put(service("c"))
	w.put(service("d"))
	w.want("exhausted", "c 192.0.2.5", "d ! all IPv4 addresses of the pools for this Service are assigned")
	w.put(service("e", asks("192.0.2.3")))
	w.want("a reserved one, when it is requested", "e 192.0.2.3")
	w.remove("b")
	w.want("freed", "d 192.0.2.1", "c 192.0.2.5")
	usage, lacking := w.a.Usage()
	if diff := cmp.Diff([]Usage{{"public", cluster.IPv4, 4, 2, 0}}, usage); diff != "" || lacking != 0 {
		t.Errorf("Usage() = %v, %d: %s", usage, lacking, diff)
	}
	w.put(service("a", func(s *cluster.Service) { s.Spec.Type = cluster.ClusterIP }, has("192.0.2.4")))
	w.put(service("f"))
	w.want("of a Service that is none any more", "a left", "f 192.0.2.4")
}

// TestUsage checks that the addresses of a pool are counted by family: one may be exhausted before the other.
func TestUsage(t *testing.T) {
	t.Parallel()
	reserve := func(p *Pool) { p.Reserved = rangesOf("192.0.2.1", "2001:db8::/127") }
	w := newWorld(t, public(reserve, "2001:db8::/125", "192.0.2.0/31", "192.0.2.4"))
	both := families(cluster.PreferDualStack, cluster.IPv4, cluster.IPv6)
	w.put(service("a", both, created(1)), service("b", created(2)), service("c", created(3)))
	w.want("exhausted", "a 192.0.2.0 2001:db8::2", "b 192.0.2.4", "c ! all IPv4 addresses of the pools")
	usage, lacking := w.a.Usage()
	want := []Usage{{"public", cluster.IPv4, 2, 1, 0}, {"public", cluster.IPv6, 1, 2, 5}}
	if diff := cmp.Diff(want, usage); diff != "" || lacking != 1 {
		t.Errorf("Usage() = %v, %d: %s", usage, lacking, diff)
	}
}

// TestWhose checks which Services get addresses.
func TestWhose(t *testing.T) {
	t.Parallel()
	w := newWorld(t, public(nil, "192.0.2.0/28"))
	other := func(s *cluster.Service) { s.Spec.LoadBalancer.Class = "other" }
	without := func(s *cluster.Service) { s.Spec.LoadBalancer = nil }
	w.put(service("other", other, has("192.0.2.0")), service("without", without), service("ours", created(1)))
	w.want("by class", "other ", "without ", "ours 192.0.2.1")
	w.a.cfg.WithoutClass = true
	w.put(service("without", without, created(2)))
	w.want("without a class", "without 192.0.2.2")
	w.put(service("stale", func(s *cluster.Service) { s.Spec.Type = cluster.NodePort }, has("192.0.2.9")))
	w.put(service("foreign", func(s *cluster.Service) { s.Spec.Type = cluster.NodePort }, has("192.0.2.9", "198.51.100.1")))
	w.want("what an earlier process left", "stale left", "foreign ")
}

// TestRequests checks addresses and pools that are requested.
func TestRequests(t *testing.T) {
	t.Parallel()
	manual := Pool{Name: "manual", Ranges: rangesOf("198.51.100.0/30")}
	w := newWorld(t, public(nil, "192.0.2.0/30"), manual)
	both := families(cluster.PreferDualStack, cluster.IPv4, cluster.IPv6)
	w.put(
		service("field", func(s *cluster.Service) { s.Spec.LoadBalancer.IP = "192.0.2.2" }),
		service("annotated", asks("198.51.100.3"), func(s *cluster.Service) { s.Spec.LoadBalancer.IP = "192.0.2.2" }),
		service("pool", from("manual")), service("nowhere", asks("203.0.113.1")), service("nothing", asks("lb.example")),
		service("unknown", from("x")), service("family", asks("2001:db8::1")), service("twice", both, asks("192.0.2.0, 192.0.2.1")),
		service("elsewhere", asks("192.0.2.3"), from("manual")),
		service("other", families(cluster.SingleStack, cluster.IPv6), from("manual")),
		service("none", families(cluster.SingleStack, cluster.IPv6)),
	)
	w.want("requests",
		"field 192.0.2.2", "annotated 198.51.100.3", "pool 198.51.100.0",
		"nowhere ! the requested address 203.0.113.1 is in no pool", `nothing ! "lb.example", which is requested, is not an IP address`,
		`unknown ! there is no pool "x"`, "family ! the requested address 2001:db8::1 is of a family",
		"twice ! two addresses of one family are requested", "elsewhere ! the requested address 192.0.2.3 is in no pool",
		`other ! the pool "manual", of the annotation portolan.dev/pool, has no IPv6 addresses`,
		"none ! no pool for this Service that is automatic has IPv6 addresses",
	)
	w.put(service("late", asks("192.0.2.2")))
	w.want("a conflict", "late ! Service shop/field has the address 192.0.2.2")
	w.remove("field")
	w.want("its end", "late 192.0.2.2")
	w.put(service("late", asks("192.0.2.3")))
	w.want("another request", "late 192.0.2.3")
}

// TestPools checks which Services may have addresses of a pool.
func TestPools(t *testing.T) {
	t.Parallel()
	selector := func(k, v string) *cluster.Selector { return &cluster.Selector{Labels: map[string]string{k: v}} }
	w := newWorld(t,
		Pool{Name: "named", Ranges: rangesOf("192.0.2.0/28"), Automatic: true, Namespaces: []string{"bank"}},
		Pool{Name: "labeled", Ranges: rangesOf("192.0.2.16/28"), Automatic: true, NamespaceSelector: selector("team", "a")},
		Pool{Name: "of services", Ranges: rangesOf("192.0.2.32/28"), Automatic: true, ServiceSelector: selector("edge", "yes")},
	)
	edge := service("edge", func(s *cluster.Service) { s.Spec.Labels = map[string]string{"edge": "yes"} })
	w.put(&cluster.Namespace{Name: "shop"}, edge, service("plain"))
	w.want("labels of Services", "edge 192.0.2.32", "plain ! no pool is for this Service")
	w.put(&cluster.Namespace{Name: "shop", Labels: map[string]string{"team": "a"}})
	w.want("labels of the Namespace", "edge 192.0.2.32", "plain 192.0.2.16")
	w.put(&cluster.Namespace{Name: "shop"})
	w.want("without the label", "plain ! no pool is for this Service")
}

// TestFamilies checks the families of the addresses of a Service.
func TestFamilies(t *testing.T) {
	t.Parallel()
	v4, v6 := cluster.IPv4, cluster.IPv6
	w := newWorld(t, public(nil, "192.0.2.0/28", "2001:db8::-2001:db8::1"))
	w.put(service("six", families(cluster.SingleStack, v6), created(1)), service("both", families(cluster.RequireDualStack, v6, v4), created(2)))
	w.want("in the order of ipFamilies", "six 2001:db8::", "both 2001:db8::1 192.0.2.0")
	w.put(service("requires", families(cluster.RequireDualStack, v4, v6)), service("prefers", families(cluster.PreferDualStack, v4, v6)))
	w.want("without IPv6", "requires ! all IPv6 addresses", "prefers 192.0.2.1")
	if got := w.of("prefers"); got != "192.0.2.1" {
		t.Errorf("prefers has %q, want no problem", got)
	}
	w.put(service("both", families(cluster.SingleStack, v4)))
	w.want("IPv6 is free", "both 192.0.2.0", "prefers 192.0.2.1 2001:db8::1", "requires ! all IPv6 addresses")
	w.put(service("prefers", families(cluster.RequireDualStack, v4, v6), asks("192.0.2.9")))
	w.want("a request for one family", "prefers 192.0.2.9 2001:db8::1")
}

// TestSharing checks which Services share an address.
func TestSharing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, public(nil, "192.0.2.0/28"))
	w.put(service("a", key("k"), created(1)))
	w.put(
		service("ports", key("k"), port(cluster.TCP, 443)), service("protocol", key("k"), port(cluster.UDP, 80)),
		service("same", key("k"), created(2)), service("key", key("j"), port(cluster.TCP, 81), created(3)),
		service("none", port(cluster.TCP, 82), created(4)),
		service("local", key("k"), port(cluster.TCP, 83), local, created(5)),
	)
	w.want("one address",
		"a 192.0.2.0", "ports 192.0.2.0", "protocol 192.0.2.0", "same 192.0.2.1", "key 192.0.2.2", "none 192.0.2.3",
		"local 192.0.2.4",
	)
}

// TestSharingLocal checks that Services with externalTrafficPolicy Local share an address if they have the same
// endpoints.
func TestSharingLocal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, public(nil, "192.0.2.0/28"))
	w.put(service("a", key("k"), asks("192.0.2.9"), local, selects("web")))
	w.put(
		service("same", key("k"), port(cluster.TCP, 81), local, selects("web"), asks("192.0.2.9")),
		service("cluster", key("k"), port(cluster.TCP, 82), selects("web"), asks("192.0.2.9")),
	)
	w.put(service("other", key("k"), port(cluster.TCP, 83), selects("db"), asks("192.0.2.9")))
	w.want("by endpoints", "same 192.0.2.9", "cluster 192.0.2.9", "other ! Service shop/a has the address 192.0.2.9: to share it")
	w.put(service("same", key("k"), port(cluster.TCP, 80), local, selects("web"), asks("192.0.2.9")))
	w.want("ports that are the same now", "a 192.0.2.9", "same ! Service shop/")
}

// TestKeeps checks that an Assigner that is made anew keeps what statuses have, as far as it is allowed.
func TestKeeps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, public(func(p *Pool) { p.Reserved = rangesOf("192.0.2.8") }, "192.0.2.0/28"))
	w.put(
		service("a", created(1)), service("b", created(2), has("192.0.2.0")), service("c", created(3), has("192.0.2.0")),
		service("d", created(4), has("203.0.113.1")), service("e", created(5), has("192.0.2.8")),
		service("f", created(6), has("192.0.2.7"), asks("192.0.2.6")), service("g", created(7), has("192.0.2.5", "192.0.2.4")),
	)
	w.want("at the start", "a 192.0.2.1", "b 192.0.2.0", "c 192.0.2.2", "d 192.0.2.3", "e 192.0.2.4", "f 192.0.2.6", "g 192.0.2.5")
	w.put(service("b", created(2), has("192.0.2.9")))
	w.want("not what others write", "b 192.0.2.0")
}

// TestAdopt checks that addresses of the API are given to nobody else before the model shows them.
func TestAdopt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, public(nil, "192.0.2.0/28"))
	w.a.Adopt(keyOf("late"), []netip.Addr{netip.MustParseAddr("192.0.2.0")})
	w.a.Adopt(keyOf("deleted"), []netip.Addr{netip.MustParseAddr("192.0.2.1")})
	w.put(service("a"))
	w.want("beside both", "a 192.0.2.2")
	w.store.View(func(v *cluster.View) { w.a.Update(v, cluster.Changes{Everything: true}) })
	w.put(service("b"))
	w.want("still", "b 192.0.2.3")
	w.put(service("late"), service("deleted"))
	w.remove("deleted")
	w.put(service("c"))
	w.want("then", "late 192.0.2.0", "c 192.0.2.1")
}

// TestLaw checks that after any changes no two Services that may not share have one address, that no address is one
// that a Service may not have, that nobody waits for what is free, and that an Assigner made anew from the statuses
// assigns the same.
func TestLaw(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 24))
		w := newWorld(t,
			public(func(p *Pool) { p.Reserved = rangesOf("192.0.2.1") }, "192.0.2.0-192.0.2.5", "2001:db8::/126"),
			Pool{Name: "more", Ranges: rangesOf("198.51.100.0/31", "2001:db8:1::/127"), NamespaceSelector: &cluster.Selector{Labels: map[string]string{"team": "a"}}},
		)
		for range 40 {
			name := fmt.Sprint("s", r.IntN(10))
			switch r.IntN(6) {
			case 0:
				w.remove(name)
			case 1:
				w.put(&cluster.Namespace{Name: "shop", Labels: map[string]string{"team": string("ab"[r.IntN(2)])}})
			case 2:
				w.write()
			default:
				w.put(randomService(r, name))
			}
			if r.IntN(3) > 0 {
				w.write()
			}
		}
		w.write()
		checkLaw(t, seed, w)
	}
}

func randomService(r *rand.Rand, name string) *cluster.Service {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	s := service(name, created(int64(r.IntN(3))), port(cluster.TCP, uint16(80+r.IntN(4))), selects(pick("a", "b")))
	s.Spec.LoadBalancer = &cluster.LoadBalancerSpec{
		Class: pick("lb", "lb", "lb", "other"), SharingKey: pick("", "", "k", "j"), Pool: pick("", "", "", "more", "public"),
		Addresses: pick("", "", "", "", "192.0.2.1", "192.0.2.3", "198.51.100.1", "2001:db8::2", "192.0.2.4,2001:db8::1"),
	}
	s.Spec.FamilyPolicy = cluster.FamilyPolicy(pick("SingleStack", "PreferDualStack", "RequireDualStack"))
	s.Spec.Families = []cluster.AddressType{cluster.IPv4, cluster.IPv6}
	if r.IntN(2) == 0 {
		slices.Reverse(s.Spec.Families)
	}
	s.Spec.ExternalLocal = r.IntN(3) == 0
	if r.IntN(8) == 0 {
		s.Spec.Type = cluster.NodePort
	}
	if r.IntN(6) == 0 { // somebody else writes a status
		has(pick("192.0.2.0", "192.0.2.3", "203.0.113.1", "2001:db8::"))(s)
	}
	return s
}

// write has the model show what is assigned.
func (w *world) write() {
	var all []cluster.Object
	w.store.View(func(v *cluster.View) {
		for s := range v.Services() {
			of := w.a.Of(s)
			if !of.Ours && !of.Left {
				continue
			}
			spec := *s.Spec
			spec.Ingress = nil
			for _, addr := range of.Addrs {
				spec.Ingress = append(spec.Ingress, cluster.IngressIP{Addr: addr})
			}
			shown := *s
			shown.Spec = &spec
			all = append(all, &shown)
			if of.Left {
				w.a.Cleared(s.Key)
			}
		}
	})
	w.put(all...)
}

func checkLaw(t *testing.T, seed uint64, w *world) {
	t.Helper()
	had := w.all()
	w.write()
	if diff := cmp.Diff(had, w.all()); diff != "" {
		t.Fatalf("seed %d: what was written changes assignments (-before +after):\n%s", seed, diff)
	}
	for addr, keys := range w.a.holders {
		for i, key := range keys {
			c := w.a.claims[key]
			if c.demand != nil && !c.allows(addr) {
				t.Fatalf("seed %d: Service %s may not have %s", seed, key, addr)
			}
			for _, other := range keys[i+1:] {
				o := w.a.claims[other]
				if c.demand != nil && o.demand != nil && !c.shares(key, o.demand, other) {
					t.Fatalf("seed %d: Services %s and %s have %s", seed, key, other, addr)
				}
			}
		}
	}
	anew := NewAssigner(w.a.cfg)
	one := *w
	one.a = anew
	w.store.View(func(v *cluster.View) { anew.Update(v, cluster.Changes{Everything: true}) })
	if diff := cmp.Diff(had, one.all()); diff != "" {
		t.Fatalf("seed %d: assignments (-one by one +from scratch):\n%s", seed, diff)
	}
	was, _ := w.a.Usage()
	is, _ := anew.Usage()
	if diff := cmp.Diff(was, is); diff != "" {
		t.Fatalf("seed %d: usage (-one by one +from scratch):\n%s", seed, diff)
	}
}

// all returns what each Service has.
func (w *world) all() map[string]string {
	all := make(map[string]string)
	w.store.View(func(v *cluster.View) {
		for s := range v.Services() {
			of := w.a.Of(s)
			all[s.Name] = fmt.Sprint(of.Ours, of.Addrs, of.Problem != "")
		}
	})
	return maps.Clone(all)
}

// BenchmarkUpdate measures how long 5,000 Services take that appear at once, and one that changes.
func BenchmarkUpdate(b *testing.B) {
	cfg := Config{Class: "lb", Pools: []Pool{public(nil, "10.0.0.0/16", "2001:db8::/64")}}
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		for i := range 5000 {
			tx.Put(service(fmt.Sprint("s-", i), families(cluster.RequireDualStack, cluster.IPv4, cluster.IPv6)))
		}
		tx.SetFreshness(cluster.Live, cluster.KindService, cluster.KindNamespace)
	})
	b.Run("5000", func(b *testing.B) {
		for b.Loop() {
			store.View(func(v *cluster.View) { NewAssigner(cfg).Update(v, cluster.Changes{Everything: true}) })
		}
	})
	b.Run("one", func(b *testing.B) {
		a := NewAssigner(cfg)
		store.View(func(v *cluster.View) { a.Update(v, cluster.Changes{Everything: true}) })
		change := cluster.Changes{Objects: map[cluster.Ref]int64{{Kind: cluster.KindService, Key: keyOf("s-2500")}: 0}}
		for b.Loop() {
			store.View(func(v *cluster.View) { a.Update(v, change) })
		}
	})
}
