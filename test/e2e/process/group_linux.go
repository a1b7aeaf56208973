package process

import "syscall"

// ownGroup lets a process be signaled with its children, and ends it when this
// process dies.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
