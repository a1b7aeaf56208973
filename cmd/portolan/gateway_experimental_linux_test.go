package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func init() { effects["gateway.experimental"] = effectOfExperimental }

// effectOfExperimental has a rule with sessionPersistence set a cookie.
func effectOfExperimental(t *testing.T) {
	for section, want := range map[string]bool{"": false, "experimental: true": true} {
		b := startBackend(t, "web")
		g := startGateway(t, section, map[string]string{"all.yaml": gatewayService(b) + `---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: ours}
spec: {controllerName: portolan.dev/gateway}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: shop}
spec: {gatewayClassName: ours, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: shop}
spec:
  parentRefs: [{name: web}]
  rules: [{backendRefs: [{name: web, port: 80}], sessionPersistence: {sessionName: visit}}]
`})
		g.want(8080, "shop.example", "/a", http.StatusOK, "web /a")
		c := g.send(8080, "GET /a HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n")
		answer, err := io.ReadAll(c)
		if err != nil || strings.Contains(string(answer), "Set-Cookie: visit=") != want {
			t.Errorf("%q: %v, %s, want a cookie: %t", section, err, answer, want)
		}
	}
}
