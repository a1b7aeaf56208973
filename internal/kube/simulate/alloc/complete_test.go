package alloc

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

// expect fails unless the refusals are as they should be: "name: field: words".
func expect(t *testing.T, got []cluster.Refusal, want ...string) {
	t.Helper()
	var texts []string
	for _, r := range got {
		texts = append(texts, r.Key.Name+": "+told([]cluster.Refusal{r}))
	}
	if !slices.Equal(texts, want) {
		t.Errorf("refused:\n%s\nwant:\n%s", strings.Join(texts, "\n"), strings.Join(want, "\n"))
	}
}

const taken = `spec.clusterIPs: Invalid value: ["10.96.0.10"]: failed to allocate IP 10.96.0.10: provided IP is already allocated`

// TestConflicts: of those who ask for one address the first by key has it, or who
// has it already; the other gets it when it is free.
func TestConflicts(t *testing.T) {
	w := newWorld(t, single)
	a, b := parse(t, "a", "ip=10.96.0.10"), parse(t, "b", "ip=10.96.0.10")
	expect(t, w.put(b, a), "b: "+taken)
	if w.get("a") == nil || w.get("b") != nil {
		t.Fatal("a should be there, and b should not")
	}
	expect(t, w.put(), "b: "+taken)
	expect(t, w.remove("a"))
	if w.get("b") == nil {
		t.Fatal("b should be there once a is gone")
	}
	expect(t, w.put(a), "a: "+taken)
	expect(t, w.put(parse(t, "a", "ip=10.96.0.11")))
	expect(t, w.put(parse(t, "a", "ip=10.96.0.10")), `a: spec.clusterIPs[0]: Invalid value: ["10.96.0.10"]: may not change once set`)
}

// TestConflictEndsInOneTransaction: what one gives back another gets at once,
// whichever comes first by key.
func TestConflictEndsInOneTransaction(t *testing.T) {
	for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
		w := newWorld(t, single)
		expect(t, w.put(parse(t, names[0], "type=NodePort ip=10.96.0.10 ports=80:30080")))
		expect(t, w.put(parse(t, names[0], "external=example.com"), parse(t, names[1], "type=NodePort ip=10.96.0.10 ports=80:30080")))
		if s := w.get(names[1]); s == nil || s.Spec.NodePorts[0] != 30080 {
			t.Errorf("%s is %+v", names[1], s)
		}
	}
}

// TestRefusedIsDeclaredNoMore: the Allocator hears of it though nothing changes in
// the Store.
func TestRefusedIsDeclaredNoMore(t *testing.T) {
	w := newWorld(t, single)
	expect(t, w.put(parse(t, "a", "ip=10.96.0.10"), parse(t, "b", "ip=10.96.0.10")), "b: "+taken)
	expect(t, w.remove("b"))
	expect(t, w.remove("a"))
	if w.get("b") != nil {
		t.Error("b came back")
	}
}

// TestRefusedChangeIsTakenBack: what is declared is just what was filled in, so that
// nothing changes in the Store.
func TestRefusedChangeIsTakenBack(t *testing.T) {
	const full = "type=ClusterIP ip=10.96.0.10 families=IPv4 policy=SingleStack"
	w := newWorld(t, single)
	expect(t, w.put(parse(t, "a", full)))
	held := w.get("a")
	expect(t, w.put(parse(t, "a", full+" ports=80:30080 label=a")), "a: spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'")
	if w.get("a") != held {
		t.Errorf("a is %+v, want what it was", w.get("a"))
	}
	expect(t, w.put(parse(t, "a", full)))
}

// TestRefusedIsGone: a Service that was refused as it was changed gives back what it
// held.
func TestRefusedIsGone(t *testing.T) {
	w := newWorld(t, single)
	expect(t, w.put(parse(t, "a", "ip=10.96.0.10")))
	expect(t, w.put(parse(t, "a", "ip=10.96.0.11")), `a: spec.clusterIPs[0]: Invalid value: ["10.96.0.11"]: may not change once set`)
	expect(t, w.remove("a"))
	expect(t, w.put(parse(t, "b", "ip=10.96.0.10")))
}

// TestNodePortsAreOfAllProtocols: a number that one Service has is no other's, of
// whatever protocol.
func TestNodePortsAreOfAllProtocols(t *testing.T) {
	w := newWorld(t, single)
	expect(t, w.put(parse(t, "a", "type=NodePort ports=53/TCP:30053"), parse(t, "b", "type=NodePort ports=53/UDP:30053")),
		"b: spec.ports[0].nodePort: Invalid value: 30053: provided port is already allocated")
	expect(t, w.put(parse(t, "b", "type=NodePort ports=53/UDP"), parse(t, "c", "type=LoadBalancer local health=30053")),
		"c: Internal error occurred: failed to allocate requested HealthCheck NodePort 30053: provided port is already allocated")
}

// TestGivenBeforeChosen: nobody is given by chance what another asks for.
func TestGivenBeforeChosen(t *testing.T) {
	const ranges = "10.96.0.0/29" // of six addresses
	for chosen := range 6 {
		w := newWorld(t, ranges)
		var all []*cluster.Service
		for i := range 5 {
			all = append(all, parse(t, fmt.Sprint("a", i), "type=NodePort ports=80:"+fmt.Sprint(30000+i)))
		}
		given := fmt.Sprint("10.96.0.", 1+chosen)
		expect(t, w.put(append(all, parse(t, "b", "ip="+given))...))
		if s := w.get("b"); s == nil || s.ClusterIPs[0].String() != given {
			t.Errorf("b is %+v, want the address %s", s, given)
		}
	}
}

func TestExhausted(t *testing.T) {
	w := newWorld(t, "10.96.0.0/27") // 16 addresses below, 14 above
	var all []*cluster.Service
	for i := range 31 {
		all = append(all, parse(t, fmt.Sprintf("a%02d", i), ""))
	}
	expect(t, w.put(all[:14]...))
	static := netip.MustParseAddr("10.96.0.16")
	for i := range 14 {
		if ip := w.get(fmt.Sprintf("a%02d", i)).ClusterIPs[0]; ip.Compare(static) <= 0 {
			t.Errorf("the static part was given out while the other was not full: %s", ip)
		}
	}
	expect(t, w.put(all[14:]...), `a30: Internal error occurred: failed to allocate a serviceIP for Service "a30": range is full`)
	expect(t, w.remove("a07"))
	if s := w.get("a30"); s == nil || s.ClusterIPs[0].Compare(static) <= 0 {
		t.Errorf("a30 is %+v, want the address that came free", s)
	}
}

func TestExhaustedNodePorts(t *testing.T) {
	a, err := New(Config{Ranges: []netip.Prefix{netip.MustParsePrefix(single)}, NodePorts: Ports{40000, 40001}})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, single)
	w.alloc = a
	const full = "Internal error occurred: failed to allocate a "
	expect(t, w.put(parse(t, "a", "type=NodePort ports=a=80,b=81,c=82")), "a: "+full+"nodePort: range is full")
	expect(t, w.put(parse(t, "a", "type=LoadBalancer local ports=a=80,b=81")), "a: "+full+"HealthCheck NodePort 0: range is full")
	expect(t, w.put(parse(t, "a", "type=LoadBalancer local")))
	if got := w.get("a"); got.Spec.NodePorts[0]+got.Spec.HealthCheckNodePort != 40000+40001-65536 {
		t.Errorf("a has the ports %d and %d", got.Spec.NodePorts[0], got.Spec.HealthCheckNodePort)
	}
}

// TestAnyOrder: from nothing, the result does not depend on how the Services come,
// as long as they come together; and one more leaves all others alone.
func TestAnyOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var all []*cluster.Service
	for i := range 300 {
		all = append(all, randomService(t, r, fmt.Sprint("s", i)))
	}
	var first map[cluster.Key]*cluster.Service
	for range 10 {
		w := newWorld(t, dual)
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		w.put(all...)
		services := w.services()
		if first == nil {
			first = services
		}
		if d := cmp.Diff(first, services, compareAddrs); d != "" {
			t.Fatalf("in another order:\n%s", d)
		}
	}
	w := newWorld(t, dual)
	w.put(append(slices.Clone(all), parse(t, "zzz", "type=NodePort policy=RequireDualStack"))...)
	services := w.services()
	delete(services, keyOf("zzz"))
	if d := cmp.Diff(first, services, compareAddrs); d != "" {
		t.Fatalf("with one more:\n%s", d)
	}
}

func (w *world) services() map[cluster.Key]*cluster.Service {
	all := make(map[cluster.Key]*cluster.Service)
	w.store.View(func(v *cluster.View) {
		for s := range v.Services() {
			all[s.Key] = s
		}
	})
	return all
}

// randomService declares one that often asks for what others ask for, too.
func randomService(t testing.TB, r *rand.Rand, name string) *cluster.Service {
	pick := func(words ...string) string { return words[r.IntN(len(words))] + " " }
	words := pick("", "", "type=NodePort", "type=LoadBalancer", "type=LoadBalancer local", "type=LoadBalancer nonodeports", "headless", "external=example.com") +
		pick("", "", "policy=SingleStack", "policy=PreferDualStack", "policy=RequireDualStack") +
		pick("", "", "families=IPv4", "families=IPv6", "families=IPv6,IPv4") +
		pick("", "", "selectorless") + pick("", "label=a", "label=b")
	if r.IntN(3) == 0 {
		words += fmt.Sprintf("ip=10.96.0.%d ", r.IntN(20))
	}
	words += "ports=" + pick("80", "a=53/TCP,b=53/UDP", "a=80,b=81/UDP", fmt.Sprintf("80:%d", 29999+r.IntN(20)),
		fmt.Sprintf("a=53/TCP:%d,b=53/UDP:%[1]d", 30000+r.IntN(20)), fmt.Sprintf("a=80,b=81:%d", 30100+r.IntN(3)))
	return parse(t, name, words)
}

// TestHistories: whatever comes and goes, no two Services share an address or a node
// port, all are in their ranges, who holds an address keeps it, and what is refused
// changes nothing. An Allocator that recalls the end goes on from it.
func TestHistories(t *testing.T) {
	for seed := range uint64(40) {
		if history(t, seed); t.Failed() {
			return
		}
	}
}

// FuzzHistories is TestHistories for as long as anyone likes.
func FuzzHistories(f *testing.F) {
	f.Add(uint64(1582))
	f.Fuzz(history)
}

func history(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	ranges := []string{dual, single, "10.96.0.0/27 fd00:96::/124"}[r.IntN(3)]
	w := newWorld(t, ranges)
	declared := make(map[string]*cluster.Service)
	for range 60 {
		before := w.services()
		var put []*cluster.Service
		var gone []string
		for _, i := range r.Perm(40)[:1+r.IntN(4)] {
			name := fmt.Sprint("s", i)
			if r.IntN(4) == 0 {
				delete(declared, name)
				gone = append(gone, name)
				continue
			}
			declared[name] = randomService(t, r, name)
			put = append(put, declared[name])
		}
		w.remove(gone...)
		between := w.services()
		refused := w.put(put...)
		checkSane(t, w)
		checkKept(t, before, between)
		checkKept(t, between, w.services())
		checkRefused(t, w, refused, between, declared)
		if t.Failed() {
			t.Fatalf("seed %d: put %s, removed %v", seed, describeAll(put), gone)
		}
	}
	if checkRecall(t, w, ranges, declared); t.Failed() {
		t.Fatalf("seed %d", seed)
	}
}

func describeAll(all []*cluster.Service) string {
	var texts []string
	for _, s := range all {
		texts = append(texts, fmt.Sprintf("%+v %+v", *s, *s.Spec))
	}
	return strings.Join(texts, "\n")
}

// checkSane: no two share anything, all is in range, and all is there that should.
func checkSane(t *testing.T, w *world) {
	t.Helper()
	ips, ports := make(map[netip.Addr]cluster.Key), make(map[uint16]cluster.Key)
	for key, s := range w.services() {
		for i, ip := range s.ClusterIPs {
			if other, ok := ips[ip]; ok {
				t.Errorf("%s and %s share %s", key, other, ip)
			}
			ips[ip] = key
			if r := w.alloc.ranges[cluster.FamilyOf(ip)]; r == nil || !r.contains(ip) || s.Spec.Families[i] != cluster.FamilyOf(ip) {
				t.Errorf("%s has %s, as %s", key, ip, s.Spec.Families[i])
			}
		}
		f := fieldsOf(s)
		if f.needsAddresses() && (len(s.ClusterIPs) == 0 || len(s.ClusterIPs) != len(s.Spec.Families)) {
			t.Errorf("%s has addresses %s of families %s", key, s.ClusterIPs, s.Spec.Families)
		}
		if f.choosesNodePorts() && slices.Contains(f.nodePorts, 0) || f.hasHealthCheck() != (f.healthCheck != 0) {
			t.Errorf("%s, a %s, has node ports %v and %d", key, f.typ, f.nodePorts, f.healthCheck)
		}
		for _, port := range f.heldPorts() {
			if other, ok := ports[port]; ok {
				t.Errorf("%s and %s share the node port %d", key, other, port)
			}
			ports[port] = key
			if port < 30000 || port > 32767 {
				t.Errorf("%s has the node port %d", key, port)
			}
		}
	}
	held := len(w.alloc.ports.holders)
	for _, r := range w.alloc.ranges {
		held += len(r.holders)
	}
	if held != len(ips)+len(ports) {
		t.Errorf("%d addresses and ports are held, and %d in use", held, len(ips)+len(ports))
	}
}

// checkKept: the first address stays while the Service has any.
func checkKept(t *testing.T, before, after map[cluster.Key]*cluster.Service) {
	t.Helper()
	for key, old := range before {
		s := after[key]
		if s == nil || len(s.ClusterIPs) == 0 || len(old.ClusterIPs) == 0 {
			continue
		}
		if s.ClusterIPs[0] != old.ClusterIPs[0] || len(s.ClusterIPs) == 2 && len(old.ClusterIPs) == 2 && s.ClusterIPs[1] != old.ClusterIPs[1] {
			t.Errorf("%s had %s and has %s", key, old.ClusterIPs, s.ClusterIPs)
		}
	}
}

// checkRefused: what is refused is as it was, and all else is there.
func checkRefused(t *testing.T, w *world, refused []cluster.Refusal, before map[cluster.Key]*cluster.Service, declared map[string]*cluster.Service) {
	t.Helper()
	isRefused := make(map[cluster.Key]bool)
	for _, r := range refused {
		isRefused[r.Key] = true
		if w.get(r.Key.Name) != before[r.Key] {
			t.Errorf("%s is refused, and is %+v, and was %+v", r.Key, w.get(r.Key.Name), before[r.Key])
		}
	}
	if !slices.IsSortedFunc(refused, func(x, y cluster.Refusal) int { return x.Key.Compare(y.Key) }) {
		t.Errorf("refusals are not sorted: %v", refused)
	}
	for name, s := range declared {
		if got := w.get(name); !isRefused[s.Key] && (got == nil || !maps.Equal(got.Spec.Labels, s.Spec.Labels)) {
			t.Errorf("%s was declared as %+v and is %+v", name, s, got)
		}
	}
	for key := range w.services() {
		if declared[key.Name] == nil {
			t.Errorf("%s is there, and not declared", key)
		}
	}
}

// checkRecall: an Allocator that recalls what is there changes nothing, neither of
// what is there nor when all is declared again that stands.
func checkRecall(t *testing.T, w *world, ranges string, declared map[string]*cluster.Service) {
	t.Helper()
	want := w.services()
	standing := make(map[cluster.Key]bool)
	for _, r := range w.put() {
		standing[r.Key] = true
	}
	recall := func() *Allocator {
		a := newAllocator(t, ranges)
		w.store.View(a.Recall)
		return a
	}
	same := &world{t, w.store, recall()}
	version := w.store.Version()
	if expect(t, same.put()); w.store.Version() != version {
		t.Error("something changed when an Allocator recalled what is there")
	}
	next := newWorld(t, ranges)
	next.alloc = recall()
	var all []*cluster.Service
	for _, s := range declared {
		if !standing[s.Key] {
			all = append(all, s)
		} else if want[s.Key] != nil {
			delete(want, s.Key) // its last good manifest is not known
		}
	}
	for _, r := range next.put(all...) {
		// A manifest can come to be such that the API server would not take it anew.
		if len(newWorld(t, ranges).put(declared[r.Key.Name])) == 0 {
			t.Errorf("after a restart %s is refused: %s", r.Key, told([]cluster.Refusal{r}))
		}
	}
	if d := cmp.Diff(want, next.services(), compareAddrs); d != "" {
		t.Errorf("after a restart:\n%s", d)
	}
}

// TestRecallOfOtherRanges: what can't be given out is given out anew.
func TestRecallOfOtherRanges(t *testing.T) {
	w := newWorld(t, dual)
	out, in := parse(t, "out", "ip=10.96.9.1 type=NodePort ports=80:30080"), parse(t, "in", "ip=10.96.0.1")
	never := parse(t, "never", "policy=PreferDualStack")
	expect(t, w.put(out, in, never))
	w.store.Update(func(tx *cluster.Tx) { tx.Put(never) }) // as it was declared
	a := newAllocator(t, "10.96.0.0/24 fd00:96::/112")
	w.store.View(a.Recall)
	if held := len(a.ranges[cluster.IPv4].holders) + len(a.ports.holders); held != 1 {
		t.Errorf("%d addresses and ports are recalled, want that of in", held)
	}
	next := newWorld(t, dual)
	next.alloc = a
	expect(t, next.put(parse(t, "out", ""), parse(t, "in", "policy=PreferDualStack")))
	if ips := next.get("in").ClusterIPs; len(ips) != 2 || ips[0] != netip.MustParseAddr("10.96.0.1") {
		t.Errorf("in has %s, want what it had and one more", ips)
	}
	if ip := next.get("out").ClusterIPs[0]; !a.ranges[cluster.IPv4].contains(ip) {
		t.Errorf("out has %s", ip)
	}
}

// TestRecalledAndGone: who is not declared after a restart gives back what it held.
func TestRecalledAndGone(t *testing.T) {
	w := newWorld(t, single)
	expect(t, w.put(parse(t, "a", "ip=10.96.0.10")))
	a := newAllocator(t, single)
	w.store.View(a.Recall)
	next := newWorld(t, single)
	next.alloc = a
	expect(t, next.put(parse(t, "b", "ip=10.96.0.10")))
}

// TestPreferDualStackFollowsChangesOnly: a Service that prefers two families does not
// get the second because the cluster does (the page on dual-stack).
func TestPreferDualStackFollowsChangesOnly(t *testing.T) {
	w := newWorld(t, single)
	prefer := parse(t, "web", "policy=PreferDualStack")
	expect(t, w.put(prefer))
	a := newAllocator(t, dual)
	w.store.View(a.Recall)
	w.alloc = a
	expect(t, w.put(prefer))
	if ips := w.get("web").ClusterIPs; len(ips) != 1 {
		t.Errorf("web has %s after a restart with two ranges", ips)
	}
	expect(t, w.put(parse(t, "web", "policy=RequireDualStack")))
	if ips := w.get("web").ClusterIPs; len(ips) != 2 {
		t.Errorf("web has %s, and requires two", ips)
	}
}

// TestWithoutSpec: a Service that was read for names only has its type from what it
// is.
func TestWithoutSpec(t *testing.T) {
	w := newWorld(t, single)
	expect(t, w.put(&cluster.Service{Key: keyOf("a")}, &cluster.Service{Key: keyOf("b"), ExternalName: "example.com"}))
	if a, b := w.get("a"), w.get("b"); len(a.ClusterIPs) != 1 || a.Spec.Type != cluster.ClusterIP || len(b.ClusterIPs) != 0 || b.Spec.Type != cluster.ExternalName {
		t.Errorf("got %+v and %+v", a, b)
	}
}

// BenchmarkComplete fills in 10,000 Services from nothing.
func BenchmarkComplete(b *testing.B) {
	const n = 10_000
	all := make([]*cluster.Service, n)
	for i := range all {
		all[i] = parse(b, fmt.Sprint("service-", i), "policy=PreferDualStack")
	}
	for b.Loop() {
		b.StopTimer()
		a := newAllocator(b, "10.96.0.0/12 fd00:96::/112")
		store := cluster.NewStore()
		store.Update(func(tx *cluster.Tx) {
			tx.SetFreshness(cluster.Live, cluster.KindService)
			for _, s := range all {
				tx.Put(s)
			}
			b.StartTimer()
			if refused := a.Complete(tx); len(refused) > 0 {
				b.Fatal(refused[0])
			}
		})
	}
}
