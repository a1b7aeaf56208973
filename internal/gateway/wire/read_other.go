//go:build !windows

package wire

import "syscall"

// readSocket reads from a socket (read(2)).
func readSocket(fd uintptr, to []byte) (int, error) { return syscall.Read(int(fd), to) }
