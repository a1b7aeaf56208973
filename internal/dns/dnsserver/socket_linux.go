package dnsserver

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// sharesPorts reports whether several sockets can share a UDP port, with packets
// distributed over them.
const sharesPorts = true

// receiveBuffer is the size of the receive buffer in octets, as far as the system
// allows it (net.core.rmem_max). The system doubles it to allow for its overhead per
// packet.
const receiveBuffer = 512 << 10

// socketOption is an option for setsockopt(2).
type socketOption struct{ level, name, value int }

// controlUDP returns a function that sets up a socket for addr before it is bound. The
// socket shares its port. If addr is unspecified, the socket reports the destination
// address of each packet. Unless cpu is anyCPU, the socket is preferred for packets that
// the system receives on that processor.
func controlUDP(cpu int, addr netip.Addr) func(network, address string, c syscall.RawConn) error {
	return func(network, _ string, c syscall.RawConn) error {
		options := []socketOption{
			{unix.SOL_SOCKET, unix.SO_REUSEPORT, 1},
		}
		switch {
		case addr.IsUnspecified() && network == "udp6":
			options = append(options, socketOption{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1})
		case addr.IsUnspecified():
			options = append(options, socketOption{unix.IPPROTO_IP, unix.IP_PKTINFO, 1})
		}
		if cpu != anyCPU {
			options = append(options, socketOption{unix.SOL_SOCKET, unix.SO_INCOMING_CPU, cpu})
		}
		var err error
		ctrlErr := c.Control(func(fd uintptr) {
			if has, _ := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF); has < 2*receiveBuffer {
				options = append(options, socketOption{unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer})
			}
			for _, o := range options {
				if err = unix.SetsockoptInt(int(fd), o.level, o.name, o.value); err != nil {
					err = os.NewSyscallError("setsockopt", err)
					return
				}
			}
		})
		if ctrlErr != nil {
			return ctrlErr
		}
		return err
	}
}

// leave makes new packets go to the other sockets that share the port: it connects the
// socket to a port of this host that sends no packets (discard, RFC 863). Packets in
// the receive buffer stay there and can be answered. If connecting fails, the socket
// receives packets until it is closed.
func leave(conn *net.UDPConn) {
	own := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	var to unix.Sockaddr
	const discard = 9
	switch {
	case own.Is4() && own.IsUnspecified():
		to = &unix.SockaddrInet4{Port: discard, Addr: [4]byte{127, 0, 0, 1}}
	case own.Is4():
		to = &unix.SockaddrInet4{Port: discard, Addr: own.As4()}
	case own.IsUnspecified():
		to = &unix.SockaddrInet6{Port: discard, Addr: netip.IPv6Loopback().As16()}
	default:
		to = &unix.SockaddrInet6{Port: discard, Addr: own.As16()}
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _ = unix.Connect(int(fd), to) })
}

// processors returns the processors that this process may run on.
func processors() (cpus []int) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	for cpu := 0; len(cpus) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// controlLen is the size of one control message of either family.
const controlLen = (unix.SizeofCmsghdr + unix.SizeofInet6Pktinfo + 7) &^ 7

// replyControl turns the control message of a packet into that of its answer: the same
// address, and any interface unless the address needs a specific one. For any other
// message it returns nil, and the system chooses the address.
func replyControl(control []byte) []byte {
	if len(control) < unix.CmsgSpace(0) {
		return nil
	}
	header, data, _, err := unix.ParseOneSocketControlMessage(control)
	if err != nil {
		return nil
	}
	switch {
	case header.Level == unix.IPPROTO_IP && header.Type == unix.IP_PKTINFO && len(data) == unix.SizeofInet4Pktinfo:
		// interface, address of the answer, address of the header
		binary.NativeEndian.PutUint32(data, 0)
	case header.Level == unix.IPPROTO_IPV6 && header.Type == unix.IPV6_PKTINFO && len(data) == unix.SizeofInet6Pktinfo:
		// address, interface
		if !netip.AddrFrom16([16]byte(data)).IsLinkLocalUnicast() {
			binary.NativeEndian.PutUint32(data[16:], 0)
		}
	default:
		return nil
	}
	return control
}
