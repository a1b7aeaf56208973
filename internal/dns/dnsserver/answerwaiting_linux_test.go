package dnsserver_test

import (
	"sync"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/dnsserver"
	"portolan.dev/portolan/internal/dns/respond"
)

// TestAnswerWaiting checks that packets in the receive buffer are answered while no
// worker serves the socket, without allocations.
func TestAnswerWaiting(t *testing.T) {
	var answered int
	s := listen(t, dnsserver.Config{}, func(packet []byte, client respond.Client, buf []byte) []byte {
		answered++
		return echo(packet, client, buf)
	})
	defer s.Close()
	s.KeepOneUDPSocket()
	remove, err := s.AddToAnswerWaiting()
	if err != nil {
		t.Fatal(err)
	}
	conn := dialUDP(t, s.addr())
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	query, answer := []byte("query"), make([]byte, 100)
	serve := func() error {
		for before, deadline := answered, time.Now().Add(patience); answered == before && time.Now().Before(deadline); {
			time.Sleep(dnsserver.LookPause)
			s.AnswerWaiting()
		}
		return nil
	}
	allocs := testing.AllocsPerRun(100, func() {
		if err := roundTrip(conn, query, answer, serve); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("an answer takes %v allocations, want 0", allocs)
	}
	remove()
	if _, err := conn.Write(query); err != nil {
		t.Fatal(err)
	}
	time.Sleep(dnsserver.LookPause)
	s.AnswerWaiting()
	if !s.TakePacket(0) {
		t.Error("a packet was taken from a socket that is not looked at any more")
	}
}

// TestAnswerWaitingBesideTheServer checks that each client gets the answer to its own
// query once, whether a worker or AnswerWaiting serves it, also during shutdown.
func TestAnswerWaitingBesideTheServer(t *testing.T) {
	s := start(t, dnsserver.Config{}, echo)
	const lookers = 3
	done := make(chan struct{})
	var looking sync.WaitGroup
	for range lookers {
		looking.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					s.AnswerWaiting()
				}
			}
		})
	}
	wantEchoes(t, s.addr())
	s.stop()
	if err := receive(t, s.ended, "the end of Run"); err != nil {
		t.Error(err)
	}
	close(done)
	looking.Wait()
	s.awake = false
}
