package kubeobj

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
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
	}
	spec := field.NewPath("spec")
	errs = append(errs, servicePorts(spec, s.Spec.Ports, service)...)
	switch s.Spec.Type {
	case corev1.ServiceTypeExternalName:
		service.ExternalName = s.Spec.ExternalName
		return service, append(errs, externalName(spec.Child("externalName"), s.Spec.ExternalName)...)
	case "", corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		return service, append(errs, clusterIPs(spec, &s.Spec, service)...)
	}
	return service, append(errs, field.NotSupported(spec.Child("type"), s.Spec.Type, []corev1.ServiceType{
		corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName,
	}))
}

func servicePorts(spec *field.Path, ports []corev1.ServicePort, service *cluster.Service) (errs field.ErrorList) {
	for i, p := range ports {
		path := spec.Child("ports").Index(i)
		number, bad := portNumber(path.Child("port"), p.Port)
		errs = append(errs, bad...)
		proto, bad := protocol(path.Child("protocol"), p.Protocol)
		errs = append(errs, bad...)
		errs = append(errs, optionalLabel(path.Child("name"), p.Name)...)
		service.Ports = append(service.Ports, cluster.Port{Name: p.Name, Protocol: proto, Number: number})
	}
	return errs
}

// externalName checks the target. An address passes, though the API server
// takes only IPv4's, as names made of digits: the zone says what comes of it.
func externalName(path *field.Path, target string) field.ErrorList {
	if _, err := netip.ParseAddr(target); err == nil {
		return nil
	}
	return checkName(path, strings.TrimSuffix(target, "."), validation.IsDNS1123Subdomain)
}

func clusterIPs(spec *field.Path, s *corev1.ServiceSpec, service *cluster.Service) (errs field.ErrorList) {
	texts, at := s.ClusterIPs, spec.Child("clusterIPs").Index
	if len(texts) == 0 && s.ClusterIP != "" {
		texts, at = []string{s.ClusterIP}, func(int) *field.Path { return spec.Child("clusterIP") }
	}
	if len(s.ClusterIPs) > 0 && s.ClusterIP != "" && s.ClusterIP != s.ClusterIPs[0] {
		errs = append(errs, field.Invalid(at(0), s.ClusterIPs[0], "must be the same as spec.clusterIP"))
	}
	errs = append(errs, ipFamilies(spec.Child("ipFamilies"), s.IPFamilies)...)
	if len(texts) > 0 && texts[0] == corev1.ClusterIPNone {
		service.Headless = true
		if len(texts) > 1 {
			errs = append(errs, field.Invalid(at(1), texts[1], "must be empty when the first is None"))
		}
		return errs
	}
	taken := make(map[corev1.IPFamily]bool)
	for i, text := range texts {
		addr, bad := address(at(i), text)
		if len(bad) == 0 {
			family := familyOf(addr)
			switch {
			case taken[family]:
				bad = append(bad, field.Invalid(at(i), text, "may hold one address of each family"))
			case i < len(s.IPFamilies) && s.IPFamilies[i] == otherFamily(family):
				bad = append(bad, field.Invalid(at(i), text, fmt.Sprintf("must be of the family %s, as spec.ipFamilies[%d] says", s.IPFamilies[i], i)))
			}
			taken[family] = true
		}
		errs = append(errs, bad...)
		service.ClusterIPs = append(service.ClusterIPs, addr)
	}
	return errs
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

func ipFamilies(path *field.Path, families []corev1.IPFamily) (errs field.ErrorList) {
	for i, f := range families {
		if f != corev1.IPv4Protocol && f != corev1.IPv6Protocol {
			errs = append(errs, field.NotSupported(path.Index(i), f, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}))
		}
	}
	return errs
}
