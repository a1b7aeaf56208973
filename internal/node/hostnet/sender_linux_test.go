package hostnet_test

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"portolan.dev/portolan/test/namespace/namespacetest"
)

// sender sends queries to an address from the Pod repeatedly, each from a different
// port, as resolvers do. It counts those without an answer.
type sender struct {
	sockets []*net.UDPConn
	to      netip.AddrPort
	stop    chan struct{}
	done    sync.WaitGroup

	mu      sync.Mutex
	sent    int
	waiting map[uint32]bool
	last    string // the name in the latest answer
	latest  uint32
}

const (
	senderSockets = 64
	senderPause   = 500 * time.Microsecond
)

func (n *node) startSender(t *testing.T, to netip.Addr) *sender {
	t.Helper()
	s := &sender{to: netip.AddrPortFrom(to, port), stop: make(chan struct{}), waiting: make(map[uint32]bool)}
	namespacetest.Do(t, n.pod, func() {
		for range senderSockets {
			conn, err := net.ListenUDP("udp", nil)
			must(t, err)
			t.Cleanup(func() { conn.Close() })
			s.sockets = append(s.sockets, conn)
			go s.receive(conn)
		}
	})
	s.done.Go(s.send)
	return s
}

// send sends queries until it is stopped.
func (s *sender) send() {
	tick := time.NewTicker(senderPause)
	defer tick.Stop()
	for i := uint32(1); ; i++ {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		s.mu.Lock()
		s.sent++
		s.waiting[i] = true
		s.mu.Unlock()
		_, _ = s.sockets[i%senderSockets].WriteToUDPAddrPort(binary.BigEndian.AppendUint32(nil, i), s.to)
	}
}

func (s *sender) receive(conn *net.UDPConn) {
	var buf [512]byte
	for {
		n, _, err := conn.ReadFromUDPAddrPort(buf[:])
		if err != nil {
			return
		}
		name, number, ok := bytes.Cut(buf[:n], []byte(" "))
		if !ok || len(number) != 4 {
			continue
		}
		i := binary.BigEndian.Uint32(number)
		s.mu.Lock()
		delete(s.waiting, i)
		if i > s.latest {
			s.latest, s.last = i, strings.Clone(string(name))
		}
		s.mu.Unlock()
	}
}

// await waits until name answers a query that is sent from now on.
func (s *sender) await(t *testing.T, name string) {
	t.Helper()
	s.mu.Lock()
	since := uint32(s.sent)
	s.mu.Unlock()
	until(t, name+" answers", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.latest > since && s.last == name
	})
}

// end returns the number of queries sent, and the number not answered within a second.
func (s *sender) end(t *testing.T) (sent, lost int) {
	t.Helper()
	close(s.stop)
	s.done.Wait()
	missing := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.waiting)
	}
	for deadline := time.Now().Add(time.Second); missing() > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	return s.sent, missing()
}
