package table

import "unique"

// TLS is how TLS is spoken with an upstream (BackendTLSPolicySpec.validation).
type TLS struct {
	// ServerName is sent to the endpoint (RFC 6066, section 3). Its certificate must be for it, unless there are Names.
	ServerName string
	// Names are names of which the certificate must have one, each in a line: "DNS " and a hostname, whose first label may
	// be an asterisk, or "URI " and a URI.
	Names string
	// Authorities are the certificates of the authorities, in PEM; empty for those that the system trusts.
	Authorities string
	// Broken is why TLS cannot be spoken, and so nothing is sent where TLS ended here; empty if it can.
	Broken string
}

// Secured returns the upstream with TLS.
func (u Upstream) Secured(by TLS) Upstream {
	u.TLS = unique.Make(by)
	return u
}

// Secure reports whether TLS is spoken with the upstream.
func (u Upstream) Secure() bool { return u.TLS != unique.Handle[TLS]{} }

// Equal reports whether two upstreams are the same.
func (u Upstream) Equal(o Upstream) bool { return u == o }
