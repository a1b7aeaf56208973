package attack

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// startPage starts a server whose page reads the whole cluster, with further settings of admin.
func startPage(t *testing.T, admin string) *server {
	t.Helper()
	s := launchWith(t, memoryLimit, "serve", fmt.Sprintf("admin: {listen: '%s', page: cluster%s}\nmanifests: %s\n%s",
		adminAddr, admin, manifests(t, t.TempDir()), forwarding(upstreamAddr)))
	s.awaitReady()
	return s
}

// TestEventStreams opens streams of events, which are read never, slowly or not to their end, while a flood of
// different names fills what is kept with failures.
func TestEventStreams(t *testing.T) {
	serveUpstream(t)
	s := startPage(t, ", evidence: {size: 65536, perSecond: 1000, oneIn: 1}")
	s.attack(t, bounds{200, 3000, 500}, []string{clusterName, fastName}, func(ctx context.Context) {
		keep := hold(ctx)
		go connect(ctx, adminAddr, 3000, func(conn net.Conn) {
			keep(conn)
			_, _ = io.WriteString(conn, "GET /api/v1/evidence?follow HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n")
			if strings.HasSuffix(conn.LocalAddr().String(), "7") {
				go readSlowly(ctx, conn)
			}
		})
		flood(ctx, t, 3000, addresses(5), func(n int) *dns.Msg {
			return new(dns.Msg).SetQuestion(fmt.Sprintf("a-name-of-a-service-that-is-not-there-%d.shop.svc.cluster.local.", n), dns.TypeA)
		})
	})
}

// readSlowly reads an octet a time.
func readSlowly(ctx context.Context, conn net.Conn) {
	for one := make([]byte, 1); ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		if _, err := conn.Read(one); err != nil {
			return
		}
	}
}

// TestManyExplanations asks for explanations and searches from many connections at once.
func TestManyExplanations(t *testing.T) {
	serveUpstream(t)
	s := startPage(t, "")
	paths := []string{
		"/api/v1/explain?from=shop/none&target=web.shop:80", "/api/v1/explain?from=outside&target=" + url.QueryEscape("http://web.shop.svc/"+strings.Repeat("%2e%2e/", 500)),
		"/api/v1/search?q=" + strings.Repeat("(a+)%2b$", 30), "/api/v1/services/shop/web", "/api/v1/top?limit=65536",
		"/api/v1/explain?from=outside&target=10.96.0.7:80&header=" + strings.Repeat("a", 4000) + ":b",
	}
	var answered, busy, other atomic.Int32
	s.attack(t, bounds{160, 3000, 500}, []string{clusterName, fastName}, func(ctx context.Context) {
		var all sync.WaitGroup
		const clients = 100
		for i := range clients {
			all.Go(func() {
				for n := i; ctx.Err() == nil; n++ {
					switch status := getOnce(ctx, addresses(clients)[i], paths[n%len(paths)]); status {
					case http.StatusOK, http.StatusBadRequest:
						answered.Add(1)
					case http.StatusServiceUnavailable:
						busy.Add(1)
					default:
						other.Add(1) // the connection made room for another
					}
				}
			})
		}
		all.Wait()
	})
	t.Logf("%d requests answered, %d refused as the page was busy, %d otherwise", answered.Load(), busy.Load(), other.Load())
	if answered.Load() == 0 {
		t.Error("no request was answered")
	}
}

// getOnce requests a path of the admin server over a connection of its own, and returns the status; 0 without one.
func getOnce(ctx context.Context, source net.IP, path string) (status int) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: source}, Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", adminAddr)
	if err != nil {
		return 0
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body) // only the status counts
	return response.StatusCode
}
