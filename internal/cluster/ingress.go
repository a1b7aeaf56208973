package cluster

// IngressSpec is what a gateway needs of an Ingress (networking.k8s.io/v1).
type IngressSpec struct {
	Meta
	// Class is ingressClassName, and OldClass the annotation kubernetes.io/ingress.class; both are
	// empty without one.
	Class, OldClass string
	// Default is the defaultBackend; nil without one.
	Default *IngressBackend
	Rules   []IngressRule
	TLS     []IngressTLS
	// Annotations are those whose names begin with one of IngressAnnotations; nil without any.
	Annotations map[string]string
	// LoadBalancer is the list of that name in the status.
	LoadBalancer []LoadBalancerIngress
}

// IngressAnnotations are the prefixes of the annotations that IngressSpec has.
var IngressAnnotations = []string{"nginx.ingress.kubernetes.io/", "portolan.dev/"}

// IngressRule is a rule of an Ingress.
type IngressRule struct {
	// Host is a name in lower case, or "*." and a name, which stands for one label and the name; empty
	// for all hosts that no other rule has.
	Host  string
	Paths []IngressPath
}

// IngressPath is a path of an IngressRule.
type IngressPath struct {
	// Path begins with a slash; it may be empty if Type is PathImplementationSpecific.
	Path    string
	Type    PathType
	Backend IngressBackend
}

// PathType is how a path of an Ingress or of an HTTPRoute matches, as the APIs spell it.
type PathType string

// The path types. PathPrefix and PathImplementationSpecific are of Ingresses, PathPathPrefix and
// PathRegularExpression of HTTPRoutes. Both prefixes match element by element.
const (
	PathExact                  PathType = "Exact"
	PathPrefix                 PathType = "Prefix"
	PathImplementationSpecific PathType = "ImplementationSpecific"
	PathPathPrefix             PathType = "PathPrefix"
	PathRegularExpression      PathType = "RegularExpression"
)

// IngressBackend is where an Ingress sends requests to: a port of a Service, or another object.
type IngressBackend struct {
	// Backend is zero but for Field if Resource is set.
	Backend
	// Resource is nil for a Service.
	Resource *ObjectRef
}

// IngressTLS is an element of an Ingress' tls.
type IngressTLS struct {
	// Hosts are names as in IngressRule.
	Hosts []string
	// Secret is the name of a Secret in the Ingress' namespace; empty without one.
	Secret string
}

// LoadBalancerIngress is an address in a status: IP or Hostname.
type LoadBalancerIngress struct{ IP, Hostname string }

// IngressClass is an IngressClass (networking.k8s.io/v1).
type IngressClass struct {
	Name string
	Meta
	Controller string
	// Default: it is the class of Ingresses that name none (annotation
	// ingressclass.kubernetes.io/is-default-class).
	Default bool
	// Parameters is nil without any; its namespace is empty for an object of cluster scope.
	Parameters *ObjectRef
}

// Ref returns kind and key.
func (c *IngressClass) Ref() Ref { return Ref{KindIngressClass, Key{Name: c.Name}} }
