package alloc

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
)

// expect compares refusals, each as "name: field: message", with want.
func expect(t *testing.T, got []cluster.Refusal, want ...string) {
	t.Helper()
	var texts []string
	for _, r := range got {
		texts = append(texts, r.Key.Name+": "+kubectlText([]cluster.Refusal{r}))
	}
	if !slices.Equal(texts, want) {
		t.Errorf("refused:\n%s\nwant:\n%s", strings.Join(texts, "\n"), strings.Join(want, "\n"))
	}
}

const alreadyAllocated = `spec.clusterIPs: Invalid value: ["10.96.0.10"]: failed to allocate IP 10.96.0.10: provided IP is already allocated`

// TestAddressConflict checks that of two Services that request one address, the holder or
// else the first by key gets it, and that the second gets it once it is free.
func TestAddressConflict(t *testing.T) {
	w := newWorld(t, single)
	a, b := parse(t, "a", "ip=10.96.0.10"), parse(t, "b", "ip=10.96.0.10")
	expect(t, w.apply(b, a), "b: "+alreadyAllocated)
	if w.get("a") == nil || w.get("b") != nil {
		t.Fatalf("a is %+v and b is %+v, want only a", w.get("a"), w.get("b"))
	}
	expect(t, w.apply(), "b: "+alreadyAllocated)
	expect(t, w.remove("a"))
	if w.get("b") == nil {
		t.Fatal("b is still refused after a was deleted")
	}
	expect(t, w.apply(a), "a: "+alreadyAllocated)
	expect(t, w.apply(parse(t, "a", "ip=10.96.0.11")))
	expect(t, w.apply(parse(t, "a", "ip=10.96.0.10")), `a: spec.clusterIPs[0]: Invalid value: ["10.96.0.10"]: may not change once set`)
}

// TestReleasedAddressIsReallocatedInTheSameTransaction checks that an address and a node
// port that one Service releases go to another in the same transaction, in either order
// of the keys.
func TestReleasedAddressIsReallocatedInTheSameTransaction(t *testing.T) {
	for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
		w := newWorld(t, single)
		expect(t, w.apply(parse(t, names[0], "type=NodePort ip=10.96.0.10 ports=80:30080")))
		expect(t, w.apply(parse(t, names[0], "external=example.com"), parse(t, names[1], "type=NodePort ip=10.96.0.10 ports=80:30080")))
		if s := w.get(names[1]); s == nil || s.Spec.NodePorts[0] != 30080 {
			t.Errorf("%s is %+v", names[1], s)
		}
	}
}

// TestDeletedRefusedServiceStaysDeleted checks that the Allocator notices the deletion of
// a refused Service, which changes nothing in the Store.
func TestDeletedRefusedServiceStaysDeleted(t *testing.T) {
	w := newWorld(t, single)
	expect(t, w.apply(parse(t, "a", "ip=10.96.0.10"), parse(t, "b", "ip=10.96.0.10")), "b: "+alreadyAllocated)
	expect(t, w.remove("b"))
	expect(t, w.remove("a"))
	if w.get("b") != nil {
		t.Error("b was created after it was deleted")
	}
}

// TestRevertedChangeIsNoLongerRefused checks that a refused change that is reverted is no
// longer reported. The declaration then equals the held Service, so that nothing changes
// in the Store.
func TestRevertedChangeIsNoLongerRefused(t *testing.T) {
	const full = "type=ClusterIP ip=10.96.0.10 families=IPv4 policy=SingleStack"
	w := newWorld(t, single)
	expect(t, w.apply(parse(t, "a", full)))
	held := w.get("a")
	expect(t, w.apply(parse(t, "a", full+" ports=80:30080 label=a")), "a: spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'")
	if w.get("a") != held {
		t.Errorf("a is %+v, want it unchanged", w.get("a"))
	}
	expect(t, w.apply(parse(t, "a", full)))
}

func TestDeletedServiceReleasesItsAddressAfterARefusedChange(t *testing.T) {
	w := newWorld(t, single)
	expect(t, w.apply(parse(t, "a", "ip=10.96.0.10")))
	expect(t, w.apply(parse(t, "a", "ip=10.96.0.11")), `a: spec.clusterIPs[0]: Invalid value: ["10.96.0.11"]: may not change once set`)
	expect(t, w.remove("a"))
	expect(t, w.apply(parse(t, "b", "ip=10.96.0.10")))
}

// TestNodePortsAreReservedForAllProtocols checks that no two Services share a node port,
// even with different protocols.
func TestNodePortsAreReservedForAllProtocols(t *testing.T) {
	w := newWorld(t, single)
	expect(t, w.apply(parse(t, "a", "type=NodePort ports=53/TCP:30053"), parse(t, "b", "type=NodePort ports=53/UDP:30053")),
		"b: spec.ports[0].nodePort: Invalid value: 30053: provided port is already allocated")
	expect(t, w.apply(parse(t, "b", "type=NodePort ports=53/UDP"), parse(t, "c", "type=LoadBalancer local health=30053")),
		"c: Internal error occurred: failed to allocate requested HealthCheck NodePort 30053: provided port is already allocated")
}

// TestRequestedAddressesAreClaimedFirst checks that no Service is allocated an address
// that another one requests.
func TestRequestedAddressesAreClaimedFirst(t *testing.T) {
	const ranges = "10.96.0.0/29" // six addresses
	for chosen := range 6 {
		w := newWorld(t, ranges)
		var all []*cluster.Service
		for i := range 5 {
			all = append(all, parse(t, fmt.Sprint("a", i), "type=NodePort ports=80:"+strconv.Itoa(30000+i)))
		}
		given := fmt.Sprint("10.96.0.", 1+chosen)
		expect(t, w.apply(append(all, parse(t, "b", "ip="+given))...))
		if s := w.get("b"); s == nil || s.ClusterIPs[0].String() != given {
			t.Errorf("b is %+v, want the address %s", s, given)
		}
	}
}

func TestRangeExhaustion(t *testing.T) {
	w := newWorld(t, "10.96.0.0/27") // 16 addresses in the lower band, 14 in the upper one
	var all []*cluster.Service
	for i := range 31 {
		all = append(all, parse(t, fmt.Sprintf("a%02d", i), ""))
	}
	expect(t, w.apply(all[:14]...))
	static := netip.MustParseAddr("10.96.0.16")
	for i := range 14 {
		if ip := w.get(fmt.Sprintf("a%02d", i)).ClusterIPs[0]; ip.Compare(static) <= 0 {
			t.Errorf("%s of the static band was allocated before the upper band was full", ip)
		}
	}
	expect(t, w.apply(all[14:]...), `a30: Internal error occurred: failed to allocate a serviceIP for Service "a30": range is full`)
	expect(t, w.remove("a07"))
	if s := w.get("a30"); s == nil || s.ClusterIPs[0].Compare(static) <= 0 {
		t.Errorf("a30 is %+v, want the released address", s)
	}
}

func TestNodePortExhaustion(t *testing.T) {
	a, err := New(Config{Ranges: []netip.Prefix{netip.MustParsePrefix(single)}, NodePorts: Ports{40000, 40001}})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, single)
	w.alloc = a
	const full = "Internal error occurred: failed to allocate a "
	expect(t, w.apply(parse(t, "a", "type=NodePort ports=a=80,b=81,c=82")), "a: "+full+"nodePort: range is full")
	expect(t, w.apply(parse(t, "a", "type=LoadBalancer local ports=a=80,b=81")), "a: "+full+"HealthCheck NodePort 0: range is full")
	expect(t, w.apply(parse(t, "a", "type=LoadBalancer local")))
	if got := w.get("a"); got.Spec.NodePorts[0]+got.Spec.HealthCheckNodePort != 40000+40001-65536 {
		t.Errorf("a has the ports %d and %d", got.Spec.NodePorts[0], got.Spec.HealthCheckNodePort)
	}
}

// TestAllocationIsIndependentOfOrder checks that the allocations of Services created in
// one transaction do not depend on their order, and that one more Service does not change
// them.
func TestAllocationIsIndependentOfOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var all []*cluster.Service
	for i := range 300 {
		all = append(all, randomService(t, r, fmt.Sprint("s", i)))
	}
	var first map[cluster.Key]*cluster.Service
	for range 10 {
		w := newWorld(t, dual)
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		w.apply(all...)
		services := w.services()
		if first == nil {
			first = services
		}
		if d := cmp.Diff(first, services, compareAddrs); d != "" {
			t.Fatalf("in another order:\n%s", d)
		}
	}
	w := newWorld(t, dual)
	w.apply(append(slices.Clone(all), parse(t, "zzz", "type=NodePort policy=RequireDualStack"))...)
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

// randomService declares a Service that often requests what other random ones request.
func randomService(tb testing.TB, r *rand.Rand, name string) *cluster.Service {
	tb.Helper()
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
	return parse(tb, name, words)
}

// TestRandomHistories checks that after any sequence of changes no two Services share an
// address or a node port, all allocations are in range, Services retain their addresses,
// and refused changes have no effect. An Allocator that recalls the final state preserves
// it.
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(40) {
		if runHistory(t, seed); t.Failed() {
			return
		}
	}
}

// FuzzHistory is TestRandomHistories with random seeds.
func FuzzHistory(f *testing.F) {
	f.Add(uint64(1582))
	f.Fuzz(runHistory)
}

func runHistory(t *testing.T, seed uint64) {
	t.Helper()
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
		refused := w.apply(put...)
		checkInvariants(t, w)
		checkAddressesUnchanged(t, before, between)
		checkAddressesUnchanged(t, between, w.services())
		checkRefusals(t, w, refused, between, declared)
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

// checkInvariants checks that no two Services share an allocation, that all allocations
// are in range, and that each Service has what its type requires.
func checkInvariants(t *testing.T, w *world) {
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
		t.Errorf("%d addresses and ports are reserved, but %d are in use", held, len(ips)+len(ports))
	}
}

// checkAddressesUnchanged checks that the addresses of a Service do not change while it
// has any.
func checkAddressesUnchanged(t *testing.T, before, after map[cluster.Key]*cluster.Service) {
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

// checkRefusals checks that refused Services are unchanged and all others applied.
func checkRefusals(
	t *testing.T, w *world, refused []cluster.Refusal,
	before map[cluster.Key]*cluster.Service, declared map[string]*cluster.Service,
) {
	t.Helper()
	isRefused := make(map[cluster.Key]bool)
	for _, r := range refused {
		isRefused[r.Key] = true
		if w.get(r.Key.Name) != before[r.Key] {
			t.Errorf("%s is refused, but is %+v and was %+v", r.Key, w.get(r.Key.Name), before[r.Key])
		}
	}
	if !slices.IsSortedFunc(refused, func(x, y cluster.Refusal) int { return x.Key.Compare(y.Key) }) {
		t.Errorf("refusals are not sorted: %v", refused)
	}
	for name, s := range declared {
		if got := w.get(name); !isRefused[s.Key] && (got == nil || !maps.Equal(got.Spec.Labels, s.Spec.Labels)) {
			t.Errorf("%s was declared as %+v, but is %+v", name, s, got)
		}
	}
	for key := range w.services() {
		if declared[key.Name] == nil {
			t.Errorf("%s exists, but is not declared", key)
		}
	}
}

// checkRecall checks that an Allocator that recalls the present state changes nothing,
// neither in an empty transaction nor when all accepted declarations are applied again.
func checkRecall(t *testing.T, w *world, ranges string, declared map[string]*cluster.Service) {
	t.Helper()
	want := w.services()
	isRefused := make(map[cluster.Key]bool)
	for _, r := range w.apply() {
		isRefused[r.Key] = true
	}
	recall := func() *Allocator {
		a := newAllocator(t, ranges)
		w.store.View(a.Recall)
		return a
	}
	same := &world{t, w.store, recall()}
	version := w.store.Version()
	if expect(t, same.apply()); w.store.Version() != version {
		t.Error("an empty transaction after Recall changed the Store")
	}
	next := newWorld(t, ranges)
	next.alloc = recall()
	var all []*cluster.Service
	for _, s := range declared {
		if !isRefused[s.Key] {
			all = append(all, s)
		} else if want[s.Key] != nil {
			delete(want, s.Key) // the last accepted manifest is unknown
		}
	}
	for _, r := range next.apply(all...) {
		// A manifest that the API server accepts as an update may be invalid for a new Service.
		if len(newWorld(t, ranges).apply(declared[r.Key.Name])) == 0 {
			t.Errorf("after a restart %s is refused: %s", r.Key, kubectlText([]cluster.Refusal{r}))
		}
	}
	if d := cmp.Diff(want, next.services(), compareAddrs); d != "" {
		t.Errorf("after a restart:\n%s", d)
	}
}

// TestRecallWithChangedRanges checks that a Service whose address is outside the
// configured ranges gets a new one.
func TestRecallWithChangedRanges(t *testing.T) {
	w := newWorld(t, dual)
	out, in := parse(t, "out", "ip=10.96.9.1 type=NodePort ports=80:30080"), parse(t, "in", "ip=10.96.0.1")
	never := parse(t, "never", "policy=PreferDualStack")
	expect(t, w.apply(out, in, never))
	w.store.Update(func(tx *cluster.Tx) { tx.Put(never) }) // without allocations
	a := newAllocator(t, "10.96.0.0/24 fd00:96::/112")
	w.store.View(a.Recall)
	if held := len(a.ranges[cluster.IPv4].holders) + len(a.ports.holders); held != 1 {
		t.Errorf("%d addresses and ports are recalled, want 1, the address of in", held)
	}
	next := newWorld(t, dual)
	next.alloc = a
	expect(t, next.apply(parse(t, "out", ""), parse(t, "in", "policy=PreferDualStack")))
	if ips := next.get("in").ClusterIPs; len(ips) != 2 || ips[0] != netip.MustParseAddr("10.96.0.1") {
		t.Errorf("in has %s, want 10.96.0.1 and one more", ips)
	}
	if ip := next.get("out").ClusterIPs[0]; !a.ranges[cluster.IPv4].contains(ip) {
		t.Errorf("out has %s", ip)
	}
}

func TestRecalledServiceThatIsNotDeclaredReleasesItsAddress(t *testing.T) {
	w := newWorld(t, single)
	expect(t, w.apply(parse(t, "a", "ip=10.96.0.10")))
	a := newAllocator(t, single)
	w.store.View(a.Recall)
	next := newWorld(t, single)
	next.alloc = a
	expect(t, next.apply(parse(t, "b", "ip=10.96.0.10")))
}

// TestPreferDualStackIgnoresClusterChanges checks that a Service with PreferDualStack
// does not get a second family when the cluster does (page "IPv4/IPv6 dual-stack").
func TestPreferDualStackIgnoresClusterChanges(t *testing.T) {
	w := newWorld(t, single)
	prefer := parse(t, "web", "policy=PreferDualStack")
	expect(t, w.apply(prefer))
	a := newAllocator(t, dual)
	w.store.View(a.Recall)
	w.alloc = a
	expect(t, w.apply(prefer))
	if ips := w.get("web").ClusterIPs; len(ips) != 1 {
		t.Errorf("web has %s after a restart with two ranges", ips)
	}
	expect(t, w.apply(parse(t, "web", "policy=RequireDualStack")))
	if ips := w.get("web").ClusterIPs; len(ips) != 2 {
		t.Errorf("web has %s, want two addresses", ips)
	}
}

// TestServiceWithoutSpec checks that the type of a Service without spec is derived from
// ExternalName.
func TestServiceWithoutSpec(t *testing.T) {
	w := newWorld(t, single)
	expect(t, w.apply(&cluster.Service{Key: keyOf("a")}, &cluster.Service{Key: keyOf("b"), ExternalName: "example.com"}))
	if a, b := w.get("a"), w.get("b"); len(a.ClusterIPs) != 1 || a.Spec.Type != cluster.ClusterIP || len(b.ClusterIPs) != 0 || b.Spec.Type != cluster.ExternalName {
		t.Errorf("got %+v and %+v", a, b)
	}
}

// BenchmarkComplete measures the allocation for 10,000 new Services.
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
