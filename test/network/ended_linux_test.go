package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/test/namespace"
)

// TestEnded: a packet to an address of a node's range that no Pod has is answered by that node at once, and does not
// leave it by its default route.
func TestEnded(t *testing.T) {
	w := newWorld(t)
	if w == nil {
		return
	}
	n := w.nodes[0]
	n.kill() // the routes stay
	for f := range n.pods {
		ended := n.pods[f].Next()
		for _, from := range w.nodes { // once: the kernel limits what it sends to one destination
			if by, err := refused(from.pod, ended); err != nil || by != n.addrs[f] {
				t.Errorf("the Pod of %s to %s: refused by %s, %v, want by %s", from.name, ended, by, err, n.addrs[f])
			}
		}
		if _, err := exchange(n.ns, "tcp", ended); !errors.Is(err, unix.EHOSTUNREACH) {
			t.Errorf("%s to %s: %v, want %v", n.name, ended, err, unix.EHOSTUNREACH)
		}
	}
	w.checkAll()
}

// TestUnreachableMoves: the route of an own range follows the Node, and does not hide a range that another Node gets.
func TestUnreachableMoves(t *testing.T) {
	w := newWorld(t)
	if w == nil {
		return
	}
	n, other := w.nodes[0], *w.nodes[1].object
	unreachable := func() string {
		var all []string
		for _, command := range []string{"route show type unreachable proto 80", "-6 route show type unreachable proto 80"} {
			for line := range strings.Lines(n.ip(command)) {
				all = append(all, strings.Fields(line)[1])
			}
		}
		return strings.Join(all, " ")
	}
	if got, want := unreachable(), "10.244.1.0/24 fd00:244:1::/64"; got != want {
		t.Errorf("unreachable are %s, want %s", got, want)
	}
	own := *n.object
	own.PodCIDRs = prefixes("10.244.9.0/24", "fd00:244:9::/64")
	other.PodCIDRs = append(other.PodCIDRs, n.object.PodCIDRs...)
	n.tell(t, command{Put: []*cluster.Node{&other, &own}})
	if got, want := unreachable(), "10.244.9.0/24 fd00:244:9::/64"; got != want {
		t.Errorf("after the ranges moved, unreachable are %s, want %s", got, want)
	}
	for f, pod := range n.pods {
		ended := pod.Next()
		if got, want := n.ip("route get "+ended.String()), "via "+other.InternalIPs[f].String(); !strings.Contains(got, want) {
			t.Errorf("the way to %s: %s, want %s", ended, got, want)
		}
	}
	must(t, w.reaches(n, w.nodes[2])) // the Pod goes on
	n.tell(t, command{Put: w.objects()})
	if got, want := unreachable(), "10.244.1.0/24 fd00:244:1::/64"; got != want {
		t.Errorf("after the ranges moved back, unreachable are %s, want %s", got, want)
	}
}

// refused sends a datagram from a namespace and returns who answers that the destination is unreachable (RFC 792;
// RFC 4443, section 3.1).
func refused(from *namespace.Network, to netip.Addr) (by netip.Addr, err error) {
	err = from.Do(func() error {
		conn, err := net.Dial("udp", netip.AddrPortFrom(to, port).String())
		if err != nil {
			return err
		}
		defer conn.Close()
		raw, err := conn.(syscall.Conn).SyscallConn()
		if err != nil {
			return err
		}
		var failed error
		err = raw.Control(func(fd uintptr) { by, failed = refusal(int(fd), to.Is4()) })
		return errors.Join(err, failed)
	})
	return by, err
}

// refusal sends a datagram by a socket, and returns who sent the error that the socket gets (ip(7), IP_RECVERR).
func refusal(fd int, is4 bool) (by netip.Addr, err error) {
	level, option := unix.IPPROTO_IP, unix.IP_RECVERR
	if !is4 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	}
	if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
		return by, err
	}
	if _, err := unix.Write(fd, []byte("x")); err != nil {
		return by, err
	}
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd)}}, int(once.Milliseconds())) // for errors
	if err != nil || n == 0 {
		return by, fmt.Errorf("no answer: %d, %w", n, err)
	}
	buf := make([]byte, 512)
	_, n, _, _, err = unix.Recvmsg(fd, nil, buf, unix.MSG_ERRQUEUE)
	if err != nil {
		return by, err
	}
	all, err := unix.ParseSocketControlMessage(buf[:n])
	if err != nil || len(all) == 0 {
		return by, fmt.Errorf("%d messages: %w", len(all), err)
	}
	const header = 16 // struct sock_extended_err, with the type of ICMP at 5; then struct sockaddr_in or sockaddr_in6
	data, at, size := all[0].Data, header+4, 4
	if !is4 {
		at, size = header+8, 16
	}
	if want := map[bool]byte{true: 3, false: 1}[is4]; data[5] != want {
		return by, fmt.Errorf("type %d: %w", data[5], unix.Errno(binary.NativeEndian.Uint32(data)))
	}
	by, _ = netip.AddrFromSlice(data[at : at+size])
	return by, nil
}
