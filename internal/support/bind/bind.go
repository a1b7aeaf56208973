// Package bind helps a process to bind its listening sockets: with the
// capability for ports below 1024 in effect only meanwhile (capabilities(7)),
// and with errors that say what to do.
package bind

import (
	"errors"
	"fmt"
	"syscall"
)

// WithCure adds to an error of listening what the user can do about it. setting
// is the flag or configuration key that gives another address. It returns nil
// for nil.
func WithCure(err error, setting string) error {
	for reason, cure := range map[error]string{
		syscall.EADDRINUSE:    "another process has it; stop that one, or give another address with " + setting,
		syscall.EACCES:        "ports below 1024 need root or the capability CAP_NET_BIND_SERVICE",
		syscall.EADDRNOTAVAIL: "no interface of this host has that address",
	} {
		if errors.Is(err, reason) {
			return fmt.Errorf("%w; %s", err, cure)
		}
	}
	return err
}
