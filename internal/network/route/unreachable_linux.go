package route

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/nfnetlink"
)

// unreachablePriority is that of routes to ranges of own Pods: any other route to the same range goes first.
const unreachablePriority = math.MaxUint32

// syncUnreachable has the kernel refuse packets to addresses of own ranges that no Pod has, and to those of peers that
// no route leads to.
func (r *Router) syncUnreachable() (changed int, err error) {
	missing := maps.Clone(r.want.unreachable)
	for _, p := range r.want.local.Unreachable {
		missing[p] = true
	}
	have, err := unreachableOf(r.handle)
	if err != nil {
		return 0, fmt.Errorf("reading unreachable ranges: %w", err)
	}
	var all []request
	for _, route := range have {
		to := destination(&route)
		if missing[to] && uint32(route.Priority) == unreachablePriority {
			delete(missing, to)
			continue
		}
		all = append(all, unreachableRequest(to, uint32(route.Priority), remove))
	}
	for to := range missing {
		all = append(all, unreachableRequest(to, unreachablePriority, create))
	}
	return len(all), r.socket.execute(all)
}

// unreachableOf returns the routes with the protocol that refuse packets.
func unreachableOf(h *netlink.Handle) (found []netlink.Route, err error) {
	filter := &netlink.Route{Protocol: Protocol, Table: mainTable, Type: unix.RTN_UNREACHABLE}
	for _, of := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		all, err := listed(func() ([]netlink.Route, error) {
			return h.RouteListFiltered(of, filter, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
		})
		if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
			return nil, err
		}
		found = append(found, all...)
	}
	return found, nil
}

// unreachableRequest encodes a route that refuses packets (rtnetlink(7), struct rtmsg).
func unreachableRequest(to netip.Prefix, priority uint32, f fate) request {
	data := []byte{
		addressFamily(to.Addr()), byte(to.Bits()), 0, 0, mainTable, Protocol, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNREACHABLE,
	}
	data = binary.NativeEndian.AppendUint32(data, 0) // flags
	data = nfnetlink.AppendAttribute(data, unix.RTA_DST, string(to.Addr().AsSlice()))
	if priority > 0 {
		data = nfnetlink.AppendAttribute(data, unix.RTA_PRIORITY, native(priority))
	}
	return f.request(unix.RTM_NEWROUTE, data, fmt.Sprintf("route unreachable %s", to))
}
