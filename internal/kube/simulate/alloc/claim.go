package alloc

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"portolan.dev/portolan/internal/cluster"
)

// prepare resolves the draft's families, claims the addresses and node ports that it
// requests, and validates it. If it returns problems, the caller must call releaseClaims.
func (a *Allocator) prepare(d *draft) problems {
	if p := a.resolveFamilies(d); len(p) > 0 {
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

// incomplete reports whether a prepared draft needs addresses or node ports that it does
// not request.
func (d *draft) incomplete() bool {
	return d.firstNew() < len(d.families) && len(d.ips) < len(d.families) ||
		d.choosesNodePorts() && slices.Contains(d.nodePorts, 0) ||
		d.hasHealthCheck() && d.healthCheck == 0
}

// firstNew returns the index of the first address to allocate, or 2 if none is needed
// (kube-apiserver: updateClusterIPs).
func (d *draft) firstNew() int {
	const none = 2
	switch {
	case !d.needsAddresses():
		return none
	case d.isNew(), d.was.typ == cluster.ExternalName:
		return 0
	case len(d.was.families) == 1 && len(d.families) == 2 && !d.was.headless() && !d.preferenceUnchanged():
		return 1
	}
	return none
}

func (a *Allocator) claimAddresses(d *draft) (p problems) {
	for i := d.firstNew(); i < len(d.ips); i++ {
		if reason := a.claimAddress(d, d.ips[i]); reason != "" {
			p.invalid(clusterIPsField, listed(ipTexts(d.ips, len(d.families))),
				fmt.Sprintf("failed to allocate IP %s: %s", d.ips[i], reason))
			return p
		}
	}
	return nil
}

// claimAddress claims a requested address. It returns the reason if that fails, in the
// API server's words.
func (a *Allocator) claimAddress(d *draft, ip netip.Addr) (reason string) {
	r := a.ranges[cluster.FamilyOf(ip)]
	switch {
	case r == nil || !r.contains(ip):
		return "the provided network does not match the current range"
	case !d.claim(r.pool, r.offset(ip)):
		return "provided IP is already allocated"
	}
	return ""
}

// offset returns the offset of an address in the range's pool.
func (r *addressRange) offset(ip netip.Addr) uint64 { return low64(ip) - low64(r.Start) }

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
		if reason := a.claimPort(d, d.healthCheck); reason != "" {
			p.internal("failed to allocate requested HealthCheck NodePort %d: %s", d.healthCheck, reason)
		}
	}
	return p
}

// claimFirstNodePorts claims the node ports of a new Service. Ports with the same number
// get the same node port unless they request different ones (kube-apiserver:
// initNodePorts).
func (a *Allocator) claimFirstNodePorts(d *draft) (p problems) {
	shared := make(map[uint16]uint16) // claimed node port by port number
	for i, port := range d.ports {
		if d.nodePorts[i] == 0 && d.choosesNodePorts() {
			d.nodePorts[i] = d.sharedNodePort(i)
		}
		number := d.nodePorts[i]
		if number == 0 || number == shared[port.Number] {
			continue
		}
		if reason := a.claimPort(d, number); reason != "" {
			p.invalid(at(portsField, i)+nodePortOfPort, strconv.FormatUint(uint64(number), 10), reason)
			return p
		}
		if shared[port.Number] == 0 {
			shared[port.Number] = number
		}
	}
	return nil
}

// sharedNodePort returns the first node port set for a port with the number of port i, or
// 0.
func (d *draft) sharedNodePort(i int) uint16 {
	for j, o := range d.ports {
		if o.Number == d.ports[i].Number && d.nodePorts[j] != 0 {
			return d.nodePorts[j]
		}
	}
	return 0
}

// claimMoreNodePorts claims the node ports that an existing Service does not hold yet.
// Ports with the same number and different protocols may share a node port
// (kube-apiserver: updateNodePorts).
func (a *Allocator) claimMoreNodePorts(d *draft) (p problems) {
	for i, number := range d.nodePorts {
		if number == 0 {
			continue
		}
		held := d.was.hasNodePorts() && d.was.hasNodePort(number)
		if !held && !d.claimed(a.ports, a.portOffset(number)) {
			if reason := a.claimPort(d, number); reason != "" {
				p.invalid(at(portsField, i)+nodePortOfPort, strconv.FormatUint(uint64(number), 10), reason)
				return p
			}
		}
		if d.sharesProtocol(i) {
			p.report("", fmt.Sprintf("duplicate nodePort: {%s %d}", d.ports[i].Protocol, number))
			return p
		}
	}
	return nil
}

// sharesProtocol reports whether a port before port i has the same protocol and node
// port.
func (d *draft) sharesProtocol(i int) bool {
	for j := range i {
		if d.nodePorts[j] == d.nodePorts[i] && d.ports[j].Protocol == d.ports[i].Protocol {
			return true
		}
	}
	return false
}

func (d *draft) claimed(p *pool, offset uint64) bool {
	return slices.Contains(d.claims, claim{p, offset})
}

func (a *Allocator) portOffset(port uint16) uint64 { return uint64(port) - uint64(a.nodePorts.First) }

// claimPort claims a requested node port. It returns the reason if that fails, in the API
// server's words.
func (a *Allocator) claimPort(d *draft, port uint16) (reason string) {
	switch {
	case !a.nodePorts.contains(port):
		return "provided port is not in the valid range. The range of valid ports is " + a.nodePorts.String()
	case !d.claim(a.ports, a.portOffset(port)):
		return "provided port is already allocated"
	}
	return ""
}

// allocateMissing chooses and claims the addresses and node ports that a prepared draft
// lacks.
func (a *Allocator) allocateMissing(d *draft) (p problems) {
	const full = "range is full"
	for i := len(d.ips); d.firstNew() <= i && i < len(d.families); i++ {
		r := a.ranges[d.families[i]]
		offset, ok := d.claimFree(r.pool, string(d.families[i]))
		if !ok {
			p.internal("failed to allocate a serviceIP for Service %q: %s", d.key.Name, full)
			return p
		}
		d.ips = append(d.ips, add(r.Start, offset))
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
		offset, ok := d.claimFree(a.ports, fmt.Sprintf("%d/%s", port.Number, port.Protocol))
		if !ok {
			p.internal("failed to allocate a nodePort: %s", full)
			return p
		}
		d.nodePorts[i] = a.nodePorts.First + uint16(offset)
	}
	if d.hasHealthCheck() && d.healthCheck == 0 {
		offset, ok := d.claimFree(a.ports, "health check")
		if !ok {
			p.internal("failed to allocate a HealthCheck NodePort 0: %s", full)
			return p
		}
		d.healthCheck = a.nodePorts.First + uint16(offset)
	}
	return nil
}

// claimFree claims a free offset for the draft.
func (d *draft) claimFree(p *pool, purpose string) (offset uint64, ok bool) {
	if offset, ok = p.reserveFree(d.key, purpose); ok {
		d.claims = append(d.claims, claim{p, offset})
	}
	return offset, ok
}

// claimHeld claims everything that a recalled Service holds.
func (a *Allocator) claimHeld(d *draft) (p problems) {
	if d.needsAddresses() {
		for i, ip := range d.ips {
			if reason := a.claimAddress(d, ip); reason != "" || d.families[i] != cluster.FamilyOf(ip) {
				p.invalid(clusterIPsField, d.ipList(), reason)
			}
		}
	}
	for _, port := range d.heldPorts() {
		if reason := a.claimPort(d, port); reason != "" {
			p.invalid(portsField, strconv.FormatUint(uint64(port), 10), reason)
		}
	}
	return p
}

// heldPorts returns the node ports that the Service holds, without duplicates.
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

// releaseAll releases what was holds and is does not.
func (a *Allocator) releaseAll(was, is fields) {
	if was.needsAddresses() {
		for _, ip := range was.ips {
			if !slices.Contains(is.ips, ip) {
				r := a.ranges[cluster.FamilyOf(ip)]
				r.release(r.offset(ip))
				a.freed++
			}
		}
	}
	kept := is.heldPorts()
	for _, port := range was.heldPorts() {
		if !slices.Contains(kept, port) {
			a.ports.release(a.portOffset(port))
			a.freed++
		}
	}
}
