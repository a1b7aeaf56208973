package device

import (
	"errors"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
)

// veth returns the index of an end of a veth pair that is no port of a bridge; 0 if the name is not that of
// one.
func veth(name string) (uint32, error) {
	link, err := netlink.LinkByName(name)
	if _, absent := errors.AsType[netlink.LinkNotFoundError](err); absent {
		return 0, nil
	}
	if err != nil || link.Type() != "veth" || link.Attrs().MasterIndex != 0 {
		return 0, err
	}
	return uint32(link.Attrs().Index), nil
}

// ownRoute returns the index of the device that the route to an address leads to without a gateway, if that is
// for this address alone; 0 if there is none. A route for more would be that of a network with other hosts.
func ownRoute(addr netip.Addr) (uint32, error) {
	routes, err := netlink.RouteGetWithOptions(addr.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	switch {
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return 0, nil
	case err != nil:
		return 0, err
	}
	if len(routes) != 1 || routes[0].Gw != nil || routes[0].Via != nil || routes[0].Dst == nil {
		return 0, nil
	}
	if length, of := routes[0].Dst.Mask.Size(); length != of {
		return 0, nil
	}
	return uint32(routes[0].LinkIndex), nil
}
