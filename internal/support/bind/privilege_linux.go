package bind

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Privileged calls bind with CAP_NET_BIND_SERVICE in the effective set of the thread if
// the permitted set contains it, so that bind can use ports below 1024. It restores the
// effective set afterwards. See capabilities(7); the image's binary has the capability in
// its permitted set.
func Privileged(bind func() error) error {
	runtime.LockOSThread() // capabilities are per thread
	defer runtime.UnlockOSThread()
	const capability = 1 << unix.CAP_NET_BIND_SERVICE
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if unix.Capget(&header, &sets[0]) != nil || sets[0].Permitted&capability == 0 || sets[0].Effective&capability != 0 {
		return bind()
	}
	sets[0].Effective |= capability
	if unix.Capset(&header, &sets[0]) != nil {
		return bind() // its error is clearer than that of Capset
	}
	bound := bind()
	sets[0].Effective &^= capability
	if err := unix.Capset(&header, &sets[0]); err != nil && bound == nil {
		return os.NewSyscallError("capset", err)
	}
	return bound
}

// SharePort makes a listener share its port with listeners of other processes of the
// same user. It is for net.ListenConfig.
func SharePort(_, _ string, c syscall.RawConn) (err error) {
	if ctrlErr := c.Control(func(fd uintptr) {
		err = os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
	}); ctrlErr != nil {
		return ctrlErr
	}
	return err
}
