package nodes

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Router is a node alone, with a Pod that is a client and Pods that serve:
//
//	client ── node ── servers
type Router struct {
	Node, Client, Servers *Place
	// NodeAddr is the node's address.
	NodeAddr netip.Addr
}

// NewRouter makes a Router in which all addresses of the range clients are those of the
// client, and all of the range servers those of the Pods that serve. Close it in any case.
func NewRouter(clients, servers netip.Prefix) (*Router, error) {
	toClient, toServers := subnet(20), subnet(21)
	r := &Router{NodeAddr: toServers.of(0)}
	for _, at := range []**Place{&r.Node, &r.Client, &r.Servers} {
		p, err := newPlace()
		if err != nil {
			return r, err
		}
		*at = p
	}
	return r, errors.Join(
		link(r.Node, "client", toClient, r.Client, "node"),
		link(r.Node, "servers", toServers, r.Servers, "node"),
		r.Node.Do(func() error {
			return errors.Join(routeRange(clients, toClient.of(1)), routeRange(servers, toServers.of(1)))
		}),
		r.Client.Do(func() error { return errors.Join(routeAll(toClient.of(0)), own(clients)) }),
		r.Servers.Do(func() error { return errors.Join(routeAll(toServers.of(0)), own(servers)) }),
	)
}

// Close ends the Router and all processes in it.
func (r *Router) Close() {
	for _, p := range []*Place{r.Node, r.Client, r.Servers} {
		if p != nil {
			p.close()
		}
	}
}

// routeOf returns a route to a range, which lacks the way.
func routeOf(p netip.Prefix) *netlink.Route {
	network, _ := netlink.ParseIPNet(p.Masked().String()) // it is a prefix
	return &netlink.Route{Dst: network}
}

// routeRange adds a route to a range through a gateway.
func routeRange(to netip.Prefix, by netip.Addr) error {
	r := routeOf(to)
	r.Gw = by.AsSlice()
	return netlink.RouteAdd(r)
}

// own makes all addresses of a range local.
func own(addrs netip.Prefix) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("device lo: %w", err)
	}
	r := routeOf(addrs)
	r.LinkIndex, r.Type, r.Table, r.Scope = lo.Attrs().Index, unix.RTN_LOCAL, unix.RT_TABLE_LOCAL, unix.RT_SCOPE_HOST
	return netlink.RouteAdd(r)
}
