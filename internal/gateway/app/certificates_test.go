package app

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/gateway/table"
)

// expiring returns a certificate of a name that expires at a time of the Unix epoch.
func expiring(name string, at int64) *tls.Certificate {
	return &tls.Certificate{Leaf: &x509.Certificate{DNSNames: []string{name}, NotAfter: time.Unix(at, 0)}}
}

// TestCertificateExpiry checks that the metric has the certificate that expires first, wherever it is.
func TestCertificateExpiry(t *testing.T) {
	t.Parallel()
	const early, late = 1_000, 2_000
	listener := func(c ...*tls.Certificate) *table.Listener {
		return table.NewListener("l", "l.test").WithCertificates(c)
	}
	ingresses := func(name string, at int64) *table.Listener {
		return table.NewIngresses().WithHostCertificates(map[string]*tls.Certificate{name: expiring(name, at)})
	}
	expiry := func(g *Gateway) string {
		const name = "portolan_gateway_certificate_expiry_timestamp_seconds"
		return strings.TrimSpace(strings.TrimPrefix(exported(t, g, name+"{"), name))
	}
	for claim, tt := range map[string]struct {
		port  *table.Port
		files *tls.Certificate
		want  string
	}{
		"of a listener": {
			table.NewTLSPort([]*table.Listener{listener(expiring("b.test", late), expiring("a.test", early))}, nil), nil,
			`{hostname="a.test"} 1000`,
		},
		"of an Ingress": {
			table.NewTLSPort([]*table.Listener{listener(expiring("a.test", late))}, ingresses("*.i.test", early)), nil,
			`{hostname="*.i.test"} 1000`,
		},
		"of the files": {
			table.NewTLSPort(nil, ingresses("i.test", late)), expiring("file.test", early), `{hostname="file.test"} 1000`,
		},
		"the first name of two at the same time": {
			table.NewTLSPort([]*table.Listener{listener(expiring("b.test", early), expiring("a.test", early))}, nil), nil,
			`{hostname="a.test"} 1000`,
		},
		"without a name": {
			table.NewTLSPort([]*table.Listener{listener(&tls.Certificate{Leaf: &x509.Certificate{NotAfter: time.Unix(early, 0)}})}, nil),
			nil, `{hostname=""} 1000`,
		},
		"that was not read": {table.NewTLSPort([]*table.Listener{listener(&tls.Certificate{})}, nil), nil, ""},
		"none":              {table.NewPort(nil, nil), nil, ""},
	} {
		g := newGateway(t, nil)
		if tt.files != nil {
			g.ofFiles = func() *tls.Certificate { return tt.files }
		}
		g.proxy.SetTable(table.New(map[table.Socket]*table.Port{{Port: 443}: tt.port}))
		if got := expiry(g); got != tt.want {
			t.Errorf("%s: %q, want %q", claim, got, tt.want)
		}
	}
	if got := expiry(newGateway(t, nil)); got != "" {
		t.Errorf("without a table: %q", got)
	}
}
