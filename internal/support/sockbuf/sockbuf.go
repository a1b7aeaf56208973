// Package sockbuf bounds what the kernel holds for TCP connections that proxies pass data between, and says how much
// it is (tcp(7)). Without bounds a client that takes nothing costs megabytes: the kernel lets a connection grow by what
// it could send, and by what the other end sends meanwhile. In control groups of version 2 that is memory of the group.
package sockbuf

import "syscall"

const (
	// small and large are bounds in octets: from how many on, that were written and cannot be sent yet, writing waits,
	// and how many may wait to be read, which the kernel doubles. Few connections have large bounds, so that each can
	// be as fast as the network.
	small, large, few = 32 << 10, 256 << 10, 64
)

// Size returns the bounds for one more connection, if there are so many.
func Size(conns int) (octets int) {
	if conns < few {
		return large
	}
	return small
}

// Accepted bounds a connection that was accepted. That of a listener does not pass on what is set for it, if it is one
// of Multipath TCP, as those of package net are.
func Accepted(c syscall.Conn, size int) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return control(raw, func(fd uintptr) error { return setUnsent(fd, size) })
}

// Dialing bounds a connection to a host that is near: what waits to be read does not grow with the distance. It is for
// net.Dialer.
func Dialing(size int) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		return control(c, func(fd uintptr) error {
			if err := setReceived(fd, size); err != nil {
				return err
			}
			return setUnsent(fd, size)
		})
	}
}

func control(c syscall.RawConn, do func(fd uintptr) error) (err error) {
	if ctrlErr := c.Control(func(fd uintptr) { err = do(fd) }); ctrlErr != nil {
		return ctrlErr
	}
	return err
}

// Queued returns how many octets the kernel holds for a connection: those that were sent and not acknowledged, or not
// sent yet, and those that wait to be read. It is 0 if that is not known.
func Queued(c syscall.Conn) (octets int) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = control(raw, func(fd uintptr) error { // if it fails, the connection is closed
		octets = queued(fd)
		return nil
	})
	return octets
}
