package apiobject

import (
	"cmp"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"portolan.dev/portolan/internal/cluster"
)

// service returns a Service with its fields in the model and the API server's defaults.
func (b *Builder) service(s *cluster.Service) (Object, error) {
	o := new(corev1.Service)
	ok, err := b.declared(cluster.KindService, s.Key, o)
	if err != nil {
		return nil, err
	}
	if !ok {
		o = undeclaredService(s)
	}
	o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
	o.Namespace = s.Namespace
	setAddresses(o, s)
	setNodePorts(o, s.Spec)
	defaultService(&o.Spec)
	return o, nil
}

// undeclaredService returns a Service that the control plane created, with what the model
// contains of it.
func undeclaredService(s *cluster.Service) *corev1.Service {
	o := &corev1.Service{ObjectMeta: meta(s.Key)}
	o.Spec.Selector, o.Spec.ExternalName, o.Spec.PublishNotReadyAddresses = s.Selector, s.ExternalName, s.PublishNotReady
	for i, p := range s.Ports {
		port := corev1.ServicePort{Name: p.Name, Protocol: corev1.Protocol(p.Protocol), Port: int32(p.Number)}
		if s.Targets != nil && s.Targets[i] != "" {
			port.TargetPort = intstr.Parse(s.Targets[i])
		}
		if s.Spec != nil && s.Spec.AppProtocols != nil {
			port.AppProtocol = s.Spec.AppProtocols[i]
		}
		o.Spec.Ports = append(o.Spec.Ports, port)
	}
	if spec := s.Spec; spec != nil {
		o.UID, o.Labels, o.Spec.Type = types.UID(spec.UID), spec.Labels, corev1.ServiceType(spec.Type)
		setLoadBalancer(o, spec.LoadBalancer)
	}
	return o
}

// setLoadBalancer sets what a Service asks of an implementation of load balancers.
func setLoadBalancer(o *corev1.Service, asked *cluster.LoadBalancerSpec) {
	if asked == nil {
		return
	}
	if o.Spec.LoadBalancerIP = asked.IP; asked.Class != "" {
		o.Spec.LoadBalancerClass = &asked.Class
	}
	for name, value := range map[string]string{
		cluster.AnnotationLoadBalancerIPs: asked.Addresses, cluster.AnnotationPool: asked.Pool,
		cluster.AnnotationSharingKey: asked.SharingKey,
	} {
		if value != "" {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, name, value)
		}
	}
}

// setAddresses sets the fields for cluster IPs and IP families. Fields without a value in
// the model remain as declared.
func setAddresses(o *corev1.Service, s *cluster.Service) {
	if o.Spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	if s.Headless {
		o.Spec.ClusterIP, o.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
	}
	if len(s.ClusterIPs) > 0 {
		o.Spec.ClusterIP, o.Spec.ClusterIPs = s.ClusterIPs[0].String(), nil
		for _, addr := range s.ClusterIPs {
			o.Spec.ClusterIPs = append(o.Spec.ClusterIPs, addr.String())
		}
	}
	if s.Spec == nil {
		return
	}
	if len(s.Spec.Families) > 0 {
		o.Spec.IPFamilies = nil
		for _, f := range s.Spec.Families {
			o.Spec.IPFamilies = append(o.Spec.IPFamilies, corev1.IPFamily(f))
		}
	}
	if s.Spec.FamilyPolicy != "" {
		policy := corev1.IPFamilyPolicy(s.Spec.FamilyPolicy)
		o.Spec.IPFamilyPolicy = &policy
	}
}

func setNodePorts(o *corev1.Service, spec *cluster.ServiceSpec) {
	if spec == nil {
		return
	}
	for i, port := range spec.NodePorts {
		if i < len(o.Spec.Ports) {
			o.Spec.Ports[i].NodePort = int32(port)
		}
	}
	if spec.HealthCheckNodePort > 0 {
		o.Spec.HealthCheckNodePort = int32(spec.HealthCheckNodePort)
	}
}

// affinitySeconds is the default of sessionAffinityConfig.clientIP.timeoutSeconds
// (k8s.io/api/core/v1, DefaultClientIPServiceAffinitySeconds).
const affinitySeconds = corev1.DefaultClientIPServiceAffinitySeconds

// defaultService sets the API server's defaults.
func defaultService(s *corev1.ServiceSpec) {
	s.SessionAffinity = cmp.Or(s.SessionAffinity, corev1.ServiceAffinityNone)
	c := s.SessionAffinityConfig
	if s.SessionAffinity == corev1.ServiceAffinityClientIP &&
		(c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil) {
		s.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(affinitySeconds)},
		}
	}
	s.Type = cmp.Or(s.Type, corev1.ServiceTypeClusterIP)
	for i := range s.Ports {
		p := &s.Ports[i]
		p.Protocol = cmp.Or(p.Protocol, corev1.ProtocolTCP)
		if p.TargetPort == intstr.FromInt32(0) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
	outside := s.Type == corev1.ServiceTypeNodePort || s.Type == corev1.ServiceTypeLoadBalancer
	if outside || s.Type == corev1.ServiceTypeClusterIP && len(s.ExternalIPs) > 0 {
		s.ExternalTrafficPolicy = cmp.Or(s.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if s.Type != corev1.ServiceTypeExternalName && s.InternalTrafficPolicy == nil {
		policy := corev1.ServiceInternalTrafficPolicyCluster
		s.InternalTrafficPolicy = &policy
	}
	if s.Type == corev1.ServiceTypeLoadBalancer && s.AllocateLoadBalancerNodePorts == nil {
		allocate := true
		s.AllocateLoadBalancerNodePorts = &allocate
	}
}

// portText returns a port with its node port and protocol, as in kubectl's column
// PORT(S).
func portText(p *corev1.ServicePort) string {
	text := strconv.Itoa(int(p.Port))
	if p.NodePort > 0 {
		text += ":" + strconv.Itoa(int(p.NodePort))
	}
	return text + "/" + string(p.Protocol)
}
