package failover

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"portolan.dev/portolan/internal/network/announce/frame"
	"portolan.dev/portolan/internal/network/announce/plan"
)

// All times of the simulation are in milliseconds.
const (
	interval = 250
	overdue  = 100
	latency  = 1
)

// member is a node of a world.
type member struct {
	name    string
	id      plan.ID
	machine *Machine
	owned   map[netip.Addr]bool
	former  map[netip.Addr]plan.ID // of owned
	dead    bool
	paused  bool
	ticked  int // when its last tick was
	waiting []*frame.Message
}

// event is something that happens to a node at a time.
type event struct {
	at, order int
	what      func()
}

// world is some nodes on a link, and a client that sees all frames.
type world struct {
	t       *testing.T
	random  *rand.Rand
	now     int
	members map[plan.ID]*member
	events  []event
	made    int
	cut     map[[2]plan.ID]bool
	loss    float64
	// believed is the node whose announcement of an address the client saw last.
	believed map[netip.Addr]plan.ID
	// twice is for how long more than one node answered for an address, and none for how long no node did.
	twice, none int
	watched     netip.Addr // by twice and none, if valid
}

func newWorld(t *testing.T, seed uint64, names ...string) *world {
	t.Helper()
	w := &world{
		t: t, random: rand.New(rand.NewPCG(seed, 1)), members: make(map[plan.ID]*member),
		cut: make(map[[2]plan.ID]bool), believed: make(map[netip.Addr]plan.ID),
	}
	for _, name := range names {
		w.start(name)
	}
	return w
}

// start starts the agent of a node, which has no plan yet.
func (w *world) start(name string) *member {
	m := &member{
		name: name, id: plan.IDOf(name), machine: New(plan.IDOf(name)), owned: make(map[netip.Addr]bool),
		former: make(map[netip.Addr]plan.ID),
	}
	w.members[m.id] = m
	m.ticked = w.now
	w.in(1+w.random.IntN(interval), func() { w.tick(m) })
	return m
}

func (w *world) named(name string) *member { return w.members[plan.IDOf(name)] }

func (w *world) in(delay int, what func()) {
	w.made++
	w.events = append(w.events, event{w.now + delay, w.made, what})
}

func (w *world) tick(m *member) {
	if m.dead || w.members[m.id] != m {
		return
	}
	if !m.paused {
		if w.now-m.ticked > 2*interval {
			w.do(m, m.machine.Resume())
			for _, in := range m.waiting {
				w.do(m, m.machine.Receive(in))
			}
			m.waiting = nil
		} else {
			w.do(m, m.machine.Tick())
		}
		m.ticked = w.now
		w.in(overdue, func() {
			if !m.dead && !m.paused {
				w.do(m, m.machine.Overdue())
			}
		})
	}
	w.in(interval, func() { w.tick(m) })
}

// do does what a machine says.
func (w *world) do(m *member, out Output) {
	for _, a := range out.Own {
		m.owned[a] = true
	}
	for _, a := range out.Disown {
		delete(m.owned, a)
	}
	for _, h := range out.Handed {
		if !m.owned[h.Addr] && h.Former != 0 {
			w.t.Errorf("%s is handed %s, for which it does not answer", m.name, h.Addr)
		}
		m.former[h.Addr] = h.Former
	}
	for _, a := range out.Announce {
		if !m.owned[a] {
			w.t.Errorf("%s announces %s, for which it does not answer", m.name, a)
		}
		w.believed[a] = m.id
	}
	for _, o := range out.Messages {
		// As on the link: it is written and read.
		b := frame.AppendMessage(nil, &o.Message, frame.Broadcast, frame.MAC{2})
		in, _, ok := frame.ParseMessage(b)
		if !ok {
			w.t.Fatalf("%+v cannot be read", o.Message)
		}
		for id := range w.members {
			if id != m.id && (o.To == 0 || o.To == id) && w.random.Float64() >= w.loss {
				w.in(latency, func() { w.deliver(m.id, id, &in) })
			}
		}
	}
}

func (w *world) deliver(from, to plan.ID, in *frame.Message) {
	m := w.members[to]
	switch {
	case m == nil || m.dead || w.cut[[2]plan.ID{from, to}]:
	case m.paused || w.now-m.ticked > 2*interval:
		m.waiting = append(m.waiting, in)
	default:
		w.do(m, m.machine.Receive(in))
	}
}

// run lets time pass.
func (w *world) run(duration int) {
	for end := w.now + duration; w.now < end; w.now++ {
		for {
			i := slices.IndexFunc(w.events, func(e event) bool { return e.at <= w.now })
			if i < 0 {
				break
			}
			due := slices.DeleteFunc(slices.Clone(w.events), func(e event) bool { return e.at > w.now })
			w.events = slices.DeleteFunc(w.events, func(e event) bool { return e.at <= w.now })
			slices.SortFunc(due, func(a, b event) int { return cmp.Compare(a.order, b.order) })
			for _, e := range due {
				e.what()
			}
		}
		if w.watched.IsValid() {
			switch n := len(w.owners(w.watched)); {
			case n > 1:
				w.twice++
			case n == 0:
				w.none++
			}
		}
	}
}

// owners returns the names of the nodes that answer for an address.
func (w *world) owners(a netip.Addr) (names []string) {
	for _, m := range w.members {
		if !m.dead && !m.paused && m.owned[a] && w.now-m.ticked <= 2*interval {
			names = append(names, m.name)
		}
	}
	slices.Sort(names)
	return names
}

// plan gives all nodes, or those named, the candidates of an address.
func (w *world) plan(a netip.Addr, ranked []string, to ...string) {
	var ids []plan.ID
	for _, name := range ranked {
		ids = append(ids, plan.IDOf(name))
	}
	for _, m := range w.members {
		if !m.dead && (len(to) == 0 || slices.Contains(to, m.name)) {
			w.do(m, m.machine.Put(a, Candidates{ids, true}))
		}
	}
}

// separate cuts the link between two nodes, or joins it.
func (w *world) separate(a, b string, cut bool) {
	x, y := plan.IDOf(a), plan.IDOf(b)
	w.cut[[2]plan.ID{x, y}], w.cut[[2]plan.ID{y, x}] = cut, cut
}

// measure measures the times without an owner and with two from now on.
func (w *world) measure(a netip.Addr) { w.watched, w.twice, w.none = a, 0, 0 }

// expect fails the test if others own an address, or the client believes another one.
func (w *world) expect(a netip.Addr, names ...string) {
	w.t.Helper()
	if got := w.owners(a); !slices.Equal(got, names) {
		w.t.Errorf("at %d ms %q answer for %s, want %q", w.now, got, a, names)
	}
	if len(names) == 1 && w.believed[a] != plan.IDOf(names[0]) {
		w.t.Errorf("at %d ms the client believes %s of %s, want %s", w.now, w.members[w.believed[a]].name, a, names[0])
	}
}

var vip = netip.MustParseAddr("192.0.2.1")

// settled returns a world in which a owns vip, and b and c are the next.
func settled(t *testing.T, seed uint64) *world {
	t.Helper()
	w := newWorld(t, seed, "a", "b", "c")
	w.plan(vip, []string{"a", "b", "c"})
	w.run(5000)
	w.expect(vip, "a")
	w.measure(vip)
	return w
}

// seeds are how often each test runs, with other times of ticks.
const seeds = 60

// TestKilled: the next one takes over within three intervals and a bit, and never before the other one is dead.
func TestKilled(t *testing.T) {
	t.Parallel()
	for seed := range uint64(seeds) {
		w := settled(t, seed)
		w.named("a").dead = true
		w.run(5000)
		w.expect(vip, "b")
		if most := Misses*interval + overdue + 10; w.none > most || w.twice > 0 {
			t.Errorf("seed %d: %d ms without an owner, %d ms with two; want at most %d, and 0", seed, w.none, w.twice, most)
		}
		w.measure(vip)
		w.start("a")
		w.plan(vip, []string{"a", "b", "c"}, "a")
		w.run(5000)
		w.expect(vip, "a")
		if w.none > 0 || w.twice > interval {
			t.Errorf("seed %d: when it returns, %d ms without an owner, %d ms with two", seed, w.none, w.twice)
		}
	}
}

// TestTwoKilled: the third one takes over when both before it are dead.
func TestTwoKilled(t *testing.T) {
	t.Parallel()
	w := settled(t, 1)
	w.named("a").dead, w.named("b").dead = true, true
	w.run(2000)
	w.expect(vip, "c")
}

// TestStopped: a node that stops hands its addresses over at once, and answers until it has.
func TestStopped(t *testing.T) {
	t.Parallel()
	for seed := range uint64(seeds) {
		w := settled(t, seed)
		a := w.named("a")
		w.do(a, a.machine.Stop())
		for a.machine.Owned() > 0 {
			w.run(1)
		}
		if took := w.now - 5000; took > 10 {
			t.Errorf("seed %d: %d ms until another one has the address", seed, took)
		}
		a.dead = true
		w.run(2000)
		w.expect(vip, "b")
		if w.none > 0 || w.twice > 5 {
			t.Errorf("seed %d: %d ms without an owner, %d ms with two", seed, w.none, w.twice)
		}
	}
}

// TestDrained: so does one that is no candidate any more, whoever learns of it first.
func TestDrained(t *testing.T) {
	t.Parallel()
	for claim, order := range map[string][]string{"the old owner first": {"a", "b", "c"}, "the new owner first": {"c", "b", "a"}} {
		w := settled(t, 1)
		for _, name := range order {
			w.plan(vip, []string{"b", "c"}, name)
			w.run(20)
		}
		w.expect(vip, "b")
		if w.none > 0 || w.twice > 21 {
			t.Errorf("%s: %d ms without an owner, %d ms with two", claim, w.none, w.twice)
		}
	}
}

// TestCordoned: one that becomes the last candidate hands over at once, whoever learns of it first.
func TestCordoned(t *testing.T) {
	t.Parallel()
	for claim, order := range map[string][]string{"the old owner first": {"a", "b", "c"}, "the new owner first": {"c", "b", "a"}} {
		for seed := range uint64(seeds) {
			w := settled(t, seed)
			for _, name := range order {
				w.plan(vip, []string{"b", "c", "a"}, name)
				w.run(20)
			}
			w.expect(vip, "b")
			if w.none > 0 || w.twice > 42 {
				t.Errorf("%s, seed %d: %d ms without an owner, %d ms with two", claim, seed, w.none, w.twice)
			}
		}
	}
}

// TestHanded: the new owner knows the former one before hosts know of the change, if that one lives.
func TestHanded(t *testing.T) {
	t.Parallel()
	for seed := range uint64(seeds) {
		w := settled(t, seed)
		expect := func(when, owner, former string) {
			t.Helper()
			w.expect(vip, owner)
			if got := w.named(owner).former[vip]; former == "" && got != 0 || former != "" && got != plan.IDOf(former) {
				t.Errorf("seed %d: %s, the former node of %s is %x, want %q", seed, when, owner, got, former)
			}
		}
		expect("settled", "a", "")
		w.plan(vip, []string{"b", "c", "a"})
		w.run(10)
		expect("cordoned", "b", "a")
		w.run(1000)
		w.plan(vip, []string{"a", "b", "c"})
		w.run(10)
		expect("and back", "a", "b")
		w.run(1000)
		w.do(w.named("a"), w.named("a").machine.Stop())
		w.run(10)
		expect("stopped", "b", "a")
		w.start("a")
		w.plan(vip, []string{"a", "b", "c"}, "a")
		if w.believed[vip] != plan.IDOf("b") {
			t.Errorf("seed %d: a tells hosts that it has the address before it knows who had it", seed)
		}
		w.run(10)
		expect("started again", "a", "b")
		w.run(1000)
		w.named("a").dead = true
		w.run(2000)
		expect("killed", "b", "")
	}
}

// formers returns the names of the nodes that a segment reaches of a connection which none of them knows, the owner of
// the address first.
func (w *world) formers(a netip.Addr) (names []string) {
	for id := w.believed[a]; id != 0 && len(names) <= len(w.members); id = w.members[id].former[a] {
		names = append(names, w.members[id].name)
	}
	return names
}

// TestHandedOn: connections go on at the nodes where they began when a node takes an address over and gives it at once
// to one before it that has just started.
func TestHandedOn(t *testing.T) {
	t.Parallel()
	for claim, leave := range map[string]func(w *world){
		"cordoned": func(w *world) {
			for _, name := range []string{"a", "b", "c"} {
				w.in(w.random.IntN(10), func() { w.plan(vip, []string{"b", "c", "a"}, name) })
			}
		},
		"stopped": func(w *world) { w.do(w.named("a"), w.named("a").machine.Stop()) },
	} {
		for seed := range uint64(seeds) {
			w := newWorld(t, seed, "a", "c")
			w.plan(vip, []string{"a", "b", "c"})
			w.run(5000)
			w.start("b")
			w.plan(vip, []string{"a", "b", "c"}, "b")
			w.run(int(seed) * 5)
			leave(w)
			w.run(2000)
			w.expect(vip, "b")
			if got := w.formers(vip); !slices.Equal(got, []string{"b", "a"}) && !slices.Equal(got, []string{"b", "c", "a"}) {
				t.Errorf("%s %d ms after b started: a segment reaches %q, want b and at last a", claim, seed*5, got)
			}
		}
	}
}

// TestClaimedTwice: a node that has just started takes an address over from two that claim it, and tells hosts of it
// when the first one has left it. It knows the other one.
func TestClaimedTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, "c")
	w.plan(vip, []string{"c", "b", "a"})
	c := w.named("c")
	for _, in := range []struct {
		from string
		kind frame.Kind
	}{{"b", frame.Active}, {"a", frame.Active}, {"b", frame.Release}} {
		w.do(c, c.machine.Receive(&frame.Message{
			Kind: in.kind, From: uint64(plan.IDOf(in.from)), About: uint64(c.id), Addrs: []netip.Addr{vip},
		}))
	}
	if got := c.former[vip]; w.believed[vip] != c.id || got != plan.IDOf("a") {
		t.Errorf("the former node is %x when hosts are told, want that of the last claim", got)
	}
}

// TestHandedBack: a node that gives an address back goes on to know the former node until hosts know of the change.
func TestHandedBack(t *testing.T) {
	t.Parallel()
	for seed := range uint64(seeds) {
		w := settled(t, seed)
		w.plan(vip, []string{"b", "c", "a"})
		w.run(1000)
		w.plan(vip, []string{"a", "b", "c"})
		w.run((returnTicks - 1) * interval)
		b := w.named("b")
		w.expect(vip, "a")
		if got := b.former[vip]; got != plan.IDOf("a") {
			t.Errorf("seed %d: just after, the former node of b is %x, want a", seed, got)
		}
		w.run(2 * interval)
		if got := b.former[vip]; got != 0 {
			t.Errorf("seed %d: later, the former node of b is %x, want none", seed, got)
		}
	}
}

// TestHandedAround: wherever an address goes, a segment reaches the owner before, and no node twice.
func TestHandedAround(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "d"}
	for seed := range uint64(seeds) {
		w := newWorld(t, seed, names...)
		w.plan(vip, names)
		w.run(2000)
		for range 20 {
			before := w.believed[vip]
			w.random.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
			ranked := slices.Clone(names)
			for _, name := range names {
				w.in(w.random.IntN(10), func() { w.plan(vip, ranked, name) })
			}
			w.run((returnTicks+1)*interval + w.random.IntN(1000))
			got := w.formers(vip)
			if !slices.Contains(got, w.members[before].name) {
				t.Errorf("seed %d: a segment reaches %q, and not %s, which had the address before", seed, got, w.members[before].name)
			}
			once := slices.Sorted(slices.Values(got))
			if len(slices.Compact(once)) != len(got) {
				t.Errorf("seed %d: a segment reaches %q", seed, got)
			}
		}
	}
}

// TestForeignRelease: a node that did not announce an address, or was denied it, does not become the former node.
func TestForeignRelease(t *testing.T) {
	t.Parallel()
	w := settled(t, 1)
	w.plan(vip, []string{"b", "c", "a"})
	w.run(1000)
	b := w.named("b")
	receive := func(from string, kind frame.Kind) {
		w.do(b, b.machine.Receive(&frame.Message{
			Kind: kind, From: uint64(plan.IDOf(from)), About: uint64(b.id), Addrs: []netip.Addr{vip},
		}))
	}
	expect := func(when, want string) {
		t.Helper()
		if got := b.former[vip]; got != plan.IDOf(want) {
			t.Errorf("%s, the former node is %x, want %q", when, got, want)
		}
	}
	receive("c", frame.Release)
	expect("after a Release of one that did not announce the address", "a")
	receive("x", frame.Active)
	receive("x", frame.Release)
	expect("after a Release of one that is no candidate", "a")
	receive("c", frame.Active)
	receive("c", frame.Release)
	expect("after a Release of a candidate that announced it", "c")
}

// TestNotServing: a node that cannot serve an address hands it over, and takes it back when it can.
func TestNotServing(t *testing.T) {
	t.Parallel()
	w := settled(t, 1)
	ids := []plan.ID{plan.IDOf("a"), plan.IDOf("b"), plan.IDOf("c")}
	a := w.named("a")
	w.do(a, a.machine.Put(vip, Candidates{ids, false}))
	w.run(10)
	w.expect(vip, "b")
	w.run(5000)
	w.expect(vip, "b")
	w.do(a, a.machine.Put(vip, Candidates{ids, true}))
	w.run(10)
	w.expect(vip, "a")

	// One that cannot serve from the start says so when it is asked.
	w = newWorld(t, 2, "a", "b", "c")
	w.do(w.named("a"), w.named("a").machine.Put(vip, Candidates{ids, false}))
	w.plan(vip, []string{"a", "b", "c"}, "b", "c")
	w.run(3 * interval)
	w.expect(vip, "b")
}

// TestManyNotServing: so it is with more addresses than a message has, if the node was dead before.
func TestManyNotServing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, "a", "b", "c")
	addrs, ids := make([]netip.Addr, 3*frame.MaxAddrs), []plan.ID{plan.IDOf("a"), plan.IDOf("b"), plan.IDOf("c")}
	for i := range addrs {
		addrs[i] = netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
		w.plan(addrs[i], []string{"a", "b", "c"})
	}
	w.run(2000)
	w.named("a").dead = true
	w.run(2000)
	w.start("a")
	for i, a := range addrs {
		w.do(w.named("a"), w.named("a").machine.Put(a, Candidates{ids, i%2 == 0}))
	}
	w.run(5000)
	for i, a := range addrs {
		w.expect(a, []string{"a", "b"}[i%2])
	}
	// The second one is dead, too, and returns unable to serve.
	w.named("b").dead = true
	w.run(2000)
	w.start("b")
	for _, a := range addrs {
		w.do(w.named("b"), w.named("b").machine.Put(a, Candidates{ids, false}))
	}
	w.run(5000)
	for i, a := range addrs {
		w.expect(a, []string{"a", "c"}[i%2])
	}
}

// TestIsolated: a node that is cut off goes on, and so does the rest; once they are joined, two answer until the next
// tick at most.
func TestIsolated(t *testing.T) {
	t.Parallel()
	for seed := range uint64(seeds) {
		w := settled(t, seed)
		w.separate("a", "b", true)
		w.separate("a", "c", true)
		w.run(10_000)
		w.expect(vip, "a", "b")
		w.separate("a", "b", false)
		w.separate("a", "c", false)
		w.measure(vip)
		w.run(5000)
		w.expect(vip, "a")
		if most := interval + 10; w.twice > most || w.none > 0 {
			t.Errorf("seed %d: joined, %d ms with two owners, want at most %d; %d ms without", seed, w.twice, most, w.none)
		}
	}
}

// TestWitness: two nodes that do not hear each other do not both announce an address if the third one hears both.
func TestWitness(t *testing.T) {
	t.Parallel()
	for seed := range uint64(seeds) {
		w := settled(t, seed)
		w.separate("a", "b", true)
		w.run(10_000)
		w.expect(vip, "a")
		if w.twice > 0 || w.none > 0 {
			t.Errorf("seed %d: %d ms with two owners, %d ms without", seed, w.twice, w.none)
		}
		w.named("a").dead = true
		w.measure(vip)
		w.run(5000)
		w.expect(vip, "b")
		if most := (Misses+1)*interval + overdue + 10; w.none > most {
			t.Errorf("seed %d: killed meanwhile, %d ms without an owner, want at most %d", seed, w.none, most)
		}
	}
}

// TestPaused: an agent that was stopped for a while takes its addresses back, and answers for no others.
func TestPaused(t *testing.T) {
	t.Parallel()
	for seed := range uint64(seeds) {
		w := settled(t, seed)
		w.named("a").paused = true
		w.run(10_000)
		w.expect(vip, "b")
		w.named("a").paused = false
		w.measure(vip)
		w.run(5000)
		w.expect(vip, "a")
		if w.twice > 5 || w.none > 0 {
			t.Errorf("seed %d: going on, %d ms with two owners, %d ms without", seed, w.twice, w.none)
		}
		// One that took over while the owner was dead, and is stopped meanwhile.
		w.named("a").dead = true
		w.run(3000)
		w.expect(vip, "b")
		w.named("b").paused = true
		w.run(3000)
		w.expect(vip, "c")
		w.measure(vip)
		w.named("b").paused = false
		w.run(5000)
		w.expect(vip, "b")
		if w.twice > interval+10 || w.none > 0 {
			t.Errorf("seed %d: the second going on, %d ms with two owners, %d ms without", seed, w.twice, w.none)
		}
	}
}

// TestPlansDiffer: where nodes know different states of the cluster, one of them announces the address.
func TestPlansDiffer(t *testing.T) {
	t.Parallel()
	abc, plans := []string{"a", "b", "c"}, map[string]map[string][]string{
		"one is left out, and does not know": {"a": {"a", "b", "c"}, "b": {"b", "c"}, "c": {"b", "c"}},
		"each thinks it is alone":            {"a": {"a"}, "b": {"b"}, "c": {"c"}},
		"one is left out, and is the last":   {"a": {"a", "b"}, "b": {"a", "b"}, "c": {"c"}},
		"one does not know of the others":    {"a": {"a", "b", "c"}, "b": {"a", "b", "c"}, "c": {"c"}},
	}
	for claim, of := range plans {
		for seed := range uint64(seeds) {
			w := settled(t, seed)
			for name, ranked := range of {
				w.plan(vip, ranked, name)
			}
			w.run(5000)
			if got := w.owners(vip); len(got) != 1 {
				t.Errorf("%s, seed %d: %q answer", claim, seed, got)
			}
			if most := AdvertTicks*interval + 10; w.twice > most {
				t.Errorf("%s, seed %d: two answered for %d ms, want at most %d", claim, seed, w.twice, most)
			}
			w.plan(vip, abc)
			w.run(2000)
			w.expect(vip, "a")
		}
	}
}

// TestConverges: after any history, one node announces each address: the first candidate that is alive and can serve.
func TestConverges(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		w := newWorld(t, seed, "a", "b", "c", "d")
		names, addrs := []string{"a", "b", "c", "d"}, make(map[netip.Addr][]string)
		for i := range 1 + r.IntN(4)*40 { // more than a message has
			a := netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
			r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			addrs[a] = slices.Clone(names[:1+r.IntN(3)])
			w.plan(a, addrs[a])
		}
		slices.Sort(names)
		w.loss = 0.05 * float64(r.IntN(3))
		for range 10 {
			w.disturb(r, names, addrs)
			w.run(r.IntN(1500))
		}
		w.heal(names, addrs)
		w.run(5000)
		for a, ranked := range addrs {
			if got := w.owners(a); !slices.Equal(got, ranked[:1]) {
				t.Errorf("%q answer for %s, want %q", got, a, ranked[:1])
			}
		}
		w.run(refreshTicks * interval)
		for _, a := range slices.SortedFunc(maps.Keys(addrs), netip.Addr.Compare) {
			w.expect(a, addrs[a][0])
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// disturb does something bad to a random node, or a random address.
func (w *world) disturb(r *rand.Rand, names []string, addrs map[netip.Addr][]string) {
	some := w.named(names[r.IntN(len(names))])
	switch r.IntN(6) {
	case 0:
		some.dead = true
	case 1:
		some.paused = !some.paused
	case 2:
		w.separate(names[r.IntN(len(names))], names[r.IntN(len(names))], r.IntN(2) == 0)
	case 3:
		if !some.dead {
			w.do(some, some.machine.Stop())
			some.dead = true
		}
	case 4:
		for a, ranked := range addrs {
			if !some.dead && r.IntN(3) == 0 {
				var ids []plan.ID
				for _, name := range ranked[r.IntN(len(ranked)):] {
					ids = append(ids, plan.IDOf(name))
				}
				w.do(some, some.machine.Put(a, Candidates{ids, r.IntN(2) == 0}))
			}
		}
	default:
		for a := range addrs {
			if !some.dead && r.IntN(3) == 0 {
				w.do(some, some.machine.Remove(a))
			}
		}
	}
}

// heal starts what is dead, joins what is separated and gives all nodes the same plan.
func (w *world) heal(names []string, addrs map[netip.Addr][]string) {
	w.loss = 0
	clear(w.cut)
	for _, name := range names {
		m := w.named(name)
		if m.paused = false; m.dead {
			w.start(name)
		}
	}
	for a, ranked := range addrs {
		w.plan(a, ranked)
	}
}

// TestBounded: a flood of messages about addresses and nodes that nobody knows is not kept.
func TestBounded(t *testing.T) {
	t.Parallel()
	m := New(plan.IDOf("a"))
	for i := range 10_000 {
		a := netip.MustParseAddr(fmt.Sprintf("198.51.%d.%d", i>>8, i&255))
		for kind := frame.Probe; kind <= frame.Deny; kind++ {
			m.Receive(&frame.Message{Kind: kind, From: uint64(i), About: uint64(m.self), Addrs: []netip.Addr{a}})
		}
	}
	if len(m.addrs) > 0 || len(m.peers) > 0 {
		t.Errorf("%d addresses and %d nodes are kept", len(m.addrs), len(m.peers))
	}
}
