package wire

import "syscall"

// readSocket reads from a socket. The commands that are built for Windows do not serve.
func readSocket(fd uintptr, to []byte) (int, error) { return syscall.Read(syscall.Handle(fd), to) }
