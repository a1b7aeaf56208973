package kubezone

import (
	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// All SRV records have the same priority and weight (RFC 2782), for which the
// specification prescribes no values.
const (
	srvPriority = 0
	srvWeight   = 100
)

// Tiers of PTR records: an address has those of its first tier that has any.
const (
	tierClusterIP = iota
	tierHeadless
	tierEndpoint
	tierPod
)

// pass compiles changed objects one after another, in memory that is reused for
// the next object and the next pass. The result for an object depends on the view
// alone.
type pass struct {
	*Compiler
	*cluster.View
	zone.Builder
	changes zone.Changes
	between func()

	base    dnsname.Name // of the subtree in hand
	parents map[parent]dnsname.Name
	ready   []endpoint // of the Service in hand
	// target is a name in wire form, rdata an SRV record's with such a name.
	target [dnsname.MaxWire]byte
	rdata  [6 + dnsname.MaxWire]byte
}

// parent identifies the parent name of a Namespace's Services or Pods.
type parent struct {
	zone            dnsname.Name
	kind, namespace string
}

// pass returns a new or reused pass.
func (c *Compiler) pass(v *cluster.View, between func()) *pass {
	p, _ := c.passes.Get().(*pass)
	if p == nil {
		p = &pass{Compiler: c, parents: make(map[parent]dnsname.Name)}
	}
	p.View, p.between = v, between
	return p
}

// end ends the pass and returns its changes.
func (p *pass) end() zone.Changes {
	made := p.changes
	p.View, p.changes = nil, zone.Changes{}
	clear(p.parents)
	p.passes.Put(p)
	return made
}

// begin starts the subtree at base, and add appends it to the changes. A subtree
// without records and marks is deleted.
func (p *pass) begin(base dnsname.Name) {
	p.between()
	p.base = base
	p.Begin(base, p.cfg.TTL)
}

func (p *pass) add() {
	p.changes.Subtrees = append(p.changes.Subtrees, zone.Change{Base: p.base, Subtree: p.Subtree()})
}

// namespaceName returns NAMESPACE.KIND.Z; ok is false when that is too long for a
// name, which takes a very long Z.
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

// name adds a record whose RDATA is a name.
func (p *pass) name(t dnswire.Type, target dnsname.Name) { p.Add(t, target.AppendWire(nil)) }

// below returns the name of the labels under zone, outermost label first.
func below(zone dnsname.Name, labels ...string) (name dnsname.Name, ok bool) {
	for _, l := range labels {
		var err error
		if zone, err = zone.Child(l); err != nil {
			return dnsname.Root, false
		}
	}
	return zone, true
}
