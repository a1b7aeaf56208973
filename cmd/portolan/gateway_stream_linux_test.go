package main

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"portolan.dev/portolan/test/freeport"
)

func init() {
	maps.Copy(effects, map[string]func(*testing.T){
		"gateway.limits.streamIdle":  effectOfStreamIdle,
		"gateway.limits.sessionIdle": effectOfSessionIdle,
	})
}

// streamBackend is an endpoint that echoes lines over TCP and UDP, at one port.
func streamBackend(t *testing.T) netip.AddrPort {
	t.Helper()
	at := freeport.Loopback(t)
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	packets, err := net.ListenPacket("udp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			})
		}
	})
	serving.Go(func() {
		room := make([]byte, 1<<10)
		for {
			n, from, err := packets.ReadFrom(room)
			if err != nil {
				return
			}
			_, _ = packets.WriteTo(fmt.Appendf(nil, "%s from %s", room[:n], from), from)
		}
	})
	t.Cleanup(func() {
		l.Close()
		packets.Close()
		serving.Wait()
	})
	return at
}

// streamObjects are a Gateway with listeners of TCP and UDP at port 53, and routes to an endpoint.
func streamObjects(to netip.AddrPort) string {
	return strings.NewReplacer("PORT", strconv.Itoa(int(to.Port())), "ADDRESS", to.Addr().String()).Replace(`apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: portolan}
spec: {controllerName: portolan.dev/gateway}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw, namespace: shop}
spec:
  gatewayClassName: portolan
  listeners: [{name: tcp, port: 53, protocol: TCP}, {name: udp, port: 53, protocol: UDP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: tcp, namespace: shop}
spec: {parentRefs: [{name: gw}], rules: [{backendRefs: [{name: lines, port: 7}]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: UDPRoute
metadata: {name: udp, namespace: shop}
spec: {parentRefs: [{name: gw}], rules: [{backendRefs: [{name: lines, port: 7}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: lines, namespace: shop}
spec: {ports: [{name: tcp, port: 7, protocol: TCP}, {name: udp, port: 7, protocol: UDP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: lines, namespace: shop, labels: {kubernetes.io/service-name: lines}}
addressType: IPv4
ports: [{name: tcp, port: PORT, protocol: TCP}, {name: udp, port: PORT, protocol: UDP}]
endpoints: [{addresses: [ADDRESS]}]
`)
}

func startStreams(t *testing.T, section string) *gateway {
	t.Helper()
	return startGateway(t, section, map[string]string{"streams.yaml": streamObjects(streamBackend(t))})
}

// dial connects to a port once it is bound.
func (g *gateway) dial(network string, port int) net.Conn {
	g.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial(network, g.at(port))
		if err == nil {
			_ = c.SetDeadline(time.Now().Add(patience))
			g.t.Cleanup(func() { c.Close() })
			return c
		}
		if time.Now().After(end) {
			g.t.Fatal(err)
		}
	}
}

// exchange returns the answer to what is sent; empty if there is none soon.
func exchange(c net.Conn, text string) string {
	_ = c.SetDeadline(time.Now().Add(time.Second))
	_, _ = io.WriteString(c, text)
	room := make([]byte, 1<<10)
	n, _ := c.Read(room)
	return string(room[:n])
}

// awaitAnswer returns the first answer that comes to what is sent again and again.
func awaitAnswer(t *testing.T, c net.Conn, text string) string {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if got := exchange(c, text); got != "" {
			return got
		}
	}
	t.Fatal("no answer")
	return ""
}

// TestStreams serves a TCPRoute and a UDPRoute at one port, and logs what was passed on.
func TestStreams(t *testing.T) {
	t.Parallel()
	g := startStreams(t, "accessLog: json")
	c := g.dial("tcp", 8053)
	if got := exchange(c, "hello"); got != "hello" {
		t.Errorf("over TCP: %q", got)
	}
	c.Close()
	g.wantOutput(`"protocol":"TCP","received":5,"sent":5`)
	if got := awaitAnswer(t, g.dial("udp", 8053), "hello"); !strings.HasPrefix(got, "hello from 127.0.0.1:") {
		t.Errorf("over UDP: %q", got)
	}
}

// effectOfStreamIdle ends a silent connection, soon or later.
func effectOfStreamIdle(t *testing.T) {
	soon, later := startStreams(t, "limits: {streamIdle: 1s}").dial("tcp", 8053), startStreams(t, "").dial("tcp", 8053)
	for _, c := range []net.Conn{soon, later} {
		if got := exchange(c, "hello"); got != "hello" {
			t.Fatalf("answer %q", got)
		}
		_ = c.SetDeadline(time.Now().Add(patience))
	}
	if n, err := soon.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the silent connection: %d octets, %v", n, err)
	}
	wantSilence(t, later)
}

// effectOfSessionIdle has the endpoint see another client after a pause, or the same one.
func effectOfSessionIdle(t *testing.T) {
	for section, same := range map[string]bool{"limits: {sessionIdle: 1s}": false, "": true} {
		g := startStreams(t, section)
		c := g.dial("udp", 8053)
		first := awaitAnswer(t, c, "hello")
		const pause = 2500 * time.Millisecond
		time.Sleep(pause)
		if got := awaitAnswer(t, c, "hello"); (got == first) != same {
			t.Errorf("%q: after a pause the endpoint is asked by %q, before by %q", section, got, first)
		}
	}
}
