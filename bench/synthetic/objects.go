// Package synthetic generates the objects of a Kubernetes cluster of any size, the same
// ones each time, and writes them to an API server or into a file.
package synthetic

import (
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Domain is the cluster domain.
const Domain = "cluster.local."

// Cluster has the numbers of objects of each kind.
type Cluster struct {
	Namespaces int // at least 1
	Services   [Kinds]int
	Pods       int
}

// Kind is a kind of Services.
type Kind int

// These are the kinds of Services.
const (
	ClusterIP Kind = iota // with a cluster IP, and 3 endpoints
	Headless              // headless, 20 endpoints
	Single                // headless, 1 endpoint
	Triple                // headless, 3 endpoints
	Wide                  // headless, 500 endpoints
	Kinds
)

// Endpoints returns the number of endpoints of each Service.
func (k Kind) Endpoints() int { return [Kinds]int{3, 20, 1, 3, 500}[k] }

func (k Kind) prefix() string { return [Kinds]string{"svc", "headless", "single", "triple", "wide"}[k] }

// These are the first addresses.
const (
	clusterIPs = "10.100.0.0" // in the control plane's range
	podIPs     = "10.128.0.0"
)

func (k Kind) endpointIPs() string {
	return [Kinds]string{"10.160.0.0", "10.176.0.0", "10.184.0.0", "10.186.0.0", "10.188.0.0"}[k]
}

// Nth returns the IPv4 address that is n after base.
func Nth(base string, n int) netip.Addr {
	b := netip.MustParseAddr(base).As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(n))
	return netip.AddrFrom4(b)
}

// ServiceName returns the name in the API of the i-th Service of a kind.
func (c *Cluster) ServiceName(k Kind, i int) string { return fmt.Sprintf("%s-%05d", k.prefix(), i) }

// NamespaceName returns the namespace of the i-th object of any kind.
func (c *Cluster) NamespaceName(i int) string { return fmt.Sprintf("ns-%03d", i%c.Namespaces) }

// DNSName returns the name in DNS of the i-th Service of a kind.
func (c *Cluster) DNSName(k Kind, i int) string {
	return c.ServiceName(k, i) + "." + c.NamespaceName(i) + ".svc." + Domain
}

// ClusterIP returns the address of the i-th Service that has one.
func (c *Cluster) ClusterIP(i int) netip.Addr { return Nth(clusterIPs, i) }

// EndpointIP returns the address of endpoint e of the i-th Service of a kind.
func (c *Cluster) EndpointIP(k Kind, i, e int) netip.Addr {
	return Nth(k.endpointIPs(), i*k.Endpoints()+e)
}

// Namespace returns the i-th Namespace.
func (c *Cluster) Namespace(i int) *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta:   typeMeta("v1", "Namespace"),
		ObjectMeta: metav1.ObjectMeta{Name: c.NamespaceName(i)},
	}
}

// Service returns the i-th Service of a kind. If the number of Services is a multiple
// of Namespaces, the last one is also the last in the API's order.
func (c *Cluster) Service(k Kind, i int) *corev1.Service {
	const port = 80
	o := &corev1.Service{TypeMeta: typeMeta("v1", "Service"), ObjectMeta: c.meta(i, c.ServiceName(k, i))}
	o.Spec = corev1.ServiceSpec{
		Type:      corev1.ServiceTypeClusterIP,
		ClusterIP: corev1.ClusterIPNone,
		Selector:  map[string]string{"app": "app"},
		Ports: []corev1.ServicePort{
			{Name: "http", Port: port, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(port)},
		},
	}
	if k == ClusterIP {
		o.Spec.ClusterIP = c.ClusterIP(i).String()
	}
	o.Spec.ClusterIPs = []string{o.Spec.ClusterIP}
	return o
}

// maxInSlice is the number of endpoints that Kubernetes' controller puts into one
// slice.
const maxInSlice = 100

// Slices returns the EndpointSlices of the i-th Service of a kind, as Kubernetes'
// controller writes them.
func (c *Cluster) Slices(k Kind, i int) (all []*discoveryv1.EndpointSlice) {
	for first := 0; first < k.Endpoints(); first += maxInSlice {
		all = append(all, c.slice(k, i, first, min(first+maxInSlice, k.Endpoints())))
	}
	return all
}

func (c *Cluster) slice(k Kind, i, first, end int) *discoveryv1.EndpointSlice {
	service := c.ServiceName(k, i)
	o := &discoveryv1.EndpointSlice{
		TypeMeta: typeMeta("discovery.k8s.io/v1", "EndpointSlice"), AddressType: discoveryv1.AddressTypeIPv4,
		ObjectMeta: c.meta(i, fmt.Sprintf("%s-x%dk2p", service, first/maxInSlice)),
	}
	o.Labels = map[string]string{
		discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
	}
	o.Ports = []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(80)), Protocol: new(corev1.ProtocolTCP)}}
	for e := first; e < end; e++ {
		o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{c.EndpointIP(k, i, e).String()},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			NodeName:   new(nodeName(i + e)),
			TargetRef: &corev1.ObjectReference{
				Kind: "Pod", Namespace: o.Namespace, Name: fmt.Sprintf("%s-5d4f8c7b9-%05x", service, e),
				UID: types.UID(fmt.Sprintf("5f1c6d3e-0000-4000-8000-%06x%06x", i, e)),
			},
		})
	}
	return o
}

// Pod returns the i-th Pod, which runs. No Service selects it.
func (c *Cluster) Pod(i int) *corev1.Pod {
	o := &corev1.Pod{TypeMeta: typeMeta("v1", "Pod"), ObjectMeta: c.meta(i, fmt.Sprintf("pod-%06d-5d4f8c7b9-x7k2p", i))}
	o.Labels = map[string]string{"app": "app", "pod-template-hash": "5d4f8c7b9"}
	o.Spec = corev1.PodSpec{
		NodeName:   nodeName(i),
		Containers: []corev1.Container{{Name: "main", Image: "registry.example/app:1"}},
	}
	address := Nth(podIPs, i).String()
	o.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	return o
}

// AllNamespaces iterates over all Namespaces.
func (c *Cluster) AllNamespaces() iter.Seq[*corev1.Namespace] {
	return func(yield func(*corev1.Namespace) bool) {
		for i := range c.Namespaces {
			if !yield(c.Namespace(i)) {
				return
			}
		}
	}
}

// AllServices iterates over the Services of all kinds.
func (c *Cluster) AllServices() iter.Seq[*corev1.Service] {
	return func(yield func(*corev1.Service) bool) {
		for k, i := range c.each() {
			if !yield(c.Service(k, i)) {
				return
			}
		}
	}
}

// AllSlices iterates over the EndpointSlices of all Services.
func (c *Cluster) AllSlices() iter.Seq[*discoveryv1.EndpointSlice] {
	return func(yield func(*discoveryv1.EndpointSlice) bool) {
		for k, i := range c.each() {
			for _, o := range c.Slices(k, i) {
				if !yield(o) {
					return
				}
			}
		}
	}
}

// each iterates over all Services by kind and number.
func (c *Cluster) each() iter.Seq2[Kind, int] {
	return func(yield func(Kind, int) bool) {
		for k, n := range c.Services {
			for i := range n {
				if !yield(Kind(k), i) {
					return
				}
			}
		}
	}
}

func (c *Cluster) meta(i int, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: c.NamespaceName(i), Name: name}
}

func typeMeta(version, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: version, Kind: kind}
}

// nodes is the number of Nodes.
const nodes = 100

func nodeName(i int) string {
	return fmt.Sprintf("node-%02d", i%nodes)
}
