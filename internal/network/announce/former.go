package announce

import (
	"maps"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// former is the former nodes of addresses. They stay until they have the address again for a while, or their Node is
// gone: nobody knows when the last connection has ended.
type former struct {
	kernel formerNodes
	nodes  map[netip.Addr]netip.Addr // that the kernel has
	// stale: something changed that nodes depends on. failed: the kernel took nothing the last time.
	stale, failed bool
}

// setFormer has the kernel know the former nodes.
func (l *loop) setFormer() {
	f := &l.former
	for _, k := range l.links {
		f.stale = f.stale || k.moved
		k.moved = false
	}
	if !f.stale {
		return
	}
	f.stale = false
	nodes := make(map[netip.Addr]netip.Addr)
	for _, k := range l.links {
		if len(k.former) > 0 {
			l.cfg.Store.View(func(v *cluster.View) { l.addFormer(v, k, nodes) })
		}
	}
	failed := f.failed
	if f.failed = false; maps.Equal(nodes, f.nodes) {
		return
	}
	f.nodes = nodes
	if err := f.kernel.Set(nodes); err != nil {
		f.nodes, f.failed = nil, true
		if !failed {
			l.cfg.Log.Warn(
				"connections that began at the nodes which had addresses before are lost; it is tried again", "err", err,
			)
		}
	}
}

// addFormer adds the former nodes of a link that are ready: what is sent to others is lost, and it is better that the
// client learns that its connection is.
func (l *loop) addFormer(v *cluster.View, k *link, former map[netip.Addr]netip.Addr) {
	for a, id := range k.former {
		n := v.Node(l.names[id])
		if n == nil {
			delete(k.former, a)
			continue
		}
		i := slices.IndexFunc(n.Addresses, func(o netip.Addr) bool { return o.Is4() == a.Is4() && k.contains(o) })
		if i >= 0 && n.Ready {
			former[a] = n.Addresses[i]
		}
	}
}
