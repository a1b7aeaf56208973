package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func init() { effects["gateway.ingress.annotations"] = effectOfAnnotations }

// effectOfAnnotations has an Ingress rewrite paths, as its annotation says, and one with TLS redirect.
func effectOfAnnotations(t *testing.T) {
	for section, want := range map[string][2]string{
		"": {"404", "web /"}, "ingress: {annotations: nginx}": {"web /b", "Location: https://tls.example/x"},
	} {
		b := startBackend(t, "web")
		g := startGateway(t, section, map[string]string{"all.yaml": gatewayService(b) + `---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: web
  namespace: shop
  annotations: {nginx.ingress.kubernetes.io/rewrite-target: /$1}
spec:
  rules:
  - host: shop.example
    http: {paths: [{path: "/a/(.*)", pathType: ImplementationSpecific, backend: {service: {name: web, port: {number: 80}}}}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: tls, namespace: shop}
spec:
  tls: [{hosts: [tls.example], secretName: none}]
  rules:
  - host: tls.example
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
`})
		g.want(8080, "other.example", "/", http.StatusNotFound, "")
		for i, request := range []string{"GET /A/b HTTP/1.1\r\nHost: shop.example", "GET /x/ HTTP/1.1\r\nHost: tls.example"} {
			c := g.send(8080, request+"\r\nConnection: close\r\n\r\n")
			if answer, err := io.ReadAll(c); err != nil || !strings.Contains(string(answer), want[i]) {
				t.Errorf("%q: %s: %v, %s, want %s", section, request, err, answer, want[i])
			}
		}
	}
}
