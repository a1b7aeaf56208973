package object

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portolan.dev/portolan/internal/cluster"
)

// Pod converts a Pod.
func Pod(p *corev1.Pod) (*cluster.Pod, field.ErrorList) {
	k, errs := key(&p.ObjectMeta, validation.IsDNS1123Subdomain)
	pod := &cluster.Pod{
		Key:      k,
		Labels:   p.Labels,
		Finished: p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		Pending:  p.Status.Phase == corev1.PodPending,
		Deleting: p.DeletionTimestamp != nil,
		Node:     p.Spec.NodeName,
		UID:      string(p.UID),
		Spec:     PodSpec(&p.ObjectMeta, &p.Spec),
	}
	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		pod.StaticUID = p.Annotations[annotationConfigHash]
	}
	errs = append(errs, in(optionalLabel(p.Spec.Hostname), "spec", "hostname")...)
	errs = append(errs, in(optionalLabel(p.Spec.Subdomain), "spec", "subdomain")...)
	if len(p.Status.PodIPs) == 0 && p.Status.PodIP != "" {
		addr, bad := address(p.Status.PodIP)
		pod.IPs, errs = append(pod.IPs, addr), append(errs, in(bad, "status", "podIP")...)
	}
	for i, ip := range p.Status.PodIPs {
		addr, bad := address(ip.IP)
		pod.IPs, errs = append(pod.IPs, addr), append(errs, in(bad, "status", "podIPs", i, "ip")...)
	}
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		if c.Status == corev1.ConditionTrue {
			pod.Ready = pod.Ready || c.Type == corev1.PodReady
		} else {
			pod.Unmet = append(pod.Unmet,
				cluster.Condition{Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Message: c.Message})
		}
	}
	return pod, errs
}

// annotationConfigHash is the UID of a static Pod, which the kubelet makes of its file.
const annotationConfigHash = "kubernetes.io/config.hash"

// PodSpec converts what matters for DNS in a PodSpec, and the annotations of its Pod or template. It rejects nothing:
// package dnsconfig checks a Pod's DNS settings.
func PodSpec(meta *metav1.ObjectMeta, s *corev1.PodSpec) *cluster.PodSpec {
	spec := &cluster.PodSpec{
		HostNetwork:       s.HostNetwork,
		DNSPolicy:         string(s.DNSPolicy),
		Hostname:          s.Hostname,
		HostnameOverride:  s.HostnameOverride,
		Subdomain:         s.Subdomain,
		SetHostnameAsFQDN: s.SetHostnameAsFQDN != nil && *s.SetHostnameAsFQDN,
		NoServiceLinks:    s.EnableServiceLinks != nil && !*s.EnableServiceLinks,
		Refused:           refusedAnnotations(meta.Annotations),
	}
	spec.Mentions = append(
		containerMentions("initContainers", s.InitContainers), containerMentions("containers", s.Containers)...)
	if s.OS != nil {
		spec.OS = string(s.OS.Name)
	}
	if c := s.DNSConfig; c != nil {
		spec.DNSConfig = &cluster.DNSConfig{Nameservers: c.Nameservers, Searches: c.Searches}
		for _, o := range c.Options {
			option := cluster.DNSOption{Name: o.Name}
			if o.Value != nil {
				option.Value = *o.Value
			}
			spec.DNSConfig.Options = append(spec.DNSConfig.Options, option)
		}
	}
	for i := range s.Containers {
		spec.Ports = append(spec.Ports, containerPorts(s.Containers[i].Ports)...)
	}
	for i := range s.InitContainers {
		again := s.InitContainers[i].RestartPolicy
		if again != nil && *again == corev1.ContainerRestartPolicyAlways { // a sidecar
			spec.Ports = append(spec.Ports, containerPorts(s.InitContainers[i].Ports)...)
		}
	}
	return spec
}

// containerPorts converts the valid ports of a container.
func containerPorts(ports []corev1.ContainerPort) (kept []cluster.Port) {
	for _, p := range ports {
		number, badNumber := portNumber(p.ContainerPort)
		proto, badProtocol := protocol(p.Protocol)
		if len(badNumber) == 0 && len(badProtocol) == 0 {
			kept = append(kept, cluster.Port{Name: p.Name, Protocol: proto, Number: number})
		}
	}
	return kept
}
