package policy

import (
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"portolan.dev/portolan/internal/cluster"
	kubeobject "portolan.dev/portolan/internal/kube/object"
	"portolan.dev/portolan/internal/policy/semantics"
	"portolan.dev/portolan/test/policy/policytest"
)

// The ranges of the Pods of the node, and of those of another one that has remote Pods; what is outside the
// node has all addresses of blockRoutes.
var (
	podRanges   = []string{"10.244.1.0/24", "fd00:244::1:0/112"}
	remotePods  = []string{"10.244.2.5", "fd00:244::2:5"}
	blockRoutes = []string{"10.0.0.0/8", "198.18.0.0/15", "fd00::/16", "2001:db8::/32"}
)

// overlaps makes random policies whose blocks overlap.
type overlaps struct {
	*rand.Rand
	bases map[bool][]netip.Addr // of blocks, by whether they are of IPv6
	addrs []netip.Addr          // to send probes from and to: those of Pods and at the borders of blocks
}

func pick[T any](r *overlaps, from []T) T { return from[r.IntN(len(from))] }

func newOverlaps(seed uint64, local []netip.Addr) *overlaps {
	r := &overlaps{Rand: rand.New(rand.NewPCG(seed, 23)), bases: make(map[bool][]netip.Addr), addrs: slices.Clone(local)}
	bases := append(slices.Clone(local), netip.MustParseAddr("198.18.5.7"), netip.MustParseAddr("2001:db8::5:7"))
	for _, text := range remotePods {
		bases = append(bases, netip.MustParseAddr(text))
	}
	for _, a := range bases {
		r.bases[a.Is6()] = append(r.bases[a.Is6()], a)
		if routed(a) {
			r.addrs = append(r.addrs, a)
		}
	}
	return r
}

// block returns a prefix about one of the bases that is inside another one, if that is valid, and smaller.
func (r *overlaps) block(inside netip.Prefix) netip.Prefix {
	base, least := pick(r, r.bases[r.IntN(2) == 0]), 0
	if inside.IsValid() {
		base, least = inside.Addr(), inside.Bits()+1
		near := slices.DeleteFunc(slices.Clone(r.bases[base.Is6()]), func(a netip.Addr) bool { return !inside.Contains(a) })
		if len(near) > 0 {
			base = pick(r, near)
		}
	}
	bits := base.BitLen()
	if steps := (bits - least) / 4; r.IntN(4) > 0 && steps > 0 {
		bits = least + 4*r.IntN(steps+1) + r.IntN(2)
	}
	p := netip.PrefixFrom(base, min(bits, base.BitLen())).Masked()
	r.addBorders(p)
	return p
}

// addBorders adds the addresses at both sides of the borders of a block.
func (r *overlaps) addBorders(p netip.Prefix) {
	first := p.Addr()
	last := first.AsSlice()
	for bit := p.Bits(); bit < len(last)*8; bit++ {
		last[bit/8] |= 0x80 >> (bit % 8)
	}
	end, _ := netip.AddrFromSlice(last)
	for _, a := range []netip.Addr{first.Prev(), first, end, end.Next()} {
		if a.IsValid() && routed(a) && !slices.Contains(r.addrs, a) {
			r.addrs = append(r.addrs, a)
		}
	}
}

// routed reports whether a probe can have an address that is no local Pod's.
func routed(a netip.Addr) bool {
	contains := func(text string) bool { return netip.MustParsePrefix(text).Contains(a) }
	return slices.ContainsFunc(blockRoutes, contains) && !slices.ContainsFunc(podRanges, contains)
}

// peer is a block, of which blocks are excepted that are in one another, or Pods.
func (r *overlaps) peer() networkingv1.NetworkPolicyPeer {
	if r.IntN(8) == 0 {
		return peer(pick(r, []string{"a", "b", "remote"}))[0]
	}
	p := r.block(netip.Prefix{})
	peer := networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: p.String()}}
	for inside := p; r.IntN(3) > 0 && inside.Bits() < p.Addr().BitLen(); {
		except := r.block(inside)
		peer.IPBlock.Except = append(peer.IPBlock.Except, except.String())
		if r.IntN(2) == 0 {
			inside = except
		}
	}
	return peer
}

// rule returns the peers and ports of a rule.
func (r *overlaps) rule() (peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) {
	for range 1 + r.IntN(3) {
		peers = append(peers, r.peer())
	}
	if r.IntN(2) == 0 {
		ports = []networkingv1.NetworkPolicyPort{{
			Protocol: new(corev1.ProtocolUDP), Port: new(intstr.FromInt32(port + r.Int32N(2))),
		}}
	}
	return peers, ports
}

func (r *overlaps) policy(name string) *networkingv1.NetworkPolicy {
	spec := networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{
		networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress,
	}}
	if n := r.IntN(4); n < 3 {
		spec.PodSelector = ofApp([]string{"a", "b", "c"}[n])
	}
	if n := r.IntN(4); n < 2 {
		spec.PolicyTypes = spec.PolicyTypes[n : n+1]
	}
	for range r.IntN(3) {
		peers, ports := r.rule()
		spec.Ingress = append(spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: peers, Ports: ports})
	}
	for range r.IntN(3) {
		peers, ports := r.rule()
		spec.Egress = append(spec.Egress, networkingv1.NetworkPolicyEgressRule{To: peers, Ports: ports})
	}
	return policy(name, spec)
}

// probes returns random probes of which at least one end is a Pod of the node.
func (r *overlaps) probes(local []netip.Addr, n int) (all []probe) {
	for len(all) < n {
		p := probe{from: pick(r, local), to: pick(r, r.addrs), port: port + uint16(r.IntN(2))}
		if r.IntN(2) == 0 {
			p.from, p.to = p.to, p.from
		}
		if p.from.Is4() == p.to.Is4() && p.from != p.to {
			all = append(all, p)
		}
	}
	return all
}

// model is what the evaluator knows of a cluster.
type model struct{ *cluster.Store }

func (m *model) put(t *testing.T, objects ...metav1.Object) {
	t.Helper()
	m.Update(func(tx *cluster.Tx) {
		for _, o := range objects {
			switch o := o.(type) {
			case *corev1.Pod:
				p, problems := kubeobject.Pod(o)
				must(t, problems.ToAggregate())
				tx.Put(p)
			case *networkingv1.NetworkPolicy:
				p, problems := kubeobject.NetworkPolicy(o)
				must(t, problems.ToAggregate())
				tx.Put(p)
			}
		}
	})
}

// allows returns what the evaluator says of probes.
func (m *model) allows(probes []probe) []bool {
	allowed := make([]bool, len(probes))
	m.View(func(v *cluster.View) {
		policies := semantics.NewSet(v)
		end := func(a netip.Addr) *semantics.End {
			e := semantics.NewEnds(v).At(a)
			e.Addrs = []netip.Addr{a}
			return e
		}
		for i, p := range probes {
			from, to, port := end(p.from), end(p.to), cluster.Port{Protocol: cluster.UDP, Number: p.port}
			allowed[i] = (from.Node != policytest.Node || policies.Egress(from, to, port).Allowed) &&
				(to.Node != policytest.Node || policies.Ingress(to, from, port).Allowed)
		}
	})
	return allowed
}

// gatePod is a Pod that no random policy selects, and gatePolicy one that lets only a client reach it: when
// that does, all that was changed before is in force.
func gatePod() *corev1.Pod {
	p := object("gate", nil)
	p.Namespace = "gate"
	return p
}

func gatePolicy(client netip.Addr) *networkingv1.NetworkPolicy {
	p := policy("gate", networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{
		From: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: client.String() + "/32"}}},
	}}})
	p.Namespace = "gate"
	return p
}

// TestBlocks has random policies whose blocks overlap one another, contain the ranges of Pods, and except
// blocks of which others are in one another. Probes pass if the evaluator says so. The variable ROUNDS is
// how often the policies change.
func TestBlocks(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	rounds := number(t, "ROUNDS", 12)
	m := &model{cluster.NewStore()}
	remote := object("remote", app("remote"))
	remote.Spec.NodeName = "node-2"
	remote.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: remotePods[0], PodIPs: []corev1.PodIP{
		{IP: remotePods[0]}, {IP: remotePods[1]},
	}}
	w.API.Put(theNode(podRanges...), remote)
	m.put(t, remote)
	lab := w.newProber(t, podRanges, blockRoutes, port, port+1)
	launch := func(o *corev1.Pod, number int) []netip.Addr {
		addrs := []netip.Addr{
			netip.AddrFrom4([4]byte{10, 244, 1, byte(number)}), netip.MustParseAddr("fd00:244::1:" + strconv.Itoa(number)),
		}
		p := w.Launch(t, o, addrs...)
		lab.join(t, p, port, port+1)
		m.put(t, p.Pod)
		return addrs
	}
	var local []netip.Addr
	for i, name := range []string{"a", "b", "c"} {
		local = append(local, launch(object(name, app(name)), 11+i)...)
	}
	gate, first := launch(gatePod(), 20)[0], netip.MustParseAddr("198.18.255.255")
	w.API.Put(gatePolicy(first))
	until(t, "the gate is closed", func() bool {
		probes := []probe{{netip.MustParseAddr("198.18.255.254"), gate, port}, {first, gate, port}}
		return !lab.pass(t, probes, func(i int) bool { return probes[i].from == first })[0]
	})
	sent, allowed := 0, 0
	for round := range rounds {
		r := newOverlaps(uint64(round), local)
		var all []metav1.Object
		for i := range 5 {
			all = append(all, r.policy("random-"+strconv.Itoa(i)))
		}
		client := netip.AddrFrom4([4]byte{198, 18, byte(round >> 8), byte(round)})
		all = append(all, gatePolicy(client))
		w.API.Put(all...)
		m.put(t, all...)
		until(t, "the policies are in force", func() bool {
			return lab.pass(t, []probe{{client, gate, port}}, func(int) bool { return false })[0]
		})
		lab.renew(t)
		probes := r.probes(local, 300)
		want := m.allows(probes)
		for i, passed := range lab.pass(t, probes, func(i int) bool { return want[i] }) {
			if passed != want[i] {
				t.Errorf("round %d: %s passed: %t, want %t", round, probes[i], passed, want[i])
			}
			if want[i] {
				allowed++
			}
		}
		sent += len(probes)
		if t.Failed() {
			text, err := json.MarshalIndent(all, "", " ")
			must(t, err)
			t.Fatalf("with the policies\n%s\n%s", text, ruleset(t))
		}
	}
	t.Logf("%d probes, %d allowed", sent, allowed)
	if allowed < sent/5 || allowed > sent*4/5 {
		t.Errorf("%d of %d probes were allowed: the test is too simple", allowed, sent)
	}
}
