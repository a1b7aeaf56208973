//go:build unix && !linux

package process

import "syscall"

// ownGroup lets a process be signalled with its children.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
