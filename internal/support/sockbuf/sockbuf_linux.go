package sockbuf

import (
	"os"

	"golang.org/x/sys/unix"
)

func setUnsent(fd uintptr, size int) error {
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, size))
}

func setReceived(fd uintptr, size int) error {
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, size))
}

func queued(fd uintptr) int {
	out, _ := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
	in, _ := unix.IoctlGetInt(int(fd), unix.SIOCINQ)
	return out + in
}
