package scenario_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/support/testcert"
)

// gatewayService is the Service of the gateway, whose addresses Gateways of scenarios share.
var gatewayService = cluster.Key{Namespace: "admin", Name: "gateway"}

// gatewayPool are the addresses that Gateways of scenarios can request.
var gatewayPool = []netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("198.51.100.2")}

// keyPair is the data of a Secret in a scenario, that of a certificate for a name, or that of a ConfigMap with the
// certificate as an authority. There is one certificate for a name.
var keyPair = regexp.MustCompile(`<(key pair|authority) ([^>]+)>`)

var keyPairs sync.Map // of name to *testcert.Certificate

// certificateOf returns the certificate for a name.
func certificateOf(name string) *testcert.Certificate {
	if made, ok := keyPairs.Load(name); ok {
		return made.(*testcert.Certificate)
	}
	made, err := testcert.New(name, time.Now().Add(time.Hour))
	if err != nil {
		panic(err)
	}
	kept, _ := keyPairs.LoadOrStore(name, made)
	return kept.(*testcert.Certificate)
}

// withKeyPairs returns manifests with data in the place of "<key pair NAME>" and "<authority NAME>".
func withKeyPairs(manifests []byte) []byte {
	return keyPair.ReplaceAllFunc(manifests, func(text []byte) []byte {
		found := keyPair.FindSubmatch(text)
		certificate, key := certificateOf(string(found[2])).PEM()
		if string(found[1]) == "authority" {
			return fmt.Appendf(nil, "{ca.crt: %q}", certificate)
		}
		encoded := base64.StdEncoding.EncodeToString
		return fmt.Appendf(nil, "{tls.crt: %s, tls.key: %s}", encoded(certificate), encoded(key))
	})
}

// handshake returns how a connection for a server name begins, as scenarios write it: with the name in the
// certificate, or without TLS. If requests for the host are not served on it, ok is false and begins is why.
func handshake(p *table.Port, scheme, serverName, host string) (begins string, ok bool) {
	switch {
	case p.TLS() != (scheme == "https"):
		return "the port does not speak " + scheme, false
	case scheme == "http":
		return "", true
	}
	_, c := p.Certificate(&tls.ClientHelloInfo{ServerName: serverName})
	if c == nil {
		return "no certificate", false
	}
	begins = "certificate " + strings.Join(c.Leaf.DNSNames, " ") + ", "
	if p.Misdirected(serverName, host) {
		return begins + "421", false
	}
	return begins, true
}

// acceptsClient reports whether a handshake for a server name succeeds with the certificate of a client, "" for none.
func acceptsClient(p *table.Port, serverName, client string) bool {
	owner, _ := p.Certificate(&tls.ClientHelloInfo{ServerName: serverName})
	demand := owner.Demand(new(tls.Config))
	if demand.ClientAuth != tls.RequireAndVerifyClientCert {
		return true
	}
	if client == "" {
		return false
	}
	shown, err := x509.ParseCertificate(certificateOf(client).TLS.Certificate[0])
	if err != nil {
		panic(err)
	}
	_, err = shown.Verify(x509.VerifyOptions{Roots: demand.ClientCAs, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil
}
