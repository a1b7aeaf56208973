package cluster

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func addrs(texts ...string) (parsed []netip.Addr) {
	for _, text := range texts {
		parsed = append(parsed, netip.MustParseAddr(text))
	}
	return parsed
}

// indexes is what the secondary indexes say, in words.
type indexes struct {
	slicesOf, servicesAt, podsAt, selecting map[string][]string
}

// ask asks a view for everything about the given keys.
func ask(v *View, services []Key, at []netip.Addr, pods []*Pod) indexes {
	got := newIndexes()
	for _, key := range services {
		for _, s := range v.SlicesOf(key) {
			got.slicesOf[key.String()] = append(got.slicesOf[key.String()], s.Key.String())
		}
	}
	for _, addr := range at {
		for _, s := range v.ServicesAt(addr) {
			got.servicesAt[addr.String()] = append(got.servicesAt[addr.String()], s.Key.String())
		}
		for _, p := range v.PodsAt(addr) {
			got.podsAt[addr.String()] = append(got.podsAt[addr.String()], p.Key.String())
		}
	}
	for _, p := range pods {
		for _, s := range v.ServicesSelecting(p) {
			got.selecting[p.Key.String()] = append(got.selecting[p.Key.String()], s.Key.String())
		}
	}
	return got
}

func newIndexes() indexes {
	return indexes{map[string][]string{}, map[string][]string{}, map[string][]string{}, map[string][]string{}}
}

func diffIndexes(want, got indexes) string {
	return cmp.Diff(want, got, cmp.AllowUnexported(indexes{}))
}

func TestIndexes(t *testing.T) {
	web, db := Key{"shop", "web"}, Key{"shop", "db"}
	pod := &Pod{Key: Key{"shop", "web-1"}, Labels: map[string]string{"app": "web", "run": "x"}, IPs: addrs("10.0.0.1", "fd00::1")}
	slice := func(name, service string) *EndpointSlice {
		return &EndpointSlice{Key: Key{"shop", name}, Service: service}
	}
	tests := map[string]struct {
		steps []func(*Tx)
		want  indexes
	}{
		"slices are found by their Service": {
			[]func(*Tx){func(tx *Tx) {
				tx.PutEndpointSlice(slice("b", "web"))
				tx.PutEndpointSlice(slice("a", "web"))
				tx.PutEndpointSlice(slice("c", "db"))
			}},
			indexes{slicesOf: map[string][]string{"shop/web": {"shop/a", "shop/b"}, "shop/db": {"shop/c"}}},
		},
		"a slice of another namespace is not found": {
			[]func(*Tx){func(tx *Tx) {
				tx.PutEndpointSlice(&EndpointSlice{Key: Key{"data", "a"}, Service: "web"})
			}},
			indexes{},
		},
		"a slice that moves to another Service leaves the first": {
			[]func(*Tx){
				func(tx *Tx) { tx.PutEndpointSlice(slice("a", "web")) },
				func(tx *Tx) { tx.PutEndpointSlice(slice("a", "db")) },
			},
			indexes{slicesOf: map[string][]string{"shop/db": {"shop/a"}}},
		},
		"a slice that leaves its Service for none is found nowhere": {
			[]func(*Tx){
				func(tx *Tx) { tx.PutEndpointSlice(slice("a", "web")) },
				func(tx *Tx) { tx.PutEndpointSlice(slice("a", "")) },
			},
			indexes{},
		},
		"a deleted slice is found nowhere": {
			[]func(*Tx){func(tx *Tx) {
				tx.PutEndpointSlice(slice("a", "web"))
				tx.DeleteEndpointSlice(Key{"shop", "a"})
			}},
			indexes{},
		},
		"Services are found by each ClusterIP, several by one": {
			[]func(*Tx){func(tx *Tx) {
				tx.PutService(&Service{Key: web, ClusterIPs: addrs("10.0.0.1", "fd00::1")})
				tx.PutService(&Service{Key: db, ClusterIPs: addrs("10.0.0.1")})
			}},
			indexes{servicesAt: map[string][]string{"10.0.0.1": {"shop/db", "shop/web"}, "fd00::1": {"shop/web"}}},
		},
		"a Service that changes its ClusterIP leaves the first": {
			[]func(*Tx){
				func(tx *Tx) { tx.PutService(&Service{Key: web, ClusterIPs: addrs("10.0.0.1")}) },
				func(tx *Tx) { tx.PutService(&Service{Key: web, ClusterIPs: addrs("10.0.0.2")}) },
			},
			indexes{servicesAt: map[string][]string{"10.0.0.2": {"shop/web"}}},
		},
		"a deleted Service is found nowhere": {
			[]func(*Tx){
				func(tx *Tx) {
					tx.PutService(&Service{Key: web, ClusterIPs: addrs("10.0.0.1"), Selector: map[string]string{"app": "web"}})
				},
				func(tx *Tx) { tx.DeleteService(web) },
			},
			indexes{},
		},
		"a Service is found by the Pod it selects, whichever term it is indexed by": {
			[]func(*Tx){func(tx *Tx) {
				tx.PutService(&Service{Key: web, Selector: map[string]string{"app": "web"}})
				tx.PutService(&Service{Key: db, Selector: map[string]string{"run": "x"}})
				tx.PutService(&Service{Key: Key{"shop", "both"}, Selector: map[string]string{"run": "x", "app": "web"}})
				tx.PutService(&Service{Key: Key{"shop", "half"}, Selector: map[string]string{"run": "y", "app": "web"}})
				tx.PutService(&Service{Key: Key{"data", "web"}, Selector: map[string]string{"app": "web"}})
			}},
			indexes{selecting: map[string][]string{"shop/web-1": {"shop/both", "shop/db", "shop/web"}}},
		},
		"a Service that changes its selector is found by the new one only": {
			[]func(*Tx){
				func(tx *Tx) { tx.PutService(&Service{Key: web, Selector: map[string]string{"app": "web"}}) },
				func(tx *Tx) { tx.PutService(&Service{Key: web, Selector: map[string]string{"app": "other"}}) },
			},
			indexes{},
		},
		"Pods are found by each address, several by one": {
			[]func(*Tx){func(tx *Tx) {
				tx.PutPod(pod)
				tx.PutPod(&Pod{Key: Key{"data", "x"}, IPs: addrs("10.0.0.1")})
			}},
			indexes{podsAt: map[string][]string{"10.0.0.1": {"data/x", "shop/web-1"}, "fd00::1": {"shop/web-1"}}},
		},
		"a Pod that changes its address leaves the first": {
			[]func(*Tx){
				func(tx *Tx) { tx.PutPod(&Pod{Key: pod.Key, IPs: addrs("10.0.0.1", "fd00::1")}) },
				func(tx *Tx) { tx.PutPod(&Pod{Key: pod.Key, IPs: addrs("10.0.0.2")}) },
			},
			indexes{podsAt: map[string][]string{"10.0.0.2": {"shop/web-1"}}},
		},
		"a deleted Pod is found nowhere": {
			[]func(*Tx){func(tx *Tx) { tx.PutPod(pod); tx.DeletePod(pod.Key) }},
			indexes{},
		},
	}
	for claim, test := range tests {
		store := NewStore()
		for _, step := range test.steps {
			store.Update(step)
		}
		want := newIndexes()
		maps.Copy(want.slicesOf, test.want.slicesOf)
		maps.Copy(want.servicesAt, test.want.servicesAt)
		maps.Copy(want.podsAt, test.want.podsAt)
		maps.Copy(want.selecting, test.want.selecting)
		store.View(func(v *View) {
			got := ask(v, []Key{web, db}, addrs("10.0.0.1", "10.0.0.2", "fd00::1"), []*Pod{pod})
			if d := diffIndexes(want, got); d != "" {
				t.Errorf("%s: (-want +got)\n%s", claim, d)
			}
		})
	}
}

// TestIndexesRandom compares the indexes with what a search through all
// objects finds, after each of many random transactions.
func TestIndexesRandom(t *testing.T) {
	const seeds, steps = 8, 150
	for seed := range uint64(seeds) {
		r := &randomCluster{Rand: rand.New(rand.NewPCG(seed, 0)), naive: newNaive()}
		store := NewStore()
		for step := range steps {
			store.Update(func(tx *Tx) {
				for range 1 + r.IntN(4) {
					r.step(tx)
				}
			})
			var got indexes
			store.View(func(v *View) { got = ask(v, r.keys(), r.addresses(), r.labelledPods()) })
			want := r.naive.ask(r.keys(), r.addresses(), r.labelledPods())
			if d := diffIndexes(want, got); d != "" {
				t.Fatalf("seed %d, step %d: (-naive +indexes)\n%s", seed, step, d)
			}
		}
		store.Update(func(tx *Tx) { r.clear(tx) })
		left := len(store.state.slicesByService) + len(store.state.servicesByClusterIP) +
			len(store.state.servicesBySelector) + len(store.state.podsByIP)
		if left != 0 {
			t.Errorf("seed %d: %d index entries of objects that are all deleted, want none", seed, left)
		}
	}
}

// naive holds objects without any index.
type naive struct {
	services map[Key]*Service
	slices   map[Key]*EndpointSlice
	pods     map[Key]*Pod
}

func newNaive() *naive {
	return &naive{map[Key]*Service{}, map[Key]*EndpointSlice{}, map[Key]*Pod{}}
}

func sortedKeys[T any](objects map[Key]T) []Key {
	return slices.SortedFunc(maps.Keys(objects), Key.Compare)
}

func (n *naive) ask(services []Key, at []netip.Addr, pods []*Pod) indexes {
	want := newIndexes()
	for _, key := range services {
		for _, k := range sortedKeys(n.slices) {
			if s := n.slices[k]; s.Service != "" && s.Namespace == key.Namespace && s.Service == key.Name {
				want.slicesOf[key.String()] = append(want.slicesOf[key.String()], k.String())
			}
		}
	}
	for _, addr := range at {
		for _, k := range sortedKeys(n.services) {
			if slices.Contains(n.services[k].ClusterIPs, addr) {
				want.servicesAt[addr.String()] = append(want.servicesAt[addr.String()], k.String())
			}
		}
		for _, k := range sortedKeys(n.pods) {
			if slices.Contains(n.pods[k].IPs, addr) {
				want.podsAt[addr.String()] = append(want.podsAt[addr.String()], k.String())
			}
		}
	}
	for _, p := range pods {
		for _, k := range sortedKeys(n.services) {
			if s := n.services[k]; s.Selects(p) {
				want.selecting[p.Key.String()] = append(want.selecting[p.Key.String()], k.String())
			}
		}
	}
	return want
}

// randomCluster makes random changes, to a Store and to naive alike, among few
// keys, addresses and labels, so that they often meet.
type randomCluster struct {
	*rand.Rand
	naive *naive
}

func (r *randomCluster) keys() (all []Key) {
	for _, ns := range []string{"a", "b"} {
		for i := range 4 {
			all = append(all, Key{ns, strconv.Itoa(i)})
		}
	}
	return all
}

func (r *randomCluster) addresses() []netip.Addr {
	return addrs("10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1")
}

// labelledPods are one Pod for every set of labels in each namespace.
func (r *randomCluster) labelledPods() (pods []*Pod) {
	for _, ns := range []string{"a", "b"} {
		for i := range 9 {
			labels := map[string]string{}
			for n, label := range []string{"x", "y"} {
				if v := []int{i % 3, i / 3}[n]; v > 0 {
					labels[label] = strconv.Itoa(v)
				}
			}
			pods = append(pods, &Pod{Key: Key{ns, fmt.Sprint(labels)}, Labels: labels})
		}
	}
	return pods
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func some[T any](r *rand.Rand, from []T) (picked []T) {
	for range r.IntN(3) {
		picked = append(picked, pick(r, from))
	}
	return picked
}

func (r *randomCluster) step(tx *Tx) {
	key := pick(r.Rand, r.keys())
	switch r.IntN(7) {
	case 0, 1:
		s := &Service{Key: key, ClusterIPs: some(r.Rand, r.addresses()), Selector: pick(r.Rand, r.labelledPods()).Labels}
		r.naive.services[key] = s
		tx.PutService(s)
	case 2:
		s := &EndpointSlice{Key: key, Service: pick(r.Rand, []string{"", "0", "1", "2"})}
		r.naive.slices[key] = s
		tx.PutEndpointSlice(s)
	case 3:
		p := &Pod{Key: key, IPs: some(r.Rand, r.addresses())}
		r.naive.pods[key] = p
		tx.PutPod(p)
	case 4:
		delete(r.naive.services, key)
		tx.DeleteService(key)
	case 5:
		delete(r.naive.slices, key)
		tx.DeleteEndpointSlice(key)
	case 6:
		delete(r.naive.pods, key)
		tx.DeletePod(key)
	}
}

func (r *randomCluster) clear(tx *Tx) {
	for _, key := range r.keys() {
		tx.DeleteService(key)
		tx.DeleteEndpointSlice(key)
		tx.DeletePod(key)
	}
}

func TestViewByKey(t *testing.T) {
	store := NewStore()
	web := &Service{Key: Key{"shop", "web"}}
	store.Update(func(tx *Tx) {
		tx.PutService(&Service{Key: web.Key, Headless: true})
		tx.PutService(web)
		tx.PutPod(&Pod{Key: Key{"shop", "web-1"}})
		tx.PutNamespace(&Namespace{"shop"})
		tx.PutNode(&Node{Name: "node-1"})
		if tx.Service(web.Key) != web {
			t.Error("in a transaction: Service does not give what was put just before")
		}
	})
	store.View(func(v *View) {
		if got := v.Service(web.Key); got != web {
			t.Errorf("Service(shop/web) = %+v, want the object put last", got)
		}
		if v.Pod(Key{"shop", "web-1"}) == nil || v.Namespace("shop") == nil {
			t.Error("Pod(shop/web-1) or Namespace(shop) is nil, want the objects that were put")
		}
		absent := map[string]bool{
			"Service(shop/x)": v.Service(Key{"shop", "x"}) == nil,
			"Service(x/web)":  v.Service(Key{"x", "web"}) == nil,
			"Pod(shop/x)":     v.Pod(Key{"shop", "x"}) == nil,
			"Namespace(x)":    v.Namespace("x") == nil,
		}
		for call, isNil := range absent {
			if !isNil {
				t.Errorf("%s is not nil, want nil", call)
			}
		}
	})
	store.Update(func(tx *Tx) {
		tx.DeleteNamespace("shop")
		tx.DeletePod(Key{"shop", "web-1"})
		tx.DeleteService(web.Key)
		if tx.Service(web.Key) != nil || tx.Pod(Key{"shop", "web-1"}) != nil || tx.Namespace("shop") != nil {
			t.Error("in a transaction: objects are still there that were deleted just before")
		}
	})
}

// TestTransactionsAreSeenWhole has readers look while a writer keeps two
// objects and an index equal, transaction by transaction.
func TestTransactionsAreSeenWhole(t *testing.T) {
	const transactions = 2000
	store := NewStore()
	put := func(i int) {
		addr := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		store.Update(func(tx *Tx) {
			tx.PutService(&Service{Key: Key{"a", "a"}, ClusterIPs: []netip.Addr{addr}})
			tx.PutService(&Service{Key: Key{"a", "b"}, ClusterIPs: []netip.Addr{addr}})
		})
	}
	put(0)
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				store.View(func(v *View) {
					addr := v.Service(Key{"a", "a"}).ClusterIPs[0]
					if found := v.ServicesAt(addr); len(found) != 2 {
						t.Errorf("in a view: ServicesAt(%v) gives %d Services, want both", addr, len(found))
					}
				})
			}
		})
	}
	for i := range transactions {
		put(i)
	}
	close(done)
	readers.Wait()
}

func TestLoaded(t *testing.T) {
	store := NewStore()
	loaded := func(ks ...Kind) (yes bool) {
		store.View(func(v *View) { yes = v.Loaded(ks...) })
		return yes
	}
	if loaded(KindPod) {
		t.Error("new Store: Loaded(Pod) = true, want false")
	}
	store.Update(func(tx *Tx) { tx.SetFreshness(Live, KindPod, KindService) })
	tests := map[string]struct {
		kinds []Kind
		want  bool
	}{
		"a kind that was set":             {[]Kind{KindPod}, true},
		"both kinds that were set":        {[]Kind{KindService, KindPod}, true},
		"a kind that was not set":         {[]Kind{KindNamespace}, false},
		"one that was and one that not":   {[]Kind{KindPod, KindNode}, false},
		"no kind needs nothing":           {nil, true},
		"all kinds, of which not all are": {Kinds(), false},
	}
	for claim, test := range tests {
		if got := loaded(test.kinds...); got != test.want {
			t.Errorf("%s: Loaded(%v) = %t, want %t", claim, test.kinds, got, test.want)
		}
	}
}

func TestFreshness(t *testing.T) {
	store := NewStore()
	store.Update(func(tx *Tx) {
		tx.SetFreshness(Live, KindNamespace)
		tx.SetFreshness(Recalled, KindService)
		tx.SetFreshness(Confirming, KindEndpointSlice)
	})
	for _, test := range []struct {
		kinds []Kind
		want  Freshness
	}{
		{nil, Live},
		{[]Kind{KindNamespace}, Live},
		{[]Kind{KindNamespace, KindService}, Recalled},
		{[]Kind{KindEndpointSlice, KindService}, Confirming},
		{Kinds(), Loading},
	} {
		store.View(func(v *View) {
			if got := v.Freshness(test.kinds...); got != test.want {
				t.Errorf("Freshness(%v) = %s, want %s", test.kinds, got, test.want)
			}
		})
	}
}

func TestAllOfAKind(t *testing.T) {
	store := NewStore()
	store.Update(everyKind)
	store.View(func(v *View) {
		for k, got := range map[Kind]int{
			KindNamespace: len(slices.Collect(v.Namespaces())), KindService: len(slices.Collect(v.Services())),
			KindEndpointSlice: len(slices.Collect(v.EndpointSlices())), KindPod: len(slices.Collect(v.Pods())), KindNode: len(slices.Collect(v.Nodes())),
		} {
			want := 1
			if k == KindEndpointSlice {
				want = 2
			}
			if got != want || v.Len(k) != want {
				t.Errorf("%s: %d objects, Len = %d, want %d", k, got, v.Len(k), want)
			}
		}
	})
}
