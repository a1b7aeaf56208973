package api

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/plan"
)

// proxyNode is the node that tests compile for.
var proxyNode = plan.Node{
	Name: "a-1", Zone: "b",
	NodePorts: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
	Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
}

// proxyResources are the kinds that service proxies read.
func proxyResources() (all []*resource) {
	for _, r := range resources {
		switch r.Model {
		case cluster.KindService, cluster.KindEndpointSlice, cluster.KindNode, cluster.KindServiceCIDR:
			all = append(all, r)
		}
	}
	return all
}

// fillForProxy makes a random object as fill does, of values that matter to service proxies.
func fillForProxy(seed uint64, object any) {
	fill(seed).Fill(object)
	r := rand.New(rand.NewPCG(seed, 1))
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	switch o := object.(type) {
	case *corev1.Service:
		o.Namespace, o.Name = "shop", "web"
		delete(o.Labels, cluster.LabelProxyName)
		if r.IntN(8) == 0 {
			o.Labels = map[string]string{cluster.LabelProxyName: pick("", "other")}
		}
		o.Annotations = map[string]string{
			cluster.AnnotationEndpointChoice: pick("", "client-hash", "x"), cluster.AnnotationSlowStart: pick("", "30s", "x"),
		}
		o.Spec.Type = corev1.ServiceType(pick("ClusterIP", "NodePort", "LoadBalancer", "ExternalName"))
		o.Spec.ExternalName = "example.com"
		o.Spec.IPFamilies = nil
		switch pick("v4", "v6", "both", "none") {
		case "v4":
			o.Spec.ClusterIP, o.Spec.ClusterIPs = "10.96.0.1", nil
		case "v6":
			o.Spec.ClusterIP, o.Spec.ClusterIPs = "fd96::1", []string{"fd96::1"}
		case "both":
			o.Spec.ClusterIP, o.Spec.ClusterIPs = "10.96.0.1", []string{"10.96.0.1", "fd96::1"}
		default:
			o.Spec.ClusterIP, o.Spec.ClusterIPs = "None", nil
		}
		o.Spec.Ports = []corev1.ServicePort{{Name: pick("", "web"), Port: 80, NodePort: 30080, Protocol: "TCP"}}
		o.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicy(pick("Local", "Cluster"))
		o.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicy(pick("Local", "Cluster")))
		o.Spec.SessionAffinity = corev1.ServiceAffinity(pick("None", "ClientIP"))
		o.Spec.ExternalIPs = []string{"203.0.113.1", pick("203.0.113.2", "2001:db8:1::1")}
		o.Spec.LoadBalancerSourceRanges = []string{pick("192.0.2.0/24", "0.0.0.0/0", "x"), pick("198.51.100.0/24", "::/0")}
		o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}, {Hostname: "lb.example"}}
	case *discoveryv1.EndpointSlice:
		o.Namespace = "shop"
		o.Labels = map[string]string{discoveryv1.LabelServiceName: pick("web", "web", "web", "db"), discoveryv1.LabelManagedBy: "x"}
		o.Annotations = map[string]string{cluster.AnnotationEndpointWeight: pick("", "10", "x")}
		o.AddressType = discoveryv1.AddressTypeIPv4
		o.Ports = []discoveryv1.EndpointPort{{Name: new(pick("", "web")), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}}
		for i := range o.Endpoints {
			e := &o.Endpoints[i]
			e.Addresses, e.Hostname = []string{pick("10.0.0.1", "10.0.0.2")}, nil
			e.NodeName = new(pick("a-1", "b"))
		}
	case *corev1.Node:
		o.Spec.PodCIDRs = []string{"10.1.0.0/24", pick("fd01::/64", "x")}
		o.Spec.Taints = []corev1.Taint{{Key: pick("a", "ToBeDeletedByClusterAutoscaler"), Value: "b"}}
		o.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "203.0.113.7"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
	case *networkingv1.ServiceCIDR:
		o.Spec.CIDRs = []string{pick("10.96.0.0/16", "10.97.0.0/16"), "fd96::/112"}
	}
}

// TestForNodeCutFields checks that removing unused fields does not change what service
// proxies and policies read.
func TestForNodeCutFields(t *testing.T) {
	t.Parallel()
	checkCutFields(t, &Config{Detail: ForProxy}, proxyResources())
	policy := proxyResources()
	for _, r := range resources {
		if r.Model == cluster.KindPod || r.Model == cluster.KindNamespace {
			policy = append(policy, r)
		}
	}
	checkCutFields(t, &Config{Detail: ForPolicy}, policy)
}

func checkCutFields(t *testing.T, cfg *Config, all []*resource) {
	t.Helper()
	const seeds = 500
	for _, r := range all {
		kept, good := cfg.kept()[r.Model.String()], 0
		if kept == nil {
			t.Fatalf("%s: all fields are kept", r.Model)
		}
		for seed := range uint64(seeds) {
			object, again := newMessage(r), newMessage(r)
			if fill(seed).Fill(object); seed%2 == 0 {
				fillForProxy(seed, object)
			}
			wire, err := object.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			cut, err := kept.cut(bytes.Clone(wire))
			if err == nil {
				err = again.Unmarshal(cut)
			}
			if err != nil {
				t.Fatalf("%s, seed %d: cut: %v", r.Model, seed, err)
			}
			want, got := r.convert(object, cfg), r.convert(again, cfg)
			if diff := diffItems(want, got); diff != "" {
				t.Fatalf("%s, seed %d: (-whole +cut)\n%s", r.Model, seed, diff)
			}
			if again.GetResourceVersion() != object.GetResourceVersion() || again.GetManagedFields() != nil {
				t.Fatalf("%s, seed %d: metadata %+v", r.Model, seed, again)
			}
			if got.err == nil {
				good++
			}
		}
		if good < seeds/50 {
			t.Errorf("%s: %d of %d random objects are good, want more", r.Model, good, seeds)
		}
	}
}

// TestForProxyCompilesToTheSame checks that what service proxies read is enough: Services
// compile to the same as from all fields.
func TestForProxyCompilesToTheSame(t *testing.T) {
	t.Parallel()
	const seeds = 2000
	compiled, checked := 0, 0
	for seed := range uint64(seeds) {
		var all []typed
		for i, r := range append(proxyResources(), proxyResources()...) {
			o := newMessage(r)
			fillForProxy(seed+uint64(i)*seeds, o)
			o.SetName(o.GetName() + []string{"-1", "-2"}[i%2])
			if r.Model == cluster.KindService {
				o.SetName("web")
			}
			all = append(all, typed{r, o})
		}
		want, got := compileFrom(t, all, All), compileFrom(t, all, ForProxy)
		if diff := cmp.Diff(want, got, compared()); diff != "" {
			t.Fatalf("seed %d: (-All +ForProxy)\n%s", seed, diff)
		}
		checked += len(got.checks)
		for _, f := range got.state.Frontends {
			if len(f.Endpoints) > 0 {
				compiled++
			}
		}
	}
	if compiled < seeds/10 || checked < seeds/50 {
		t.Errorf("%d clusters: %d frontends with endpoints and %d health checks, want more", seeds, compiled, checked)
	}
}

// compilation is what a node's service proxy makes of a cluster.
type compilation struct {
	state   *frontend.State
	service plan.Service
	checks  map[cluster.Key]plan.HealthCheck
	nodes   []cluster.Node
}

func compared() cmp.Options {
	return cmp.Options{
		cmp.AllowUnexported(compilation{}), cmpopts.EquateEmpty(),
		cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{}),
		cmpopts.SortSlices(func(a, b cluster.Node) bool { return a.Name < b.Name }),
		cmpopts.IgnoreFields(cluster.Node{}, "Addresses", "Labels", "Ready", "Cordoned", "ControlPlane", "MilliCPU"),
	}
}

// typed is an object of a kind.
type typed struct {
	*resource
	message
}

// compileFrom compiles objects as they are read with a detail.
func compileFrom(t *testing.T, all []typed, detail Detail) (c compilation) {
	t.Helper()
	cfg := &Config{Detail: detail}
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		for _, o := range all {
			wire, err := o.Marshal()
			if err == nil {
				wire, err = cfg.kept()[o.Model.String()].cut(wire)
			}
			read := newMessage(o.resource)
			if err == nil {
				err = read.Unmarshal(wire)
			}
			if err != nil {
				t.Fatal(err)
			}
			if it := o.convert(read, cfg); it.err == nil {
				tx.Put(it.model)
			}
		}
	})
	store.View(func(v *cluster.View) {
		compiler := plan.NewCompiler(proxyNode)
		c.state = compiler.All(v, proxyNode)
		c.service = compiler.Service(cluster.Key{Namespace: "shop", Name: "web"})
		c.checks, _ = compiler.Checks()
		for n := range v.Nodes() {
			c.nodes = append(c.nodes, *n)
		}
	})
	return c
}

// TestForProxyReadsLittle checks what is not read, and that the only Node is that of the proxy.
func TestForProxyReadsLittle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Kinds, w.cfg.Detail, w.cfg.Node = []cluster.Kind{
		cluster.KindService, cluster.KindEndpointSlice, cluster.KindNode, cluster.KindServiceCIDR,
	}, ForProxy, "node-1"
	s := service("web", "10.0.0.1")
	s.UID, s.Labels, s.Spec.Selector = "u-1", map[string]string{"app": "web"}, map[string]string{"app": "web"}
	w.api.Put(s)
	of := func(name string, labels map[string]string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: labels}, AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints: []discoveryv1.Endpoint{{
				Addresses: []string{"10.1.0.1"}, Hostname: new("web-0"), NodeName: new("node-1"),
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "web-0"},
				Hints:     &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "east"}}},
			}},
		}
	}
	w.api.Put(of("web-1", map[string]string{discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "x"}))
	w.api.Put(of("web-2", nil))
	w.api.Put(of("db-1", map[string]string{discoveryv1.LabelServiceName: "db", corev1.IsHeadlessService: ""}))
	for _, name := range []string{"node-1", "node-2"} {
		w.api.Put(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: "east"}},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}},
		})
	}
	w.api.Put(&networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16"}},
	})
	w.start()
	w.awaitFreshness(cluster.Live, w.cfg.Kinds...)
	var got []cluster.Object
	w.store.View(func(v *cluster.View) {
		got = append(got, v.Service(cluster.Key{Namespace: "shop", Name: "web"}))
		for _, name := range []string{"web-1", "web-2", "db-1"} {
			if s := v.EndpointSlice(cluster.Key{Namespace: "shop", Name: name}); s != nil {
				got = append(got, s)
			}
		}
		for _, name := range []string{"node-1", "node-2"} {
			if n := v.Node(name); n != nil {
				got = append(got, n)
			}
		}
		got = append(got, cluster.ServiceCIDRs.Get(v, cluster.Key{Name: "kubernetes"}))
	})
	node := netip.MustParseAddr("192.0.2.1")
	want := []cluster.Object{
		&cluster.Service{
			Key: cluster.Key{Namespace: "shop", Name: "web"}, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
			Spec: &cluster.ServiceSpec{Type: cluster.ClusterIP},
		},
		&cluster.EndpointSlice{
			Key: cluster.Key{Namespace: "shop", Name: "web-1"}, Service: "web", AddressType: cluster.IPv4,
			Endpoints: []cluster.Endpoint{{Addr: netip.MustParseAddr("10.1.0.1"), Ready: true, Serving: true}},
			Spec:      &cluster.SliceSpec{Places: []cluster.Place{{Node: "node-1", Hints: &cluster.Hints{Zones: []string{"east"}}}}},
		},
		&cluster.EndpointSlice{Key: cluster.Key{Namespace: "shop", Name: "web-2"}, AddressType: cluster.IPv4},
		&cluster.Node{Name: "node-1", Zone: "east", InternalIPs: []netip.Addr{node}},
		&cluster.ServiceCIDR{Name: "kubernetes", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestForNamesHasNothingForProxies checks that a DNS server does not keep what service proxies
// read.
func TestForNamesHasNothingForProxies(t *testing.T) {
	t.Parallel()
	for _, detail := range []Detail{ForNames, ForPodNames} {
		cfg, kept := &Config{Detail: detail}, 0
		for _, r := range proxyResources() {
			for seed := range uint64(200) {
				object := newMessage(r)
				fillForProxy(seed, object)
				switch o := r.convert(object, cfg).model.(type) {
				case *cluster.Service:
					if kept++; o.Spec != nil {
						t.Fatalf("detail %d, seed %d: Service has the spec %+v", detail, seed, *o.Spec)
					}
				case *cluster.EndpointSlice:
					if kept++; o.Spec != nil {
						t.Fatalf("detail %d, seed %d: EndpointSlice has the spec %+v", detail, seed, *o.Spec)
					}
				case *cluster.Node:
					if kept++; o.Zone != "" || o.InternalIPs != nil || o.PodCIDRs != nil || o.Leaving {
						t.Fatalf("detail %d, seed %d: Node %+v", detail, seed, *o)
					}
				}
			}
		}
		if kept < 100 {
			t.Errorf("detail %d: %d of the objects are good, want more", detail, kept)
		}
	}
}
