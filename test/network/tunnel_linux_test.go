package network

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"portolan.dev/portolan/internal/network/route"
	"portolan.dev/portolan/test/namespace"
)

// TestForeignTunnel: a node takes packets out of its tunnel that nodes have put in, and those of no one else: whoever
// sends a datagram to it could be any Pod otherwise, with policies for that one.
func TestForeignTunnel(t *testing.T) {
	w := newWorld(t)
	if w == nil {
		return
	}
	near, far := w.nodes[0], w.nodes[2]
	var received net.PacketConn
	must(t, far.pod.Do(func() (err error) {
		received, err = net.ListenPacket("udp4", ":9")
		return err
	}))
	defer received.Close()
	arrives := func(from *namespace.Network, patience time.Duration) bool {
		t.Helper()
		send := func() error {
			conn, err := net.Dial("udp4", netip.AddrPortFrom(far.addrs[0], near.config.Port).String())
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = conn.Write(tunneled(near.config.VNI, route.MACOf(far.name), near.pods[0], far.pods[0]))
			return err
		}
		if from == nil {
			must(t, send())
		} else {
			must(t, from.Do(send))
		}
		must(t, received.SetReadDeadline(time.Now().Add(patience)))
		_, _, err := received.ReadFrom(make([]byte, 100))
		return err == nil
	}
	const short = 200 * time.Millisecond
	if !arrives(near.ns, patience) {
		t.Error("a packet from a node does not arrive")
	}
	if arrives(near.pod, short) {
		t.Error("a packet that a Pod put into the tunnel arrives")
	}
	if arrives(nil, short) {
		t.Error("a packet that a host outside of the cluster put into the tunnel arrives")
	}
	far.tell(t, command{Delete: []string{near.name}})
	if arrives(near.ns, short) {
		t.Error("a packet from a node that has left the cluster arrives")
	}
	far.tell(t, command{Put: w.objects()})
	if !arrives(near.ns, patience) {
		t.Error("a packet from a node that is back does not arrive")
	}
}

// tunneled returns a datagram for a tunnel (RFC 7348, section 5) with a packet of UDP to port 9.
func tunneled(vni uint32, to route.MAC, from, pod netip.Addr) []byte {
	b := binary.BigEndian.AppendUint32([]byte{8, 0, 0, 0}, vni<<8)
	b = append(append(b, to[:]...), 2, 0, 0, 0, 0, 1, 8, 0)
	ip := append([]byte{0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0}, from.AsSlice()...)
	ip = append(ip, pod.AsSlice()...)
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	return append(append(b, ip...), 0, 9, 0, 9, 0, 9, 0, 0, 'x')
}
