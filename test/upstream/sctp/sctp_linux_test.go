package sctp

import (
	"context"
	"errors"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// TestConnect has an association, whose packets connection tracking takes for one, and attempts without a
// server and with a rule that drops them.
func TestConnect(t *testing.T) {
	if !namespacetest.OnNode(t) {
		return
	}
	const port = 9003
	server, err := Listen(port)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()
	t.Cleanup(func() {
		server.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	// The server answers from an address that is not the link's first.
	if err := namespace.IP("address add 192.0.2.7/32 dev lo"); err != nil {
		t.Fatal(err)
	}
	nft(t, `table inet t {
		counter established {}
		chain in {
			type filter hook input priority 0
			sctp dport 9003 ct state invalid drop
			sctp dport 9003 ct state established counter name established
			sctp dport 9005 drop
		}
	}`)
	addr := netip.MustParseAddr("192.0.2.7")
	patient, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := Connect(patient, netip.AddrPortFrom(addr, port)); err != nil {
		t.Errorf("Connect(%s, %d) = %v", addr, port, err)
	}
	if text := nft(t, "list counter inet t established"); strings.Contains(text, "packets 0 ") {
		t.Errorf("no packet of an established association: %s", text)
	}
	for _, other := range []uint16{9004, 9005} {
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := Connect(short, netip.AddrPortFrom(addr, other)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Connect(%s, %d) = %v, want %v", addr, other, err, context.DeadlineExceeded)
		}
		cancel()
	}
}

// TestDecode has what is not a packet with a chunk.
func TestDecode(t *testing.T) {
	t.Parallel()
	whole := packet{source: 1, destination: 2, tag: 3, kind: cookieEcho, value: []byte("abcd")}.encode()
	long, short := slices.Clone(whole), slices.Clone(whole)
	long[headerLength+3]++
	short[headerLength+3] = chunkLength - 1
	for claim, data := range map[string][]byte{
		"empty": nil, "no chunk": whole[:headerLength], "cut": whole[:len(whole)-1],
		"a chunk longer than the packet": long, "a chunk shorter than its header": short,
	} {
		if p, ok := decode(data); ok {
			t.Errorf("%s: decode(%x) = %v", claim, data, p)
		}
	}
	if p, ok := decode(whole); !ok || string(p.value) != "abcd" || p.tag != 3 || p.destination != 2 {
		t.Errorf("decode(%x) = %v, %t", whole, p, ok)
	}
}

// nft runs a script of nft(8) and returns what it prints.
func nft(t *testing.T, script string) string {
	t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("nft: %v\n%s", err, out)
	}
	return string(out)
}
