package lint_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/dnsconfig/podrand"
	"portolan.dev/portolan/internal/pod/lint"
)

// generator generates random objects. It uses few names, so that the objects refer to
// each other.
type generator struct{ *rand.Rand }

func (g generator) word() string {
	return podrand.Pick(g.Rand, "web", "wbe", "db", "dev", "svc", "dns", "kube-dns", "a")
}

func (g generator) namespace() string { return podrand.Pick(g.Rand, "orders", "dev", "kube-system") }

func (g generator) key() cluster.Key { return cluster.Key{Namespace: g.namespace(), Name: g.word()} }

func (g generator) maybe(word string) string { return podrand.Pick(g.Rand, "", word) }

func (g generator) labels() map[string]string {
	labels := make(map[string]string)
	for range g.IntN(3) {
		labels[podrand.Pick(g.Rand, "app", "tier", "k8s-app")] = g.word()
	}
	return labels
}

func (g generator) addr() netip.Addr {
	return netip.MustParseAddr(podrand.Pick(g.Rand, "10.96.0.10", "10.96.0.20", "10.244.0.7", "10.244.0.8", "fd00::7", "127.0.0.1"))
}

func (g generator) addrs() (all []netip.Addr) {
	for range g.IntN(3) {
		all = append(all, g.addr())
	}
	return all
}

func (g generator) port() cluster.Port {
	return cluster.Port{Name: g.maybe(g.word()), Protocol: podrand.Pick(g.Rand, cluster.TCP, cluster.UDP), Number: podrand.Pick[uint16](g.Rand, 53, 80, 8080)}
}

func (g generator) ports() (all []cluster.Port) {
	for range g.IntN(4) {
		all = append(all, g.port())
	}
	return all
}

func (g generator) service() *cluster.Service {
	s := &cluster.Service{Key: g.key(), Headless: g.IntN(2) == 0, ClusterIPs: g.addrs(), Ports: g.ports(), PublishNotReady: g.IntN(5) == 0}
	if g.IntN(4) > 0 {
		s.Selector = g.labels()
	}
	if g.IntN(4) == 0 {
		s.ExternalName = podrand.Pick(g.Rand, "", "10.0.0.1", "::1", ".", "cluster.local", "..", g.word(), g.word()+"."+g.namespace()) + podrand.Pick(g.Rand, "", ".", ".svc", ".svc.cluster.local", ".svc.cluster.local.")
	}
	for range g.IntN(4) { // fewer than the ports, or more
		s.Targets = append(s.Targets, podrand.Pick(g.Rand, "", "80", "99999", "-1", g.word()))
	}
	return s
}

func (g generator) slice() *cluster.EndpointSlice {
	e := &cluster.EndpointSlice{Key: g.key(), Service: g.maybe(g.word()), AddressType: podrand.Pick(g.Rand, cluster.IPv4, cluster.IPv6, cluster.FQDN), Ports: g.ports()}
	for range g.IntN(4) {
		e.Endpoints = append(e.Endpoints, cluster.Endpoint{Addr: g.addr(), Hostname: g.maybe(g.word()), Pod: g.maybe(g.word()), Ready: g.IntN(2) == 0, Terminating: g.IntN(3) == 0})
	}
	return e
}

func (g generator) spec() cluster.PodSpec {
	s := cluster.PodSpec{
		OS: podrand.Pick(g.Rand, "", "", "windows"), HostNetwork: g.IntN(4) == 0,
		DNSPolicy: podrand.Pick(g.Rand, "", "Default", "ClusterFirst", "ClusterFirstWithHostNet", "None", "Custom", "x"),
		Hostname:  g.maybe(g.word()), Subdomain: g.maybe(g.word()), SetHostnameAsFQDN: g.IntN(4) == 0, Ports: g.ports(),
	}
	if g.IntN(6) == 0 {
		name := g.word()
		s.HostnameOverride = &name
	}
	if g.IntN(2) == 0 {
		s.DNSConfig = &cluster.DNSConfig{
			Nameservers: podrand.Several(g.Rand, 4, "10.96.0.10", "10.96.0.20", "192.0.2.7", "FD00::7", "x"),
			Searches:    append(podrand.Searches(g.Rand), podrand.Several(g.Rand, 2, "", ".", "svc", "svc.x", "dev.svc.cluster.local", "nowhere.svc.cluster.local")...),
		}
		for range g.IntN(3) {
			s.DNSConfig.Options = append(s.DNSConfig.Options, cluster.DNSOption{Name: podrand.Pick(g.Rand, "", "ndots", "ndot", "ndots:2", "edns0"), Value: podrand.Pick(g.Rand, "", "0", "1", "2", "20", "x")})
		}
	}
	return s
}

func (g generator) pod() *cluster.Pod {
	p := &cluster.Pod{Key: g.key(), IPs: g.addrs(), Labels: g.labels(), Finished: g.IntN(5) == 0, Deleting: g.IntN(5) == 0}
	p.Name += podrand.Pick(g.Rand, "", "-1", "-5d4cf56db6-2xkqp", "-")
	if g.IntN(8) > 0 {
		s := g.spec()
		p.Spec = &s
	}
	for range g.IntN(3) {
		p.Unmet = append(p.Unmet, cluster.Condition{Type: podrand.Pick(g.Rand, "Ready", "PodScheduled", "gate"), Status: "False", Reason: g.maybe("Why"), Message: g.maybe("because")})
	}
	return p
}

func (g generator) workload() *cluster.Workload {
	w := &cluster.Workload{Kind: podrand.Pick(g.Rand, cluster.WorkloadKinds()...), Key: g.key(), Replicas: g.IntN(3), Service: g.maybe(g.word()), Labels: g.labels(), Spec: g.spec()}
	if g.IntN(3) > 0 {
		w.Selector = &cluster.Selector{Labels: w.Labels}
	}
	return w
}

func (g generator) selector() *cluster.Selector {
	if g.IntN(3) == 0 {
		return nil
	}
	return &cluster.Selector{Labels: g.labels()}
}

func (g generator) policyRules() (rules []cluster.PolicyRule) {
	for range g.IntN(3) {
		var r cluster.PolicyRule
		for range g.IntN(3) {
			peer := cluster.PolicyPeer{Pods: g.selector(), Namespaces: g.selector()}
			if g.IntN(3) == 0 {
				peer = cluster.PolicyPeer{Block: netip.MustParsePrefix("10.0.0.0/8"), Except: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}
			}
			r.Peers = append(r.Peers, peer)
		}
		for range g.IntN(3) {
			r.Ports = append(r.Ports, cluster.PolicyPort{Protocol: podrand.Pick(g.Rand, cluster.TCP, cluster.UDP), Number: 53, End: podrand.Pick[uint16](g.Rand, 53, 60), Name: g.maybe("dns")})
		}
		rules = append(rules, r)
	}
	return rules
}

func (g generator) networkPolicy() *cluster.NetworkPolicy {
	return &cluster.NetworkPolicy{Key: g.key(), Pods: cluster.Selector{Labels: g.labels()}, Ingress: g.IntN(2) == 0, Egress: g.IntN(2) == 0, IngressRules: g.policyRules(), EgressRules: g.policyRules()}
}

func (g generator) path() string {
	return podrand.Pick(g.Rand, "", "/", "/a", "/a/", "/a/*", "/b?c", "a", ".*", "/a%zz")
}

func (g generator) host() string {
	return podrand.Pick(g.Rand, "", "a.test", "*.test", "b.a.test", "c.example")
}

func (g generator) ingress() *cluster.Frontend {
	f := &cluster.Frontend{Kind: cluster.KindIngress, Key: g.key(), Ingress: &cluster.IngressSpec{
		Class: podrand.Pick(g.Rand, "", "web", "wbe"), OldClass: podrand.Pick(g.Rand, "", "", "web"),
	}}
	backend := func() cluster.IngressBackend {
		b := cluster.Backend{Field: "spec", Service: g.word(), Number: podrand.Pick[uint16](g.Rand, 53, 80)}
		f.Backends = append(f.Backends, b)
		return cluster.IngressBackend{Backend: b}
	}
	for range g.IntN(4) {
		r := cluster.IngressRule{Host: g.host()}
		for range g.IntN(3) {
			r.Paths = append(r.Paths, cluster.IngressPath{
				Path: g.path(), Backend: backend(),
				Type: podrand.Pick(g.Rand, cluster.PathExact, cluster.PathPrefix, cluster.PathImplementationSpecific),
			})
		}
		f.Ingress.Rules = append(f.Ingress.Rules, r)
	}
	for range g.IntN(2) {
		f.Ingress.TLS = append(f.Ingress.TLS, cluster.IngressTLS{Hosts: []string{g.host()}, Secret: g.word()})
	}
	if g.IntN(4) == 0 {
		b := backend()
		f.Ingress.Default = &b
	}
	return f
}

func (g generator) listeners() (all []cluster.Listener) {
	for range 1 + g.IntN(3) {
		l := cluster.Listener{
			Name: g.word(), Hostname: g.host(), Port: podrand.Pick[uint16](g.Rand, 80, 443),
			Protocol:   podrand.Pick(g.Rand, cluster.HTTPProtocol, cluster.HTTPSProtocol, cluster.TCPProtocol),
			Namespaces: cluster.AllowedNamespaces{From: podrand.Pick(g.Rand, cluster.FromAll, cluster.FromSame, cluster.FromSelector), Selector: g.selector()},
		}
		if l.Protocol == cluster.HTTPSProtocol {
			l.TLS = &cluster.ListenerTLS{Mode: cluster.TLSTerminate, Certificates: []cluster.ObjectRef{g.ref("Secret")}}
		}
		all = append(all, l)
	}
	return all
}

// ref returns a reference to an object of the core group.
func (g generator) ref(kind string) cluster.ObjectRef {
	return cluster.ObjectRef{Kind: kind, Namespace: g.namespace(), Name: g.word()}
}

// parentRef returns a reference to a Gateway or another kind of its group.
func (g generator) parentRef(kind string) cluster.ObjectRef {
	r := g.ref(kind)
	r.Group = "gateway.networking.k8s.io"
	return r
}

func (g generator) gateway() *cluster.Frontend {
	return &cluster.Frontend{Kind: cluster.KindGateway, Key: g.key(), Gateway: &cluster.GatewaySpec{
		Class: podrand.Pick(g.Rand, "web", "wbe", "db"), Listeners: g.listeners(),
		ListenerSets: cluster.AllowedNamespaces{From: podrand.Pick(g.Rand, cluster.FromAll, cluster.FromNone)},
	}}
}

func (g generator) listenerSet() *cluster.ListenerSet {
	return &cluster.ListenerSet{Key: g.key(), Parent: g.parentRef("Gateway"), Listeners: g.listeners()}
}

func (g generator) route() *cluster.Route {
	r := &cluster.Route{Kind: cluster.KindHTTPRoute, Key: g.key(), Spec: &cluster.RouteSpec{}}
	for range g.IntN(3) {
		r.Hosts = append(r.Hosts, podrand.Pick(g.Rand, "a.test", "*.test", "b.a.test", "c.example"))
	}
	for range g.IntN(3) {
		p := cluster.ParentRef{ObjectRef: g.parentRef(podrand.Pick(g.Rand, "Gateway", "ListenerSet", "Service")), Section: g.maybe(g.word())}
		r.Spec.Parents = append(r.Spec.Parents, p)
	}
	for range g.IntN(3) {
		rule := cluster.RouteRule{Matches: []cluster.RouteMatch{{
			Path:   cluster.PathMatch{Type: podrand.Pick(g.Rand, cluster.PathExact, cluster.PathPathPrefix, cluster.PathRegularExpression), Value: g.path()},
			Method: podrand.Pick(g.Rand, "", "", "GET", "CONNECT"),
		}}}
		if g.IntN(3) == 0 {
			rule.Filters = []cluster.Filter{{Type: cluster.RequestRedirect, Redirect: &cluster.Redirect{Scheme: podrand.Pick(g.Rand, "", "https"), Status: 302}}}
		}
		if g.IntN(3) > 0 {
			to := cluster.BackendRef{ObjectRef: g.ref("Service"), Port: podrand.Pick[uint16](g.Rand, 53, 80)}
			rule.Backends = []cluster.RouteBackend{{BackendRef: to, Weight: 1}}
		}
		r.Spec.Rules = append(r.Spec.Rules, rule)
	}
	return r
}

func (g generator) grant() *cluster.ReferenceGrant {
	r := &cluster.ReferenceGrant{Key: g.key()}
	r.From = []cluster.GrantFrom{{GroupKind: cluster.GroupKind{Group: "gateway.networking.k8s.io", Kind: "HTTPRoute"}, Namespace: g.namespace()}}
	r.To = []cluster.GrantTo{{GroupKind: cluster.GroupKind{Kind: "Service"}}}
	return r
}

func (g generator) secret() *cluster.Secret {
	return &cluster.Secret{
		Key: g.key(), Type: podrand.Pick(g.Rand, "Opaque", "kubernetes.io/tls"),
		Data: map[string]cluster.Confidential{"tls.crt": []byte(g.maybe("x")), "tls.key": []byte(g.maybe("x"))},
	}
}

// gateways puts objects of gateways.
func (g generator) gateways(tx *cluster.Tx) {
	tx.Put(g.gateway())
	tx.Put(g.route())
	tx.Put(g.ingress())
	tx.Put(g.secret())
	if g.IntN(3) == 0 {
		tx.Put(g.listenerSet())
		tx.Put(g.grant())
		tx.Put(&cluster.GatewayClass{Name: g.word(), Controller: g.word()})
		tx.Put(&cluster.IngressClass{Name: g.word(), Controller: g.word(), Default: g.IntN(2) == 0})
	}
}

// store returns a Store with a few objects of each kind. Some kinds may not be loaded.
func (g generator) store() *cluster.Store {
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		for range g.IntN(12) {
			tx.Put(&cluster.Namespace{Name: podrand.Pick(g.Rand, g.namespace(), g.word()), Labels: g.labels()})
			tx.Put(g.service())
			tx.Put(g.slice())
			tx.Put(g.pod())
			tx.Put(g.workload())
			if g.IntN(3) == 0 {
				tx.Put(g.networkPolicy())
			}
			if g.IntN(2) == 0 {
				g.gateways(tx)
			}
		}
		for _, k := range cluster.Kinds() {
			if g.IntN(20) > 0 {
				tx.SetFreshness(cluster.Live, k)
			}
		}
	})
	return store
}

// FuzzAll checks that, for any cluster, the findings are the same each time, in order,
// and those of known rules.
func FuzzAll(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	severe := make(map[string]bool)
	for _, r := range lint.Rules() {
		severe[r.ID] = true
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		g := generator{rand.New(rand.NewPCG(seed, 0))}
		store, node := g.store(), usualNode()
		if g.IntN(5) == 0 {
			node = dnsconfig.NodeSettings{}
		}
		found := all(store, node)
		if again := all(store, node); !slices.Equal(found, again) {
			t.Errorf("All = %q, and then %q", lines(found), lines(again))
		}
		inOrder := func(a, b lint.Finding) int {
			if a.Object == b.Object && a.Rule > b.Rule {
				return 1
			}
			return a.Object.Compare(b.Object)
		}
		if !slices.IsSortedFunc(found, inOrder) {
			t.Errorf("All is not in order: %q", lines(found))
		}
		for _, f := range found {
			if !severe[f.Rule] || f.Message == "" || f.Fix == "" {
				t.Errorf("finding %+v: want a known rule, a message and a fix", f)
			}
		}
	})
}

// TestEveryRuleIsMet checks that generated clusters break most rules, so that FuzzAll
// covers them.
func TestEveryRuleIsMet(t *testing.T) {
	met := make(map[string]bool)
	for seed := range uint64(400) {
		g := generator{rand.New(rand.NewPCG(seed, 0))}
		for _, f := range all(g.store(), usualNode()) {
			met[f.Rule] = true
		}
	}
	if want := len(lint.Rules()) * 3 / 4; len(met) < want {
		t.Errorf("%d rules are broken by chance, want %d at least", len(met), want)
	}
}

// big returns a cluster with the given number of Services, each with four Pods, a
// Deployment and an EndpointSlice. Some Services have a wrong selector, and the
// Namespaces have a NetworkPolicy.
func big(services int) *cluster.Store {
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		for i := range services {
			ns, name := "ns-"+strconv.Itoa(i/100), "svc-"+strconv.Itoa(i)
			labels := map[string]string{"app": name, "tier": "backend"}
			if i%100 == 0 {
				tx.Put(&cluster.Namespace{Name: ns})
				tx.Put(&cluster.NetworkPolicy{Key: cluster.Key{Namespace: ns, Name: "deny"}, Egress: true})
			}
			selector := labels
			if i%10 == 0 {
				selector = map[string]string{"app": name + "x", "tier": "backend"}
			}
			tx.Put(&cluster.Service{Key: cluster.Key{Namespace: ns, Name: name}, Selector: selector, Ports: []cluster.Port{{Protocol: cluster.TCP, Number: 80}}, Targets: []string{"http"}})
			spec := cluster.PodSpec{Ports: []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 8080}}}
			tx.Put(&cluster.Workload{Kind: cluster.KindDeployment, Key: cluster.Key{Namespace: ns, Name: name}, Replicas: 4, Selector: &cluster.Selector{Labels: labels}, Labels: labels, Spec: spec})
			slice := &cluster.EndpointSlice{Key: cluster.Key{Namespace: ns, Name: name + "-x"}, Service: name, AddressType: cluster.IPv4}
			for j := range 4 {
				addr := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(j)})
				tx.Put(&cluster.Pod{Key: cluster.Key{Namespace: ns, Name: fmt.Sprintf("%s-5d4cf56db6-%d", name, j)}, IPs: []netip.Addr{addr}, Labels: labels, Spec: &spec})
				if i%10 != 0 {
					slice.Endpoints = append(slice.Endpoints, cluster.Endpoint{Addr: addr, Ready: true})
				}
			}
			tx.Put(slice)
		}
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
	})
	return store
}

// BenchmarkAll checks clusters with four Pods per Service. The time per Service must
// not grow with the cluster.
func BenchmarkAll(b *testing.B) {
	for _, services := range []int{1000, 10000} {
		b.Run(strconv.Itoa(services), func(b *testing.B) {
			store, node := big(services), usualNode()
			for b.Loop() {
				all(store, node)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*services), "µs/service")
		})
	}
}
