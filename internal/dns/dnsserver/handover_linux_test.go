package dnsserver_test

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/dnsserver"
)

// TestServersSharingAPort hands a port over between servers ten times, under load. Over
// UDP each query is answered. Over TCP, with a connection for each query, the connection
// that is being accepted when a server stops may be closed or reset; the next one is
// answered.
func TestServersSharingAPort(t *testing.T) {
	now := start(t, dnsserver.Config{SharePorts: true}, echo)
	addr := now.addr()
	stop := make(chan struct{})
	var clients sync.WaitGroup
	var asked, connected, cut atomic.Int64
	clients.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			err := askOnce("tcp", addr.String(), fmt.Sprintf("query %d", i))
			if err != nil {
				cut.Add(1)
				err = askOnce("tcp", addr.String(), fmt.Sprintf("query %d again", i))
			}
			if err != nil {
				t.Errorf("tcp, query %d, over a second connection: %v", i, err)
				return
			}
			connected.Add(1)
		}
	})
	for client := range 4 {
		clients.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := askOnce("udp", addr.String(), fmt.Sprintf("query %d of %d", i, client)); err != nil {
					t.Errorf("udp, query %d: %v", i, err)
					return
				}
				asked.Add(1)
			}
		})
	}
	const servers = 10
	for range servers {
		next := start(t, dnsserver.Config{SharePorts: true, Listen: []netip.AddrPort{addr}}, echo)
		before := asked.Load()
		for deadline := time.Now().Add(patience); asked.Load() < before+500 && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		now.stop()
		now.awake = false // end requires that no goroutine is left, and next has some
		if err := receive(t, now.ended, "the end of Run"); err != nil {
			t.Errorf("Run() = %v, want nil", err)
		}
		now = next
	}
	close(stop)
	clients.Wait()
	t.Logf("%d queries over UDP, %d over TCP, %d of them over a second connection", asked.Load(), connected.Load(), cut.Load())
	if connected.Load() == 0 || cut.Load() > servers {
		t.Errorf("of %d queries over TCP %d needed a second connection, want %d at most", connected.Load(), cut.Load(), servers)
	}
	if asked.Load() < 5000 {
		t.Errorf("only %d queries", asked.Load())
	}
	now.stop()
}

// TestPortsAreNotShared checks that without the setting a port in use is an error.
func TestPortsAreNotShared(t *testing.T) {
	first := start(t, dnsserver.Config{SharePorts: true}, echo)
	if _, err := dnsserver.Listen(t.Context(), dnsserver.Config{Listen: []netip.AddrPort{first.addr()}}); err == nil {
		t.Error("a second server has the same port")
	}
	first.stop()
}

// askOnce sends a query from a new port and waits for the answer.
func askOnce(network, addr, query string) error {
	conn, err := net.DialTimeout(network, addr, patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	message := query
	if network == "tcp" {
		message = string([]byte{0, byte(len(query))}) + query
	}
	if _, err := conn.Write([]byte(message)); err != nil {
		return err
	}
	buf := make([]byte, 100)
	if err := conn.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	n, err := conn.Read(buf)
	if err != nil {
		return err
	}
	if got := string(buf[:n]); got != message {
		return fmt.Errorf("answer %q, want %q", got, message)
	}
	return nil
}
