package main

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
)

func TestParseBehavior(t *testing.T) {
	now := time.Unix(1e9, 0)
	for command, want := range map[string]*behavior{
		"good":       {},
		"dead":       {loss: 100},
		"loss 1.5":   {loss: 1.5},
		"stall 3s\n": {stalls: now.Add(3 * time.Second)},
		"loss 101":   nil,
		"loss":       nil,
		"loss -1":    nil,
		"stall 3":    nil,
		"bad":        nil,
		"":           nil,
	} {
		got, err := parseBehavior(command, now)
		if (err != nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("parseBehavior(%q) = %v, %v; want %v", command, got, err, want)
		}
	}
}

func TestDrops(t *testing.T) {
	const packets = 100_000
	random := rand.New(rand.NewPCG(1, 2))
	for _, loss := range []float64{0, 1, 10, 100} {
		b := behavior{loss: loss}
		dropped := 0
		for range packets {
			if b.drops(random) {
				dropped++
			}
		}
		got := 100 * float64(dropped) / packets
		if got < .9*loss || got > 1.1*loss || b.dead() != (loss == 100) {
			t.Errorf("with a loss of %.0f %%, %.2f %% are dropped, dead is %t", loss, got, b.dead())
		}
	}
}

func TestStallEnds(t *testing.T) {
	now := time.Unix(1e9, 0)
	b := behavior{stalls: now.Add(time.Second)}
	for after, want := range map[time.Duration]time.Duration{0: time.Second, 600 * time.Millisecond: 400 * time.Millisecond, 2 * time.Second: 0} {
		if got := b.stall(now.Add(after)); got != want {
			t.Errorf("after %s it stalls for %s more, want %s", after, got, want)
		}
	}
}

func TestCommandsOverHTTP(t *testing.T) {
	s := newServer(60)
	s.asked.Store(7)
	for command, want := range map[string]int{"dead": http.StatusOK, "nonsense": http.StatusBadRequest} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(command)))
		if w.Code != want {
			t.Errorf("%q is answered with %d, want %d", command, w.Code, want)
		}
		if want == http.StatusOK && w.Body.String() != "7\n" {
			t.Errorf("%q is answered with %q, want how many queries came", command, w.Body)
		}
	}
	if !s.behavior.Load().dead() {
		t.Error("the server does not obey")
	}
}

func TestConnection(t *testing.T) {
	client, conn := net.Pipe()
	defer client.Close()
	s := newServer(60)
	go s.serveConnection(conn)
	asked, err := dnswire.NewQuery(dnswire.QuerySpec{Name: "a.example.", Type: dnswire.TypeA})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(asked))), asked...)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 512)
	n, err := client.Read(buf)
	if err != nil || n < 2 || int(binary.BigEndian.Uint16(buf)) != n-2 {
		t.Fatalf("%d octets come, %v", n, err)
	}
	if m, err := dnswire.ParseMessage(buf[2:n]); err != nil || len(m.Answer) != 1 {
		t.Errorf("the answer is %+v, %v", m, err)
	}
}
