package dnsserver_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/dnsserver"
	"portolan.dev/portolan/internal/dns/respond"
)

// slow is an Answerer that, for the query "slow", signals that it began and then waits.
type slow struct {
	t              *testing.T
	began, goAhead chan struct{}
}

func newSlow(t *testing.T) *slow {
	t.Helper()
	return &slow{t: t, began: make(chan struct{}), goAhead: make(chan struct{})}
}

func (s *slow) Respond(packet []byte, client respond.Client, buf []byte) []byte {
	if strings.HasPrefix(string(packet), "slow") {
		select {
		case s.began <- struct{}{}:
		case <-s.t.Context().Done():
		}
		select {
		case <-s.goAhead:
		case <-s.t.Context().Done():
		}
	}
	return echo(packet, client, buf)
}

func (s *slow) begins() {
	s.t.Helper()
	receive(s.t, s.began, "a slow query")
}

func TestTCPSlowAnswerDelaysNoOtherClient(t *testing.T) {
	answerer := newSlow(t)
	s := start(t, dnsserver.Config{MaxInFlight: 1}, answerer.Respond)
	first, second := dialTCP(t, s.addr()), dialTCP(t, s.addr())
	first.ask("slow")
	answerer.begins()
	second.ask("quick")
	second.want("quick")
	close(answerer.goAhead)
	first.want("slow")
}

func TestTCPAnswersAllOfAPipeline(t *testing.T) {
	const queries = 2000
	c := dialTCP(t, start(t, dnsserver.Config{MaxInFlight: 7}, echo).addr())
	var pipeline []string
	for i := range queries {
		pipeline = append(pipeline, fmt.Sprintf("query %d", i))
	}
	c.ask(pipeline...)
	c.want(pipeline...)
}

// TestTCPAnswersToPipelinedQueriesAreSentTogether checks that the answers to queries
// received together are sent together, whatever arrives later.
func TestTCPAnswersToPipelinedQueriesAreSentTogether(t *testing.T) {
	answerer := newSlow(t)
	c := dialTCP(t, start(t, dnsserver.Config{}, answerer.Respond).addr())
	c.ask("one", "two", "slow")
	answerer.begins()
	c.wantNothing()
	close(answerer.goAhead)
	c.want("one", "two", "slow")
}

// TestTCPMessagesOfEachLength covers messages that fit into the read buffer, longer
// ones, and sequences of both.
func TestTCPMessagesOfEachLength(t *testing.T) {
	c := dialTCP(t, start(t, dnsserver.Config{}, echo).addr())
	lengths := []int{1, 2045, 2046, 2047, 2048, 3, 5000, 0, 65535, 1, 2046, 2046, 4096}
	var messages []string
	for _, n := range lengths {
		messages = append(messages, longest[:n])
	}
	var asking sync.WaitGroup
	asking.Go(func() { _, _ = c.Write(framed(messages...)) })
	c.want(messages...)
	asking.Wait()
}

func TestTCPAnswersAfterHalfClose(t *testing.T) {
	answerer := newSlow(t)
	c := dialTCP(t, start(t, dnsserver.Config{}, answerer.Respond).addr())
	c.ask("slow", "quick")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answerer.begins()
	close(answerer.goAhead)
	c.want("slow", "quick")
	c.wantEnd()
}

func TestTCPMessages(t *testing.T) {
	noAnswer := func(packet []byte, client respond.Client, buf []byte) []byte {
		if len(packet) == 0 || packet[0] == '-' {
			return nil
		}
		return echo(packet, client, buf)
	}
	tests := map[string]struct{ ask, want []string }{
		"the shortest":                      {[]string{"x"}, []string{"x"}},
		"the longest":                       {[]string{longest}, []string{longest}},
		"one of no octets gets no answer":   {[]string{"", "", "next"}, []string{"next"}},
		"one without answer is passed over": {[]string{"-", "next"}, []string{"next"}},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			c := dialTCP(t, start(t, dnsserver.Config{}, noAnswer).addr())
			c.ask(tt.ask...)
			c.want(tt.want...)
			if err := c.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			c.wantEnd()
		})
	}
}

func TestTCPAcceptsFragmentedMessages(t *testing.T) {
	c := dialTCP(t, start(t, dnsserver.Config{}, echo).addr())
	if err := c.SetNoDelay(true); err != nil {
		t.Fatal(err)
	}
	for _, b := range framed("in single octets", "one after another") {
		if _, err := c.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	c.want("in single octets", "one after another")
}

// TestTCPAbortedConnections checks that they have no effect on other connections.
func TestTCPAbortedConnections(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	garbage := make([]byte, 1<<20)
	for i := range garbage {
		garbage[i] = byte(rnd.Uint32())
	}
	tests := map[string][]byte{
		"before anything":          nil,
		"in a length":              {0},
		"before a message":         {0, 5},
		"in a message":             framed("hello")[:4],
		"in the second message":    append(framed("hello"), 0, 5, 'h'),
		"in the longest message":   framed(longest)[:60000],
		"after a megabyte garbage": garbage,
	}
	for claim, sent := range tests {
		for how, breakOff := range map[string]func(*client) error{
			"orderly":    (*client).CloseWrite,
			"by a reset": func(c *client) error { _ = c.SetLinger(0); return c.Close() },
		} {
			t.Run(claim+"/"+how, func(t *testing.T) {
				s := start(t, dnsserver.Config{}, echo)
				other := dialTCP(t, s.addr())
				c := dialTCP(t, s.addr())
				read := make(chan error, 1)
				go func() {
					_, err := io.Copy(io.Discard, c)
					read <- err
				}()
				if _, err := c.Write(sent); err != nil {
					t.Fatal(err)
				}
				if err := breakOff(c); err != nil {
					t.Fatal(err)
				}
				if err := receive(t, read, "the end of the connection"); isTimeout(err) {
					t.Errorf("the server did not end the connection: %v", err)
				}
				other.ask("hello")
				other.want("hello")
			})
		}
	}
}

// TestTCPUnderChurn checks that connections that are opened, evicted, aborted and cut
// while the server stops get correct answers or none.
func TestTCPUnderChurn(t *testing.T) {
	s := start(t, dnsserver.Config{MaxConnections: 5, MaxInFlight: 3, MaxQueries: 2}, echo)
	var wg sync.WaitGroup
	halfway := make(chan struct{}, 100)
	for i := range 16 {
		wg.Go(func() {
			for j := 0; ; j++ {
				query := fmt.Sprintf("query %d of client %d", j, i)
				if !churn(t, s, query, j) {
					return
				}
				if j == 10 {
					halfway <- struct{}{}
				}
			}
		})
	}
	for range 4 {
		receive(t, halfway, "connections")
	}
	s.stop()
	if err := s.end(); err != nil {
		t.Errorf("Run() = %v, want nil", err)
	}
	wg.Wait()
}

// churn opens one connection of the n-th kind. It reports whether it could connect to
// the server.
func churn(t *testing.T, s *running, query string, n int) bool {
	t.Helper()
	conn, err := net.DialTimeout("tcp", s.addr().String(), patience)
	if err != nil {
		return false
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Error(err)
	}
	c := &client{TCPConn: conn.(*net.TCPConn), t: t}
	for range n % 4 {
		if _, err := c.Write(framed(query)); err != nil {
			return true
		}
	}
	if n%3 == 0 {
		return true
	}
	for range n % 4 {
		got, err := c.answer()
		if isTimeout(err) || err == nil && got != query {
			t.Errorf("answer to %q = %q, %v, want the same", query, got, err)
		}
		if err != nil {
			break
		}
	}
	return true
}

// TestAcceptErrorsAreRetriedWithPauses covers errors such as too many open files.
func TestAcceptErrorsAreRetriedWithPauses(t *testing.T) {
	const errs = 3
	log := make(logLines, 100)
	s := listen(t, dnsserver.Config{Log: log.logger()}, echo)
	if err := s.Listener().SetDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	s.run()
	for range errs {
		if line := receive(t, log, "an error in the log"); !strings.Contains(line, "accept") {
			t.Fatalf("log: %s, want the error of accepting", line)
		}
	}
	if got, least := time.Since(begun), (errs-1)*50*time.Millisecond; got < least {
		t.Errorf("%d errors in %s, want %s at least", errs, got, least)
	}
	if err := s.Listener().SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	c := dialTCP(t, s.addr())
	c.ask("hello")
	c.want("hello")
}
