package endpointslices

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"portolan.dev/portolan/internal/cluster"
)

// apiService returns a Service with the fields that the library reads.
func apiService(s *cluster.Service) *corev1.Service {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name},
		Spec: corev1.ServiceSpec{
			PublishNotReadyAddresses: s.PublishNotReady,
			Ports:                    make([]corev1.ServicePort, len(s.Ports)),
		},
	}
	switch {
	case s.Headless:
		service.Spec.ClusterIP = corev1.ClusterIPNone
	case len(s.ClusterIPs) > 0:
		service.Spec.ClusterIP = s.ClusterIPs[0].String()
	}
	for i, p := range s.Ports {
		service.Spec.Ports[i] = corev1.ServicePort{
			Name: p.Name, Protocol: corev1.Protocol(p.Protocol), Port: int32(p.Number), TargetPort: targetPort(s, i),
		}
	}
	if s.Spec != nil {
		addSpec(service, s.Spec)
	}
	return service
}

func addSpec(service *corev1.Service, spec *cluster.ServiceSpec) {
	service.UID = types.UID(spec.UID)
	service.Labels = spec.Labels
	if spec.TopologyMode != "" {
		service.Annotations = map[string]string{corev1.AnnotationTopologyMode: spec.TopologyMode}
	}
	if spec.Deleting {
		service.DeletionTimestamp = &metav1.Time{}
	}
	service.Spec.Type = corev1.ServiceType(spec.Type)
	for _, f := range spec.Families {
		service.Spec.IPFamilies = append(service.Spec.IPFamilies, corev1.IPFamily(f))
	}
	if spec.TrafficDistribution != "" {
		service.Spec.TrafficDistribution = &spec.TrafficDistribution
	}
	for i, p := range spec.AppProtocols {
		service.Spec.Ports[i].AppProtocol = p
	}
}

// targetPort returns the target of a Service's i-th port; it defaults to the port's
// own number (core/v1, ServicePort).
func targetPort(s *cluster.Service, i int) intstr.IntOrString {
	if s.Targets == nil || s.Targets[i] == "" {
		return intstr.FromInt32(int32(s.Ports[i].Number))
	}
	return intstr.Parse(s.Targets[i])
}

// scratch holds API objects for reuse: a corev1.Pod is large and needed only while
// the library runs.
type scratch struct {
	slots []*slot
	list  []*corev1.Pod
	now   metav1.Time
}

type slot struct {
	pod       corev1.Pod
	container [1]corev1.Container
	ready     [1]corev1.PodCondition
}

// pods returns Pods with the fields that the library reads, valid until the next call.
func (s *scratch) pods(pods []*cluster.Pod) []*corev1.Pod {
	s.list = s.list[:0]
	for i, p := range pods {
		if i == len(s.slots) {
			s.slots = append(s.slots, &slot{})
		}
		s.slots[i].fill(p, &s.now)
		s.list = append(s.list, &s.slots[i].pod)
	}
	return s.list
}

func (s *slot) fill(p *cluster.Pod, now *metav1.Time) {
	pod := &s.pod
	pod.Namespace, pod.Name, pod.UID = p.Namespace, p.Name, types.UID(p.UID)
	pod.DeletionTimestamp = nil
	if p.Deleting {
		pod.DeletionTimestamp = now
	}
	pod.Spec.NodeName, pod.Spec.Hostname, pod.Spec.Subdomain = p.Node, "", ""
	ports := s.container[0].Ports[:0]
	if p.Spec != nil {
		pod.Spec.Hostname, pod.Spec.Subdomain = p.Spec.Hostname, p.Spec.Subdomain
		for _, port := range p.Spec.Ports {
			ports = append(ports,
				corev1.ContainerPort{Name: port.Name, Protocol: corev1.Protocol(port.Protocol), ContainerPort: int32(port.Number)})
		}
	}
	s.container[0].Ports = ports
	pod.Spec.Containers = s.container[:]
	pod.Status.Phase = corev1.PodRunning
	if p.Finished {
		pod.Status.Phase = corev1.PodSucceeded
	}
	s.ready[0] = corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse}
	if p.Ready {
		s.ready[0].Status = corev1.ConditionTrue
	}
	pod.Status.Conditions = s.ready[:]
	pod.Status.PodIPs = pod.Status.PodIPs[:0]
	for _, ip := range p.IPs {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: ip.String()})
	}
}

// apiNode returns a Node with the fields that the library reads.
func apiNode(n *cluster.Node) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: make(map[string]string)}}
	if n.Zone != "" {
		node.Labels[corev1.LabelTopologyZone] = n.Zone
	}
	if n.ControlPlane {
		node.Labels["node-role.kubernetes.io/control-plane"] = ""
	}
	ready := corev1.ConditionFalse
	if n.Ready {
		ready = corev1.ConditionTrue
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	if n.MilliCPU > 0 {
		node.Status.Allocatable = corev1.ResourceList{
			corev1.ResourceCPU: *resource.NewMilliQuantity(n.MilliCPU, resource.DecimalSI),
		}
	}
	return node
}
