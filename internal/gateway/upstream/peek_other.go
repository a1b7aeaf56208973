//go:build !windows

package upstream

import (
	"errors"
	"syscall"
)

// hasNothing reports whether there is nothing to read from a socket, not even its end (recv(2)).
func hasNothing(fd uintptr) bool {
	var octet [1]byte
	_, _, err := syscall.Recvfrom(int(fd), octet[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return errors.Is(err, syscall.EAGAIN)
}
