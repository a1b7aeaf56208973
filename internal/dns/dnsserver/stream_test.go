package dnsserver_test

import (
	"context"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/dnsserver"
	"portolan.dev/portolan/internal/dns/respond"
)

// streaming answers "stream" with many of the longest messages, and all other queries
// at once.
type streaming struct {
	begun, ended atomic.Int32 // requested messages, and finished answers
}

const streamed = 200

func (s *streaming) Respond(packet []byte, _ respond.Client, buf []byte) ([]byte, dnsserver.Deferred) {
	if strings.HasPrefix(string(packet), "stream") {
		return nil, s
	}
	return append(buf, packet...), nil
}

func (s *streaming) Answers(ctx context.Context) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		defer s.ended.Add(1)
		message := []byte(longest)
		for range streamed {
			s.begun.Add(1)
			if ctx.Err() != nil || !yield(message) {
				return
			}
		}
	}
}

func startStreaming(t *testing.T, idle time.Duration) (*running, *streaming) {
	t.Helper()
	s := new(streaming)
	r := listen(t, dnsserver.Config{Idle: idle}, nil)
	r.SetAnswerer(s)
	return r.run(), s
}

// awaitEnd waits until an answer has ended.
func (s *streaming) awaitEnd(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(patience); s.ended.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the answer does not end")
		}
	}
}

// TestStream checks that an answer of many messages is complete, and that other answers
// on the connection are sent between them.
func TestStream(t *testing.T) {
	r, s := startStreaming(t, time.Hour)
	c := dialTCP(t, r.addr())
	c.ask("stream", "now")
	messages, others := 0, 0
	for messages+others < streamed+1 {
		switch m, err := c.answer(); {
		case err != nil:
			t.Fatal(err)
		case m == "now":
			others++
		case m == longest:
			messages++
		}
	}
	if messages != streamed || others != 1 {
		t.Errorf("%d messages and %d other answers, want %d and 1", messages, others, streamed)
	}
	s.awaitEnd(t)
}

// TestStreamIsBuiltOnDemand checks that a message is built only after the previous one
// was sent, and that a client that does not read ends the stream.
func TestStreamIsBuiltOnDemand(t *testing.T) {
	r, s := startStreaming(t, 200*time.Millisecond)
	c := dialTCP(t, r.addr())
	if err := c.SetReadBuffer(smallBuffer); err != nil {
		t.Fatal(err)
	}
	c.ask("stream")
	s.awaitEnd(t)
	if n := s.begun.Load(); n == streamed {
		t.Errorf("all of %d messages were made for a client that takes none", n)
	}
}

// TestStreamShutdown checks that at shutdown the server waits for a stream, up to a
// limit.
func TestStreamShutdown(t *testing.T) {
	r, s := startStreaming(t, time.Hour)
	r.SetDrainTime(100 * time.Millisecond)
	c := dialTCP(t, r.addr())
	if err := c.SetReadBuffer(smallBuffer); err != nil {
		t.Fatal(err)
	}
	c.ask("stream")
	for end := time.Now().Add(patience); s.begun.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the answer does not begin")
		}
	}
	r.stop()
	if err := r.end(); err != nil {
		t.Errorf("Run() = %v", err)
	}
	if s.ended.Load() != 1 {
		t.Error("the answer did not end")
	}
}
