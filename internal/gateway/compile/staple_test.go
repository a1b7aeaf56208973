package compile

import (
	"crypto"
	"crypto/tls"
	"maps"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ocsp"

	"portolan.dev/portolan/internal/cluster"
)

// TestStaple has listeners with Secrets that have an OCSP response: one is used if it is for the certificate.
func TestStaple(t *testing.T) {
	t.Parallel()
	pair, other := pairOf(t, 0), pairOf(t, 1)
	respond := func(of, by *tls.Certificate, status int) []byte {
		t.Helper()
		template := ocsp.Response{Status: status, SerialNumber: of.Leaf.SerialNumber, ThisUpdate: time.Now()}
		response, err := ocsp.CreateResponse(by.Leaf, by.Leaf, template, by.PrivateKey.(crypto.Signer))
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	strange := *pair.Leaf.SerialNumber
	unrelated := *pair
	leaf := *pair.Leaf
	leaf.SerialNumber = strange.Add(&strange, pair.Leaf.SerialNumber)
	unrelated.Leaf = &leaf
	for claim, tt := range map[string]struct {
		response []byte
		chain    *tls.Certificate // in the Secret, behind the certificate; nil for none
		says     string           // empty if it is used
	}{
		"good":                              {respond(pair, pair, ocsp.Good), nil, ""},
		"good, by the issuer in the Secret": {respond(pair, pair, ocsp.Good), pair, ""},
		"by another issuer":                 {respond(pair, other, ocsp.Good), pair, "bad"},
		"revoked":                           {respond(pair, pair, ocsp.Revoked), nil, "the certificate is not good"},
		"of another certificate":            {respond(&unrelated, pair, ocsp.Good), nil, "no response matching the supplied certificate"},
		"no response":                       {[]byte("x"), nil, "asn1"},
	} {
		secret := secretOf("a", "c", 0)
		secret.Data = maps.Clone(secret.Data)
		secret.Data["tls.ocsp-staple"] = tt.response
		if tt.chain != nil {
			secret.Data["tls.crt"] = append(secret.Data["tls.crt"], certificatesOf()[0]["tls.crt"]...)
		}
		f := follow(gatewayWith(https("l", "x.test", "c")), secret)
		verdict := f.Gateway(cluster.Ref{Kind: cluster.KindGateway, Key: cluster.Key{Namespace: "a", Name: "g"}})
		var refs cluster.Condition
		for _, c := range verdict.Listeners[0].Conditions {
			if c.Type == resolvedRefs {
				refs = c
			}
		}
		used := len(f.certificates.list("gateway a/g l")[0].OCSPStaple) > 0
		if used != (tt.says == "") || refs.Status != "True" || (refs.Message == "") != used || !strings.Contains(refs.Message, tt.says) {
			t.Errorf("%s: used %t, %+v, want %q", claim, used, refs, tt.says)
		}
	}
}

// pairOf returns the n-th key pair of the tests.
func pairOf(t *testing.T, n int) *tls.Certificate {
	t.Helper()
	pair, err := parsePair(secretOf("a", "c", n))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}
