package admission

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// generation is a certificate authority and the only certificate that it signs. Its key
// is discarded: both are renewed together.
type generation struct {
	authorityPEM, certificatePEM, keyPEM []byte

	authority   *x509.Certificate
	certificate *x509.Certificate
	pair        tls.Certificate
}

// clockSkew is the tolerated difference between the clocks of a cluster.
const clockSkew = 24 * time.Hour

// newGeneration returns a generation for a server's name, valid from clockSkew before
// now for life after now.
func newGeneration(host string, now time.Time, life time.Duration) (*generation, error) {
	authority := template(now, life)
	authority.Subject.CommonName = "portolan webhook, authority of " + now.UTC().Format(time.RFC3339)
	authority.IsCA, authority.BasicConstraintsValid, authority.MaxPathLenZero = true, true, true
	authority.KeyUsage = x509.KeyUsageCertSign
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, authorityKey.Public(), authorityKey)
	if err != nil {
		return nil, err
	}
	certificate := template(now, life)
	certificate.Subject.CommonName = "portolan webhook"
	certificate.DNSNames = []string{host}
	certificate.KeyUsage = x509.KeyUsageDigitalSignature
	certificate.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	certificateDER, err := x509.CreateCertificate(rand.Reader, certificate, authority, key.Public(), authorityKey)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return parseGeneration(block("CERTIFICATE", authorityDER), block("CERTIFICATE", certificateDER),
		block("PRIVATE KEY", keyDER))
}

func template(now time.Time, life time.Duration) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // never fails
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{Organization: []string{"portolan"}},
		NotBefore:    now.Add(-clockSkew),
		NotAfter:     now.Add(life),
	}
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// parseGeneration parses the PEM that newGeneration produced.
func parseGeneration(authority, certificate, key []byte) (*generation, error) {
	g := &generation{authorityPEM: authority, certificatePEM: certificate, keyPEM: key}
	first, rest := pem.Decode(authority)
	if first == nil || first.Type != "CERTIFICATE" || len(rest) > 0 {
		return nil, errors.New("the authority is not one certificate in PEM")
	}
	var err error
	if g.authority, err = x509.ParseCertificate(first.Bytes); err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	if g.pair, err = tls.X509KeyPair(certificate, key); err != nil {
		return nil, err
	}
	if g.certificate, err = x509.ParseCertificate(g.pair.Certificate[0]); err != nil {
		return nil, err
	}
	return g, nil
}

// check returns why a client that trusts the authority would reject the certificate for
// a server's name.
func (g *generation) check(host string, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AddCert(g.authority)
	_, err := g.certificate.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, CurrentTime: now})
	return err
}

// until returns the time at which it expires.
func (g *generation) until() time.Time { return g.certificate.NotAfter }

// same reports whether both are the same generation; o may be nil.
func (g *generation) same(o *generation) bool { return o != nil && g.certificate.Equal(o.certificate) }

// authorities returns the certificates in a CA bundle that have not expired, each in
// PEM as newGeneration encodes it. It skips everything else.
func authorities(bundle []byte, now time.Time) (all [][]byte) {
	for {
		var first *pem.Block
		if first, bundle = pem.Decode(bundle); first == nil {
			return all
		}
		if c, err := x509.ParseCertificate(first.Bytes); err == nil && now.Before(c.NotAfter) {
			all = append(all, block("CERTIFICATE", first.Bytes))
		}
	}
}
