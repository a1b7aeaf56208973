// Package netns runs functions in network namespaces (network_namespaces(7)), and finds the one that has an address.
package netns

import (
	"errors"
	"net"
	"net/netip"
	"slices"
)

// ErrNotFound is the error if no network namespace has an address.
var ErrNotFound = errors.New("no network namespace of this machine has the address")

// hasAddress reports whether an interface of the namespace of the caller's thread has an address.
func hasAddress(addr netip.Addr) (bool, error) {
	all, err := net.InterfaceAddrs()
	return slices.ContainsFunc(all, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && p.Addr().Unmap() == addr
	}), err
}
