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

// externalName checks the target. An address passes: it was always accepted,
// as a name made of digits, and the zone says what comes of it.
func externalName(path *field.Path, target string) field.ErrorList {
	if _, err := netip.ParseAddr(target); err == nil {
		return nil
	}
	return checkName(path, strings.TrimSuffix(target, "."), validation.IsDNS1123Subdomain)
}

func clusterIPs(spec *field.Path, s *corev1.ServiceSpec, service *cluster.Service) (errs field.ErrorList) {
	texts, path := s.ClusterIPs, spec.Child("clusterIPs")
	at := path.Index
	if len(texts) == 0 && s.ClusterIP != "" {
		texts, at = []string{s.ClusterIP}, func(int) *field.Path { return spec.Child("clusterIP") }
	}
	if len(s.ClusterIPs) > 0 && s.ClusterIP != "" && s.ClusterIP != s.ClusterIPs[0] {
		errs = append(errs, field.Invalid(at(0), s.ClusterIPs[0], "must be the same as spec.clusterIP"))
	}
	if len(texts) > 0 && texts[0] == corev1.ClusterIPNone {
		service.Headless = true
		if len(texts) > 1 {
			errs = append(errs, field.Invalid(at(1), texts[1], "must be empty when the first is None"))
		}
		return errs
	}
	for i, f := range s.IPFamilies {
		if f != corev1.IPv4Protocol && f != corev1.IPv6Protocol {
			errs = append(errs, field.NotSupported(spec.Child("ipFamilies").Index(i), f, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}))
		}
	}
	for i, text := range texts {
		addr, bad := address(at(i), text)
		if len(bad) == 0 {
			bad = clusterIPFamily(at(i), i, addr, s.IPFamilies, service.ClusterIPs)
		}
		errs = append(errs, bad...)
		service.ClusterIPs = append(service.ClusterIPs, addr)
	}
	return errs
}

// clusterIPFamily checks address i: its family is the one that ipFamilies says,
// and not that of an address before it.
func clusterIPFamily(path *field.Path, i int, addr netip.Addr, families []corev1.IPFamily, before []netip.Addr) field.ErrorList {
	for _, b := range before {
		if i > 1 || b.IsValid() && b.Is4() == addr.Is4() {
			return field.ErrorList{field.Invalid(path, addr.String(), "may hold one address of each family")}
		}
	}
	if i < len(families) && addr.Is4() != (families[i] == corev1.IPv4Protocol) {
		return field.ErrorList{field.Invalid(path, addr.String(), fmt.Sprintf("must be an address of the family %s, as spec.ipFamilies says", families[i]))}
	}
	return nil
}
