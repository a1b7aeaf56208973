//go:build !linux

package bind

import "syscall"

// Privileged calls bind.
func Privileged(bind func() error) error { return bind() }

// SharePort does nothing: sockets cannot share ports here.
func SharePort(string, string, syscall.RawConn) error { return nil }
