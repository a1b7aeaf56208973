package diff

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/semantics"
)

// random makes small clusters, and changes of them.
type random struct{ *rand.Rand }

func pick[T any](r random, of ...T) T { return of[r.IntN(len(of))] }

func (r random) labels(names ...string) map[string]string {
	labels := make(map[string]string)
	for _, name := range names {
		if r.IntN(2) == 0 {
			labels[name] = pick(r, "a", "b")
		}
	}
	return labels
}

func (r random) selector(names ...string) *cluster.Selector {
	s := &cluster.Selector{}
	if r.IntN(2) == 0 {
		s.Labels = map[string]string{pick(r, names...): pick(r, "a", "b")}
	}
	if r.IntN(4) == 0 {
		s.Requirements = []cluster.Requirement{{
			Label: pick(r, names...), Operator: pick(r, cluster.In, cluster.NotIn, cluster.Exists, cluster.DoesNotExist),
			Values: []string{"a"},
		}}
	}
	return s
}

func (r random) ports() (all []cluster.PolicyPort) {
	for range r.IntN(3) {
		p := cluster.PolicyPort{Protocol: pick(r, cluster.TCP, cluster.UDP)}
		switch r.IntN(4) {
		case 0:
			p.Name = pick(r, "http", "sql")
		case 1:
		default:
			p.Number = pick[uint16](r, 50, 53, 80)
			p.End = p.Number + pick[uint16](r, 0, 10)
		}
		all = append(all, p)
	}
	return all
}

var testBlocks = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("10.1.0.3/32"),
	netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.0.2.128/25"),
	netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("192.0.2.0/25"),
}

func (r random) peers() (all []cluster.PolicyPeer) {
	for range r.IntN(3) {
		switch r.IntN(4) {
		case 0:
			peer := cluster.PolicyPeer{Block: pick(r, testBlocks...)}
			if r.IntN(2) == 0 {
				peer.Except = []netip.Prefix{pick(r, testBlocks...)}
			}
			all = append(all, peer)
		case 1:
			all = append(all, cluster.PolicyPeer{Pods: r.selector("app", "tier")})
		case 2:
			all = append(all, cluster.PolicyPeer{Namespaces: r.selector("team"), Pods: r.selector("app", "tier")})
		default:
			all = append(all, cluster.PolicyPeer{Domains: []string{pick(r, "example.com", "*.example.com")}})
		}
	}
	return all
}

func (r random) policy(name string) *cluster.NetworkPolicy {
	p := &cluster.NetworkPolicy{
		Key: cluster.Key{Namespace: pick(r, "one", "two"), Name: name}, Pods: *r.selector("app", "tier"),
		Ingress: r.IntN(2) == 0, Egress: r.IntN(2) == 0, Audit: r.IntN(8) == 0,
	}
	for range r.IntN(3) {
		p.IngressRules = append(p.IngressRules, cluster.PolicyRule{Peers: r.peers(), Ports: r.ports()})
		p.EgressRules = append(p.EgressRules, cluster.PolicyRule{Peers: r.peers(), Ports: r.ports()})
	}
	return p
}

func (r random) tierRule(egress bool) cluster.TierRule {
	rule := cluster.TierRule{Action: pick(r, cluster.Accept, cluster.Deny, cluster.Pass), Ports: r.ports(), Unknown: r.IntN(10) == 0}
	peer := cluster.TierPeer{Pods: &cluster.PodPeer{Namespaces: *r.selector("team"), Pods: *r.selector("app", "tier")}}
	if egress {
		switch r.IntN(4) {
		case 0:
			peer = cluster.TierPeer{Networks: []netip.Prefix{pick(r, testBlocks...)}}
		case 1:
			peer = cluster.TierPeer{Nodes: r.selector("zone")}
		case 2:
			peer = cluster.TierPeer{Domains: []string{pick(r, "example.com", "*.example.com")}}
		}
	}
	rule.Peers = []cluster.TierPeer{peer}
	return rule
}

func (r random) tier(name string) *cluster.ClusterNetworkPolicy {
	p := &cluster.ClusterNetworkPolicy{
		Name: name, Tier: pick(r, cluster.AdminTier, cluster.BaselineTier), Priority: int32(r.IntN(3)),
		Subject: cluster.PodPeer{Namespaces: *r.selector("team"), Pods: *r.selector("app", "tier")}, Audit: r.IntN(8) == 0,
	}
	for range r.IntN(3) {
		p.IngressRules, p.EgressRules = append(p.IngressRules, r.tierRule(false)), append(p.EgressRules, r.tierRule(true))
	}
	return p
}

func (r random) pod(i int) *cluster.Pod {
	p := &cluster.Pod{
		Key: cluster.Key{Namespace: pick(r, "one", "two", "three"), Name: "pod-" + strconv.Itoa(i)}, Labels: r.labels(pick(r, []string{"app"}, []string{"app", "tier"}, []string{"free"})...),
		Node: pick(r, "n1", "n2"), IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i % 2), 0, byte(i)})},
		Spec: &cluster.PodSpec{HostNetwork: r.IntN(10) == 0}, Finished: r.IntN(20) == 0,
	}
	if r.IntN(2) == 0 {
		p.Spec.Ports = []cluster.Port{{Name: pick(r, "http", "sql"), Protocol: cluster.TCP, Number: pick[uint16](r, 80, 81)}}
	}
	return p
}

// cluster returns objects of a cluster.
func (r random) cluster() (all []cluster.Object) {
	for _, name := range []string{"one", "two", "three"} {
		all = append(all, &cluster.Namespace{Name: name, Labels: r.labels("team")})
	}
	for i, name := range []string{"n1", "n2"} {
		addr := netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + 128*i)})
		all = append(all, &cluster.Node{Name: name, Addresses: []netip.Addr{addr}, Labels: r.labels("zone")})
	}
	for i := range 1 + r.IntN(9) {
		all = append(all, r.pod(i))
	}
	for i := range r.IntN(4) {
		all = append(all, r.policy("p"+strconv.Itoa(i)))
	}
	for i := range r.IntN(3) {
		all = append(all, r.tier("t"+strconv.Itoa(i)))
	}
	return all
}

// change returns objects to apply.
func (r random) change() (all []cluster.Object) {
	for range 1 + r.IntN(2) {
		switch r.IntN(5) {
		case 0:
			all = append(all, r.tier("t"+strconv.Itoa(r.IntN(3))))
		case 1:
			all = append(all, &cluster.Namespace{Name: pick(r, "one", "two"), Labels: r.labels("team")})
		case 2:
			p := r.pod(r.IntN(10))
			p.Finished = false
			all = append(all, p)
		default:
			all = append(all, r.policy("p"+strconv.Itoa(r.IntN(4))))
		}
	}
	return all
}

// one is an end of a connection in enumerations.
type one struct {
	pod    *cluster.Pod // nil if it is none
	node   string
	name   string
	before *semantics.End
	after  *semantics.End
}

// enumerate returns all ends of a cluster: Pods, Nodes, some addresses and names outside.
func enumerate(was, is *cluster.View) (all []one) {
	for p := range is.Pods() {
		if p.Finished || p.Spec.HostNetwork {
			continue
		}
		then := p
		if old := was.Pod(p.Key); old != nil && !old.Spec.HostNetwork {
			then = old
		}
		all = append(all, one{pod: p, before: semantics.EndOf(then), after: semantics.EndOf(p)})
	}
	for n := range is.Nodes() {
		at := &semantics.End{Node: n.Name, Addrs: n.Addresses}
		all = append(all, one{node: n.Name, before: at, after: at})
	}
	for _, text := range []string{"10.1.0.77", "10.9.0.1", "192.0.2.99", "192.0.2.200", "198.51.100.1", "2001:db8::1", "2001:db9::1"} {
		at := &semantics.End{Addrs: []netip.Addr{netip.MustParseAddr(text)}}
		all = append(all, one{before: at, after: at})
	}
	for domain := range newMentioned(was, is).domains {
		name := strings.Replace(domain, "*", "www.test", 1)
		at := &semantics.End{Names: []string{name}, Addrs: []netip.Addr{netip.MustParseAddr("198.51.100.2")}}
		all = append(all, one{name: domain, before: at, after: at})
	}
	return all
}

// matches reports whether a party has an end; peer is the other end.
func (p *Party) matches(e, peer *one) bool {
	switch p.Kind {
	case Pods:
		if e.pod == nil || p.Namespace != "" && p.Namespace != e.pod.Namespace {
			return false
		}
		for _, name := range p.Absent {
			if _, ok := e.pod.Labels[name]; ok {
				return false
			}
		}
		return (&cluster.Selector{Labels: p.Labels}).Selects(e.pod.Labels) && (len(p.Names) == 0 || slices.Contains(p.Names, e.pod.Name))
	case Nodes:
		own := peer.pod != nil && peer.pod.Node == e.node
		return e.node != "" && own == p.Own && (len(p.Names) == 0 || slices.Contains(p.Names, e.node))
	case Network:
		if e.pod != nil || e.node != "" || e.name != "" {
			return false
		}
		addr := e.after.Addrs[0]
		in := func(text string) bool { return netip.MustParsePrefix(text).Contains(addr) }
		return p.Block == "" || in(p.Block) && !slices.ContainsFunc(p.Except, in)
	}
	return e.name != "" && p.Domain == e.name
}

// TestEnumeration verifies that Compare finds what comparing each pair of ends at each port finds.
func TestEnumeration(t *testing.T) {
	t.Parallel()
	found := 0
	for seed := range uint64(500) {
		r := random{rand.New(rand.NewPCG(seed, 21))}
		store := cluster.NewStore()
		store.Update(func(tx *cluster.Tx) {
			for _, o := range r.cluster() {
				tx.Put(o)
			}
		})
		changed := Manifests{Objects: r.change(), Prune: r.IntN(10) == 0}
		store.View(func(was *cluster.View) {
			Apply(was, changed).View(func(is *cluster.View) {
				found += compareAll(t, seed, was, is)
			})
		})
		if t.Failed() {
			return
		}
	}
	if found < 1000 {
		t.Errorf("only %d differences were found: the clusters are too simple", found)
	}
}

func compareAll(t *testing.T, seed uint64, was, is *cluster.View) (found int) {
	t.Helper()
	changes := Compare(was, is)
	sets := [sides]*semantics.Set{semantics.NewSet(was), semantics.NewSet(is)}
	allowed := func(s side, from, to *one, port cluster.Port) bool {
		a, b := from.before, to.before
		if s == after {
			a, b = from.after, to.after
		}
		return (from.pod == nil || sets[s].Egress(a, b, port).Allowed) && (to.pod == nil || sets[s].Ingress(b, a, port).Allowed)
	}
	ends := enumerate(was, is)
	used := make(map[*Change]bool)
	for i := range ends {
		for j := range ends {
			from, to := &ends[i], &ends[j]
			if i == j || from.pod == nil && to.pod == nil || from.name != "" {
				continue
			}
			for _, port := range testPorts() {
				want := ""
				switch then, now := allowed(before, from, to, port), allowed(after, from, to, port); {
				case now && !then:
					want = Opens
				case then && !now:
					want = Closes
				}
				if want != "" {
					found++
				}
				if got := covered(changes, from, to, port, used); got != want {
					t.Errorf("seed %d: %s → %s at %v: got %q, want %q in\n%v", seed, describe(from), describe(to), port, got, want, changes)
					return found
				}
			}
		}
	}
	for i := range changes {
		outside := func(p Party) bool { return p.Kind == Network || p.Kind == Domain } // of which a few are enumerated
		if c := &changes[i]; !used[c] && !slices.ContainsFunc(slices.Concat(c.From, c.To), outside) {
			t.Errorf("seed %d: there are no connections as in %s", seed, c)
		}
	}
	return found
}

func testPorts() (all []cluster.Port) {
	for _, protocol := range []cluster.Protocol{cluster.TCP, cluster.UDP, cluster.SCTP} {
		for _, n := range []uint16{1, 49, 50, 53, 60, 61, 63, 64, 80, 81, 90, 91, 65535} {
			all = append(all, cluster.Port{Protocol: protocol, Number: n})
		}
	}
	return append(all, cluster.Port{Protocol: "other"})
}

// covered returns what changes do with a connection, and notes which have it.
func covered(changes []Change, from, to *one, port cluster.Port, used map[*Change]bool) (what string) {
	for i := range changes {
		c := &changes[i]
		if slices.ContainsFunc(c.From, func(p Party) bool { return p.matches(from, to) }) &&
			slices.ContainsFunc(c.To, func(p Party) bool { return p.matches(to, from) }) &&
			slices.ContainsFunc(c.Ports, func(p Ports) bool {
				return p.Protocol == port.Protocol && p.First <= port.Number && port.Number <= p.Last
			}) {
			if what != "" {
				return "both or twice"
			}
			what, used[c] = c.Change, true
		}
	}
	return what
}

func describe(e *one) string {
	switch {
	case e.pod != nil:
		return fmt.Sprintf("%s %v on %s", e.pod.Key, e.pod.Labels, e.pod.Node)
	case e.node != "":
		return e.node
	}
	return e.after.Addrs[0].String()
}
