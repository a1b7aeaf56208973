// Package bind helps a process to bind listening sockets: it raises the capability for
// ports below 1024 only while binding (capabilities(7)), and adds remedies to errors.
package bind

import (
	"errors"
	"fmt"
	"syscall"
)

// Share has a socket share its port from now on, with sockets of SharePort.
func Share(socket any) error {
	c, ok := socket.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return SharePort("", "", raw)
}

// WithCure adds a remedy for the user to an error of listening. setting is the flag or
// configuration key of the address. It returns nil if err is nil.
func WithCure(err error, setting string) error {
	for reason, cure := range map[error]string{
		syscall.EADDRINUSE:    "stop the process that uses it, or set another address with " + setting,
		syscall.EACCES:        "ports below 1024 need root or the capability CAP_NET_BIND_SERVICE",
		syscall.EADDRNOTAVAIL: "no interface of this host has that address",
	} {
		if errors.Is(err, reason) {
			return fmt.Errorf("%w; %s", err, cure)
		}
	}
	return err
}
