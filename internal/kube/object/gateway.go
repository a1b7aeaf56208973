package object

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"portolan.dev/portolan/internal/cluster"
)

// addGateway adds the types of the kinds that are read: the linker leaves out the others.
func addGateway(s *runtime.Scheme) error {
	version := schema.GroupVersion(gatewayv1.GroupVersion)
	s.AddKnownTypes(version,
		new(gatewayv1.GatewayClass), new(gatewayv1.GatewayClassList),
		new(gatewayv1.Gateway), new(gatewayv1.GatewayList),
		new(gatewayv1.ListenerSet), new(gatewayv1.ListenerSetList),
		new(gatewayv1.HTTPRoute), new(gatewayv1.HTTPRouteList),
		new(gatewayv1.GRPCRoute), new(gatewayv1.GRPCRouteList),
		new(gatewayv1.TLSRoute), new(gatewayv1.TLSRouteList),
		new(gatewayv1.TCPRoute), new(gatewayv1.TCPRouteList),
		new(gatewayv1.UDPRoute), new(gatewayv1.UDPRouteList),
		new(gatewayv1.BackendTLSPolicy), new(gatewayv1.BackendTLSPolicyList),
		new(gatewayv1.ReferenceGrant), new(gatewayv1.ReferenceGrantList),
	)
	metav1.AddToGroupVersion(s, version)
	return nil
}

// or returns what p points to, or otherwise if it is nil.
func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// texts converts a map of named strings; nil if it is empty.
func texts[K, V ~string](m map[K]V) (made map[string]string) {
	for k, v := range m {
		put(&made, string(k), string(v))
	}
	return made
}

// conditions converts the conditions of a status.
func conditions(all []metav1.Condition) (made []cluster.StatusCondition) {
	for i := range all {
		c := &all[i]
		made = append(made, cluster.StatusCondition{
			Condition: cluster.Condition{
				Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message,
			},
			Generation: c.ObservedGeneration,
			Changed:    c.LastTransitionTime.Unix(),
		})
	}
	return made
}

// GatewayClass converts a GatewayClass.
func GatewayClass(c *gatewayv1.GatewayClass) (*cluster.GatewayClass, field.ErrorList) {
	made := &cluster.GatewayClass{
		Name: c.Name, Meta: meta(&c.ObjectMeta), Controller: string(c.Spec.ControllerName),
		Conditions: conditions(c.Status.Conditions),
	}
	if p := c.Spec.ParametersRef; p != nil {
		made.Parameters = &cluster.ObjectRef{
			Group: string(p.Group), Kind: string(p.Kind), Namespace: string(or(p.Namespace, "")), Name: p.Name,
		}
	}
	for _, f := range c.Status.SupportedFeatures {
		made.Features = append(made.Features, string(f.Name))
	}
	return made, in(checkName(c.Name, validation.IsDNS1123Subdomain), "metadata", "name")
}

// Gateway converts a Gateway.
func Gateway(g *gatewayv1.Gateway) (*cluster.Frontend, field.ErrorList) {
	k, errs := key(&g.ObjectMeta, validation.IsDNS1123Subdomain)
	spec := &cluster.GatewaySpec{
		Meta:   meta(&g.ObjectMeta),
		Class:  string(g.Spec.GatewayClassName),
		Status: gatewayStatus(g),
	}
	f := &cluster.Frontend{Kind: cluster.KindGateway, Key: k, Gateway: spec}
	for i := range g.Spec.Listeners {
		l, bad := listener(&g.Spec.Listeners[i], k.Namespace)
		spec.Listeners, errs = append(spec.Listeners, l), append(errs, in(bad, "spec", "listeners", i)...)
		addHosts(&f.External, l.Hostname)
	}
	addHosts(&f.External, annotatedHosts(g.Annotations)...)
	for _, a := range spec.Status.Addresses {
		switch a.Type { // of others, only their implementation knows what the value means
		case cluster.AddressIP:
			addPlace(&f.External, a.Value, "")
		case cluster.AddressHostname:
			addPlace(&f.External, "", a.Value)
		}
	}
	for _, a := range g.Spec.Addresses {
		spec.Addresses = append(spec.Addresses, gatewayAddress(a.Type, a.Value))
	}
	if i := g.Spec.Infrastructure; i != nil {
		spec.Labels, spec.Annotations = texts(i.Labels), texts(i.Annotations)
		if p := i.ParametersRef; p != nil {
			spec.Parameters = &cluster.ObjectRef{
				Group: string(p.Group), Kind: string(p.Kind), Namespace: k.Namespace, Name: p.Name,
			}
		}
	}
	spec.ListenerSets.From = cluster.FromNone
	if a := g.Spec.AllowedListeners; a != nil && a.Namespaces != nil {
		allowed, bad := allowedNamespaces(a.Namespaces.From, a.Namespaces.Selector, cluster.FromNone)
		spec.ListenerSets, errs = allowed, append(errs, in(bad, "spec", "allowedListeners", "namespaces")...)
	}
	return f, append(errs, in(gatewayTLS(g.Spec.TLS, spec, k.Namespace), "spec", "tls")...)
}

func gatewayStatus(g *gatewayv1.Gateway) cluster.GatewayStatus {
	s := cluster.GatewayStatus{
		Conditions:           conditions(g.Status.Conditions),
		AttachedListenerSets: or(g.Status.AttachedListenerSets, 0),
	}
	for _, a := range g.Status.Addresses {
		s.Addresses = append(s.Addresses, gatewayAddress(a.Type, a.Value))
	}
	for i := range g.Status.Listeners {
		l := &g.Status.Listeners[i]
		s.Listeners = append(s.Listeners, cluster.ListenerStatus{
			Name: string(l.Name), SupportedKinds: groupKinds(l.SupportedKinds), AttachedRoutes: l.AttachedRoutes,
			Conditions: conditions(l.Conditions),
		})
	}
	return s
}

func gatewayAddress(of *gatewayv1.AddressType, value string) cluster.GatewayAddress {
	return cluster.GatewayAddress{Type: string(or(of, gatewayv1.IPAddressType)), Value: value}
}

// gatewayTLS converts a Gateway's tls into the spec.
func gatewayTLS(t *gatewayv1.GatewayTLSConfig, spec *cluster.GatewaySpec, namespace string) (errs field.ErrorList) {
	if t == nil {
		return nil
	}
	if t.Backend != nil && t.Backend.ClientCertificateRef != nil {
		certificate := secretRef(t.Backend.ClientCertificateRef, namespace)
		spec.ClientCertificate = &certificate
	}
	if t.Frontend == nil {
		return nil
	}
	spec.ClientValidation = clientValidation(t.Frontend.Default.Validation, namespace)
	for i := range t.Frontend.PerPort {
		p := &t.Frontend.PerPort[i]
		port, bad := portNumber(p.Port)
		errs = append(errs, in(bad, "frontend", "perPort", i, "port")...)
		of := cluster.PortClientValidation{Port: port, Validation: clientValidation(p.TLS.Validation, namespace)}
		spec.ClientValidationOf = append(spec.ClientValidationOf, of)
	}
	return errs
}

func clientValidation(v *gatewayv1.FrontendTLSValidation, namespace string) *cluster.ClientValidation {
	if v == nil {
		return nil
	}
	made := &cluster.ClientValidation{Optional: v.Mode == gatewayv1.AllowInsecureFallback}
	for i := range v.CACertificateRefs {
		r := &v.CACertificateRefs[i]
		made.Authorities = append(made.Authorities, cluster.ObjectRef{
			Group: string(r.Group), Kind: string(r.Kind), Namespace: string(or(r.Namespace, gatewayv1.Namespace(namespace))),
			Name: string(r.Name),
		})
	}
	return made
}

func secretRef(r *gatewayv1.SecretObjectReference, namespace string) cluster.ObjectRef {
	return cluster.ObjectRef{
		Group: string(or(r.Group, "")), Kind: string(or(r.Kind, "Secret")),
		Namespace: string(or(r.Namespace, gatewayv1.Namespace(namespace))), Name: string(r.Name),
	}
}

// listener converts a listener of a Gateway or ListenerSet in a namespace.
func listener(l *gatewayv1.Listener, namespace string) (made cluster.Listener, errs field.ErrorList) {
	made = cluster.Listener{
		Name: string(l.Name), Hostname: host(string(or(l.Hostname, ""))), Protocol: cluster.ListenerProtocol(l.Protocol),
		Namespaces: cluster.AllowedNamespaces{From: cluster.FromSame},
	}
	made.Port, errs = portNumber(l.Port)
	errs = in(errs, "port")
	if t := l.TLS; t != nil {
		made.TLS = &cluster.ListenerTLS{
			Mode: cluster.TLSMode(or(t.Mode, gatewayv1.TLSModeTerminate)), Options: texts(t.Options),
		}
		for i := range t.CertificateRefs {
			made.TLS.Certificates = append(made.TLS.Certificates, secretRef(&t.CertificateRefs[i], namespace))
		}
	}
	if a := l.AllowedRoutes; a != nil {
		made.Kinds = groupKinds(a.Kinds)
		if a.Namespaces != nil {
			var bad field.ErrorList
			made.Namespaces, bad = allowedNamespaces(a.Namespaces.From, a.Namespaces.Selector, cluster.FromSame)
			errs = append(errs, in(bad, "allowedRoutes", "namespaces")...)
		}
	}
	return made, errs
}

// allowedNamespaces converts namespaces that are selected; without from it is otherwise.
func allowedNamespaces(
	from *gatewayv1.FromNamespaces, of *metav1.LabelSelector, otherwise cluster.From,
) (made cluster.AllowedNamespaces, errs field.ErrorList) {
	made.From = cluster.From(or(from, gatewayv1.FromNamespaces(otherwise)))
	if made.From != cluster.FromSelector {
		return made, nil
	}
	if of == nil {
		return made, in(nowhere(field.Required(nil, "must be set when from is Selector")), "selector")
	}
	made.Selector, errs = selector(of)
	return made, in(errs, "selector")
}

func groupKinds(all []gatewayv1.RouteGroupKind) (made []cluster.GroupKind) {
	for _, k := range all {
		made = append(made, cluster.GroupKind{Group: string(or(k.Group, gatewayv1.GroupName)), Kind: string(k.Kind)})
	}
	return made
}

// ListenerSet converts a ListenerSet.
func ListenerSet(s *gatewayv1.ListenerSet) (*cluster.ListenerSet, field.ErrorList) {
	k, errs := key(&s.ObjectMeta, validation.IsDNS1123Subdomain)
	p := &s.Spec.ParentRef
	made := &cluster.ListenerSet{
		Key: k, Meta: meta(&s.ObjectMeta),
		Parent: cluster.ObjectRef{
			Group: string(or(p.Group, gatewayv1.GroupName)), Kind: string(or(p.Kind, kindGateway)),
			Namespace: string(or(p.Namespace, gatewayv1.Namespace(k.Namespace))), Name: string(p.Name),
		},
		Conditions: conditions(s.Status.Conditions),
	}
	for i := range s.Spec.Listeners {
		entry := gatewayv1.Listener(s.Spec.Listeners[i])
		l, bad := listener(&entry, k.Namespace)
		made.Listeners, errs = append(made.Listeners, l), append(errs, in(bad, "spec", "listeners", i)...)
	}
	for i := range s.Status.Listeners {
		l := &s.Status.Listeners[i]
		made.ListenerStatuses = append(made.ListenerStatuses, cluster.ListenerStatus{
			Name: string(l.Name), SupportedKinds: groupKinds(l.SupportedKinds), AttachedRoutes: l.AttachedRoutes,
			Conditions: conditions(l.Conditions),
		})
	}
	return made, errs
}

// kindGateway is the kind of parents that name none.
const kindGateway gatewayv1.Kind = "Gateway"

// ReferenceGrant converts a ReferenceGrant.
func ReferenceGrant(g *gatewayv1.ReferenceGrant) (*cluster.ReferenceGrant, field.ErrorList) {
	k, errs := key(&g.ObjectMeta, validation.IsDNS1123Subdomain)
	made := &cluster.ReferenceGrant{Key: k}
	for _, f := range g.Spec.From {
		made.From = append(made.From, cluster.GrantFrom{
			GroupKind: cluster.GroupKind{Group: string(f.Group), Kind: string(f.Kind)}, Namespace: string(f.Namespace),
		})
	}
	for _, t := range g.Spec.To {
		made.To = append(made.To, cluster.GrantTo{
			GroupKind: cluster.GroupKind{Group: string(t.Group), Kind: string(t.Kind)}, Name: string(or(t.Name, "")),
		})
	}
	return made, errs
}

// isGateway reports whether a parent is a Gateway.
func isGateway(p *cluster.ParentRef) bool {
	return p.Group == gatewayv1.GroupName && p.Kind == string(kindGateway)
}

func isAccepted(all []cluster.StatusCondition) bool {
	return slices.ContainsFunc(all, func(c cluster.StatusCondition) bool {
		return c.Type == string(gatewayv1.RouteConditionAccepted) && c.Status == string(metav1.ConditionTrue)
	})
}
