package conntrack

import (
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/proxy/frontend"
)

// Target is a frontend whose flows may have become stale.
type Target struct {
	frontend.Address
	// Endpoints are those at which flows of the frontend may go on, sorted and unique: all that
	// serve, also those that new flows do not use because they terminate, or because of traffic
	// policies and hints. None makes every flow stale that an endpoint was chosen for.
	Endpoints []netip.AddrPort
	// Deleted: the frontend is no more, and Endpoints do not count. Nobody would reset its TCP
	// connections, so they go on.
	Deleted bool
}

// entry is what decides about an entry of connection tracking.
type entry struct {
	// destination is where the client sent the first packet.
	destination frontend.Address
	// replies is where replies come from: the endpoint, or the destination if none was chosen.
	replies netip.AddrPort
	// zone is not 0 where somebody tracks packets apart from those that Services are for.
	zone uint16
}

// translated reports whether an endpoint was chosen for the flow.
func (e *entry) translated() bool {
	return e.replies != netip.AddrPortFrom(e.destination.Addr, e.destination.Port)
}

// targets are the endpoints at which flows may go on, by frontend.
type targets map[frontend.Address][]netip.AddrPort

// stale reports whether the entry is of a flow to one of the targets that cannot go on.
//
// A flow for which no endpoint was chosen began while the frontend had none, or before it was
// programmed. Its packets pass by the Service until the entry is gone, so it is stale as soon
// as there is an endpoint. In a zone other than the default it is somebody else's: bridges
// track packets there before their destination is translated.
func (t targets) stale(e *entry) bool {
	endpoints, ours := t[e.destination]
	if !ours {
		return false
	}
	if _, goesOn := slices.BinarySearchFunc(endpoints, e.replies, netip.AddrPort.Compare); goesOn {
		return false
	}
	return e.translated() || len(endpoints) > 0 && e.zone == 0
}

// common is what the destinations of stale entries have in common, by which the kernel can
// leave out other entries. Zero fields differ.
type common struct {
	addr netip.Addr
	port uint16
	// translated: only entries for which an endpoint was chosen can be stale.
	translated bool
}

func (t targets) common() common {
	var c common
	first := true
	for at, endpoints := range t {
		if first {
			c = common{at.Addr, at.Port, true}
			first = false
		}
		if c.addr != at.Addr {
			c.addr = netip.Addr{}
		}
		if c.port != at.Port {
			c.port = 0
		}
		c.translated = c.translated && len(endpoints) == 0
	}
	return c
}
