package compile

import (
	"crypto/x509"
	"strings"

	"golang.org/x/crypto/ocsp"
)

// staple has clients get the OCSP response of a Secret with the certificate (RFC 6066, section 8), if it has one in
// tls.ocsp-staple, in DER, that says that the certificate is good. That it may be out of date is tlsfront's matter.
func (p *keyPair) staple() {
	response := p.secret.Data["tls.ocsp-staple"]
	if len(response) == 0 {
		return
	}
	if p.unstapled = reasonAgainst(response, p.certificate.Leaf, p.certificate.Certificate); p.unstapled == "" {
		p.certificate.OCSPStaple = response
	}
}

// reasonAgainst returns why clients would not take an OCSP response for a certificate; empty if they would. Chain is
// the certificate and those of its authorities, in DER.
func reasonAgainst(response []byte, leaf *x509.Certificate, chain [][]byte) string {
	var issuer *x509.Certificate
	if len(chain) > 1 { // else the signature cannot be checked
		var err error
		if issuer, err = x509.ParseCertificate(chain[1]); err != nil {
			return err.Error()
		}
	}
	parsed, err := ocsp.ParseResponseForCert(response, leaf, issuer)
	switch {
	case err != nil:
		return strings.TrimPrefix(err.Error(), "ocsp: ")
	case parsed.Status != ocsp.Good:
		return "the certificate is not good"
	}
	return ""
}
