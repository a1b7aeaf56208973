package cluster

import (
	"iter"
	"strings"
)

// passwords is the annotation of ingress-nginx that names a Secret with users and their passwords.
const passwords = "nginx.ingress.kubernetes.io/auth-secret"

// References returns the Secrets and ConfigMaps that an Ingress, a Gateway, a ListenerSet, a
// BackendTLSPolicy or a RoutePolicy refers to: certificates, passwords, and the authorities of certificates of clients
// and backends. It may list one twice.
func References(o Object) (refs []Ref) {
	var to []ObjectRef
	switch o := o.(type) {
	case *Frontend:
		to = append(o.Ingress.references(o.Namespace), o.Gateway.references()...)
	case *ListenerSet:
		for i := range o.Listeners {
			to = append(to, o.Listeners[i].certificates()...)
		}
	case *BackendTLSPolicy:
		to = o.Authorities
	case *RoutePolicy:
		if o.Passwords != nil {
			to = append(to, o.Passwords.Secret)
		}
	}
	for i := range to {
		for _, k := range ReferencedKinds() {
			if key, ok := to[i].Core(k); ok && key.Name != "" {
				refs = append(refs, Ref{k, key})
			}
		}
	}
	return refs
}

// ReferringKinds lists the kinds whose objects have References.
func ReferringKinds() []Kind {
	return []Kind{KindIngress, KindGateway, KindListenerSet, KindBackendTLSPolicy, KindRoutePolicy}
}

// Referenced yields the References of all objects, some more than once, in no order.
func Referenced(v *View) iter.Seq[Ref] {
	return func(yield func(Ref) bool) {
		for _, keys := range []iter.Seq[Ref]{
			IngressesByReference.Keys(v), GatewaysByReference.Keys(v), ListenerSetsByReference.Keys(v),
			PoliciesByReference.Keys(v), RoutePoliciesByReference.Keys(v),
		} {
			for ref := range keys {
				if !yield(ref) {
					return
				}
			}
		}
	}
}

func (s *IngressSpec) references(namespace string) (to []ObjectRef) {
	if s == nil {
		return nil
	}
	for i := range s.TLS {
		to = append(to, ObjectRef{Kind: KindSecret.String(), Namespace: namespace, Name: s.TLS[i].Secret})
	}
	name := strings.TrimPrefix(strings.TrimSpace(s.Annotations[passwords]), namespace+"/")
	if name != "" && !strings.Contains(name, "/") {
		to = append(to, ObjectRef{Kind: KindSecret.String(), Namespace: namespace, Name: name})
	}
	return to
}

func (s *GatewaySpec) references() (to []ObjectRef) {
	if s == nil {
		return nil
	}
	for i := range s.Listeners {
		to = append(to, s.Listeners[i].certificates()...)
	}
	if s.ClientCertificate != nil {
		to = append(to, *s.ClientCertificate)
	}
	for v := range s.Validations() {
		to = append(to, v.Authorities...)
	}
	return to
}

// certificates returns those of a listener; none if it does not terminate TLS.
func (l *Listener) certificates() []ObjectRef {
	if l.TLS == nil || l.TLS.Mode == TLSPassthrough {
		return nil
	}
	return l.TLS.Certificates
}

func (s *IngressSpec) services(namespace string, keys []Key) []Key {
	if s == nil {
		return keys
	}
	add := func(b *IngressBackend) {
		if b.Resource == nil {
			keys = append(keys, Key{namespace, b.Service})
		}
	}
	if s.Default != nil {
		add(s.Default)
	}
	for i := range s.Rules {
		for k := range s.Rules[i].Paths {
			add(&s.Rules[i].Paths[k].Backend)
		}
	}
	return keys
}

func (s *RouteSpec) parents(keys []ObjectRef) []ObjectRef {
	if s == nil {
		return keys
	}
	for i := range s.Parents {
		keys = append(keys, s.Parents[i].ObjectRef)
	}
	return keys
}

// Backends lists what the rules of a route send requests to, mirrors included. It may list one twice.
func (s *RouteSpec) Backends() []ObjectRef { return s.backends(nil) }

func (s *RouteSpec) backends(keys []ObjectRef) []ObjectRef {
	if s == nil {
		return keys
	}
	ofFilters := func(filters []Filter) {
		for i := range filters {
			if m := filters[i].Mirror; m != nil {
				keys = append(keys, m.Backend.ObjectRef)
			}
			if e := filters[i].External; e != nil {
				keys = append(keys, e.Backend.ObjectRef)
			}
		}
	}
	for i := range s.Rules {
		r := &s.Rules[i]
		ofFilters(r.Filters)
		for k := range r.Backends {
			keys = append(keys, r.Backends[k].ObjectRef)
			ofFilters(r.Backends[k].Filters)
		}
	}
	return keys
}
