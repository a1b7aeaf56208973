package alloc

import (
	"fmt"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// prepare settles all of a draft that needs no choice: its families, the addresses
// and node ports that it asks for, which it claims, and whether it may be so at
// all. The draft must give its claims back when there are problems.
func (a *Allocator) prepare(d *draft) problems {
	if p := a.settleFamilies(d); len(p) > 0 {
		return p
	}
	if p := a.claimAddresses(d); len(p) > 0 {
		return p
	}
	if p := a.claimNodePorts(d); len(p) > 0 {
		return p
	}
	return d.check()
}

// lacks reports whether something must be chosen for a prepared draft.
func (d *draft) lacks() bool {
	return d.firstNew() < len(d.families) && len(d.ips) < len(d.families) ||
		d.choosesNodePorts() && slices.Contains(d.nodePorts, 0) ||
		d.hasHealthCheck() && d.healthCheck == 0
}

// firstNew is which of its addresses is the first that the draft does not hold
// (kube-apiserver: updateClusterIPs).
func (d *draft) firstNew() int {
	const none = 2
	switch {
	case !d.needsAddresses():
		return none
	case d.isNew(), d.was.typ == cluster.ExternalName:
		return 0
	case len(d.was.families) == 1 && len(d.families) == 2 && !d.was.headless() && !d.keepsPreference():
		return 1
	}
	return none
}

func (a *Allocator) claimAddresses(d *draft) (p problems) {
	for i := d.firstNew(); i < len(d.ips); i++ {
		if words := a.claimAddress(d, d.ips[i]); words != "" {
			p.invalid(clusterIPsField, listed(ipTexts(d.ips, len(d.families))), fmt.Sprintf("failed to allocate IP %s: %s", d.ips[i], words))
			return p
		}
	}
	return nil
}

// claimAddress claims an address that is asked for; the words say why not.
func (a *Allocator) claimAddress(d *draft, ip netip.Addr) (words string) {
	r := a.ranges[cluster.FamilyOf(ip)]
	switch {
	case r == nil || !r.contains(ip):
		return "the provided network does not match the current range"
	case !d.take(r.pool, r.place(ip)):
		return "provided IP is already allocated"
	}
	return ""
}

// place is where in the pool an address of the range is.
func (r *addressRange) place(ip netip.Addr) uint64 { return lower(ip) - lower(r.Start) }

func (a *Allocator) claimNodePorts(d *draft) (p problems) {
	switch {
	case d.hasNodePorts() && d.isNew():
		p = a.claimFirstNodePorts(d)
	case d.hasNodePorts():
		p = a.claimMoreNodePorts(d)
	}
	if len(p) > 0 {
		return p
	}
	if d.healthCheck != 0 && d.hasHealthCheck() && !d.was.hasHealthCheck() {
		if words := a.claimPort(d, d.healthCheck); words != "" {
			p.internal("failed to allocate requested HealthCheck NodePort %d: %s", d.healthCheck, words)
		}
	}
	return p
}

// claimFirstNodePorts claims those of a new Service. Ports with the same number
// have the same node port unless they ask for others (kube-apiserver:
// initNodePorts).
func (a *Allocator) claimFirstNodePorts(d *draft) (p problems) {
	shared := make(map[uint16]uint16) // by the number of the port, once claimed
	for i, port := range d.ports {
		if d.nodePorts[i] == 0 && d.choosesNodePorts() {
			d.nodePorts[i] = d.sharedNodePort(i)
		}
		number := d.nodePorts[i]
		if number == 0 || number == shared[port.Number] {
			continue
		}
		if words := a.claimPort(d, number); words != "" {
			p.invalid(at(portsField, i)+nodePortOfPort, fmt.Sprint(number), words)
			return p
		}
		if shared[port.Number] == 0 {
			shared[port.Number] = number
		}
	}
	return nil
}

// sharedNodePort is the first node port of those ports that have the number of
// port i; 0 when none has one.
func (d *draft) sharedNodePort(i int) uint16 {
	for j, o := range d.ports {
		if o.Number == d.ports[i].Number && d.nodePorts[j] != 0 {
			return d.nodePorts[j]
		}
	}
	return 0
}

// claimMoreNodePorts claims those that a Service has not held before. Here ports
// of one number that differ in their protocol may have one node port
// (kube-apiserver: updateNodePorts).
func (a *Allocator) claimMoreNodePorts(d *draft) (p problems) {
	for i, number := range d.nodePorts {
		if number == 0 {
			continue
		}
		held := d.was.hasNodePorts() && d.was.hasNodePort(number)
		if !held && !d.claimed(a.ports, a.portPlace(number)) {
			if words := a.claimPort(d, number); words != "" {
				p.invalid(at(portsField, i)+nodePortOfPort, fmt.Sprint(number), words)
				return p
			}
		}
		if d.sharesProtocol(i) {
			p.add("", fmt.Sprintf("duplicate nodePort: {%s %d}", d.ports[i].Protocol, number))
			return p
		}
	}
	return nil
}

// sharesProtocol reports whether a port before port i has its protocol and node
// port.
func (d *draft) sharesProtocol(i int) bool {
	for j := range i {
		if d.nodePorts[j] == d.nodePorts[i] && d.ports[j].Protocol == d.ports[i].Protocol {
			return true
		}
	}
	return false
}

func (d *draft) claimed(p *pool, place uint64) bool {
	return slices.Contains(d.claims, claim{p, place})
}

func (a *Allocator) portPlace(port uint16) uint64 { return uint64(port) - uint64(a.nodePorts.First) }

// claimPort claims a node port that is asked for; the words say why not.
func (a *Allocator) claimPort(d *draft, port uint16) (words string) {
	switch {
	case !a.nodePorts.contains(port):
		return "provided port is not in the valid range. The range of valid ports is " + a.nodePorts.String()
	case !d.take(a.ports, a.portPlace(port)):
		return "provided port is already allocated"
	}
	return ""
}

// choose gives a prepared draft what it lacks.
func (a *Allocator) choose(d *draft) (p problems) {
	const full = "range is full"
	for i := len(d.ips); d.firstNew() <= i && i < len(d.families); i++ {
		r := a.ranges[d.families[i]]
		place, ok := d.choose(r.pool, string(d.families[i]))
		if !ok {
			p.internal("failed to allocate a serviceIP for Service %q: %s", d.key.Name, full)
			return p
		}
		d.ips = append(d.ips, add(r.Start, place))
	}
	for i, port := range d.ports {
		if d.nodePorts[i] != 0 || !d.choosesNodePorts() {
			continue
		}
		if d.isNew() {
			if d.nodePorts[i] = d.sharedNodePort(i); d.nodePorts[i] != 0 {
				continue
			}
		}
		place, ok := d.choose(a.ports, fmt.Sprintf("%d/%s", port.Number, port.Protocol))
		if !ok {
			p.internal("failed to allocate a nodePort: %s", full)
			return p
		}
		d.nodePorts[i] = a.nodePorts.First + uint16(place)
	}
	if d.hasHealthCheck() && d.healthCheck == 0 {
		place, ok := d.choose(a.ports, "health check")
		if !ok {
			p.internal("failed to allocate a HealthCheck NodePort 0: %s", full)
			return p
		}
		d.healthCheck = a.nodePorts.First + uint16(place)
	}
	return nil
}

// choose claims a place that is chosen for the draft.
func (d *draft) choose(p *pool, purpose string) (place uint64, ok bool) {
	if place, ok = p.choose(d.key, purpose); ok {
		d.claims = append(d.claims, claim{p, place})
	}
	return place, ok
}

// reclaim claims all that a Service holds.
func (a *Allocator) reclaim(d *draft) (p problems) {
	if d.needsAddresses() {
		for i, ip := range d.ips {
			if words := a.claimAddress(d, ip); words != "" || d.families[i] != cluster.FamilyOf(ip) {
				p.invalid(clusterIPsField, d.ipList(), words)
			}
		}
	}
	for _, port := range d.heldPorts() {
		if words := a.claimPort(d, port); words != "" {
			p.invalid(portsField, fmt.Sprint(port), words)
		}
	}
	return p
}

// heldPorts are the node ports that are held of the pool, each once.
func (f *fields) heldPorts() (held []uint16) {
	if f.hasNodePorts() {
		for _, port := range f.nodePorts {
			if port != 0 && !slices.Contains(held, port) {
				held = append(held, port)
			}
		}
	}
	if f.hasHealthCheck() && f.healthCheck != 0 && !slices.Contains(held, f.healthCheck) {
		held = append(held, f.healthCheck)
	}
	return held
}

// releaseAll takes back what was held and is no more.
func (a *Allocator) releaseAll(was, is fields) {
	if was.needsAddresses() {
		for _, ip := range was.ips {
			if !slices.Contains(is.ips, ip) {
				r := a.ranges[cluster.FamilyOf(ip)]
				r.release(r.place(ip))
				a.freed++
			}
		}
	}
	kept := is.heldPorts()
	for _, port := range was.heldPorts() {
		if !slices.Contains(kept, port) {
			a.ports.release(a.portPlace(port))
			a.freed++
		}
	}
}
