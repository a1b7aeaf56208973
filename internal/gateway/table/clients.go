package table

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
)

// Clients is which clients a listener accepts: those with a certificate of an authority (FrontendTLSValidation).
type Clients struct {
	// Authorities are the certificates of the authorities, in PEM. Without any, no client has a valid certificate.
	Authorities string
	// Optional: a client is asked for a certificate, and needs none, nor a valid one (AllowInsecureFallback).
	Optional bool
}

// admission is Clients, made ready for handshakes.
type admission struct {
	Clients
	pool *x509.CertPool
	// certificates are the authorities', in DER.
	certificates map[string]struct{}
}

// WithClients returns a Listener of a Gateway as l that accepts these clients alone; nil for all, who are asked for no
// certificate.
func (l *Listener) WithClients(c *Clients) *Listener {
	if l.admits == nil && c == nil || l.admits != nil && c != nil && l.admits.Clients == *c {
		return l
	}
	made := *l
	made.admits = newAdmission(c)
	return &made
}

func newAdmission(c *Clients) *admission {
	if c == nil {
		return nil
	}
	made := &admission{*c, x509.NewCertPool(), make(map[string]struct{})}
	made.pool.AppendCertsFromPEM([]byte(c.Authorities))
	for rest := []byte(c.Authorities); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return made
		}
		made.certificates[string(block.Bytes)] = struct{}{}
	}
}

// Demand returns the configuration of a server for clients of l: as it is if they are asked for no certificate.
func (l *Listener) Demand(config *tls.Config) *tls.Config {
	if l.admits == nil {
		return config
	}
	made := config.Clone()
	made.GetConfigForClient = nil
	made.ClientCAs, made.ClientAuth = l.admits.pool, tls.RequireAndVerifyClientCert
	if l.admits.Optional {
		made.ClientAuth = tls.RequestClientCert
	}
	return made
}

// Admits reports whether l would accept a connection now. One that is open may have been accepted when l demanded
// less.
func (l *Listener) Admits(connection *tls.ConnectionState) bool {
	if l.admits == nil || l.admits.Optional {
		return true
	}
	if connection == nil {
		return false
	}
	for _, chain := range connection.VerifiedChains {
		if _, ok := l.admits.certificates[string(chain[len(chain)-1].Raw)]; ok {
			return true
		}
	}
	return false
}
