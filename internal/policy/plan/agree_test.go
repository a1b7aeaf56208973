package plan

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/policy/semantics"
)

// TestAgreesWithSemantics asks random questions about random clusters: the rulesets of the nodes of both
// ends, judged as the kernel does it, must say what semantics says. PORTOLAN_POLICY_CLUSTERS is the number
// of clusters, with 300 questions each.
func TestAgreesWithSemantics(t *testing.T) {
	t.Parallel()
	for seed := range countFrom(t, "PORTOLAN_POLICY_CLUSTERS", 400) {
		w := newWorld(seed)
		for range 300 {
			if problem := w.ask(); problem != "" {
				t.Fatalf("seed %d: %s\n%s", seed, problem, w)
			}
		}
	}
}

// world is a cluster, its nodes' rulesets and the evaluator.
type world struct {
	*random
	objects   []cluster.Object
	view      *cluster.View
	rulesets  map[string]*Compiler
	evaluator *semantics.Set
	dns       *semantics.DNS
	// names are those of addresses outside the cluster.
	names map[netip.Addr][]string
	addrs []netip.Addr // to ask about
}

func (w *world) String() string {
	var b strings.Builder
	for _, o := range w.objects {
		text, err := json.Marshal(o)
		fmt.Fprintf(&b, "  %s %s %v\n", o.Ref(), text, err)
	}
	return b.String()
}

func newWorld(seed uint64) *world {
	w := &world{random: &random{rand.New(rand.NewPCG(seed, 22))}, rulesets: make(map[string]*Compiler), names: make(map[netip.Addr][]string)}
	for _, name := range []string{"one", "two", "three"} {
		if !w.rarely(4) {
			w.objects = append(w.objects, &cluster.Namespace{Name: name, Labels: w.labels()})
		}
	}
	nodes := []string{"n1", "n2", "n3"}
	for _, name := range nodes {
		n := w.nodeObject(name)
		w.objects, w.addrs = append(w.objects, n), append(w.addrs, n.Addresses...)
	}
	for i := range 3 + w.IntN(10) {
		w.objects = append(w.objects, w.placedPod(i, nodes))
	}
	for range w.IntN(7) {
		w.objects = append(w.objects, w.policy())
	}
	for range w.IntN(4) {
		w.objects = append(w.objects, w.clusterPolicy())
	}
	if !w.rarely(4) {
		w.objects = append(w.objects, w.service())
	}
	for _, text := range []string{"192.0.2.1", "198.51.100.1", "2001:db8::1", "fd09::1"} {
		addr := netip.MustParseAddr(text)
		w.addrs, w.names[addr] = append(w.addrs, addr), some(w.random, 2, func() string { return pick(w.random, "a.example", "b.example", "www.a.example") })
	}
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		for _, o := range w.objects {
			tx.Put(o)
		}
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
	})
	store.View(func(v *cluster.View) { // nothing changes the store any more
		w.view, w.evaluator, w.dns = v, semantics.NewSet(v), semantics.FindDNS(v, dnsConfig.Service, dnsConfig.Addrs)
		for _, name := range nodes {
			c := New(Config{Node: name, DNS: dnsConfig})
			if seed%2 == 0 {
				c.dispatchFrom, c.setDigits = 1, 1
			}
			c.Apply(v, &cluster.Changes{Everything: true})
			w.rulesets[name] = c
		}
	})
	return w
}

// placedPod returns a Pod whose addresses no other Pod has, or one in the network of its node.
func (w *world) placedPod(i int, nodes []string) *cluster.Pod {
	node := pick(w.random, nodes...)
	key := cluster.Key{Namespace: w.namespace(), Name: fmt.Sprint("p", i)}
	addrs := []netip.Addr{podAddr(node, i+1, false), podAddr(node, i+1, true)}
	switch w.IntN(5) {
	case 0:
		addrs = addrs[1:]
	case 1, 2:
		addrs = addrs[:1]
	}
	p := w.pod(key, node, addrs...)
	if w.rarely(8) {
		p.Spec.HostNetwork = true
		p.IPs = []netip.Addr{netip.MustParseAddr("192.168.0." + node[1:])}
	} else if !p.Finished {
		w.addrs = append(w.addrs, addrs...)
	}
	return p
}

// endAt returns the end at an address, as packets from and to this address only.
func (w *world) endAt(addr netip.Addr) *semantics.End {
	e := semantics.NewEnds(w.view).At(addr)
	e.Addrs, e.Names = []netip.Addr{addr}, w.names[addr]
	return e
}

// question is a connection.
type question struct {
	from, to netip.Addr
	port     cluster.Port
}

// ask asks a random question and returns what is wrong with the answer.
func (w *world) ask() string {
	q := question{from: pick(w.random, w.addrs...), to: pick(w.random, w.addrs...)}
	q.port = cluster.Port{Protocol: w.protocol(), Number: pick[uint16](w.random, 53, 80, 81, 82, 500, 8080, 9080)}
	if w.rarely(20) {
		q.port = cluster.Port{Protocol: "ICMP"}
	}
	if w.rarely(20) {
		q.to, q.port.Number = dnsConfig.Addrs[0], 53
	}
	if q.from.Is4() != q.to.Is4() {
		return ""
	}
	if q.to == dnsConfig.Addrs[0] {
		return w.askDNS(&q)
	}
	from, to := w.endAt(q.from), w.endAt(q.to)
	isPod := func(e *semantics.End) bool { return e.Namespace != "" }
	var want ruleset.Verdict // of the node of the source, if that is a Pod
	egress := semantics.Verdict{Allowed: true}
	if isPod(from) {
		egress = w.evaluator.Egress(from, to, q.port)
		want = w.expect(want, ruleset.Egress, &egress)
	}
	ingress := semantics.Verdict{Allowed: true}
	if isPod(to) {
		ingress = w.evaluator.Ingress(to, from, q.port)
	}
	toNode := !isPod(to) && to.Node != "" && to.Node == from.Node
	if isPod(from) {
		if from.Node == to.Node && isPod(to) && egress.Allowed {
			want = w.expect(want, ruleset.Ingress, &ingress)
		}
		if problem := w.compare(from.Node, &q, toNode, &want); problem != "" {
			return problem
		}
	}
	if !isPod(to) || from.Node == to.Node { // what the node sends to its Pods is not judged
		return ""
	}
	want = w.expect(ruleset.Verdict{}, ruleset.Ingress, &ingress)
	return w.compare(to.Node, &q, false, &want)
}

// expect adds to the verdict of a ruleset what semantics says about a direction.
func (w *world) expect(v ruleset.Verdict, d ruleset.Direction, of *semantics.Verdict) ruleset.Verdict {
	for i := range of.Audit {
		denial := &of.Audit[i]
		v.Reports = append(v.Reports, ruleset.Denial{Direction: d, Reason: reasonOf(d, denial.Decider, denial.Policies)})
	}
	if v.Allowed = of.Allowed; !of.Allowed {
		v.Denial = ruleset.Denial{Direction: d, Reason: reasonOf(d, of.Decider, of.Policies)}
	}
	return v
}

// reasonOf returns the reason of a denial.
func reasonOf(d ruleset.Direction, decider semantics.TierRule, policies []*cluster.NetworkPolicy) string {
	if decider.Policy != nil {
		return tierReason(decider.Policy, d, decider.Rule)
	}
	var compiled []*policy
	for _, p := range policies {
		compiled = append(compiled, networkPolicy(p))
	}
	return isolationReason(compiled)
}

// compare compares the verdict of a node with what it should be.
func (w *world) compare(node string, q *question, toNode bool, want *ruleset.Verdict) string {
	rs := w.rulesets[node]
	protocol := protocolOf(q.port.Protocol)
	if protocol == 0 {
		protocol = 1
	}
	p := ruleset.Packet{Source: q.from, Destination: q.to, Protocol: protocol, DestinationPort: q.port.Number, ToNode: toNode}
	got := ruleset.Judge(rs, p, func(name string, addr netip.Addr) bool {
		s, _ := rs.Set(name)
		return slices.ContainsFunc(s.Domains, func(domain string) bool {
			return slices.ContainsFunc(w.names[addr], func(name string) bool {
				parent, wildcard := strings.CutPrefix(domain, "*")
				return name == domain || wildcard && strings.HasSuffix(name, parent)
			})
		})
	})
	// Semantics knows no chains, and no rule that is several since it has several kinds of peers.
	forget := func(v ruleset.Verdict) string {
		v.Reports = slices.Clone(v.Reports)
		for i := range v.Reports {
			v.Reports[i].Chain = ""
		}
		v.Reports = slices.Compact(v.Reports)
		v.Denial.Chain = ""
		return fmt.Sprintf("%+v", v)
	}
	if forget(got) == forget(*want) {
		return ""
	}
	pod, _ := rs.Pod(q.from)
	var chains []string
	for name, chain := range rs.Chains() {
		chains = append(chains, fmt.Sprintf("  %s %+v", name, chain.Rules))
	}
	return fmt.Sprintf("on %s, Judge(%+v) = %s, want %s; the source has %v and the chains are\n%s",
		node, p, forget(got), forget(*want), pod, strings.Join(chains, "\n"))
}

// askDNS asks about a query to the node's own DNS, which is judged as one to the cluster's.
func (w *world) askDNS(q *question) string {
	from := w.endAt(q.from)
	if from.Namespace == "" || q.port.Protocol != cluster.TCP && q.port.Protocol != cluster.UDP {
		return ""
	}
	other := &semantics.End{Namespace: from.Namespace, Labels: from.Labels}
	verdict := w.dns.Egress(w.evaluator, other, q.port.Protocol)
	want := w.expect(ruleset.Verdict{}, ruleset.Egress, &verdict)
	if !want.Allowed {
		want.Denial.Reason = printable(reasonDNS+want.Denial.Reason, maxReason)
	}
	want.Reports = nil
	return w.compare(from.Node, q, true, &want)
}
