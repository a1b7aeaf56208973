package tlsfront_test

import (
	"crypto"
	"crypto/tls"
	"testing"
	"time"

	"golang.org/x/crypto/ocsp"
)

// TestStaple: clients get the OCSP response of a certificate until it is out of date.
func TestStaple(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	for claim, tt := range map[string]struct {
		until time.Time
		want  bool
	}{
		"for an hour":  {time.Now().Add(time.Hour), true},
		"for ever":     {time.Time{}, true},
		"until before": {time.Now().Add(-time.Minute), false},
	} {
		c := g.certificate("a.test")
		template := ocsp.Response{SerialNumber: c.Leaf.SerialNumber, ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: tt.until}
		var err error
		c.OCSPStaple, err = ocsp.CreateResponse(c.Leaf, c.Leaf, template, c.PrivateKey.(crypto.Signer))
		must(t, err)
		g.serve(listener("a.test", c))
		for range 2 {
			conn, err := g.handshake(&tls.Config{RootCAs: g.roots, ServerName: "a.test", MinVersion: tls.VersionTLS12})
			must(t, err)
			if got := len(conn.OCSPResponse()) > 0; got != tt.want {
				t.Errorf("%s: stapled %t, want %t", claim, got, tt.want)
			}
		}
	}
}
