package dnsserver_test

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/dnsserver"
	"portolan.dev/portolan/internal/dns/respond"
)

func TestUDPAnswersEachClient(t *testing.T) {
	wantEchoes(t, start(t, dnsserver.Config{}, echo).addr())
}

// wantEchoes checks that many clients that send different queries at once each get
// their own back.
func wantEchoes(t *testing.T, server netip.AddrPort) {
	t.Helper()
	const clients, queries = 20, 50
	var wg sync.WaitGroup
	for i := range clients {
		conn := dialUDP(t, server)
		wg.Go(func() {
			for j := range queries {
				query := fmt.Sprintf("query %d of client %d", j, i)
				if got, err := exchange(conn, query); err != nil || got != query {
					t.Errorf("answer to %q = %q, %v, want the same", query, got, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestUDPContinuesAfterBadPackets checks that a socket continues after packets without
// an answer and after answers that cannot be sent.
func TestUDPContinuesAfterBadPackets(t *testing.T) {
	const tooLong = "longer than a packet"
	answer := func(packet []byte, client respond.Client, buf []byte) []byte {
		switch string(packet) {
		case "":
			return nil
		case tooLong:
			return append(buf, longest...)
		}
		return echo(packet, client, buf)
	}
	tests := map[string]string{
		"an empty packet":               "",
		"an answer that can't be sent":  tooLong,
		"the longest packet there is":   longest[:65507],
		"a packet of one octet":         "\x00",
		"a packet longer than Ethernet": longest[:1501],
	}
	for claim, query := range tests {
		t.Run(claim, func(t *testing.T) {
			s := listen(t, dnsserver.Config{}, answer)
			s.KeepOneUDPSocket()
			s.run()
			first, second := dialUDP(t, s.addr()), dialUDP(t, s.addr())
			for range 3 {
				if _, err := first.Write([]byte(query)); err != nil {
					t.Fatal(err)
				}
			}
			wantEcho(t, second, "hello")
		})
	}
}

// TestUDPAnswersWithTheLongestPacket sends more such answers at once than fit into one
// batch.
func TestUDPAnswersWithTheLongestPacket(t *testing.T) {
	const clients, room = 20, 65507
	s := listen(t, dnsserver.Config{}, func(packet []byte, _ respond.Client, buf []byte) []byte {
		return append(append(buf, packet...), longest[len(packet):room]...)
	})
	s.KeepOneUDPSocket()
	conns := make([]*net.UDPConn, clients)
	for i := range conns {
		conns[i] = dialUDP(t, s.addr())
		if _, err := fmt.Fprintf(conns[i], "query %d", i); err != nil {
			t.Fatal(err)
		}
	}
	s.run()
	buf := make([]byte, len(longest))
	for i, conn := range conns {
		n, err := conn.Read(buf)
		if want := fmt.Sprintf("query %dx", i); err != nil || n != room || !strings.HasPrefix(string(buf), want) {
			t.Errorf("answer %d: %d octets, %s, %v, want %d octets, %s", i, n, brief(string(buf[:n])), err, room, want)
		}
	}
}

// TestUDPReadErrorsAreRetriedWithPauses checks that a socket whose reads fail does not
// use a whole processor, and works again when reads succeed.
func TestUDPReadErrorsAreRetriedWithPauses(t *testing.T) {
	const errs = 4
	log := make(logLines, 100)
	s := listen(t, dnsserver.Config{Log: log.logger()}, echo)
	conn := s.KeepOneUDPSocket()
	if err := conn.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	s.run()
	for range errs {
		line := receive(t, log, "an error in the log")
		if !strings.Contains(line, "i/o timeout") {
			t.Fatalf("log: %s, want the error of reading", line)
		}
	}
	if got, least := time.Since(begun), (errs-2)*50*time.Millisecond; got < least {
		t.Errorf("%d errors in %s, want %s at least", errs, got, least)
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	wantEcho(t, dialUDP(t, s.addr()), "hello")
}

func TestStopEndsAServerWhoseUDPSocketFails(t *testing.T) {
	log := make(logLines, 100)
	s := listen(t, dnsserver.Config{Log: log.logger()}, echo)
	if err := s.KeepOneUDPSocket().SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	s.run()
	receive(t, log, "an error in the log")
	s.stop()
	if err := s.end(); err != nil {
		t.Errorf("Run() = %v, want nil", err)
	}
}

func TestUDPAllocatesNothing(t *testing.T) {
	tests := map[string]struct {
		listen, to string
		query      string
	}{
		"an IPv4 address":    {"127.0.0.1:0", "127.0.0.1", "query"},
		"every IPv4 address": {"0.0.0.0:0", "127.0.0.1", "query"},
		"an IPv6 address":    {"[::1]:0", "::1", "query"},
		"every IPv6 address": {"[::]:0", "::1", "query"},
		"no answer":          {"127.0.0.1:0", "127.0.0.1", ""},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			needsAddress(t, tt.to)
			s := listen(t, dnsserver.Config{Listen: []netip.AddrPort{netip.MustParseAddrPort(tt.listen)}},
				func(packet []byte, client respond.Client, buf []byte) []byte {
					if len(packet) == 0 {
						return nil
					}
					return echo(packet, client, buf)
				})
			socket := s.KeepOneUDPSocket()
			defer s.Close()
			if err := socket.SetDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			conn := dialUDP(t, netip.AddrPortFrom(netip.MustParseAddr(tt.to), s.addr().Port()))
			serve, err := s.ServePackets()
			if err != nil {
				t.Fatal(err)
			}
			query, answer := []byte(tt.query), make([]byte, 100)
			allocs := testing.AllocsPerRun(1000, func() {
				if err := roundTrip(conn, query, answer, serve); err != nil {
					t.Fatal(err)
				}
			})
			if allocs != 0 {
				t.Errorf("answering %q takes %v allocations, want 0", tt.query, allocs)
			}
		})
	}
}

// roundTrip sends the query, makes serve answer it, and reads the answer unless the
// query is empty.
func roundTrip(conn *net.UDPConn, query, answer []byte, serve func() error) error {
	if _, err := conn.Write(query); err != nil {
		return err
	}
	if err := serve(); err != nil || len(query) == 0 {
		return err
	}
	n, err := conn.Read(answer)
	if err == nil && n != len(query) {
		return fmt.Errorf("answer of %d octets, want %d", n, len(query))
	}
	return err
}
