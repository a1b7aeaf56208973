package dnsserver_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/dnsserver"
	"portolan.dev/portolan/internal/dns/respond"
)

func TestStopAnswersQueriesReadOverUDP(t *testing.T) {
	answerer := newSlow(t)
	s := start(t, dnsserver.Config{}, answerer.Respond)
	conn, idle := dialUDP(t, s.addr()), dialTCP(t, s.addr())
	idle.stillServed()
	if _, err := conn.Write([]byte("slow")); err != nil {
		t.Fatal(err)
	}
	answerer.begins()
	s.stop()
	idle.wantEnd() // the TCP shutdown does not wait for UDP
	close(answerer.goAhead)
	buf := make([]byte, 100)
	if n, err := conn.Read(buf); err != nil || string(buf[:n]) != "slow" {
		t.Errorf("answer = %q, %v, want %q", buf[:n], err, "slow")
	}
	if err := s.end(); err != nil {
		t.Errorf("Run() = %v, want nil", err)
	}
}

// TestStopAnswersQueriesInTheUDPBuffer checks that queries received by the kernel before
// the stop are answered.
func TestStopAnswersQueriesInTheUDPBuffer(t *testing.T) {
	answerer := newSlow(t)
	s := start(t, dnsserver.Config{}, answerer.Respond)
	conn := dialUDP(t, s.addr())
	if _, err := conn.Write([]byte("slow")); err != nil {
		t.Fatal(err)
	}
	answerer.begins()
	const waiting = 100
	for i := range waiting {
		if _, err := fmt.Fprintf(conn, "query %d", i); err != nil {
			t.Fatal(err)
		}
	}
	s.stop()
	close(answerer.goAhead)
	buf := make([]byte, 100)
	for i := range 1 + waiting {
		if _, err := conn.Read(buf); err != nil {
			t.Fatalf("%d answers of %d: %v", i, 1+waiting, err)
		}
	}
	if err := s.end(); err != nil {
		t.Errorf("Run() = %v, want nil", err)
	}
}

func TestStopAnswersQueriesReadOverTCP(t *testing.T) {
	answerer := newSlow(t)
	s := start(t, dnsserver.Config{Listen: ownPort(t)}, answerer.Respond)
	idle, waits := dialTCP(t, s.addr()), dialTCP(t, s.addr())
	idle.stillServed()
	waits.ask("slow", "read as well")
	answerer.begins()
	s.stop()
	idle.wantEnd()
	if conn, err := net.DialTimeout("tcp", s.addr().String(), patience); err == nil {
		conn.Close()
		t.Errorf("%s takes connections after the stop", s.addr())
	}
	close(answerer.goAhead)
	waits.want("slow", "read as well")
	waits.wantEnd()
	if err := s.end(); err != nil {
		t.Errorf("Run() = %v, want nil", err)
	}
}

// TestStopLosesNoAnswerWithUnreadQueries uses a client that has sent more queries than
// the server read and that receives answers slowly.
func TestStopLosesNoAnswerWithUnreadQueries(t *testing.T) {
	began, goAhead := make(chan struct{}), make(chan struct{})
	s := listen(t, dnsserver.Config{MaxInFlight: 3}, func(packet []byte, client respond.Client, buf []byte) []byte {
		select {
		case began <- struct{}{}:
		case <-goAhead:
		case <-t.Context().Done():
		}
		select {
		case <-goAhead:
		case <-t.Context().Done():
		}
		return echoOrBig(packet, client, buf)
	})
	s.SetLingerTime(patience)
	s.SetDrainTime(patience)
	s.run()
	idle, c := dialTCP(t, s.addr()), dialTCP(t, s.addr())
	if err := c.SetReadBuffer(smallBuffer); err != nil {
		t.Fatal(err)
	}
	c.ask(strings.Split(strings.Repeat(" "+big, 1000)[1:], " ")...)
	receive(t, began, "a query")
	s.stop()
	idle.wantEnd()
	close(goAhead)
	answers := 0
	got, err := c.answer()
	for ; err == nil && got == longest; got, err = c.answer() {
		answers++
	}
	if !errors.Is(err, io.EOF) || answers < 3 {
		t.Errorf("after %d answers: %s, %v, want at least 3, then %v", answers, brief(got), err, io.EOF)
	}
}

// TestStopLosesNoAnswerInTheSendBuffer uses a client that has reached the query limit
// and continues to send.
func TestStopLosesNoAnswerInTheSendBuffer(t *testing.T) {
	answered := make(chan struct{}, 3)
	s := listen(t, dnsserver.Config{MaxQueries: 3}, func(packet []byte, client respond.Client, buf []byte) []byte {
		if string(packet) == big {
			answered <- struct{}{}
		}
		return echoOrBig(packet, client, buf)
	})
	s.SetLingerTime(patience)
	s.SetDrainTime(patience)
	s.run()
	idle, c := dialTCP(t, s.addr()), dialTCP(t, s.addr())
	if err := c.SetReadBuffer(smallBuffer); err != nil {
		t.Fatal(err)
	}
	c.ask(big, big, big)
	for range 3 {
		receive(t, answered, "a query")
	}
	other := dialUDP(t, s.addr())
	for range 50 { // time for the server to send all it can
		wantEcho(t, other, "hello")
	}
	s.stop()
	idle.wantEnd()
	c.ask(big)
	c.want(longest, longest, longest)
	c.wantEnd()
}

// TestStopCutsClientsThatNeverRead checks that their connections are closed after the
// grace period.
func TestStopCutsClientsThatNeverRead(t *testing.T) {
	const queries = 400 // read at once; the answers are 26 MB, more than the send buffer holds
	var begins sync.Once
	answering := make(chan struct{})
	s := listen(t, dnsserver.Config{}, func(packet []byte, client respond.Client, buf []byte) []byte {
		begins.Do(func() { close(answering) })
		return echoOrBig(packet, client, buf)
	})
	s.SetDrainTime(50 * time.Millisecond)
	s.run()
	c := dialTCP(t, s.addr())
	if err := c.SetReadBuffer(smallBuffer); err != nil {
		t.Fatal(err)
	}
	c.ask(strings.Split(strings.Repeat(" "+big, queries)[1:], " ")...)
	receive(t, answering, "a query")
	s.stop()
	if err := s.end(); err != nil {
		t.Errorf("Run() = %v, want nil", err)
	}
}

// TestStopWaitsForNoClient checks that clients that keep their connection open do not
// delay the stop, whether they are silent or continue to send.
func TestStopWaitsForNoClient(t *testing.T) {
	tests := map[string]func(c *client){
		"silent":            func(*client) {},
		"in a message":      func(c *client) { _, _ = c.Write(framed("hello")[:4]) },
		"sends on and on":   func(c *client) { c.pour(framed("")) },
		"asks on and on":    func(c *client) { c.pour(framed("hello")) },
		"has ended its own": func(c *client) { _ = c.CloseWrite() },
	}
	for claim, behave := range tests {
		t.Run(claim, func(t *testing.T) {
			s := listen(t, dnsserver.Config{}, echo)
			s.SetLingerTime(20 * time.Millisecond)
			s.run()
			c := dialTCP(t, s.addr())
			c.stillServed()
			behave(c)
			s.stop()
			if err := s.end(); err != nil {
				t.Errorf("Run() = %v, want nil", err)
			}
		})
	}
}

func TestStopBeforeRun(t *testing.T) {
	s := listen(t, dnsserver.Config{}, echo)
	s.SetLingerTime(20 * time.Millisecond)
	waiting := dialTCP(t, s.addr()) // accepted by the system but not by the server
	s.run()
	s.stop()
	if err := s.end(); err != nil {
		t.Errorf("Run() = %v, want nil", err)
	}
	waiting.wantCut()
}
