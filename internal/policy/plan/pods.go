package plan

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// pod is a Pod that may have addresses of its own: it has not finished, and is not in the network of
// its node.
type pod struct {
	key  cluster.Key
	slot uint32
	// source is nil if only its addresses were reported, see Compiler.SetLocal.
	source *cluster.Pod
	// reported: the addresses are those that were reported.
	reported bool
	// wanted are its addresses, held those of them that no other Pod has.
	wanted, held []netip.Addr
	// devices are those that it is behind; none for Pods of other nodes.
	devices []uint32
	// local is nil for Pods of other nodes.
	local *local
}

// local is a Pod of the node.
type local struct {
	dirty   bool
	classes [2]*class // by ruleset.Direction; nil accepts all
}

func (p *pod) labels() map[string]string {
	if p.source == nil {
		return nil
	}
	return p.source.Labels
}

func (p *pod) ports() []cluster.Port {
	if p.source == nil || p.source.Spec == nil {
		return nil
	}
	return p.source.Spec.Ports
}

// before reports whether p has a better right to an address than another Pod: its address was
// reported, or it is not being deleted. Of two equal ones the first by name has it, so that the
// order of changes does not matter.
func (p *pod) before(o *pod) bool {
	rank := func(p *pod) int {
		switch {
		case p.reported:
			return 0
		case p.source != nil && p.source.Deleting:
			return 2
		}
		return 1
	}
	return cmp.Or(cmp.Compare(rank(p), rank(o)), p.key.Compare(o.key)) < 0
}

// want is what there should be for a key.
type want struct {
	source   *cluster.Pod
	addrs    []netip.Addr
	devices  []uint32
	reported bool
	local    bool
}

// wants returns what the model and the reports say about a Pod. known is nil if there is no such Pod
// with an address of its own in the model, stranger if there is nothing reported of which the model
// does not know yet.
func (c *Compiler) wants(v *cluster.View, key cluster.Key) (known, stranger *want) {
	report, reported := c.reports[key]
	p := v.Pod(key)
	if p != nil && (p.Finished || p.Spec != nil && p.Spec.HostNetwork) {
		p = nil
	}
	local := p != nil && p.Node == c.config.Node
	if p != nil {
		known = &want{source: p, addrs: p.IPs, local: local}
	}
	switch {
	case reported && local:
		known.addrs, known.devices, known.reported = report.Addrs, report.Devices, true
	case reported:
		stranger = &want{addrs: report.Addrs, devices: report.Devices, reported: true, local: true}
	}
	return known, stranger
}

// updatePod compiles what may have changed of a Pod.
func (c *Compiler) updatePod(v *cluster.View, key cluster.Key) {
	known, stranger := c.wants(v, key)
	c.replace(c.pods, key, known)
	c.replace(c.strangers, key, stranger)
	c.dns.reviewPod(v, key)
}

// replace makes the Pod at key what it should be; nil is none.
func (c *Compiler) replace(pods map[cluster.Key]*pod, key cluster.Key, now *want) {
	p := pods[key]
	switch {
	case p == nil && now == nil:
	case p != nil && now != nil && p.alike(now):
		if old := p.source; old != now.source {
			p.source = now.source
			if !maps.Equal(old.Labels, now.source.Labels) {
				c.relabel(p, old.Labels)
			}
		}
	default:
		if p != nil {
			c.remove(p)
			delete(pods, key)
		}
		if now != nil {
			pods[key] = c.insert(key, now)
		}
	}
}

// alike reports whether nothing but labels can have changed of what is compiled.
func (p *pod) alike(now *want) bool {
	if p.source == nil || now.source == nil {
		return p.source == now.source && slices.Equal(p.wanted, now.addrs) && slices.Equal(p.devices, now.devices)
	}
	other := pod{source: now.source}
	return p.reported == now.reported && (p.local != nil) == now.local && slices.Equal(p.wanted, now.addrs) &&
		slices.Equal(p.devices, now.devices) && p.source.Deleting == now.source.Deleting &&
		slices.Equal(p.ports(), other.ports())
}

func (c *Compiler) insert(key cluster.Key, now *want) *pod {
	p := &pod{key: key, source: now.source, reported: now.reported, wanted: now.addrs, devices: now.devices}
	if n := len(c.free); n > 0 {
		p.slot, c.free = c.free[n-1], c.free[:n-1]
		c.bySlot[p.slot] = p
	} else {
		p.slot, c.bySlot = uint32(len(c.bySlot)), append(c.bySlot, p)
	}
	if now.local {
		p.local = new(local)
		c.locals[p] = struct{}{}
		c.dirty(p)
		c.touchDevices(p)
		for _, index := range p.devices {
			c.devices[index] = p
		}
	}
	if p.source != nil {
		c.peers.insert(p)
		if now.local {
			c.subjects.insert(p)
		}
	}
	for i, addr := range p.wanted {
		if !slices.Contains(p.wanted[:i], addr) {
			c.claim(p, addr)
		}
	}
	c.countForeign(p.foreign(), 1)
	return p
}

func (c *Compiler) remove(p *pod) {
	c.countForeign(p.foreign(), -1)
	for i, addr := range p.wanted {
		if !slices.Contains(p.wanted[:i], addr) {
			c.unclaim(p, addr)
		}
	}
	if p.source != nil {
		c.peers.remove(p)
		if p.local != nil {
			c.subjects.remove(p)
		}
	}
	if p.local != nil {
		for d := range p.local.classes {
			c.releaseClass(p.local.classes[d])
		}
		delete(c.locals, p)
		c.removeDevices(p)
	}
	c.bySlot[p.slot] = nil
	c.free = append(c.free, p.slot)
}

func (c *Compiler) removeDevices(p *pod) {
	c.touchDevices(p)
	for _, index := range p.devices {
		if c.devices[index] == p {
			delete(c.devices, index)
		}
	}
}

func (c *Compiler) relabel(p *pod, old map[string]string) {
	c.peers.relabel(p, old, p.labels())
	if p.local != nil {
		c.subjects.relabel(p, old, p.labels())
	}
}

// dirty has the classes of a Pod of the node determined again.
func (c *Compiler) dirty(p *pod) {
	if p.local != nil && !p.local.dirty {
		p.local.dirty = true
		c.dirtyPods = append(c.dirtyPods, p)
	}
}

// claim gives an address to a Pod, unless another one has a better right to it.
func (c *Compiler) claim(p *pod, addr netip.Addr) {
	switch holder := c.holders[addr]; {
	case holder == nil:
		c.grant(p, addr)
	case p.before(holder):
		c.revoke(holder, addr)
		c.rivals[addr] = append(c.rivals[addr], holder)
		c.grant(p, addr)
	default:
		c.rivals[addr] = append(c.rivals[addr], p)
	}
}

// unclaim takes an address from a Pod, for the one that has the next right to it.
func (c *Compiler) unclaim(p *pod, addr netip.Addr) {
	if c.holders[addr] != p {
		c.setRivals(addr, remove(c.rivals[addr], p))
		return
	}
	c.revoke(p, addr)
	var next *pod
	for _, r := range c.rivals[addr] {
		if next == nil || r.before(next) {
			next = r
		}
	}
	if next != nil {
		c.setRivals(addr, remove(c.rivals[addr], next))
		c.grant(next, addr)
	}
}

func (c *Compiler) setRivals(addr netip.Addr, rivals []*pod) {
	if len(rivals) == 0 {
		delete(c.rivals, addr)
		return
	}
	c.rivals[addr] = rivals
}

func (c *Compiler) grant(p *pod, addr netip.Addr) {
	c.touch(addr)
	c.touchDevices(p)
	c.holders[addr] = p
	p.held = append(p.held, addr)
	for _, s := range c.sets {
		s.recordAddr(p, addr, 1)
	}
}

func (c *Compiler) revoke(p *pod, addr netip.Addr) {
	c.touch(addr)
	c.touchDevices(p)
	for _, s := range c.sets {
		s.recordAddr(p, addr, -1)
	}
	delete(c.holders, addr)
	p.held = slices.DeleteFunc(p.held, func(a netip.Addr) bool { return a == addr })
}
