package bridge

import (
	"net/netip"

	"github.com/vishvananda/netlink"
)

// deviceOf returns the bridge that the route to an address leads to; empty if it leads elsewhere.
func deviceOf(addr netip.Addr) (string, error) {
	routes, err := netlink.RouteGet(addr.AsSlice())
	if err != nil || len(routes) == 0 {
		return "", err
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil || link.Type() != "bridge" {
		return "", err
	}
	return link.Attrs().Name, nil
}
