package handover

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	netipv4 "golang.org/x/net/ipv4"
	netipv6 "golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// Flags of segments (RFC 9293, section 3.1).
const (
	fin, syn, rst, ack = 1, 2, 4, 16
	servicePort        = 80
)

// lab is a node that has a connection of a client, and two nodes that had the address before.
type lab struct {
	vip    netip.Addr
	client net.Conn // raw, to vip
	local  netip.Addr
	former map[string]net.PacketConn // raw
	tcp    net.Conn                  // from the client to the node
}

// expect sends a segment from a port of the client, and one of a connection that no node knows, and fails unless a
// former node gets the first one of these that it is to get.
func (l *lab) expect(t *testing.T, claim string, segment [2]uint16, at string, want uint16) {
	t.Helper()
	const unknown = 9
	for _, s := range [][2]uint16{segment, {unknown, ack}} {
		for _, half := range []byte{0, 0x80} { // one is outside of any window
			_, err := l.client.Write(l.segment(s[0], byte(s[1]), half))
			must(t, err)
		}
	}
	if want == 0 {
		want = unknown
	}
	former := l.former[at]
	_ = former.SetReadDeadline(time.Now().Add(5 * time.Second))
	for first, left := true, 2; left > 0; first = false {
		b := make([]byte, 128)
		n, _, err := former.ReadFrom(b)
		if err != nil || n < 20 {
			t.Fatalf("%s: %s: %d octets, %v", claim, at, n, err)
		}
		got := binary.BigEndian.Uint16(b)
		if first && got != want {
			t.Errorf("%s: %s gets a segment from port %d first, want %d", claim, at, got, want)
		}
		if got == unknown {
			left--
		}
	}
}

// segment returns a segment with arbitrary numbers, in a half of all sequence numbers.
func (l *lab) segment(port uint16, flags, half byte) []byte {
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b, port)
	binary.BigEndian.PutUint16(b[2:], servicePort)
	copy(b[4:], "numbers!")
	b[4] ^= half
	b[12], b[13], b[14] = 5<<4, flags, 0xff
	sum := uint32(unix.IPPROTO_TCP + len(b)) // RFC 9293, section 3.1
	for _, part := range [][]byte{l.local.AsSlice(), l.vip.AsSlice(), b} {
		for ; len(part) > 0; part = part[2:] {
			sum += uint32(binary.BigEndian.Uint16(part))
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(b[16:], ^uint16(sum))
	return b
}

// subnet is a link of the node: its address there, and that of the host at the other end.
type subnet struct{ node, host netip.Prefix }

func newLab(t *testing.T, table *Table, vip netip.Addr, client subnet, formers map[string]subnet) *lab {
	t.Helper()
	own := netip.PrefixFrom(vip, vip.BitLen())
	namespacetest.SetUp(t, "lo", own)
	l := &lab{vip: vip, local: client.host.Addr(), former: make(map[string]net.PacketConn)}
	network := "ip4:tcp"
	if vip.Is6() {
		network = "ip6:tcp"
	}
	for name, s := range formers {
		n := namespacetest.Attach(t, name+network[2:3], []netip.Prefix{s.node}, s.host)
		namespacetest.Do(t, n, func() {
			namespacetest.SetUp(t, "lo", own)
			conn, err := net.ListenPacket(network, vip.String())
			must(t, err)
			t.Cleanup(func() { conn.Close() })
			l.former[name] = conn
		})
	}
	must(t, table.Set(map[netip.Addr]netip.Addr{vip: formers["first"].host.Addr()}))
	listener, err := net.Listen("tcp", netip.AddrPortFrom(vip, servicePort).String())
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	l.connect(t, namespacetest.Attach(t, "client"+network[2:3], []netip.Prefix{client.node}, client.host), network)
	return l
}

func (l *lab) connect(t *testing.T, client *namespace.Network, network string) {
	t.Helper()
	namespacetest.Do(t, client, func() {
		var err error
		l.client, err = net.Dial(network, l.vip.String())
		must(t, err)
		t.Cleanup(func() { l.client.Close() })
		l.tcp, err = net.DialTimeout("tcp", netip.AddrPortFrom(l.vip, servicePort).String(), 5*time.Second)
		must(t, err)
		t.Cleanup(func() { l.tcp.Close() })
	})
}

// setHops sets how many hops the client's segments have.
func (l *lab) setHops(t *testing.T, hops int) {
	t.Helper()
	if l.vip.Is4() {
		must(t, netipv4.NewConn(l.client).SetTTL(hops))
	} else {
		must(t, netipv6.NewConn(l.client).SetHopLimit(hops))
	}
}

// TestSegments: the former node gets the segments of connections that this node does not know, and no others.
func TestSegments(t *testing.T) {
	if !namespacetest.OnNode(t) {
		return
	}
	p := netip.MustParsePrefix
	families := []struct {
		vip     string
		client  subnet
		formers map[string]subnet
	}{
		{"203.0.113.1", subnet{p("192.0.2.1/28"), p("192.0.2.2/28")}, map[string]subnet{
			"first": {p("192.0.2.17/28"), p("192.0.2.18/28")}, "second": {p("192.0.2.33/28"), p("192.0.2.34/28")},
		}},
		{"2001:db8:f::1", subnet{p("2001:db8:1::1/64"), p("2001:db8:1::2/64")}, map[string]subnet{
			"first": {p("2001:db8:2::1/64"), p("2001:db8:2::2/64")}, "second": {p("2001:db8:3::1/64"), p("2001:db8:3::2/64")},
		}},
	}
	for _, f := range families {
		table := New()
		defer table.Close()
		vip := netip.MustParseAddr(f.vip)
		l := newLab(t, table, vip, f.client, f.formers)
		known := netip.MustParseAddrPort(l.tcp.LocalAddr().String()).Port()
		for claim, c := range map[string]struct {
			segment [2]uint16
			want    uint16
		}{
			"data":                           {[2]uint16{7, ack}, 7},
			"the end":                        {[2]uint16{7, fin | ack}, 7},
			"a reset":                        {[2]uint16{7, rst}, 7},
			"a new connection":               {[2]uint16{8, syn}, 0},
			"a stray segment of a known one": {[2]uint16{known, ack}, 0},
			"an answer":                      {[2]uint16{10, syn | ack}, 0},
		} {
			l.expect(t, f.vip+": "+claim, c.segment, "first", c.want)
		}
		l.setHops(t, 1)
		_, err := l.client.Write(l.segment(11, ack, 0))
		must(t, err)
		l.setHops(t, 64)
		l.expect(t, f.vip+": after one at its last hop", [2]uint16{7, ack}, "first", 7)
		changed := map[netip.Addr]netip.Addr{vip: f.formers["second"].host.Addr()}
		must(t, table.Set(changed))
		l.expect(t, f.vip+": changed", [2]uint16{7, ack}, "second", 7)
		changed[vip.Next()] = f.formers["first"].host.Addr()
		must(t, table.Set(changed))
		l.expect(t, f.vip+": one more", [2]uint16{7, ack}, "second", 7)
		delete(changed, vip.Next())
		must(t, table.Set(changed))
		l.expect(t, f.vip+": one less", [2]uint16{7, ack}, "second", 7)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
