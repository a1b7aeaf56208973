package fqdn

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	diff "github.com/google/go-cmp/cmp"
)

// records returns records with count addresses from 198.18.0.0 on, counted from first.
func records(name string, ttl, first, count int) (all []string) {
	for i := first; i < first+count; i++ {
		all = append(all, fmt.Sprintf("%s. %d A 198.%d.%d.%d", name, ttl, 18+i>>16, byte(i>>8), byte(i)))
	}
	return all
}

// TestLimits: where a limit is reached, what was answered longest ago goes, but nothing for freshTime.
func TestLimits(t *testing.T) {
	t.Parallel()
	for claim, c := range map[string]struct {
		cfg  Config
		then func(add func(name string, first, count int))
		want map[string][]string // in the kernel, the last octets
		// What is not added, and what is removed.
		overflows map[string]uint64
		evicted   uint64
	}{
		"a name: of one answer, the first": {
			cfg:       Config{MaxPerName: 3},
			then:      func(add func(string, int, int)) { add("a.example.com", 0, 4) },
			want:      map[string][]string{"wild": {"0", "1", "2"}},
			overflows: map[string]uint64{"name": 1},
		},
		"a name: the latest": {
			cfg: Config{MaxPerName: 3},
			then: func(add func(string, int, int)) {
				add("a.example.com", 0, 3)
				time.Sleep(freshTime + time.Second)
				add("a.example.com", 1, 3)
			},
			want:    map[string][]string{"wild": {"1", "2", "3"}},
			evicted: 1,
		},
		"a set: what is fresh stays": {
			cfg: Config{MaxPerSet: 3},
			then: func(add func(string, int, int)) {
				add("a.example.com", 0, 2)
				add("b.example.com", 2, 2)
				add("d.example.org", 9, 1)
			},
			want:      map[string][]string{"wild": {"0", "1", "2"}, "more": {"9"}},
			overflows: map[string]uint64{"set": 1},
		},
		"a set: the latest": {
			cfg: Config{MaxPerSet: 3},
			then: func(add func(string, int, int)) {
				add("a.example.com", 0, 1)
				add("b.example.com", 1, 1)
				add("d.example.org", 9, 1)
				time.Sleep(freshTime + time.Second)
				add("a.example.com", 0, 1)
				add("c.example.com", 2, 2)
			},
			want:    map[string][]string{"wild": {"0", "2", "3"}, "more": {"9"}},
			evicted: 1,
		},
		"a set: another one of the name has room": {
			cfg: Config{MaxPerSet: 2},
			then: func(add func(string, int, int)) {
				add("a.example.com", 0, 2)
				add("both.example.com", 2, 1)
			},
			want: map[string][]string{"wild": {"0", "1", "2"}, "more": {"2"}},
		},
		"a namespace: an address counts in each set": {
			cfg: Config{MaxPerNamespace: 5},
			then: func(add func(string, int, int)) {
				add("d.example.org", 0, 2)
				add("both.example.com", 2, 2)
			},
			want:      map[string][]string{"wild": {"2"}, "more": {"0", "1", "2"}},
			overflows: map[string]uint64{"namespace": 1},
		},
		"a namespace: the latest": {
			cfg: Config{MaxPerNamespace: 4},
			then: func(add func(string, int, int)) {
				add("d.example.org", 0, 4)
				time.Sleep(freshTime + time.Second)
				add("both.example.com", 4, 2)
			},
			want:    map[string][]string{"wild": {"4", "5"}, "more": {"4", "5"}},
			evicted: 4,
		},
		"a name: an address of another one stays": {
			cfg: Config{MaxPerName: 1},
			then: func(add func(string, int, int)) {
				add("a.example.com", 0, 1)
				add("b.example.com", 0, 1)
				time.Sleep(freshTime + time.Second)
				add("a.example.com", 1, 1)
			},
			want:    map[string][]string{"wild": {"0", "1"}},
			evicted: 1,
		},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := newKernel("wild", "more")
				g := start(t, k, c.cfg)
				g.Update(shops(map[string][]string{"wild": {"*.example.com"}, "more": {"*.example.org", "both.example.com"}}))
				c.then(func(name string, first, count int) {
					hold(t, g, pod, name, records(name, 3600, first, count)...)
					synctest.Wait()
					checkTable(t, g)
				})
				time.Sleep(time.Second)
				for set := range k.sets {
					var got []string
					for _, addr := range k.has(set) {
						got = append(got, strings.TrimPrefix(addr, "198.18.0."))
					}
					if d := diff.Diff(c.want[set], got); d != "" {
						t.Errorf("the kernel's set %s:\n%s", set, d)
					}
				}
				want := map[string]uint64{"name": 0, "set": 0, "namespace": 0, "all": 0}
				maps.Copy(want, c.overflows)
				if s := g.Stats(); s.Evicted != c.evicted || diff.Diff(want, s.Overflows) != "" {
					t.Errorf("Stats() = %+v, want %d evicted, overflows %v", s, c.evicted, want)
				}
			})
		})
	}
}

// TestHostileNamespaces: Namespaces that resolve as much as they can, of names that they control, take nothing
// from another one, neither what it has nor what it resolves.
func TestHostileNamespaces(t *testing.T) {
	t.Parallel()
	const most = 4096
	for claim, hostile := range map[string]int{"one": 1, "more than the limit is for": 2 * partOfNamespace} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := newKernel("shop", "evil", "also")
				var text bytes.Buffer
				g := start(t, k, Config{
					MaxElements: most, Log: slog.New(slog.NewTextHandler(&text, nil)),
					Namespace: func(a netip.Addr) string {
						if b := a.As4(); b[1] == 66 {
							return "evil-" + strconv.Itoa(int(b[3]))
						}
						return namespaces[a]
					},
				})
				sets := shops(map[string][]string{"shop": {"*.example.com"}})
				var all []string
				for i := range hostile {
					all = append(all, "evil-"+strconv.Itoa(i))
				}
				sets["evil"] = Set{Domains: []string{"*.evil.example"}, Namespaces: all}
				sets["also"] = Set{Domains: []string{"*.evil.example", "*.example.com"}, Namespaces: all}
				g.Update(sets)
				own := func(i int) (string, []string) {
					name := "n" + strconv.Itoa(i) + ".example.com"
					return name, []string{name + ". 3600 A 192.0.2." + strconv.Itoa(i)}
				}
				first, record := own(0)
				hold(t, g, pod, first, record...)
				for round := range 60 {
					for i := range hostile {
						for _, name := range []string{"n" + strconv.Itoa(round) + ".evil.example", "n" + strconv.Itoa(round) + ".example.com"} {
							client := netip.AddrFrom4([4]byte{10, 66, 0, byte(i)})
							hold(t, g, client, name, records(name, 86400, 256*(60*i+round), 256)...)
						}
					}
					name, record := own(1 + round)
					hold(t, g, pod, name, record...)
					if !slices.Contains(k.has("shop"), "192.0.2."+strconv.Itoa(1+round)) {
						t.Fatalf("round %d: the kernel lacks the address in an answer: %+v", round, g.Stats())
					}
					time.Sleep(time.Second)
				}
				checkTable(t, g)
				if n := len(k.has("shop")); n != 61 {
					t.Errorf("the kernel has %d addresses of the namespace, want 61", n)
				}
				s := g.Stats()
				if n := len(k.has("evil")) + len(k.has("also")); n > min(hostile, partOfNamespace)*most/partOfNamespace {
					t.Errorf("the kernel has %d addresses of hostile namespaces: %+v", n, s)
				}
				if s.Late > 0 || s.Elements > most || s.Evicted == 0 || s.Overflows["namespace"] == 0 {
					t.Errorf("Stats() = %+v", s)
				}
				if n := strings.Count(text.String(), "too many addresses"); n == 0 || n > 2*hostile {
					t.Errorf("%d lines of the log in a minute for %d namespaces", n, hostile)
				}
			})
		})
	}
}

// TestOtherNamespaces: an answer is for the sets of the client's Namespace, and one with many addresses of a
// name in many sets has a bounded effect.
func TestOtherNamespaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many = 3000
		names := []string{"shop"}
		sets := shops(map[string][]string{"shop": {"api.example.com", "*.cdn.example"}})
		for i := range many {
			set := "evil-" + strconv.Itoa(i)
			names = append(names, set)
			sets[set] = Set{
				Domains: []string{"api.example.com", "*.evil.example", "a" + strconv.Itoa(i) + ".evil.example"}, Namespaces: []string{"evil"},
			}
		}
		k := newKernel(names...)
		g := start(t, k, Config{})
		g.Update(sets)
		hold(t, g, evil, "x.evil.example", records("x.evil.example", 86400, 0, 256)...)
		hold(t, g, evil, "x.cdn.example", records("x.cdn.example", 86400, 0, 256)...)
		checkTable(t, g)
		s := g.Stats()
		if limit := DefaultMaxElements / partOfNamespace; s.Elements > limit || s.Elements < limit-many || s.Overflows["namespace"] != 251 {
			t.Errorf("after an answer with 256 addresses for %d sets: %+v", many, s)
		}
		if n := len(k.has("shop")); n != 0 {
			t.Errorf("the answers to another namespace added %d addresses", n)
		}
		before := k.count()
		hold(t, g, pod, "api.example.com", "api.example.com. 60 A 192.0.2.1")
		if n := len(k.has("shop")); n != 1 || k.count() != before+1 || g.Stats().Elements != s.Elements+1 {
			t.Errorf("an answer for one set added %d addresses in %d transactions: %+v", n, k.count()-before, g.Stats())
		}
	})
}

// TestRandomChanges: after any answers, changes of sets and losses, the figures agree with the names, and the
// kernel with both.
func TestRandomChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		names := []string{"s0", "s1", "s2", "s3", "s4"}
		domains := []string{"*.example.com", "a.example.com", "b.example.com", "*.b.example.com", "c.example.com"}
		k := newKernel(names...)
		g := start(t, k, Config{MaxPerName: 4, MaxPerSet: 6, MaxPerNamespace: 14, MaxElements: 20})
		clients := []netip.Addr{pod, evil}
		for step := range 3000 {
			switch random.IntN(8) {
			case 0:
				sets := make(map[string]Set)
				for _, name := range names {
					of := Set{Domains: []string{domains[random.IntN(5)], domains[random.IntN(5)]}}
					for _, namespace := range []string{"evil", "shop"} {
						if random.IntN(3) > 0 {
							of.Namespaces = append(of.Namespaces, namespace)
						}
					}
					if random.IntN(5) > 0 {
						sets[name] = of
					}
				}
				g.Update(sets)
			case 1:
				time.Sleep(time.Duration(random.IntN(60)) * time.Second)
			case 2:
				if random.IntN(10) == 0 {
					g.Refill()
				}
			default:
				name := []string{"a", "b", "c", "d", "e", "x.b"}[random.IntN(6)] + ".example.com"
				hold(t, g, clients[random.IntN(2)], name, records(name, random.IntN(300), random.IntN(12), 1+random.IntN(4))...)
			}
			synctest.Wait()
			checkTable(t, g)
			g.mu.Lock()
			k.mu.Lock()
			for e, p := range g.table.elements {
				if k.sets[e.set][e.addr].Before(time.Now()) && p.until > g.table.now() {
					t.Fatalf("step %d: the kernel lacks %v", step, e)
				}
			}
			for set, addrs := range k.sets {
				for addr, until := range addrs {
					_, known := g.table.elements[element{set, addr}]
					if left := time.Until(until); !known && left > ttlUnit {
						t.Fatalf("step %d: the kernel has %s in %s for %v", step, addr, set, left)
					}
				}
			}
			k.mu.Unlock()
			g.mu.Unlock()
		}
		if s := g.Stats(); s.Evicted == 0 || s.Overflows["set"] == 0 || s.Overflows["all"] == 0 || s.Overflows["namespace"] == 0 {
			t.Errorf("Stats() = %+v: not all limits were reached", s)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		checkTable(t, g)
		if s := g.Stats(); s.Elements != 0 || s.Names != 0 {
			t.Errorf("Stats() = %+v after everything expired", s)
		}
	})
}

// checkTable verifies the figures of a table.
func checkTable(t *testing.T, g *Gate) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	total, elements := 0, make(map[element]int)
	for _, ns := range g.table.namespaces {
		used, shares := 0, make(map[string]int)
		for _, n := range ns.names {
			if len(n.addresses) == 0 || len(n.places) != len(n.sets) || n.place == nil {
				t.Fatalf("%s: a name with %d addresses, %d places and %d sets", ns.name, len(n.addresses), len(n.places), len(n.sets))
			}
			used += len(n.addresses) * cost(n.sets)
			for _, set := range n.sets {
				shares[set] += len(n.addresses)
				for _, k := range n.addresses {
					elements[element{set, k.addr}]++
				}
			}
		}
		if used != ns.used || used > g.cfg.MaxPerNamespace || len(ns.shares) != len(shares) || ns.order.Len() != len(ns.names) {
			t.Fatalf("%s: %d elements, want %d of at most %d", ns.name, ns.used, used, g.cfg.MaxPerNamespace)
		}
		for set, n := range shares {
			if ns.shares[set].used != n {
				t.Fatalf("%s, set %s: %d elements, want %d", ns.name, set, ns.shares[set].used, n)
			}
		}
		total += used
	}
	if total != g.table.used || total > g.cfg.MaxElements || len(elements) != len(g.table.elements) {
		t.Fatalf("%d elements, want %d of at most %d", g.table.used, total, g.cfg.MaxElements)
	}
	for e, n := range elements {
		if _, gone := g.table.gone[e]; gone || g.table.elements[e].names != n {
			t.Fatalf("%v: %+v, want %d names; to be removed: %t", e, g.table.elements[e], n, gone)
		}
	}
}

// TestMemory: what a Gate remembers at its limits, with what the kernel has, takes no more than is accounted.
func TestMemory(t *testing.T) {
	const most = 16 << 10
	const inKernel = 270 // of an IPv6 address, see docs/policy.md
	long := strings.Repeat(strings.Repeat("x", 60)+".", 3)
	for claim, c := range map[string]struct {
		sets int
		name string
	}{"short names in two sets": {2, ""}, "long names in one set": {1, long}, "names in many sets": {64, ""}} {
		g := New(Config{
			Programmer: newKernel(), Namespace: func(a netip.Addr) string { return "ns" + strconv.Itoa(int(a.As4()[1])) },
			MaxHeld: 1, MaxElements: most, Log: slog.New(slog.DiscardHandler),
		})
		sets := make(map[string]Set)
		for i := range c.sets {
			var all []string
			for n := range partOfSet {
				all = append(all, "ns"+strconv.Itoa(n))
			}
			sets["s"+strconv.Itoa(i)] = Set{[]string{"*.example.com", strconv.Itoa(i) + ".org"}, all}
		}
		g.Update(sets)
		before := heap()
		const perNamespace = most / partOfSet
		for i := range most / c.sets {
			name := fmt.Sprintf("n%d.%sexample.com", i, c.name)
			client := netip.AddrFrom4([4]byte{10, byte(i / (perNamespace / c.sets)), 0, 1})
			g.Hold(client, wireOf(name), answerOf(t, name, records(name, 3600, i, 1)...))
		}
		took, s := heap()-before, g.Stats()
		t.Logf("%s: %d octets for each element", claim, took/uint64(s.Elements))
		if s.Elements < most*9/10 {
			t.Errorf("%s: Stats() = %+v, want %d elements", claim, s, most)
		}
		if n := took / uint64(s.Elements); n+inKernel > elementCost {
			t.Errorf("%s: an element takes %d octets, and %d in the kernel; %d are accounted", claim, n, inKernel, elementCost)
		}
		runtime.KeepAlive(g)
	}
}

// heap returns how many octets are in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
