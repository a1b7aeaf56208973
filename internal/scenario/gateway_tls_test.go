package scenario_test

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/support/testcert"
)

// gatewayPool are the addresses that Gateways of scenarios can request.
var gatewayPool = []netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("198.51.100.2")}

// keyPair is the data of a Secret in a scenario: that of a certificate for a name, always the same one for the
// same text.
var keyPair = regexp.MustCompile(`<key pair ([^>]+)>`)

var keyPairs sync.Map // of name to data

// withKeyPairs returns manifests in which "<key pair NAME>" is the data of a Secret.
func withKeyPairs(t *testing.T, manifests []byte) []byte {
	t.Helper()
	return keyPair.ReplaceAllFunc(manifests, func(text []byte) []byte {
		name := string(keyPair.FindSubmatch(text)[1])
		if data, ok := keyPairs.Load(name); ok {
			return []byte(data.(string))
		}
		made, err := testcert.New(name, time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		certificate, key := made.PEM()
		encoded := base64.StdEncoding.EncodeToString
		data, _ := keyPairs.LoadOrStore(name, fmt.Sprintf("{tls.crt: %s, tls.key: %s}", encoded(certificate), encoded(key)))
		return []byte(data.(string))
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
