package link_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/network/link"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

const mtu = 1400

// config is that of a node with these addresses, see newNode.
var config = link.Config{MTU: mtu, Source4: netip.MustParseAddr("192.0.2.1"), Source6: netip.MustParseAddr("2001:db8::1")}

// newNode gives the node's namespace, which is the process's, its addresses. It drops packets that came by another
// device than the one to their source.
func newNode(tb testing.TB) {
	tb.Helper()
	namespacetest.SetSysctl(tb, "net/ipv4/conf/all/rp_filter", "1")
	namespacetest.SetSysctl(tb, "net/ipv4/conf/default/rp_filter", "1")
	namespacetest.SetUp(tb, "lo", netip.PrefixFrom(config.Source4, 32), netip.PrefixFrom(config.Source6, 128))
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// newPod returns the nth Pod, with a namespace, and without a link.
func newPod(tb testing.TB, n int) (*namespace.Network, link.Pod) {
	tb.Helper()
	ns, err := namespace.New()
	must(tb, err)
	tb.Cleanup(func() { ns.Close() })
	return ns, link.Pod{
		NetNS: ns.Path(), Interface: "eth0", Host: link.HostName(fmt.Sprint("c", n), "eth0"), Alias: "portolan shop/web",
		Addresses: []netip.Addr{
			netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}),
			netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(n >> 8), 15: byte(n)}),
		},
	}
}

// echo answers on TCP and UDP, on port 7 of all addresses of a namespace, until the test ends.
func echo(tb testing.TB, ns *namespace.Network) {
	tb.Helper()
	must(tb, ns.Do(func() error {
		tcp, err := net.Listen("tcp", ":7")
		if err != nil {
			return err
		}
		tb.Cleanup(func() { tcp.Close() })
		go func() {
			for {
				conn, err := tcp.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					_, _ = io.Copy(conn, conn)
				}()
			}
		}()
		for _, at := range []string{"0.0.0.0:7", "[::]:7"} {
			udp, err := new(net.ListenConfig).ListenPacket(tb.Context(), "udp"+map[bool]string{true: "6", false: "4"}[at[0] == '['], at)
			if err != nil {
				return err
			}
			tb.Cleanup(func() { udp.Close() })
			go func() {
				buffer := make([]byte, 1<<16)
				for {
					n, from, err := udp.ReadFrom(buffer)
					if err != nil {
						return
					}
					_, _ = udp.WriteTo(append([]byte(from.String()+"\n"), buffer[:n]...)[:n], from)
				}
			}()
		}
		return nil
	}))
}

// patience is how long a packet that must come may take.
const patience = 5 * time.Second

// talk sends octets from the thread's namespace to an address, by "tcp", "udp", with as many octets as the MTU
// has room for and none fragmented, or "icmp", and returns when they came back. By "udp" it returns the source
// that the other side saw.
func talk(protocol string, to netip.Addr) (source string, err error) {
	if protocol == "icmp" {
		return "", ping(to)
	}
	dialer := net.Dialer{Timeout: patience, Control: dontFragment(to)}
	conn, err := dialer.DialContext(context.Background(), protocol, netip.AddrPortFrom(to, 7).String())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	size := mtu - 20 - 8
	if to.Is6() {
		size = mtu - 40 - 8
	}
	if protocol == "tcp" {
		size = 1 << 20
	}
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(make([]byte, size))
		sent <- err
	}()
	reply := make([]byte, size)
	if _, err := io.ReadFull(conn, reply); err != nil {
		return "", errors.Join(err, <-sent)
	}
	source, _, _ = strings.Cut(string(reply), "\n")
	return source, <-sent
}

// dontFragment has the kernel refuse packets larger than the MTU, and set DF (RFC 791) in others.
func dontFragment(to netip.Addr) func(_, _ string, conn syscall.RawConn) error {
	return func(_, _ string, conn syscall.RawConn) (err error) {
		controlled := conn.Control(func(fd uintptr) {
			if to.Is4() {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
			} else {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1)
			}
		})
		return errors.Join(controlled, err)
	}
}

// ping sends an echo request of ICMP and waits for the reply.
func ping(to netip.Addr) error {
	network, at, number := "ip4:icmp", "0.0.0.0", 1
	var request, reply icmp.Type = ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply
	if to.Is6() {
		network, at, number = "ip6:ipv6-icmp", "::", 58
		request, reply = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	conn, err := icmp.ListenPacket(network, at)
	if err != nil {
		return err
	}
	defer conn.Close()
	message := icmp.Message{Type: request, Body: &icmp.Echo{ID: os.Getpid() & 0xffff, Data: make([]byte, 1000)}}
	packet, err := message.Marshal(nil)
	if err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := conn.WriteTo(packet, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		return err
	}
	buffer := make([]byte, 1<<16)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return err
		}
		got, err := icmp.ParseMessage(number, buffer[:n])
		if err == nil && got.Type == reply && from.String() == to.String() {
			return nil
		}
	}
}

// sniff counts the packets that a namespace's devices see from then on. The function it returns says how many
// there were, and how many were ARP or neighbor discovery.
func sniff(tb testing.TB, ns *namespace.Network) func() (all, discovery int) {
	tb.Helper()
	var fd int
	must(tb, ns.Do(func() (err error) {
		const everything = uint16(unix.ETH_P_ALL)<<8 | uint16(unix.ETH_P_ALL)>>8 // in network order
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(everything))
		if err != nil {
			return err
		}
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
	}))
	tb.Cleanup(func() { unix.Close(fd) })
	return func() (all, discovery int) {
		frame := make([]byte, 1<<17)
		for {
			n, _, err := unix.Recvfrom(fd, frame, 0)
			if err != nil {
				return all, discovery
			}
			all++
			if isDiscovery(frame[:n]) {
				discovery++
			}
		}
	}
}

func isDiscovery(frame []byte) bool {
	switch kind := uint16(frame[12])<<8 | uint16(frame[13]); {
	case kind == unix.ETH_P_ARP:
		return true
	case kind == unix.ETH_P_IPV6 && len(frame) > 54 && frame[20] == 58: // ICMPv6 without another header between
		return frame[54] >= 133 && frame[54] <= 137 // RFC 4861, section 4
	}
	return false
}

// create is link.Create without the index.
func create(cfg link.Config, pod link.Pod) error {
	_, err := link.Create(cfg, pod)
	return err
}
