package zone

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// TestIndex compares an index under random changes with a map, and checks the
// order and the length of its pages.
func TestIndex(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		x, want := new(index[int]), make(map[netip.Addr][]int)
		for range 60 {
			// Mostly small changes and sometimes a large one; first more
			// additions, then more deletions.
			changes := make(map[netip.Addr][]int)
			for range 1 + rnd.IntN(2)*rnd.IntN(2)*rnd.IntN(2000) + rnd.IntN(3) {
				changes[randomAddr(rnd)] = make([]int, rnd.IntN(3)*rnd.IntN(2))
			}
			var updates []update[int]
			for _, addr := range slices.SortedFunc(maps.Keys(changes), netip.Addr.Compare) {
				values := changes[addr]
				for i := range values {
					values[i] = rnd.IntN(1000)
				}
				updates = append(updates, update[int]{addr, values})
				want[addr] = values
				if len(values) == 0 {
					delete(want, addr)
				}
			}
			x.update(updates)
			checkIndex(t, x, want)
			for range 50 {
				addr := randomAddr(rnd)
				if got := x.find(addr); !slices.Equal(got, want[addr]) {
					t.Fatalf("seed %d: find(%s) = %v, want %v", seed, addr, got, want[addr])
				}
				bits := rnd.IntN(addr.BitLen() + 1)
				prefix, _ := addr.Prefix(bits)
				covered := false
				for a := range want {
					covered = covered || prefix.Contains(a)
				}
				if got := x.covers(prefix); got != covered {
					t.Fatalf("seed %d: covers(%s) = %v, want %v", seed, prefix, got, covered)
				}
			}
		}
	}
}

// randomAddr returns one of a few thousand addresses, close to each other and
// far apart.
func randomAddr(rnd *rand.Rand) netip.Addr {
	raw := [16]byte{0xfd, 14: byte(rnd.IntN(4)), 15: byte(rnd.IntN(256))}
	if rnd.IntN(8) == 0 {
		raw[rnd.IntN(16)] = byte(rnd.IntN(256))
	}
	if rnd.IntN(2) == 0 {
		return netip.AddrFrom4([4]byte(raw[12:]))
	}
	return netip.AddrFrom16(raw)
}

func checkIndex(t *testing.T, x *index[int], want map[netip.Addr][]int) {
	t.Helper()
	var last netip.Addr
	count := 0
	for addr, values := range x.all {
		if last.IsValid() && addr.Compare(last) <= 0 {
			t.Fatalf("%s comes behind %s", addr, last)
		}
		if !slices.Equal(values, want[addr]) {
			t.Fatalf("values at %s = %v, want %v", addr, values, want[addr])
		}
		last = addr
		count++
	}
	if count != len(want) {
		t.Fatalf("%d addresses, want %d", count, len(want))
	}
	if got := x.empty(); got != (len(want) == 0) {
		t.Fatalf("empty() = %v with %d addresses", got, len(want))
	}
	for i := range x.roots {
		if root := x.roots[i].Load(); root != nil {
			checkPage(t, root)
		}
	}
}

// checkPage checks the pages below p and returns their height.
func checkPage(t *testing.T, p *page[int]) (height int) {
	t.Helper()
	if n := p.len(); n == 0 || n > pageLen+1 { // two values at the cut
		t.Fatalf("a page of %d, want 1 to %d", n, pageLen)
	}
	for i, below := range p.pages {
		h := 1 + checkPage(t, below)
		if i > 0 && h != height {
			t.Fatalf("pages of height %d and %d beside each other", height, h)
		}
		height = h
		if least := p.keys[i*p.width() : (i+1)*p.width()]; !slices.Equal(least, below.keys[:below.width()]) {
			t.Fatalf("least key of a page is %x, want %x", least, below.keys[:below.width()])
		}
	}
	return height
}

// TestIndexFreesPages checks that little is left of a large index after
// deletions.
func TestIndexFreesPages(t *testing.T) {
	x := new(index[int])
	var changes []update[int]
	addr := netip.MustParseAddr("10.0.0.0")
	for i := range 20000 {
		changes = append(changes, update[int]{addr, []int{i}})
		addr = addr.Next()
	}
	x.update(changes)
	rnd := rand.New(rand.NewPCG(1, 2))
	rnd.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
	for _, c := range changes[100:] {
		x.update([]update[int]{{addr: c.addr}})
	}
	leaves := 0
	for _, p := range x.roots[0].Load().pages {
		leaves += max(1, len(p.pages))
	}
	if limit := 100 / (pageLen / 8); leaves > limit {
		t.Errorf("100 addresses of 20,000 are in %d pages, want at most %d", leaves, limit)
	}
}

// TestApplyDeltas checks that an addition and a deletion in one change cancel
// out in any order, and that equal values are counted.
func TestApplyDeltas(t *testing.T) {
	x := new(index[ttl])
	addr := netip.MustParseAddr("fd00::1")
	for i, step := range []struct {
		deltas []delta[ttl]
		want   []ttl
	}{
		{[]delta[ttl]{{addr, 7, true}, {addr, 7, false}}, nil},
		{[]delta[ttl]{{addr, 7, false}, {addr, 5, false}, {addr, 7, false}}, []ttl{5, 7, 7}},
		{[]delta[ttl]{{addr, 7, true}}, []ttl{5, 7}},
		{[]delta[ttl]{{addr, 7, true}, {addr, 5, true}}, nil},
	} {
		applyDeltas(x, step.deltas, func(_ netip.Addr, _, all []ttl) { slices.SortFunc(all, cmp.Compare) })
		if got := x.find(addr); !slices.Equal(got, step.want) {
			t.Errorf("step %d: values = %v, want %v", i, got, step.want)
		}
	}
}

// TestApplyMany checks that more deltas than batchSize are published at once
// and completely.
func TestApplyMany(t *testing.T) {
	const n = 3*batchSize + 1
	at := func(i int) netip.Addr {
		if i%2 == 0 {
			return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		}
		return netip.AddrFrom16([16]byte{0xfd, 14: byte(i >> 8), 15: byte(i)})
	}
	x := new(index[ttl])
	for _, change := range []struct{ gone, come ttl }{{0, 1}, {1, 2}, {2, 0}} {
		var deltas []delta[ttl]
		for i := range n {
			if change.gone != 0 {
				deltas = append(deltas, delta[ttl]{at(i), change.gone, true})
			}
			if change.come != 0 {
				deltas = append(deltas, delta[ttl]{at(i), change.come, false})
			}
		}
		before := x.count()
		applyDeltas(x, deltas, func(netip.Addr, []ttl, []ttl) {
			if x.count() != before || before > 0 && !slices.Equal(x.find(at(0)), []ttl{change.gone}) {
				t.Fatalf("%+v: a part of it is seen", change)
			}
		})
		for i := range n {
			var want []ttl
			if change.come != 0 {
				want = []ttl{change.come}
			}
			if got := x.find(at(i)); !slices.Equal(got, want) {
				t.Fatalf("%+v: %s has %v, want %v", change, at(i), got, want)
			}
		}
	}
}
