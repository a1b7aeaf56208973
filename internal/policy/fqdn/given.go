package fqdn

import "net/netip"

// given are the addresses that domain names of sets have had for the Pods of a Namespace, also those that have
// expired: flows to them go on. It is by domain name, so that the addresses stay if a set comes with more or fewer
// names. It has two generations, so that its size is bounded: what is neither answered nor looked up for longest
// goes first. The zero value remembers nothing.
type given struct {
	most           int // of a generation
	recent, before map[givenAddress]struct{}
}

// givenAddress is an address of a domain name.
type givenAddress struct {
	domain
	addr netip.Addr
}

func (g *given) insert(a givenAddress) {
	if _, ok := g.recent[a]; ok {
		return
	}
	if len(g.recent) >= g.most {
		g.before, g.recent = g.recent, nil
	}
	if g.recent == nil {
		g.recent = make(map[givenAddress]struct{})
	}
	g.recent[a] = struct{}{}
}

func (g *given) has(a givenAddress) bool {
	if _, ok := g.recent[a]; ok {
		return true
	}
	_, ok := g.before[a]
	if ok {
		g.insert(a)
	}
	return ok
}

// remember notes that a name had an address.
func (n *name) remember(p *patterns, addr netip.Addr) {
	for d := range p.domains(n.wire) {
		n.in.given.insert(givenAddress{d, addr})
	}
}

// Gave reports whether a set had an address at any time for Pods of a Namespace, also if that has expired. What
// neither this Gate nor Recall gave the set, it did not have. Of a set that the Gate does not know yet, nothing
// is known: Gave returns true.
func (g *Gate) Gave(namespace, set string, addr netip.Addr) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	s, ok := g.assigned.sets[set]
	if !ok {
		return true
	}
	if _, ok := g.table.elements[element{set, addr}]; ok {
		return true
	}
	ns := g.table.namespaces[namespace]
	for _, d := range s.domains {
		a := givenAddress{d, addr}
		if g.table.recalled.has(a) || ns != nil && ns.given.has(a) {
			return true
		}
	}
	return false
}

// Recall notes that a process before this one gave a set an address.
func (g *Gate) Recall(set string, addr netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s, ok := g.assigned.sets[set]; ok {
		for _, d := range s.domains {
			g.table.recalled.insert(givenAddress{d, addr})
		}
	}
}
