package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/network/plan"
	"portolan.dev/portolan/test/namespace"
)

func encrypt(c *plan.Config) {
	c.Encryption, c.WireGuardPort, c.Keyless = plan.WireGuard, 51820, plan.Unreachable
}

// publish tells all agents the keys of all.
func (w *world) publish() {
	w.t.Helper()
	for _, n := range w.nodes {
		n.tell(w.t, command{Put: w.objects()})
	}
}

// awaitTunnels waits until all Pods reach each other: a handshake that is lost, as the other end is not ready, is
// repeated after 5 seconds ("WireGuard: Next Generation Kernel Network Tunnel", section 6.1).
func (w *world) awaitTunnels() {
	w.t.Helper()
	for _, from := range w.nodes {
		for _, to := range w.nodes {
			if from != to {
				until(w.t, "a tunnel", func() error { return w.reaches(from, to) })
			}
		}
	}
}

// growUplink gives the uplink room for what encryption adds to the MTU of Pods.
func (n *node) growUplink(t *testing.T) {
	t.Helper()
	must(t, namespace.IP(fmt.Sprintf("link set %s mtu %d", n.name, podMTU+60)))
	n.run(t, fmt.Sprintf("link set eth0 mtu %d", podMTU+60))
}

// TestEncrypted is TestEveryPair with encrypted tunnels between all nodes: no link has a packet of a Pod.
func TestEncrypted(t *testing.T) {
	w := newWorld(t, encrypt)
	if w == nil {
		return
	}
	unencrypted := w.countClear()
	w.awaitTunnels()
	w.checkAll()
	if n := unencrypted.Load(); n > 0 {
		t.Errorf("%d packets of Pods left a node unencrypted", n)
	}
}

// TestKeys: what becomes of a node that has no key, another key, or none of its device.
func TestKeys(t *testing.T) {
	w := newWorld(t, encrypt)
	if w == nil {
		return
	}
	unencrypted := w.countClear()
	near, other := w.nodes[0], w.nodes[1]
	w.awaitTunnels()
	key := other.object.WireGuardKey

	other.object.WireGuardKey = [32]byte{}
	near.tell(t, command{Put: w.objects()})
	for _, pod := range other.pods {
		if _, err := exchange(near.pod, "tcp", pod); !isUnreachable(err) {
			t.Errorf("without a key, %s: %v", pod, err)
		}
	}
	other.object.WireGuardKey = [32]byte{1} // of nobody
	near.tell(t, command{Put: w.objects()})
	if err := w.reaches(near, other); err == nil {
		t.Error("a node without the private key can be reached")
	}
	other.object.WireGuardKey = key
	near.tell(t, command{Put: w.objects()})
	until(t, "the node with its key again is reached", func() error { return w.reaches(near, other) })

	other.kill() // and its device
	other.start(t)
	if other.object.WireGuardKey = other.tell(t, command{Put: w.objects()}).Key; other.object.WireGuardKey == key {
		t.Errorf("a device that was made anew has the same key")
	}
	w.publish()
	until(t, "the node with another key is reached", func() error { return w.reaches(near, other) })

	near.kill() // and its device
	for _, pod := range other.pods {
		if _, err := exchange(near.pod, "tcp", pod); !isUnreachable(err) {
			t.Errorf("without the device, %s: %v", pod, err)
		}
	}
	if n := unencrypted.Load(); n > 0 {
		t.Errorf("%d packets of Pods left a node unencrypted", n)
	}
}

// isUnreachable reports whether the kernel refused to send (RFC 792, codes 0 and 1; RFC 4443, section 3.1).
func isUnreachable(err error) bool {
	return errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH)
}

// TestMoveToEncryption: nodes with and without keys reach each other, where that is allowed.
func TestMoveToEncryption(t *testing.T) {
	w := newWorld(t, func(c *plan.Config) {
		if c.Node != "node-2" {
			encrypt(c)
			c.Keyless = plan.Unencrypted
		}
	})
	if w == nil {
		return
	}
	unencrypted := w.countClear()
	w.awaitTunnels()
	until(t, "packets of node-2 are seen", func() error {
		if unencrypted.Load() == 0 {
			return errors.New("there are none")
		}
		return nil
	})
}

// countClear counts the packets on the links of the nodes that have an address of a Pod.
func (w *world) countClear() *atomic.Int64 {
	w.t.Helper()
	count := new(atomic.Int64)
	for _, n := range w.nodes {
		link, err := netlink.LinkByName(n.name)
		must(w.t, err)
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		must(w.t, err)
		all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		must(w.t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Attrs().Index}))
		file := os.NewFile(uintptr(fd), "packets")
		w.t.Cleanup(func() { file.Close() })
		go func() {
			buf := make([]byte, 1<<16)
			for {
				size, err := file.Read(buf)
				if err != nil {
					return
				}
				if w.hasPod(buf[:size]) {
					count.Add(1)
				}
			}
		}()
	}
	return count
}

// hasPod reports whether a packet is from or to a Pod.
func (w *world) hasPod(packet []byte) bool {
	var ends []net.IP
	switch {
	case len(packet) >= 20 && packet[0]>>4 == 4:
		ends = []net.IP{packet[12:16], packet[16:20]}
	case len(packet) >= 40 && packet[0]>>4 == 6:
		ends = []net.IP{packet[8:24], packet[24:40]}
	}
	for _, ip := range ends {
		addr, _ := netip.AddrFromSlice(ip)
		for _, n := range w.nodes {
			for _, p := range n.object.PodCIDRs {
				if p.Contains(addr) {
					return true
				}
			}
		}
	}
	return false
}
