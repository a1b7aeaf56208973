package dnsserver_test

import (
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/dnsserver"
	"portolan.dev/portolan/internal/dns/respond"
)

// stillServed checks that the connection is alive.
func (c *client) stillServed() {
	c.t.Helper()
	c.ask("still there?")
	c.want("still there?")
}

func TestTCPEvictsTheLongestIdleConnection(t *testing.T) {
	s := start(t, dnsserver.Config{MaxConnections: 3}, echo)
	a, b, c := dialTCP(t, s.addr()), dialTCP(t, s.addr()), dialTCP(t, s.addr())
	for _, client := range []*client{a, b, c, a} {
		client.stillServed()
	}
	d := dialTCP(t, s.addr())
	d.stillServed()
	b.wantCut()
	for _, client := range []*client{c, a, d} {
		client.stillServed()
	}
	e := dialTCP(t, s.addr())
	e.stillServed()
	c.wantCut()
	a.stillServed()
	d.stillServed()
}

// TestIncompleteQueryDoesNotEndIdleness checks that a client that sends a query octet by
// octet counts as idle.
func TestIncompleteQueryDoesNotEndIdleness(t *testing.T) {
	s := start(t, dnsserver.Config{MaxConnections: 2}, echo)
	trickles, asks := dialTCP(t, s.addr()), dialTCP(t, s.addr())
	asks.stillServed()
	if _, err := trickles.Write(framed("not all")[:5]); err != nil {
		t.Fatal(err)
	}
	dialTCP(t, s.addr()).stillServed()
	trickles.wantCut()
	asks.stillServed()
}

func TestQueryEndsIdleness(t *testing.T) {
	answerer := newSlow(t)
	s := start(t, dnsserver.Config{MaxConnections: 2}, answerer.Respond)
	waits, idle := dialTCP(t, s.addr()), dialTCP(t, s.addr())
	idle.stillServed()
	waits.ask("slow")
	answerer.begins()
	dialTCP(t, s.addr()).stillServed()
	idle.wantCut()
	close(answerer.goAhead)
	waits.want("slow")
}

// TestAnswerEndsIdleness checks that a connection is not idle while it waits for an
// answer or receives it.
func TestAnswerEndsIdleness(t *testing.T) {
	answerer := newSlow(t)
	s := start(t, dnsserver.Config{MaxConnections: 2}, answerer.Respond)
	waits, idle := dialTCP(t, s.addr()), dialTCP(t, s.addr())
	waits.ask("slow")
	answerer.begins()
	idle.stillServed()
	close(answerer.goAhead)
	waits.want("slow")
	dialTCP(t, s.addr()).stillServed()
	idle.wantCut()
	waits.stillServed()
}

func TestClosedConnectionsMakeRoom(t *testing.T) {
	s := start(t, dnsserver.Config{MaxConnections: 2}, echo)
	stays := dialTCP(t, s.addr())
	stays.stillServed()
	for range 200 {
		c := dialTCP(t, s.addr())
		c.stillServed()
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		c.wantEnd()
	}
	stays.stillServed()
}

// TestConnectionAtItsQueryLimitIsEvictedFirst checks that a connection with the maximum
// number of queries, which is only waiting for the client to close it, is evicted first.
func TestConnectionAtItsQueryLimitIsEvictedFirst(t *testing.T) {
	s := start(t, dnsserver.Config{MaxConnections: 2, MaxQueries: 1}, echo)
	silent, asked := dialTCP(t, s.addr()), dialTCP(t, s.addr())
	asked.stillServed()
	asked.wantEnd()
	dialTCP(t, s.addr()).stillServed()
	silent.stillServed()
}

// TestIdleConnectionIsClosed checks that a connection is closed after the idle timeout
// and not before, wherever in a message the client stops.
func TestIdleConnectionIsClosed(t *testing.T) {
	const idle = 50 * time.Millisecond
	tests := map[string][]byte{
		"from the beginning":   nil,
		"in a length":          {0},
		"after a length":       {0, 5},
		"in a message":         framed("hello")[:4],
		"after a query":        framed("hello"),
		"after one of none":    framed(""),
		"in the second length": append(framed("hello"), 0),
	}
	for claim, sent := range tests {
		t.Run(claim, func(t *testing.T) {
			s := start(t, dnsserver.Config{Idle: idle}, echo)
			begun := time.Now()
			c := dialTCP(t, s.addr())
			if _, err := c.Write(sent); err != nil {
				t.Fatal(err)
			}
			c.wantCut()
			if d := time.Since(begun); d < idle {
				t.Errorf("closed after %s, want %s", d, idle)
			}
		})
	}
}

// TestSlowQueryIsCut checks that the idle timeout limits the time of each message, even
// if octets keep arriving.
func TestSlowQueryIsCut(t *testing.T) {
	c := dialTCP(t, start(t, dnsserver.Config{Idle: 50 * time.Millisecond}, echo).addr())
	if _, err := c.Write(framed(longest)[:2]); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; {
		<-tick.C
		if _, err := c.Write([]byte{'x'}); err != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("a message that takes %s is still read", patience)
		}
	}
}

// TestClientThatNeverReadsIsCut checks that a connection is closed when its send buffer
// stays full.
func TestClientThatNeverReadsIsCut(t *testing.T) {
	s := start(t, dnsserver.Config{Idle: 100 * time.Millisecond, MaxInFlight: 10}, echoOrBig)
	never := dialTCP(t, s.addr())
	ended := never.pour(framed(big))
	s.servesNewcomers()
	if err := receive(t, ended, "the connection's end"); isTimeout(err) {
		t.Errorf("the server still serves a client that never reads: %v", err)
	}
	s.servesNewcomers()
}

// servesNewcomers checks that the server answers on a new connection. On a busy
// machine, the server may close a new connection as idle before its first query.
func (r *running) servesNewcomers() {
	r.t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		c := dialTCP(r.t, r.addr())
		if _, err = c.Write(framed("hello")); err != nil {
			continue
		}
		var got string
		if got, err = c.answer(); err == nil && got == "hello" {
			return
		}
	}
	r.t.Fatalf("no new connection is served: %v", err)
}

// TestMaxInFlight checks that pending answers are sent before more queries are
// processed.
func TestMaxInFlight(t *testing.T) {
	const allowed = 3
	answerer := newSlow(t)
	s := start(t, dnsserver.Config{MaxInFlight: allowed}, answerer.Respond)
	c := dialTCP(t, s.addr())
	c.ask("one", "two", "three", "slow four", "five", "six", "slow seven")
	c.want("one", "two", "three")
	answerer.begins()
	answerer.goAhead <- struct{}{}
	c.want("slow four", "five", "six")
	answerer.begins()
	close(answerer.goAhead)
	c.want("slow seven")
}

func TestMaxQueries(t *testing.T) {
	tests := map[string]struct {
		ask, want []string
	}{
		"as many":           {[]string{"a", "a", "a"}, []string{"a", "a", "a"}},
		"more":              {[]string{"a", "a", "a", "a", "a"}, []string{"a", "a", "a"}},
		"those of nothing":  {[]string{"", "", "", ""}, []string{"", "", ""}},
		"more, large ones":  {[]string{big, big, big, big}, []string{longest, longest, longest}},
		"many more":         {strings.Split(strings.Repeat("a", 1000), ""), []string{"a", "a", "a"}},
		"more of long ones": {[]string{longest, longest, longest, longest, longest}, []string{longest, longest, longest}},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			s := listen(t, dnsserver.Config{MaxQueries: 3}, echoOrBig)
			s.SetLingerTime(patience)
			s.run()
			c := dialTCP(t, s.addr())
			// The client's receive buffer is small, so that answers are in transit when
			// the server ends the connection.
			if err := c.SetReadBuffer(smallBuffer); err != nil {
				t.Fatal(err)
			}
			var asking sync.WaitGroup
			asking.Go(func() { _, _ = c.Write(framed(tt.ask...)) })
			c.want(tt.want...)
			c.wantEnd()
			c.Close()
			asking.Wait()
			dialTCP(t, s.addr()).stillServed()
		})
	}
}

// TestConnectionWithMostMemoryIsCut checks that at the memory limit the connection that
// uses most is closed, not the one that exceeds the limit.
func TestConnectionWithMostMemoryIsCut(t *testing.T) {
	s := listen(t, dnsserver.Config{}, echoOrBig)
	// Room for the answer that a client does not read, and for little more.
	s.SetMaxHeld(2 + len(longest) + 500)
	s.run()
	modest := dialTCP(t, s.addr())
	modest.stillServed()
	ended := dialTCP(t, s.addr()).pour(framed(big))
	query := longest[:1000]
	for deadline := time.Now().Add(patience); ; {
		modest.ask(query)
		modest.want(query)
		select {
		case err := <-ended:
			if isTimeout(err) {
				t.Fatalf("the server still serves a client that never reads: %v", err)
			}
			modest.stillServed()
			return
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s the one that holds most is not cut", patience)
		}
	}
}

// TestAnsweredQueriesUseNoMemory checks that answered queries do not count as memory in
// use, however many there are.
func TestAnsweredQueriesUseNoMemory(t *testing.T) {
	answer := func(packet []byte, client respond.Client, buf []byte) []byte {
		if packet[0] == '-' {
			return nil
		}
		return echo(packet, client, buf)
	}
	s := listen(t, dnsserver.Config{}, answer)
	s.SetMaxHeld(10_000)
	s.run()
	c := dialTCP(t, s.addr())
	for range 100 {
		c.ask("-"+longest[:1000], longest[:1000])
		c.want(longest[:1000])
	}
}

// TestQueriesCountAsMemory checks that incomplete queries and those in progress count.
func TestQueriesCountAsMemory(t *testing.T) {
	const clients, room = 20, 10
	tests := map[string]string{
		"in part":   string(framed(longest)[:1000]),
		"worked on": string(framed("slow" + longest[4:])),
	}
	for claim, sent := range tests {
		t.Run(claim, func(t *testing.T) {
			answerer := newSlow(t)
			go func() {
				for {
					select {
					case <-answerer.began:
					case <-t.Context().Done():
						return
					}
				}
			}()
			s := listen(t, dnsserver.Config{}, answerer.Respond)
			s.SetMaxHeld(room*len(longest) + 1000)
			s.run()
			cut := make(chan struct{}, clients)
			for range clients {
				c := dialTCP(t, s.addr())
				if _, err := c.Write([]byte(sent)); err != nil {
					t.Fatal(err)
				}
				go func() {
					if _, err := io.Copy(io.Discard, c); !isTimeout(err) {
						cut <- struct{}{}
					}
				}()
			}
			for range clients - room {
				receive(t, cut, "a connection to be cut")
			}
			dialTCP(t, s.addr()).stillServed()
			close(answerer.goAhead)
		})
	}
}
