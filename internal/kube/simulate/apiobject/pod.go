package apiobject

import (
	"cmp"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"portolan.dev/portolan/internal/cluster"
)

// pod returns a Pod with its fields in the model. If it was not declared, its spec is
// that of its owner's template.
func (b *Builder) pod(v *cluster.View, p *cluster.Pod) (Object, error) {
	o := new(corev1.Pod)
	ok, err := b.declared(cluster.KindPod, p.Key, o)
	if err == nil && !ok {
		o, err = b.podOfTemplate(p)
	}
	if err != nil {
		return nil, err
	}
	o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	o.Namespace = p.Namespace
	if p.Simulated {
		o.Annotations = maps.Clone(o.Annotations)
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, Simulated, "true")
	}
	o.Spec.NodeName = p.Node
	defaultPorts(o.Spec.Containers)
	defaultPorts(o.Spec.InitContainers)
	setStatus(&o.Status, v, p)
	return o, nil
}

func defaultPorts(containers []corev1.Container) {
	for i := range containers {
		for j := range containers[i].Ports {
			p := &containers[i].Ports[j]
			p.Protocol = cmp.Or(p.Protocol, corev1.ProtocolTCP)
		}
	}
}

// podOfTemplate returns a Pod as a workload's controller would create it.
func (b *Builder) podOfTemplate(p *cluster.Pod) (*corev1.Pod, error) {
	o := &corev1.Pod{ObjectMeta: meta(p.Key)}
	if p.Owner != nil {
		var declared struct {
			Spec struct {
				Template corev1.PodTemplateSpec `json:"template"`
			} `json:"spec"`
		}
		owner := cluster.Key{Namespace: p.Namespace, Name: p.Owner.Name}
		if _, err := b.declared(p.Owner.Kind, owner, &declared); err != nil {
			return nil, err
		}
		o.Annotations, o.Spec = declared.Spec.Template.Annotations, declared.Spec.Template.Spec
	}
	o.UID, o.Labels = types.UID(p.UID), p.Labels
	if p.Spec != nil {
		o.Spec.Hostname, o.Spec.Subdomain = p.Spec.Hostname, p.Spec.Subdomain
	}
	return o, nil
}

// setStatus sets the status that a kubelet would set, except for declared fields.
func setStatus(s *corev1.PodStatus, v *cluster.View, p *cluster.Pod) {
	phase := corev1.PodPending
	if p.Simulated {
		phase = corev1.PodRunning
	}
	s.Phase = cmp.Or(s.Phase, phase)
	if len(p.IPs) > 0 {
		s.PodIP, s.PodIPs = p.IPs[0].String(), nil
		for _, addr := range p.IPs {
			s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: addr.String()})
		}
	}
	if n := v.Node(p.Node); p.Simulated && n != nil && len(n.Addresses) > 0 && s.HostIP == "" {
		s.HostIP = n.Addresses[0].String()
		for _, addr := range n.Addresses {
			s.HostIPs = append(s.HostIPs, corev1.HostIP{IP: addr.String()})
		}
	}
	if p.Ready && condition(s, corev1.PodReady) == nil {
		for _, kind := range []corev1.PodConditionType{
			corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
		} {
			if condition(s, kind) == nil {
				s.Conditions = append(s.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue})
			}
		}
	}
}

// condition returns the condition of a type, or nil.
func condition(s *corev1.PodStatus, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == kind {
			return &s.Conditions[i]
		}
	}
	return nil
}
