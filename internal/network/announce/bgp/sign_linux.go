package bgp

import (
	"errors"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// errLong is the error of a password that the kernel has no room for.
var errLong = errors.New("the password has more than 80 octets")

// sign has the kernel sign the segments of a connection to an address, and check those that it receives (RFC 2385,
// tcp(7)).
func sign(c syscall.RawConn, to netip.Addr, password string) (err error) {
	sig := unix.TCPMD5Sig{Keylen: uint16(len(password))}
	if copy(sig.Key[:], password) < len(password) {
		return errLong
	}
	if to.Is4() {
		sig.Addr.Family = unix.AF_INET
		addr := to.As4()
		copy(sig.Addr.Data[2:], addr[:]) // struct sockaddr_in: port, address
	} else {
		sig.Addr.Family = unix.AF_INET6
		addr := to.As16()
		copy(sig.Addr.Data[6:], addr[:]) // struct sockaddr_in6: port, flow, address
	}
	ctrlErr := c.Control(func(fd uintptr) {
		err = os.NewSyscallError("setsockopt", unix.SetsockoptTCPMD5Sig(int(fd), unix.IPPROTO_TCP, unix.TCP_MD5SIG, &sig))
	})
	return errors.Join(ctrlErr, err)
}
