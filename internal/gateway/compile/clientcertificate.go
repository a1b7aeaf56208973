package compile

import (
	"crypto/tls"
	"errors"
	"fmt"
	"reflect"

	"portolan.dev/portolan/internal/cluster"
)

// clientCertificate is the certificate that a Gateway shows to backends (GatewayBackendTLS.clientCertificateRef).
type clientCertificate struct {
	certificate *tls.Certificate // nil if it has none
	refs        cluster.Condition
}

// certifyClient finds the certificate that a Gateway shows to backends; nil if it names none.
func (c *certificates) certifyClient(v *cluster.View, h *holder) *clientCertificate {
	gw, ok := h.from.(*cluster.Frontend)
	if !ok || gw.Gateway.ClientCertificate == nil {
		return nil
	}
	ref := gw.Gateway.ClientCertificate
	fail := func(reason, format string, args ...any) *clientCertificate {
		return &clientCertificate{refs: no(resolvedRefs, reason, fmt.Sprintf(format, args...))}
	}
	key, isSecret := ref.Core(cluster.KindSecret)
	switch {
	case !isSecret:
		return fail("InvalidClientCertificateRef", "certificate %s is not a Secret, but of kind %s", ref.Name, kindText(ref))
	case ref.Namespace != gw.Namespace && !granted(v, groupKind(cluster.KindGateway), gw.Namespace, ref):
		return fail(
			"RefNotPermitted",
			"no ReferenceGrant in namespace %s allows Gateways of namespace %s to refer to Secret %s",
			ref.Namespace,
			gw.Namespace,
			ref.Name,
		)
	}
	pair, err := c.pair(v, key)
	made := &clientCertificate{pair, yes(resolvedRefs, "ResolvedRefs", "")}
	switch {
	case errors.Is(err, errUnread):
		made.refs = cluster.Condition{
			Type: resolvedRefs, Status: "Unknown", Reason: "Pending", Message: fmt.Sprintf("Secret %s %s", key, err),
		}
		if was := c.clients[gw.Key]; was != nil {
			made.certificate = was.certificate
		}
	case err != nil:
		made.refs = no(resolvedRefs, "InvalidClientCertificateRef", fmt.Sprintf("Secret %s %s", key, err))
	}
	return made
}

// putClientCertificate replaces the certificate that a Gateway shows to backends, and notes what has it.
func (c *Compiler) putClientCertificate(v *cluster.View, h *holder, d *dirty) {
	if h.ref.Kind != cluster.KindGateway {
		return
	}
	was, is := c.certificates.clients[h.gateway], c.certificates.certifyClient(v, h)
	if is == nil {
		delete(c.certificates.clients, h.gateway)
	} else {
		c.certificates.clients[h.gateway] = is
	}
	if was.shown() != is.shown() {
		for _, l := range c.gateways.serving {
			if l.gateway == h.gateway {
				d.listeners[l.name()] = struct{}{}
			}
		}
	}
	if !reflect.DeepEqual(was.condition(), is.condition()) {
		d.verdicts[h.ref] = struct{}{}
	}
}

// shown returns the certificate; nil for none.
func (c *clientCertificate) shown() *tls.Certificate {
	if c == nil {
		return nil
	}
	return c.certificate
}

// condition returns the condition ResolvedRefs of the Gateway; none if it names no certificate.
func (c *clientCertificate) condition() []cluster.Condition {
	if c == nil {
		return nil
	}
	return []cluster.Condition{c.refs}
}
