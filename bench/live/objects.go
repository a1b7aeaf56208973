package main

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// sizes are how many objects of each kind the cluster has.
type sizes struct{ namespaces, services, headless, pods int }

// Endpoints of each Service.
const (
	clusterIPEndpoints = 3
	headlessEndpoints  = 20
)

// Where the addresses of each kind begin.
var (
	clusterIPs  = netip.MustParseAddr("10.100.0.0") // in the control plane's range
	podIPs      = netip.MustParseAddr("10.128.0.0")
	endpointIPs = netip.MustParseAddr("10.160.0.0")
	headlessIPs = netip.MustParseAddr("10.176.0.0")
	stormIPs    = netip.MustParseAddr("10.192.0.0") // what a storm puts in the place of endpointIPs
	changedIPs  = netip.MustParseAddr("10.208.0.0") // what timed changes put in the place of headlessIPs
)

// nth is the address that is n after base.
func nth(base netip.Addr, n int) netip.Addr {
	b := base.As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(n))
	return netip.AddrFrom4(b)
}

func (s sizes) meta(i int, format string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.namespaceName(i), Name: fmt.Sprintf(format, i)}
}

func (s sizes) namespaceName(i int) string { return fmt.Sprintf("ns-%03d", i%s.namespaces) }

func (s sizes) namespace(i int) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespaceName(i)}}
}

// service is the i-th Service with a cluster IP. The last one of all is the
// last in the API's order, too, if their number is a multiple of Namespaces.
func (s sizes) service(i int) *corev1.Service {
	o := &corev1.Service{ObjectMeta: s.meta(i, "svc-%05d"), Spec: serviceSpec()}
	o.Spec.ClusterIP = nth(clusterIPs, i).String()
	o.Spec.ClusterIPs = []string{o.Spec.ClusterIP}
	return o
}

func (s sizes) headlessService(i int) *corev1.Service {
	o := &corev1.Service{ObjectMeta: s.meta(i, "headless-%05d"), Spec: serviceSpec()}
	o.Spec.ClusterIP, o.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
	return o
}

func serviceSpec() corev1.ServiceSpec {
	const port = 80
	return corev1.ServiceSpec{
		Type:     corev1.ServiceTypeClusterIP,
		Selector: map[string]string{"app": "app"},
		Ports:    []corev1.ServicePort{{Name: "http", Port: port, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(port)}},
	}
}

// slice is the one EndpointSlice of the i-th Service with a cluster IP.
func (s sizes) slice(i int) *discoveryv1.EndpointSlice {
	return s.endpointSlice(i, "svc-%05d", nth(endpointIPs, i*clusterIPEndpoints), clusterIPEndpoints)
}

// headlessSlice is that of the i-th headless Service.
func (s sizes) headlessSlice(i int) *discoveryv1.EndpointSlice {
	return s.endpointSlice(i, "headless-%05d", nth(headlessIPs, i*headlessEndpoints), headlessEndpoints)
}

// endpointSlice looks as Kubernetes' controller writes it.
func (s sizes) endpointSlice(i int, service string, first netip.Addr, endpoints int) *discoveryv1.EndpointSlice {
	o := &discoveryv1.EndpointSlice{ObjectMeta: s.meta(i, service+"-x7k2p"), AddressType: discoveryv1.AddressTypeIPv4}
	o.Labels = map[string]string{
		discoveryv1.LabelServiceName: fmt.Sprintf(service, i), discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
	}
	o.Ports = []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(80)), Protocol: new(corev1.ProtocolTCP)}}
	for e := range endpoints {
		o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{nth(first, e).String()},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			NodeName:   new(nodeName(i + e)),
			TargetRef: &corev1.ObjectReference{
				Kind: "Pod", Namespace: o.Namespace, Name: fmt.Sprintf(service+"-5d4f8c7b9-%05x", i, e),
				UID: types.UID(fmt.Sprintf("5f1c6d3e-0000-4000-8000-%06x%06x", i, e)),
			},
		})
	}
	return o
}

// change puts another address in the place of the first.
func change(o *discoveryv1.EndpointSlice, address netip.Addr) *discoveryv1.EndpointSlice {
	o.Endpoints[0].Addresses[0] = address.String()
	return o
}

func nodeName(i int) string {
	const nodes = 100
	return fmt.Sprintf("node-%02d", i%nodes)
}

// pod is the i-th Pod, running.
func (s sizes) pod(i int) *corev1.Pod {
	o := &corev1.Pod{ObjectMeta: s.meta(i, "pod-%06d-5d4f8c7b9-x7k2p")}
	o.Labels = map[string]string{"app": "app", "pod-template-hash": "5d4f8c7b9"}
	o.Spec = corev1.PodSpec{NodeName: nodeName(i), Containers: []corev1.Container{{Name: "main", Image: "registry.example/app:1"}}}
	address := nth(podIPs, i).String()
	o.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	return o
}

// facts are true when all is loaded: the last of Services and Pods.
func (s sizes) facts() (all []fact) {
	last := s.service(s.services - 1)
	all = append(all, fact{last.Name + "." + last.Namespace + ".svc.cluster.local.", netip.MustParseAddr(last.Spec.ClusterIP)})
	if s.pods > 0 {
		p := s.pod(s.pods - 1)
		all = append(all, fact{strings.ReplaceAll(p.Status.PodIP, ".", "-") + "." + p.Namespace + ".pod.cluster.local.", netip.MustParseAddr(p.Status.PodIP)})
	}
	return all
}

// headlessName is the name of the i-th headless Service.
func (s sizes) headlessName(i int) string {
	o := s.headlessService(i)
	return o.Name + "." + o.Namespace + ".svc.cluster.local."
}
