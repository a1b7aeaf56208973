package proxy

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"portolan.dev/portolan/bench/fakeapi"
	"portolan.dev/portolan/bench/synthetic"
)

// These are the first addresses of each kind, and ranges.
const (
	serviceIPs   = "10.100.0.0"
	probeIPs     = "10.111.0.0" // of Services that only this measurement changes
	endpointIPs  = "10.160.0.0"
	changedIPs   = "10.176.0.0" // of endpoints that replace others
	serviceCIDR  = "10.96.0.0/12"
	clusterCIDR  = "10.244.0.0/16"
	servingRange = "10.160.0.0/11"

	maxEndpoints = 1 << 20 // before changedIPs
)

const (
	nodeName    = "node-1"
	namespace   = "default"
	servicePort = 80
	datagrams   = 53 // the port of UDP
)

// probes are Services of one endpoint each, whose changes are timed. The last is a Service
// of UDP, which does not change.
const probes = 8

// target is a Service and its endpoints.
type target struct {
	name      string
	address   netip.Addr
	protocol  corev1.Protocol
	port      int32
	endpoints []netip.Addr
}

// target returns the i-th Service.
func (s size) target(i int) *target {
	t := &target{fmt.Sprintf("svc-%05d", i), synthetic.Nth(serviceIPs, i), corev1.ProtocolTCP, servicePort, nil}
	for e := range s.endpoints {
		t.endpoints = append(t.endpoints, synthetic.Nth(endpointIPs, i*s.endpoints+e))
	}
	return t
}

// probe returns the i-th Service whose changes are timed.
func probe(i int, endpoint netip.Addr) *target {
	return &target{fmt.Sprintf("probe-%d", i), synthetic.Nth(probeIPs, i), corev1.ProtocolTCP, servicePort,
		[]netip.Addr{endpoint}}
}

// packets returns the Service of UDP.
func packets() *target {
	return &target{"packets", synthetic.Nth(probeIPs, probes), corev1.ProtocolUDP, datagrams,
		[]netip.Addr{synthetic.Nth(changedIPs, 0)}}
}

// stale returns a Service of UDP whose endpoint is replaced while a flow goes on.
func stale(endpoint netip.Addr) *target {
	return &target{"stale", synthetic.Nth(probeIPs, probes+1), corev1.ProtocolUDP, datagrams, []netip.Addr{endpoint}}
}

// each calls do with all Services.
func (s size) each(do func(*target) error) error {
	all := []*target{packets(), stale(synthetic.Nth(changedIPs, probes+1))}
	for i := range probes {
		all = append(all, probe(i, synthetic.Nth(changedIPs, 1+i)))
	}
	for i := range s.services {
		all = append(all, s.target(i))
	}
	for _, t := range all {
		if err := do(t); err != nil {
			return err
		}
	}
	return nil
}

func (t *target) addrPort() netip.AddrPort { return netip.AddrPortFrom(t.address, uint16(t.port)) }

func (t *target) service() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: t.name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: t.address.String(), ClusterIPs: []string{t.address.String()},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Selector:   map[string]string{"app": t.name},
			Ports: []corev1.ServicePort{
				{Name: "port", Port: t.port, Protocol: t.protocol, TargetPort: intstr.FromInt32(t.port)},
			},
		},
	}
}

// maxInSlice is the number of endpoints that Kubernetes' controller puts into one slice.
const maxInSlice = 100

// slices returns the Service's EndpointSlices.
func (t *target) slices() (all []*discoveryv1.EndpointSlice) {
	for part := range slices.Chunk(t.endpoints, maxInSlice) {
		o := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%d", t.name, len(all))},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: new("port"), Port: new(t.port), Protocol: new(t.protocol)}},
		}
		o.Labels = map[string]string{
			discoveryv1.LabelServiceName: t.name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
		}
		for i, addr := range part {
			o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{
				Addresses:  []string{addr.String()},
				Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
				NodeName:   new(fmt.Sprintf("node-%d", 2+i)),
			})
		}
		all = append(all, o)
	}
	return all
}

// fill writes the cluster.
func (s size) fill(api *fakeapi.Server, nodeAddr netip.Addr) error {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeAddr.String()}}
	if err := api.Create("nodes", n); err != nil {
		return err
	}
	cidr := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}}
	cidr.Spec.CIDRs = []string{serviceCIDR}
	if err := api.Create("servicecidrs", cidr); err != nil {
		return err
	}
	return s.each(func(t *target) error {
		if err := api.Create("services", t.service()); err != nil {
			return err
		}
		for _, slice := range t.slices() {
			if err := api.Create("endpointslices", slice); err != nil {
				return err
			}
		}
		return nil
	})
}
