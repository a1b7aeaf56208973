package plan

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/policy/ruleset/rulesettest"
)

// node is a store with a compiler for the node n1.
type node struct {
	*Compiler
	store *cluster.Store
	feed  *cluster.Feed
	state *rulesettest.State
}

func newNode(t *testing.T, config Config, objects ...cluster.Object) *node {
	t.Helper()
	config.Node = "n1"
	n := &node{New(config), cluster.NewStore(), nil, rulesettest.NewState()}
	n.store.Update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Live, cluster.Kinds()...) })
	n.feed = n.store.Subscribe()
	t.Cleanup(n.feed.Close)
	n.put(objects...)
	return n
}

// put writes objects and compiles them.
func (n *node) put(objects ...cluster.Object) *ruleset.Delta {
	n.store.Update(func(tx *cluster.Tx) {
		for _, o := range objects {
			tx.Put(o)
		}
	})
	return n.apply()
}

func (n *node) apply() (d *ruleset.Delta) {
	changes := n.feed.Pending()
	n.store.View(func(v *cluster.View) { d = n.Apply(v, &changes) })
	n.state.Apply(d, n)
	return d
}

// judge returns the verdict about a packet as a text.
func (n *node) judge(from, to string, port uint16) string {
	v := ruleset.Judge(n.state, ruleset.Packet{
		Source: netip.MustParseAddr(from), Destination: netip.MustParseAddr(to), Protocol: ruleset.TCP, DestinationPort: port,
	}, nil)
	if v.Allowed {
		return "allowed"
	}
	return [...]string{"ingress: ", "egress: "}[v.Denial.Direction] + v.Denial.Reason
}

// shopPod returns a Pod of the namespace shop.
func shopPod(name, node, addr string, labels map[string]string) *cluster.Pod {
	p := &cluster.Pod{Key: cluster.Key{Namespace: "shop", Name: name}, Node: node, Labels: labels, Spec: &cluster.PodSpec{}}
	if addr != "" {
		p.IPs = []netip.Addr{netip.MustParseAddr(addr)}
	}
	return p
}

func app(name string) map[string]string { return map[string]string{"app": name} }

func tcp(port uint16) []cluster.PolicyPort {
	return []cluster.PolicyPort{{Protocol: cluster.TCP, Number: port, End: port}}
}

func fromApp(name string) []cluster.PolicyPeer {
	return []cluster.PolicyPeer{{Pods: &cluster.Selector{Labels: app(name)}}}
}

// ingress returns a policy of the namespace shop for the ingress of the Pods of an app.
func ingress(name, of string, rules ...cluster.PolicyRule) *cluster.NetworkPolicy {
	return &cluster.NetworkPolicy{
		Key: cluster.Key{Namespace: "shop", Name: name}, Pods: cluster.Selector{Labels: app(of)}, Ingress: true, IngressRules: rules,
	}
}

// chainText returns the rules of a chain and of those in which it goes on.
func chainText(rs ruleset.Ruleset, name string) (lines []string) {
	for _, r := range rs.Chain(name).Rules {
		var words []string
		if r.Peers != "" {
			s, _ := rs.Set(r.Peers)
			words = append(words, strings.SplitN(r.Peers, "-", 2)[0], "["+s.Comment+"]")
		}
		for _, p := range r.Ports {
			words = append(words, fmt.Sprintf("%s/%d-%d", protocolName(p.Protocol), p.First, p.Last))
		}
		words = append(words, [...]string{"", "to node", "to self"}[r.Where], [...]string{"accept", "deny", "report", "goto"}[r.Action])
		if r.Reason != "" {
			words = append(words, "("+r.Reason+")")
		}
		lines = append(lines, strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " "))
		if r.Chain != "" {
			for _, line := range chainText(rs, r.Chain) {
				lines = append(lines, "  "+line)
			}
		}
	}
	return lines
}

func TestChains(t *testing.T) {
	t.Parallel()
	all := cluster.PodPeer{}
	block := cluster.PolicyPeer{Block: netip.MustParsePrefix("10.0.0.0/8"), Except: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")}}
	audit := ingress("a", "web", cluster.PolicyRule{Peers: fromApp("shop"), Ports: tcp(80)})
	audit.Audit = true
	baseline := &cluster.ClusterNetworkPolicy{
		Name: "base", Tier: cluster.BaselineTier, Subject: all, IngressRules: []cluster.TierRule{{Action: cluster.Deny, Peers: []cluster.TierPeer{{Pods: &all}}}},
	}
	tier := func(rules ...cluster.TierRule) *cluster.ClusterNetworkPolicy {
		return &cluster.ClusterNetworkPolicy{Name: "admin", Tier: cluster.AdminTier, Subject: all, IngressRules: rules}
	}
	for claim, test := range map[string]struct {
		objects []cluster.Object
		want    []string
	}{
		"rules of equal ports are merged": {
			[]cluster.Object{
				ingress("a", "web", cluster.PolicyRule{Peers: fromApp("x"), Ports: tcp(80)}, cluster.PolicyRule{Peers: fromApp("y"), Ports: tcp(81)}),
				ingress("b", "web", cluster.PolicyRule{Peers: append(fromApp("y"), block), Ports: tcp(80)}),
			},
			[]string{
				"pods [shop/app=x shop/app=y] TCP/80-80 accept", "blocks [10.0.0.0/9] TCP/80-80 accept", "pods [shop/app=y] TCP/81-81 accept",
				"to self accept", "deny (no policy of shop/a, shop/b allows it)",
			},
		},
		"ports by name are those of the Pod": {
			[]cluster.Object{ingress("a", "web", cluster.PolicyRule{Ports: []cluster.PolicyPort{
				{Protocol: cluster.TCP, Name: "http"}, {Protocol: cluster.UDP, Name: "http"}, {Protocol: cluster.TCP, Number: 8081, End: 8090},
			}})},
			[]string{"TCP/8080-8090 accept", "to self accept", "deny (no rule of shop/a allows it)"},
		},
		"a policy that allows all needs no chain": {[]cluster.Object{ingress("a", "web", cluster.PolicyRule{}), ingress("b", "web")}, nil},
		"a policy in audit mode goes on with the Baseline tier": {
			[]cluster.Object{audit, baseline},
			[]string{
				"pods [shop/app=shop] TCP/80-80 accept", "to self accept", "report (no rule of shop/a allows it)",
				"goto", "  pods [{}/] deny (ClusterNetworkPolicy base, spec.ingress[0])",
			},
		},
		"a NetworkPolicy hides the Baseline tier": {
			[]cluster.Object{ingress("a", "web"), baseline}, []string{"to self accept", "deny (no rule of shop/a allows it)"},
		},
		"the Admin tier comes first, and Pass goes on": {
			[]cluster.Object{ingress("a", "web"), tier(
				cluster.TierRule{Name: `of "x"`, Action: cluster.Pass, Peers: []cluster.TierPeer{{Pods: &cluster.PodPeer{Pods: cluster.Selector{Labels: app("x")}}}}},
				cluster.TierRule{Action: cluster.Accept, Unknown: true},
				cluster.TierRule{Action: cluster.Pass, Unknown: true},
			)},
			[]string{
				"pods [{}/app=x] goto", "  to self accept", "  deny (no rule of shop/a allows it)",
				"deny (ClusterNetworkPolicy admin, spec.ingress[2])",
				"goto", "  to self accept", "  deny (no rule of shop/a allows it)",
			},
		},
		"a namespace selected by its name is one namespace": {
			[]cluster.Object{ingress("a", "web", cluster.PolicyRule{Peers: []cluster.PolicyPeer{
				{Namespaces: &cluster.Selector{Labels: map[string]string{nameLabel: "shop"}}, Pods: &cluster.Selector{Labels: app("x")}},
				{Pods: &cluster.Selector{Requirements: []cluster.Requirement{{Label: "app", Operator: cluster.In, Values: []string{"x"}}}}},
			}})},
			[]string{"pods [shop/app=x] accept", "to self accept", "deny (no rule of shop/a allows it)"},
		},
	} {
		web := shopPod("web", "n1", "10.1.0.1", app("web"))
		web.Spec.Ports = []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 8080}}
		n := newNode(t, Config{}, append(test.objects, web)...)
		pod, _ := n.Pod(web.IPs[0])
		var got []string
		if pod.Ingress != "" {
			got = chainText(n, pod.Ingress)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", claim, diff)
		}
	}
}

func TestDNS(t *testing.T) {
	t.Parallel()
	config := Config{DNS: DNS{Service: cluster.Key{Namespace: "kube-system", Name: "kube-dns"}, Addrs: []netip.Addr{netip.MustParseAddr("169.254.20.10")}}}
	toDNS := &cluster.NetworkPolicy{Key: cluster.Key{Namespace: "shop", Name: "dns"}, Egress: true, EgressRules: []cluster.PolicyRule{{
		Peers: []cluster.PolicyPeer{{Namespaces: &cluster.Selector{}, Pods: &cluster.Selector{Labels: map[string]string{"k8s-app": "kube-dns"}}}},
	}}}
	n := newNode(t, config, shopPod("web", "n1", "10.1.0.1", nil), toDNS,
		&cluster.Service{Key: config.DNS.Service, Selector: map[string]string{"k8s-app": "kube-dns"}})
	dns := &cluster.Pod{
		Key: cluster.Key{Namespace: "kube-system", Name: "dns"}, Node: "n1", IPs: []netip.Addr{netip.MustParseAddr("192.168.0.1")},
		Labels: map[string]string{"k8s-app": "kube-dns"}, Spec: &cluster.PodSpec{HostNetwork: true},
	}
	const denied = "egress: cluster DNS: no rule of shop/dns allows it"
	check := func(when, want string) {
		t.Helper()
		if got := n.judge("10.1.0.1", "169.254.20.10", 53); got != want {
			t.Errorf("%s a query to the node's DNS is %q, want %q", when, got, want)
		}
	}
	check("before there are Pods of the cluster DNS", "allowed")
	n.put(dns)
	check("with such a Pod, in the network of its node,", "allowed")
	other := *dns
	other.Labels = map[string]string{"k8s-app": "kube-dns", "v": "2"}
	only := *toDNS
	only.EgressRules = []cluster.PolicyRule{{Peers: []cluster.PolicyPeer{{Namespaces: &cluster.Selector{}, Pods: &cluster.Selector{Labels: map[string]string{"v": "2"}}}}}}
	n.put(&only)
	check("if the policy means other Pods,", denied)
	n.put(&other)
	check("if the Pod is relabelled,", "allowed")
	n.put(&cluster.NetworkPolicy{Key: toDNS.Key, Egress: true})
	check("if nothing is allowed,", denied)
	n.store.Update(func(tx *cluster.Tx) { tx.Delete(cluster.KindNetworkPolicy, toDNS.Key) })
	n.apply()
	check("without policies", "allowed")
	n.put(&cluster.ClusterNetworkPolicy{Name: "nodes", Tier: cluster.AdminTier, EgressRules: []cluster.TierRule{{
		Action: cluster.Deny, Peers: []cluster.TierPeer{{Nodes: &cluster.Selector{Labels: app("x")}}},
	}}})
	check("if it is no Node that is denied,", "allowed")
	n.put(&cluster.Node{Name: "n1", Addresses: dns.IPs, Labels: app("x")})
	check("once it is", "egress: cluster DNS: ClusterNetworkPolicy nodes, spec.egress[0]")
	n.store.Update(func(tx *cluster.Tx) { tx.Delete(cluster.KindClusterNetworkPolicy, cluster.Key{Name: "nodes"}) })
	n.apply()
	if got := len(n.sets); got != 0 {
		t.Errorf("without policies there are %d sets, want 0", got)
	}
}

func TestSetLocal(t *testing.T) {
	t.Parallel()
	own := &cluster.Node{Name: "n1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}}
	peer := shopPod("peer", "n2", "10.2.0.1", app("peer"))
	n := newNode(t, Config{}, own, peer, ingress("a", "web", cluster.PolicyRule{Peers: fromApp("peer")}))
	check := func(when, from, to, want string) {
		t.Helper()
		if got := n.judge(from, to, 80); got != want {
			t.Errorf("%s: %s to %s is %q, want %q", when, from, to, got, want)
		}
	}
	const addr, reused, stranger = "10.1.0.1", "10.1.0.2", "192.0.2.1"
	check("before the Pod starts", peer.IPs[0].String(), addr, "ingress: "+ruleset.ReasonNoPod)
	check("before the Pod starts", addr, stranger, "egress: "+ruleset.ReasonNoPod)
	web := shopPod("web", "n1", "", app("web"))
	n.SetLocal(web.Key, Local{Addrs: []netip.Addr{netip.MustParseAddr(addr)}})
	if d := n.apply(); len(d.NewChains) != 2 || len(d.Pods) != 1 {
		t.Errorf("the start of a Pod that is not known changes %+v, want two chains and an address", d)
	}
	check("while the Pod is not known", peer.IPs[0].String(), addr, "ingress: "+reasonUnknownPod)
	check("while the Pod is not known", addr, stranger, "egress: "+reasonUnknownPod)
	if want := []Verdict{{Object: web.Ref(), Reason: UnknownPod}}; !slices.Equal(n.Verdicts(), want) {
		t.Errorf("Verdicts() = %v, want %v", n.Verdicts(), want)
	}
	n.put(shopPod("web", "n2", "10.2.0.9", app("peer")))
	check("while the model has it on another node", addr, stranger, "egress: "+reasonUnknownPod)
	n.put(web)
	check("without its status", peer.IPs[0].String(), addr, "allowed")
	check("without its status", stranger, addr, "ingress: no rule of shop/a allows it")
	n.put(shopPod("web", "n1", reused, app("web")))
	check("with the address of an older sandbox in its status", stranger, addr, "ingress: no rule of shop/a allows it")
	check("with the address of an older sandbox in its status", stranger, reused, "ingress: "+ruleset.ReasonNoPod)
	next := shopPod("next", "n1", "", nil)
	n.put(next)
	n.ForgetLocal(web.Key)
	n.SetLocal(next.Key, Local{Addrs: []netip.Addr{netip.MustParseAddr(reused)}})
	n.apply()
	check("once the address is that of another Pod", stranger, reused, "allowed")
	want := []Verdict{{Object: web.Ref(), Reason: AddressTaken, Addr: netip.MustParseAddr(reused), Other: next.Key}}
	if !slices.Equal(n.Verdicts(), want) {
		t.Errorf("Verdicts() = %v, want %v", n.Verdicts(), want)
	}
}

func TestAddressOfTwoPods(t *testing.T) {
	t.Parallel()
	const addr = "10.2.0.1"
	old, next := shopPod("old", "n2", addr, app("peer")), shopPod("zz", "n2", addr, nil)
	n := newNode(t, Config{}, shopPod("web", "n1", "10.1.0.1", app("web")), old, ingress("a", "web", cluster.PolicyRule{Peers: fromApp("peer")}))
	check := func(when, want string) {
		t.Helper()
		if got := n.judge(addr, "10.1.0.1", 80); got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	const denied = "ingress: no rule of shop/a allows it"
	check("one Pod has it", "allowed")
	n.put(next)
	check("of two equal ones the first by name has it", "allowed")
	deleting := *old
	deleting.Deleting = true
	n.put(&deleting)
	check("not one that is being deleted", denied)
	n.store.Update(func(tx *cluster.Tx) { tx.Delete(cluster.KindPod, next.Key) })
	n.apply()
	check("unless no other has it", "allowed")
	finished := *old
	finished.Finished = true
	n.put(&finished)
	check("one that has finished has none", denied)
	inHost := *old
	inHost.Spec = &cluster.PodSpec{HostNetwork: true}
	n.put(&inHost)
	check("neither has one in the network of its node", denied)
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	web := shopPod("web", "n1", "10.1.0.1", app("web"))
	a, b := ingress("a", "web"), ingress("b", "web")
	unknown := &cluster.ClusterNetworkPolicy{Name: "c", Tier: cluster.AdminTier, EgressRules: []cluster.TierRule{{Action: cluster.Accept, Unknown: true}}}
	n := newNode(t, Config{}, web, b, a, unknown)
	pod, _ := n.Pod(web.IPs[0])
	if got, want := n.Policies(pod.Ingress), []cluster.Ref{a.Ref(), b.Ref()}; !slices.Equal(got, want) {
		t.Errorf("Policies of the ingress chain = %v, want %v", got, want)
	}
	if got := n.Policies("in-x"); got != nil {
		t.Errorf("Policies of no chain = %v, want none", got)
	}
	if want := []Verdict{{Object: unknown.Ref(), Reason: UnknownRule}}; !slices.Equal(n.Verdicts(), want) {
		t.Errorf("Verdicts() = %v, want %v", n.Verdicts(), want)
	}
	if got, want := n.Stats(), (Stats{Pods: 1, Local: 1, Classes: 2, Chains: 1}); got != want {
		t.Errorf("Stats() = %+v, want %+v", got, want)
	}
}

func TestReasons(t *testing.T) {
	t.Parallel()
	named := func(names ...string) (policies []*policy) {
		for _, name := range names {
			policies = append(policies, networkPolicy(ingress(name, "x")))
		}
		return policies
	}
	long := strings.Repeat("x", 200)
	for want, policies := range map[string][]*policy{
		"no rule of shop/a allows it":                                              named("a"),
		"no policy of shop/a, shop/b allows it":                                    named("a", "b"),
		"no policy of shop/aaaaaaaaaaaaaaa, shop/b, shop/c, shop/d allows it (+3)": named("aaaaaaaaaaaaaaa", "b", "c", "d", "e", "f", "g"),
		"no rule of shop/" + long[:80-11-5-3-10] + "... allows it":                 named(long),
	} {
		if got := isolationReason(policies); got != want || len(got) > maxReason {
			t.Errorf("isolationReason = %q (%d), want %q", got, len(got), want)
		}
	}
	if got := isolationReason(named(long, long)); len(got) > maxReason || !strings.HasSuffix(got, "... allows it (+1)") {
		t.Errorf("isolationReason of two long names = %q (%d)", got, len(got))
	}
	got := tierReason(&cluster.ClusterNetworkPolicy{Name: long}, ruleset.Egress, 99)
	if len(got) != maxReason || !strings.HasSuffix(got, "x..., spec.egress[99]") {
		t.Errorf("tierReason = %q (%d)", got, len(got))
	}
}

// TestBlocks compares blocks without others with what contains each address of a small range.
func TestBlocks(t *testing.T) {
	t.Parallel()
	r := &random{rand.New(rand.NewPCG(3, 3))}
	prefix := func() netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(64))}), 26+r.IntN(7))
	}
	for range 2000 {
		var parts []netip.Prefix
		blocks, excepts := some(r, 3, prefix), some(r, 3, prefix)
		for _, b := range blocks {
			parts = append(parts, without(b.Masked(), excepts)...)
		}
		got := union(parts)
		for i := range byte(64) {
			addr := netip.AddrFrom4([4]byte{10, 0, 0, i})
			in := func(p netip.Prefix) bool { return p.Contains(addr) }
			want := slices.ContainsFunc(blocks, in) && !slices.ContainsFunc(excepts, in)
			n := 0
			for _, p := range got {
				if in(p) {
					n++
				}
			}
			if n > 1 || want != (n == 1) || contain(got, addr) != want {
				t.Fatalf("%v without %v is %v: %s is in %d of them", blocks, excepts, got, addr, n)
			}
		}
	}
	if got := union([]netip.Prefix{netip.MustParsePrefix("::/1"), netip.MustParsePrefix("8000::/1"), netip.MustParsePrefix("0.0.0.0/0")}); len(got) != 2 {
		t.Errorf("two halves and another family are %v, want two", got)
	}
}

// TestDispatch compares a tree of chains by port with a list of rules.
func TestDispatch(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		r := &random{rand.New(rand.NewPCG(seed, 4))}
		width := pick(r, 1, 10, 1000)
		source := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 9, byte(i / 256), byte(i)}) }
		var ranges []cluster.PolicyPort // the first of each policy
		objects := []cluster.Object{shopPod("web", "n1", "10.1.0.1", nil)}
		for i := range 300 {
			p := &cluster.NetworkPolicy{Key: cluster.Key{Namespace: "shop", Name: strconv.Itoa(i)}, Ingress: true}
			first := uint16(r.IntN(1000))
			ports := []cluster.PolicyPort{{Protocol: r.protocol(), Number: 1 + first, End: first + uint16(1+r.IntN(width))}}
			if r.rarely(20) {
				ports = append(ports, cluster.PolicyPort{Protocol: r.protocol()}, cluster.PolicyPort{Protocol: cluster.TCP, Number: lastPort, End: lastPort})
			}
			peer := cluster.PolicyPeer{Block: netip.PrefixFrom(source(i), 32)}
			p.IngressRules = []cluster.PolicyRule{{Ports: ports, Peers: []cluster.PolicyPeer{peer}}}
			ranges = append(ranges, ports[0])
			objects = append(objects, p)
		}
		tree := newNode(t, Config{}, objects...)
		list := New(Config{Node: "n1"})
		list.dispatchFrom = 10_000
		tree.store.View(func(v *cluster.View) { list.Apply(v, &cluster.Changes{Everything: true}) })
		if len(tree.chains) < 10 || len(list.chains) != 1 {
			t.Fatalf("seed %d: %d chains in the tree, %d in the list, want many and 1", seed, len(tree.chains), len(list.chains))
		}
		for range 2000 {
			i := r.IntN(len(ranges))
			p := ruleset.Packet{
				Source: source(i), Destination: netip.MustParseAddr("10.1.0.1"), Protocol: protocolOf(pick(r, ranges[i].Protocol, cluster.TCP)),
				DestinationPort: pick(r, ranges[i].Number-1, ranges[i].Number, ranges[i].End, ranges[i].End+1, lastPort, lastPort-1),
			}
			got, want := ruleset.Judge(tree, p, nil), ruleset.Judge(list, p, nil)
			if got.Allowed != want.Allowed || got.Denial.Reason != want.Denial.Reason {
				t.Fatalf("seed %d: Judge(%+v) = %+v in the tree, %+v in the list", seed, p, got, want)
			}
		}
	}
}

func TestLargeSet(t *testing.T) {
	t.Parallel()
	objects := []cluster.Object{shopPod("web", "n1", "10.1.0.1", app("web"))}
	addr := netip.MustParseAddr("10.2.0.0")
	for i := range largePeers {
		objects = append(objects, shopPod(fmt.Sprint("peer", i), "n2", addr.String(), app("peer")))
		addr = addr.Next()
	}
	p := ingress("a", "web", cluster.PolicyRule{Peers: fromApp("peer")})
	n := newNode(t, Config{}, append(objects, p, ingress("b", "other", cluster.PolicyRule{Peers: fromApp("peer")}))...)
	if want := []Verdict{{Object: p.Ref(), Reason: LargeSet}}; !slices.Equal(n.Verdicts(), want) {
		t.Errorf("Verdicts() = %v, want %v", n.Verdicts(), want)
	}
}

// TestManyExcepts cuts many blocks out of one: each split looks at those that are in it alone.
func TestManyExcepts(t *testing.T) {
	t.Parallel()
	const n = 3000
	r := rand.New(rand.NewPCG(4, 4))
	var excepts []netip.Prefix
	for range n {
		a := netip.AddrFrom16([16]byte{0: 0x20, 1: byte(r.Uint32()), 2: byte(r.Uint32()), 3: byte(r.Uint32()), 15: 1})
		excepts = append(excepts, netip.PrefixFrom(a, 128))
	}
	got := union(without(netip.MustParsePrefix("::/0"), excepts))
	for _, e := range excepts {
		if contain(got, e.Addr()) || !contain(got, e.Addr().Next()) || !contain(got, e.Addr().Prev()) {
			t.Fatalf("%s is in, or one beside it is not", e)
		}
	}
	if len(got) < n*100 {
		t.Errorf("%d blocks, want more than %d", len(got), n*100)
	}
}

// TestSetsWithEqualDigits has more sets than there are names of one digit: rules name their own, also if in one change
// the set that has a name goes and another one with the same digit comes.
func TestSetsWithEqualDigits(t *testing.T) {
	t.Parallel()
	const sets, digits = 40, 32
	peer := func(i int) string { return fmt.Sprintf("10.2.0.%d", i+1) }
	allow := func(port, peer int) *cluster.NetworkPolicy {
		only := cluster.PolicyPeer{Pods: &cluster.Selector{Labels: app(strconv.Itoa(peer))}}
		return &cluster.NetworkPolicy{
			Key: cluster.Key{Namespace: "shop", Name: strconv.Itoa(port)}, Ingress: true,
			IngressRules: []cluster.PolicyRule{{Ports: tcp(uint16(1 + port)), Peers: []cluster.PolicyPeer{only}}},
		}
	}
	n := newNode(t, Config{})
	n.setDigits = 1
	objects := []cluster.Object{shopPod("web", "n1", "10.1.0.1", nil)}
	for i := range 2 * sets {
		objects = append(objects, shopPod(strconv.Itoa(i), "n2", peer(i), app(strconv.Itoa(i))))
	}
	for port := range sets {
		objects = append(objects, allow(port, port))
	}
	n.put(objects...)
	if len(n.sets) != sets {
		t.Fatalf("%d sets, want %d, more than the %d names of one digit", len(n.sets), sets, digits)
	}
	for port := range sets {
		d := n.put(allow(port, sets+port)) // another peer
		for _, name := range d.NewSets {
			if slices.Contains(d.GoneSets, name) {
				t.Errorf("change %d: a set %s goes and another comes", port, name)
			}
		}
		for other := range 2 * sets {
			got, want := n.judge(peer(other), "10.1.0.1", uint16(1+port)) == "allowed", other == sets+port
			if got != want {
				t.Fatalf("after change %d, Pod %d reaches port %d: %t, want %t", port, other, 1+port, got, want)
			}
		}
	}
}
