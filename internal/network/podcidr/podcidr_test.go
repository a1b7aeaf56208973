package podcidr

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
)

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// rangesOf parses ranges such as 10.0.0.0/16-24.
func rangesOf(texts ...string) (all []Range) {
	for _, text := range texts {
		cidr, mask, _ := strings.Cut(text, "-")
		r := Range{Cluster: netip.MustParsePrefix(cidr)}
		if _, err := fmt.Sscan(mask, &r.Bits); err != nil {
			panic(err)
		}
		all = append(all, r)
	}
	return all
}

// TestCheckRanges checks which ranges are refused, and why.
func TestCheckRanges(t *testing.T) {
	t.Parallel()
	for claim, test := range map[string]struct {
		ranges []Range
		want   string // empty if they are valid
	}{
		"both families":      {rangesOf("10.244.0.0/16-24", "fd00:10:244::/48-64"), ""},
		"IPv6 first":         {rangesOf("fd00::/56-72", "10.0.0.0/8-28"), ""},
		"one range for all":  {rangesOf("10.0.0.0/24-24"), ""},
		"none":               {nil, "0 ranges; one or two are wanted, of different families"},
		"three":              {rangesOf("10.0.0.0/16-24", "fd00::/48-64", "10.1.0.0/16-24"), "3 ranges; one or two are wanted, of different families"},
		"one family twice":   {rangesOf("10.0.0.0/16-24", "10.1.0.0/16-24"), "both ranges are of one family"},
		"bits of a host":     {rangesOf("10.0.0.1/16-24"), "10.0.0.1/16 is not a range of addresses, such as 10.244.0.0/16 or fd00:10:244::/48"},
		"IPv4 in IPv6":       {rangesOf("::ffff:10.0.0.0/112-120"), "::ffff:10.0.0.0/112 is not a range of addresses, such as 10.244.0.0/16 or fd00:10:244::/48"},
		"too small":          {rangesOf("10.0.0.0/25-24"), "10.0.0.0/25 is smaller than the range of one Node, which has the mask /24"},
		"no such mask":       {rangesOf("10.0.0.0/16-33"), "no range of a Node in 10.0.0.0/16 can have the mask /33"},
		"17 bits of IPv6":    {rangesOf("fd00::/47-64"), "fd00::/47 has more ranges of the mask /64 than 2^16"},
		"too many of IPv4":   {rangesOf("10.0.0.0/8-29"), "10.0.0.0/8 has more ranges of the mask /29 than 2^20"},
		"the second is none": {rangesOf("10.0.0.0/16-24", "fd00::1/48-64"), "fd00::1/48 is not a range of addresses, such as 10.244.0.0/16 or fd00:10:244::/48"},
	} {
		got := ""
		if err := CheckRanges(test.ranges); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: CheckRanges(%v) = %q, want %q", claim, test.ranges, got, test.want)
		}
	}
}

// TestBlocks checks the first, second and last block of ranges, and the blocks that ranges overlap.
func TestBlocks(t *testing.T) {
	t.Parallel()
	for of, want := range map[string][3]string{
		"10.244.0.0/16-24":    {"10.244.0.0/24", "10.244.1.0/24", "10.244.255.0/24"},
		"192.168.0.0/30-32":   {"192.168.0.0/32", "192.168.0.1/32", "192.168.0.3/32"},
		"fd00:10:244::/48-64": {"fd00:10:244::/64", "fd00:10:244:1::/64", "fd00:10:244:ffff::/64"},
		"fd00::/56-72":        {"fd00::/72", "fd00:0:0:0:100::/72", "fd00:0:0:ff:ff00::/72"},
		"fd00::/112-120":      {"fd00::/120", "fd00::100/120", "fd00::ff00/120"},
	} {
		b := newBlocks(rangesOf(of)[0])
		for i, index := range []int{0, 1, len(b.taken) - 1} {
			if got := b.at(index); got.String() != netip.MustParsePrefix(want[i]).String() {
				t.Errorf("%s: at(%d) = %s, want %s", of, index, got, want[i])
			}
			if first, end := b.span(b.at(index)); first != index || end != index+1 {
				t.Errorf("%s: span(at(%d)) = %d, %d", of, index, first, end)
			}
		}
	}
	b := newBlocks(rangesOf("10.244.0.0/16-24")[0])
	for p, want := range map[string][2]int{
		"10.0.0.0/8": {0, 256}, "10.244.0.0/16": {0, 256}, "10.244.4.0/22": {4, 8}, "10.244.4.128/25": {4, 5},
		"10.245.0.0/16": {0, 0}, "fd00::/8": {0, 0},
	} {
		if first, end := b.span(netip.MustParsePrefix(p)); [2]int{first, end} != want {
			t.Errorf("span(%s) = %d, %d, want %v", p, first, end, want)
		}
	}
}

// world is a cluster in which what an Allocator gives is written.
type world struct {
	t     *testing.T
	store *cluster.Store
	feed  *cluster.Feed
	a     *Allocator
}

func newWorld(t *testing.T, ranges ...string) *world {
	t.Helper()
	w := &world{t: t, store: cluster.NewStore(), a: NewAllocator(rangesOf(ranges...))}
	w.feed = w.store.Subscribe()
	t.Cleanup(w.feed.Close)
	w.change(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Live, cluster.KindNode, cluster.KindServiceCIDR) })
	return w
}

// change changes the model, and has the Allocator follow it.
func (w *world) change(change func(*cluster.Tx)) {
	w.store.Update(change)
	w.store.View(func(v *cluster.View) { w.a.Update(v, w.feed.Pending()) })
}

func (w *world) put(all ...cluster.Object) {
	w.change(func(tx *cluster.Tx) {
		for _, o := range all {
			tx.Put(o)
		}
	})
}

func (w *world) remove(k cluster.Kind, name string) {
	w.change(func(tx *cluster.Tx) { tx.Delete(k, cluster.Key{Name: name}) })
}

func node(name string, cidrs ...string) *cluster.Node {
	return &cluster.Node{Name: name, PodCIDRs: prefixes(cidrs...)}
}

// give gives ranges, and returns them and the Nodes that get none as text.
func (w *world) give() string {
	given, missing := w.a.Give()
	var b strings.Builder
	for _, g := range given {
		fmt.Fprintf(&b, "%s:%v ", g.Node, g.CIDRs)
	}
	return strings.TrimSpace(fmt.Sprint(b.String(), strings.Join(missing, " ")))
}

func (w *world) wantGiven(claim, want string) {
	w.t.Helper()
	if got := w.give(); got != want {
		w.t.Errorf("%s: Give() = %q, want %q", claim, got, want)
	}
}

// TestGive checks what Nodes get.
func TestGive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.0.0.0/22-24", "fd00::/62-64")
	w.put(node("b"), node("a"), node("own", "10.0.0.0/24", "fd00::/64"))
	w.wantGiven("the lowest free ranges, by name", "a:[10.0.1.0/24 fd00:0:0:1::/64] b:[10.0.2.0/24 fd00:0:0:2::/64]")
	w.wantGiven("once", "")
	w.put(node("a"))
	w.wantGiven("not again while the model does not show it", "")
	w.put(node("a", "10.0.1.0/24", "fd00:0:0:1::/64"), node("c"))
	w.wantGiven("the last", "c:[10.0.3.0/24 fd00:0:0:3::/64]")
	w.put(node("d"), node("e"))
	w.wantGiven("none is left", "d e")
	w.put(node("f"))
	w.wantGiven("told of once", "f")
	if got := w.a.Waiting(); got != 3 {
		t.Errorf("Waiting() = %d, want 3", got)
	}
	if diff := cmp.Diff([]Usage{{cluster.IPv4, 0, 4}, {cluster.IPv6, 0, 4}}, w.a.Usage()); diff != "" {
		t.Errorf("Usage() (-want +got):\n%s", diff)
	}
	w.remove(cluster.KindNode, "a")
	w.wantGiven("a range of a deleted Node", "d:[10.0.1.0/24 fd00:0:0:1::/64]")
	w.remove(cluster.KindNode, "b")
	w.wantGiven("one that was not shown either", "e:[10.0.2.0/24 fd00:0:0:2::/64]")
	w.remove(cluster.KindNode, "f")
	w.remove(cluster.KindNode, "e")
	w.put(node("e"))
	w.wantGiven("a Node made again", "e:[10.0.2.0/24 fd00:0:0:2::/64]")
}

// TestForeign checks that ranges which this program did not give are not given.
func TestForeign(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.0.0.0/21-24")
	w.put(
		&cluster.ServiceCIDR{Name: "kubernetes", CIDRs: prefixes("10.0.0.128/25", "fd00::/112")},
		node("wide", "10.0.2.0/23"), node("narrow", "10.0.1.7/32"), node("same", "10.0.2.0/24"), node("apart", "192.168.0.0/24"),
	)
	w.put(node("a"))
	w.wantGiven("beside them", "a:[10.0.4.0/24]")
	w.remove(cluster.KindNode, "wide")
	w.put(node("b"))
	w.wantGiven("what one of two leaves", "b:[10.0.3.0/24]")
	w.remove(cluster.KindServiceCIDR, "kubernetes")
	w.put(node("c"))
	w.wantGiven("what Services leave", "c:[10.0.0.0/24]")
	w.put(&cluster.ServiceCIDR{Name: "more", CIDRs: prefixes("10.0.0.0/8")})
	w.put(node("d"))
	w.wantGiven("Services have all", "d")
}

// TestAdopt checks that ranges which the API has are respected before the model shows them.
func TestAdopt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.0.0.0/22-24")
	w.a.Adopt(Assignment{"a", prefixes("10.0.0.0/24")})
	w.a.Adopt(Assignment{"gone", prefixes("10.0.1.0/24")})
	w.put(node("a"), node("b"))
	w.wantGiven("a has a range", "b:[10.0.2.0/24]")
	w.a.Adopt(Assignment{"b", prefixes("10.0.3.0/24")})
	w.put(node("c"))
	w.wantGiven("b has another", "c:[10.0.2.0/24]")
	w.put(node("d"))
	w.wantGiven("none is left", "d")
	w.a.Forget("gone")
	w.wantGiven("what was gone", "d:[10.0.1.0/24]")
	w.put(node("a", "10.0.0.0/24"))
	w.a.Adopt(Assignment{"a", prefixes("10.0.1.0/24")})
	if got := w.a.Given("a"); got != nil {
		t.Errorf("Given(a) = %v, though the model has its range", got)
	}
}

// TestLaw checks that after any changes, of which each is written or not yet, no two Nodes have ranges that overlap,
// that as many have some as can, and that an Allocator made anew from what was written has the same blocks and gives
// nothing else.
func TestLaw(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 24))
		w := newWorld(t, "10.0.0.0/28-31", "fd00::/60-64")
		held := make(map[string][]netip.Prefix)
		write := func() {
			given, _ := w.a.Give()
			for _, g := range given {
				held[g.Node] = g.CIDRs
			}
		}
		for range 60 {
			name := fmt.Sprint("n", r.IntN(12))
			switch r.IntN(5) {
			case 0, 1:
				if held[name] == nil {
					w.put(node(name))
				}
				write()
			case 2:
				w.remove(cluster.KindNode, name)
				delete(held, name)
			case 3:
				w.put(&cluster.ServiceCIDR{Name: "s", CIDRs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(8) * 2)}), 31)}})
			default: // the watch shows what was written
				if held[name] != nil {
					w.put(&cluster.Node{Name: name, PodCIDRs: held[name]})
				}
			}
		}
		write()
		checkLaw(t, seed, w, held)
	}
}

func checkLaw(t *testing.T, seed uint64, w *world, held map[string][]netip.Prefix) {
	t.Helper()
	var all []netip.Prefix
	for _, cidrs := range held {
		for _, p := range cidrs {
			if slices.ContainsFunc(all, p.Overlaps) {
				t.Fatalf("seed %d: %s is given twice", seed, p)
			}
			all = append(all, p)
		}
	}
	for name, cidrs := range held {
		w.put(&cluster.Node{Name: name, PodCIDRs: cidrs})
	}
	if got := w.give(); got != "" {
		t.Fatalf("seed %d: what was written makes more: %s", seed, got)
	}
	if usage := w.a.Usage(); w.a.Waiting() > 0 && usage[0].Free > 0 && usage[1].Free > 0 {
		t.Fatalf("seed %d: %d Nodes wait, with %v", seed, w.a.Waiting(), usage)
	}
	anew := NewAllocator([]Range{w.a.ranges[0].Range, w.a.ranges[1].Range})
	w.store.View(func(v *cluster.View) { anew.Update(v, cluster.Changes{Everything: true}) })
	if given, _ := anew.Give(); len(given) > 0 {
		t.Fatalf("seed %d: from scratch, %v are given", seed, given)
	}
	for i, b := range anew.ranges {
		if diff := cmp.Diff(w.a.ranges[i].taken, b.taken); diff != "" {
			t.Fatalf("seed %d: blocks (-one by one +from scratch):\n%s", seed, diff)
		}
	}
}

// BenchmarkGive measures how long 5,000 Nodes take that appear at once, and one that follows.
func BenchmarkGive(b *testing.B) {
	ranges := rangesOf("10.0.0.0/8-24", "fd00:10::/48-64")
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		for i := range 5000 {
			tx.Put(node(fmt.Sprintf("node-%04d", i)))
		}
		tx.SetFreshness(cluster.Live, cluster.KindNode, cluster.KindServiceCIDR)
	})
	b.Run("5000", func(b *testing.B) {
		for b.Loop() {
			a := NewAllocator(ranges)
			store.View(func(v *cluster.View) { a.Update(v, cluster.Changes{Everything: true}) })
			if given, _ := a.Give(); len(given) != 5000 {
				b.Fatal(len(given))
			}
		}
	})
	b.Run("one", func(b *testing.B) {
		a := NewAllocator(ranges)
		store.View(func(v *cluster.View) { a.Update(v, cluster.Changes{Everything: true}) })
		a.Give()
		late := cluster.Ref{Kind: cluster.KindNode, Key: cluster.Key{Name: "node-2500"}}
		empty := cluster.NewStore()
		change := cluster.Changes{Objects: map[cluster.Ref]int64{late: 0}}
		for b.Loop() {
			empty.View(func(v *cluster.View) { a.Update(v, change) }) // it is deleted
			store.View(func(v *cluster.View) { a.Update(v, change) })
			if given, _ := a.Give(); len(given) != 1 {
				b.Fatal(given)
			}
		}
	})
}
