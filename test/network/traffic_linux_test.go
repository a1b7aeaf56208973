package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/test/namespace"
)

// port is where nodes and Pods answer with the address that they see.
const port = 5000

// serve answers connections and datagrams in the namespace of the caller's thread.
func serve(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, addrOf(conn.RemoteAddr()).String())
			conn.Close()
		}
	}()
	for _, network := range []string{"udp4", "udp6"} {
		u, err := net.ListenUDP(network, &net.UDPAddr{Port: port})
		must(t, err)
		t.Cleanup(func() { u.Close() })
		go func() {
			buf := make([]byte, 1<<16)
			for {
				n, from, err := u.ReadFromUDPAddrPort(buf)
				if err != nil {
					return
				}
				copy(buf[:n], from.Addr().Unmap().String()+"\n")
				_, _ = u.WriteToUDPAddrPort(buf[:n], from) // as large as the question
			}
		}()
	}
}

func addrOf(a net.Addr) netip.Addr {
	p, _ := netip.ParseAddrPort(a.String())
	return p.Addr().Unmap()
}

// once is how long an answer may take.
const once = 3 * time.Second

// exchange sends by a protocol from a namespace, and returns the source that the other end saw.
func exchange(from *namespace.Network, protocol string, to netip.Addr) (source string, err error) {
	at := netip.AddrPortFrom(to, port)
	err = from.Do(func() error {
		switch protocol {
		case "tcp":
			source, err = exchangeTCP(at)
		case "udp":
			source, err = exchangeUDP(at, 100)
		case "udp of the MTU":
			headers := 20 + 8
			if to.Is6() {
				headers = 40 + 8
			}
			source, err = exchangeUDP(at, podMTU-headers)
		case "icmp":
			err = ping(to)
		}
		return err
	})
	return source, err
}

func exchangeTCP(to netip.AddrPort) (string, error) {
	conn, err := net.DialTimeout("tcp", to.String(), once)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(once)); err != nil {
		return "", err
	}
	source, err := io.ReadAll(conn)
	return string(source), err
}

// exchangeUDP sends a datagram that may not be fragmented.
func exchangeUDP(to netip.AddrPort, size int) (string, error) {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		_ = c.Control(func(fd uintptr) {
			if to.Addr().Is4() {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
			} else {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
			}
		})
		return err
	}}
	conn, err := d.Dial("udp", to.String())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	buf := make([]byte, size)
	if err := conn.SetDeadline(time.Now().Add(once)); err != nil {
		return "", err
	}
	if _, err := conn.Write(buf); err != nil {
		return "", err
	}
	n, err := conn.Read(buf)
	if err == nil && n != size {
		err = fmt.Errorf("%d octets, want %d", n, size)
	}
	var source string
	_, _ = fmt.Sscan(string(buf), &source)
	return source, err
}

// ping sends an echo request (RFC 792; RFC 4443, section 4.1).
func ping(to netip.Addr) error {
	network, request, reply := "ip4:icmp", byte(8), byte(0)
	if to.Is6() {
		network, request, reply = "ip6:ipv6-icmp", 128, 129
	}
	conn, err := net.Dial(network, to.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	message := []byte{request, 0, 0, 0, 'p', 'o', 0, 1, 'x', 'y'}
	if to.Is4() { // else the kernel does so
		binary.BigEndian.PutUint16(message[2:], checksum(message))
	}
	if err := conn.SetDeadline(time.Now().Add(once)); err != nil {
		return err
	}
	if _, err := conn.Write(message); err != nil {
		return err
	}
	buf := make([]byte, 200)
	for {
		n, _, err := conn.(*net.IPConn).ReadFrom(buf) // without the header
		if err != nil {
			return err
		}
		if n >= 10 && buf[0] == reply && buf[4] == 'p' && buf[8] == 'x' {
			return nil
		}
	}
}

// checksum is that of RFC 1071.
func checksum(data []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(data); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(data[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// protocols are what is tried between two ends.
var protocols = []string{"tcp", "udp", "udp of the MTU", "icmp"}

// end is a node or its Pod.
type end struct {
	name  string
	ns    *namespace.Network
	addrs []netip.Addr
	isPod bool
}

func (w *world) ends() (all []end) {
	for _, n := range w.nodes {
		all = append(all, end{n.name, n.ns, n.addrs, false}, end{"the Pod of " + n.name, n.pod, n.pods, true})
	}
	return all
}

// checkAll sends between all Pods, and between all Pods and nodes, by all protocols of both families. Each must see
// the address of the other.
func (w *world) checkAll() {
	w.t.Helper()
	for _, from := range w.ends() {
		for _, to := range w.ends() {
			if from.name == to.name || !from.isPod && !to.isPod {
				continue
			}
			for f := range to.addrs {
				for _, protocol := range protocols {
					source, err := exchange(from.ns, protocol, to.addrs[f])
					if err == nil && protocol != "icmp" && source != from.addrs[f].String() {
						err = errors.New("it sees " + source)
					}
					if err != nil {
						w.t.Errorf("%s to %s, %s, %s: %v", from.name, to.name, to.addrs[f], protocol, err)
					}
				}
			}
		}
	}
}

// reaches returns an error unless the Pod of one node reaches that of another by TCP, in both families.
func (w *world) reaches(from, to *node) error {
	for f := range to.pods {
		if source, err := exchange(from.pod, "tcp", to.pods[f]); err != nil || source != from.pods[f].String() {
			return fmt.Errorf("%s to %s: %q, %w", from.name, to.pods[f], source, err)
		}
	}
	return nil
}
