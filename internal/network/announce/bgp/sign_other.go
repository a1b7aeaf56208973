//go:build !linux

package bgp

import (
	"errors"
	"net/netip"
	"syscall"
)

func sign(syscall.RawConn, netip.Addr, string) error {
	return errors.New("TCP MD5 signatures work on Linux only")
}
