package semantics

import (
	"log/slog"
	"net/netip"
	"path/filepath"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/manifest"
)

const examples = "../../../examples/spec/network-policy"

// example loads the policies of a published example, and adds namespaces.
func example(t *testing.T, file string, namespaces ...*cluster.Namespace) *Set {
	t.Helper()
	store := cluster.NewStore()
	source := manifest.New(manifest.Config{Path: filepath.Join(examples, file), Whole: true, Store: store, Log: slog.New(slog.DiscardHandler)})
	if report, err := source.Load(); err != nil || len(report.Problems) > 0 {
		t.Fatalf("%s: %v, %v", file, err, report.Problems)
	}
	return setOf(store, namespaces...)
}

func setOf(store *cluster.Store, namespaces ...*cluster.Namespace) (s *Set) {
	store.Update(func(tx *cluster.Tx) {
		for _, n := range namespaces {
			tx.Put(n)
		}
	})
	store.View(func(v *cluster.View) { s = NewSet(v) })
	return s
}

// end returns a Pod with one label, or with none for "".
func end(namespace, label, value string, addrs ...string) *End {
	e := &End{Namespace: namespace}
	if label != "" {
		e.Labels = map[string]string{label: value}
	}
	for _, a := range addrs {
		e.Addrs = append(e.Addrs, netip.MustParseAddr(a))
	}
	return e
}

func tcp(port uint16) cluster.Port { return cluster.Port{Protocol: cluster.TCP, Number: port} }
func udp(port uint16) cluster.Port { return cluster.Port{Protocol: cluster.UDP, Number: port} }

// TestPublishedExamples verifies that the examples of the page Network Policies do what
// the page says.
func TestPublishedExamples(t *testing.T) {
	t.Parallel()
	anyPod := end("default", "", "")
	db := end("default", "role", "db")
	alice := &cluster.Namespace{Name: "alices", Labels: map[string]string{"user": "alice"}}
	mine := &cluster.Namespace{Name: "mine", Labels: map[string]string{"project": "myproject"}}
	frontend := &cluster.Namespace{Name: "fe", Labels: map[string]string{"namespace": "frontend"}}
	type connection struct {
		from, to        *End
		port            cluster.Port
		egress, ingress bool
	}
	tests := map[string][]connection{
		"default-deny-egress.yaml":  {{anyPod, db, tcp(1), false, true}, {end("other", "", ""), anyPod, tcp(1), true, true}},
		"default-deny-ingress.yaml": {{anyPod, db, tcp(1), true, false}, {anyPod, end("other", "", ""), tcp(1), true, true}},
		"default-deny-all.yaml":     {{anyPod, db, udp(53), false, false}},
		"allow-all-egress.yaml":     {{anyPod, db, udp(53), true, true}},
		"allow-all-ingress.yaml":    {{anyPod, db, udp(53), true, true}},
		"test-network-policy.yaml": {
			{end("x", "", "", "172.17.0.9"), db, tcp(6379), true, true},
			{end("x", "", "", "172.17.1.9"), db, tcp(6379), true, false}, // excepted
			{end("x", "", "", "172.17.2.9"), db, tcp(6380), true, false},
			{end("x", "", "", "172.17.2.9"), db, udp(6379), true, false},
			{end("mine", "", "", "192.0.2.1"), db, tcp(6379), true, true},
			{end("default", "role", "frontend", "192.0.2.1"), db, tcp(6379), true, true},
			{end("other", "role", "frontend", "192.0.2.1"), db, tcp(6379), true, false}, // of the policy's own namespace only
			{end("x", "", "", "192.0.2.1"), end("default", "role", "web"), tcp(1), true, true},
			{db, end("x", "", "", "10.0.0.7"), tcp(5978), true, true},
			{db, end("x", "", "", "10.0.1.7"), tcp(5978), false, true},
			{db, end("x", "", "", "10.0.0.7"), tcp(5979), false, true},
		},
		"namespace-and-pod-selector.yaml": {
			{end("alices", "role", "client"), anyPod, tcp(1), true, true},
			{end("alices", "role", "other"), anyPod, tcp(1), true, false},
			{end("default", "role", "client"), anyPod, tcp(1), true, false},
		},
		"namespace-or-pod-selector.yaml": {
			{end("alices", "role", "other"), anyPod, tcp(1), true, true},
			{end("default", "role", "client"), anyPod, tcp(1), true, true},
			{end("mine", "role", "client"), anyPod, tcp(1), true, false},
		},
		"multi-port-egress.yaml": {
			{db, end("x", "", "", "10.0.0.7"), tcp(31999), false, true},
			{db, end("x", "", "", "10.0.0.7"), tcp(32000), true, true},
			{db, end("x", "", "", "10.0.0.7"), tcp(32768), true, true},
			{db, end("x", "", "", "10.0.0.7"), tcp(32769), false, true},
		},
		"egress-namespaces.yaml": {
			{end("default", "app", "myapp"), end("fe", "", ""), tcp(1), true, true},
			{end("default", "app", "myapp"), end("mine", "", ""), tcp(1), false, true},
			{end("default", "app", "other"), end("mine", "", ""), tcp(1), true, true},
		},
		"host-network-selected.yaml": {
			{anyPod, &End{Namespace: "default", Labels: map[string]string{"role": "client"}, HostNetwork: true}, tcp(1), true, true},
			{anyPod, end("default", "role", "client"), tcp(1), true, false},
		},
		"host-network-peer.yaml": {{end("default", "role", "client"), anyPod, tcp(1), true, true}},
	}
	for file, connections := range tests {
		s := example(t, file, alice, mine, frontend)
		for _, q := range connections {
			if got := s.Egress(q.from, q.to, q.port); got.Allowed != q.egress {
				t.Errorf("%s: Egress(%+v, %+v, %+v) = %t, want %t", file, *q.from, *q.to, q.port, got.Allowed, q.egress)
			}
			if got := s.Ingress(q.to, q.from, q.port); got.Allowed != q.ingress {
				t.Errorf("%s: Ingress(%+v, %+v, %+v) = %t, want %t", file, *q.to, *q.from, q.port, got.Allowed, q.ingress)
			}
		}
	}
}

// egressPolicy returns a policy that restricts the egress of all Pods in the namespace
// orders to these rules.
func egressPolicy(name string, rules ...cluster.PolicyRule) *cluster.NetworkPolicy {
	return &cluster.NetworkPolicy{Key: cluster.Key{Namespace: "orders", Name: name}, Egress: true, EgressRules: rules}
}

func withPolicies(policies ...*cluster.NetworkPolicy) *cluster.Store {
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		for _, p := range policies {
			tx.Put(p)
		}
	})
	return store
}

func block(cidr string, except ...string) cluster.PolicyPeer {
	p := cluster.PolicyPeer{Block: netip.MustParsePrefix(cidr)}
	for _, e := range except {
		p.Except = append(p.Except, netip.MustParsePrefix(e))
	}
	return p
}

func TestReach(t *testing.T) {
	t.Parallel()
	dnsKey := cluster.Key{Namespace: "kube-system", Name: "kube-dns"}
	byName := cluster.PolicyPeer{Namespaces: &cluster.Selector{Labels: map[string]string{nameLabel: "kube-system"}}}
	port := func(p cluster.Protocol, from, to uint16) cluster.PolicyPort {
		return cluster.PolicyPort{Protocol: p, Number: from, End: to}
	}
	service := func(target string) *cluster.Service {
		return &cluster.Service{Key: dnsKey, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.10")}, Selector: map[string]string{"app": "dns"},
			Ports: []cluster.Port{{Name: "dns", Protocol: cluster.UDP, Number: 53}}, Targets: []string{target}}
	}
	pod := func(hostNetwork bool) *cluster.Pod {
		return &cluster.Pod{Key: cluster.Key{Namespace: "kube-system", Name: "dns-1"}, Labels: map[string]string{"app": "dns"}, IPs: []netip.Addr{netip.MustParseAddr("10.244.0.7")},
			Spec: &cluster.PodSpec{HostNetwork: hostNetwork, Ports: []cluster.Port{{Name: "dns", Protocol: cluster.UDP, Number: 5353}}}}
	}
	atDNS := func(rules ...cluster.PolicyRule) *cluster.NetworkPolicy {
		return &cluster.NetworkPolicy{Key: cluster.Key{Namespace: "kube-system", Name: "dns"}, Ingress: true, IngressRules: rules}
	}
	rule := func(peer cluster.PolicyPeer, ports ...cluster.PolicyPort) cluster.PolicyRule {
		return cluster.PolicyRule{Peers: []cluster.PolicyPeer{peer}, Ports: ports}
	}
	tests := map[string]struct {
		service  *cluster.Service
		pod      *cluster.Pod
		policies []*cluster.NetworkPolicy
		want     bool
		lacks    Mismatch
	}{
		"nothing restricts":                                       {nil, nil, nil, true, Both},
		"a namespace has its name as a label":                     {nil, nil, []*cluster.NetworkPolicy{egressPolicy("a", rule(byName, port(cluster.UDP, 53, 53)))}, true, Both},
		"denied without a rule":                                   {nil, nil, []*cluster.NetworkPolicy{egressPolicy("a")}, false, Both},
		"policies are additive":                                   {nil, nil, []*cluster.NetworkPolicy{egressPolicy("a"), egressPolicy("b", cluster.PolicyRule{})}, true, Both},
		"another protocol is another port":                        {nil, nil, []*cluster.NetworkPolicy{egressPolicy("a", rule(byName, port(cluster.TCP, 53, 53)))}, false, Ports},
		"other Pods":                                              {nil, nil, []*cluster.NetworkPolicy{egressPolicy("a", rule(cluster.PolicyPeer{Pods: &cluster.Selector{}}, port(cluster.UDP, 53, 53)))}, false, Peers},
		"the port is the Pod's own":                               {service("5353"), pod(false), []*cluster.NetworkPolicy{egressPolicy("a", rule(byName, port(cluster.UDP, 53, 53)))}, false, Ports},
		"the port is the Pod's own, which is allowed":             {service("5353"), pod(false), []*cluster.NetworkPolicy{egressPolicy("a", rule(byName, port(cluster.UDP, 5353, 5353)))}, true, Both},
		"the port is that of the name":                            {service("dns"), pod(false), []*cluster.NetworkPolicy{egressPolicy("a", rule(byName, port(cluster.UDP, 5000, 6000)))}, true, Both},
		"a named port":                                            {service("dns"), pod(false), []*cluster.NetworkPolicy{egressPolicy("a", rule(byName, cluster.PolicyPort{Protocol: cluster.UDP, Name: "dns"}))}, true, Both},
		"a named port of another protocol":                        {service("dns"), pod(false), []*cluster.NetworkPolicy{egressPolicy("a", rule(byName, cluster.PolicyPort{Protocol: cluster.TCP, Name: "dns"}))}, false, Ports},
		"all ports of a protocol":                                 {service("dns"), pod(false), []*cluster.NetworkPolicy{egressPolicy("a", rule(byName, cluster.PolicyPort{Protocol: cluster.UDP}))}, true, Both},
		"a block that covers the cluster IP only":                 {service(""), pod(false), []*cluster.NetworkPolicy{egressPolicy("a", rule(block("10.96.0.0/16")))}, false, VirtualIPs},
		"the cluster IP, and the Pods are not known":              {service(""), nil, []*cluster.NetworkPolicy{egressPolicy("a", rule(block("10.96.0.10/32")))}, false, VirtualIPs},
		"a block, and the Pods are not known":                     {service(""), nil, []*cluster.NetworkPolicy{egressPolicy("a", rule(block("10.0.0.0/8")))}, true, Both},
		"selectors do not match Pods with hostNetwork":            {service(""), pod(true), []*cluster.NetworkPolicy{egressPolicy("a", rule(byName))}, false, Peers},
		"blocks match Pods with hostNetwork":                      {service(""), pod(true), []*cluster.NetworkPolicy{egressPolicy("a", rule(block("10.244.0.0/16")))}, true, Both},
		"a block that covers the Pod":                             {service(""), pod(false), []*cluster.NetworkPolicy{egressPolicy("a", rule(block("10.244.0.0/16")))}, true, Both},
		"a block that excepts the Pod, and covers the cluster IP": {service(""), pod(false), []*cluster.NetworkPolicy{egressPolicy("a", rule(block("10.0.0.0/8", "10.244.0.0/16")))}, false, Excepted},
		"a block that covers neither":                             {service(""), pod(false), []*cluster.NetworkPolicy{egressPolicy("a", rule(block("192.0.2.0/24")))}, false, Peers},
		"a block that excepts both":                               {service(""), pod(false), []*cluster.NetworkPolicy{egressPolicy("a", rule(block("0.0.0.0/0", "10.0.0.0/8")))}, false, Excepted},
		"ingress is denied":                                       {service(""), pod(false), []*cluster.NetworkPolicy{atDNS()}, false, Both},
		"ingress from any namespace":                              {service(""), pod(false), []*cluster.NetworkPolicy{atDNS(rule(cluster.PolicyPeer{Namespaces: &cluster.Selector{}}, port(cluster.UDP, 53, 53)))}, true, Both},
		"ingress from its own namespace":                          {service(""), pod(false), []*cluster.NetworkPolicy{atDNS(rule(cluster.PolicyPeer{Pods: &cluster.Selector{}}))}, false, Peers},
		"ingress rules do not apply to hostNetwork":               {service(""), pod(true), []*cluster.NetworkPolicy{atDNS()}, true, Both},
		"a policy for ingress does not restrict egress":           {nil, nil, []*cluster.NetworkPolicy{{Key: cluster.Key{Namespace: "orders", Name: "in"}, Ingress: true}}, true, Both},
	}
	for claim, test := range tests {
		store := withPolicies(test.policies...)
		store.Update(func(tx *cluster.Tx) {
			if test.service != nil {
				tx.Put(test.service)
			}
			if test.pod != nil {
				tx.Put(test.pod)
			}
		})
		store.View(func(v *cluster.View) {
			r := FindDNS(v, dnsKey, nil).Reach(NewSet(v), end("orders", "app", "web"), cluster.UDP)
			if got := r.Allowed(); got != test.want {
				t.Errorf("%s: Reach = %+v, want %t", claim, r, test.want)
			}
			near := r.Egress.Nearest
			if near.Policy == nil {
				near = r.Ingress.Nearest
			}
			if !test.want && near.Mismatch != test.lacks {
				t.Errorf("%s: the mismatch of the nearest rule is %d, want %d", claim, near.Mismatch, test.lacks)
			}
		})
	}
}

// TestHostNetwork verifies that Pods with hostNetwork are not restricted.
func TestHostNetwork(t *testing.T) {
	t.Parallel()
	store := withPolicies(egressPolicy("deny"))
	store.View(func(v *cluster.View) {
		r := FindDNS(v, cluster.Key{Namespace: "kube-system", Name: "kube-dns"}, nil).Reach(NewSet(v), &End{Namespace: "orders", HostNetwork: true}, cluster.UDP)
		if !r.Allowed() {
			t.Errorf("Reach = %+v, want it allowed", r)
		}
	})
}

// TestPeersOfSelectors verifies that selectors match neither Pods with hostNetwork nor
// addresses outside the cluster, which blocks and rules without peers do match.
func TestPeersOfSelectors(t *testing.T) {
	t.Parallel()
	all, some := &cluster.Selector{}, &cluster.Selector{Labels: map[string]string{"app": "web"}}
	outside := End{Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.9")}}
	host := End{Namespace: "orders", Labels: some.Labels, Addrs: outside.Addrs, HostNetwork: true}
	pod := End{Namespace: "orders", Labels: some.Labels, Addrs: outside.Addrs}
	for claim, test := range map[string]struct {
		peers              []cluster.PolicyPeer
		outside, host, pod bool
	}{
		"an empty namespaceSelector": {[]cluster.PolicyPeer{{Namespaces: all}}, false, false, true},
		"an empty podSelector":       {[]cluster.PolicyPeer{{Pods: all}}, false, false, true},
		"a podSelector":              {[]cluster.PolicyPeer{{Pods: some}}, false, false, true},
		"both":                       {[]cluster.PolicyPeer{{Namespaces: all, Pods: some}}, false, false, true},
		"a block":                    {[]cluster.PolicyPeer{block("192.0.2.0/24")}, true, true, true},
		"no peers":                   {nil, true, true, true},
	} {
		rules := []cluster.PolicyRule{{Peers: test.peers}}
		policy := &cluster.NetworkPolicy{Key: cluster.Key{Namespace: "orders", Name: "p"}, Ingress: true, IngressRules: rules, Egress: true, EgressRules: rules}
		s := setOf(withPolicies(policy))
		own := End{Namespace: "orders"}
		for peer, want := range map[*End]bool{&outside: test.outside, &host: test.host, &pod: test.pod} {
			if got := s.Ingress(&own, peer, tcp(80)); got.Allowed != want {
				t.Errorf("%s: Ingress from %+v = %t, want %t", claim, *peer, got.Allowed, want)
			}
			if got := s.Egress(&own, peer, tcp(80)); got.Allowed != want {
				t.Errorf("%s: Egress to %+v = %t, want %t", claim, *peer, got.Allowed, want)
			}
		}
	}
}
