package plan

import (
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/network/nft"
	"portolan.dev/portolan/internal/network/route"
	"portolan.dev/portolan/internal/network/wireguard"
)

// histories is the number of random histories per run.
const histories = 1000

var comparePrefixes = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
var compareAddrs = cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})

// TestIncrementalEqualsFull checks that after any changes, of Nodes, ServiceCIDRs and the host, what the changes
// led to equals what is compiled from the final state, the verdicts too, and that no two peers have the same key.
func TestIncrementalEqualsFull(t *testing.T) {
	t.Parallel()
	for seed := range uint64(histories) {
		r := &random{rand.New(rand.NewPCG(seed, 3))}
		cfg := r.config()
		store, host := cluster.NewStore(), r.host()
		c := NewCompiler(cfg)
		var applied *applied
		store.View(func(v *cluster.View) { applied = newApplied(c.All(v, host)) })
		for step := range 12 {
			changed := make(map[string]struct{})
			store.Update(func(tx *cluster.Tx) {
				for range 1 + r.IntN(4) {
					r.change(tx, changed)
				}
			})
			store.View(func(v *cluster.View) {
				applied.apply(t, c.Apply(v, maps.Keys(changed)))
				if r.IntN(5) == 0 {
					host = r.host()
					applied.apply(t, c.SetHost(host))
				}
				want := NewCompiler(cfg)
				whole := want.All(v, host)
				if d := cmp.Diff(whole, applied.state(), comparePrefixes, compareAddrs); d != "" {
					t.Fatalf("seed %d, step %d: the changes led to (-want +got)\n%s", seed, step, d)
				}
				if d := cmp.Diff(whole, c.State(), comparePrefixes, compareAddrs); d != "" {
					t.Fatalf("seed %d, step %d: State (-want +got)\n%s", seed, step, d)
				}
				problems := maps.Collect(c.Problems())
				for n := range nodes {
					if v := want.Verdicts(name(n)); n > 0 && !slices.Equal(problems[name(n)], v) {
						t.Fatalf("seed %d, step %d: Problems() of %q: %v, want %v", seed, step, name(n), problems[name(n)], v)
					}
					if d := cmp.Diff(want.Verdicts(name(n)), c.Verdicts(name(n)), comparePrefixes, compareAddrs); d != "" {
						t.Fatalf("seed %d, step %d: Verdicts(%q) (-want +got)\n%s", seed, step, name(n), d)
					}
				}
				if want.Keyless() != c.Keyless() {
					t.Fatalf("seed %d, step %d: Keyless() = %d, want %d", seed, step, c.Keyless(), want.Keyless())
				}
				checkUnique(t, whole)
				checkRanges(t, whole.Ranges.Cluster)
			})
		}
	}
}

// applied is a state that changes are applied to.
type applied struct {
	local         route.Local
	peers         map[string]route.Peer
	pods, cluster map[netip.Prefix]bool
	members       map[netip.Prefix]bool // addresses of Nodes
	tunnels       map[string]wireguard.Peer
}

func newApplied(s *State) *applied {
	a := &applied{
		s.Routes.Local, make(map[string]route.Peer),
		make(map[netip.Prefix]bool), make(map[netip.Prefix]bool), make(map[netip.Prefix]bool), make(map[string]wireguard.Peer),
	}
	for _, p := range s.Tunnels {
		a.tunnels[p.Name] = p
	}
	for _, p := range s.Routes.Peers {
		a.peers[p.Name] = p
	}
	for set, all := range map[*map[netip.Prefix]bool][]netip.Prefix{
		&a.pods: s.Ranges.Pods, &a.cluster: s.Ranges.Cluster, &a.members: singles(s.Ranges.Nodes),
	} {
		for _, p := range all {
			(*set)[p] = true
		}
	}
	return a
}

// apply applies changes, each of which must change something.
func (a *applied) apply(t *testing.T, c *Changes) {
	t.Helper()
	if l := c.Routes.Local; l != nil {
		if l.Equal(&a.local) {
			t.Errorf("Local %+v is a change, and was there", l)
		}
		a.local = *l
	}
	for _, p := range c.Routes.Put {
		if was, ok := a.peers[p.Name]; ok && was.Equal(&p) {
			t.Errorf("peer %+v is a change, and was there", p)
		}
		a.peers[p.Name] = p
	}
	for _, n := range c.Routes.Delete {
		if _, ok := a.peers[n]; !ok {
			t.Errorf("peer %s is deleted, and was not there", n)
		}
		delete(a.peers, n)
	}
	a.applyTunnels(t, &c.Tunnels)
	change := func(set map[netip.Prefix]bool, add, remove []netip.Prefix) {
		for _, p := range remove {
			if !set[p] {
				t.Errorf("range %s is deleted, and was not there", p)
			}
			delete(set, p)
		}
		for _, p := range add {
			if set[p] {
				t.Errorf("range %s is added, and was there", p)
			}
			set[p] = true
		}
	}
	change(a.pods, c.Ranges.AddPods, c.Ranges.DeletePods)
	change(a.cluster, c.Ranges.AddCluster, c.Ranges.DeleteCluster)
	change(a.members, singles(c.Ranges.AddNodes), singles(c.Ranges.DeleteNodes))
}

func singles(addrs []netip.Addr) (all []netip.Prefix) {
	for _, a := range addrs {
		all = append(all, netip.PrefixFrom(a, a.BitLen()))
	}
	return all
}

func (a *applied) applyTunnels(t *testing.T, c *wireguard.Changes) {
	t.Helper()
	for _, p := range c.Put {
		if was, ok := a.tunnels[p.Name]; ok && was.Equal(&p) {
			t.Errorf("tunnel %+v is a change, and was there", p)
		}
		a.tunnels[p.Name] = p
	}
	for _, n := range c.Delete {
		if _, ok := a.tunnels[n]; !ok {
			t.Errorf("tunnel to %s is deleted, and was not there", n)
		}
		delete(a.tunnels, n)
	}
}

func (a *applied) state() *State {
	sorted := func(all iter.Seq[netip.Prefix]) []netip.Prefix { return slices.SortedFunc(all, netip.Prefix.Compare) }
	s := &State{Routes: route.Plan{Local: a.local}, Ranges: nft.Ranges{
		Pods: sorted(maps.Keys(a.pods)), Cluster: sorted(maps.Keys(a.cluster)),
		Nodes: addrsOfSingles(sorted(maps.Keys(a.members))),
	}}
	for _, name := range slices.Sorted(maps.Keys(a.peers)) {
		s.Routes.Peers = append(s.Routes.Peers, a.peers[name])
	}
	for _, name := range slices.Sorted(maps.Keys(a.tunnels)) {
		s.Tunnels = append(s.Tunnels, a.tunnels[name])
	}
	return s
}

// checkUnique: no two peers have a route, a neighbor, an entry or a tunnel with the same key.
func checkUnique(t *testing.T, s *State) {
	t.Helper()
	seen := make(map[string]string)
	seeAs := func(name, key string) {
		if other, ok := seen[key]; ok {
			t.Errorf("%s has %s, and so has %s", name, key, other)
		}
		seen[key] = name
	}
	for _, p := range s.Tunnels {
		seeAs(p.Name, "key "+p.Key.String())
		for _, a := range p.Allowed {
			seeAs(p.Name, "allowed "+a.String())
		}
	}
	for _, p := range s.Routes.Local.Unreachable {
		seeAs("the own node", "unreachable "+p.String())
	}
	for _, peer := range s.Routes.Peers {
		see := func(key string) { seeAs(peer.Name, key) }
		for _, u := range peer.Unreachable {
			see("unreachable " + u.String())
		}
		for _, r := range peer.Routes {
			see(fmt.Sprint("route ", r.Table, r.To))
		}
		for _, n := range peer.Neighbors {
			see(fmt.Sprint("neighbor ", n.Device, n.Addr))
		}
		for _, f := range peer.Forwards {
			see(fmt.Sprint("entry ", f.Device, f.MAC))
		}
	}
}

// checkRanges: ranges are sorted and disjoint.
func checkRanges(t *testing.T, all []netip.Prefix) {
	t.Helper()
	for i := 1; i < len(all); i++ {
		if all[i-1].Compare(all[i]) >= 0 || all[i-1].Overlaps(all[i]) {
			t.Errorf("ranges %s and %s", all[i-1], all[i])
		}
	}
}

// nodes is how many Nodes there are at most. They claim few ranges and addresses, so that many claims collide.
const nodes = 7

func name(i int) string { return fmt.Sprintf("node-%d", i) }

type random struct{ *rand.Rand }

func (r *random) config() Config {
	cfg := Config{
		Node: name(0), VNI: 80, Port: 4789,
		Encapsulation: []Encapsulation{CrossSubnet, Always, Never}[r.IntN(3)], NodesOutside: r.IntN(4) == 0,
		// Names lead to one of few MACs.
		mac: func(node string) route.MAC { return route.MACOf(string('a' + node[5]%5)) },
	}
	if r.IntN(2) == 0 {
		cfg.NonMasquerade = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/14"), netip.MustParsePrefix("192.0.2.0/30")}
	}
	if r.IntN(4) == 0 {
		cfg.MTU = 1400
	}
	if r.IntN(2) == 0 {
		cfg.Encryption, cfg.WireGuardPort, cfg.Keyless = WireGuard, 51820, []Keyless{Unreachable, Unencrypted}[r.IntN(2)]
	}
	return cfg
}

func (r *random) change(tx *cluster.Tx, changed map[string]struct{}) {
	if r.IntN(8) == 0 {
		s := &cluster.ServiceCIDR{Name: "a"}
		for range r.IntN(3) {
			s.CIDRs = append(s.CIDRs, r.prefix())
		}
		tx.Put(s)
		return
	}
	n := &cluster.Node{Name: name(r.IntN(nodes)), Created: int64(r.IntN(3))}
	changed[n.Name] = struct{}{}
	if r.IntN(4) == 0 {
		tx.Delete(cluster.KindNode, n.Ref().Key)
		return
	}
	for range r.IntN(3) {
		n.PodCIDRs = append(n.PodCIDRs, r.prefix())
	}
	for range r.IntN(4) {
		n.InternalIPs = append(n.InternalIPs, r.addr())
	}
	n.Ready = r.IntN(2) == 0
	n.WireGuardKey[0] = byte(r.IntN(5))
	tx.Put(n)
}

func (r *random) prefix() netip.Prefix {
	if r.IntN(3) == 0 {
		return netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 7: byte(r.IntN(4))}), 62+r.IntN(3)).Masked()
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(r.IntN(4)), byte(r.IntN(4)), 0}), []int{15, 16, 24, 24}[r.IntN(4)]).Masked()
}

func (r *random) addr() netip.Addr {
	switch r.IntN(8) {
	case 0:
		return netip.MustParseAddr([]string{"127.0.0.1", "fe80::1", "169.254.1.1", "0.0.0.0"}[r.IntN(4)])
	case 1, 2, 3:
		return netip.AddrFrom16([16]byte{0: 0xfc, 15: byte(1 + r.IntN(10))})
	case 4:
		return netip.AddrFrom4([4]byte{10, 1, 2, byte(r.IntN(3))})
	}
	return netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + r.IntN(10))})
}

func (r *random) host() (h route.Host) {
	for i := range r.IntN(4) {
		link := route.Interface{Name: fmt.Sprintf("eth%d", i), Index: 2 + i, MTU: 1500 + 100*r.IntN(2), Up: r.IntN(4) > 0}
		for range 1 + r.IntN(2) {
			a := r.addr()
			link.Addresses = append(link.Addresses, netip.PrefixFrom(a, a.BitLen()-r.IntN(5)))
		}
		h.Interfaces = append(h.Interfaces, link)
	}
	return h
}
