package compile

import (
	"fmt"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// admit decides which clients a listener for HTTPS accepts, by its Gateway and port (GatewayTLSConfig.frontend). While
// a ConfigMap with authorities is not read, clients with certificates of these are refused. A listener without any
// authority refuses all, and keeps its hostname: what serves that instead would ask for no certificate.
func (l *listener) admit(v *cluster.View, gw *cluster.Frontend) {
	validation := gw.Gateway.ValidationAt(l.spec.Port)
	if validation == nil || l.spec.Protocol != cluster.HTTPSProtocol {
		return
	}
	var valid strings.Builder
	refs, pending := yes(resolvedRefs, "ResolvedRefs", ""), false
	for i := range validation.Authorities {
		text, problem := clientAuthority(v, gw, &validation.Authorities[i])
		valid.WriteString(text)
		pending = pending || problem.Status == "Unknown"
		if refs.Status == "True" {
			refs = problem
		}
	}
	l.lacksAuthority = refs.Status != "True"
	l.clients = &table.Clients{Authorities: valid.String(), Optional: validation.Optional}
	for i := range l.conditions {
		c := &l.conditions[i]
		switch {
		case c.Status != "True":
		case c.Type == resolvedRefs:
			*c = refs
		case c.Type == accepted && valid.Len() == 0 && !pending:
			*c = no(accepted, "NoValidCACertificate", refs.Message)
			l.refuses, l.clients.Optional = true, false
		}
	}
}

// clientAuthority returns the certificates that a Gateway refers to as authorities of clients, and the condition
// ResolvedRefs of the reference.
func clientAuthority(
	v *cluster.View,
	gw *cluster.Frontend,
	ref *cluster.ObjectRef,
) (pem string, refs cluster.Condition) {
	if ref.Namespace != gw.Namespace && !granted(v, groupKind(cluster.KindGateway), gw.Namespace, ref) {
		const message = "no ReferenceGrant in namespace %s allows Gateways of namespace %s to refer to %s %s"
		return "", no(resolvedRefs, "RefNotPermitted", fmt.Sprintf(message, ref.Namespace, gw.Namespace, ref.Kind, ref.Name))
	}
	pem, reason, message := authority(v, ref)
	switch reason {
	case "":
		return pem + "\n", yes(resolvedRefs, "ResolvedRefs", "")
	case "InvalidKind":
		reason = "InvalidCACertificateKind"
	case "Pending":
		return "", cluster.Condition{Type: resolvedRefs, Status: "Unknown", Reason: reason, Message: message}
	}
	return "", no(resolvedRefs, reason, message)
}

// insecure returns the condition InsecureFrontendValidationMode of a Gateway; none if it demands valid certificates
// wherever it asks for one.
func insecure(gw *cluster.GatewaySpec) []cluster.Condition {
	for v := range gw.Validations() {
		if v.Optional {
			const message = "mode AllowInsecureFallback of spec.tls.frontend accepts clients without a valid certificate"
			return []cluster.Condition{yes("InsecureFrontendValidationMode", "ConfigurationChanged", message)}
		}
	}
	return nil
}

// hasAuthoritiesIn reports whether a Gateway of ours refers to authorities of clients in another namespace.
func (g *gateways) hasAuthoritiesIn(namespace string) bool {
	for _, h := range g.holders {
		gw, ok := h.from.(*cluster.Frontend)
		if !ok || gw.Namespace == namespace {
			continue
		}
		for v := range gw.Gateway.Validations() {
			if slices.ContainsFunc(v.Authorities, func(r cluster.ObjectRef) bool { return r.Namespace == namespace }) {
				return true
			}
		}
	}
	return false
}

// lackAuthorities reports whether a listener has not all authorities of clients that its Gateway refers to. They may be
// read now, or not be any more.
func (g *gateways) lackAuthorities() bool {
	for _, h := range g.holders {
		if slices.ContainsFunc(h.listeners, func(l *listener) bool { return l.lacksAuthority }) {
			return true
		}
	}
	return false
}
