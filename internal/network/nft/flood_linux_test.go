package nft

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// TestDiscoveryFlood: a Pod that solicits routers from ever new addresses does not fill the node's table of neighbors.
func TestDiscoveryFlood(t *testing.T) {
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return
	}
	table := New(Config{})
	must(t, table.Sync(ranges))
	const device = podDevices + "0123456789ab"
	pod := namespacetest.AttachPod(t, device, addrList("fd00:244:1::8")...)
	before := countNeighbors(t)
	must(t, solicitRouters(pod, 2000))
	if got := countNeighbors(t); got > before+10 {
		t.Errorf("the node has %d neighbors after 2,000 solicitations of a Pod, and had %d before", got, before)
	}
	table.Close()
	_, err := Cleanup(DefaultName)
	must(t, err)
	must(t, solicitRouters(pod, 100))
	if got := countNeighbors(t); got < before+100 {
		t.Errorf("without the table the node has %d neighbors: solicitations do not make any", got)
	}
}

func countNeighbors(t *testing.T) int {
	t.Helper()
	all, err := netlink.NeighList(0, netlink.FAMILY_V6)
	must(t, err)
	return len(all)
}

// solicitRouters sends Router Solicitations (RFC 4861, section 4.1), each from an address and a MAC of its own.
func solicitRouters(pod *namespace.Network, n uint32) error {
	all := netip.MustParseAddr("ff02::2")
	return namespacetest.SendFrames(pod, "eth0", n, func(mac net.HardwareAddr, i uint32) []byte {
		from := netip.MustParseAddr("fe80::1").As16()
		binary.BigEndian.PutUint32(from[10:], i+1)
		return solicitation(mac, netip.AddrFrom16(from), all)
	})
}

// solicitation returns the frame of a Router Solicitation with the sender's MAC.
func solicitation(mac net.HardwareAddr, from, to netip.Addr) []byte {
	icmp := append([]byte{133, 0, 0, 0, 0, 0, 0, 0, 1, 1}, mac...)
	pseudo := append(append(from.AsSlice(), to.AsSlice()...), 0, 0, 0, byte(len(icmp)), 0, 0, 0, unix.IPPROTO_ICMPV6)
	var sum uint32
	for b := append(pseudo, icmp...); len(b) > 0; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(icmp[2:], ^uint16(sum+sum>>16))
	b := append([]byte{0x33, 0x33, 0, 0, 0, 2}, mac...)
	b = append(b, 0x86, 0xdd, 0x60, 0, 0, 0, 0, byte(len(icmp)), unix.IPPROTO_ICMPV6, 255)
	return append(append(append(b, from.AsSlice()...), to.AsSlice()...), icmp...)
}
