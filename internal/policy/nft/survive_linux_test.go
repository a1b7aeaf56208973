package nft_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/policy/nft"
	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/policy/ruleset/rulesettest"
	"portolan.dev/portolan/internal/support/ctnetlink/ctnetlinktest"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// damage returns commands of nft that damage the table of a model.
func (m *model) damage() string {
	base := choose(m.random, []string{"forward", "input"})
	var sets, chains []string
	for name, s := range m.Sets() {
		if s.Kind != ruleset.Resolved {
			sets = append(sets, name+"-4", name+"-6")
		}
	}
	for name := range m.Chains() {
		chains = append(chains, name)
	}
	slices.Sort(sets)
	slices.Sort(chains)
	sets, chains = append(sets, "ranges-4", "self-6"), append(chains, base, "egress", "ingress", "unknown-in")
	set, chain := choose(m.random, sets), choose(m.random, chains)
	const hook = "type filter hook forward priority "
	return strings.ReplaceAll(choose(m.random, []string{
		"flush set inet TABLE " + set,
		"flush map inet TABLE egress-4; flush map inet TABLE ingress-6",
		"flush set inet TABLE " + set + "; flush set inet TABLE self-4",
		"flush chain inet TABLE " + chain,
		"insert rule inet TABLE " + chain + " accept",
		"add rule inet TABLE " + chain + " counter",
		"flush chain inet TABLE " + chain + "; add rule inet TABLE " + chain + " tcp dport 80 drop",
		"flush chain inet TABLE " + base + "; delete chain inet TABLE " + base,
		"flush chain inet TABLE " + base + "; delete chain inet TABLE " + base + "; add chain inet TABLE " + base + " { " + hook + "7; }",
		"flush chain inet TABLE forward; flush chain inet TABLE input; delete chain inet TABLE egress; add chain inet TABLE egress { " + hook + "-1; }",
		"chain inet TABLE " + base + " { policy drop; }",
		"add chain inet TABLE other { " + hook + "-90; policy drop; }",
		"add chain inet TABLE other; add rule inet TABLE other drop; insert rule inet TABLE " + base + " jump other",
		"add map inet TABLE other { type ipv4_addr : verdict; }; add chain inet TABLE more; add element inet TABLE other { 10.0.0.1 : goto more }; insert rule inet TABLE " + base + " ip saddr vmap @other",
		"flush table inet TABLE; delete set inet TABLE ranges-4; add set inet TABLE ranges-4 { type ipv4_addr; }",
		"add element inet TABLE egress-4 { 10.244.1.77 : drop }; add element inet TABLE ranges-6 { 2001:db8:1::/64 }",
		"add set inet TABLE other { type inet_service; }",
		"flush table inet TABLE",
		"delete table inet TABLE",
		"delete table inet TABLE; add table inet TABLE",
		"add table inet TABLE { flags dormant; }",
		"flush ruleset",
	}), "TABLE", nft.DefaultName)
}

// TestDamage damages the table at random: a Sync repairs it, and packets pass as Judge says.
func TestDamage(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	l := newLab(w)
	table := w.table()
	m := newModel(w, rand.New(rand.NewPCG(5, 6)))
	must(t, table.Sync(m))
	for i := range events(t, 60) {
		must(t, table.Apply(m, m.change()))
		command := m.damage()
		w.command(command)
		what := fmt.Sprintf("damage %d, %s", i, command)
		must(t, table.Sync(m))
		m.resolve(t, table)
		var packets []packet
		for _, p := range m.packets(20) {
			if !p.seen.IsValid() { // flush ruleset ends the translation
				packets = append(packets, p)
			}
		}
		l.compare(m, m.isIn, packets)
		w.expect(what, m)
	}
}

// TestKept: what is in sets of kind Resolved stays when the table is replaced since another set is damaged.
func TestKept(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	table := w.table()
	must(t, table.Sync(rules(nil, nil)))
	must(t, table.AddResolved("names", outside[:], time.Hour))
	w.command("flush table inet portolan-policy; delete set inet portolan-policy ranges-4; add set inet portolan-policy ranges-4 { type ipv4_addr; }")
	must(t, table.Sync(rules(nil, nil)))
	if left := w.expires(outside[0]); left < 3000 || left > 3600 {
		t.Errorf("%d seconds are left of an hour", left)
	}
	w.expect("after the damage", rules(nil, nil))
}

// TestWatch: changes by other programs are reported, also those right after Sync; own ones are not, also if
// they are more than the buffer holds, and lost messages are.
func TestWatch(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	table := w.table()
	m := newModel(w, rand.New(rand.NewPCG(7, 8)))
	s := rules(nil, nil)
	must(t, table.Sync(s))
	w.command("flush chain inet portolan-policy forward")
	notices, ended := make(chan nft.Notice, 1), make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	watch := func() { go func(ctx context.Context) { ended <- table.Watch(ctx, notices) }(ctx) }
	watch()
	await := func(want nft.Notice) {
		t.Helper()
		select {
		case got := <-notices:
			if got != want {
				t.Errorf("notice %d, want %d", got, want)
			}
		case <-time.After(patience):
			t.Fatal("no notice")
		}
	}
	await(nft.Changed)
	must(t, table.Sync(s))
	stop()
	must(t, <-ended)

	// Own changes are no news.
	must(t, table.Sync(m))
	must(t, table.Deafen())
	ctx, stop = context.WithCancel(t.Context())
	watch()
	for range 100 {
		must(t, table.Apply(m, m.change()))
		m.resolve(t, table)
	}
	must(t, table.AddResolved(m.anyResolved(t, table), outside[:], time.Millisecond)) // which expire soon
	if err := table.AddResolved("absent", outside[:], time.Hour); !isUnknownSet(err) {
		t.Error(err)
	}
	must(t, table.Sync(m)) // sockets are opened again after errors
	select {
	case got := <-notices:
		t.Errorf("notice %d of own changes", got)
	default:
	}
	w.command("add chain inet portolan-policy foreign")
	await(nft.Changed)

	// Messages about another table overflow the buffer, unless they are read as fast as the kernel sends them.
	var many strings.Builder
	many.WriteString("add table ip many\nadd set ip many s { type ipv4_addr; }\nflush set ip many s\n")
	for i := range 5000 {
		fmt.Fprintf(&many, "add element ip many s { 10.0.%d.%d }\n", i>>8, i&255)
	}
	file := filepath.Join(t.TempDir(), "many")
	must(t, os.WriteFile(file, []byte(many.String()), 0o600))
	var lost nft.Notice
	for deadline := time.Now().Add(patience); lost != nft.Lost && time.Now().Before(deadline); {
		w.command("-f", file)
		select {
		case lost = <-notices:
		case <-time.After(patience / 20):
		}
	}
	if lost != nft.Lost {
		t.Errorf("notice %d, want %d", lost, nft.Lost)
	}
	stop()
	must(t, <-ended)
}

// anyResolved returns a set of kind Resolved.
func (m *model) anyResolved(t *testing.T, table *nft.Table) string {
	t.Helper()
	for len(m.resolved) == 0 {
		must(t, table.Apply(m, m.change()))
	}
	return slices.Sorted(maps.Keys(m.resolved))[0]
}

// TestEstablished: a connection that exists goes on in both directions, whatever the chains say, and the table
// is in force while nobody has it open.
func TestEstablished(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	l := newLab(w)
	table := w.table()
	onlyTCP := []ruleset.Rule{{Peers: "hosts", Ports: []ruleset.Ports{only(ruleset.TCP, 8080)}}, deny}
	must(t, table.Sync(rules([]ruleset.Rule{deny}, onlyTCP)))
	for i := range 2 {
		c := w.connect(podA[i], w.serveEcho(netip.AddrPortFrom(podB[i], 8080)))
		echo(t, c)
		must(t, table.Sync(rules([]ruleset.Rule{deny}, []ruleset.Rule{deny})))
		echo(t, c)
		must(t, table.Sync(rules([]ruleset.Rule{deny}, nil)))
		namespacetest.Do(t, w.hosts[podA[i]], func() { // an error is related
			c, err := net.Dial("udp", netip.AddrPortFrom(podB[i], 9).String())
			must(t, err)
			defer c.Close()
			for begin := time.Now(); !errors.Is(err, unix.ECONNREFUSED); {
				if time.Since(begin) > patience {
					t.Errorf("no error comes back from %s: %v", podB[i], err)
					break
				}
				_, _ = c.Write([]byte("hello"))
				must(t, c.SetReadDeadline(time.Now().Add(time.Second)))
				_, err = c.Read(make([]byte, 1))
			}
		})
		must(t, table.Sync(rules([]ruleset.Rule{deny}, onlyTCP)))
	}
	must(t, table.Close())
	var packets []packet
	var want []bool
	for i := range 2 {
		for _, port := range []uint16{8080, 8081} {
			packets = append(packets, packet{sender: podA[i], from: podA[i], to: podB[i], protocol: ruleset.TCP, port: port})
			want = append(want, port == 8080)
		}
	}
	for i, got := range l.pass(packets, want) {
		if got != want[i] {
			t.Errorf("without an agent: %s passed: %v, want %v", packets[i], got, want[i])
		}
	}
	w.expect("after a restart", rules([]ruleset.Rule{deny}, onlyTCP))
	for _, want := range []bool{true, false} {
		if removed, err := nft.Cleanup(nft.DefaultName); removed != want || err != nil {
			t.Errorf("Cleanup: %v, %v; want %v", removed, err, want)
		}
	}
	if out := w.command("list", "tables"); out != "" {
		t.Errorf("after Cleanup there are %s", out)
	}
}

// TestMany loads 100,000 elements, changes one of them, and has a restart change nothing.
func TestMany(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	const groups, members = 200, 500
	s := rulesettest.NewState()
	s.SetRanges(ranges...)
	var chain ruleset.Chain
	for g := range groups {
		var elements []ruleset.Element
		for i := range members {
			n := g*members + i
			elements = append(elements, hosts(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}))...)
		}
		name := fmt.Sprintf("pods-%d", g)
		s.PutSet(name, ruleset.Set{}, elements...)
		chain.Rules = append(chain.Rules, ruleset.Rule{Peers: name, Ports: []ruleset.Ports{only(ruleset.TCP, uint16(g))}})
	}
	s.PutChain("in-0", &chain)
	for i := range 250 {
		s.PutPod(netip.AddrFrom4([4]byte{10, 244, 1, byte(i)}), ruleset.Pod{Ingress: "in-0"})
	}
	table := w.table()
	first, begin, before := generation(t), time.Now(), heap()
	must(t, table.Sync(s))
	const most = 20_000 // elements in a transaction, to its end each with a message of 4 KiB for listeners
	if n := generation(t) - first; n < groups*members/most {
		t.Errorf("a new table of %d elements took %d transactions", groups*members, n)
	}
	t.Logf("a new table took %v, and %d MB of heap besides %d", time.Since(begin), heap()-before, before)
	restarted := w.table()
	begin = time.Now()
	first = generation(t)
	must(t, restarted.Sync(s))
	if n := generation(t) - first; n != 0 {
		t.Errorf("a restart took %d transactions", n)
	}
	t.Logf("a restart took %v; the heap has %d MB", time.Since(begin), heap())
	w.costs(restarted, s)
	change := map[string]ruleset.Change{"pods-7": {Add: hosts(podA[0])}}
	s.Apply(&ruleset.Delta{Elements: change}, s)
	must(t, restarted.Apply(s, &ruleset.Delta{Elements: change}))

	// A table that must be replaced takes one transaction.
	w.command("flush table inet portolan-policy; delete set inet portolan-policy ranges-4; add set inet portolan-policy ranges-4 { type ipv4_addr; }")
	first = generation(t)
	begin = time.Now()
	must(t, restarted.Sync(s))
	t.Logf("a replacement took %v; the heap has %d MB", time.Since(begin), heap())
	if n := generation(t) - first; n != 1 {
		t.Errorf("a replacement took %d transactions", n)
	}
	w.expect("after the replacement", s)
}

// costs logs the processor time that changes of a large table take.
func (w *world) costs(table *nft.Table, s *rulesettest.State) {
	w.t.Helper()
	s.Apply(&ruleset.Delta{NewSets: []string{"names"}}, rules(nil, nil))
	must(w.t, table.Apply(s, &ruleset.Delta{NewSets: []string{"names"}}))
	one := ruleset.Change{Add: hosts(podB[0])}
	for _, c := range []struct {
		what string
		do   func(i int) error
	}{
		{"an element", func(int) error {
			c := map[string]ruleset.Change{"pods-9": one}
			one.Add, one.Remove = one.Remove, one.Add
			return table.Apply(s, &ruleset.Delta{Elements: c})
		}},
		{"an address of a name", func(i int) error {
			return table.AddResolved("names", []netip.Addr{netip.AddrFrom4([4]byte{11, 0, byte(i >> 8), byte(i)})}, time.Hour)
		}},
		{"the same address again", func(int) error { return table.AddResolved("names", outside[:1], time.Hour) }},
		{"16 addresses of a name", func(i int) error {
			var all []netip.Addr
			for n := range 16 {
				all = append(all, netip.AddrFrom4([4]byte{12, byte(n), byte(i >> 8), byte(i)}))
			}
			return table.AddResolved("names", all, time.Hour)
		}},
		{"a Pod", func(i int) error {
			s.PutPod(podB[0], ruleset.Pod{Ingress: []string{"", "in-0"}[i%2]})
			return table.Apply(s, &ruleset.Delta{Pods: podB[:1]})
		}},
	} {
		runtime.LockOSThread()
		var all []time.Duration
		for i := range 301 {
			begin := threadTime(w.t)
			must(w.t, c.do(i))
			all = append(all, threadTime(w.t)-begin)
		}
		runtime.UnlockOSThread()
		slices.Sort(all)
		w.t.Logf("%s: min %v, p50 %v of processor time", c.what, all[0], all[len(all)/2])
	}
	s.PutPod(podB[0], ruleset.Pod{})
	must(w.t, table.Apply(s, &ruleset.Delta{Pods: podB[:1]}))
	if one.Remove != nil {
		must(w.t, table.Apply(s, &ruleset.Delta{Elements: map[string]ruleset.Change{"pods-9": {Remove: hosts(podB[0])}}}))
	}
}

// threadTime is the processor time of the thread.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	must(t, unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now))
	return time.Duration(now.Nano())
}

// heap returns how much memory the process has got for its heap so far.
func heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapSys >> 20
}

// TestKernelWithout: an error names what the kernel lacks, and nothing is left.
func TestKernelWithout(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	table := w.table()
	err := table.TryAbsent("logs to a moon", "counters of stars")
	if err == nil || !strings.Contains(err.Error(), "the kernel lacks logs to a moon, counters of stars: ") {
		t.Errorf("the error is %v", err)
	}
	must(t, table.TryAbsent())
	if out := w.command("list", "tables"); out != "" {
		t.Errorf("there are %s", out)
	}
}

// TestChainsChange gives a Pod other chains that accept all, over and over: no packet is lost.
func TestChainsChange(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	l := newLab(w)
	table := w.table()
	s := rules(nil, nil)
	for i := range 2 {
		s.PutChain(fmt.Sprintf("in-all-%d", i), &ruleset.Chain{Rules: []ruleset.Rule{{}}})
		s.PutChain(fmt.Sprintf("out-all-%d", i), &ruleset.Chain{Direction: ruleset.Egress, Rules: []ruleset.Rule{{}}})
	}
	must(t, table.Sync(s))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	changes := 0
	go func() {
		for ; ctx.Err() == nil; changes++ {
			for _, a := range podA {
				s.PutPod(a, ruleset.Pod{Ingress: fmt.Sprintf("in-all-%d", changes%2), Egress: fmt.Sprintf("out-all-%d", changes%2)})
			}
			if err := table.Apply(s, &ruleset.Delta{Pods: podA[:]}); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	var packets []packet
	for n := range 30 {
		i := n % 2
		packets = append(packets, packet{sender: podA[i], from: podA[i], to: podB[i], protocol: ruleset.TCP, port: 80})
		packets = append(packets, packet{sender: podB[i], from: podB[i], to: podA[i], protocol: ruleset.TCP, port: 80})
	}
	all := slices.Repeat([]bool{true}, len(packets))
	for range 50 {
		for i, passed := range l.pass(packets, all) {
			if !passed {
				t.Errorf("%s did not pass", packets[i])
			}
		}
	}
	stop()
	must(t, <-ended)
	t.Logf("%d packets, %d changes", 50*len(packets), changes)
}

// TestFamilies: there is nothing of a family that no Pod has, until one has.
func TestFamilies(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	l := newLab(w)
	table := w.table()
	of := func(families int) *rulesettest.State {
		s := rules([]ruleset.Rule{{Peers: "outer"}, deny}, []ruleset.Rule{{Peers: "names"}, deny})
		s.SetRanges(ranges[:families]...)
		if families < 2 {
			s.Apply(&ruleset.Delta{Pods: []netip.Addr{podA[1], podB[1]}}, rulesettest.NewState())
		}
		return s
	}
	must(t, table.Sync(of(1)))
	must(t, table.AddResolved("names", outside[:], time.Hour))
	list := w.command("list", "table", "inet", nft.DefaultName)
	if strings.Contains(list, "ip6 saddr @") || strings.Contains(list, "-6 ") || !strings.Contains(list, "192.0.2.7 timeout 1h") {
		t.Errorf("with addresses of IPv4 only, the table is\n%s", list)
	}
	one := map[string]ruleset.Change{"none": {Add: hosts(outside2[:]...)}}
	s := of(1)
	s.Apply(&ruleset.Delta{Elements: one}, s)
	must(t, table.Apply(s, &ruleset.Delta{Elements: one}))
	w.expect("with IPv4", s)
	s = of(2)
	must(t, table.Apply(s, &ruleset.Delta{Pods: []netip.Addr{podA[1], podB[1]}, Ranges: true}))
	w.expect("with the first Pod of IPv6", s)
	must(t, table.AddResolved("names", outside[1:], time.Hour))
	var packets []packet
	var want []bool
	for i := range 2 {
		for _, from := range [][2]netip.Addr{outside, podB} {
			packets = append(packets, packet{sender: from[i], from: from[i], to: podA[i], protocol: ruleset.TCP, port: 80})
			packets = append(packets, packet{sender: podA[i], from: podA[i], to: from[i], protocol: ruleset.TCP, port: 80})
			want = append(want, from == outside, from == outside)
		}
	}
	for i, passed := range l.pass(packets, want) {
		if passed != want[i] {
			t.Errorf("%s passed: %v, want %v", packets[i], passed, want[i])
		}
	}
	s = of(1)
	must(t, table.Sync(s))
	w.expect("with IPv4 again", s)
	must(t, table.Sync(rulesettest.NewState()))
	w.expect("with nothing", rulesettest.NewState())
}

// TestApplyFails: a Delta that does not fit changes nothing, Apply fails from then on, and Sync repairs.
func TestApplyFails(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	table := w.table()
	s := rules([]ruleset.Rule{deny}, nil)
	fits := &ruleset.Delta{Elements: map[string]ruleset.Change{"none": {Add: hosts(podC[0])}}}
	if err := table.Apply(s, fits); err == nil {
		t.Error("Apply before Sync succeeds")
	}
	for what, d := range map[string]*ruleset.Delta{
		"a new set that is there":    {NewSets: []string{"hosts"}},
		"a new set without contents": {NewSets: []string{"absent"}},
		"a new chain that is there":  {NewChains: []string{"in-0"}},
		"a set that is used goes":    {GoneSets: []string{"hosts"}},
		"a chain that is used goes":  {GoneChains: []string{"in-0"}},
		"an element that is not there goes, another comes": {Elements: map[string]ruleset.Change{
			"none": {Add: hosts(podC[0])}, "hosts": {Remove: hosts(podC[0])},
		}},
	} {
		must(t, table.Sync(s))
		if err := table.Apply(s, d); err == nil || !strings.HasPrefix(err.Error(), "nftables table inet portolan-policy: ") {
			t.Errorf("%s: the error is %v", what, err)
		}
		if err := table.Apply(s, fits); err == nil {
			t.Errorf("%s: the next Apply succeeds", what)
		}
		w.expect(what, s)
	}
	must(t, table.Sync(s))
	s.Apply(fits, s)
	must(t, table.Apply(s, fits))
	w.expect("at the end", s)
}

// TestConcurrent adds addresses of names while the table is changed, damaged and repaired: each is there
// when AddResolved has returned, unless the table was deleted.
func TestConcurrent(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	table := w.table()
	s := rules([]ruleset.Rule{deny}, nil)
	must(t, table.Sync(s))
	ended := make(chan error, 1)
	const addresses = 500
	go func() {
		for i := range addresses {
			if err := table.AddResolved("names", []netip.Addr{netip.AddrFrom4([4]byte{11, 0, byte(i >> 8), byte(i)})}, time.Hour); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	for i := 0; len(ended) == 0; i++ {
		d := &ruleset.Delta{Elements: map[string]ruleset.Change{"none": {Add: hosts(podC[0])}}}
		if i%2 == 1 {
			d.Elements["none"] = ruleset.Change{Remove: hosts(podC[0])}
		}
		s.Apply(d, s)
		must(t, table.Apply(s, d))
		if i%10 == 0 {
			w.command("flush set inet portolan-policy hosts-4")
			must(t, table.Sync(s))
		}
	}
	must(t, <-ended)
	if n := strings.Count(w.command("list", "set", "inet", nft.DefaultName, "names-4"), "timeout 1h"); n != addresses {
		t.Errorf("%d addresses are in the set, want %d", n, addresses)
	}
	w.expect("at the end", s)
}

// TestAddedDuringSync: answers do not wait until Sync has read the table, and do not make it read again.
func TestAddedDuringSync(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	table := w.table()
	s := rules([]ruleset.Rule{deny}, nil)
	many := make([]ruleset.Element, 60_000)
	for i := range many {
		many[i] = hosts(netip.AddrFrom4([4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)}))[0]
	}
	s.PutSet("many", ruleset.Set{Kind: ruleset.Hosts}, many...)
	must(t, table.Sync(s))
	w.command("delete element inet portolan-policy many-4 { 11.0.0.7 }; flush set inet portolan-policy hosts-4")
	synced := make(chan error, 1)
	go func() { synced <- table.Sync(s) }()
	begin, added := time.Now(), 0
	var times [][2]time.Duration // when each addition began and ended
	for ; len(synced) == 0 && time.Since(begin) < patience; added++ {
		at := time.Since(begin)
		must(t, table.AddResolved("names", []netip.Addr{netip.AddrFrom4([4]byte{12, 0, byte(added >> 8), byte(added)})}, time.Hour))
		times = append(times, [2]time.Duration{at, time.Since(begin)})
	}
	took := time.Since(begin)
	must(t, <-synced)
	isMidway := func(at [2]time.Duration) bool { return at[0] > took/4 && at[1] < took*3/4 }
	if !slices.ContainsFunc(times, isMidway) {
		t.Errorf("none of %d answers was programmed midway in the %v of Sync", added, took)
	}
	if n := strings.Count(w.command("list", "set", "inet", nft.DefaultName, "names-4"), "timeout 1h"); n != added {
		t.Errorf("%d addresses are in the set, want %d", n, added)
	}
	w.expect("after Sync", s)
}

// TestAdjacentBlocks removes many blocks that touch one another, by Sync and by Apply, in any order.
func TestAdjacentBlocks(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	table := w.table()
	random := rand.New(rand.NewPCG(11, 12))
	for range 10 {
		s := rules(nil, nil)
		var many []ruleset.Element
		for i := range 64 {
			for _, text := range []string{fmt.Sprintf("10.1.%d.0/24", i), fmt.Sprintf("fd01:%x00::/24", i)} {
				many = append(many, ruleset.Element{Prefix: netip.MustParsePrefix(text)})
			}
		}
		random.Shuffle(len(many), func(i, j int) { many[i], many[j] = many[j], many[i] })
		s.PutSet("many", ruleset.Set{Kind: ruleset.Blocks}, many...)
		must(t, table.Sync(s))
		less := map[string]ruleset.Change{"many": {Remove: many[:40]}}
		s.Apply(&ruleset.Delta{Elements: less}, s)
		must(t, table.Apply(s, &ruleset.Delta{Elements: less}))
		w.expect("with fewer blocks", s)
		s.PutSet("many", ruleset.Set{Kind: ruleset.Blocks}, many[:5]...)
		must(t, table.Sync(s))
		w.expect("with other blocks", s)
	}
}

// TestTrackingFull: while the kernel can track no other connection, those that it tracks go on, and it drops
// the packets of others, which policies deny or not. Policies hold when there is room again.
func TestTrackingFull(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	l := newLab(w)
	s := rules([]ruleset.Rule{{Ports: []ruleset.Ports{only(ruleset.TCP, 8080)}}, deny}, nil)
	must(t, w.table().Sync(s))
	forgetConnections(t) // of the lab, which would make room
	server := w.serveEcho(netip.AddrPortFrom(podA[0], 8080))
	c := w.connect(podB[0], server)
	echo(t, c)
	fillTracking(t)

	var packets []packet
	for i := range 2 {
		for _, from := range []netip.Addr{podB[i], outside[i]} {
			for _, p := range protocols {
				packets = append(packets, packet{sender: from, from: from, to: podA[i], protocol: p, port: 80})
			}
			packets = append(packets,
				packet{sender: from, from: from, to: podA[i], protocol: ruleset.TCP, port: 80, invalid: true},
				packet{sender: from, from: from, to: podA[i], protocol: ruleset.TCP, port: 8080})
		}
	}
	ids := make([]uint32, len(packets))
	for i, p := range packets {
		ids[i] = l.send(p)
	}
	echo(t, c)
	forgetConnections(t)
	for begin := time.Now(); len(l.mark()) > 0; {
		if time.Since(begin) > patience {
			t.Fatal("packets of the node do not arrive")
		}
	}
	for i, p := range packets {
		if _, passed := l.take(ids[i]); passed {
			t.Errorf("%s passed while the kernel could not track it", p)
		}
	}
	l.compare(s, nil, packets)
}

// fillTracking has the node track as many connections as the kernel lets it.
func fillTracking(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_max")
	must(t, err)
	limit, err := strconv.Atoi(strings.TrimSpace(string(text)))
	must(t, err)
	to := netip.MustParseAddrPort("203.0.113.1:443")
	var flows []ctnetlinktest.Flow
	for i := range limit + 1 {
		client := netip.AddrFrom4([4]byte{198, 18, byte(i >> 24), byte(i >> 16)})
		flows = append(flows, ctnetlinktest.Flow{
			Protocol: uint8(ruleset.TCP), Client: netip.AddrPortFrom(client, uint16(i)), Destination: to, Replies: to,
		})
	}
	if err := ctnetlinktest.Create(flows...); !errors.Is(err, unix.ENOMEM) {
		t.Fatalf("tracking %d connections: %v, want %v", len(flows), err, unix.ENOMEM)
	}
}

// serveEcho serves TCP at an address of a Pod: what it gets it sends back.
func (w *world) serveEcho(at netip.AddrPort) net.Addr {
	w.t.Helper()
	var server net.Listener
	namespacetest.Do(w.t, w.hosts[at.Addr()], func() {
		var err error
		server, err = net.Listen("tcp", at.String())
		must(w.t, err)
	})
	w.t.Cleanup(func() { server.Close() })
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	return server.Addr()
}

// connect connects from a Pod by TCP.
func (w *world) connect(from netip.Addr, to net.Addr) net.Conn {
	w.t.Helper()
	var c net.Conn
	namespacetest.Do(w.t, w.hosts[from], func() {
		var err error
		c, err = net.DialTimeout("tcp", to.String(), patience)
		must(w.t, err)
	})
	w.t.Cleanup(func() { c.Close() })
	return c
}

// echo has octets go there and back.
func echo(t *testing.T, c net.Conn) {
	t.Helper()
	must(t, c.SetDeadline(time.Now().Add(patience)))
	_, err := c.Write([]byte("hello"))
	must(t, err)
	_, err = io.ReadFull(c, make([]byte, 5))
	must(t, err)
}
