package nft_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/policy/nft"
	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/policy/ruleset/rulesettest"
)

// model is a ruleset that changes at random.
type model struct {
	*rulesettest.State
	random *rand.Rand
	next   int            // number of a name
	depth  map[string]int // how many chains follow a chain
	// behind are the devices of the node that Pods are behind.
	behind []uint32
	// resolved are the addresses in sets of kind Resolved.
	resolved map[string]map[netip.Addr]struct{}
}

func newModel(w *world, random *rand.Rand) *model {
	m := &model{
		State: rulesettest.NewState(), random: random, depth: make(map[string]int),
		resolved: make(map[string]map[netip.Addr]struct{}), behind: []uint32{w.devices[podA[0]], w.devices[podB[0]], w.devices[podC[0]]},
	}
	m.SetRanges(ranges...)
	return m
}

// The addresses and prefixes of which random sets are made.
var (
	pool = slices.Concat(podA[:], podB[:], podC[:], outside[:], outside2[:])
	nets = prefixes("0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/1", "10.0.0.0/8", "11.0.0.0/8", "10.244.1.0/24", "10.244.1.8/29", "10.244.1.11/32",
		"10.244.1.12/31", "192.0.2.0/24", "192.0.2.0/29", "192.0.2.8/29", "192.0.2.7/32", "::/0", "fd00::/8", "fe00::/8", "fd00:244:1::10/124", "fd00:244:1::/64",
		"2001:db8::/32", "2001:db8::/125", "2001:db8::8/125", "255.255.255.255/32", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128")
	allRanges = [][]netip.Prefix{ranges, prefixes("10.244.1.0/28", "10.244.1.16/28", "fd00:244:1::/120"), prefixes("10.244.0.0/16", "fd00:244::/32")}
)

func choose[T any](random *rand.Rand, all []T) T { return all[random.IntN(len(all))] }

// elements returns elements for a set that has some.
func (m *model) elements(k ruleset.Kind, has map[ruleset.Element]struct{}) (all []ruleset.Element) {
	for range m.random.IntN(5) {
		var e ruleset.Element
		switch k {
		case ruleset.Hosts:
			e.Prefix = ruleset.Whole(choose(m.random, pool))
		case ruleset.HostPorts:
			e = ruleset.Element{Prefix: ruleset.Whole(choose(m.random, pool)), Protocol: choose(m.random, protocols[:3]), Port: 80 + uint16(m.random.IntN(3))}
		case ruleset.Blocks:
			e.Prefix = choose(m.random, nets)
		case ruleset.Resolved:
			return nil
		}
		if _, ok := has[e]; ok || slices.ContainsFunc(slices.Concat(all, slices.Collect(maps.Keys(has))), func(o ruleset.Element) bool {
			return o == e || k == ruleset.Blocks && o.Prefix.Overlaps(e.Prefix)
		}) {
			continue
		}
		all = append(all, e)
	}
	return all
}

func (m *model) name(prefix string) string {
	m.next++
	return fmt.Sprintf("%s-%x", prefix, m.next)
}

// change changes the model at random, and returns how.
func (m *model) change() *ruleset.Delta {
	d := &ruleset.Delta{Elements: make(map[string]ruleset.Change)}
	for range 1 + m.random.IntN(6) {
		one, from := m.one(d)
		m.Apply(one, from)
		d.NewSets, d.GoneSets = append(d.NewSets, one.NewSets...), append(d.GoneSets, one.GoneSets...)
		d.NewChains, d.GoneChains = append(d.NewChains, one.NewChains...), append(d.GoneChains, one.GoneChains...)
		maps.Copy(d.Elements, one.Elements)
		d.Pods, d.Devices, d.Ranges = append(d.Pods, one.Pods...), append(d.Devices, one.Devices...), d.Ranges || one.Ranges
	}
	return d
}

// one returns a single change besides those of another delta, and what it is described by.
func (m *model) one(besides *ruleset.Delta) (*ruleset.Delta, *rulesettest.State) {
	d, from := new(ruleset.Delta), rulesettest.NewState()
	sets, chains := slices.Sorted(maps.Keys(maps.Collect(m.Sets()))), slices.Sorted(maps.Keys(maps.Collect(m.Chains())))
	switch kind := m.random.IntN(13); {
	case kind < 2 && len(sets) < 40 || len(sets) < 3:
		k := ruleset.Kind(m.random.IntN(4))
		name := m.name([]string{"pods", "blocks", "ports", "names"}[k])
		from.PutSet(name, ruleset.Set{Kind: k, Comment: "set " + name}, m.elements(k, nil)...)
		if k == ruleset.Resolved {
			m.resolved[name] = make(map[netip.Addr]struct{})
		}
		d.NewSets = []string{name}
	case kind < 3:
		name := choose(m.random, sets)
		if m.usesSet(name) || slices.Contains(besides.NewSets, name) || besides.Elements[name].Add != nil || besides.Elements[name].Remove != nil {
			break
		}
		delete(m.resolved, name)
		d.GoneSets = []string{name}
	case kind < 6:
		name := choose(m.random, sets)
		_, changed := besides.Elements[name]
		set, _ := m.Set(name)
		if changed || set.Kind == ruleset.Resolved || slices.Contains(besides.NewSets, name) {
			break
		}
		var c ruleset.Change
		has := make(map[ruleset.Element]struct{})
		for e := range m.Elements(name) {
			if m.random.IntN(3) == 0 {
				c.Remove = append(c.Remove, e)
			} else {
				has[e] = struct{}{}
			}
		}
		c.Add = slices.DeleteFunc(m.elements(set.Kind, has), func(e ruleset.Element) bool { return slices.Contains(c.Remove, e) })
		d.Elements = map[string]ruleset.Change{name: c}
	case kind < 8 && len(chains) < 40 || len(chains) < 3:
		direction := ruleset.Direction(m.random.IntN(2))
		name := m.name([]string{"in", "out"}[direction])
		from.PutChain(name, m.newChain(name, direction, sets, chains))
		d.NewChains = []string{name}
	case kind < 9:
		name := choose(m.random, chains)
		if m.usesChain(name) || slices.Contains(besides.NewChains, name) {
			break
		}
		d.GoneChains = []string{name}
	case kind < 11:
		addr := choose(m.random, pool[:6])
		d.Pods = []netip.Addr{addr}
		if m.random.IntN(6) > 0 {
			from.PutPod(addr, ruleset.Pod{Ingress: m.chainOf(ruleset.Ingress, chains), Egress: m.chainOf(ruleset.Egress, chains)})
		}
	case kind < 12:
		index := choose(m.random, m.behind)
		d.Devices = []uint32{index}
		if m.random.IntN(3) > 0 {
			device := ruleset.Device{Egress: m.chainOf(ruleset.Egress, chains)}
			for _, addr := range pool[:6] {
				if m.random.IntN(2) == 0 {
					device.Addrs = append(device.Addrs, addr)
				}
			}
			from.PutDevice(index, device)
		}
	default:
		d.Ranges = true
		from.SetRanges(choose(m.random, allRanges)...)
	}
	return d, from
}

// chainOf returns a chain of a direction, or none.
func (m *model) chainOf(d ruleset.Direction, chains []string) string {
	name := choose(m.random, chains)
	if m.Chain(name).Direction != d {
		return ""
	}
	return name
}

func (m *model) usesSet(set string) bool {
	for _, c := range m.Chains() {
		if slices.ContainsFunc(c.Rules, func(r ruleset.Rule) bool { return r.Peers == set }) {
			return true
		}
	}
	return false
}

func (m *model) usesChain(chain string) bool {
	for _, c := range m.Chains() {
		if slices.ContainsFunc(c.Rules, func(r ruleset.Rule) bool { return r.Chain == chain }) {
			return true
		}
	}
	for _, d := range m.Devices() {
		if d.Egress == chain {
			return true
		}
	}
	for _, p := range m.Pods() {
		if p.Ingress == chain || p.Egress == chain {
			return true
		}
	}
	return false
}

// newChain returns a chain of random rules.
func (m *model) newChain(name string, d ruleset.Direction, sets, chains []string) *ruleset.Chain {
	c := &ruleset.Chain{Direction: d, Comment: "chain " + name}
	for i := range 1 + m.random.IntN(5) {
		r := ruleset.Rule{Action: ruleset.Action(m.random.IntN(4)), Reason: fmt.Sprintf("%s rule %d", name, i)}
		if set := choose(m.random, sets); m.random.IntN(4) > 0 {
			if s, _ := m.Set(set); s.Kind != ruleset.HostPorts || d == ruleset.Egress {
				r.Peers = set
			}
		}
		for range m.random.IntN(3) {
			first := 78 + uint16(m.random.IntN(6))
			p := ruleset.Ports{Protocol: choose(m.random, protocols[:3]), First: first, Last: first + uint16(m.random.IntN(3))}
			if m.random.IntN(4) == 0 {
				p.First, p.Last = 0, 65535
			}
			if !slices.ContainsFunc(r.Ports, func(o ruleset.Ports) bool {
				return o.Protocol == p.Protocol && o.First <= p.Last && p.First <= o.Last
			}) {
				r.Ports = append(r.Ports, p)
			}
		}
		if d == ruleset.Egress || m.random.IntN(2) == 0 {
			r.Where = []ruleset.Where{ruleset.Anywhere, ruleset.Anywhere, ruleset.ToSelf, ruleset.ToNode}[m.random.IntN(3+int(d))]
		}
		if r.Action == ruleset.Goto {
			r.Action = ruleset.Deny
			if len(chains) > 0 {
				if to := choose(m.random, chains); m.Chain(to).Direction == d && m.depth[to] <= 3 {
					r.Action, r.Chain = ruleset.Goto, to
					m.depth[name] = max(m.depth[name], m.depth[to]+1)
				}
			}
		}
		c.Rules = append(c.Rules, r)
	}
	return c
}

// resolve adds addresses to the sets of kind Resolved.
func (m *model) resolve(t *testing.T, table *nft.Table) {
	t.Helper()
	for _, set := range slices.Sorted(maps.Keys(m.resolved)) {
		for range m.random.IntN(3) {
			m.resolved[set][choose(m.random, pool)] = struct{}{}
		}
		must(t, table.AddResolved(set, slices.Collect(maps.Keys(m.resolved[set])), time.Hour))
	}
}

// isIn reports whether an address is in a set of kind Resolved.
func (m *model) isIn(set string, a netip.Addr) bool {
	_, ok := m.resolved[set][a]
	return ok
}

// packets returns random packets.
func (m *model) packets(n int) (all []packet) {
	for len(all) < n {
		i := m.random.IntN(2)
		p := packet{
			sender:   choose(m.random, [][2]netip.Addr{podA, podA, podB, podC, outside})[i],
			to:       choose(m.random, [][2]netip.Addr{podA, podA, podB, podC, outside, nodeInside, vip})[i],
			protocol: choose(m.random, protocols), port: 78 + uint16(m.random.IntN(8)),
		}
		p.from = p.sender
		if p.sender == outside[i] && m.random.IntN(2) == 0 {
			p.from = outside2[i]
		}
		switch m.random.IntN(10) {
		case 0:
			p.from = unknown[i]
		case 1, 2:
			p.from = choose(m.random, pool[:6])
			if p.from.Is4() != p.sender.Is4() {
				p.from = p.sender
			}
		case 3:
			if i == 1 && p.sender != outside[i] {
				p.from, p.to = ofLink, nodeInside[i] // it is not forwarded
			}
		}
		if p.to == vip[i] {
			p.seen = podA[i]
		} else if p.protocol == ruleset.TCP || p.protocol == ruleset.UDP {
			p.invalid = m.random.IntN(8) == 0 // what is not tracked is not translated
		}
		if p.sender != p.to && (p.from != p.to) {
			all = append(all, p)
		}
	}
	return all
}

// generation returns a number that each transaction of any program changes.
func generation(t *testing.T) uint32 {
	t.Helper()
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	must(t, err)
	defer c.Close()
	all, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   []byte{0, 0, 0, 0},
	})
	must(t, err)
	if len(all) != 1 || len(all[0].Data) < 12 {
		t.Fatalf("the kernel answers %v", all)
	}
	return uint32(all[0].Data[8])<<24 | uint32(all[0].Data[9])<<16 | uint32(all[0].Data[10])<<8 | uint32(all[0].Data[11])
}

// layout returns what nft lists of a table, in order, less what depends on time and packets.
func (w *world) layout(table string) (all []string) {
	w.t.Helper()
	var out struct{ Nftables []map[string]map[string]any }
	must(w.t, json.Unmarshal([]byte(w.command("-j", "list", "table", "inet", table)), &out))
	rules := make(map[any]int)
	for _, o := range out.Nftables {
		for kind, v := range o {
			delete(v, "handle")
			delete(v, "table")
			if kind == "metainfo" || kind == "table" {
				continue
			}
			if kind == "rule" {
				rules[v["chain"]]++
				v["number"] = rules[v["chain"]]
				for _, e := range v["expr"].([]any) {
					if c, ok := e.(map[string]any)["counter"].(map[string]any); ok {
						delete(c, "packets")
						delete(c, "bytes")
					}
				}
			}
			if elem, ok := v["elem"].([]any); ok {
				sort.Slice(elem, func(i, j int) bool { return fmt.Sprint(elem[i]) < fmt.Sprint(elem[j]) })
				if flags, ok := v["flags"].([]any); ok && slices.Contains(flags, any("timeout")) {
					delete(v, "elem")
				}
			}
			text, err := json.Marshal(o)
			must(w.t, err)
			all = append(all, string(text))
		}
	}
	slices.Sort(all)
	return all
}

// expect reports how the table differs from one that is made anew of rs, and that a Sync by another
// process changes nothing.
func (w *world) expect(what string, rs ruleset.Ruleset) {
	w.t.Helper()
	const other = "other"
	made, err := nft.New(nft.Config{Name: other, LogGroup: 5})
	must(w.t, err)
	defer made.Close()
	must(w.t, made.Sync(rs))
	want, got := w.layout(other), w.layout(nft.DefaultName)
	for _, line := range want {
		if !slices.Contains(got, line) {
			w.t.Errorf("%s: the table lacks %s", what, line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			w.t.Errorf("%s: the table has %s", what, line)
		}
	}
	_, err = nft.Cleanup(other)
	must(w.t, err)
	restarted := w.table()
	defer restarted.Close()
	before := generation(w.t)
	must(w.t, restarted.Sync(rs))
	if after := generation(w.t); after != before {
		w.t.Errorf("%s: Sync of an equal ruleset took %d transactions", what, after-before)
	}
	if w.t.Failed() {
		w.t.FailNow()
	}
}
