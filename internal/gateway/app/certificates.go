package app

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"

	"portolan.dev/portolan/internal/gateway/table"
)

// firstToExpire returns the certificate that expires first of those that clients get; nil if there is none.
func (g *Gateway) firstToExpire() (first *x509.Certificate) {
	consider := func(c *tls.Certificate) {
		if c == nil || c.Leaf == nil {
			return
		}
		if first == nil ||
			cmp.Or(c.Leaf.NotAfter.Compare(first.NotAfter), cmp.Compare(firstName(c.Leaf), firstName(first))) < 0 {
			first = c.Leaf
		}
	}
	if g.ofFiles != nil {
		consider(g.ofFiles())
	}
	t := g.proxy.Table()
	if t == nil {
		return first
	}
	of := func(l *table.Listener) {
		for c := range l.Certificates() {
			consider(c)
		}
	}
	for at := range t.Sockets() {
		p := t.Port(at)
		for l := range p.Listeners() {
			of(l)
		}
		if l := p.Ingresses(); l != nil {
			of(l)
		}
	}
	return first
}

// firstName returns the first DNS name of a certificate; "" if it has none.
func firstName(c *x509.Certificate) string {
	if len(c.DNSNames) == 0 {
		return ""
	}
	return c.DNSNames[0]
}
