package attack

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/test/namespace"
)

// offLoopback is an address of this host that is not a loopback address.
const offLoopback = "192.0.2.1"

// TestPageOffLoopback asks for all that is for clients on loopback, or with a token, from another address, with fields
// and paths that could make a server believe that the client is one of them.
func TestPageOffLoopback(t *testing.T) {
	if err := namespace.IP("addr replace " + offLoopback + "/32 dev lo"); err != nil {
		t.Fatal(err)
	}
	const token = "0123456789abcdef"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	s := launchWith(t, memoryLimit, "serve", fmt.Sprintf(
		"admin: {listen: '0.0.0.0:9153', page: cluster, tokenFile: %s}\nmanifests: %s\n%s", file, manifests(t, t.TempDir()),
		forwarding(upstreamAddr)))
	s.awaitReady()
	const withToken = "Authorization: Bearer " + token
	if status := statusOf(t, "GET /api/v1/overview HTTP/1.1", withToken); status != http.StatusOK {
		t.Fatalf("with the token: status %d, want 200", status)
	}
	fields := []string{
		"", "Host: 127.0.0.1", "Host: localhost", "Host: ", "X-Forwarded-For: 127.0.0.1", "Forwarded: for=127.0.0.1",
		"Cookie: portolan-page=9999999999.AAAA", "Cookie: portolan-page-9153=9999999999.", "Authorization: Bearer ",
		"Authorization: Basic " + token, "Authorization: Bearer " + token[1:], "Sec-Fetch-Site: same-origin",
		withToken + "\r\nSec-Fetch-Site: cross-site", withToken + "\r\nSec-Fetch-Site: same-site",
	}
	for _, path := range []string{
		"/api/v1/overview", "/api/v1/search?q=web", "/api/v1/services/shop/web", "/api/v1/pods/shop/web", "/api/v1/gateways",
		"/api/v1/explain?from=outside&target=10.96.0.7:80", "/api/v1/evidence", "/api/v1/evidence?follow", "/api/v1/top",
		"/debug/config", "/debug/cache", "/debug/pprof/heap",
	} {
		for _, field := range fields {
			for _, target := range []string{
				path, "/" + path, strings.Replace(path, "/api", "/%61pi", 1), "/healthz/.." + path, "http://127.0.0.1" + path,
			} {
				for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodOptions} {
					line := method + " " + target + " HTTP/1.1"
					if status := statusOf(t, line, field); status < http.StatusMultipleChoices {
						t.Errorf("%s with %q: status %d, want a refusal", line, field, status)
					}
				}
			}
		}
	}
}

// statusOf sends a request with a header field to the server's address off loopback, and returns the response's status.
func statusOf(t *testing.T, line, field string) int {
	t.Helper()
	const patience = 10 * time.Second
	conn, err := net.DialTimeout("tcp", offLoopback+":9153", patience)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if !strings.HasPrefix(field, "Host:") {
		field = strings.TrimSuffix("Host: "+offLoopback+"\r\n"+field, "\r\n")
	}
	_, _ = io.WriteString(conn, line+"\r\n"+field+"\r\nConnection: close\r\n\r\n") // reading shows what failed
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s with %q: %v", line, field, err)
	}
	response.Body.Close()
	return response.StatusCode
}
