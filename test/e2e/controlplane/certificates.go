package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/netip"
	"os"
	"time"
)

// authority is the CA of the control plane.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

// pair is a certificate and its key, in PEM.
type pair struct{ cert, key []byte }

const certificateLife = 7 * 24 * time.Hour

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := template(pkix.Name{CommonName: "portolan test control plane"})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{cert, key, pemBlock("CERTIFICATE", der)}, err
}

// server makes a certificate for a server on loopback, and on more addresses.
func (a *authority) server(at ...netip.Addr) (pair, error) {
	t := template(pkix.Name{CommonName: "localhost"})
	t.DNSNames = []string{"localhost"}
	t.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	for _, addr := range at {
		t.IPAddresses = append(t.IPAddresses, addr.AsSlice())
	}
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	return a.sign(t)
}

// client makes a certificate for a user of a group.
func (a *authority) client(user, group string) (pair, error) {
	t := template(pkix.Name{CommonName: user, Organization: []string{group}})
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.sign(t)
}

func (a *authority) sign(t *x509.Certificate) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	if err != nil {
		return pair{}, err
	}
	keyPEM, err := privateKey(key)
	return pair{pemBlock("CERTIFICATE", der), keyPEM}, err
}

func template(subject pkix.Name) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // never fails
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(certificateLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

// privateKey is in the form that the API server reads keys of accounts in.
func privateKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	return pemBlock("EC PRIVATE KEY", der), err
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// writeKeys writes the files that the programs are told of.
func (c *ControlPlane) writeKeys() error {
	var err error
	if c.authority, err = newAuthority(); err != nil {
		return err
	}
	serving, err := c.authority.server(c.serviceAddress, c.options.Address)
	if err != nil {
		return err
	}
	accounts, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	accountsPEM, err := privateKey(accounts)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		"ca.crt": c.authority.pem, "server.crt": serving.cert, "server.key": serving.key, "accounts.key": accountsPEM,
	} {
		if err := os.WriteFile(c.file(name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}
