package gateway

import (
	"context"
	"fmt"

	"portolan.dev/portolan/bench/gateway/calls"
	"portolan.dev/portolan/bench/rig"
)

// group is a kind of load and its contenders.
type group struct {
	name  string
	setup setup
	// small, steady and large are what the contenders are measured with, if they have connections.
	small, steady, large calls.Config
	idle                 int // connections that wait
	goals                []goal
	columns              []column

	entrants []*entrant
	samples  map[string][]*sample // by contender
}

// plain returns the group of requests over plain HTTP/1.1.
func (s *settings) plain() *group {
	g := &group{
		name: "HTTP", idle: s.idle, goals: plainGoals(), columns: s.plainColumns(),
		setup: setup{
			portolan: manifests("protocol: HTTP, hostname: HOST", "HTTPRoute"), reverse: "", caddy: caddyfile,
			nginx: nginxConfig("", nginxProxy), haproxy: haproxyConfig("", ""),
		},
		small: calls.Config{Request: request(smallSize), Connections: s.connections},
		large: calls.Config{Request: request(largeSize), Connections: largeCount},
	}
	g.steady = g.small
	g.steady.Rate = s.rate
	return g
}

// secure returns the group of requests over TLS: small has a handshake for each.
func (s *settings) secure(secure *calls.Secure) *group {
	const fromBase64 = `
---
apiVersion: v1
kind: Secret
metadata: {name: bench, namespace: bench}
type: kubernetes.io/tls
data: {tls.crt: CERTIFICATE, tls.key: KEY}
`
	const (
		listener = "protocol: HTTPS, hostname: HOST, tls: {certificateRefs: [{name: bench}]}"
		cipher   = "TLS_AES_128_GCM_SHA256" // that of Go
		onNginx  = "ssl; ssl_certificate PEM; ssl_certificate_key PEM; ssl_protocols TLSv1.3; " +
			"ssl_conf_command Ciphersuites " + cipher
	)
	return &group{
		name: "TLS", idle: s.idle, columns: secureColumns(),
		setup: setup{
			portolan: manifests(listener, "HTTPRoute") + fromBase64,
			nginx:    nginxConfig(onNginx, nginxProxy),
			haproxy:  haproxyConfig("ssl crt PEM ciphersuites "+cipher, ""),
		},
		small: calls.Config{Request: request(smallSize), Connections: s.secured, Secure: secure, Fresh: true},
		large: calls.Config{Request: request(largeSize), Connections: largeCount, Secure: secure},
	}
}

// fill finds the contenders of a group. One that is not available is left out.
func (b *bench) fill(ctx context.Context, w *rig.Workshop, g *group, names []string) {
	g.samples = make(map[string][]*sample)
	for _, name := range names {
		if _, ok := g.setup[name]; !ok {
			continue
		}
		e, err := b.entrant(ctx, w, g, name)
		if err != nil {
			b.log.Warn("not measured", "contender", name, "error", err)
			continue
		}
		g.entrants = append(g.entrants, e)
	}
}

// measureGroup measures the contenders of a group once.
func (b *bench) measureGroup(ctx context.Context, g *group, round int) error {
	for _, e := range rig.Turned(g.entrants, round) {
		b.log.Info("measuring", "round", round+1, "group", g.name, "contender", e.name)
		s, err := b.sample(ctx, g, e)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", g.name, e.name, err)
		}
		g.samples[e.name] = append(g.samples[e.name], s)
	}
	return nil
}
