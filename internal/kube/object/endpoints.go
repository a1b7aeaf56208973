package object

//lint:file-ignore SA1019 legacy Endpoints, deprecated as they are, are mirrored here

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portolan.dev/portolan/internal/cluster"
)

// EndpointSlice converts an EndpointSlice. It leaves out the addresses of a slice
// of type FQDN, which are names.
func EndpointSlice(s *discoveryv1.EndpointSlice) (*cluster.EndpointSlice, field.ErrorList) {
	k, errs := key(&s.ObjectMeta, validation.IsDNS1123Subdomain)
	slice := &cluster.EndpointSlice{
		Key:         k,
		Service:     s.Labels[discoveryv1.LabelServiceName],
		Import:      s.Labels[labelImport],
		Cluster:     s.Labels[labelSourceCluster],
		AddressType: cluster.AddressType(s.AddressType),
	}
	switch s.AddressType {
	case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN:
	case "":
		errs = append(errs, field.Required(field.NewPath("addressType"), ""))
	default:
		errs = append(errs, field.NotSupported(field.NewPath("addressType"), s.AddressType,
			[]discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN}))
	}
	var places []cluster.Place
	slice.Ports = slices.Grow(slice.Ports, len(s.Ports))
	for i, p := range s.Ports {
		port, bad := slicePort(p)
		errs = append(errs, in(bad, "ports", i)...)
		slice.Ports = append(slice.Ports, port)
	}
	slice.Endpoints = slices.Grow(slice.Endpoints, len(s.Endpoints))
	for i := range s.Endpoints {
		first := len(slice.Endpoints)
		es, bad := sliceEndpoints(slice.Endpoints, s.AddressType, &s.Endpoints[i])
		errs = append(errs, in(bad, "endpoints", i)...)
		slice.Endpoints = es
		places = appendPlaces(places, place(&s.Endpoints[i]), first, len(es))
	}
	by, weight := s.Labels[discoveryv1.LabelManagedBy], s.Annotations[cluster.AnnotationEndpointWeight]
	if by != "" || weight != "" || places != nil {
		slice.Spec = &cluster.SliceSpec{ManagedBy: by, Places: places, EndpointWeight: weight}
	}
	return slice, errs
}

// appendPlaces appends the places of the addresses of one endpoint, those of the slice from
// first to end. No list is kept until one is not zero.
func appendPlaces(all []cluster.Place, p cluster.Place, first, end int) []cluster.Place {
	if all == nil && p.Node == "" && p.Hints == nil && end <= first+1 {
		return nil
	}
	all = append(all, make([]cluster.Place, first-len(all))...)
	for n := first; n < end; n++ {
		p.Additional = n > first
		all = append(all, p)
	}
	return all
}

func slicePort(p discoveryv1.EndpointPort) (port cluster.Port, errs field.ErrorList) {
	port.Protocol = cluster.TCP
	if p.Name != nil {
		port.Name = *p.Name
		errs = append(errs, in(optionalLabel(port.Name), "name")...)
	}
	if p.Protocol != nil {
		proto, bad := protocol(*p.Protocol)
		port.Protocol, errs = proto, append(errs, in(bad, "protocol")...)
	}
	if p.Port != nil {
		number, bad := portNumber(*p.Port)
		port.Number, errs = number, append(errs, in(bad, "port")...)
	}
	return port, errs
}

// sliceEndpoints appends the addresses of one endpoint.
func sliceEndpoints(
	all []cluster.Endpoint,
	t discoveryv1.AddressType,
	e *discoveryv1.Endpoint,
) (_ []cluster.Endpoint, errs field.ErrorList) {
	var endpoint cluster.Endpoint
	endpoint.Ready = e.Conditions.Ready == nil || *e.Conditions.Ready
	endpoint.Serving = e.Conditions.Serving == nil || *e.Conditions.Serving
	endpoint.Terminating = e.Conditions.Terminating != nil && *e.Conditions.Terminating
	if e.Hostname != nil {
		endpoint.Hostname = *e.Hostname
		errs = append(errs, in(optionalLabel(endpoint.Hostname), "hostname")...)
	}
	endpoint.Pod = podName(e.TargetRef)
	if t != discoveryv1.AddressTypeIPv4 && t != discoveryv1.AddressTypeIPv6 {
		return all, errs
	}
	for i, text := range e.Addresses {
		addr, bad := address(text)
		if len(bad) == 0 && addr.Is4() != (t == discoveryv1.AddressTypeIPv4) {
			bad = nowhere(field.Invalid(nil, text, fmt.Sprintf("must be an address of the slice's addressType %s", t)))
		}
		errs = append(errs, in(bad, "addresses", i)...)
		endpoint.Addr = addr
		all = append(all, endpoint)
	}
	return all, errs
}

// place returns where an endpoint is, and which clients it is for.
func place(e *discoveryv1.Endpoint) (p cluster.Place) {
	if e.NodeName != nil {
		p.Node = *e.NodeName
	}
	if e.Hints == nil || len(e.Hints.ForZones)+len(e.Hints.ForNodes) == 0 {
		return p
	}
	p.Hints = new(cluster.Hints)
	for _, z := range e.Hints.ForZones {
		p.Hints.Zones = append(p.Hints.Zones, z.Name)
	}
	for _, n := range e.Hints.ForNodes {
		p.Hints.Nodes = append(p.Hints.Nodes, n.Name)
	}
	return p
}

func podName(ref *corev1.ObjectReference) string {
	if ref == nil || ref.Kind != "Pod" {
		return ""
	}
	return ref.Name
}

// leaderAnnotation marks Endpoints that are only a leader election lock.
const leaderAnnotation = "control-plane.alpha.kubernetes.io/leader"

// Mirrors reports whether Endpoints allow that they are mirrored into
// EndpointSlices (Kubernetes, "EndpointSlice mirroring").
func Mirrors(e *corev1.Endpoints) bool {
	_, leader := e.Annotations[leaderAnnotation]
	return e.Labels[discoveryv1.LabelSkipMirror] != "true" && !leader
}

// maxMirrored is how many addresses of a subset are mirrored at most.
const maxMirrored = 1000

// mirroring is the label endpointslice.kubernetes.io/managed-by of EndpointSlices
// that mirror Endpoints (Kubernetes, "EndpointSlices", "Management").
const mirroring = "endpointslicemirroring-controller.k8s.io"

// Endpoints converts legacy Endpoints into the slices that mirror them: one
// for each subset and address family, named SERVICE-mirror-SUBSET-FAMILY.
func Endpoints(e *corev1.Endpoints) ([]*cluster.EndpointSlice, field.ErrorList) {
	k, errs := key(&e.ObjectMeta, validation.IsDNS1123Subdomain) // a lock's may have dots
	var mirrored []*cluster.EndpointSlice
	for i := range e.Subsets {
		m, bad := mirrorSubset(&e.Subsets[i])
		errs = append(errs, in(bad, "subsets", i)...)
		for _, slice := range m {
			slice.Key = cluster.Key{
				Namespace: k.Namespace,
				Name:      fmt.Sprintf("%s-mirror-%d-%s", k.Name, i, strings.ToLower(string(slice.AddressType))),
			}
			slice.Service, slice.Spec = k.Name, &cluster.SliceSpec{ManagedBy: mirroring}
			mirrored = append(mirrored, slice)
		}
	}
	return mirrored, errs
}

func mirrorSubset(subset *corev1.EndpointSubset) (mirrored []*cluster.EndpointSlice, errs field.ErrorList) {
	var ports []cluster.Port
	for i, p := range subset.Ports {
		number, bad := portNumber(p.Port)
		errs = append(errs, in(bad, "ports", i, "port")...)
		proto, bad := protocol(p.Protocol)
		errs = append(errs, in(bad, "ports", i, "protocol")...)
		errs = append(errs, in(optionalLabel(p.Name), "ports", i, "name")...)
		ports = append(ports, cluster.Port{Name: p.Name, Protocol: proto, Number: number})
	}
	v4 := &cluster.EndpointSlice{AddressType: cluster.IPv4, Ports: ports}
	v6 := &cluster.EndpointSlice{AddressType: cluster.IPv6, Ports: ports}
	left := maxMirrored
	add := func(list string, ready bool, addresses []corev1.EndpointAddress) {
		for i := range addresses {
			a := &addresses[i]
			addr, bad := address(a.IP)
			errs = append(errs, in(bad, list, i, "ip")...)
			errs = append(errs, in(optionalLabel(a.Hostname), list, i, "hostname")...)
			if left--; left < 0 {
				continue
			}
			slice := v6
			if addr.Is4() {
				slice = v4
			}
			slice.Endpoints = append(slice.Endpoints, cluster.Endpoint{
				Addr: addr, Ready: ready, Serving: ready, Hostname: a.Hostname, Pod: podName(a.TargetRef),
			})
		}
	}
	add("addresses", true, subset.Addresses)
	add("notReadyAddresses", false, subset.NotReadyAddresses)
	for _, slice := range []*cluster.EndpointSlice{v4, v6} {
		if len(slice.Endpoints) > 0 {
			mirrored = append(mirrored, slice)
		}
	}
	return mirrored, errs
}
