package connection

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/proxy/frontend"
)

// policyStore returns a cluster in which only node n2, and Pods of app web at their IPv4 addresses, may
// reach a Pod on node n1.
func policyStore() *cluster.Store {
	store := cluster.NewStore()
	addr := netip.MustParseAddr
	pod := func(name, node string, addrs ...netip.Addr) *cluster.Pod {
		return &cluster.Pod{
			Key: cluster.Key{Namespace: "shop", Name: name}, Node: node, IPs: addrs, Labels: map[string]string{"app": name},
			Spec: &cluster.PodSpec{},
		}
	}
	block := func(text string) cluster.PolicyPeer { return cluster.PolicyPeer{Block: netip.MustParsePrefix(text)} }
	store.Update(func(tx *cluster.Tx) {
		tx.Put(&cluster.Node{Name: "n1", Addresses: []netip.Addr{addr("192.0.2.1")}, InternalIPs: []netip.Addr{addr("192.0.2.1")}})
		tx.Put(&cluster.Node{Name: "n2", Addresses: []netip.Addr{addr("192.0.2.2")}, InternalIPs: []netip.Addr{addr("192.0.2.2")}})
		tx.Put(pod("db", "n1", addr("10.244.1.3"), addr("fd00::3")))
		tx.Put(pod("web", "n2", addr("10.244.2.2"), addr("fd00::2")))
		port := cluster.Port{Name: "sql", Protocol: cluster.TCP, Number: 5432}
		tx.Put(&cluster.Service{
			Key: cluster.Key{Namespace: "shop", Name: "db"}, Ports: []cluster.Port{port}, ClusterIPs: []netip.Addr{addr("10.96.0.7")},
			Spec: &cluster.ServiceSpec{Type: cluster.ClusterIP, ExternalIPs: []netip.Addr{addr("198.51.100.7")}},
		})
		tx.Put(&cluster.EndpointSlice{
			Key: cluster.Key{Namespace: "shop", Name: "db-1"}, Service: "db", AddressType: cluster.IPv4, Ports: []cluster.Port{port},
			Endpoints: []cluster.Endpoint{{Addr: addr("10.244.1.3"), Ready: true, Serving: true, Pod: "db"}},
		})
		tx.Put(&cluster.NetworkPolicy{
			Key: cluster.Key{Namespace: "shop", Name: "db"}, Pods: cluster.Selector{Labels: map[string]string{"app": "db"}}, Ingress: true,
			IngressRules: []cluster.PolicyRule{{Peers: []cluster.PolicyPeer{block("192.0.2.2/32"), block("10.244.2.0/24")}}},
		})
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
	})
	return store
}

// explained returns the explanation of a connection.
func explained(store *cluster.Store, r Request) (e *Explanation) {
	store.View(func(v *cluster.View) {
		settings := new(Settings)
		if r.World != nil {
			settings = r.Settings
		}
		r.World = NewWorld(v, &lint.Linter{View: v, Observed: r.Client.Place == AtPodAddress}, settings)
		if p := v.Pod(cluster.Key{Namespace: "shop", Name: "web"}); r.Client.Place == InPod {
			r.Client.Subject, r.Client.Addr, r.Client.Node = dnsconfig.SubjectOfPod(p), p.IPs[0], p.Node
		}
		e = Explain(&r)
	})
	return e
}

// TestVerdictOfSources checks which source policies judge: one of the family of the destination, and that
// of the node if that masquerades the client on its way to another node.
func TestVerdictOfSources(t *testing.T) {
	t.Parallel()
	outside := Client{Place: Outside, Addr: netip.MustParseAddr("203.0.113.9")}
	via := func(node string) Client {
		c := outside
		c.Node = node
		return c
	}
	for claim, test := range map[string]struct {
		client Client
		host   string
		want   string
	}{
		"a Pod at its IPv4 address":                      {Client{}, "10.244.1.3", Allowed},
		"a Pod at its IPv6 address":                      {Client{}, "fd00::3", Denied},
		"a Pod through a Service":                        {Client{}, "10.96.0.7", Allowed},
		"a client outside that another node masquerades": {via("n2"), "198.51.100.7", Allowed},
		"a client outside at the Pod's node":             {via("n1"), "198.51.100.7", Denied},
		"the Pod's own node":                             {Client{Place: OnNode, Node: "n1"}, "10.244.1.3", Allowed},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			target := Target{Host: test.host, Port: "5432", Protocol: frontend.TCP}
			e := explained(policyStore(), Request{Client: test.client, Target: target})
			if e.Verdict != test.want {
				var b strings.Builder
				_ = e.WriteVerdict(&b)
				t.Errorf("verdict of %s from %s: %q, want %q\n%s", target, &test.client, e.Verdict, test.want, b.String())
			}
		})
	}
}

// TestKernelRuling checks what is said of the kernel's verdict: on the node of each Pod, with the packet
// that arrives there.
func TestKernelRuling(t *testing.T) {
	t.Parallel()
	target := Target{Host: "10.96.0.7", Port: "5432", Protocol: frontend.TCP}
	packet := ruleset.Packet{
		Source: netip.MustParseAddr("10.244.2.2"), Destination: netip.MustParseAddr("10.244.1.3"),
		Protocol: ruleset.TCP, DestinationPort: 5432,
	}
	for claim, test := range map[string]struct {
		verdict ruleset.Verdict
		err     error
		want    KernelRuling
		text    string
	}{
		"it agrees": {ruleset.Verdict{Allowed: true}, nil, KernelRuling{Result: KernelAgrees}, "    kernel: agrees\n"},
		"it differs": {
			ruleset.Verdict{Denial: ruleset.Denial{Reason: "no rule"}}, nil,
			KernelRuling{KernelDiffers, "it drops the packet: no rule"}, "    kernel: differs: it drops the packet: no rule\n",
		},
		"a rule by another program": {
			ruleset.Verdict{Denial: ruleset.Denial{Chain: "in-1"}}, nil,
			KernelRuling{KernelDiffers, "it drops the packet: a rule of chain in-1"}, "cure: run the command again",
		},
		"it is not known": {
			ruleset.Verdict{}, errors.New("there is no table"),
			KernelRuling{KernelNotRead, "there is no table"}, "    kernel: not read: there is no table\n",
		},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			var asked []ruleset.Packet
			judge := &KernelJudge{Node: "n1", Judge: func(d ruleset.Direction, p ruleset.Packet) (ruleset.Verdict, error) {
				if asked = append(asked, p); d != ruleset.Ingress {
					t.Errorf("the kernel was asked about the %s", d)
				}
				return test.verdict, test.err
			}}
			e := explained(policyStore(), Request{Target: target, Judge: judge})
			var b strings.Builder
			if err := e.WriteVerdict(&b); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(b.String(), test.text) || !strings.Contains(b.String(), "kernel: not read: this is node n1, and node n2 judges it\n") {
				t.Errorf("WriteVerdict prints %s, want %q, and that another node judges the egress", b.String(), test.text)
			}
			if got := e.Attempts[0].Endpoints[0].Ingress.Kernel; *got != test.want {
				t.Errorf("Kernel of the ingress = %+v, want %+v", *got, test.want)
			}
			if allowed := test.want.Result != KernelDiffers; e.IsAllowed() != allowed {
				t.Errorf("IsAllowed() = %v, want %v", e.IsAllowed(), allowed)
			}
			if len(asked) != 1 || asked[0] != packet {
				t.Errorf("the kernel was asked for %v, want %v", asked, packet)
			}
		})
	}
}

// TestKernelRulingOfNode checks that no kernel is asked about what a node sends to its own Pods, which no hook
// of it judges, and that Pods of another node than that of the manifests are judged by the only kernel there is.
func TestKernelRulingOfNode(t *testing.T) {
	t.Parallel()
	target := Target{Host: "10.244.1.3", Port: "5432", Protocol: frontend.TCP}
	for claim, test := range map[string]struct {
		client Client
		node   string
		asked  int
	}{
		"the Pod's own node":               {Client{Place: OnNode, Node: "n1"}, "n1", 0},
		"another node":                     {Client{Place: OnNode, Node: "n2", Addr: netip.MustParseAddr("192.0.2.2")}, "n1", 1},
		"a Pod, and the node is any":       {Client{}, "", 2},
		"a Pod, and the node is neither's": {Client{}, "n3", 0},
	} {
		asked := 0
		judge := &KernelJudge{Node: test.node, Judge: func(ruleset.Direction, ruleset.Packet) (ruleset.Verdict, error) {
			asked++
			return ruleset.Verdict{Allowed: true}, nil
		}}
		e := explained(policyStore(), Request{Client: test.client, Target: target, Judge: judge})
		if asked != test.asked || e.Verdict != Allowed {
			t.Errorf("%s: verdict %q, and the kernel was asked %d times, want %d", claim, e.Verdict, asked, test.asked)
		}
	}
}

// TestVerdictOfUnknownClients checks what is said of a client outside without an address, and of an address in
// a range of Pods that no Pod has.
func TestVerdictOfUnknownClients(t *testing.T) {
	t.Parallel()
	pod := func(addr string) Client {
		return Client{Place: AtPodAddress, Addr: netip.MustParseAddr(addr), Node: "n1"}
	}
	blocks := []cluster.PolicyRule{{Peers: []cluster.PolicyPeer{{Block: netip.MustParsePrefix("10.244.2.0/24")}}}}
	for claim, test := range map[string]struct {
		client           Client
		rules            []cluster.PolicyRule
		verdict, outcome string
	}{
		"outside, and no rule":         {Client{Place: Outside, Node: "n1"}, nil, Denied, TimedOut},
		"outside, and a rule for all":  {Client{Place: Outside, Node: "n1"}, []cluster.PolicyRule{{}}, Allowed, Connected},
		"outside, and an ipBlock":      {Client{Place: Outside, Node: "n1"}, blocks, "", NotKnown},
		"no Pod's address, denied":     {pod("10.244.1.77"), blocks, Denied, TimedOut},
		"no Pod's address, in a block": {pod("10.244.2.77"), blocks, Allowed, Connected},
	} {
		store := policyStore()
		var to dnsconfig.Subject
		store.Update(func(tx *cluster.Tx) {
			tx.Put(&cluster.NetworkPolicy{
				Key: cluster.Key{Namespace: "shop", Name: "db"}, Pods: cluster.Selector{Labels: map[string]string{"app": "db"}},
				Ingress: true, IngressRules: test.rules,
			})
		})
		store.View(func(v *cluster.View) {
			to = dnsconfig.SubjectOfPod(v.Pod(cluster.Key{Namespace: "shop", Name: "db"}))
		})
		port := Target{Host: "10.244.1.3", Port: "5432", Protocol: frontend.TCP}
		for _, r := range []Request{{Client: test.client, Target: port, To: &to}, {Client: test.client, Target: port}} {
			e := explained(store, r)
			allowed := test.verdict == Allowed
			if e.Verdict != test.verdict || e.Outcome != test.outcome || e.IsAllowed() != allowed {
				t.Errorf("%s: verdict %q, outcome %q, allowed %v, want %q, %q, %v",
					claim, e.Verdict, e.Outcome, e.IsAllowed(), test.verdict, test.outcome, allowed)
			}
		}
	}
}

// TestVacancy checks what is said of an address of a node's Pod range that no Pod has: its node drops packets
// from and to it, of which the kernel there is asked.
func TestVacancy(t *testing.T) {
	t.Parallel()
	const drops = "no Pod has 10.244.1.77, which is in the Pod range 10.244.1.0/24 of node n1"
	vacant, web := netip.MustParseAddr("10.244.1.77"), netip.MustParseAddr("10.244.2.2")
	ranges := []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}
	noPod := ruleset.Verdict{Denial: ruleset.Denial{Reason: ruleset.ReasonNoPod}}
	for claim, test := range map[string]struct {
		client            Client
		host              string
		settings          Settings
		finished          bool
		verdict           ruleset.Verdict
		own               bool
		want, text, lacks string
	}{
		"a destination": {
			Client{}, "10.244.1.77", Settings{}, false, noPod, false, Denied,
			"  ingress on node n1: denied: " + drops + "\n    kernel: agrees\n", "differs",
		},
		"a source": {
			Client{Place: AtPodAddress, Addr: vacant, Node: "n1"}, "10.244.2.2", Settings{}, false, noPod, false, Denied,
			"  egress on node n1: denied: " + drops + "\n    kernel: agrees\n", "differs",
		},
		"the kernel has a Pod there": {
			Client{}, "10.244.1.77", Settings{}, false, ruleset.Verdict{Allowed: true}, false, Denied,
			"    kernel: differs: it lets the packet pass\n", "agrees",
		},
		"the Pod has finished":       {Client{}, "10.244.1.77", Settings{}, true, noPod, false, "", "timeout: ", "allowed"},
		"an address of the node":     {Client{}, "10.244.1.77", Settings{}, false, noPod, true, Allowed, "allowed: ", drops},
		"from its own node":          {Client{Place: OnNode, Node: "n1"}, "10.244.1.77", Settings{}, false, noPod, false, "", "not known: ", drops},
		"another range by policies":  {Client{}, "10.244.1.77", Settings{PodRanges: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}}, false, noPod, false, Allowed, "allowed: ", drops},
		"the range by policies only": {Client{}, "10.9.0.1", Settings{PodRanges: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}}, false, noPod, false, Denied, "in the Pod range 10.9.0.0/16 of node n1\n", "allowed: no Pod"},
		"a range with a Pod of n2":   {Client{}, "10.244.1.77", Settings{PodRanges: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}, false, ruleset.Verdict{Allowed: true}, false, Allowed, "no policy restricts it", "no Pod has"},
		"outside of all ranges":      {Client{}, "10.9.0.1", Settings{}, false, noPod, false, Allowed, "allowed: ", "no Pod has 10.9.0.1, which"},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			store := policyStore()
			store.Update(func(tx *cluster.Tx) {
				tx.Put(&cluster.Node{Name: "n1", PodCIDRs: ranges})
				if test.finished {
					tx.Put(&cluster.Pod{
						Key: cluster.Key{Namespace: "shop", Name: "job"}, Node: "n1", IPs: []netip.Addr{vacant}, Finished: true,
						Spec: &cluster.PodSpec{},
					})
				}
			})
			judge := &KernelJudge{
				Node:  "n1",
				IsOwn: func(netip.Addr) bool { return test.own },
				Judge: func(_ ruleset.Direction, p ruleset.Packet) (ruleset.Verdict, error) {
					if p.Source == web && p.Destination == vacant || p.Source == vacant && p.Destination == web ||
						test.settings.PodRanges != nil {
						return test.verdict, nil
					}
					return ruleset.Verdict{}, errors.New("asked of another packet")
				},
			}
			target := Target{Host: test.host, Port: "5432", Protocol: frontend.TCP}
			e := explained(store, Request{Client: test.client, Target: target, Judge: judge, World: &World{Settings: &test.settings}})
			var b strings.Builder
			if err := e.WriteVerdict(&b); err != nil {
				t.Fatal(err)
			}
			if e.Verdict != test.want || !strings.Contains(b.String(), test.text) || strings.Contains(b.String(), test.lacks) {
				t.Errorf("verdict %q, want %q, and %q without %q in\n%s", e.Verdict, test.want, test.text, test.lacks, b.String())
			}
		})
	}
}

// TestDomains checks what is said of an address that a rule by domain name may allow: the kernel says whether
// an answer of DNS had it.
func TestDomains(t *testing.T) {
	t.Parallel()
	none := ruleset.Verdict{Denial: ruleset.Denial{Reason: "no rule"}}
	dns := &explain.Explanation{
		Outcome: "found", Records: []dnswire.Record{{Name: "api.example.com.", Type: "A", Data: "203.0.113.9"}},
	}
	for claim, test := range map[string]struct {
		verdict     ruleset.Verdict
		err         error
		want, lacks string
		allowed     bool
	}{
		"the name, before a Pod asks for it": {
			none, nil, "    kernel: agrees: it gets the address when a Pod of the node looks the name up\n", "as an address", true,
		},
		"the kernel has it": {
			ruleset.Verdict{Allowed: true, Resolved: 90 * time.Second}, nil,
			"spec.egress[0] of NetworkPolicy shop/web allows it, as an address of api.example.com or *.example.org\n" +
				"    kernel: agrees: DNS answered with the address, which counts for 1m30s more\n", "cure", true,
		},
		"the kernel lets it pass otherwise": {ruleset.Verdict{Allowed: true}, nil, "    kernel: differs: it lets the packet pass\n", "note", false},
		"the kernel does not have it":       {none, nil, "denied: no rule of NetworkPolicy shop/web allows it\n", "note", false},
		"it is not known": {
			none, errors.New("no table"),
			"note: 203.0.113.9 is allowed while a Pod of the node has it from DNS as an address of api.example.com or *.example.org: ",
			"agrees", false,
		},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			store := policyStore()
			store.Update(func(tx *cluster.Tx) {
				tx.Put(&cluster.NetworkPolicy{
					Key: cluster.Key{Namespace: "shop", Name: "web"}, Pods: cluster.Selector{Labels: map[string]string{"app": "web"}}, Egress: true,
					EgressRules: []cluster.PolicyRule{{Peers: []cluster.PolicyPeer{{Domains: []string{"api.example.com", "*.example.org"}}}}},
				})
			})
			judge := &KernelJudge{Judge: func(ruleset.Direction, ruleset.Packet) (ruleset.Verdict, error) { return test.verdict, test.err }}
			r := Request{Target: Target{Host: "203.0.113.9", Port: "443", Protocol: frontend.TCP}, Judge: judge}
			if strings.HasPrefix(claim, "the name") {
				r.DNS, r.Target.Host = dns, "api.example.com"
			}
			e := explained(store, r)
			var b strings.Builder
			if err := e.WriteVerdict(&b); err != nil {
				t.Fatal(err)
			}
			if e.IsAllowed() != test.allowed || !strings.Contains(b.String(), test.want) || strings.Contains(b.String(), test.lacks) {
				t.Errorf("allowed %v, want %v, and %q without %q in\n%s", e.IsAllowed(), test.allowed, test.want, test.lacks, b.String())
			}
		})
	}
}
