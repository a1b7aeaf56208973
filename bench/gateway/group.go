package gateway

import (
	"context"
	"fmt"

	"portolan.dev/portolan/bench/gateway/calls"
	"portolan.dev/portolan/bench/rig"
)

// group is a kind of load and its contenders.
type group struct {
	name    string
	backend string // address
	setup   setup
	// small, steady and large are what the contenders are measured with, if they have connections.
	small, steady, large calls.Config
	idle                 int // connections that wait
	goals                []goal
	columns              []column

	entrants []*entrant
	samples  map[string][]*sample // by contender
}

// plain returns the group of requests over plain HTTP/1.1.
func (b *bench) plain() *group {
	g := &group{
		name: "HTTP", backend: b.backend, idle: b.idle, goals: plainGoals(), columns: b.plainColumns(),
		setup: setup{
			portolan: manifests("protocol: HTTP, hostname: HOST", "HTTPRoute"), reverse: "", caddy: caddyfile,
			nginx: nginxConfig("", nginxProxy), haproxy: haproxyConfig("", ""),
		},
		small: calls.Config{Request: request(smallSize), Connections: b.connections},
		large: calls.Config{Request: request(largeSize), Connections: largeCount},
	}
	g.steady = g.small
	g.steady.Rate = b.rate
	return g
}

// secure returns the group of requests over TLS: small has a handshake for each.
func (b *bench) secure() *group {
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
		name: "TLS", backend: b.backend, idle: b.idle, columns: secureColumns(),
		setup: setup{
			portolan: manifests(listener, "HTTPRoute") + fromBase64,
			nginx:    nginxConfig(onNginx, nginxProxy),
			haproxy:  haproxyConfig("ssl crt PEM ciphersuites "+cipher, ""),
		},
		small: calls.Config{Request: request(smallSize), Connections: b.secured, Secure: b.certificate.secure, Fresh: true},
		large: calls.Config{Request: request(largeSize), Connections: largeCount, Secure: b.certificate.secure},
	}
}

// rpc returns the group of gRPC without TLS: small is of calls, and large of messages of one stream.
func (b *bench) rpc() *group {
	call := calls.Config{Method: calls.Unary, Request: host, Connections: b.clients}
	const pass = "\n      grpc_pass grpc://web;\n      grpc_set_header Host $host;\n"
	return &group{
		name: "gRPC", backend: b.rpcBackend, goals: rpcGoals(), columns: rpcColumns(),
		setup: setup{
			portolan: manifests("protocol: HTTP, hostname: HOST", "GRPCRoute"), reverse: "h2c",
			nginx: nginxConfig("http2", pass), haproxy: haproxyConfig("proto h2", "proto h2"),
		},
		small: call,
		large: calls.Config{Method: calls.Stream, Request: host, Connections: 1},
	}
}

// tcp returns the group of bodies through proxies that do not look into connections.
func (b *bench) tcp() *group {
	return &group{
		name: "TCP", backend: b.backend, columns: tcpColumns(),
		setup: setup{portolan: manifests("protocol: TCP", "TCPRoute"), haproxy: haproxyTCP},
		large: calls.Config{Request: request(largeSize), Connections: b.streams},
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
