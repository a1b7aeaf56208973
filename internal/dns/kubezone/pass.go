package kubezone

import (
	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// All SRV records have the same priority and weight (RFC 2782). The specification does
// not prescribe values.
const (
	srvPriority = 0
	srvWeight   = 100
)

// Tiers of PTR records. Only the records of an address's lowest tier are served.
const (
	tierClusterIP = iota
	tierHeadless
	tierEndpoint
	tierPod
	tierImport
	tierImportEndpoint
)

// pass compiles changed objects one after another and reuses its memory for the next
// object and the next pass. The result for an object depends on the view only.
type pass struct {
	*Compiler
	*cluster.View
	zone.Builder
	changes zone.Changes
	between func()

	base    dnsname.Name // the root of the current subtree
	parents map[parent]dnsname.Name
	ready   []endpoint // the ready endpoints of the current Service
	// target is a buffer for a name in wire format, rdata one for an SRV record with such
	// a name.
	target [dnsname.MaxWire]byte
	rdata  [6 + dnsname.MaxWire]byte
}

// parent identifies the parent name of a Namespace's Services or Pods.
type parent struct {
	zone            dnsname.Name
	kind, namespace string
}

// newPass returns a pass from the pool, or a new one.
func (c *Compiler) newPass(v *cluster.View, between func()) *pass {
	p, _ := c.passPool.Get().(*pass)
	if p == nil {
		p = &pass{Compiler: c, parents: make(map[parent]dnsname.Name)}
	}
	p.View, p.between = v, between
	return p
}

// finish returns the changes of the pass and puts it back into the pool.
func (p *pass) finish() zone.Changes {
	made := p.changes
	p.View, p.changes = nil, zone.Changes{}
	clear(p.parents)
	p.passPool.Put(p)
	return made
}

// beginSubtree starts the subtree at base.
func (p *pass) beginSubtree(base dnsname.Name) {
	p.between()
	p.base = base
	p.Begin(base, p.cfg.TTL)
}

// putSubtree appends the current subtree to the changes. A subtree without records and
// metadata is deleted.
func (p *pass) putSubtree() {
	p.changes.Subtrees = append(p.changes.Subtrees, zone.Change{Base: p.base, Subtree: p.Subtree()})
}

// namespaceName returns NAMESPACE.KIND.Z. It returns false if that exceeds the maximum
// length of a name.
func (p *pass) namespaceName(z dnsname.Name, kind, namespace string) (name dnsname.Name, ok bool) {
	key := parent{z, kind, namespace}
	if name, ok := p.parents[key]; ok {
		return name, true
	}
	if name, ok = below(z, kind, namespace); ok {
		p.parents[key] = name
	}
	return name, ok
}

// addName adds a record whose RDATA is a name.
func (p *pass) addName(t dnswire.Type, target dnsname.Name) { p.Add(t, target.AppendWire(nil)) }

// below returns the name with the labels below zone, the label next to zone first. It
// returns false if that is not a valid name.
func below(zone dnsname.Name, labels ...string) (name dnsname.Name, ok bool) {
	for _, l := range labels {
		var err error
		if zone, err = zone.Child(l); err != nil {
			return dnsname.Root, false
		}
	}
	return zone, true
}
