package bind

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Privileged calls bind with CAP_NET_BIND_SERVICE in effect, if the process
// is permitted it: then bind has ports below 1024. It is not in effect before
// and after. See capabilities(7); the image's file has it as a permitted one.
func Privileged(bind func() error) error {
	runtime.LockOSThread() // capabilities are a thread's
	defer runtime.UnlockOSThread()
	const right = 1 << unix.CAP_NET_BIND_SERVICE
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if unix.Capget(&header, &sets[0]) != nil || sets[0].Permitted&right == 0 || sets[0].Effective&right != 0 {
		return bind()
	}
	sets[0].Effective |= right
	if unix.Capset(&header, &sets[0]) != nil {
		return bind() // what it says is plainer
	}
	bound := bind()
	sets[0].Effective &^= right
	if err := unix.Capset(&header, &sets[0]); err != nil && bound == nil {
		return os.NewSyscallError("capset", err)
	}
	return bound
}
