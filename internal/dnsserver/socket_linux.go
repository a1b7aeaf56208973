package dnsserver

import (
	"encoding/binary"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// reusePort tells whether several sockets share a UDP port, and the system
// spreads packets over them.
const reusePort = true

// controlLen has room for one message of either family.
var controlLen = unix.CmsgSpace(max(unix.SizeofInet4Pktinfo, unix.SizeofInet6Pktinfo))

// controlUDP makes a socket share its port, and tell where packets were sent.
func controlUDP(network, _ string, c syscall.RawConn) error {
	var err error
	ctrlErr := c.Control(func(fd uintptr) {
		if err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
			return
		}
		if network == "udp4" {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		} else {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
		}
	})
	if ctrlErr != nil {
		return ctrlErr
	}
	return err
}

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
