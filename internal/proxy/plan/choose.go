package plan

import (
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// endpoint is an endpoint of one port of a Service.
type endpoint struct {
	addr                        netip.AddrPort
	ready, serving, terminating bool
	place                       *cluster.Place
	pod                         string // empty without one
	weight                      int
}

// noPlace is the place of endpoints whose slice has none.
var noPlace cluster.Place

func (e *endpoint) local(n *Node) bool { return e.place.Node != "" && e.place.Node == n.Name }

// endpointsOf returns the endpoints of a port in the slices of a Service, sorted by address.
// Of an address that is there twice, one that does not terminate counts.
func endpointsOf(all []*cluster.EndpointSlice, family cluster.AddressType, port cluster.Port) (found []endpoint) {
	for _, s := range all {
		if s.AddressType != family {
			continue
		}
		places, weight := s.Places(), weightOf(s)
		for _, p := range s.Ports {
			if p.Name != port.Name || p.Protocol != port.Protocol || p.Number == 0 {
				continue
			}
			found = slices.Grow(found, len(s.Endpoints))
			for i := range s.Endpoints {
				e, place := &s.Endpoints[i], &noPlace
				if places != nil {
					place = &places[i]
				}
				if place.Additional {
					continue
				}
				found = append(found, endpoint{
					addr: netip.AddrPortFrom(e.Addr, p.Number), place: place,
					ready: e.Ready, serving: e.Serving, terminating: e.Terminating, pod: e.Pod, weight: weight,
				})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b endpoint) int {
		if c := a.addr.Compare(b.addr); c != 0 || a.terminating == b.terminating {
			return c
		}
		if b.terminating {
			return -1
		}
		return 1
	})
	return slices.CompactFunc(found, func(a, b endpoint) bool { return a.addr == b.addr })
}

// choice is which endpoints connections may use.
type choice struct {
	// cluster are those for policy Cluster, local those on the node for policy Local.
	// If cluster is empty, no endpoint can be used on any node.
	cluster, local []netip.AddrPort
	// clusterShares and localShares are frontend.Frontend.Shares for them.
	clusterShares, localShares []uint8
	// serving are all that serve: flows that began may go on there.
	serving []netip.AddrPort
	// hints are those that cluster was narrowed by; empty if it was not.
	hints Unused
}

// choose chooses among endpoints (KEP-1669 and KEP-2433). With policy Cluster these are the
// ready ones, narrowed by hints; with policy Local the ready ones on the node. If none is
// ready, those that still serve while they terminate are chosen instead. Of those chosen, the ones
// of weight 0 are left out if there are others.
func choose(all []endpoint, node *Node) (c choice) {
	isReady := func(e *endpoint) bool { return e.ready }
	isServing := func(e *endpoint) bool { return e.serving && e.terminating }
	ready := filter(all, isReady)
	usable := ready
	if len(usable) == 0 {
		usable = filter(all, isServing)
	} else {
		usable, c.hints = hinted(ready, node)
	}
	c.cluster, c.clusterShares = weighted(usable)
	isLocal := func(e *endpoint) bool { return e.local(node) }
	local := filter(ready, isLocal)
	if len(local) == 0 {
		local = filter(filter(all, isServing), isLocal)
	}
	c.local, c.localShares = weighted(local)
	serving := filter(all, func(e *endpoint) bool { return e.serving })
	isSame := func(e endpoint, a netip.AddrPort) bool { return e.addr == a }
	if c.serving = c.cluster; !slices.EqualFunc(serving, c.cluster, isSame) { // else one list in memory
		c.serving = addresses(serving)
	}
	return c
}

// hinted returns the endpoints that clients on the node are to use, and why the others are left out; empty
// if none is.
func hinted(ready []endpoint, node *Node) (found []endpoint, by Unused) {
	found, near := cluster.Nearest(ready, func(e *endpoint) *cluster.Place { return e.place }, node.Name, node.Zone)
	return found, map[cluster.Nearness]Unused{cluster.SameNode: OtherNode, cluster.SameZone: OtherZone}[near]
}

// filter returns those of all to keep; all itself if these are all.
func filter(all []endpoint, keep func(*endpoint) bool) (kept []endpoint) {
	n := 0
	for i := range all {
		if keep(&all[i]) {
			n++
		}
	}
	if n == len(all) {
		return all
	}
	kept = make([]endpoint, 0, n)
	for i := range all {
		if keep(&all[i]) {
			kept = append(kept, all[i])
		}
	}
	return kept
}

func addresses(all []endpoint) []netip.AddrPort {
	if len(all) == 0 {
		return nil
	}
	list := make([]netip.AddrPort, len(all))
	for i := range all {
		list[i] = all[i].addr
	}
	return list
}
