package object

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portolan.dev/portolan/internal/cluster"
)

// tolerateUnready is the older spelling of publishNotReadyAddresses
// (specification, section 2.1, "ready").
const tolerateUnready = "service.alpha.kubernetes.io/tolerate-unready-endpoints"

// Service converts a Service. Names may begin with a digit, as Kubernetes'
// relaxed validation allows.
func Service(s *corev1.Service) (*cluster.Service, field.ErrorList) {
	k, errs := key(&s.ObjectMeta, validation.IsDNS1123Label)
	service := &cluster.Service{
		Key:             k,
		Selector:        s.Spec.Selector,
		PublishNotReady: s.Spec.PublishNotReadyAddresses || s.Annotations[tolerateUnready] == "true",
		External:        serviceExternal(s),
		Spec:            serviceSpec(s),
	}
	if !s.CreationTimestamp.IsZero() {
		service.Created = s.CreationTimestamp.Unix()
	}
	if n := s.Spec.HealthCheckNodePort; n != 0 {
		port, bad := portNumber(n)
		service.Spec.HealthCheckNodePort, errs = port, append(errs, in(bad, "spec", "healthCheckNodePort")...)
	}
	errs = append(errs, servicePorts(s.Spec.Ports, service)...)
	switch s.Spec.Type {
	case corev1.ServiceTypeExternalName:
		service.ExternalName = s.Spec.ExternalName
		return service, append(errs, in(externalName(s.Spec.ExternalName), "spec", "externalName")...)
	case "", corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		return service, append(errs, in(clusterIPs(&s.Spec, service), "spec")...)
	}
	return service, append(errs, field.NotSupported(field.NewPath("spec", "type"), s.Spec.Type, []corev1.ServiceType{
		corev1.ServiceTypeClusterIP,
		corev1.ServiceTypeNodePort,
		corev1.ServiceTypeLoadBalancer,
		corev1.ServiceTypeExternalName,
	}))
}

func servicePorts(ports []corev1.ServicePort, service *cluster.Service) (errs field.ErrorList) {
	service.Ports = slices.Grow(service.Ports, len(ports))
	for i := range ports {
		p := &ports[i]
		number, bad := portNumber(p.Port)
		errs = append(errs, in(bad, "spec", "ports", i, "port")...)
		proto, bad := protocol(p.Protocol)
		errs = append(errs, in(bad, "spec", "ports", i, "protocol")...)
		errs = append(errs, in(optionalLabel(p.Name), "spec", "ports", i, "name")...)
		errs = append(errs, in(nodePort(p.NodePort, len(ports), i, service.Spec), "spec", "ports", i, "nodePort")...)
		service.Ports = append(service.Ports, cluster.Port{Name: p.Name, Protocol: proto, Number: number})
		if p.AppProtocol != nil {
			if service.Spec.AppProtocols == nil {
				service.Spec.AppProtocols = make([]*string, len(ports))
			}
			service.Spec.AppProtocols[i] = p.AppProtocol
		}
		if t := target(p.TargetPort); t != "" {
			if service.Targets == nil {
				service.Targets = make([]string, len(ports))
			}
			service.Targets[i] = t
		}
	}
	return errs
}

// serviceSpec converts the fields other than ports and addresses.
func serviceSpec(s *corev1.Service) *cluster.ServiceSpec {
	spec := &cluster.ServiceSpec{
		UID:           string(s.UID),
		Labels:        s.Labels,
		Type:          cluster.ServiceType(cmp.Or(s.Spec.Type, corev1.ServiceTypeClusterIP)),
		NoNodePorts:   s.Spec.AllocateLoadBalancerNodePorts != nil && !*s.Spec.AllocateLoadBalancerNodePorts,
		ExternalLocal: s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
		InternalLocal: s.Spec.InternalTrafficPolicy != nil &&
			*s.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
		TopologyMode:   topologyMode(s.Annotations),
		Deleting:       s.DeletionTimestamp != nil,
		SourceRanges:   sourceRanges(s.Spec.LoadBalancerSourceRanges),
		EndpointChoice: s.Annotations[cluster.AnnotationEndpointChoice],
		SlowStart:      s.Annotations[cluster.AnnotationSlowStart],
		LoadBalancer:   loadBalancer(s),
	}
	for _, text := range s.Spec.ExternalIPs {
		if addr, bad := address(text); len(bad) == 0 {
			spec.ExternalIPs = append(spec.ExternalIPs, addr)
		}
	}
	for i := range s.Status.LoadBalancer.Ingress {
		ingress := &s.Status.LoadBalancer.Ingress[i]
		if addr, bad := address(ingress.IP); len(bad) == 0 {
			proxy := ingress.IPMode != nil && *ingress.IPMode != corev1.LoadBalancerIPModeVIP
			spec.Ingress = append(spec.Ingress, cluster.IngressIP{Addr: addr, Proxy: proxy})
		}
	}
	if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		spec.AffinitySeconds = affinitySeconds(s.Spec.SessionAffinityConfig)
	}
	for _, f := range s.Spec.IPFamilies {
		spec.Families = append(spec.Families, cluster.AddressType(f))
	}
	if s.Spec.IPFamilyPolicy != nil {
		spec.FamilyPolicy = cluster.FamilyPolicy(*s.Spec.IPFamilyPolicy)
	}
	if s.Spec.TrafficDistribution != nil {
		spec.TrafficDistribution = *s.Spec.TrafficDistribution
	}
	return spec
}

// loadBalancer returns what a Service of type LoadBalancer asks for; nil if it is of another type, or asks
// for nothing.
func loadBalancer(s *corev1.Service) *cluster.LoadBalancerSpec {
	asked := cluster.LoadBalancerSpec{
		IP:        s.Spec.LoadBalancerIP,
		Addresses: s.Annotations[cluster.AnnotationLoadBalancerIPs],
		Pool:      s.Annotations[cluster.AnnotationPool], SharingKey: s.Annotations[cluster.AnnotationSharingKey],
	}
	if s.Spec.LoadBalancerClass != nil {
		asked.Class = *s.Spec.LoadBalancerClass
	}
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer || asked == (cluster.LoadBalancerSpec{}) {
		return nil
	}
	return &asked
}

// affinitySeconds returns the timeout, or the API server's default.
func affinitySeconds(c *corev1.SessionAffinityConfig) int32 {
	if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
		return corev1.DefaultClientIPServiceAffinitySeconds
	}
	return *c.ClientIP.TimeoutSeconds
}

// nobody are ranges of addresses that no client has.
var nobody = []netip.Prefix{
	netip.PrefixFrom(netip.IPv4Unspecified(), 32), netip.PrefixFrom(netip.IPv6Unspecified(), 128),
}

// sourceRanges parses loadBalancerSourceRanges, in which the API server allows blanks. If none
// of them is valid, no client may connect.
func sourceRanges(texts []string) (ranges []netip.Prefix) {
	for _, text := range texts {
		if p, bad := prefix(strings.TrimSpace(text)); len(bad) == 0 {
			ranges = append(ranges, p)
		}
	}
	if len(ranges) == 0 && len(texts) > 0 {
		return nobody
	}
	return ranges
}

// topologyMode returns the annotation's value. The deprecated annotation takes
// precedence (k8s.io/api/core/v1, AnnotationTopologyMode).
func topologyMode(annotations map[string]string) string {
	if mode, ok := annotations[corev1.DeprecatedAnnotationTopologyAwareHints]; ok {
		return mode
	}
	return annotations[corev1.AnnotationTopologyMode]
}

// nodePort sets the node port of port i of n; 0 is none.
func nodePort(number int32, n, i int, spec *cluster.ServiceSpec) field.ErrorList {
	if number == 0 {
		return nil
	}
	port, errs := portNumber(number)
	if spec.NodePorts == nil {
		spec.NodePorts = make([]uint16, n)
	}
	spec.NodePorts[i] = port
	return errs
}

// target returns a targetPort as text; empty without one.
func target(p intstr.IntOrString) string {
	if p == (intstr.IntOrString{}) {
		return ""
	}
	return p.String()
}

// externalName checks the target. Any address passes, though the API server
// accepts only IPv4 addresses, as names of digits: package kubezone decides how
// to answer.
func externalName(target string) field.ErrorList {
	if _, err := netip.ParseAddr(target); err == nil {
		return nil
	}
	if parts := beyondName(target); len(parts) > 0 {
		return nowhere(field.Invalid(nil, target, "a name is wanted, leave out "+strings.Join(parts, " and ")))
	}
	return checkName(strings.TrimSuffix(target, "."), validation.IsDNS1123Subdomain)
}

// beyondName returns the parts of a URL before and after its name, quoted; none
// when target is not a URL.
func beyondName(target string) (parts []string) {
	if scheme, rest, ok := strings.Cut(target, "://"); ok {
		parts, target = append(parts, strconv.Quote(scheme+"://")), rest
	}
	if i := strings.IndexAny(target, ":/"); i >= 0 {
		parts = append(parts, strconv.Quote(target[i:]))
	}
	return parts
}

// clusterIPs sets the Service's addresses; paths of errors are below spec.
func clusterIPs(s *corev1.ServiceSpec, service *cluster.Service) (errs field.ErrorList) {
	texts := s.ClusterIPs
	at := func(errs field.ErrorList, i int) field.ErrorList { return in(errs, "clusterIPs", i) }
	if len(texts) == 0 && s.ClusterIP != "" {
		texts = []string{s.ClusterIP}
		at = func(errs field.ErrorList, _ int) field.ErrorList { return in(errs, "clusterIP") }
	}
	if len(s.ClusterIPs) > 0 && s.ClusterIP != "" && s.ClusterIP != s.ClusterIPs[0] {
		errs = append(errs, at(nowhere(field.Invalid(nil, s.ClusterIPs[0], "must be the same as spec.clusterIP")), 0)...)
	}
	errs = append(errs, ipFamilies(s.IPFamilies)...)
	if len(texts) > 0 && texts[0] == corev1.ClusterIPNone {
		service.Headless = true
		if len(texts) > 1 {
			errs = append(errs, at(nowhere(field.Invalid(nil, texts[1], "must be empty when the first is None")), 1)...)
		}
		return errs
	}
	service.ClusterIPs = slices.Grow(service.ClusterIPs, len(texts))
	for i, text := range texts {
		addr, bad := address(text)
		if len(bad) == 0 {
			bad = checkFamily(addr, text, i, s.IPFamilies, service.ClusterIPs)
		}
		errs = append(errs, at(bad, i)...)
		service.ClusterIPs = append(service.ClusterIPs, addr)
	}
	return errs
}

// checkFamily checks that a Service's address i is of the declared family, and
// not of the family of an address before.
func checkFamily(addr netip.Addr, text string, i int, families []corev1.IPFamily, before []netip.Addr) field.ErrorList {
	family := familyOf(addr)
	for _, other := range before {
		if other.IsValid() && familyOf(other) == family {
			return nowhere(field.Invalid(nil, text, "may hold one address of each family"))
		}
	}
	if i < len(families) && families[i] == otherFamily(family) {
		return nowhere(field.Invalid(nil, text,
			fmt.Sprintf("must be of the family %s, as spec.ipFamilies[%d] says", families[i], i)))
	}
	return nil
}

func familyOf(addr netip.Addr) corev1.IPFamily {
	if addr.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

func otherFamily(f corev1.IPFamily) corev1.IPFamily {
	if f == corev1.IPv4Protocol {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

func ipFamilies(families []corev1.IPFamily) (errs field.ErrorList) {
	for i, f := range families {
		if f != corev1.IPv4Protocol && f != corev1.IPv6Protocol {
			known := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
			errs = append(errs, in(nowhere(field.NotSupported(nil, f, known)), "ipFamilies", i)...)
		}
	}
	return errs
}
