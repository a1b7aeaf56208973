package alloc

import (
	"net/netip"
	"reflect"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// fields are those of a Service that are filled in.
type fields struct {
	typ cluster.ServiceType
	// ips are clusterIPs; the zero Addr alone is None.
	ips      []netip.Addr
	families []cluster.AddressType
	policy   cluster.FamilyPolicy
	// ports are the Service's, and nodePorts one for each; 0 is none.
	ports       []cluster.Port
	nodePorts   []uint16
	healthCheck uint16

	noNodePorts, externalLocal, selects bool
}

// fieldsOf reads the fields of a Service; they are copies.
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
	} // else the API server keeps the numbers, but reserves none
	if s.Headless {
		f.ips = []netip.Addr{{}}
	}
	return f
}

// specOf is the spec of a Service, or what stands for one that is not there.
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

// hasNodePorts reports whether a Service of the type may have node ports, and
// choosesNodePorts whether some are chosen for it.
func (f *fields) hasNodePorts() bool {
	return f.typ == cluster.NodePort || f.typ == cluster.LoadBalancer
}

func (f *fields) choosesNodePorts() bool {
	return f.typ == cluster.NodePort || f.typ == cluster.LoadBalancer && !f.noNodePorts
}

func (f *fields) hasHealthCheck() bool { return f.typ == cluster.LoadBalancer && f.externalLocal }

func (f *fields) hasNodePort(port uint16) bool { return slices.Contains(f.nodePorts, port) }

// draft is a Service that is being filled in.
type draft struct {
	key cluster.Key
	fields
	// was is what is held of it; the zero fields, which have no type, when it is
	// new.
	was    fields
	source *cluster.Service // as it is declared
	claims []claim
}

func (d *draft) isNew() bool { return d.was.typ == "" }

// draftOf is what comes of a Service when its manifest is applied: to nothing, or
// to what is held.
func draftOf(key cluster.Key, s *service) *draft {
	d := &draft{key: key, fields: fieldsOf(s.declared), source: s.declared}
	if s.held == nil {
		return d
	}
	d.was = fieldsOf(s.held)
	var before fields // what was declared before, as far as that is known
	if s.accepted != nil {
		before = fieldsOf(s.accepted)
	}
	if s.accepted != nil && reflect.DeepEqual(d.fields, before) {
		d.keep()
		return d
	}
	d.keepAddresses(before)
	d.keepNodePorts(before)
	if d.healthCheck == 0 && (before.healthCheck == 0 || d.was.hasHealthCheck() && d.hasHealthCheck()) {
		d.healthCheck = d.was.healthCheck
	}
	d.dropForType()
	return d
}

// keep keeps all that is held, where the manifest gives what it gave before. The
// API server would refuse some of that the second time: a single family that the
// second was added to, and what was dropped with the type.
func (d *draft) keep() {
	d.ips, d.families, d.policy = slices.Clone(d.was.ips), slices.Clone(d.was.families), d.was.policy
	d.nodePorts, d.healthCheck = slices.Clone(d.was.nodePorts), d.was.healthCheck
	d.noNodePorts = d.was.noNodePorts
}

// keepAddresses keeps what is held of addresses and families where the manifest
// does not give it. What it gave before and gives no longer is taken away by
// "kubectl apply"; the API server then restores addresses, and takes the rest from
// them. A single address is taken to be a clusterIP, which leaves a second one
// alone, unless the manifest had both before. A single family of a Service that was
// recalled is taken to be what the second was added to.
func (d *draft) keepAddresses(before fields) {
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

// firstFamilyOnly reports whether the first of two families that are held is given.
func (d *draft) firstFamilyOnly() bool {
	return len(d.families) == 1 && len(d.was.families) == 2 && d.families[0] == d.was.families[0]
}

// keepNodePorts keeps node ports that are held: of the same port and protocol by
// "kubectl apply", else of the port of the same name by the API server, unless it
// is another's now (kube-apiserver: patchAllocatedValues).
func (d *draft) keepNodePorts(before fields) {
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

// nodePortOf is the node port of the port with the number and protocol of p.
func (f *fields) nodePortOf(p cluster.Port) uint16 {
	for i, o := range f.ports {
		if o.Number == p.Number && o.Protocol == p.Protocol {
			return f.nodePorts[i]
		}
	}
	return 0
}

// dropForType empties what a Service of a new type does not have, and what is only
// there because it was held (kube-apiserver: dropTypeDependentFields).
func (d *draft) dropForType() {
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
	d.noNodePorts = d.noNodePorts && (d.typ == cluster.LoadBalancer || d.was.typ != cluster.LoadBalancer || !d.was.noNodePorts)
}

// take claims a place for the draft, and reports whether it was free.
func (d *draft) take(p *pool, place uint64) bool {
	if !p.take(place, d.key) {
		return false
	}
	d.claims = append(d.claims, claim{p, place})
	return true
}

// giveBack undoes all claims, and tells how many there were.
func (d *draft) giveBack() int {
	n := len(d.claims)
	for _, c := range d.claims {
		c.pool.release(c.place)
	}
	d.claims = nil
	return n
}

// filled is the Service with all that was given out.
func (d *draft) filled() *cluster.Service {
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
