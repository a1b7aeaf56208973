package endpointslices_test

import (
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"portolan.dev/portolan/internal/cluster"
)

// world is a small cluster where anything may happen to a Pod, a Service or a
// Node. Objects are never changed, but replaced.
type world struct {
	*rand.Rand
	services map[string]*corev1.Service
	pods     map[string]*corev1.Pod
	nodes    map[string]*corev1.Node
	made     int
}

const namespace = "shop"

func newWorld(seed uint64) *world {
	return &world{
		Rand: rand.New(rand.NewPCG(seed, 1)), services: make(map[string]*corev1.Service),
		pods: make(map[string]*corev1.Pod), nodes: make(map[string]*corev1.Node),
	}
}

func pick[T any](w *world, from ...T) T { return from[w.IntN(len(from))] }

// unique is another name each time.
func (w *world) unique() types.UID {
	w.made++
	return types.UID(fmt.Sprintf("uid-%d", w.made))
}

// event changes one object; it is a nil pointer of its type when it went.
func (w *world) event() (key cluster.Key, now any) {
	switch n := w.IntN(20); {
	case n < 13:
		name := fmt.Sprintf("pod-%d", w.IntN(9))
		now := w.pod(w.pods[name], name)
		put(w.pods, name, now)
		return cluster.Key{Namespace: namespace, Name: name}, now
	case n < 18:
		name := fmt.Sprintf("service-%d", w.IntN(3))
		now := w.service(w.services[name], name)
		put(w.services, name, now)
		return cluster.Key{Namespace: namespace, Name: name}, now
	}
	name := fmt.Sprintf("node-%d", w.IntN(4))
	node := w.node(w.nodes[name], name)
	put(w.nodes, name, node)
	return cluster.Key{Name: name}, node
}

func (w *world) pod(old *corev1.Pod, name string) *corev1.Pod {
	if old == nil {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: w.unique(), Labels: w.labels()}}
		p.Spec.NodeName = fmt.Sprintf("node-%d", w.IntN(4))
		w.addresses(p)
		w.readiness(p, pick(w, corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionFalse))
		return p
	}
	p := old.DeepCopy()
	switch n := w.IntN(16); {
	case n < 6:
		ready := corev1.ConditionTrue
		if len(p.Status.Conditions) > 0 && p.Status.Conditions[0].Status == corev1.ConditionTrue {
			ready = corev1.ConditionFalse
		}
		w.readiness(p, ready)
	case n < 8:
		return nil
	case n == 8:
		p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	case n == 9:
		p.Labels = w.labels()
	case n == 10:
		w.addresses(p)
	case n == 11:
		p.Spec.NodeName = fmt.Sprintf("node-%d", w.IntN(4))
	case n == 12:
		p.Spec.Hostname, p.Spec.Subdomain = pick(w, "", "host", name), pick(w, "", "service-0", "service-1")
	case n == 13:
		p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{
			{Name: "web", Protocol: pick(w, corev1.ProtocolTCP, corev1.ProtocolUDP), ContainerPort: pick[int32](w, 8080, 8081)},
		}}}
	case n == 14:
		p.Status.Phase = pick(w, corev1.PodRunning, corev1.PodFailed, corev1.PodSucceeded)
	default:
		p.UID = w.unique()
	}
	return p
}

func (w *world) labels() map[string]string {
	return map[string]string{"app": pick(w, "a", "a", "b"), "tier": pick(w, "x", "y")}
}

func (w *world) addresses(p *corev1.Pod) {
	w.made++
	four, six := corev1.PodIP{IP: fmt.Sprintf("10.1.%d.%d", w.made/250, w.made%250)}, corev1.PodIP{IP: fmt.Sprintf("2001:db8::%x", w.made)}
	p.Status.PodIPs = pick(w, []corev1.PodIP{four}, []corev1.PodIP{four}, []corev1.PodIP{four, six}, []corev1.PodIP{six, four}, []corev1.PodIP{six}, nil)
}

func (w *world) readiness(p *corev1.Pod, status corev1.ConditionStatus) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
}

func (w *world) service(old *corev1.Service, name string) *corev1.Service {
	if old == nil {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: pick(w, "same", w.unique())}}
		s.Spec.Selector = map[string]string{"app": pick(w, "a", "b")}
		s.Spec.Ports = []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(80)}}
		w.families(s)
		return s
	}
	s := old.DeepCopy()
	switch w.IntN(12) {
	case 0:
		return nil
	case 1, 2:
		s.Spec.Selector = pick(w, map[string]string{"app": "a"}, map[string]string{"tier": "x"}, map[string]string{"app": "a", "tier": "y"}, nil)
	case 3, 4:
		s.Spec.Ports = w.ports(s)
	case 5:
		s.Spec.PublishNotReadyAddresses = !s.Spec.PublishNotReadyAddresses
	case 6:
		w.families(s)
	case 7, 8:
		s.Spec.TrafficDistribution = pick(w, nil, new("PreferClose"), new("PreferSameZone"), new("PreferSameNode"), new("Elsewhere"))
	case 9:
		s.Annotations = pick(w, nil, map[string]string{corev1.AnnotationTopologyMode: "Auto"}, map[string]string{corev1.AnnotationTopologyMode: "Disabled"})
	case 10:
		s.Labels = pick(w, nil, map[string]string{"team": "a"}, map[string]string{"team": "b", "app": "a"})
	default:
		s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeClusterIP, ""
		if w.IntN(3) == 0 {
			s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.com"
		}
	}
	return s
}

func (w *world) ports(s *corev1.Service) (ports []corev1.ServicePort) {
	for i := range w.IntN(3) + 1 {
		ports = append(ports, corev1.ServicePort{
			Name: fmt.Sprintf("port-%d", i), Protocol: corev1.ProtocolTCP, Port: 80 + int32(i),
			TargetPort:  pick(w, intstr.IntOrString{}, intstr.FromInt32(8080), intstr.FromString("web")),
			AppProtocol: pick(w, nil, nil, new("http")),
		})
	}
	if s.Spec.ClusterIP == corev1.ClusterIPNone && w.IntN(3) == 0 {
		return nil
	}
	for i := range ports { // the API's default
		if ports[i].TargetPort == (intstr.IntOrString{}) {
			ports[i].TargetPort = intstr.FromInt32(ports[i].Port)
		}
	}
	return ports
}

// families gives a Service families and addresses to go with them; service-2 is
// headless.
func (w *world) families(s *corev1.Service) {
	four, six := corev1.IPv4Protocol, corev1.IPv6Protocol
	s.Spec.IPFamilies = pick(w, []corev1.IPFamily{four}, []corev1.IPFamily{four}, []corev1.IPFamily{six}, []corev1.IPFamily{four, six}, []corev1.IPFamily{six, four})
	s.Spec.ClusterIPs = nil
	for _, f := range s.Spec.IPFamilies {
		s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, map[corev1.IPFamily]string{four: "10.0.0.1", six: "2001:db8:1::1"}[f])
	}
	if s.Name == "service-2" {
		s.Spec.ClusterIPs = []string{corev1.ClusterIPNone}
	}
	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
}

// node changes a Node, of which the first always stays.
func (w *world) node(old *corev1.Node, name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: make(map[string]string)}}
	n.Labels[corev1.LabelTopologyZone] = pick(w, "zone-a", "zone-b")
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	if old == nil {
		return n
	}
	n = old.DeepCopy()
	switch w.IntN(6) {
	case 0:
		if name != "node-0" {
			return nil
		}
	case 1:
		n.Status.Conditions[0].Status = pick(w, corev1.ConditionTrue, corev1.ConditionFalse)
	case 2:
		n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse(pick(w, "4", "2", "500m"))
	case 3:
		delete(n.Labels, corev1.LabelTopologyZone)
	case 4:
		n.Labels["node-role.kubernetes.io/control-plane"] = ""
	default:
		n.Labels[corev1.LabelTopologyZone] = pick(w, "zone-a", "zone-b", "zone-c")
		delete(n.Labels, "node-role.kubernetes.io/control-plane")
	}
	return n
}
