package object

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/internal/cluster"
)

func slice() *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "web-1.a", Labels: map[string]string{"kubernetes.io/service-name": "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{"10.244.0.1"}, Hostname: new("dock-1"),
			Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Name: "web-1"},
		}},
	}
}

func TestEndpointSlice(t *testing.T) {
	full := func(change func(*cluster.EndpointSlice)) *cluster.EndpointSlice {
		s := &cluster.EndpointSlice{
			Key: cluster.Key{Namespace: "shop", Name: "web-1.a"}, Service: "web", AddressType: cluster.IPv4,
			Ports:     []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 8080}},
			Endpoints: []cluster.Endpoint{{Addr: netip.MustParseAddr("10.244.0.1"), Ready: true, Serving: true, Hostname: "dock-1", Pod: "web-1"}},
		}
		if change != nil {
			change(s)
		}
		return s
	}
	tests := map[string]struct {
		change func(*discoveryv1.EndpointSlice)
		want   *cluster.EndpointSlice
	}{
		"all fields":                      {nil, full(nil)},
		"without namespace it is default": {func(s *discoveryv1.EndpointSlice) { s.Namespace = "" }, full(func(s *cluster.EndpointSlice) { s.Namespace = "default" })},
		"without the label it belongs to no Service": {func(s *discoveryv1.EndpointSlice) { s.Labels = nil },
			full(func(s *cluster.EndpointSlice) { s.Service = "" })},
		"a port without protocol is TCP": {func(s *discoveryv1.EndpointSlice) { s.Ports[0].Protocol = nil }, full(nil)},
		"a port of UDP": {func(s *discoveryv1.EndpointSlice) { s.Ports[0].Protocol = new(corev1.ProtocolUDP) },
			full(func(s *cluster.EndpointSlice) { s.Ports[0].Protocol = cluster.UDP })},
		"a port without number is every port": {func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = nil },
			full(func(s *cluster.EndpointSlice) { s.Ports[0].Number = 0 })},
		"a port without name": {func(s *discoveryv1.EndpointSlice) { s.Ports[0].Name = nil },
			full(func(s *cluster.EndpointSlice) { s.Ports[0].Name = "" })},
		"a port with an empty name": {func(s *discoveryv1.EndpointSlice) { s.Ports[0].Name = new("") },
			full(func(s *cluster.EndpointSlice) { s.Ports[0].Name = "" })},
		"without the condition it is ready": {func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Conditions.Ready = nil }, full(nil)},
		"not ready": {func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Conditions.Ready = new(false) },
			full(func(s *cluster.EndpointSlice) { s.Endpoints[0].Ready = false })},
		"serving does not make it ready": {func(s *discoveryv1.EndpointSlice) {
			s.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
		}, full(func(s *cluster.EndpointSlice) { s.Endpoints[0].Ready, s.Endpoints[0].Terminating = false, true })},
		"not serving": {func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Conditions.Serving = new(false) },
			full(func(s *cluster.EndpointSlice) { s.Endpoints[0].Serving = false })},
		"without hostname": {func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Hostname = nil },
			full(func(s *cluster.EndpointSlice) { s.Endpoints[0].Hostname = "" })},
		"without a target": {func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].TargetRef = nil },
			full(func(s *cluster.EndpointSlice) { s.Endpoints[0].Pod = "" })},
		"a target that is no Pod": {func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].TargetRef.Kind = "Node" },
			full(func(s *cluster.EndpointSlice) { s.Endpoints[0].Pod = "" })},
		"IPv6": {func(s *discoveryv1.EndpointSlice) {
			s.AddressType, s.Endpoints[0].Addresses = discoveryv1.AddressTypeIPv6, []string{"FD00:0::1"}
		}, full(func(s *cluster.EndpointSlice) {
			s.AddressType, s.Endpoints[0].Addr = cluster.IPv6, netip.MustParseAddr("fd00::1")
		})},
		"FQDN has no addresses": {func(s *discoveryv1.EndpointSlice) {
			s.AddressType, s.Endpoints[0].Addresses = discoveryv1.AddressTypeFQDN, []string{"web.example"}
		}, full(func(s *cluster.EndpointSlice) {
			s.AddressType, s.Endpoints = cluster.FQDN, []cluster.Endpoint{}
		})},
		"two addresses of one endpoint": {func(s *discoveryv1.EndpointSlice) {
			s.Endpoints[0].Addresses = []string{"10.244.0.1", "10.244.0.2"}
		}, full(func(s *cluster.EndpointSlice) {
			s.Endpoints = append(s.Endpoints, s.Endpoints[0])
			s.Endpoints[1].Addr = netip.MustParseAddr("10.244.0.2")
			s.Spec = &cluster.SliceSpec{Places: []cluster.Place{{}, {Additional: true}}}
		})},
		"nodes and hints are places, one for each address": {func(s *discoveryv1.EndpointSlice) {
			s.Endpoints = append(s.Endpoints, s.Endpoints[0], s.Endpoints[0])
			s.Endpoints[1].Addresses = []string{"10.244.0.2", "10.244.0.3"}
			s.Endpoints[1].NodeName, s.Endpoints[1].Hints = new("node-1"), &discoveryv1.EndpointHints{
				ForZones: []discoveryv1.ForZone{{Name: "east"}, {Name: "west"}}, ForNodes: []discoveryv1.ForNode{{Name: "node-2"}},
			}
			s.Endpoints[2].Addresses, s.Endpoints[2].Hints = []string{"10.244.0.4"}, new(discoveryv1.EndpointHints)
		}, full(func(s *cluster.EndpointSlice) {
			for _, a := range addrs("10.244.0.2", "10.244.0.3", "10.244.0.4") {
				s.Endpoints = append(s.Endpoints, s.Endpoints[0])
				s.Endpoints[len(s.Endpoints)-1].Addr = a
			}
			there := cluster.Place{Node: "node-1", Hints: &cluster.Hints{Zones: []string{"east", "west"}, Nodes: []string{"node-2"}}}
			s.Spec = &cluster.SliceSpec{Places: []cluster.Place{{}, there, there, {}}}
			s.Spec.Places[2].Additional = true
		})},
		"no endpoints and no ports": {func(s *discoveryv1.EndpointSlice) { s.Endpoints, s.Ports = nil, nil },
			full(func(s *cluster.EndpointSlice) { s.Endpoints, s.Ports = nil, nil })},
	}
	for claim, test := range tests {
		in := slice()
		if test.change != nil {
			test.change(in)
		}
		got, errs := EndpointSlice(in)
		if d := cmp.Diff(test.want, got, addrEqual); d != "" || len(errs) > 0 {
			t.Errorf("%s: EndpointSlice: %v (-want +got)\n%s", claim, errs, d)
		}
	}
}

func TestEndpointSliceRefusals(t *testing.T) {
	address := func(text string) func(*discoveryv1.EndpointSlice) {
		return func(s *discoveryv1.EndpointSlice) {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.244.0.2", text}})
		}
	}
	badAddress := []string{"endpoints[1].addresses[1]: Invalid value"}
	testRefusals(t, "EndpointSlice", slice, EndpointSlice,
		nameRefusals(func(o *discoveryv1.EndpointSlice) *metav1.ObjectMeta { return &o.ObjectMeta }))
	testRefusals(t, "EndpointSlice", slice, EndpointSlice, map[string]refusal[discoveryv1.EndpointSlice]{
		"no addressType":                   {func(s *discoveryv1.EndpointSlice) { s.AddressType = "" }, []string{"addressType: Required value"}},
		"an addressType that there is not": {func(s *discoveryv1.EndpointSlice) { s.AddressType = "IPv5" }, []string{"addressType: Unsupported value"}},
		"an address that is none":          {address("x"), badAddress},
		"an address of the other family":   {address("fd00::1"), badAddress},
		"IPv4 in IPv6's clothes":           {address("::ffff:10.0.0.1"), badAddress},
		"IPv4 in a slice of IPv6": {func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeIPv6 },
			[]string{"endpoints[0].addresses[0]: Invalid value"}},
		"a hostname that is no label": {func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Hostname = new("a.b") },
			[]string{"endpoints[0].hostname: Invalid value"}},
		"a hostname that is no label, of FQDN": {func(s *discoveryv1.EndpointSlice) {
			s.AddressType, s.Endpoints[0].Hostname = discoveryv1.AddressTypeFQDN, new("A")
		}, []string{"endpoints[0].hostname: Invalid value"}},
		"port 0":             {func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = new(int32(0)) }, []string{"ports[0].port: Invalid value"}},
		"a port above 65535": {func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = new(int32(65536)) }, []string{"ports[0].port: Invalid value"}},
		"a protocol that there is not": {func(s *discoveryv1.EndpointSlice) { s.Ports[0].Protocol = new(corev1.Protocol("icmp")) },
			[]string{"ports[0].protocol: Unsupported value"}},
		"a port's name that is no label": {func(s *discoveryv1.EndpointSlice) { s.Ports[0].Name = new("a_b") },
			[]string{"ports[0].name: Invalid value"}},
	})
}

//lint:file-ignore SA1019 the deprecated kind Endpoints is what this is about

func legacy() *corev1.Endpoints {
	return &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{
				{IP: "10.244.0.1", Hostname: "dock-1", TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "web-1"}},
				{IP: "fd00::1"},
			},
			NotReadyAddresses: []corev1.EndpointAddress{{IP: "10.244.0.2"}},
			Ports:             []corev1.EndpointPort{{Name: "http", Port: 8080}, {Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}},
		}},
	}
}

func TestEndpoints(t *testing.T) {
	ports := []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 8080}, {Name: "dns", Protocol: cluster.UDP, Number: 53}}
	v4 := &cluster.EndpointSlice{
		Key: cluster.Key{Namespace: "shop", Name: "web-mirror-0-ipv4"}, Service: "web", Spec: &cluster.SliceSpec{ManagedBy: mirroring}, AddressType: cluster.IPv4, Ports: ports,
		Endpoints: []cluster.Endpoint{
			{Addr: netip.MustParseAddr("10.244.0.1"), Ready: true, Serving: true, Hostname: "dock-1", Pod: "web-1"},
			{Addr: netip.MustParseAddr("10.244.0.2")},
		},
	}
	v6 := &cluster.EndpointSlice{
		Key: cluster.Key{Namespace: "shop", Name: "web-mirror-0-ipv6"}, Service: "web", Spec: &cluster.SliceSpec{ManagedBy: mirroring}, AddressType: cluster.IPv6, Ports: ports,
		Endpoints: []cluster.Endpoint{{Addr: netip.MustParseAddr("fd00::1"), Ready: true, Serving: true}},
	}
	second := &cluster.EndpointSlice{
		Key: cluster.Key{Namespace: "shop", Name: "web-mirror-1-ipv4"}, Service: "web", Spec: &cluster.SliceSpec{ManagedBy: mirroring}, AddressType: cluster.IPv4,
		Endpoints: []cluster.Endpoint{{Addr: netip.MustParseAddr("10.244.0.3"), Ready: true, Serving: true}},
	}
	tests := map[string]struct {
		change func(*corev1.Endpoints)
		want   []*cluster.EndpointSlice
	}{
		"a slice for each family": {nil, []*cluster.EndpointSlice{v4, v6}},
		"a slice for each subset": {func(e *corev1.Endpoints) {
			e.Subsets = append(e.Subsets, corev1.EndpointSubset{Addresses: []corev1.EndpointAddress{{IP: "10.244.0.3"}}})
		}, []*cluster.EndpointSlice{v4, v6, second}},
		"no slice without addresses": {func(e *corev1.Endpoints) {
			e.Subsets[0].Addresses, e.Subsets[0].NotReadyAddresses = nil, nil
		}, nil},
		"no subsets": {func(e *corev1.Endpoints) { e.Subsets = nil }, nil},
		"without namespace it is default": {func(e *corev1.Endpoints) {
			e.Namespace, e.Subsets = "", []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "10.244.0.3"}}}}
		}, []*cluster.EndpointSlice{{
			Key: cluster.Key{Namespace: "default", Name: "web-mirror-0-ipv4"}, Service: "web", Spec: &cluster.SliceSpec{ManagedBy: mirroring}, AddressType: cluster.IPv4, Endpoints: second.Endpoints,
		}}},
	}
	for claim, test := range tests {
		in := legacy()
		if test.change != nil {
			test.change(in)
		}
		got, errs := Endpoints(in)
		if d := cmp.Diff(test.want, got, addrEqual); d != "" || len(errs) > 0 {
			t.Errorf("%s: Endpoints: %v (-want +got)\n%s", claim, errs, d)
		}
	}
}

// TestEndpointsOfALeaderElection checks that Endpoints for leader election may have a
// name with dots, unlike Services.
func TestEndpointsOfALeaderElection(t *testing.T) {
	e := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: "my.lock", Annotations: map[string]string{leaderAnnotation: "{}"}}}
	if got, errs := Endpoints(e); len(got) != 0 || len(errs) != 0 {
		t.Errorf("Endpoints(my.lock) = %v, %v, want no slices and no error", got, errs)
	}
}

func TestEndpointsMirrorAThousand(t *testing.T) {
	e := legacy()
	e.Subsets[0].NotReadyAddresses = nil
	e.Subsets[0].Addresses = nil
	for i := range maxMirrored + 5 {
		a := corev1.EndpointAddress{IP: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}).String()}
		e.Subsets[0].Addresses = append(e.Subsets[0].Addresses, a)
	}
	got, errs := Endpoints(e)
	if len(errs) > 0 || len(got) != 1 || len(got[0].Endpoints) != maxMirrored {
		t.Fatalf("Endpoints with %d addresses: %d slices, errors %v, want one slice of %d endpoints", maxMirrored+5, len(got), errs, maxMirrored)
	}
	e.Subsets[0].Addresses[maxMirrored+3].IP = "x"
	_, errs = Endpoints(e)
	want := []string{fmt.Sprintf("subsets[0].addresses[%d].ip: Invalid value", maxMirrored+3)}
	if d := cmp.Diff(want, brief(errs)); d != "" {
		t.Errorf("Endpoints with a bad address among those not mirrored: (-want +got)\n%s", d)
	}
}

func TestEndpointsRefusals(t *testing.T) {
	testRefusals(t, "Endpoints", legacy, Endpoints, nameRefusals(func(o *corev1.Endpoints) *metav1.ObjectMeta { return &o.ObjectMeta }))
	testRefusals(t, "Endpoints", legacy, Endpoints, map[string]refusal[corev1.Endpoints]{
		"an address that is none": {func(e *corev1.Endpoints) { e.Subsets[0].Addresses[1].IP = "x" },
			[]string{"subsets[0].addresses[1].ip: Invalid value"}},
		"an address that is empty": {func(e *corev1.Endpoints) { e.Subsets[0].Addresses[1].IP = "" },
			[]string{"subsets[0].addresses[1].ip: Invalid value"}},
		"an address not ready that is none": {func(e *corev1.Endpoints) { e.Subsets[0].NotReadyAddresses[0].IP = "10.0.0.0/8" },
			[]string{"subsets[0].notReadyAddresses[0].ip: Invalid value"}},
		"a hostname that is no label": {func(e *corev1.Endpoints) { e.Subsets[0].Addresses[0].Hostname = "a.b" },
			[]string{"subsets[0].addresses[0].hostname: Invalid value"}},
		"port 0": {func(e *corev1.Endpoints) { e.Subsets[0].Ports[1].Port = 0 },
			[]string{"subsets[0].ports[1].port: Invalid value"}},
		"a protocol that there is not": {func(e *corev1.Endpoints) { e.Subsets[0].Ports[1].Protocol = "udp" },
			[]string{"subsets[0].ports[1].protocol: Unsupported value"}},
		"a port's name that is no label": {func(e *corev1.Endpoints) { e.Subsets[0].Ports[0].Name = "HTTP" },
			[]string{"subsets[0].ports[0].name: Invalid value"}},
		"the second subset": {func(e *corev1.Endpoints) {
			e.Subsets = append(e.Subsets, corev1.EndpointSubset{Addresses: []corev1.EndpointAddress{{IP: "x"}}})
		}, []string{"subsets[1].addresses[0].ip: Invalid value"}},
	})
}

func TestMirrors(t *testing.T) {
	tests := map[string]struct {
		labels, annotations map[string]string
		want                bool
	}{
		"nothing said":                  {nil, nil, true},
		"the label says skip":           {map[string]string{"endpointslice.kubernetes.io/skip-mirror": "true"}, nil, false},
		"the label says not to skip":    {map[string]string{"endpointslice.kubernetes.io/skip-mirror": "false"}, nil, true},
		"a lock of a leader's election": {nil, map[string]string{"control-plane.alpha.kubernetes.io/leader": "{}"}, false},
		"a lock whose value is empty":   {nil, map[string]string{"control-plane.alpha.kubernetes.io/leader": ""}, false},
		"labels of other things":        {map[string]string{"app": "web"}, map[string]string{"a": "b"}, true},
		"the leader's key as a label":   {map[string]string{"control-plane.alpha.kubernetes.io/leader": "{}"}, nil, true},
		"the label's key as annotation": {nil, map[string]string{"endpointslice.kubernetes.io/skip-mirror": "true"}, true},
	}
	for claim, test := range tests {
		e := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: test.labels, Annotations: test.annotations}}
		if got := Mirrors(e); got != test.want {
			t.Errorf("%s: Mirrors(labels %v, annotations %v) = %t, want %t", claim, test.labels, test.annotations, got, test.want)
		}
	}
}
