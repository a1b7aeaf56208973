//go:build unix

package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/cluster/snapshot"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// TestRollingRestart replaces each of two servers behind a Service. Clients stop using a
// server some time after it is no longer ready, as endpoints are removed, and no query
// may be lost.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	begin := func() *process { return serve(t, "lameduck: 1s") }
	var target atomic.Pointer[process]
	old := begin()
	target.Store(old)
	var asked, lost atomic.Int64
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				asked.Add(1)
				if err := queryOnce(target.Load().addr); err != nil {
					lost.Add(1)
					t.Logf("query %d: %v", asked.Load(), err)
				}
			}
		})
	}
	for range 2 {
		fresh := begin()
		fresh.awaitAdmin("/readyz", http.StatusOK, "ok")
		if err := old.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		old.awaitAdmin("/readyz", http.StatusServiceUnavailable, "stopping")
		// Clients continue to use the old server for a while.
		until := asked.Load() + 20
		old.poll(patience, func() error {
			if n := asked.Load(); n < until {
				return fmt.Errorf("%d queries sent, want %d", n, until)
			}
			return nil
		})
		target.Store(fresh)
		old.wait()
		old = fresh
	}
	close(stop)
	clients.Wait()
	if lost.Load() > 0 || asked.Load() < 100 {
		t.Errorf("%d queries lost of %d", lost.Load(), asked.Load())
	}
}

// queryOnce queries web over UDP from a new port.
func queryOnce(addr string) error {
	conn, err := net.Dial("udp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	packet, err := dnswire.NewQuery(question(web))
	if err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := conn.Write(packet); err != nil {
		return err
	}
	buf := make([]byte, dnswire.MaxMessage)
	n, err := conn.Read(buf)
	if err != nil {
		return err
	}
	m, err := dnswire.ParseMessage(buf[:n])
	if err != nil {
		return err
	}
	return wantData(m, "10.96.0.7")
}

// TestUnwritableSnapshotIsLoggedOnce checks that a snapshot that cannot be written is
// logged once and has no other effect, and that it is written as soon as possible.
func TestUnwritableSnapshotIsLoggedOnce(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	dir := filepath.Join(t.TempDir(), "missing")
	p := serveAPI(t, api, "", "snapshot: {file: "+filepath.Join(dir, "snapshot")+"}")
	p.waitLog("snapshot can't be written; the last one stays")
	p.awaitAdmin("/metrics", http.StatusOK, "portolan_snapshot_errors_total ")
	p.awaitAdmin("/readyz", http.StatusOK, "ok")
	p.await(patience, web, "10.96.0.7")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p.waitLog("snapshot can be written again")
	p.awaitAdmin("/metrics", http.StatusOK, "portolan_snapshot_write_timestamp_seconds ")
}

// TestSerialsGrowAfterClockIsSetBack checks that serials continue from the snapshot if
// the clock is behind it.
func TestSerialsGrowAfterClockIsSetBack(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "snapshot")
	ahead := uint32(time.Now().Unix()) + 1_000_000
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Live, cluster.Kinds()...) })
	if err := snapshot.Of(store, ahead).WriteFile(file); err != nil {
		t.Fatal(err)
	}
	api := newAPI(t)
	p := serveAPI(t, api, "", "snapshot: {file: "+file+"}")
	p.awaitAdmin("/readyz", http.StatusOK, "ok")
	m := p.ask("udp", dnswire.QuerySpec{Name: "cluster.local.", Type: dnswire.TypeSOA})
	var mname, rname string
	var serial uint32
	if _, err := fmt.Sscan(m.Answer[0].Data, &mname, &rname, &serial); err != nil || serial <= ahead {
		t.Errorf("serial %d, %v; want more than %d", serial, err, ahead)
	}
}
