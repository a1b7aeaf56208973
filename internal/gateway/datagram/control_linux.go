package datagram

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// controlSize is the size of one control message of either family.
const controlSize = (unix.SizeofCmsghdr + unix.SizeofInet6Pktinfo + 7) &^ 7

// receiveDestinations has a socket that is bound to all addresses say which one a datagram came to (ip(7), ipv6(7)).
func receiveDestinations(conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	ctrlErr := raw.Control(func(fd uintptr) {
		if err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1); err != nil { // it is one of IPv4
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		}
	})
	if ctrlErr != nil {
		return ctrlErr
	}
	return os.NewSyscallError("setsockopt", err)
}

// destination returns the address that a datagram came to, and the control message that has one be sent from there,
// which is that of the datagram changed: it leaves by any interface, unless the address needs a specific one. For any
// other message there is none, and the system chooses the address.
func destination(control []byte) (netip.Addr, []byte) {
	if len(control) < unix.CmsgSpace(0) {
		return netip.Addr{}, nil
	}
	header, data, _, err := unix.ParseOneSocketControlMessage(control)
	switch {
	case err != nil:
	case header.Level == unix.IPPROTO_IP && header.Type == unix.IP_PKTINFO && len(data) == unix.SizeofInet4Pktinfo:
		// interface, address of the answer, address of the header
		binary.NativeEndian.PutUint32(data, 0)
		return netip.AddrFrom4([4]byte(data[4:8])), control
	case header.Level == unix.IPPROTO_IPV6 && header.Type == unix.IPV6_PKTINFO && len(data) == unix.SizeofInet6Pktinfo:
		// address, interface
		addr := netip.AddrFrom16([16]byte(data[:16]))
		if !addr.IsLinkLocalUnicast() {
			binary.NativeEndian.PutUint32(data[16:], 0)
		}
		return addr.Unmap(), control
	}
	return netip.Addr{}, nil
}
