package plan

import (
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/policy/ruleset/rulesettest"
)

// countFrom returns the number of random cases: that of an environment variable, for long runs, or the
// given one.
func countFrom(t *testing.T, variable string, short uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return short
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s is no number: %v", variable, err)
	}
	return n
}

// TestIncrementalEqualsFull checks that after any changes, coalesced in any way, the ruleset equals what
// is compiled from the final state; that the deltas lead to it, and have nothing that is no change.
// PORTOLAN_POLICY_HISTORIES is the number of histories.
func TestIncrementalEqualsFull(t *testing.T) {
	t.Parallel()
	for seed := range countFrom(t, "PORTOLAN_POLICY_HISTORIES", 1500) {
		h := newHistory(seed)
		config := Config{Node: "n1", DNS: dnsConfig}
		if seed%3 == 0 {
			config.Ranges = prefixesOf("10.1.0.0/29", "10.1.0.8/29", "10.2.0.0/16", "fd01::/64", "192.168.0.2/31")
		}
		if h.replay(config) == "" {
			continue
		}
		h = h.shrink(config)
		t.Fatalf("seed %d: after\n%s\n%s", seed, h, h.replay(config))
	}
}

// event changes the cluster or what is reported.
type event struct {
	put    cluster.Object // unless nil
	delete cluster.Ref    // unless zero
	report *report        // unless nil
	// seen: the compiler compiles what is pending, everything: as if all may have changed.
	seen, everything bool
}

// report is a Pod that starts on the node, or ends if it has no addresses.
type report struct {
	key   cluster.Key
	addrs []netip.Addr
	// devices are none, or one that no other Pod has.
	devices []uint32
}

func (e event) String() string {
	switch {
	case e.put != nil:
		return fmt.Sprintf("put %s %+v", e.put.Ref(), e.put)
	case e.report != nil:
		return fmt.Sprintf("report %+v", *e.report)
	case e.seen:
		return "compile"
	case e.everything:
		return "compile everything"
	}
	return "delete " + e.delete.String()
}

// history is events from an empty cluster on.
type history []event

func (h history) String() string {
	var b strings.Builder
	for _, e := range h {
		fmt.Fprintf(&b, "  %s\n", e)
	}
	return b.String()
}

func newHistory(seed uint64) (h history) {
	r := &random{rand.New(rand.NewPCG(seed, 21))}
	for range 5 + r.IntN(40) {
		h = append(h, r.event())
		if r.rarely(2) { // else the compiler is busy
			h = append(h, event{seen: true})
		}
	}
	return append(h, event{seen: true})
}

func (r *random) event() event {
	addr := func() netip.Addr { return podAddr(r.node(), 1+r.IntN(4), r.rarely(3)) }
	var o cluster.Object
	switch r.IntN(22) {
	case 0, 1:
		o = &cluster.Namespace{Name: r.namespace(), Labels: r.labels()}
	case 2:
		o = r.nodeObject(r.node())
	case 3, 4, 5, 6:
		o = r.policy()
	case 7, 8:
		o = r.clusterPolicy()
	case 9:
		o = r.service()
	case 10:
		key := r.key()
		return event{report: &report{key, some(r, 2, addr), some(r, 1, func() uint32 { return crc32.ChecksumIEEE([]byte(key.String())) })}}
	case 11:
		return event{everything: true}
	case 12, 13, 14, 15:
		p := r.pod(r.key(), "n1")
		p.IPs = []netip.Addr{podAddr("n1", int(p.Name[0]), false)} // nothing but labels changes often
		p.Spec.Ports = []cluster.Port{{Name: "web", Protocol: cluster.TCP, Number: 80}}
		o = p
	default:
		p := r.pod(r.key(), pick(r, "n1", "n1", "n2", ""), some(r, 2, addr)...)
		if p.Node != "" && r.rarely(6) {
			p.Spec.HostNetwork, p.IPs = true, []netip.Addr{netip.MustParseAddr("192.168.0." + p.Node[1:])}
		}
		o = p
	}
	if r.rarely(5) {
		return event{delete: o.Ref()}
	}
	return event{put: o}
}

// replay returns what is wrong after h, or in between; empty if nothing is.
func (h history) replay(config Config) string {
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Live, cluster.Kinds()...) })
	feed := store.Subscribe()
	defer feed.Close()
	w := &follower{compiler: New(config), state: rulesettest.NewState()}
	for _, e := range h {
		var problem string
		switch {
		case e.put != nil:
			store.Update(func(tx *cluster.Tx) { tx.Put(e.put) })
		case e.report != nil && len(e.report.addrs) == 0:
			w.compiler.ForgetLocal(e.report.key)
		case e.report != nil:
			w.compiler.SetLocal(e.report.key, Local{e.report.addrs, e.report.devices})
		case e.seen, e.everything:
			changes := feed.Pending()
			changes.Everything = changes.Everything || e.everything
			store.View(func(v *cluster.View) { problem = w.compile(v, &changes) })
		default:
			store.Update(func(tx *cluster.Tx) { tx.Delete(e.delete.Kind, e.delete.Key) })
		}
		if problem != "" {
			return problem
		}
	}
	return ""
}

// shrink returns a history that fails like h, and would not without any one of its events.
func (h history) shrink(config Config) history {
	for i := 0; i < len(h); {
		if less := slices.Delete(slices.Clone(h), i, i+1); less.replay(config) != "" {
			h, i = less, 0
			continue
		}
		i++
	}
	return h
}

// follower follows a cluster as the programmer of the kernel does.
type follower struct {
	compiler *Compiler
	state    *rulesettest.State
}

// compile compiles changes and returns what is wrong then.
func (w *follower) compile(v *cluster.View, changes *cluster.Changes) string {
	delta := w.compiler.Apply(v, changes)
	if problem := idle(delta, w.state, w.compiler); problem != "" {
		return problem
	}
	w.state.Apply(delta, w.compiler)
	full := New(w.compiler.config)
	for key, l := range w.compiler.Locals() {
		full.SetLocal(key, l)
	}
	full.Apply(v, &cluster.Changes{Everything: true})
	want := dump(full)
	if got := dump(w.compiler); !slices.Equal(want, got) {
		return "incremental result differs from full compile (-full +incremental):\n" + cmp.Diff(want, got)
	}
	if got := dump(w.state); !slices.Equal(want, got) {
		return "the deltas lead elsewhere (-full +deltas):\n" + cmp.Diff(want, got)
	}
	if want, got := full.Verdicts(), w.compiler.Verdicts(); !slices.Equal(want, got) {
		return fmt.Sprintf("verdicts after a full compile: %v, incremental: %v", want, got)
	}
	if want, got := full.podRanges, w.compiler.podRanges; !slices.Equal(want, got) {
		return fmt.Sprintf("ranges with foreign addresses after a full compile: %v, incremental: %v", want, got)
	}
	if want, got := full.Stats(), w.compiler.Stats(); want != got {
		return fmt.Sprintf("numbers after a full compile: %+v, incremental: %+v", want, got)
	}
	if want, got := len(full.subjects.byKey), len(w.compiler.subjects.byKey); want != got {
		return fmt.Sprintf("groups of subjects after a full compile: %d, incremental: %d", want, got)
	}
	return misuse(w.compiler)
}

// idle returns a change that changes nothing of a state, if there is one.
func idle(d *ruleset.Delta, was *rulesettest.State, is ruleset.Ruleset) string {
	for _, name := range d.NewSets {
		if _, there := was.Set(name); there {
			return "new set was there: " + name
		}
	}
	for _, name := range d.GoneSets {
		if _, there := was.Set(name); !there {
			return "gone set was not there: " + name
		}
	}
	for _, name := range d.NewChains {
		if was.Chain(name) != nil {
			return "new chain was there: " + name
		}
	}
	for _, name := range d.GoneChains {
		if was.Chain(name) == nil {
			return "gone chain was not there: " + name
		}
	}
	for name, c := range d.Elements {
		had := slices.Collect(was.Elements(name))
		for _, e := range c.Add {
			if slices.Contains(had, e) {
				return fmt.Sprintf("element added that is there: %s %v", name, e)
			}
		}
		for _, e := range c.Remove {
			if !slices.Contains(had, e) {
				return fmt.Sprintf("element removed that is not there: %s %v", name, e)
			}
		}
	}
	for _, addr := range d.Pods {
		old, had := was.Pod(addr)
		if now, has := is.Pod(addr); old == now && had == has {
			return fmt.Sprintf("Pod did not change: %s", addr)
		}
	}
	for _, index := range d.Devices {
		old, had := was.Device(index)
		if now, has := is.Device(index); old.Equal(&now) && had == has {
			return fmt.Sprintf("device did not change: %d", index)
		}
	}
	if d.Ranges && slices.Equal(was.Ranges(), is.Ranges()) {
		return "ranges did not change"
	}
	return ""
}

// misuse returns how a ruleset breaks the rules of its package, or that its ways to ask differ.
func misuse(rs ruleset.Ruleset) string {
	for name, s := range rs.Sets() {
		if len(name) > 31 || len(s.Comment) > 120 || printable(s.Comment, 200) != s.Comment {
			return fmt.Sprintf("set %q has comment %q", name, s.Comment)
		}
		seen := make(map[ruleset.Element]bool)
		for e := range rs.Elements(name) {
			if seen[e] {
				return fmt.Sprintf("set %s has %v twice", name, e)
			}
			if seen[e] = true; !rs.Contains(name, e.Prefix.Addr(), e.Protocol, e.Port) {
				return fmt.Sprintf("set %s has %v, and does not contain it", name, e)
			}
			for o := range rs.Elements(name) {
				if o != e && s.Kind == ruleset.Blocks && o.Prefix.Overlaps(e.Prefix) {
					return fmt.Sprintf("set %s has %v and %v", name, e.Prefix, o.Prefix)
				}
			}
		}
	}
	for name, chain := range rs.Chains() {
		if len(name) > 31 || len(chain.Comment) > 120 {
			return fmt.Sprintf("chain %q has comment %q", name, chain.Comment)
		}
		for _, r := range chain.Rules {
			_, there := rs.Set(r.Peers)
			if r.Peers != "" && !there || r.Action == ruleset.Goto && rs.Chain(r.Chain) == nil ||
				len(r.Reason) > maxReason || printable(r.Reason, maxReason) != r.Reason {
				return fmt.Sprintf("chain %s has the rule %+v", name, r)
			}
		}
	}
	return ""
}

// dump returns a line for everything in a ruleset.
func dump(rs ruleset.Ruleset) (lines []string) {
	for name, s := range rs.Sets() {
		lines = append(lines, fmt.Sprintf("set %s %+v", name, s))
		for e := range rs.Elements(name) {
			lines = append(lines, fmt.Sprintf("set %s has %v", name, e))
		}
	}
	for name, chain := range rs.Chains() {
		lines = append(lines, fmt.Sprintf("chain %s %+v", name, *chain))
	}
	for addr, pod := range rs.Pods() {
		lines = append(lines, fmt.Sprintf("pod %s %+v", addr, pod))
	}
	for index, device := range rs.Devices() {
		lines = append(lines, fmt.Sprintf("device %d %+v", index, device))
	}
	slices.Sort(lines)
	return append(lines, fmt.Sprint("ranges ", slices.SortedFunc(slices.Values(rs.Ranges()), comparePrefixes)))
}

// TestNamesAreStable checks that a set and a chain have the names that another process gives them.
func TestNamesAreStable(t *testing.T) {
	t.Parallel()
	compile := func() []string {
		r := &random{rand.New(rand.NewPCG(1, 1))}
		store := cluster.NewStore()
		store.Update(func(tx *cluster.Tx) {
			for range 60 {
				if e := r.event(); e.put != nil {
					tx.Put(e.put)
				}
			}
			tx.SetFreshness(cluster.Live, cluster.Kinds()...)
		})
		c := New(Config{Node: "n1"})
		store.View(func(v *cluster.View) { c.Apply(v, &cluster.Changes{Everything: true}) })
		return slices.Sorted(maps.Keys(c.chains))
	}
	first := compile()
	if len(first) == 0 {
		t.Fatal("no chains were compiled")
	}
	for range 5 {
		if again := compile(); !slices.Equal(first, again) {
			t.Fatalf("names of chains are %v, then %v", first, again)
		}
	}
}
