package kubezone

import (
	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// SRV records say the same of each target (RFC 2782); the specification
// prescribes no values.
const (
	srvPriority = 0
	srvWeight   = 100
)

// PTR records of one address: the first of these that there is.
const (
	tierClusterIP = iota
	tierHeadless
	tierEndpoint
	tierPod
)

// pass compiles what changed, one object after another, in memory that each
// uses again, and the passes that follow. What each object compiles to depends on
// the view alone.
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

// parent is what stands above the names of a Namespace's objects of one kind.
type parent struct {
	zone            dnsname.Name
	kind, namespace string
}

// pass begins one.
func (c *Compiler) pass(v *cluster.View, between func()) *pass {
	p, _ := c.passes.Get().(*pass)
	if p == nil {
		p = &pass{Compiler: c, parents: make(map[parent]dnsname.Name)}
	}
	p.View, p.between = v, between
	return p
}

// end ends the pass, and gives what it made.
func (p *pass) end() zone.Changes {
	made := p.changes
	p.View, p.changes = nil, zone.Changes{}
	clear(p.parents)
	p.passes.Put(p)
	return made
}

// begin begins the subtree at base, and add adds it to the changes. What is
// there ends when nothing was said meanwhile.
func (p *pass) begin(base dnsname.Name) {
	p.between()
	p.base = base
	p.Begin(base, p.cfg.TTL)
}

func (p *pass) add() {
	p.changes.Subtrees = append(p.changes.Subtrees, zone.Change{Base: p.base, Subtree: p.Subtree()})
}

// namespaceName is NAMESPACE.KIND.Z. DNS allows it for every Namespace, unless
// Z is very long.
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

// below is the name under zone that the labels make, from the outermost in.
func below(zone dnsname.Name, labels ...string) (name dnsname.Name, ok bool) {
	for _, l := range labels {
		var err error
		if zone, err = zone.Child(l); err != nil {
			return dnsname.Root, false
		}
	}
	return zone, true
}
