package nft_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// icmp is the echo request of both families.
const icmp ruleset.Protocol = unix.IPPROTO_ICMP

var protocols = []ruleset.Protocol{ruleset.TCP, ruleset.UDP, ruleset.SCTP, icmp}

// packet is the first packet of a flow: the kernel has tracked none with its source port or identifier.
type packet struct {
	// sender is an address of the namespace that sends it; from is what it has as its source.
	sender, from, to netip.Addr
	protocol         ruleset.Protocol
	port             uint16
	// seen is its destination after translation, if that differs.
	seen netip.Addr
	// invalid has a wrong checksum, so that connection tracking knows no state of it.
	invalid bool
}

func (p packet) String() string {
	return fmt.Sprintf("%s → %s protocol %d port %d invalid %v", p.from, p.to, p.protocol, p.port, p.invalid)
}

// lab sends packets and knows which of them arrived.
type lab struct {
	*world
	senders   map[*namespace.Network][2]int // raw sockets by family
	receivers []receiver
	next      uint32 // ID of a packet
	forgotten uint32 // the ID when the node forgot its connections
	mu        sync.Mutex
	arrived   map[uint32]*namespace.Network
}

// receiver is a socket that gets all packets of a protocol to an address of its namespace.
type receiver struct {
	addr     netip.Addr
	protocol ruleset.Protocol
}

// newLab opens sockets in all namespaces, and waits until packets arrive everywhere.
func newLab(w *world) *lab {
	l := &lab{
		world: w, senders: make(map[*namespace.Network][2]int), arrived: make(map[uint32]*namespace.Network), next: 1 << 16,
	}
	for _, addrs := range [][2]netip.Addr{podA, podB, podC, outside, nodeInside} {
		ns := w.hosts[addrs[0]]
		namespacetest.Do(w.t, ns, func() {
			l.senders[ns] = [2]int{l.sender(unix.AF_INET), l.sender(unix.AF_INET6)}
			for _, a := range addrs {
				for _, p := range protocols {
					l.receive(ns, a, p)
				}
			}
		})
	}
	for begin := time.Now(); len(l.mark()) > 0; {
		if time.Since(begin) > 30*time.Second {
			w.t.Fatalf("the network does not work: nothing arrives at %v", l.mark())
		}
	}
	return l
}

func (l *lab) sender(family int) int {
	l.t.Helper()
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	must(l.t, err)
	l.t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// receive keeps the IDs of the packets of a protocol that arrive in a namespace.
func (l *lab) receive(ns *namespace.Network, a netip.Addr, p ruleset.Protocol) {
	l.t.Helper()
	network, number := "ip4", p
	if a.Is6() {
		network = "ip6"
	}
	if a.Is6() && p == icmp {
		number = unix.IPPROTO_ICMPV6
	}
	c, err := net.ListenPacket(fmt.Sprintf("%s:%d", network, number), "")
	must(l.t, err)
	_ = c.(*net.IPConn).SetReadBuffer(1 << 20)
	l.t.Cleanup(func() { c.Close() })
	l.receivers = append(l.receivers, receiver{a, p})
	go func() {
		buf := make([]byte, 1500)
		for {
			n, _, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			if id, ok := idOf(p, buf[:n]); ok {
				l.mu.Lock()
				l.arrived[id] = ns
				l.mu.Unlock()
			}
		}
	}()
}

// idOf returns the ID of a packet that send made, given what follows its IP header. It returns none of
// answers.
func idOf(p ruleset.Protocol, data []byte) (id uint32, ok bool) {
	at := map[ruleset.Protocol]int{ruleset.TCP: 4, ruleset.UDP: 8, icmp: 8, ruleset.SCTP: 16}[p]
	if len(data) < at+4 {
		return 0, false
	}
	switch p {
	case ruleset.TCP:
		ok = data[13] == 2 // SYN
	case ruleset.UDP:
		ok = true
	case ruleset.SCTP:
		ok = data[12] == 1 // INIT
	case icmp:
		ok = data[0] == 8 || data[0] == 128
	}
	return binary.BigEndian.Uint32(data[at:]), ok
}

// send sends a packet and returns its ID.
func (l *lab) send(p packet) uint32 {
	l.t.Helper()
	l.next++
	i := 0
	var to unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte(p.to.AsSlice())}
	if p.to.Is6() {
		i = 1
		to = &unix.SockaddrInet6{Addr: p.to.As16()}
	}
	err := unix.Sendto(l.senders[l.hosts[p.sender]][i], encodePacket(p, l.next), 0, to)
	if err != nil {
		l.t.Fatalf("%s: %v", p, err)
	}
	return l.next
}

// encodePacket returns a packet with an ID, of which its source port or identifier is made too.
func encodePacket(p packet, id uint32) []byte {
	source := uint16(1024 + id%60000)
	ports := func() []byte {
		return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, source), p.port)
	}
	var body []byte
	number, sum := byte(p.protocol), -1
	switch p.protocol {
	case ruleset.TCP:
		body = binary.BigEndian.AppendUint32(ports(), id)
		body = append(body, 0, 0, 0, 0, 5<<4, 2, 0xff, 0xff, 0, 0, 0, 0)
		sum = 16
	case ruleset.UDP:
		body = append(ports(), 0, 12, 0, 0)
		body = binary.BigEndian.AppendUint32(body, id)
		sum = 6
	case ruleset.SCTP: // RFC 9260, section 3.3.2
		body = append(ports(), 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 20)
		body = binary.BigEndian.AppendUint32(body, id)
		body = append(body, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1)
		binary.LittleEndian.PutUint32(body[8:], crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	case icmp:
		kind := byte(8)
		if p.to.Is6() {
			kind, number = 128, unix.IPPROTO_ICMPV6
		}
		body = binary.BigEndian.AppendUint16([]byte{kind, 0, 0, 0}, uint16(id))
		body = binary.BigEndian.AppendUint16(body, uint16(id>>16))
		body = binary.BigEndian.AppendUint32(body, id)
		sum = 2
	}
	if sum >= 0 {
		var pseudo []byte
		if p.protocol != icmp || p.to.Is6() {
			pseudo = append(append(pseudo, p.from.AsSlice()...), p.to.AsSlice()...)
			pseudo = append(pseudo, 0, number, byte(len(body)>>8), byte(len(body)))
		}
		right := checksum(append(pseudo, body...))
		if p.invalid {
			right ^= 0x5555
		}
		binary.BigEndian.PutUint16(body[sum:], right)
	}
	if p.to.Is4() {
		header := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, number, 0, 0} // the kernel sets lengths and checksum
		header = append(append(header, p.from.AsSlice()...), p.to.AsSlice()...)
		return append(header, body...)
	}
	header := []byte{0x60, 0, 0, 0, byte(len(body) >> 8), byte(len(body)), number, 64}
	header = append(append(header, p.from.AsSlice()...), p.to.AsSlice()...)
	return append(header, body...)
}

// checksum is that of RFC 1071.
func checksum(data []byte) uint16 {
	var sum uint32
	for i, b := range data {
		sum += uint32(b) << (8 * (1 - i%2))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// mark sends a packet from the node to each socket, which always passes, and returns those that it does
// not arrive at within a second. What was sent before has arrived then, or never will.
func (l *lab) mark() (missing []receiver) {
	l.t.Helper()
	wanted := make(map[uint32]receiver)
	for _, r := range l.receivers {
		from := nodeInside[0]
		if r.addr.Is6() {
			from = nodeInside[1]
		}
		wanted[l.send(packet{sender: from, from: from, to: r.addr, protocol: r.protocol, port: 9})] = r
	}
	l.await(slices.Collect(maps.Keys(wanted)), time.Second)
	for id, r := range wanted {
		if _, ok := l.take(id); !ok {
			missing = append(missing, r)
		}
	}
	return missing
}

// await waits until packets have arrived, or some time has passed.
func (l *lab) await(ids []uint32, limit time.Duration) {
	for begin := time.Now(); time.Since(begin) < limit; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		all := !slices.ContainsFunc(ids, func(id uint32) bool {
			_, ok := l.arrived[id]
			return !ok
		})
		l.mu.Unlock()
		if all {
			return
		}
	}
}

// take returns where a packet arrived, and forgets it.
func (l *lab) take(id uint32) (ns *namespace.Network, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ns, ok = l.arrived[id]
	delete(l.arrived, id)
	return ns, ok
}

// patience is how long packets may take that should arrive.
const patience = 10 * time.Second

// pass sends packets, reports which of them arrived, and waits for those that should.
func (l *lab) pass(packets []packet, should []bool) []bool {
	l.t.Helper()
	if l.next-l.forgotten > 1<<15 { // the kernel compares 16 bits of an ID
		forgetConnections(l.t)
		l.forgotten = l.next
	}
	ids := make([]uint32, len(packets))
	var expected []uint32
	for i, p := range packets {
		ids[i] = l.send(p)
		if should[i] {
			expected = append(expected, ids[i])
		}
	}
	l.await(expected, patience)
	for begin := time.Now(); len(l.mark()) > 0; {
		if time.Since(begin) > patience {
			l.t.Fatal("packets of the node do not arrive")
		}
	}
	passed := make([]bool, len(packets))
	for i, p := range packets {
		to := p.to
		if p.seen.IsValid() {
			to = p.seen
		}
		ns, ok := l.take(ids[i])
		passed[i] = ok && ns == l.hosts[to]
	}
	return passed
}

// forgetConnections has the node forget all connections that it tracks (linux/netfilter/nfnetlink_conntrack.h).
func forgetConnections(t *testing.T) {
	t.Helper()
	const deletion = 2 // IPCTNL_MSG_CT_DELETE
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	must(t, err)
	defer c.Close()
	_, err = c.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_CTNETLINK<<8 | deletion, Flags: netlink.Request | netlink.Acknowledge},
		Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	})
	must(t, err)
}

// compare sends packets and reports those of which the kernel and Judge differ.
func (l *lab) compare(rs ruleset.Ruleset, isIn func(set string, addr netip.Addr) bool, packets []packet) (allowed int) {
	l.t.Helper()
	should := make([]bool, len(packets))
	for i, p := range packets {
		should[i] = l.judge(rs, isIn, p).Allowed
		if should[i] {
			allowed++
		}
	}
	for i, got := range l.pass(packets, should) {
		if got != should[i] {
			l.t.Errorf("%s passed: %v, want %+v", packets[i], got, l.judge(rs, isIn, packets[i]))
		}
	}
	return allowed
}

// judge returns the verdict about a packet.
func (l *lab) judge(rs ruleset.Ruleset, isIn func(set string, addr netip.Addr) bool, p packet) ruleset.Verdict {
	ns, ok := l.hosts[p.to]
	judged := ruleset.Packet{Source: p.from, Destination: p.to, Protocol: p.protocol, DestinationPort: p.port, ToNode: ok && ns == nil, Device: l.devices[p.sender]}
	if p.seen.IsValid() {
		judged.Destination = p.seen
	}
	if p.protocol == icmp {
		judged.DestinationPort = 0
		if p.to.Is6() {
			judged.Protocol = unix.IPPROTO_ICMPV6
		}
	}
	return ruleset.Judge(rs, judged, isIn)
}
