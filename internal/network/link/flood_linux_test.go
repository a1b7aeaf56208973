package link_test

import (
	"encoding/binary"
	"net"
	"testing"

	"github.com/vishvananda/netlink"

	"portolan.dev/portolan/internal/network/link"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// TestNeighborFlood: a Pod that asks for the node's address from ever new addresses does not fill the node's table of
// neighbors, of which there is one for all its links (arp(7), gc_thresh3): the node could not reach other nodes.
func TestNeighborFlood(t *testing.T) {
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return
	}
	newNode(t)
	for _, device := range []string{"all", "default"} { // as nodes with several uplinks have it
		namespacetest.SetSysctl(t, "net/ipv4/conf/"+device+"/rp_filter", "0")
	}
	must(t, namespace.IP("route add default dev lo")) // so that the senders are no martians
	ns, pod := newPod(t, 1)
	must(t, create(config, pod))
	must(t, link.Up(config, pod))
	node := config.Source4.AsSlice()
	must(t, namespacetest.SendFrames(ns, "eth0", 2000, func(own net.HardwareAddr, i uint32) []byte {
		b := append(append(append([]byte{}, link.HostMAC()...), own...), 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
		b = binary.BigEndian.AppendUint32(append(b, own...), 198<<24|18<<16|i)
		return append(append(b, 0, 0, 0, 0, 0, 0), node...)
	}))
	all, err := netlink.NeighList(0, netlink.FAMILY_V4)
	must(t, err)
	if len(all) > 2 {
		t.Errorf("the node has %d neighbors after 2,000 requests of a Pod, want those of the Pod only", len(all))
	}
	echo(t, ns)
	for _, protocol := range []string{"tcp", "udp", "icmp"} {
		if _, err := talk(protocol, pod.Addresses[0]); err != nil {
			t.Errorf("the Pod by %s: %v", protocol, err)
		}
	}
	must(t, link.Check(config, pod))
}
