package table_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"slices"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/gateway/table"
)

// certificate returns one with DNS names.
func certificate(t *testing.T, key crypto.Signer, names ...string) *tls.Certificate {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: names}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func TestCertificate(t *testing.T) {
	t.Parallel()
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*tls.Certificate{
		"other": certificate(t, p256, "other.test"), "wild": certificate(t, p256, "other.test", "*.A.test"),
		"exact": certificate(t, p256, "B.a.test"), "second": certificate(t, p256, "b.a.test"),
		"edwards": certificate(t, edwards, "b.a.test"),
	}
	onlyP256 := []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256}
	onlyEdwards := []tls.SignatureScheme{tls.Ed25519}
	for claim, tt := range map[string]struct {
		has  string // by the listener
		name string
		can  []tls.SignatureScheme
		want string
	}{
		"the only one, whatever its names":       {"other", "b.a.test", onlyP256, "other"},
		"the name itself":                        {"other wild exact second", "b.a.test", onlyP256, "exact"},
		"the name in another case":               {"other wild exact second", "b.A.TEST", onlyP256, "exact"},
		"a wildcard":                             {"other exact wild", "c.a.test", onlyP256, "wild"},
		"a wildcard is for one label":            {"exact wild", "c.d.a.test", onlyP256, "exact"},
		"without the name, the first":            {"other exact wild", "x.test", onlyP256, "other"},
		"without a server name, the first":       {"exact wild", "", onlyP256, "exact"},
		"one that the client can verify":         {"edwards exact", "b.a.test", onlyP256, "exact"},
		"the first that the client can verify":   {"edwards exact", "b.a.test", append(onlyEdwards, onlyP256...), "edwards"},
		"rather than one with the name":          {"edwards wild", "b.a.test", onlyP256, "wild"},
		"if the client can verify none, by name": {"other exact", "b.a.test", onlyEdwards, "exact"},
		"none":                                   {"", "b.a.test", onlyP256, ""},
	} {
		var of []*tls.Certificate
		for word := range strings.FieldsSeq(tt.has) {
			of = append(of, all[word])
		}
		l := table.NewListener("l", "").WithCertificates(of)
		hello := &tls.ClientHelloInfo{
			ServerName: tt.name, SignatureSchemes: tt.can, SupportedVersions: []uint16{tls.VersionTLS13},
		}
		owner, got := table.NewTLSPort([]*table.Listener{l}, nil).Certificate(hello)
		if got != all[tt.want] || owner != l {
			t.Errorf("%s: Certificate(%q) of %q is not %q", claim, tt.name, tt.has, tt.want)
		}
	}
}

// TestCertificateOf: the listener whose certificate a client gets is that which serves the name.
func TestCertificateOf(t *testing.T) {
	t.Parallel()
	routes := map[string]*table.Host{"i.test": host(t, table.Route{Rule: rule("i")})}
	ingresses := table.NewIngresses().WithHosts(routes)
	a := &tls.Certificate{}
	withA := ingresses.WithHostCertificates(map[string]*tls.Certificate{"i.test": a, "*.w.test": a})
	wild := table.NewListener("wild", "*.g.test").WithCertificates([]*tls.Certificate{a})
	exact := table.NewListener("exact", "x.g.test") // has none
	for claim, tt := range map[string]struct {
		listeners []*table.Listener
		ingresses *table.Listener
		name      string
		owner     *table.Listener
		want      *tls.Certificate
	}{
		"the hostname of a listener":              {[]*table.Listener{wild, exact}, withA, "y.g.test", wild, a},
		"a wildcard stands for many labels":       {[]*table.Listener{wild, exact}, withA, "z.y.g.test", wild, a},
		"a listener without certificates has its": {[]*table.Listener{wild, exact}, withA, "x.g.test", exact, nil},
		"the host of an Ingress":                  {[]*table.Listener{wild, exact}, withA, "I.test", withA, a},
		"a wildcard of an Ingress is one label":   {nil, withA, "b.a.w.test", withA, nil},
		"a wildcard of an Ingress":                {nil, withA, "a.w.test", withA, a},
		"a host without a certificate":            {nil, withA, "j.test", withA, nil},
		"no server name":                          {nil, withA, "", withA, nil},
		"no listener":                             {[]*table.Listener{wild}, nil, "other.test", nil, nil},
		"an Ingress before the certificate":       {nil, ingresses, "i.test", ingresses, nil},
		"an Ingress whose certificate was removed": {
			nil, withA.WithHostCertificates(map[string]*tls.Certificate{"i.test": nil}), "i.test", nil, nil,
		},
	} {
		p := table.NewTLSPort(tt.listeners, tt.ingresses)
		if tt.owner == nil {
			tt.owner = tt.ingresses
		}
		if owner, got := p.Certificate(&tls.ClientHelloInfo{ServerName: tt.name}); owner != tt.owner || got != tt.want {
			t.Errorf("%s: Certificate(%q) = %v, %p, want %v, %p", claim, tt.name, owner, got, tt.owner, tt.want)
		}
	}
	if !table.NewTLSPort(nil, ingresses).TLS() || table.NewPort(nil, ingresses).TLS() {
		t.Error("TLS() does not tell a port with TLS from one without")
	}
}

// TestMisdirected has the cases of Gateway API's conformance test
// HTTPRouteHTTPSListenerDetectMisdirectedRequests.
func TestMisdirected(t *testing.T) {
	t.Parallel()
	var listeners []*table.Listener
	for _, hostname := range []string{"", "second.test", "*.wild.test", "fourth.wild.test"} {
		listeners = append(listeners, table.NewListener(hostname, hostname))
	}
	withAll := table.NewTLSPort(listeners, nil)
	withoutAny := table.NewTLSPort(listeners[1:], nil)
	routes := map[string]*table.Host{"i.test": host(t, table.Route{Rule: rule("i")}), "j.test": host(t, table.Route{Rule: rule("i")})}
	ingresses := table.NewTLSPort(listeners[1:], table.NewIngresses().WithHosts(routes))
	for claim, tt := range map[string]struct {
		port       *table.Port
		serverName string
		host       string
		want       bool
	}{
		"equal":                                   {withAll, "second.test", "second.test", false},
		"equal in another case":                   {withAll, "SECOND.test", "second.test", false},
		"of the same listener":                    {withAll, "first.test", "other.test", false},
		"of the same wildcard":                    {withAll, "third.wild.test", "fifth.wild.test", false},
		"a more specific listener":                {withAll, "first.test", "second.test", true},
		"a more specific listener than the wild":  {withAll, "third.wild.test", "fourth.wild.test", true},
		"a less specific listener":                {withAll, "second.test", "first.test", true},
		"the wildcard, from a more specific name": {withAll, "fourth.wild.test", "third.wild.test", true},
		"no server name":                          {withAll, "", "second.test", true},
		"no server name, of the same listener":    {withAll, "", "first.test", false},
		"no listener has the host":                {withoutAny, "second.test", "first.test", false},
		"hosts of Ingresses":                      {ingresses, "i.test", "j.test", false},
		"from a listener to an Ingress":           {ingresses, "second.test", "i.test", true},
		"from an Ingress to a listener":           {ingresses, "i.test", "second.test", true},
	} {
		if got := tt.port.Misdirected(tt.serverName, tt.host); got != tt.want {
			t.Errorf("%s: Misdirected(%q, %q) = %t, want %t", claim, tt.serverName, tt.host, got, tt.want)
		}
	}
}

// TestWithCertificatesShares: a Listener with the same certificates is the same, so that its Port stays.
func TestWithCertificatesShares(t *testing.T) {
	t.Parallel()
	a := &tls.Certificate{}
	l := table.NewListener("l", "").WithCertificates([]*tls.Certificate{a})
	if l.WithCertificates(slices.Clone([]*tls.Certificate{a})) != l {
		t.Error("WithCertificates made another Listener for the same certificates")
	}
	if i := table.NewIngresses(); i.WithHostCertificates(nil) != i {
		t.Error("WithHostCertificates made another Listener without a difference")
	}
}
