package request

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	"portolan.dev/portolan/internal/cluster"
)

// Detail is a listener with what is said of it, and its certificates.
type Detail struct {
	Listener
	// Conditions are those that its status has; nil if it is not ours.
	Conditions   []cluster.Condition
	Certificates []Certificate
}

// Certificate is the certificate of a Secret that a listener or an Ingress names.
type Certificate struct {
	Secret   string // NAMESPACE/NAME
	Names    []string
	NotAfter time.Time
	// Why is why it cannot be used; empty if it can, as far as is known. Unread: Secrets are not read.
	Why    string
	Unread bool
}

// RouteOf returns a route of any kind as HTTPRoutes are listed.
func (w *World) RouteOf(r *cluster.Route) Route { return w.route(r) }

// IngressOf returns an Ingress as it is listed.
func (w *World) IngressOf(f *cluster.Frontend) Ingress { return w.ingress(f) }

// GatewayOf returns a Gateway as it is listed.
func (w *World) GatewayOf(f *cluster.Frontend) Gateway { return w.gateway(f) }

// DetailsOf returns the listeners of a Gateway and of its ListenerSets, by port and name.
func (w *World) DetailsOf(f *cluster.Frontend) (all []Detail) {
	for _, l := range w.sorted(func(l *listener) bool { return l.gateway == f }) {
		d := Detail{Listener: w.listedAs(l)}
		if l.verdict != nil {
			d.Conditions = l.verdict.Conditions
		}
		if l.spec.TLS != nil {
			for i := range l.spec.TLS.Certificates {
				ref := &l.spec.TLS.Certificates[i]
				if key, ok := ref.Core(cluster.KindSecret); ok {
					d.Certificates = append(d.Certificates, w.certificateOf(key))
				}
			}
		}
		all = append(all, d)
	}
	return all
}

// CertificatesOf returns the certificates that an Ingress names, each once.
func (w *World) CertificatesOf(f *cluster.Frontend) (all []Certificate) {
	for i := range f.Ingress.TLS {
		key := cluster.Key{Namespace: f.Namespace, Name: f.Ingress.TLS[i].Secret}
		known := slices.ContainsFunc(all, func(c Certificate) bool { return c.Secret == key.String() })
		if key.Name != "" && !known {
			all = append(all, w.certificateOf(key))
		}
	}
	return all
}

// certificateOf returns the certificate of a Secret.
func (w *World) certificateOf(key cluster.Key) Certificate {
	c := Certificate{Secret: key.String()}
	secret := cluster.Secrets.Get(w.view, key)
	switch {
	case secret == nil && w.noSecrets:
		c.Unread = true
		return c
	case secret == nil:
		c.Why = "Secret " + key.String() + " does not exist"
		return c
	}
	block, _ := pem.Decode(secret.Data["tls.crt"])
	if block == nil {
		c.Why = "Secret " + key.String() + " has no certificate in tls.crt"
		return c
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		c.Why = "the certificate in Secret " + key.String() + " cannot be read"
		return c
	}
	c.Names, c.NotAfter = leaf.DNSNames, leaf.NotAfter
	for _, ip := range leaf.IPAddresses {
		c.Names = append(c.Names, ip.String())
	}
	if len(c.Names) == 0 {
		c.Names = []string{cmp.Or(leaf.Subject.CommonName, "no name")}
	}
	return c
}

// expired says which certificates have expired at a time.
func expired(all []Certificate, now time.Time) (problems []string) {
	for i := range all {
		if c := &all[i]; !c.NotAfter.IsZero() && now.After(c.NotAfter) {
			problems = append(problems, fmt.Sprintf(
				"the certificate in Secret %s expired on %s", c.Secret, c.NotAfter.UTC().Format(time.DateOnly),
			))
		}
	}
	return problems
}
