package droplog

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

const testGroup = 4711

// rules log what is dropped.
const rules = `table inet test {
	chain out {
		type filter hook output priority 0
		udp dport 5000 log prefix "test deny out out-5f2a: NetworkPolicy shop/web" snaplen 128 group 4711 drop
		udp dport 5001 log prefix "other" group 4711 drop
	}
}`

// nft runs nft(8) with commands.
func nft(t *testing.T, commands string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(commands)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
}

// await waits until a Log has so many lines.
func await(t *testing.T, l *Log, lines int) []Record {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		recent := l.Recent()
		if len(recent) >= lines {
			return recent
		}
		if time.Now().After(end) {
			t.Fatalf("%d lines after a minute, want %d; %+v", len(recent), lines, l.Stats())
		}
	}
}

// send sends packets to an address. The rules drop them, which the sender is told.
func send(t *testing.T, to string, n int) {
	t.Helper()
	conn, err := net.Dial("udp", to)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range n {
		if _, err := conn.Write(make([]byte, 1000)); err != nil && !errors.Is(err, unix.EPERM) {
			t.Fatal(err)
		}
	}
}

// TestPackets: packets that the kernel logs become lines; a Log whose group another one has
// waits for it.
func TestPackets(t *testing.T) {
	if !namespacetest.OnNode(t) {
		return
	}
	if err := namespace.IP("addr add 10.244.1.7/32 dev lo", "addr add 2001:db8::7/128 dev lo"); err != nil {
		t.Fatal(err)
	}
	nft(t, rules)
	start := func() (l *Log, stop func()) {
		l, _ = newTest(Config{Group: testGroup})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		return l, func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	first, stopFirst := start()
	awaitBound(t, first)
	send(t, "10.244.1.7:5000", 3)
	send(t, "[2001:db8::7]:5000", 1)
	lines := await(t, first, 2)
	if lines[0].Source.Is6() {
		lines[0], lines[1] = lines[1], lines[0]
	}
	addr := netip.MustParseAddr("10.244.1.7")
	if r := lines[0]; r.Source != addr || r.SourcePod != "shop/web-1" || r.Destination != addr || r.Protocol != "UDP" ||
		r.DestinationPort != 5000 || r.SourcePort == 0 || r.Packets != 3 || r.Direction != "egress" {
		t.Errorf("the line of the IPv4 packets is %+v", r)
	}
	if r := lines[1]; r.Destination != netip.MustParseAddr("2001:db8::7") || r.DestinationPort != 5000 {
		t.Errorf("the line of the IPv6 packet is %+v", r)
	}
	if s := first.Stats(); s.Foreign == 0 || s.Packets != 4 || s.Malformed != 0 {
		t.Errorf("Stats() = %+v", s)
	}
	third, _ := newTest(Config{Group: testGroup})
	if _, err := third.open(); err == nil || !strings.Contains(err.Error(), "another process reads the group") {
		t.Errorf("open() of a group that another process has = %v", err)
	}
	second, stopSecond := start()
	defer stopSecond()
	time.Sleep(100 * time.Millisecond) // it tries once while the first has the group; either way it gets it later
	stopFirst()
	awaitBound(t, second)
}

// awaitBound sends packets of other rules until a Log gets one.
func awaitBound(t *testing.T, l *Log) {
	t.Helper()
	for end := time.Now().Add(time.Minute); l.Stats() == (Stats{}); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no packet after a minute")
		}
		send(t, "10.244.1.7:5001", 1)
	}
}
