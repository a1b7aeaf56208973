//go:build !linux

package datagram

import (
	"net"
	"net/netip"
)

const controlSize = 0

// receiveDestinations does nothing: replies come from the address that the system chooses.
func receiveDestinations(*net.UDPConn) error { return nil }

func destination([]byte) (netip.Addr, []byte) { return netip.Addr{}, nil }
