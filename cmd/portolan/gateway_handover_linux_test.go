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

// effectOfHandover: while processes replace one another, no connection is refused and no request is lost.
func effectOfHandover(t *testing.T) {
	const replacements, clients = 5, 4
	g, _ := startShop(t, "handover: "+filepath.Join(t.TempDir(), "gateway", "handover"))
	var ended atomic.Bool
	var served atomic.Int64
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			for !ended.Load() {
				if status, body := fetch(t, g.at(8080), "shop.example", "/a"); status != http.StatusOK {
					t.Errorf("request %d: %d %q", served.Load(), status, body)
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
	if served.Load() < replacements {
		t.Errorf("%d requests during %d replacements", served.Load(), replacements)
	}
}
