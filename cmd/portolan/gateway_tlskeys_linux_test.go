package main

import (
	"crypto/tls"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"portolan.dev/portolan/internal/kube/apitest"
)

func init() {
	maps.Copy(effects, map[string]func(*testing.T){
		"gateway.tls.minVersion":   effectOfMinVersion,
		"gateway.tls.cipherSuites": effectOfCipherSuites,
		"gateway.tls.ticketSecret": effectOfTicketSecret,
	})
}

// startSecure starts a gateway with an HTTPS listener for shop.example.
func startSecure(t *testing.T, section string) (*gateway, *certificates) {
	t.Helper()
	c, b := newCertificates(t), startBackend(t, "web")
	g := startGateway(t, section, map[string]string{
		"service.yaml": gatewayService(b), "secret.yaml": secret("shop.example", c.make("shop.example")),
		"gateway.yaml": secureShop("shop.example"),
	})
	g.wantSecure(c, 8443, "", "https://shop.example/", "200 HTTP/2.0 web /")
	return g, c
}

// shake connects to a port with TLS, and returns the error of the handshake.
func (g *gateway) shake(c *certificates, config *tls.Config) error {
	config.RootCAs, config.ServerName = c.roots, "shop.example"
	conn, err := tls.Dial("tcp", g.at(8443), config)
	if err == nil {
		conn.Close()
	}
	return err
}

func effectOfMinVersion(t *testing.T) {
	for section, want := range map[string]bool{"": true, "tls: {minVersion: 1.3}": false} {
		g, c := startSecure(t, section)
		if err := g.shake(c, &tls.Config{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12}); (err == nil) != want {
			t.Errorf("%q: TLS 1.2: %v", section, err)
		}
	}
}

func effectOfCipherSuites(t *testing.T) {
	const name, id = "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA
	for section, want := range map[string]bool{"": false, "tls: {cipherSuites: [" + name + "]}": true} {
		g, c := startSecure(t, section)
		config := &tls.Config{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{id}}
		if err := g.shake(c, config); (err == nil) != want {
			t.Errorf("%q: %s: %v", section, name, err)
		}
	}
}

// effectOfTicketSecret has a client resume at one gateway the session that began at another, and at none that has keys
// of its own.
func effectOfTicketSecret(t *testing.T) {
	for section, want := range map[string]bool{"": false, ", tls: {ticketSecret: edge/tickets}": true} {
		api, c := gatewayAPI(t), newCertificates(t)
		secureAPI(api, c)
		section = "publish: {addresses: [192.0.2.7]}, limits: {idleTimeout: 10s}" + section
		var all []*gateway
		for range 2 {
			g := &gateway{addr: loopbackAddress()}
			g.process = startGatewayOf(t, api, section+fmt.Sprintf(", listen: [%s]", g.addr))
			all = append(all, g)
		}
		config := &tls.Config{
			RootCAs: c.roots, ServerName: "shop.example", MinVersion: tls.VersionTLS12,
			ClientSessionCache: tls.NewLRUClientSessionCache(1),
		}
		visit := func(g *gateway) (resumed bool, err error) {
			conn, err := tls.Dial("tcp", g.at(8443), config)
			if err != nil {
				return false, err
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
				return false, err
			}
			if _, err := conn.Write([]byte("GET /%zz HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n")); err != nil {
				return false, err
			}
			_, err = conn.Read(make([]byte, 1)) // with which the ticket comes
			return conn.ConnectionState().DidResume, err
		}
		all[1].poll(patience, func() error { // the keys are read beside the cluster
			if _, err := visit(all[0]); err != nil {
				return err
			}
			resumed, err := visit(all[1])
			if err == nil && resumed != want {
				err = fmt.Errorf("%q: resumed at the other one: %t", section, resumed)
			}
			return err
		})
		if resumed, err := visit(all[0]); err != nil || resumed != want {
			t.Errorf("%q: resumed at the other one: %t, %v", section, resumed, err)
		}
		for _, g := range all {
			if out := g.logged(); strings.Contains(out, "not shared") {
				t.Error(out)
			}
		}
	}
}

// secureAPI has the Gateway of an API serve shop.example over HTTPS, and puts an empty Secret for keys beside it.
func secureAPI(api *apitest.Server, c *certificates) {
	certificate, key := c.make("shop.example").PEM()
	gw := new(gatewayv1.Gateway)
	api.Get("shop", "public", gw)
	gw.Spec.Listeners = append(gw.Spec.Listeners, gatewayv1.Listener{
		Name: "https", Port: 443, Protocol: gatewayv1.HTTPSProtocolType,
		TLS: &gatewayv1.ListenerTLSConfig{CertificateRefs: []gatewayv1.SecretObjectReference{{Name: "cert"}}},
	})
	api.Put(
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cert"}, Type: corev1.SecretTypeTLS,
			Data: map[string][]byte{"tls.crt": certificate, "tls.key": key},
		},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "tickets"}}, gw,
	)
}
