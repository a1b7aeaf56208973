package proxyplan

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/proxy"
	"sigs.k8s.io/yaml"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/object"
	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/plan"
)

// sets is the number of random Services with endpoints unless the environment variable setsKey
// says otherwise.
const (
	sets    = 30_000
	setsKey = "PORTOLAN_PROXY_SETS"
)

// theNode is what both compile for.
var theNode = plan.Node{
	Name: "here", Zone: "east",
	NodePorts: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
	Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
}

// TestChoiceEqualsKubeProxy checks that a Service has the same endpoints, for the same clients,
// as kube-proxy's CategorizeEndpoints chooses, with its verdicts where there are none, its
// source ranges and its health checks.
func TestChoiceEqualsKubeProxy(t *testing.T) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // kube-proxy logs each port without a number
	count := sets
	if text := os.Getenv(setsKey); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s=%s: %v", setsKey, text, err)
		}
	}
	var chosen, local, refused int
	for seed := range uint64(count) {
		s, all := (&random{rand.New(rand.NewPCG(seed, 36))}).service()
		want := kubeProxy(s, all)
		got := ours(t, s, all)
		if diff := cmp.Diff(want, got); diff != "" {
			text, _ := yaml.Marshal(map[string]any{"service": s, "slices": all})
			t.Fatalf("seed %d: (-kube-proxy +ours)\n%s\nfor\n%s", seed, diff, text)
		}
		for _, e := range want.Entries {
			switch {
			case len(e.Local) > 0:
				local++
			case len(e.Endpoints) > 0:
				chosen++
			default:
				refused++
			}
		}
	}
	t.Logf("%d Services: %d addresses with endpoints, %d with local ones, %d without", count, chosen, local, refused)
	if least := count / 10; chosen < least || local < least || refused < least {
		t.Errorf("the random Services are one-sided: each sort of address should be there %d times", least)
	}
}

// result is what clients of a Service meet.
type result struct {
	Entries map[string]entry // by address
	Checks  map[corev1.IPFamily]int
}

// entry is what clients of an address meet.
type entry struct {
	Policy           frontend.Policy
	Endpoints, Local []string
	Drop             bool
	// Admitted is which of probes may connect.
	Admitted []string
}

// probes are clients of load balancers.
var probes = []string{
	"198.51.100.7", "198.51.200.7", "192.0.2.1", "203.0.113.1", "203.0.113.2", "203.0.113.9",
	"2001:db8::1", "2001:db8:9::1", "2001:db8:1::1",
}

// ours returns what plan compiles.
func ours(t *testing.T, s *corev1.Service, all []*discoveryv1.EndpointSlice) result {
	t.Helper()
	store := cluster.NewStore()
	service, errs := object.Service(s)
	store.Update(func(tx *cluster.Tx) {
		tx.Put(service)
		for _, s := range all {
			slice, bad := object.EndpointSlice(s)
			errs = append(errs, bad...)
			tx.Put(slice)
		}
	})
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	r := result{make(map[string]entry), make(map[corev1.IPFamily]int)}
	store.View(func(v *cluster.View) {
		compiled := plan.Compile(v, &theNode, service.Key)
		for _, f := range compiled.Frontends {
			e := entry{Policy: f.Policy, Endpoints: texts(f.Endpoints), Local: texts(f.Local), Drop: f.Empty == frontend.Drop}
			e.Admitted = admitted(f.Addr, func(a netip.Addr) bool {
				return f.Sources == nil || slices.ContainsFunc(f.Sources, func(p netip.Prefix) bool { return p.Contains(a) })
			})
			r.Entries[f.String()] = e
		}
		if compiled.Check != nil {
			for family, n := range compiled.Check.Endpoints {
				r.Checks[corev1.IPFamily(family)] = n
			}
		}
	})
	return r
}

// admitted returns the probes of the family of an address that may connect.
func admitted(to netip.Addr, may func(netip.Addr) bool) (all []string) {
	for _, p := range probes {
		if a := netip.MustParseAddr(p); a.Is4() == to.Is4() && may(a) {
			all = append(all, p)
		}
	}
	return all
}

func texts(all []netip.AddrPort) (out []string) {
	for _, a := range all {
		out = append(out, a.String())
	}
	slices.Sort(out)
	return out
}

// kubeProxy returns what kube-proxy's trackers and CategorizeEndpoints yield, applied as in
// pkg/proxy/nftables/proxier.go, syncProxyRules.
func kubeProxy(s *corev1.Service, all []*discoveryv1.EndpointSlice) result {
	r := result{make(map[string]entry), make(map[corev1.IPFamily]int)}
	for i, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		services := proxy.NewServiceChangeTracker(family, nil, nil)
		services.Update(nil, s)
		ports := make(proxy.ServicePortMap)
		ports.Update(services)
		endpoints := proxy.NewEndpointsChangeTracker(family, theNode.Name, nil, nil)
		for _, slice := range all {
			endpoints.EndpointSliceUpdate(slice, false)
		}
		byPort := make(proxy.EndpointsMap)
		byPort.Update(endpoints)
		for name, port := range ports {
			kubeProxyPort(r.Entries, theNode.NodePorts[i], port, byPort[name])
		}
		// kube-proxy counts endpoints of ports that the Service does not have, too.
		maps.DeleteFunc(byPort, func(name proxy.ServicePortName, _ []proxy.Endpoint) bool { return ports[name] == nil })
		name := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
		if _, ok := ports.HealthCheckNodePorts()[name]; ok {
			r.Checks[family] = byPort.LocalReadyEndpoints()[name]
		}
	}
	return r
}

// kubeProxyPort adds the addresses of a port.
func kubeProxyPort(entries map[string]entry, node netip.Addr, port proxy.ServicePort, all []proxy.Endpoint) {
	labels := map[string]string{corev1.LabelTopologyZone: theNode.Zone}
	forCluster, forLocal, _, anywhere := proxy.CategorizeEndpoints(all, port, theNode.Name, labels)
	add := func(ip net.IP, number int, e entry, may func(netip.Addr) bool) {
		addr, _ := netip.AddrFromSlice(ip)
		e.Admitted = admitted(addr.Unmap(), may)
		protocol := map[corev1.Protocol]frontend.Protocol{"TCP": frontend.TCP, "UDP": frontend.UDP, "SCTP": frontend.SCTP}[port.Protocol()]
		at := frontend.Address{Addr: addr.Unmap(), Protocol: protocol, Port: uint16(number)}
		if _, there := entries[at.String()]; !there {
			entries[at.String()] = e
		}
	}
	everyone := func(netip.Addr) bool { return true }
	internal := entry{Endpoints: names(forCluster)}
	if port.InternalPolicyLocal() {
		internal.Endpoints = names(forLocal)
	}
	internal.Drop = anywhere && len(internal.Endpoints) == 0
	add(port.ClusterIP(), port.Port(), internal, everyone)
	external := entry{Policy: frontend.External, Endpoints: names(forCluster)}
	if port.ExternalPolicyLocal() {
		external.Policy, external.Local = frontend.ExternalLocal, names(forLocal)
	}
	external.Drop = anywhere && len(external.Endpoints) == 0
	for _, ip := range port.ExternalIPs() {
		add(ip, port.Port(), external, everyone)
	}
	for _, ip := range port.LoadBalancerVIPs() {
		add(ip, port.Port(), external, func(a netip.Addr) bool { return mayConnect(port, node, a) })
	}
	if port.NodePort() != 0 {
		add(node.AsSlice(), port.NodePort(), external, everyone)
	}
}

// mayConnect reports whether a client may connect to a load balancer's address, as in
// syncProxyRules, usesFWChain.
func mayConnect(port proxy.ServicePort, node, client netip.Addr) bool {
	ranges := port.LoadBalancerSourceRanges()
	contain := func(a netip.Addr) bool {
		return slices.ContainsFunc(ranges, func(n *net.IPNet) bool { return n.Contains(a.AsSlice()) })
	}
	isBalancer := slices.ContainsFunc(port.LoadBalancerVIPs(), net.IP(client.AsSlice()).Equal)
	return len(ranges) == 0 || contain(client) || contain(node) && isBalancer
}

func names(all []proxy.Endpoint) (out []string) {
	for _, e := range all {
		out = append(out, e.String())
	}
	slices.Sort(out)
	return out
}

// random makes random Services.
type random struct{ *rand.Rand }

func pick[T any](r *random, from ...T) T { return from[r.IntN(len(from))] }

// rarely is true once in n times.
func (r *random) rarely(n int) bool { return r.IntN(n) == 0 }

// service returns a Service as the API server accepts it, and its slices.
func (r *random) service() (*corev1.Service, []*discoveryv1.EndpointSlice) {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	s.Spec = corev1.ServiceSpec{
		Type:                     pick(r, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer),
		InternalTrafficPolicy:    pick(r, nil, new(corev1.ServiceInternalTrafficPolicyCluster), new(corev1.ServiceInternalTrafficPolicyLocal)),
		ClusterIPs:               pick(r, []string{"10.96.0.1"}, []string{"fd96::1"}, []string{"10.96.0.1", "fd96::1"}),
		ExternalIPs:              r.some("203.0.113.2", "203.0.113.3", "2001:db8:1::2"),
		LoadBalancerSourceRanges: r.some("198.51.100.0/24", " 198.51.0.0/16", "192.0.2.0/24", "0.0.0.0/0", "2001:db8:9::/48", "2001:db8::/48 ", "::/0"),
	}
	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	for _, ip := range s.Spec.ClusterIPs {
		family := map[bool]corev1.IPFamily{true: corev1.IPv4Protocol, false: corev1.IPv6Protocol}[netip.MustParseAddr(ip).Is4()]
		s.Spec.IPFamilies = append(s.Spec.IPFamilies, family)
	}
	for i := range 1 + r.IntN(2) {
		p := corev1.ServicePort{
			Name: []string{"http", "sql"}[i], Port: int32(80 + i), Protocol: pick(r, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP),
		}
		if s.Spec.Type != corev1.ServiceTypeClusterIP {
			p.NodePort = pick(r, 0, int32(30080+i))
		}
		s.Spec.Ports = append(s.Spec.Ports, p)
	}
	if s.Spec.Type != corev1.ServiceTypeClusterIP || len(s.Spec.ExternalIPs) > 0 {
		s.Spec.ExternalTrafficPolicy = pick(r, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		s.Spec.HealthCheckNodePort = pick(r, 0, int32(32000))
		for _, ip := range r.some("203.0.113.1", "203.0.113.9", "2001:db8:1::1", "") {
			mode := pick(r, nil, new(corev1.LoadBalancerIPModeVIP), new(corev1.LoadBalancerIPModeProxy))
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip, IPMode: mode})
		}
	}
	return s, r.slices(s)
}

// some returns some of texts.
func (r *random) some(texts ...string) (all []string) {
	if r.rarely(2) {
		return nil
	}
	for _, t := range texts {
		if r.rarely(3) {
			all = append(all, t)
		}
	}
	return all
}

// slices returns slices of a Service, with up to 16 endpoints each. An address may be there
// twice, of which one endpoint terminates: of others kube-proxy keeps any.
func (r *random) slices(s *corev1.Service) (all []*discoveryv1.EndpointSlice) {
	most, hinted := pick(r, 1, 3, 16), r.IntN(4)
	for i, prefix := range []string{"10.1.0.", "10.1.1.", "fd01::"} {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: s.Namespace, Name: fmt.Sprint("web-", i), Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}},
			AddressType: discoveryv1.AddressTypeIPv4,
		}
		if prefix == "fd01::" {
			slice.AddressType = discoveryv1.AddressTypeIPv6
		}
		for _, p := range s.Spec.Ports {
			port := discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: new(int32(8000) + p.Port)}
			if r.rarely(20) {
				port.Port = nil
			}
			if r.rarely(20) {
				port.Protocol = new(corev1.ProtocolTCP)
			}
			if !r.rarely(20) && !slices.ContainsFunc(slice.Ports, func(o discoveryv1.EndpointPort) bool {
				return *o.Name == *port.Name && *o.Protocol == *port.Protocol
			}) {
				slice.Ports = append(slice.Ports, port)
			}
		}
		for n := range r.IntN(most + 1) {
			e := r.endpoint(fmt.Sprint(prefix, n+1), hinted)
			slice.Endpoints = append(slice.Endpoints, e)
			if terminates := e.Conditions.Terminating; (terminates == nil || !*terminates) && r.rarely(10) {
				again := r.endpoint(fmt.Sprint(prefix, n+1), hinted)
				again.Conditions.Terminating = new(true)
				slice.Endpoints = slices.Insert(slice.Endpoints, r.IntN(len(slice.Endpoints)+1), again)
			}
		}
		all = append(all, slice)
	}
	return all
}

// endpoint returns an endpoint. It has hints more often the larger hinted is, up to 3.
func (r *random) endpoint(address string, hinted int) discoveryv1.Endpoint {
	condition := func() *bool { return pick(r, nil, new(true), new(false)) }
	e := discoveryv1.Endpoint{
		Addresses: []string{address}, NodeName: pick(r, nil, new("here"), new("there")),
		Conditions: discoveryv1.EndpointConditions{Ready: condition(), Serving: condition(), Terminating: condition()},
	}
	if r.rarely(10) {
		e.Addresses = append(e.Addresses, address+"9")
	}
	if hinted == 0 || r.rarely(6*hinted) {
		return e
	}
	e.Hints = new(discoveryv1.EndpointHints)
	for _, zone := range []string{"east", "west"} {
		if r.IntN(3) > 0 {
			e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: zone})
		}
	}
	for _, node := range []string{"here", "there"} {
		if r.IntN(3) >= 3-hinted {
			e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: node})
		}
	}
	return e
}
