package cluster

// BackendTLSPolicy is a BackendTLSPolicy (gateway.networking.k8s.io/v1): how TLS is spoken with the
// endpoints of Services.
type BackendTLSPolicy struct {
	Key
	Meta
	Targets []PolicyTarget
	// Hostname is the server name (RFC 6066, section 3). The certificate must be for it, unless there are
	// Names.
	Hostname string
	Names    []SubjectName
	// Authorities have the certificates of the authorities; a ConfigMap has them in ca.crt. Without any,
	// WellKnown says which they are.
	Authorities []ObjectRef
	WellKnown   string // wellKnownCACertificates; empty without
	Options     map[string]string
	// Ancestors are those of the status, of all controllers.
	Ancestors []ParentStatus
}

// WellKnownSystem is the WellKnown that stands for the authorities that the system trusts.
const WellKnownSystem = "System"

// PolicyTarget is what a policy is for: an object in its namespace.
type PolicyTarget struct {
	ObjectRef
	Section string // the name of a port of a Service, or of a rule of a route; empty for all
}

// SubjectName is a name that a certificate must have (subjectAltNames): Hostname or URI.
type SubjectName struct{ Hostname, URI string }

// Ref returns kind and key.
func (p *BackendTLSPolicy) Ref() Ref { return Ref{KindBackendTLSPolicy, p.Key} }

func targets(all []PolicyTarget, keys []ObjectRef) []ObjectRef {
	for i := range all {
		keys = append(keys, all[i].ObjectRef)
	}
	return keys
}
