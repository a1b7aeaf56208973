package alloc

import (
	"net/netip"
	"reflect"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// fields are the fields of a Service that decide its allocations or receive them.
type fields struct {
	typ cluster.ServiceType
	// ips are clusterIPs; a single zero Addr means "None".
	ips      []netip.Addr
	families []cluster.AddressType
	policy   cluster.FamilyPolicy
	// nodePorts has one element per port; 0 means none.
	ports       []cluster.Port
	nodePorts   []uint16
	healthCheck uint16

	noNodePorts, externalLocal, selects bool
}

// fieldsOf returns a copy of a Service's fields.
func fieldsOf(s *cluster.Service) fields {
	spec := specOf(s)
	f := fields{
		typ:           spec.Type,
		ips:           slices.Clone(s.ClusterIPs),
		families:      slices.Clone(spec.Families),
		policy:        spec.FamilyPolicy,
		ports:         s.Ports,
		nodePorts:     make([]uint16, len(s.Ports)),
		healthCheck:   spec.HealthCheckNodePort,
		noNodePorts:   spec.NoNodePorts,
		externalLocal: spec.ExternalLocal,
		selects:       len(s.Selector) > 0,
	}
	if f.typ != cluster.ExternalName {
		copy(f.nodePorts, spec.NodePorts)
	} // an ExternalName Service retains the numbers without reserving them
	if s.Headless {
		f.ips = []netip.Addr{{}}
	}
	return f
}

// specOf returns the spec of a Service. If it has none, its type is derived from
// ExternalName.
func specOf(s *cluster.Service) cluster.ServiceSpec {
	var spec cluster.ServiceSpec
	if s.Spec != nil {
		spec = *s.Spec
	}
	if spec.Type == "" {
		spec.Type = cluster.ClusterIP
		if s.ExternalName != "" {
			spec.Type = cluster.ExternalName
		}
	}
	return spec
}

func (f *fields) headless() bool { return len(f.ips) == 1 && !f.ips[0].IsValid() }

func (f *fields) needsAddresses() bool { return f.typ != cluster.ExternalName && !f.headless() }

// hasNodePorts reports whether Services of the type may have node ports.
func (f *fields) hasNodePorts() bool {
	return f.typ == cluster.NodePort || f.typ == cluster.LoadBalancer
}

// choosesNodePorts reports whether ports without a node port are allocated one.
func (f *fields) choosesNodePorts() bool {
	return f.typ == cluster.NodePort || f.typ == cluster.LoadBalancer && !f.noNodePorts
}

func (f *fields) hasHealthCheck() bool { return f.typ == cluster.LoadBalancer && f.externalLocal }

func (f *fields) hasNodePort(port uint16) bool { return slices.Contains(f.nodePorts, port) }

// draft is a Service for which addresses and node ports are being allocated.
type draft struct {
	key cluster.Key
	fields
	// was are the fields of the held Service; zero for a new one.
	was    fields
	source *cluster.Service // the declaration
	claims []claim
}

func (d *draft) isNew() bool { return d.was.typ == "" }

// draftOf returns the draft that results from applying a Service's manifest to what it
// holds.
func draftOf(key cluster.Key, s *service) *draft {
	d := &draft{key: key, fields: fieldsOf(s.declared), source: s.declared}
	if s.held == nil {
		return d
	}
	d.was = fieldsOf(s.held)
	var before fields // the previous declaration; zero if unknown
	if s.accepted != nil {
		before = fieldsOf(s.accepted)
	}
	if s.accepted != nil && reflect.DeepEqual(d.fields, before) {
		d.restoreHeld()
		return d
	}
	d.restoreAddresses(before)
	d.restoreNodePorts(before)
	if d.healthCheck == 0 && (before.healthCheck == 0 || d.was.hasHealthCheck() && d.hasHealthCheck()) {
		d.healthCheck = d.was.healthCheck
	}
	d.clearForType()
	return d
}

// restoreHeld copies all allocated fields from the held Service; it is used if the
// declaration did not change. The API server would reject some of these when applied
// again: a single family to which the second was added, and fields cleared for the type.
func (d *draft) restoreHeld() {
	d.ips, d.families, d.policy = slices.Clone(d.was.ips), slices.Clone(d.was.families), d.was.policy
	d.nodePorts, d.healthCheck = slices.Clone(d.was.nodePorts), d.was.healthCheck
	d.noNodePorts = d.was.noNodePorts
}

// restoreAddresses copies the addresses, families and policy that the manifest does not
// set from the held Service. "kubectl apply" removes a field that the previous manifest
// set and this one does not; the API server then restores the addresses and infers
// families and policy from them. A single address counts as clusterIP, which leaves a
// second one in place, unless the previous manifest set both. A single family of a
// recalled Service counts as the one to which the second was added.
func (d *draft) restoreAddresses(before fields) {
	first := len(d.ips) == 1 && len(before.ips) < 2 && len(d.was.ips) == 2 && d.ips[0] == d.was.ips[0]
	if len(d.ips) == 0 || first {
		d.ips = slices.Clone(d.was.ips)
	}
	recalled := before.typ == "" && d.policy != cluster.SingleStack && d.firstFamilyOnly()
	if len(d.families) == 0 && len(before.families) == 0 || recalled {
		d.families = slices.Clone(d.was.families)
	}
	if d.policy == "" && before.policy == "" {
		d.policy = d.was.policy
	}
}

// firstFamilyOnly reports whether the manifest sets only the first of two held families.
func (d *draft) firstFamilyOnly() bool {
	return len(d.families) == 1 && len(d.was.families) == 2 && d.families[0] == d.was.families[0]
}

// restoreNodePorts copies held node ports to ports without one. "kubectl apply" merges
// ports by number and protocol; the API server restores the rest by port name, unless
// another port now requests the node port (kube-apiserver: patchAllocatedValues).
func (d *draft) restoreNodePorts(before fields) {
	for i, p := range d.ports {
		if d.nodePorts[i] == 0 && before.nodePortOf(p) == 0 {
			d.nodePorts[i] = d.was.nodePortOf(p)
		}
	}
	if !d.was.choosesNodePorts() || !d.choosesNodePorts() {
		return
	}
	given := slices.Clone(d.nodePorts)
	for i, p := range d.ports {
		if d.nodePorts[i] != 0 {
			continue
		}
		at := slices.IndexFunc(d.was.ports, func(o cluster.Port) bool { return o.Name == p.Name })
		if at >= 0 && !slices.Contains(given, d.was.nodePorts[at]) {
			d.nodePorts[i] = d.was.nodePorts[at]
		}
	}
}

// nodePortOf returns the node port of the port with the number and protocol of p, or 0.
func (f *fields) nodePortOf(p cluster.Port) uint16 {
	for i, o := range f.ports {
		if o.Number == p.Number && o.Protocol == p.Protocol {
			return f.nodePorts[i]
		}
	}
	return 0
}

// clearForType clears the fields that the new type does not support and that the manifest
// did not change (kube-apiserver: dropTypeDependentFields).
func (d *draft) clearForType() {
	if d.typ == cluster.ExternalName && d.was.typ != cluster.ExternalName {
		if slices.Equal(d.ips, d.was.ips) {
			d.ips = nil
		}
		if slices.Equal(d.families, d.was.families) {
			d.families = nil
		}
		if d.policy == d.was.policy {
			d.policy = ""
		}
	}
	isOther := func(port uint16) bool { return port != 0 && !d.was.hasNodePort(port) }
	if d.was.hasNodePorts() && !d.hasNodePorts() && !slices.ContainsFunc(d.nodePorts, isOther) {
		clear(d.nodePorts)
	}
	if d.was.hasHealthCheck() && !d.hasHealthCheck() && d.healthCheck == d.was.healthCheck {
		d.healthCheck = 0
	}
	d.noNodePorts = d.noNodePorts &&
		(d.typ == cluster.LoadBalancer || d.was.typ != cluster.LoadBalancer || !d.was.noNodePorts)
}

// claim reserves an offset for the draft and reports whether it was free.
func (d *draft) claim(p *pool, offset uint64) bool {
	if !p.reserve(offset, d.key) {
		return false
	}
	d.claims = append(d.claims, claim{p, offset})
	return true
}

// releaseClaims releases all claims and returns their number.
func (d *draft) releaseClaims() int {
	n := len(d.claims)
	for _, c := range d.claims {
		c.pool.release(c.offset)
	}
	d.claims = nil
	return n
}

// service returns the declared Service with the draft's allocations.
func (d *draft) service() *cluster.Service {
	s, spec := *d.source, specOf(d.source)
	s.Headless, s.ClusterIPs = d.headless(), nil
	if !s.Headless && len(d.ips) > 0 {
		s.ClusterIPs = d.ips
	}
	spec.Families, spec.FamilyPolicy = d.families, d.policy
	spec.HealthCheckNodePort = d.healthCheck
	spec.NoNodePorts = d.noNodePorts
	spec.NodePorts = nil
	if slices.ContainsFunc(d.nodePorts, func(port uint16) bool { return port != 0 }) {
		spec.NodePorts = d.nodePorts
	}
	s.Spec = &spec
	return &s
}
