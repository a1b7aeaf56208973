package gateway

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"portolan.dev/portolan/bench/fakeapi"
	"portolan.dev/portolan/bench/gateway/calls"
	"portolan.dev/portolan/internal/support/testcert"
)

// certificate is that of all contenders, for host, with a P-256 key.
type certificate struct {
	file       string // PEM, with the key
	chain, key string // base64 of PEM
	secure     *calls.Secure
}

func newCertificate(dir string) (certificate, error) {
	c, err := testcert.New(host, time.Now().Add(12*time.Hour))
	if err != nil {
		return certificate{}, err
	}
	chain, key := c.PEM()
	file := filepath.Join(dir, "bench.pem")
	return certificate{
		file: file, chain: base64.StdEncoding.EncodeToString(chain), key: base64.StdEncoding.EncodeToString(key),
		secure: &calls.Secure{Host: host, Roots: chain},
	}, os.WriteFile(file, slices.Concat(chain, key), 0o600)
}

// fewCertificates are those that many are compared with.
const fewCertificates = 10

// secured is what the gateway did with a number of certificates in one round.
type secured struct {
	holds
	ready time.Duration // from its start
}

// secureHosts has the gateway read a cluster with certificates, each in a Secret and of a listener of its own.
func (b *bench) secureHosts(ctx context.Context, certificates int) (s *secured, err error) {
	api, err := fakeapi.NewSecure()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, api.Close()) }()
	last, err := fillSecure(api, certificates)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	server, err := b.startWith(ctx, api)
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	s = &secured{ready: time.Since(start)}
	c, err := calls.Dial(calls.Target{Address: server.DNS, Secure: last}, calls.Request(last.Host, "/"))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if status, _, err := c.Call(); err != nil || status != http.StatusNotFound {
		return nil, fmt.Errorf("%s: status %d, want 404 of a listener without routes: %w", last.Host, status, err)
	}
	s.holds, err = measureHolds(server)
	return s, err
}

// fillSecure creates a Gateway, Secrets with one certificate each, and ListenerSets with a listener for each. It
// returns the host of the last.
func fillSecure(api *fakeapi.Server, certificates int) (last *calls.Secure, err error) {
	const most = 64 // listeners of a set
	err = createGateway(api, gatewayv1.Listener{Name: "http", Protocol: gatewayv1.HTTPProtocolType, Port: 8080})
	var listeners []gatewayv1.ListenerEntry
	for i := range certificates {
		name := fmt.Sprintf("site-%d", i)
		last = &calls.Secure{Host: routeHost(i)}
		c, e := testcert.New(last.Host, time.Now().Add(12*time.Hour))
		if e != nil {
			return nil, e
		}
		chain, key := c.PEM()
		last.Roots = chain
		err = errors.Join(err, api.Create("secrets", &corev1.Secret{
			ObjectMeta: meta(name), Type: corev1.SecretTypeTLS,
			Data: map[string][]byte{corev1.TLSCertKey: chain, corev1.TLSPrivateKeyKey: key},
		}))
		listeners = append(listeners, gatewayv1.ListenerEntry{
			Name: gatewayv1.SectionName(name), Protocol: gatewayv1.HTTPSProtocolType, Port: 80,
			Hostname: new(gatewayv1.Hostname(last.Host)),
			TLS: &gatewayv1.ListenerTLSConfig{
				CertificateRefs: []gatewayv1.SecretObjectReference{{Name: gatewayv1.ObjectName(name)}},
			},
		})
	}
	for set := range slices.Chunk(listeners, most) {
		err = errors.Join(err, api.Create("listenersets", &gatewayv1.ListenerSet{
			ObjectMeta: meta(string(set[0].Name)),
			Spec:       gatewayv1.ListenerSetSpec{ParentRef: gatewayv1.ParentGatewayReference{Name: "bench"}, Listeners: set},
		}))
	}
	return last, err
}
