package cluster

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func changed(kind Kind, namespace, name string) Ref {
	return Ref{Kind: kind, Key: Key{namespace, name}}
}

func changes(all ...Ref) (set Changes) {
	for _, ch := range all {
		set.add(ch, 0)
	}
	return set
}

// everything is what is told when a kind becomes loaded.
var everything = Changes{Everything: true, Freshness: true}

// newLoaded makes a Store of which all kinds are loaded.
func newLoaded() *Store {
	store := NewStore()
	store.Update(func(tx *Tx) { tx.SetFreshness(Recalled, Kinds()...) })
	return store
}

// everyKind puts one object of each kind.
func everyKind(tx *Tx) {
	tx.Put(&Namespace{Name: "shop"})
	tx.Put(&Service{Key: Key{"shop", "web"}})
	tx.Put(&EndpointSlice{Key: Key{"shop", "web-1"}, Service: "web"})
	tx.Put(&EndpointSlice{Key: Key{"shop", "early-1"}, Service: "early"})
	tx.Put(&Pod{Key: Key{"shop", "web-x"}})
	tx.Put(&Node{Name: "node-1"})
}

// all is what everyKind makes changed; the Service shop/early is not there, but
// a slice of it is.
var all = []Ref{
	changed(KindNamespace, "", "shop"), changed(KindService, "shop", "web"), changed(KindService, "shop", "early"),
	changed(KindPod, "shop", "web-x"), changed(KindNode, "", "node-1"),
}

func TestChanges(t *testing.T) {
	slice := func(service string) *EndpointSlice {
		return &EndpointSlice{Key: Key{"shop", "slice"}, Service: service}
	}
	tests := map[string]struct {
		before, change func(*Tx)
		want           Changes
	}{
		"putting tells of each object":         {nil, everyKind, changes(all...)},
		"putting the same again tells nothing": {everyKind, everyKind, Changes{}},
		"replacing tells of each object": {everyKind, func(tx *Tx) {
			tx.Put(&Service{Key: Key{"shop", "web"}, Headless: true})
			tx.Put(&Pod{Key: Key{"shop", "web-x"}, Finished: true})
			tx.Put(&Node{Name: "node-1", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}})
		}, changes(all[1], all[3], all[4])},
		"an empty transaction tells nothing":       {everyKind, func(*Tx) {}, Changes{}},
		"a slice of no Service tells nothing":      {nil, func(tx *Tx) { tx.Put(slice("")) }, Changes{}},
		"deleting a slice tells of its Service":    {everyKind, func(tx *Tx) { tx.Delete(KindEndpointSlice, Key{"shop", "web-1"}) }, changes(changed(KindService, "shop", "web"))},
		"a slice that moves tells of both":         {func(tx *Tx) { tx.Put(slice("a")) }, func(tx *Tx) { tx.Put(slice("b")) }, changes(changed(KindService, "shop", "a"), changed(KindService, "shop", "b"))},
		"a slice that leaves tells of its Service": {func(tx *Tx) { tx.Put(slice("a")) }, func(tx *Tx) { tx.Put(slice("")) }, changes(changed(KindService, "shop", "a"))},
		"several changes of one key are one": {nil, func(tx *Tx) {
			tx.Put(&Pod{Key: Key{"shop", "a"}})
			tx.Delete(KindPod, Key{"shop", "a"})
			tx.Put(&Pod{Key: Key{"shop", "a"}})
		}, changes(changed(KindPod, "shop", "a"))},
		"deleting tells of each object": {everyKind, func(tx *Tx) {
			tx.Delete(KindNamespace, Key{Name: "shop"})
			tx.Delete(KindService, Key{"shop", "web"})
			tx.Delete(KindPod, Key{"shop", "web-x"})
			tx.Delete(KindNode, Key{Name: "node-1"})
		}, changes(all[0], all[1], all[3], all[4])},
		"deleting what is not there tells nothing": {everyKind, func(tx *Tx) {
			tx.Delete(KindNamespace, Key{Name: "x"})
			tx.Delete(KindService, Key{"shop", "x"})
			tx.Delete(KindEndpointSlice, Key{"shop", "x"})
			tx.Delete(KindPod, Key{"shop", "x"})
			tx.Delete(KindNode, Key{Name: "x"})
		}, Changes{}},
		"what becomes fresher changes no object":   {everyKind, func(tx *Tx) { tx.SetFreshness(Live, KindPod) }, Changes{Freshness: true}},
		"what is as fresh as before tells nothing": {everyKind, func(tx *Tx) { tx.SetFreshness(Recalled, Kinds()...) }, Changes{}},
	}
	for claim, test := range tests {
		store := newLoaded()
		if test.before != nil {
			store.Update(test.before)
		}
		feed := store.Subscribe()
		feed.Pending()
		store.Update(test.change)
		if d := cmp.Diff(test.want, feed.Pending()); d != "" {
			t.Errorf("%s: Pending: (-want +got)\n%s", claim, d)
		}
	}
}

// TestLoadingIsSilent: nothing is told of kinds that are not loaded, and
// everything when they are.
func TestLoadingIsSilent(t *testing.T) {
	tests := map[string]struct {
		loaded []Kind
		change func(*Tx)
		want   Changes
	}{
		"no kind":                       {nil, everyKind, Changes{}},
		"slices without their Services": {[]Kind{KindEndpointSlice}, everyKind, Changes{}},
		"Services without slices":       {[]Kind{KindService}, everyKind, changes(changed(KindService, "shop", "web"))},
		"one that becomes loaded":       {nil, func(tx *Tx) { tx.SetFreshness(Live, KindPod) }, everything},
		"another one":                   {[]Kind{KindPod}, func(tx *Tx) { tx.SetFreshness(Recalled, KindPod, KindNode) }, everything},
		"one that becomes loaded, while a loaded one loses an object": {[]Kind{KindPod}, func(tx *Tx) {
			tx.Delete(KindPod, Key{"shop", "old"})
			tx.SetFreshness(Live, KindNode)
		}, Changes{Everything: true, Freshness: true, Objects: map[Ref]int64{changed(KindPod, "shop", "old"): 0}}},
	}
	for claim, test := range tests {
		store := NewStore()
		store.Update(func(tx *Tx) {
			tx.Put(&Pod{Key: Key{"shop", "old"}})
			tx.SetFreshness(Live, test.loaded...)
		})
		feed := store.Subscribe()
		feed.Pending()
		store.Update(test.change)
		if d := cmp.Diff(test.want, feed.Pending()); d != "" {
			t.Errorf("%s: Pending: (-want +got)\n%s", claim, d)
		}
	}
}

// TestCauses: with a change goes the earliest cause that is still waiting.
func TestCauses(t *testing.T) {
	store := newLoaded()
	feed := store.Subscribe()
	feed.Pending()
	pod := changed(KindPod, "shop", "a")
	put := func(seconds int64) {
		store.Update(func(tx *Tx) {
			if seconds > 0 {
				tx.CausedAt(time.Unix(seconds, 0))
			}
			tx.Delete(KindPod, pod.Key)
			tx.Put(&Pod{Key: pod.Key})
		})
	}
	for _, test := range []struct {
		claim  string
		causes []int64
		want   int64
	}{
		{"no cause told", []int64{0, 0}, 0},
		{"one told", []int64{0, 5, 0}, 5},
		{"several told", []int64{7, 5, 6}, 5},
		{"the one before was fetched", []int64{8}, 8},
	} {
		for _, c := range test.causes {
			put(c)
		}
		if d := cmp.Diff(Changes{Objects: map[Ref]int64{pod: test.want * 1e9}}, feed.Pending()); d != "" {
			t.Errorf("%s: Pending: (-want +got)\n%s", test.claim, d)
		}
	}
}

func TestSubscribeBeginsWithEverything(t *testing.T) {
	for _, store := range []*Store{NewStore(), newLoaded()} {
		store.Update(everyKind)
		if d := cmp.Diff(everything, store.Subscribe().Pending()); d != "" {
			t.Errorf("Subscribe().Pending(): (-want +got)\n%s", d)
		}
	}
}

func TestFeedCoalesces(t *testing.T) {
	store := newLoaded()
	feed := store.Subscribe()
	feed.Pending()
	for range 100 {
		store.Update(everyKind)
		store.Update(func(tx *Tx) { tx.Delete(KindPod, Key{"shop", "web-x"}) })
	}
	got, err := feed.Next(t.Context())
	if d := cmp.Diff(changes(all...), got); err != nil || d != "" {
		t.Errorf("after 200 transactions: Next: %v, (-want +got)\n%s", err, d)
	}
	if got := feed.Pending(); !got.Empty() {
		t.Errorf("after Next: Pending() = %v, want nothing", got)
	}
}

// TestNextWaits: Next returns with changes or an error, never with nothing.
func TestNextWaits(t *testing.T) {
	put := func(s *Store) { // another one each time
		s.Update(func(tx *Tx) {
			tx.Put(&Node{Name: "n", Addresses: make([]netip.Addr, tx.Len(KindNode))})
		})
	}
	tests := map[string]func(context.Context, *Store, *Feed){
		"after Next":    func(ctx context.Context, _ *Store, f *Feed) { _, _ = f.Next(ctx) },
		"after Pending": func(_ context.Context, _ *Store, f *Feed) { f.Pending() },
		"after Next and Pending in turn": func(ctx context.Context, s *Store, f *Feed) {
			_, _ = f.Next(ctx)
			put(s)
			f.Pending()
		},
		"after a transaction that changes nothing": func(_ context.Context, s *Store, f *Feed) {
			f.Pending()
			s.Update(func(tx *Tx) { tx.Delete(KindNode, Key{Name: "x"}) })
		},
	}
	for claim, prepare := range tests {
		synctest.Test(t, func(t *testing.T) {
			store := newLoaded()
			feed := store.Subscribe()
			prepare(t.Context(), store, feed)
			var got Changes
			returned := false
			go func() {
				got, _ = feed.Next(t.Context())
				returned = true
			}()
			synctest.Wait()
			if returned {
				t.Fatalf("%s: Next returns %v, want it to wait", claim, got)
			}
			put(store)
			synctest.Wait()
			if d := cmp.Diff(changes(changed(KindNode, "", "n")), got); d != "" {
				t.Errorf("%s: Next, when a change comes: (-want +got)\n%s", claim, d)
			}
		})
	}
}

func TestNextEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feed := NewStore().Subscribe()
		feed.Pending()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if got, err := feed.Next(ctx); !errors.Is(err, context.DeadlineExceeded) || !got.Empty() {
			t.Errorf("Next = %v, %v, want nothing and the context's error", got, err)
		}
	})
}

func TestFeedClose(t *testing.T) {
	store := newLoaded()
	first, second, third := store.Subscribe(), store.Subscribe(), store.Subscribe()
	for _, f := range []*Feed{first, second, third} {
		f.Pending()
	}
	second.Close()
	second.Close()
	store.Update(everyKind)
	for name, f := range map[string]*Feed{"first": first, "third": third} {
		if d := cmp.Diff(changes(all...), f.Pending()); d != "" {
			t.Errorf("%s of three feeds, the second closed: Pending: (-want +got)\n%s", name, d)
		}
	}
	if got := second.Pending(); !got.Empty() {
		t.Errorf("closed feed: Pending() = %v, want nothing", got)
	}
	first.Close()
	third.Close()
	if n := len(store.feeds); n != 0 {
		t.Errorf("after all feeds are closed: the Store holds %d, want none", n)
	}
}

// TestNothingIsLost has writers change Pods as fast as they can, while
// consumers rebuild them from what feeds tell. In the end each must have what
// the Store has.
func TestNothingIsLost(t *testing.T) {
	const writers, consumers, rounds, pods = 4, 3, 500, 8
	store := newLoaded()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	final := make(map[Key]string) // what writer i leaves: its odd Pods, in the last round
	var writing, consuming sync.WaitGroup
	for w := range writers {
		key := func(i int) Key { return Key{strconv.Itoa(w), strconv.Itoa(i % pods)} }
		for i := 1; i < pods; i += 2 {
			final[key(i)] = "last"
		}
		writing.Go(func() {
			for i := range rounds {
				store.Update(func(tx *Tx) { tx.Put(&Pod{Key: key(i), Node: strconv.Itoa(i)}) })
				store.Update(func(tx *Tx) { tx.Delete(KindPod, key(i+1)) })
			}
			store.Update(func(tx *Tx) {
				for i := range pods {
					if i%2 == 0 {
						tx.Delete(KindPod, key(i))
						continue
					}
					tx.Put(&Pod{Key: key(i), Node: "last"})
				}
			})
		})
	}
	for c := range consumers {
		consuming.Go(func() {
			feed := store.Subscribe()
			defer feed.Close()
			mirror := make(map[Key]string)
			for !cmp.Equal(mirror, final) {
				told, err := feed.Next(ctx)
				if err != nil {
					t.Errorf("consumer %d: Next: %v; it has, of what the Store has: (-store +consumer)\n%s", c, err, cmp.Diff(final, mirror))
					return
				}
				store.View(func(v *View) {
					if told.Everything {
						for p := range v.Pods() {
							mirror[p.Key] = p.Node
						}
					}
					for ch := range told.Objects {
						if p := v.Pod(ch.Key); p != nil {
							mirror[ch.Key] = p.Node
							continue
						}
						delete(mirror, ch.Key)
					}
				})
			}
		})
	}
	writing.Wait()
	consuming.Wait()
}
