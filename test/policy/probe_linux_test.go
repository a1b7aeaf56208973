package policy

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// probe is a UDP packet that is never answered, so that policies judge it as the first one of a flow.
type probe struct {
	from, to netip.Addr
	port     uint16
}

func (p probe) String() string {
	return fmt.Sprintf("%s → %s", p.from, netip.AddrPortFrom(p.to, p.port))
}

// prober sends probes between stations, and knows which of them arrived.
type prober struct {
	pods     map[netip.Addr]*station
	outside  *station // has all other addresses
	stations []*station
	source   uint16 // port

	mu      sync.Mutex
	next    uint64
	arrived map[uint64]struct{} // probes that nobody asked for yet
}

// station is a network that sends and receives probes.
type station struct {
	network *namespace.Network
	v4      *ipv4.PacketConn
	v6      *ipv6.PacketConn
}

// newProber makes a network beyond the node that has all addresses of these prefixes but those of the
// node's Pods.
//
//	Pods ── node 192.0.2.1, fd00:ffff::1 ── outside
func (w *world) newProber(t *testing.T, ranges, prefixes []string, ports ...uint16) *prober {
	t.Helper()
	r := &prober{pods: make(map[netip.Addr]*station), arrived: make(map[uint64]struct{}), source: 20000}
	gateways := []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("fd00:ffff::1/64")}
	network := namespacetest.Attach(t, "uplink", gateways, netip.MustParsePrefix("192.0.2.2/24"),
		netip.MustParsePrefix("fd00:ffff::2/64"))
	for _, p := range prefixes {
		via := "192.0.2.2"
		if netip.MustParsePrefix(p).Addr().Is6() {
			via = "fd00:ffff::2"
		}
		must(t, namespace.IP("route add "+p+" via "+via))
	}
	namespacetest.Do(t, network, func() {
		namespacetest.SetSysctl(t, "net/ipv6/ip_nonlocal_bind", "1")
		must(t, namespace.IP("rule add lookup main")) // so that IPv4 has two tables, of which throw leaves one
		for _, p := range ranges {
			must(t, namespace.IP("route add throw "+p+" table local"))
		}
		for _, p := range prefixes {
			must(t, namespace.IP("route add local "+p+" dev lo"))
		}
	})
	r.outside = r.newStation(t, network, ports)
	return r
}

// join has a Pod send and receive probes.
func (r *prober) join(t *testing.T, p *pod, ports ...uint16) {
	t.Helper()
	s := r.newStation(t, p.Network, ports)
	for _, a := range p.Addrs {
		r.pods[a] = s
	}
}

// newStation has a network receive probes at ports, and send.
func (r *prober) newStation(t *testing.T, network *namespace.Network, ports []uint16) *station {
	t.Helper()
	s := &station{network: network}
	for _, port := range ports {
		go r.receive(s.listen(t, "udp4", port))
		go r.receive(s.listen(t, "udp6", port))
	}
	r.stations = append(r.stations, s)
	s.open(t, r.source)
	return s
}

func (s *station) listen(t *testing.T, family string, port uint16) (conn *net.UDPConn) {
	t.Helper()
	namespacetest.Do(t, s.network, func() {
		c, err := net.ListenPacket(family, ":"+strconv.Itoa(int(port)))
		must(t, err)
		conn = c.(*net.UDPConn)
	})
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetReadBuffer(1 << 20) // probes that nobody reads yet are few
	return conn
}

// open opens the sockets that send.
func (s *station) open(t *testing.T, port uint16) {
	t.Helper()
	if s.v4 != nil {
		s.v4.Close()
		s.v6.Close()
	}
	s.v4, s.v6 = ipv4.NewPacketConn(s.listen(t, "udp4", port)), ipv6.NewPacketConn(s.listen(t, "udp6", port))
}

// renew has the next probes be of other flows: those that a change ended are dropped for a moment after
// another one that allows them.
func (r *prober) renew(t *testing.T) {
	t.Helper()
	r.source++
	for _, s := range r.stations {
		s.open(t, r.source)
	}
}

// receive notes what arrives at a socket until it is closed.
func (r *prober) receive(conn *net.UDPConn) {
	buf := make([]byte, 16)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		if n == 8 {
			r.mu.Lock()
			r.arrived[binary.BigEndian.Uint64(buf)] = struct{}{}
			r.mu.Unlock()
		}
	}
}

func (r *prober) stationOf(a netip.Addr) *station {
	if s, ok := r.pods[a]; ok {
		return s
	}
	return r.outside
}

// send sends a probe and returns its number.
func (r *prober) send(p probe) (number uint64, err error) {
	r.mu.Lock()
	r.next++
	number = r.next
	r.mu.Unlock()
	data := binary.BigEndian.AppendUint64(nil, number)
	s, to := r.stationOf(p.from), net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.to, p.port))
	if p.from.Is4() {
		_, err = s.v4.WriteTo(data, &ipv4.ControlMessage{Src: p.from.AsSlice()}, to)
	} else {
		_, err = s.v6.WriteTo(data, &ipv6.ControlMessage{Src: p.from.AsSlice()}, to)
	}
	return number, err
}

// take reports whether a probe arrived, and forgets it.
func (r *prober) take(number uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.arrived[number]
	delete(r.arrived, number)
	return ok
}

// pass sends probes and reports which of them arrived. It waits for those that must.
func (r *prober) pass(t *testing.T, probes []probe, must func(i int) bool) []bool {
	t.Helper()
	const window = 200 // so that no buffer overflows
	passed := make([]bool, len(probes))
	numbers := make([]uint64, len(probes))
	begin := time.Now()
	for first := 0; first < len(probes); first += window {
		last := min(first+window, len(probes))
		for i := first; i < last; i++ {
			var err error
			if numbers[i], err = r.send(probes[i]); err != nil {
				t.Fatalf("%s: %v", probes[i], err)
			}
		}
		for i := first; i < last; i++ {
			for passed[i] = r.take(numbers[i]); must(i) && !passed[i] && time.Since(begin) < patience; passed[i] = r.take(numbers[i]) {
				time.Sleep(time.Millisecond)
			}
		}
	}
	for i := range probes { // of those that must not pass, too, and arrived later
		passed[i] = passed[i] || r.take(numbers[i])
	}
	return passed
}
