package table

import (
	"crypto/tls"
	"iter"
	"slices"
	"strings"
)

// NewTLSPort returns a Port as NewPort does, whose connections begin with a TLS handshake.
func NewTLSPort(listeners []*Listener, ingresses *Listener) *Port {
	p := NewPort(listeners, ingresses)
	p.opening = Handshake
	return p
}

// TLS reports whether connections begin with a TLS handshake.
func (p *Port) TLS() bool { return p.opening == Handshake }

// Certificate returns the one for the server name of a client, which may have none: that of the listener
// that serves requests for the name. It is nil if that has none; owner is nil if there is no listener.
func (p *Port) Certificate(hello *tls.ClientHelloInfo) (owner *Listener, c *tls.Certificate) {
	name := strings.ToLower(hello.ServerName)
	owner, _ = p.Host(name)
	switch {
	case owner == nil:
		return nil, nil
	case owner.byHost != nil:
		return owner, owner.byHost.find(name)
	}
	return owner, choose(owner.certificates, name, hello)
}

// Misdirected reports whether a request for a host must not be served on a connection with a server name:
// the host is that of another listener (Gateway API, Listener.hostname; RFC 9110, section 15.5.20). The host
// is as for Port.Host.
func (p *Port) Misdirected(serverName, host string) bool {
	if serverName = strings.ToLower(serverName); serverName == host {
		return false
	}
	connected, _ := p.Host(serverName)
	asked, _ := p.Host(host)
	return asked != nil && asked != connected
}

// WithCertificates returns a Listener of a Gateway as l with these certificates, of which a client gets the
// first that has its server name, else the first with a wildcard for it, else the first; of those that the
// client can verify the signatures of, if it can of any.
func (l *Listener) WithCertificates(all []*tls.Certificate) *Listener {
	if slices.Equal(all, l.certificates) {
		return l
	}
	made := *l
	made.certificates = all
	return &made
}

// WithClientCertificate returns a Listener of a Gateway as l that shows this certificate to backends with TLS; nil for
// none.
func (l *Listener) WithClientCertificate(c *tls.Certificate) *Listener {
	if c == l.client {
		return l
	}
	made := *l
	made.client = c
	return &made
}

// ClientCertificate returns the one that is shown to backends with TLS; nil for none.
func (l *Listener) ClientCertificate() *tls.Certificate { return l.client }

// WithHostCertificates returns a Listener of Ingresses as l with other certificates for the server names
// that differ. Nil removes one. Hostnames are as those of hosts.
func (l *Listener) WithHostCertificates(differ map[string]*tls.Certificate) *Listener {
	if len(differ) == 0 {
		return l
	}
	made := *l
	by := l.byHost.with(differ)
	made.byHost = &by
	return &made
}

// Certificates yields the certificates of l, in no order, one of Ingresses for each host that has it.
func (l *Listener) Certificates() iter.Seq[*tls.Certificate] {
	if l.byHost == nil {
		return slices.Values(l.certificates)
	}
	return func(yield func(*tls.Certificate) bool) {
		l.byHost.all(func(_ string, c *tls.Certificate) bool { return yield(c) })
	}
}

// choose returns the certificate for a server name, see WithCertificates; nil if there are none.
func choose(all []*tls.Certificate, name string, hello *tls.ClientHelloInfo) (best *tls.Certificate) {
	if len(all) == 1 {
		return all[0]
	}
	nameless := *hello
	nameless.ServerName = "" // which SupportsCertificate requires the certificate to have
	most := -1
	for _, c := range all {
		rank := nameRank(c, name)
		if nameless.SupportsCertificate(c) == nil {
			rank += exactName + 1
		}
		if rank > most {
			best, most = c, rank
		}
	}
	return best
}

// exactName is the rank of a certificate that has a name itself.
const exactName = 2

// nameRank ranks a certificate by how it has a name: as it is, as a wildcard, or not at all (RFC 9525,
// section 6.3).
func nameRank(c *tls.Certificate, name string) (rank int) {
	if c.Leaf == nil {
		return 0
	}
	_, above, _ := strings.Cut(name, ".")
	for _, has := range c.Leaf.DNSNames {
		if strings.EqualFold(has, name) {
			return exactName
		}
		if below, wild := strings.CutPrefix(has, "*."); wild && strings.EqualFold(below, above) {
			rank = 1
		}
	}
	return rank
}

// OfIngresses reports whether l is the listener of Ingresses.
func (l *Listener) OfIngresses() bool { return l.byHost != nil }
