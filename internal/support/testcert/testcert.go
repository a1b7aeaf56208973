// Package testcert creates self-signed certificates for a name and 127.0.0.1, for tests
// and benchmarks.
//
// It is not k8s.io/client-go/util/cert, the only library in go.mod that creates
// certificates: that creates two RSA keys per certificate, which takes a second where
// this takes a millisecond, and packages outside internal/kube do not import k8s.io.
package testcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Certificate is a certificate with its key.
type Certificate struct {
	// TLS is for servers, and Roots for the clients that trust them.
	TLS   tls.Certificate
	Roots *x509.CertPool

	certificate, key []byte // PEM
}

// New creates a certificate with a P-256 key for the DNS name or address. It is valid for the day
// that ends at until.
func New(name string, until time.Time) (*Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	const day = 24 * time.Hour
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: until.Add(-day), NotAfter: until,
		DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = append(template.IPAddresses, ip)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	c := &Certificate{
		TLS:         tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		Roots:       x509.NewCertPool(),
		certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}),
	}
	c.Roots.AppendCertsFromPEM(c.certificate)
	return c, nil
}

// PEM returns the certificate and the key as PEM.
func (c *Certificate) PEM() (certificate, key []byte) { return c.certificate, c.key }

// Write writes the certificate and the key as PEM to tls.crt and tls.key in dir,
// replacing existing files, and returns their paths.
func (c *Certificate) Write(dir string) (certificate, key string, err error) {
	certificate, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	return certificate, key, errors.Join(
		os.WriteFile(certificate, c.certificate, 0o600),
		os.WriteFile(key, c.key, 0o600),
	)
}
