package droplog

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"portolan.dev/portolan/internal/policy/ruleset"
)

// parseTest reads prefixes such as "deny in CHAIN: REASON".
func parseTest(prefix string) (label Label, ok bool) {
	rest, ok := strings.CutPrefix(prefix, "test ")
	if !ok {
		return label, false
	}
	label.Event, rest, _ = strings.Cut(rest, " ")
	direction, rest, _ := strings.Cut(rest, " ")
	if direction == "out" {
		label.Direction = ruleset.Egress
	}
	label.Chain, label.Reason, _ = strings.Cut(rest, ": ")
	return label, true
}

const prefix = "test deny out out-5f2a: NetworkPolicy shop/web"

func podOf(addr netip.Addr) string {
	return map[string]string{"10.244.1.7": "shop/web-1", "10.244.1.8": "pay/db-0"}[addr.String()]
}

// newTest returns a Log and the lines that it writes.
func newTest(cfg Config) (*Log, *bytes.Buffer) {
	lines := new(bytes.Buffer)
	cfg.Parse, cfg.Pod = parseTest, podOf
	cfg.Log = slog.New(slog.NewTextHandler(lines, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	return New(cfg), lines
}

// ipv4 returns an IPv4 packet with ports.
func ipv4(from, to string, protocol uint8, fromPort, toPort uint16) []byte {
	b := make([]byte, 20, 24)
	b[0], b[9] = 0x45, protocol
	copy(b[12:], netip.MustParseAddr(from).AsSlice())
	copy(b[16:], netip.MustParseAddr(to).AsSlice())
	b = binary.BigEndian.AppendUint16(b, fromPort)
	return binary.BigEndian.AppendUint16(b, toPort)
}

// ipv6 returns an IPv6 packet with what follows the header.
func ipv6(from, to string, next uint8, rest ...byte) []byte {
	b := make([]byte, 40, 40+len(rest))
	b[0], b[6] = 0x60, next
	copy(b[8:], netip.MustParseAddr(from).AsSlice())
	copy(b[24:], netip.MustParseAddr(to).AsSlice())
	return append(b, rest...)
}

func TestParsePacket(t *testing.T) {
	t.Parallel()
	v4 := func(edit func(b []byte)) []byte {
		b := ipv4("192.0.2.1", "192.0.2.2", tcp, 1000, 80)
		edit(b)
		return b
	}
	from4, to4 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	from6, to6 := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	ports := []byte{3, 232, 0, 80, 0, 0, 0, 0}
	v6 := func(next uint8, rest ...byte) []byte { return ipv6("2001:db8::1", "2001:db8::2", next, rest...) }
	for claim, c := range map[string]struct {
		packet []byte
		want   packet
		fails  bool
	}{
		"IPv4":                 {v4(func([]byte) {}), packet{from4, to4, tcp, 1000, 80}, false},
		"IPv4 with options":    {append(v4(func(b []byte) { b[0] = 0x46 }), ports...), packet{from4, to4, tcp, 1000, 80}, false},
		"a later fragment":     {v4(func(b []byte) { b[7] = 1 }), packet{from4, to4, tcp, 0, 0}, false},
		"the first fragment":   {v4(func(b []byte) { b[6] = 0x20 }), packet{from4, to4, tcp, 1000, 80}, false},
		"a protocol without":   {v4(func(b []byte) { b[9] = icmp }), packet{from4, to4, icmp, 0, 0}, false},
		"IPv4 cut in the port": {v4(func([]byte) {})[:23], packet{from4, to4, tcp, 0, 0}, false},
		"IPv4 cut":             {v4(func([]byte) {})[:19], packet{}, true},
		"IPv6":                 {v6(udp, ports...), packet{from6, to6, udp, 1000, 80}, false},
		"IPv6, hop by hop": {
			v6(hopByHop, append([]byte{sctp, 0, 0, 0, 0, 0, 0, 0}, ports...)...), packet{from6, to6, sctp, 1000, 80}, false,
		},
		"IPv6, the first fragment": {
			v6(fragment, append([]byte{udp, 0, 0, 1, 0, 0, 0, 0}, ports...)...), packet{from6, to6, udp, 1000, 80}, false,
		},
		"IPv6, a later fragment": {
			v6(fragment, append([]byte{udp, 0, 0, 9, 0, 0, 0, 0}, ports...)...), packet{from6, to6, udp, 0, 0}, false,
		},
		"IPv6, authentication": {
			v6(authentication, append([]byte{tcp, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, ports...)...),
			packet{from6, to6, tcp, 1000, 80}, false,
		},
		"IPv6 cut in an extension": {v6(hopByHop, tcp, 9, 0, 0, 0, 0, 0, 0), packet{from6, to6, tcp, 0, 0}, false},
		"IPv6 cut":                 {v6(udp)[:39], packet{}, true},
		"another version":          {[]byte{0x55, 0, 0, 0}, packet{}, true},
		"nothing":                  {nil, packet{}, true},
	} {
		got, ok := parsePacket(c.packet)
		if ok == c.fails || ok && got != c.want {
			t.Errorf("%s: parsePacket(%x) = %v, %t; want %v", claim, c.packet, got, ok, c.want)
		}
	}
}

func FuzzParsePacket(f *testing.F) {
	f.Add(ipv4("192.0.2.1", "192.0.2.2", tcp, 1000, 80))
	f.Add(ipv6("2001:db8::1", "2001:db8::2", hopByHop, udp, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, ok := parsePacket(b); ok && (!p.from.IsValid() || p.from.Is4() != p.to.Is4()) {
			t.Errorf("parsePacket(%x) = %v", b, p)
		}
	})
}

// run runs a Log without the kernel until stop is called.
func run(t *testing.T, l *Log) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.flushUntil(ctx)
	}()
	return func() { cancel(); <-ended }
}

// TestLines: equal packets within a second are one line, with the names of Pods.
func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lines := newTest(Config{})
		stop := run(t, l)
		began := time.Now()
		for i := range 3 {
			l.observe(time.Now(), logged{prefix: prefix, payload: ipv4("10.244.1.7", "192.0.2.9", tcp, uint16(1000+i), 443)})
		}
		l.observe(time.Now(), logged{prefix: prefix, payload: ipv4("10.244.1.7", "192.0.2.9", tcp, 1000, 80)})
		l.observe(time.Now(), logged{prefix: "test audit in in-77: ClusterNetworkPolicy all", payload: ipv4("10.244.1.7", "10.244.1.8", icmp, 0, 0)})
		l.observe(time.Now(), logged{prefix: "another program's", payload: ipv4("10.244.1.7", "192.0.2.9", tcp, 1000, 80)})
		l.observe(time.Now(), logged{prefix: prefix, payload: nil})
		time.Sleep(3 * time.Second)
		l.observe(time.Now(), logged{prefix: prefix, payload: ipv4("10.244.1.7", "192.0.2.9", tcp, 1000, 443)})
		stop()
		src, dst, db := netip.MustParseAddr("10.244.1.7"), netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("10.244.1.8")
		out := Record{
			Time: began, Event: "deny", Direction: "egress", Source: src, SourcePod: "shop/web-1", Destination: dst, Protocol: "TCP",
			SourcePort: 1000, DestinationPort: 443, Chain: "out-5f2a", Reason: "NetworkPolicy shop/web", Packets: 3,
		}
		http, later := out, out
		http.DestinationPort, http.Packets = 80, 1
		later.Time, later.Packets = began.Add(3*time.Second), 1
		audit := Record{
			Time: began, Event: "audit", Direction: "ingress", Source: src, SourcePod: "shop/web-1", Destination: db,
			DestinationPod: "pay/db-0", Protocol: "ICMP", Chain: "in-77", Reason: "ClusterNetworkPolicy all", Packets: 1,
		}
		if d := cmp.Diff([]Record{audit, out, http, later}, l.Recent(), cmpopts.EquateComparable(netip.Addr{})); d != "" {
			t.Errorf("Recent():\n%s", d)
		}
		const want = `level=INFO msg="packet denied by policy" event=deny direction=egress protocol=TCP source=10.244.1.7 ` +
			`sourcePod=shop/web-1 destination=192.0.2.9 sourcePort=1000 destinationPort=443 packets=3 chain=out-5f2a ` +
			`reason="NetworkPolicy shop/web"`
		if !strings.Contains(lines.String(), want) || strings.Count(lines.String(), "\n") != 4 {
			t.Errorf("the log is\n%swant 4 lines, one of them\n%s", lines, want)
		}
		if s := l.Stats(); s != (Stats{Packets: 6, Lines: 4, Foreign: 1, Malformed: 1}) {
			t.Errorf("Stats() = %+v", s)
		}
		const text = "shop/web-1 (10.244.1.7:1000) -> 192.0.2.9:443 (3 packets): NetworkPolicy shop/web"
		if got := out.String(); !strings.HasSuffix(got, "Z deny egress TCP "+text) {
			t.Errorf("String() = %q", got)
		}
	})
}

// TestLinesWhilePodWaits: lines can be read while the Pods of another are looked up.
func TestLinesWhilePodWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newTest(Config{})
		known, observed := make(chan struct{}), make(chan struct{})
		l.cfg.Pod = func(addr netip.Addr) string {
			<-known
			return podOf(addr)
		}
		go func() {
			defer close(observed)
			l.observe(time.Now(), logged{prefix: prefix, payload: ipv4("10.244.1.7", "192.0.2.9", tcp, 1000, 443)})
		}()
		synctest.Wait()
		if free := l.mu.TryLock(); !free {
			t.Error("the log is locked while a Pod is looked up")
		} else {
			l.mu.Unlock()
		}
		close(known)
		<-observed
		l.flush(time.Now().Add(gatherTime))
		if r := l.Recent(); len(r) != 1 || r[0].SourcePod != "shop/web-1" {
			t.Errorf("Recent() = %+v, want one line of shop/web-1", r)
		}
	})
}

// TestLimits: lines are limited per second, and in number; packets without a line are told
// once a minute.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lines := newTest(Config{PerSecond: 5, Keep: 8})
		stop := run(t, l)
		for port := range uint16(2000) {
			l.observe(time.Now(), logged{prefix: prefix, payload: ipv4("10.244.1.7", "192.0.2.9", tcp, 1000, port)})
		}
		time.Sleep(10 * time.Second)
		for port := range uint16(4) {
			l.observe(time.Now(), logged{prefix: prefix, payload: ipv4("10.244.1.7", "192.0.2.9", tcp, 1000, port)})
		}
		time.Sleep(2 * time.Minute)
		stop()
		if s := l.Stats(); s.Lines != 9 || s.Packets != 2004 || s.Suppressed != 1995 {
			t.Errorf("Stats() = %+v", s)
		}
		if n := len(l.Recent()); n != 8 || !slices.IsSortedFunc(l.Recent(), func(a, b Record) int { return a.Time.Compare(b.Time) }) {
			t.Errorf("Recent() has %d lines, or they are not in order", n)
		}
		// At once, and again a minute later.
		if n := strings.Count(lines.String(), "more packets were denied"); n != 2 {
			t.Errorf("%d lines about packets without one:\n%s", n, lines)
		}
	})
}

// TestShares: a Pod that is denied a lot hides no other one, and the log says which one it is.
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lines := newTest(Config{PerSecond: 5, Keep: 1000})
		stop := run(t, l)
		const scan, seconds = 1500, 20 // ports of each second
		in := "test deny in in-77: NetworkPolicy shop/web"
		for range seconds {
			for port := range uint16(scan) {
				l.observe(time.Now(), logged{prefix: prefix, payload: ipv4("10.244.1.7", "192.0.2.9", tcp, 1000, port)})
			}
			l.observe(time.Now(), logged{prefix: prefix, payload: ipv4("10.244.1.8", "192.0.2.9", tcp, 1000, 443)})
			l.observe(time.Now(), logged{prefix: in, payload: ipv4("192.0.2.9", "192.0.2.10", tcp, 1000, 443)})
			time.Sleep(gatherTime)
		}
		stop()
		counts := make(map[string]int)
		for _, r := range l.Recent() {
			counts[r.SourcePod] += r.Packets
		}
		if counts["pay/db-0"] != seconds || counts[""] != seconds {
			t.Errorf("%d packets of a Pod and %d of another client have lines, want %d of each", counts["pay/db-0"], counts[""], seconds)
		}
		if n := counts["shop/web-1"]; n < 2*seconds || l.Stats().Lines > 5*seconds+10 {
			t.Errorf("%d packets of the Pod with the most have lines, of %d in all; want the rest of 5 a second", n, l.Stats().Lines)
		}
		if len(l.gathered) > 0 || len(l.shares) > 0 {
			t.Errorf("%d lines, %d shares at the end, want none", len(l.gathered), len(l.shares))
		}
		if !strings.Contains(lines.String(), `msg="more packets were denied by policies than are logged" packets=`) ||
			!strings.Contains(lines.String(), " pod=shop/web-1 podPackets=") {
			t.Errorf("the log does not say which Pod is denied a lot:\n%.2000s", lines)
		}
	})
}

// TestLatePackets: packets of an address whose Pod has just ended have no line, unless a policy denies them.
func TestLatePackets(t *testing.T) {
	t.Parallel()
	l, lines := newTest(Config{Ended: func(a netip.Addr) bool { return a == netip.MustParseAddr("10.244.1.9") }})
	now := time.Now()
	for _, prefix := range []string{"test unknown in unknown: no Pod", "test unknown out unknown: no Pod", "test deny in in-77: closed"} {
		l.observe(now, logged{prefix: prefix, payload: ipv4("10.244.1.9", "10.244.1.10", tcp, 80, 1)})
		l.observe(now, logged{prefix: prefix, payload: ipv4("10.244.1.10", "10.244.1.9", tcp, 2, 80)})
	}
	l.flush(now.Add(gatherTime))
	if s := l.Stats(); s.Late != 2 || s.Lines != 4 || s.Suppressed != 0 {
		t.Errorf("Stats() = %+v, want 2 packets late, and 4 lines:\n%s", s, lines)
	}
}

// get requests the page and returns a reader of its lines.
func get(t *testing.T, server *httptest.Server, query string) *bufio.Scanner {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://agent"+Path+query, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if err := request.Write(conn); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return bufio.NewScanner(response.Body)
}

// ports lists the destination ports of the next n lines; of all when n is 0.
func ports(t *testing.T, lines *bufio.Scanner, n int) (all []uint16) {
	t.Helper()
	for (n == 0 || len(all) < n) && lines.Scan() {
		var r Record
		if len(lines.Bytes()) == 0 {
			continue
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("%s: %v", lines.Bytes(), err)
		}
		all = append(all, r.DestinationPort)
	}
	return all
}

func TestPage(t *testing.T) {
	t.Parallel()
	l, _ := newTest(Config{PerSecond: 1000})
	server := httptest.NewUnstartedServer(l)
	server.Config.WriteTimeout = time.Second
	server.Start()
	defer server.Close()
	emit := func(from string, port uint16) {
		now := time.Now()
		l.observe(now, logged{prefix: prefix, payload: ipv4(from, "192.0.2.9", tcp, 1000, port)})
		l.flush(now.Add(gatherTime))
	}
	emit("10.244.1.7", 1)
	emit("10.244.1.8", 2)
	if got := ports(t, get(t, server, ""), 0); !slices.Equal(got, []uint16{1, 2}) {
		t.Errorf("the page has lines of ports %v", got)
	}
	if got := ports(t, get(t, server, "?namespace=pay"), 0); !slices.Equal(got, []uint16{2}) {
		t.Errorf("the page of a Namespace has lines of ports %v", got)
	}
	following := get(t, server, "?follow&namespace=shop")
	if got := ports(t, following, 1); !slices.Equal(got, []uint16{1}) {
		t.Errorf("the page begins with lines of ports %v", got)
	}
	time.Sleep(1500 * time.Millisecond) // longer than the server's time for a response
	emit("10.244.1.8", 3)
	emit("10.244.1.7", 4)
	if got := ports(t, following, 1); !slices.Equal(got, []uint16{4}) {
		t.Errorf("the page goes on with lines of ports %v", got)
	}
	l.end()
	if got := ports(t, following, 0); len(got) > 0 || following.Err() != nil {
		t.Errorf("after its end the Log has lines of ports %v, and %v", got, following.Err())
	}
}

// TestSharesOfMany: of more Namespaces than there may be lines none goes without for ever, and many Pods of one
// have the share of one.
func TestSharesOfMany(t *testing.T) {
	chosen := make(map[string]int)
	for range 200 {
		due := make(map[string][]*line)
		for i := range 6 {
			namespace := fmt.Sprintf("n%d", i)
			for pod := range 1 + 5*i {
				due[namespace] = append(due[namespace], &line{Record{}, fmt.Sprintf("%s/p%d", namespace, pod), namespace})
			}
		}
		some, _ := divide(due, 4)
		if len(some) != 4 {
			t.Fatalf("%d lines, want 4", len(some))
		}
		for _, l := range some {
			chosen[l.share]++
		}
	}
	for i := range 6 {
		if n := chosen[fmt.Sprintf("n%d", i)]; n == 0 || n > 200 {
			t.Errorf("n%d has %d lines in 200 rounds: %v", i, n, chosen)
		}
	}
}
