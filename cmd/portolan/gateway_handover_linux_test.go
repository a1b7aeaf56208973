package main

import (
	"errors"
	"net/http"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

func init() { effects["gateway.handover"] = effectOfHandover }

// replace starts a process with the settings of g, and stops that of g when the other is ready.
func (g *gateway) replace() *gateway {
	g.t.Helper()
	next := &gateway{dir: g.dir, file: g.file, addr: g.addr}
	cmd := exec.Command("portolan", "gateway", "--config", g.file)
	cmd.Stdout = &next.out
	next.process = follow(g.t, cmd)
	next.waitLog("ports of the process before are taken over")
	next.waitLog("requests are served")
	g.stop(syscall.SIGTERM)
	return next
}

// effectOfHandover: while processes replace one another, no connection is refused and no request is lost, over HTTP/1.1
// and HTTP/2. REPLACEMENTS is how many there are.
func effectOfHandover(t *testing.T) {
	const clients = 4
	replacements := number(t, "REPLACEMENTS", 5)
	g, _ := startShop(t, "handover: "+filepath.Join(t.TempDir(), "gateway", "handover"))
	var ended atomic.Bool
	var served atomic.Int64
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() {
			for !ended.Load() {
				by := &http.Transport{DisableKeepAlives: true, Protocols: new(http.Protocols)}
				by.Protocols.SetHTTP1(i%2 == 0)
				by.Protocols.SetUnencryptedHTTP2(i%2 == 1)
				if status, body := fetchBy(t, by, g.at(8080), "shop.example", "/a"); status != http.StatusOK {
					t.Errorf("request %d, over %s: %d %q", served.Load(), by.Protocols, status, body)
					return
				}
				served.Add(1)
			}
		})
	}
	last := g
	for range replacements {
		before := served.Load()
		last = last.replace()
		last.poll(patience, func() error { // the new one alone serves
			if served.Load() == before {
				return errors.New("no request was served since")
			}
			return nil
		})
	}
	ended.Store(true)
	running.Wait()
	t.Logf("%d requests served during %d replacements", served.Load(), replacements)
	if served.Load() < int64(replacements) {
		t.Error("too few requests to know")
	}
}
