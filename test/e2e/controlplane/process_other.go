//go:build unix && !linux

package controlplane

import "syscall"

// ownGroup lets a process be signalled with its children.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
