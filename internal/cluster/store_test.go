package cluster

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSlicesOf(t *testing.T) {
	slice := func(name, service string) *EndpointSlice {
		return &EndpointSlice{Key: Key{"shop", name}, Service: service}
	}
	tests := map[string]struct {
		steps   []func(*Tx)
		web, db []string
	}{
		"slices are found by their Service, sorted": {[]func(*Tx){func(tx *Tx) {
			tx.Put(slice("b", "web"))
			tx.Put(slice("a", "web"))
			tx.Put(slice("c", "db"))
		}}, []string{"a", "b"}, []string{"c"}},
		"a slice of another namespace is not found": {[]func(*Tx){func(tx *Tx) {
			tx.Put(&EndpointSlice{Key: Key{"data", "a"}, Service: "web"})
		}}, nil, nil},
		"a slice that moves to another Service leaves the first": {[]func(*Tx){
			func(tx *Tx) { tx.Put(slice("a", "web")) },
			func(tx *Tx) { tx.Put(slice("a", "db")) },
		}, nil, []string{"a"}},
		"a slice that leaves its Service for none is found nowhere": {[]func(*Tx){
			func(tx *Tx) { tx.Put(slice("a", "web")) },
			func(tx *Tx) { tx.Put(slice("a", "")) },
		}, nil, nil},
		"a deleted slice is found nowhere": {[]func(*Tx){func(tx *Tx) {
			tx.Put(slice("a", "web"))
			tx.Delete(KindEndpointSlice, Key{"shop", "a"})
		}}, nil, nil},
	}
	for claim, test := range tests {
		store := NewStore()
		for _, step := range test.steps {
			store.Update(step)
		}
		store.View(func(v *View) {
			for service, want := range map[string][]string{"web": test.web, "db": test.db} {
				if d := cmp.Diff(want, slicesOf(v, Key{"shop", service})); d != "" {
					t.Errorf("%s: SlicesOf(shop/%s): (-want +got)\n%s", claim, service, d)
				}
			}
		})
	}
}

// slicesOf are the names of a Service's slices.
func slicesOf(v *View, service Key) (names []string) {
	for _, s := range v.SlicesOf(service) {
		names = append(names, s.Name)
	}
	return names
}

// TestSlicesOfRandom compares SlicesOf with what a search through all slices
// finds, after each of many random transactions.
func TestSlicesOfRandom(t *testing.T) {
	const seeds, steps, names = 8, 150, 4
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 0))
		store := NewStore()
		key := func(i int) Key { return Key{[]string{"a", "b"}[i%2], strconv.Itoa(i / 2)} }
		for step := range steps {
			store.Update(func(tx *Tx) {
				for range 1 + r.IntN(4) {
					if k := key(r.IntN(2 * names)); r.IntN(3) > 0 {
						tx.Put(&EndpointSlice{Key: k, Service: []string{"", "0", "1", "2"}[r.IntN(4)]})
					} else {
						tx.Delete(KindEndpointSlice, k)
					}
				}
			})
			store.View(func(v *View) {
				want, got := make(map[Key][]string), make(map[Key][]string)
				for s := range v.EndpointSlices() {
					if s.Service != "" {
						want[Key{s.Namespace, s.Service}] = append(want[Key{s.Namespace, s.Service}], s.Name)
						slices.Sort(want[Key{s.Namespace, s.Service}])
					}
				}
				for service := range SlicesByService.Keys(v) {
					got[service] = slicesOf(v, service)
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Fatalf("seed %d, step %d: (-search +SlicesOf)\n%s", seed, step, d)
				}
			})
		}
	}
}

func TestViewByKey(t *testing.T) {
	store := NewStore()
	web := &Service{Key: Key{"shop", "web"}}
	store.Update(func(tx *Tx) {
		tx.Put(&Service{Key: web.Key, Headless: true})
		tx.Put(web)
		tx.Put(&Pod{Key: Key{"shop", "web-1"}})
		tx.Put(&Namespace{Name: "shop"})
		tx.Put(&Node{Name: "node-1"})
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
		tx.Delete(KindNamespace, Key{Name: "shop"})
		tx.Delete(KindPod, Key{"shop", "web-1"})
		tx.Delete(KindService, web.Key)
		if tx.Service(web.Key) != nil || tx.Pod(Key{"shop", "web-1"}) != nil || tx.Namespace("shop") != nil {
			t.Error("in a transaction: objects are still there that were deleted just before")
		}
	})
}

// TestTransactionsAreSeenWhole has readers look while a writer moves a slice
// from one Service to another and back, transaction by transaction.
func TestTransactionsAreSeenWhole(t *testing.T) {
	const transactions = 2000
	store := NewStore()
	put := func(i int) {
		store.Update(func(tx *Tx) {
			tx.Put(&EndpointSlice{Key: Key{"a", "slice"}, Service: strconv.Itoa(i % 2)})
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
					if found := len(v.SlicesOf(Key{"a", "0"})) + len(v.SlicesOf(Key{"a", "1"})); found != 1 {
						t.Errorf("in a view: the slice is found %d times, want once", found)
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

// TestRequested: it tells of calls that change nothing, which Changed does
// not.
func TestRequested(t *testing.T) {
	store := NewStore()
	there := &Service{Key: Key{"shop", "there"}}
	store.Update(func(tx *Tx) {
		tx.SetFreshness(Live, KindService)
		tx.Put(there)
	})
	same := &Service{Key: there.Key}
	gone := Key{"shop", "gone"}
	store.Update(func(tx *Tx) {
		if asked := Services.Requested(tx); len(asked) != 0 {
			t.Errorf("Requested() = %v before anything was asked", asked)
		}
		tx.Put(same)
		tx.Delete(KindService, gone)
		asked := Services.Requested(tx)
		if s, ok := asked[gone]; len(asked) != 2 || asked[there.Key] != same || !ok || s != nil {
			t.Errorf("Requested() = %v, want what was put at %s and nil at %s", asked, there.Key, gone)
		}
		if changes := tx.Changed(); !changes.Empty() {
			t.Errorf("Changed() = %v, want nothing", changes)
		}
		tx.Delete(KindService, there.Key)
		if s := Services.Requested(tx)[there.Key]; s != nil {
			t.Errorf("Requested() has %v where a Service was deleted", s)
		}
	})
}
