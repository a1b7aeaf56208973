package apiobject

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/internal/cluster"
)

// endpointSlice returns an EndpointSlice: the declared one, else the one generated for
// its Service, else one built from the model, as for mirrored Endpoints.
func (b *Builder) endpointSlice(s *cluster.EndpointSlice) (Object, error) {
	o := new(discoveryv1.EndpointSlice)
	ok, err := b.declared(cluster.KindEndpointSlice, s.Key, o)
	if err != nil {
		return nil, err
	}
	if !ok {
		o = b.undeclaredSlice(s)
	}
	o.TypeMeta = metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}
	o.Namespace = s.Namespace
	// A Service that never was on an API server has no UID, and the API server rejects owner
	// references without UID (k8s.io/apimachinery, pkg/api/validation, objectmeta.go).
	o.OwnerReferences = slices.DeleteFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == "" })
	for i := range o.Ports {
		p := &o.Ports[i]
		if p.Name == nil {
			p.Name = new(string)
		}
		if p.Protocol == nil {
			tcp := corev1.ProtocolTCP
			p.Protocol = &tcp
		}
	}
	return o, nil
}

func (b *Builder) undeclaredSlice(s *cluster.EndpointSlice) *discoveryv1.EndpointSlice {
	if b.Slices != nil {
		for _, generated := range b.Slices(cluster.Key{Namespace: s.Namespace, Name: s.Service}) {
			if generated.Name == s.Name {
				return generated.DeepCopy()
			}
		}
	}
	o := &discoveryv1.EndpointSlice{ObjectMeta: meta(s.Key), AddressType: discoveryv1.AddressType(s.AddressType)}
	o.Labels = make(map[string]string)
	if s.Service != "" {
		o.Labels[discoveryv1.LabelServiceName] = s.Service
	}
	if by := s.ManagedBy(); by != "" {
		o.Labels[discoveryv1.LabelManagedBy] = by
	}
	for _, p := range s.Ports {
		name, protocol := p.Name, corev1.Protocol(p.Protocol)
		port := discoveryv1.EndpointPort{Name: &name, Protocol: &protocol}
		if number := int32(p.Number); number > 0 {
			port.Port = &number
		}
		o.Ports = append(o.Ports, port)
	}
	for _, e := range s.Endpoints {
		o.Endpoints = append(o.Endpoints, endpoint(s.Namespace, e))
	}
	return o
}

func endpoint(namespace string, e cluster.Endpoint) discoveryv1.Endpoint {
	o := discoveryv1.Endpoint{Addresses: []string{e.Addr.String()}}
	o.Conditions.Ready = &e.Ready
	if e.Serving != e.Ready {
		o.Conditions.Serving = &e.Serving
	}
	if e.Terminating {
		o.Conditions.Terminating = &e.Terminating
	}
	if e.Hostname != "" {
		o.Hostname = &e.Hostname
	}
	if e.Pod != "" {
		o.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: e.Pod}
	}
	return o
}
