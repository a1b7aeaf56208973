package dnsserver

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// sharesPorts tells whether several sockets share a UDP port, and the system
// spreads packets over them.
const sharesPorts = true

// udpSocket is a UDP socket that waits in its system calls. The runtime's
// poller does not know it: that would cost three calls more for each batch of
// packets, and a goroutine's way through the scheduler.
type udpSocket struct {
	fd    atomic.Int32 // -1 when closed
	every bool         // it is bound to every address of the host
}

// receiveBuffer is how many octets of packets may wait for the server, as far
// as the system allows (net.core.rmem_max).
const receiveBuffer = 1 << 20

// listenUDP binds a socket that shares its port with others of this server.
// Where cpu is not negative, the system is told that packets that it takes in
// on that processor had better come to this socket.
func listenUDP(addr netip.AddrPort, cpu int) (*udpSocket, error) {
	family := unix.AF_INET6
	if addr.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s := &udpSocket{every: addr.Addr().IsUnspecified()}
	s.fd.Store(int32(fd))
	if err = s.setOptions(family, cpu); err == nil {
		var sa unix.Sockaddr
		if sa, err = sockaddr(addr); err == nil {
			err = os.NewSyscallError("bind", unix.Bind(fd, sa))
		}
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *udpSocket) setOptions(family, cpu int) error {
	options := []struct{ level, name, value int }{
		{unix.SOL_SOCKET, unix.SO_REUSEPORT, 1},
		{unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer},
	}
	if cpu >= 0 {
		options = append(options, struct{ level, name, value int }{unix.SOL_SOCKET, unix.SO_INCOMING_CPU, cpu})
	}
	if family == unix.AF_INET6 {
		options = append(options, struct{ level, name, value int }{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1})
	}
	if s.every {
		// Packets tell which address they were sent to: answers come from there.
		o := struct{ level, name, value int }{unix.IPPROTO_IP, unix.IP_PKTINFO, 1}
		if family == unix.AF_INET6 {
			o.level, o.name = unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
		}
		options = append(options, o)
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(int(s.fd.Load()), o.level, o.name, o.value); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	return nil
}

func sockaddr(addr netip.AddrPort) (unix.Sockaddr, error) {
	if addr.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}, nil
	}
	sa := &unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()}
	if zone := addr.Addr().Zone(); zone != "" {
		ifi, err := net.InterfaceByName(zone)
		if err != nil {
			return nil, err
		}
		sa.ZoneId = uint32(ifi.Index)
	}
	return sa, nil
}

// interrupt wakes who waits for packets, and lets nobody wait from now on. What
// the system has taken in can still be received.
func (s *udpSocket) interrupt() {
	// The system does it, and says that the socket is not connected.
	_ = unix.Shutdown(int(s.fd.Load()), unix.SHUT_RD)
}

// close gives the socket back; nobody may use it at the same time.
func (s *udpSocket) close() {
	if fd := s.fd.Swap(-1); fd >= 0 {
		_ = unix.Close(int(fd)) // nothing can be done about it
	}
}

// processors are those that this process may run on.
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

// controlLen has room for one control message of either family.
const controlLen = (unix.SizeofCmsghdr + unix.SizeofInet6Pktinfo + 7) &^ 7

// replyControl turns the control message of a packet into that of its answer:
// the same address, but any interface unless the address needs its own. It
// gives nil, which leaves the address to the system, for any other message.
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
