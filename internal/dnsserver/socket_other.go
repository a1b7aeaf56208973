//go:build !linux

package dnsserver

import "syscall"

// Elsewhere one socket serves a port, and the system chooses the address that
// answers come from.
const (
	reusePort  = false
	controlLen = 0
)

func controlUDP(string, string, syscall.RawConn) error { return nil }

func replyControl([]byte) []byte { return nil }
