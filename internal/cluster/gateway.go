package cluster

import (
	"iter"
	"slices"
)

// ObjectRef is a reference to an object of any kind. Namespace is that of the referring object if the
// reference has none, and empty for kinds of cluster scope.
type ObjectRef struct {
	Group, Kind string // the group is empty for the core group
	Namespace   string
	Name        string
}

// Core returns the key of the object if the reference is to a kind of the core group.
func (r *ObjectRef) Core(k Kind) (key Key, ok bool) {
	return Key{r.Namespace, r.Name}, r.Group == "" && r.Kind == k.String()
}

// GroupKind is a kind of any API group.
type GroupKind struct{ Group, Kind string }

// GatewayClass is a GatewayClass (gateway.networking.k8s.io/v1).
type GatewayClass struct {
	Name string
	Meta
	Controller string
	// Parameters is nil without any.
	Parameters *ObjectRef
	Conditions []StatusCondition
	// Features is supportedFeatures of the status.
	Features []string
}

// GatewaySpec is what a gateway needs of a Gateway (gateway.networking.k8s.io/v1).
type GatewaySpec struct {
	Meta
	Class     string
	Listeners []Listener
	// Addresses are those that are requested.
	Addresses []GatewayAddress
	// Labels and Annotations of infrastructure are for all objects that are made for the Gateway.
	Labels, Annotations map[string]string
	// Parameters is infrastructure.parametersRef; nil without one.
	Parameters *ObjectRef
	// ListenerSets selects the namespaces whose ListenerSets may add listeners (allowedListeners).
	ListenerSets AllowedNamespaces
	// ClientCertificate is the certificate for backends (tls.backend.clientCertificateRef); nil without
	// one.
	ClientCertificate *ObjectRef
	// ClientValidation is tls.frontend.default, and ClientValidationOf what holds for some ports
	// instead. Nil ClientValidation is none.
	ClientValidation   *ClientValidation
	ClientValidationOf []PortClientValidation
	Status             GatewayStatus
}

// GatewayAddress is an address of a Gateway. Type is IPAddress, Hostname or another, and Value is empty
// for any address of the type.
type GatewayAddress struct{ Type, Value string }

// The types of addresses.
const (
	AddressIP       = "IPAddress"
	AddressHostname = "Hostname"
)

// Listener is a listener of a Gateway or of a ListenerSet.
type Listener struct {
	Name string
	// Hostname is a name in lower case, or "*." and a name, which stands for any labels and the name;
	// empty for all hosts.
	Hostname string
	Port     uint16
	Protocol ListenerProtocol
	// TLS is nil without tls.
	TLS *ListenerTLS
	// Namespaces are those whose routes may attach, and Kinds the kinds of these; no Kinds is all that
	// the protocol has (allowedRoutes).
	Namespaces AllowedNamespaces
	Kinds      []GroupKind
}

// ListenerProtocol is the protocol of a Listener as the API spells it. There may be others than those
// here.
type ListenerProtocol string

// The protocols of the API.
const (
	HTTPProtocol  ListenerProtocol = "HTTP"
	HTTPSProtocol ListenerProtocol = "HTTPS"
	TLSProtocol   ListenerProtocol = "TLS"
	TCPProtocol   ListenerProtocol = "TCP"
	UDPProtocol   ListenerProtocol = "UDP"
)

// ListenerTLS is the TLS configuration of a Listener.
type ListenerTLS struct {
	Mode         TLSMode
	Certificates []ObjectRef
	Options      map[string]string
}

// TLSMode is what a Listener does with TLS, as the API spells it.
type TLSMode string

// The modes.
const (
	TLSTerminate   TLSMode = "Terminate"
	TLSPassthrough TLSMode = "Passthrough"
)

// AllowedNamespaces selects Namespaces for a Gateway or ListenerSet.
type AllowedNamespaces struct {
	From From
	// Selector is set if From is FromSelector.
	Selector *Selector
}

// From is which Namespaces are selected, as the API spells it. Other values than those here select
// none.
type From string

// The values of From. FromSame is the Namespace of the Gateway or ListenerSet.
const (
	FromAll      From = "All"
	FromSelector From = "Selector"
	FromSame     From = "Same"
	FromNone     From = "None"
)

// Selects reports whether a Namespace is selected by an object in the namespace of.
func (n *AllowedNamespaces) Selects(namespace *Namespace, of string) bool {
	switch n.From {
	case FromAll:
		return true
	case FromSame:
		return namespace.Name == of
	case FromSelector:
		return n.Selector != nil && n.Selector.Selects(namespace.Labels)
	}
	return false
}

// ClientValidation is how the certificates of clients are validated.
type ClientValidation struct {
	// Authorities have the certificates of the authorities; a ConfigMap has them in ca.crt.
	Authorities []ObjectRef
	// Optional: the mode is AllowInsecureFallback, so that clients need no valid certificate.
	Optional bool
}

// PortClientValidation is the ClientValidation of a port; nil Validation is none.
type PortClientValidation struct {
	Port       uint16
	Validation *ClientValidation
}

// ValidationAt returns how the certificates of clients are validated at a port; nil if clients are asked for none.
func (s *GatewaySpec) ValidationAt(port uint16) *ClientValidation {
	for i := range s.ClientValidationOf {
		if of := &s.ClientValidationOf[i]; of.Port == port {
			return of.Validation
		}
	}
	return s.ClientValidation
}

// Validations yields how the certificates of clients are validated at any port.
func (s *GatewaySpec) Validations() iter.Seq[*ClientValidation] {
	return func(yield func(*ClientValidation) bool) {
		if s.ClientValidation != nil && !yield(s.ClientValidation) {
			return
		}
		for i := range s.ClientValidationOf {
			if v := s.ClientValidationOf[i].Validation; v != nil && !yield(v) {
				return
			}
		}
	}
}

// GatewayStatus is the status of a Gateway as it was last written.
type GatewayStatus struct {
	Addresses  []GatewayAddress
	Conditions []StatusCondition
	Listeners  []ListenerStatus
	// AttachedListenerSets is 0 without the field.
	AttachedListenerSets int32
}

// ListenerStatus is the status of a Listener.
type ListenerStatus struct {
	Name           string
	SupportedKinds []GroupKind
	AttachedRoutes int32
	Conditions     []StatusCondition
}

// ListenerSet is a ListenerSet (gateway.networking.k8s.io/v1): listeners that it adds to a Gateway.
type ListenerSet struct {
	Key
	Meta
	// Parent is the Gateway.
	Parent    ObjectRef
	Listeners []Listener
	// Conditions and ListenerStatuses are its status.
	Conditions       []StatusCondition
	ListenerStatuses []ListenerStatus
}

// ReferenceGrant is a ReferenceGrant (gateway.networking.k8s.io/v1): what of its namespace
// objects of other namespaces may refer to.
type ReferenceGrant struct {
	Key
	From []GrantFrom
	To   []GrantTo
}

// GrantFrom is objects of a kind in a namespace.
type GrantFrom struct {
	GroupKind
	Namespace string
}

// GrantTo is objects of a kind; all if Name is empty.
type GrantTo struct {
	GroupKind
	Name string
}

// Allows reports whether objects of a kind in a namespace may refer to an object of the grant's
// namespace.
func (g *ReferenceGrant) Allows(from GroupKind, namespace string, to *ObjectRef) bool {
	return to.Namespace == g.Namespace && slices.Contains(g.From, GrantFrom{from, namespace}) &&
		slices.ContainsFunc(g.To, func(t GrantTo) bool {
			return t.GroupKind == GroupKind{to.Group, to.Kind} && (t.Name == "" || t.Name == to.Name)
		})
}

// Ref returns kind and key.
func (c *GatewayClass) Ref() Ref { return Ref{KindGatewayClass, Key{Name: c.Name}} }

// Ref returns kind and key.
func (s *ListenerSet) Ref() Ref { return Ref{KindListenerSet, s.Key} }

// Ref returns kind and key.
func (g *ReferenceGrant) Ref() Ref { return Ref{KindReferenceGrant, g.Key} }
