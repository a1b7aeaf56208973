package balance_test

import (
	"maps"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"portolan.dev/portolan/internal/gateway/balance"
)

// addresses returns n addresses.
func addresses(n int) (all []netip.AddrPort) {
	for i := range n {
		all = append(all, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80))
	}
	return all
}

func newPool(n int) *balance.Pool {
	p := balance.NewPool()
	p.Update(addresses(n))
	return p
}

// TestEven: requests that go on are spread so that no endpoint has many more than another.
func TestEven(t *testing.T) {
	t.Parallel()
	const endpoints, each = 20, 500
	p := newPool(endpoints)
	seen := make(map[*balance.Endpoint]struct{})
	for range endpoints * each {
		seen[p.Pick()] = struct{}{}
	}
	for e := range seen {
		// With two choices the largest surplus is ln ln n / ln 2 on average, some 2; with one it would be 50.
		if n := e.UnderWay(); n < each-15 || n > each+15 {
			t.Errorf("%s has %d requests, want about %d", e.Addr, n, each)
		}
	}
	if len(seen) != endpoints {
		t.Errorf("%d endpoints were used, want %d", len(seen), endpoints)
	}
}

// TestSlow: an endpoint that keeps its requests gets fewer of the new ones.
func TestSlow(t *testing.T) {
	t.Parallel()
	p := newPool(2)
	slow := p.Pick()
	n := 0
	for range 100 {
		e := p.Pick()
		if e == slow {
			n++
		}
		e.Done()
	}
	// Both draws hit it in a quarter of the cases.
	if n > 50 {
		t.Errorf("the endpoint with a request got %d of 100, want fewer than half", n)
	}
}

func TestNone(t *testing.T) {
	t.Parallel()
	if e := balance.NewPool().Pick(); e != nil {
		t.Errorf("Pick() of no endpoints = %s", e.Addr)
	}
}

// TestTried: an attempt goes to another endpoint than those before, and to none if there is no other one.
func TestTried(t *testing.T) {
	t.Parallel()
	p := newPool(3)
	for range 100 {
		a := p.Pick()
		b := p.Pick(a)
		c := p.Pick(a, b)
		d := p.Pick(a, b, c)
		if a == b || a == c || b == c || d != nil {
			t.Fatalf("attempts at %s, %s, %s and %v", a.Addr, b.Addr, c.Addr, d)
		}
	}
}

// TestUpdate: an endpoint that stays is the same one; one that is gone gets no requests.
func TestUpdate(t *testing.T) {
	t.Parallel()
	p := newPool(1)
	e := p.Pick()
	p.Update(addresses(2))
	if !p.Has(e) || p.Len() != 2 || e.UnderWay() != 1 || p.UnderWay() != 1 {
		t.Errorf("after a second one came, the first: has %t, %d under way, %d endpoints, %d under way in all",
			p.Has(e), e.UnderWay(), p.Len(), p.UnderWay())
	}
	p.Update(addresses(2)[1:])
	if p.Has(e) {
		t.Error("an endpoint that was removed may get requests")
	}
	for range 50 {
		if got := p.Pick(); got == e {
			t.Fatal("an endpoint that was removed got a request")
		}
	}
	e.Done()
}

// TestOnRemoval: an endpoint says when it is removed, also with its Pool, and only then.
func TestOnRemoval(t *testing.T) {
	t.Parallel()
	var s balance.Set[string]
	s.Update(map[string][]netip.AddrPort{"a": addresses(2)})
	pool := s.Pool("a")
	first := pool.Pick()
	second := pool.Pick(first)
	var removed []*balance.Endpoint
	note := func(e *balance.Endpoint) { e.OnRemoval(func() { removed = append(removed, e) }) }
	note(first)
	note(second)
	s.Update(map[string][]netip.AddrPort{"a": {second.Addr}, "b": nil})
	if len(removed) != 1 || removed[0] != first {
		t.Errorf("after one was removed: %v", removed)
	}
	note(first)
	if len(removed) != 2 {
		t.Error("an endpoint that was removed before does not say so")
	}
	s.Update(map[string][]netip.AddrPort{"a": nil})
	if len(removed) != 3 || removed[2] != second {
		t.Errorf("after the upstream was removed: %v", removed)
	}
	if pool.Pick() != second {
		t.Error("a request that has the Pool gets no endpoint of it")
	}
	s.Update(map[string][]netip.AddrPort{"a": {first.Addr}})
	if s.Pool("a").Pick() == first || len(removed) != 3 {
		t.Error("an address that comes back is the endpoint that was removed")
	}
}

// TestEject: an endpoint that failed often in a row gets nothing for a while, longer each time, unless
// half of them are like that.
func TestEject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPool(4)
		var all []*balance.Endpoint
		for len(all) < 4 {
			all = append(all, p.Pick(all...))
		}
		fail := func(e *balance.Endpoint, times int) {
			for range times {
				p.Report(e, false)
			}
		}
		gets := func(e *balance.Endpoint) bool {
			for range 200 {
				if got := p.Pick(); got == e {
					return true
				}
			}
			return false
		}
		fail(all[0], 4)
		p.Report(all[0], true)
		fail(all[0], 4)
		if !gets(all[0]) {
			t.Error("ejected after four failures, a success, and four failures")
		}
		fail(all[0], 1)
		if gets(all[0]) {
			t.Error("not ejected after five failures in a row")
		}
		fail(all[1], 5)
		fail(all[2], 5)
		if gets(all[1]) || !gets(all[2]) {
			t.Errorf("with one of four ejected, the second gets requests: %t, the third: %t; want false, true",
				gets(all[1]), gets(all[2]))
		}
		if n := p.Ejected(); n != 2 {
			t.Errorf("%d are ejected, want 2", n)
		}
		time.Sleep(5 * time.Second)
		if !gets(all[0]) {
			t.Error("ejected for longer than 5 s")
		}
		if n := p.Ejected(); n != 0 {
			t.Errorf("%d are ejected after 5 s, want none", n)
		}
		fail(all[0], 5)
		time.Sleep(9 * time.Second)
		if gets(all[0]) {
			t.Error("the second time, not ejected after 9 s")
		}
		time.Sleep(time.Second)
		if !gets(all[0]) {
			t.Error("the second time, ejected for longer than 10 s")
		}
	})
}

// TestAllEjected: the only endpoint is never ejected.
func TestAllEjected(t *testing.T) {
	t.Parallel()
	p := newPool(1)
	e := p.Pick()
	for range 100 {
		p.Report(e, false)
	}
	if p.Pick() != e {
		t.Error("the only endpoint gets no requests")
	}
}

func TestSet(t *testing.T) {
	t.Parallel()
	var s balance.Set[string]
	if s.Pool("a") != nil || len(maps.Collect(s.All())) > 0 {
		t.Error("an empty Set has a Pool")
	}
	s.Update(map[string][]netip.AddrPort{"a": addresses(1), "b": {}})
	a := s.Pool("a")
	s.Update(map[string][]netip.AddrPort{"a": addresses(2), "b": nil, "c": addresses(3)})
	if s.Pool("a") != a || a.Len() != 2 || s.Pool("b") != nil || s.Pool("c").Len() != 3 {
		t.Errorf("after an update, a has %d, b is %v, c has %d", a.Len(), s.Pool("b"), s.Pool("c").Len())
	}
	if all := maps.Collect(s.All()); len(all) != 2 || all["a"] != a {
		t.Errorf("All yields %v, want a and c", all)
	}
}

// TestConcurrent picks and reports while endpoints change; the race detector looks on.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	p := newPool(5)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 2000 {
				e := p.Pick()
				p.Report(e, i%3 == 0)
				e.Done()
			}
		})
	}
	all.Go(func() {
		for i := range 500 {
			p.Update(addresses(1 + i%7))
		}
	})
	all.Wait()
	for range 10 {
		e := p.Pick()
		if n := e.UnderWay(); n > 10 || n < 1 {
			t.Errorf("%d requests under way at an endpoint, want those of this loop", n)
		}
	}
}
