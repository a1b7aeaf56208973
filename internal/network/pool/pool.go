// Package pool assigns addresses to Services of type LoadBalancer (Kubernetes documentation, Service,
// "type: LoadBalancer", "Load balancer class", "ipMode"; ServiceSpec, loadBalancerClass, ipFamilyPolicy).
//
//	Services, Namespaces ──► Assigner.Update ──► keep: what Services have, and still may
//	                                         ──► fill: what they request, what they can share, the lowest free address
//	                                         ──► keys that changed ──► Assigner.Of ──► the Services' statuses
//
// What was assigned is in the status of the Service, which is a part of the input: an Assigner that is made anew
// keeps it. Of Services that claim one address, the one that has it in the Assigner comes first, then the older one.
package pool

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// space is a Pool with what is taken of it.
type space struct {
	Pool
	// next are, of each range, an address before which none is free; the zero Addr if the range is full.
	next []netip.Addr
}

// claim is what a Service has.
type claim struct {
	// demand is nil for Services that get nothing: of other implementations, and those that the model does not show yet.
	*demand
	addrs []netip.Addr // in the order of families
	// problem is why an address is missing; empty if none is.
	problem string
	// partial: it would get another address if there were one.
	partial bool
	// adopted: the API has the Service, and the model does not show it yet.
	adopted bool
}

// Assigner assigns addresses. It is not safe for concurrent use.
type Assigner struct {
	cfg     Config
	spaces  []*space
	claims  map[cluster.Key]*claim
	holders map[netip.Addr][]cluster.Key
	sharing map[string]map[cluster.Key]struct{} // by key
	waiting map[cluster.Key]struct{}            // that lack an address
	// loosened: an address may be available that was not.
	loosened bool
	left     map[cluster.Key]struct{} // had addresses, and are no longer the Assigner's
}

// NewAssigner returns an Assigner for a Config that passes Check.
func NewAssigner(cfg Config) *Assigner {
	a := &Assigner{
		cfg: cfg, claims: make(map[cluster.Key]*claim), holders: make(map[netip.Addr][]cluster.Key),
		sharing: make(map[string]map[cluster.Key]struct{}), waiting: make(map[cluster.Key]struct{}),
		left: make(map[cluster.Key]struct{}),
	}
	for _, p := range cfg.Pools {
		s := &space{Pool: p}
		for _, r := range p.Ranges {
			s.next = append(s.next, r.First)
		}
		a.spaces = append(a.spaces, s)
	}
	return a
}

// Adopt notes addresses that the API has for a Service, and that the model may not show yet. They are given to nobody
// else before it shows the Service.
func (a *Assigner) Adopt(key cluster.Key, addrs []netip.Addr) {
	c := a.claims[key]
	if c == nil {
		c = &claim{adopted: true}
		a.claims[key] = c
	}
	for _, addr := range addrs {
		if !slices.Contains(c.addrs, addr) {
			a.hold(key, c, addr)
		}
	}
}

// Update applies changes of Services and Namespaces. It returns the Services whose status, addresses or problem may
// have changed.
func (a *Assigner) Update(v *cluster.View, changes cluster.Changes) map[cluster.Key]struct{} {
	changed := a.affected(v, changes)
	var keys []cluster.Key
	for key := range changed {
		keys = append(keys, key)
	}
	a.renew(v, keys)
	fill := keys
	if a.loosened {
		for key := range a.waiting {
			if _, is := changed[key]; !is {
				fill = append(fill, key)
			}
		}
	}
	a.loosened = false
	a.sort(fill)
	for _, key := range fill {
		if c := a.claims[key]; c != nil && c.demand != nil && a.fill(key, c) {
			changed[key] = struct{}{}
		}
	}
	return changed
}

// affected returns the Services whose demand may have changed.
func (a *Assigner) affected(v *cluster.View, changes cluster.Changes) map[cluster.Key]struct{} {
	changed := make(map[cluster.Key]struct{})
	namespaces := make(map[string]struct{})
	for ref := range changes.Objects {
		switch ref.Kind {
		case cluster.KindService:
			changed[ref.Key] = struct{}{}
		case cluster.KindNamespace:
			namespaces[ref.Key.Name] = struct{}{}
		}
	}
	for key, c := range a.claims {
		_, is := namespaces[key.Namespace]
		if is && c.demand != nil || changes.Everything && (!c.adopted || v.Service(key) != nil) {
			changed[key] = struct{}{}
		}
	}
	if changes.Everything {
		for s := range v.Services() {
			changed[s.Key] = struct{}{}
		}
	}
	return changed
}

// renew sets the demands of Services, and keeps of what they have what they still may have.
func (a *Assigner) renew(v *cluster.View, keys []cluster.Key) {
	had := make(map[cluster.Key][]netip.Addr)
	var known []cluster.Key // that have a claim now
	for _, key := range keys {
		was, s := a.claims[key], v.Service(key)
		if was != nil {
			had[key] = slices.Clone(was.addrs)
			a.drop(key, was)
		}
		if s == nil {
			delete(a.left, key)
			continue
		}
		if c := a.claimOf(v, s); c != nil {
			a.claims[key], known = c, append(known, key)
		}
		if now := a.claims[key]; was != nil && was.demand != nil && (now == nil || now.demand == nil) {
			a.left[key] = struct{}{}
		}
	}
	a.sort(known)
	for _, key := range known {
		if c := a.claims[key]; c.demand != nil {
			for _, addr := range had[key] {
				a.keep(key, c, addr)
			}
		}
	}
	for _, key := range known { // what the status has is a weaker claim
		for _, ip := range v.Service(key).Spec.Ingress {
			a.keep(key, a.claims[key], ip.Addr)
		}
	}
}

// claimOf returns the claim of a Service, with no address; nil if the Service can have none.
func (a *Assigner) claimOf(v *cluster.View, s *cluster.Service) *claim {
	switch {
	case a.cfg.Ours(s):
		c := &claim{demand: a.demandOf(v, s)}
		if c.sharing != "" {
			if a.sharing[c.sharing] == nil {
				a.sharing[c.sharing] = make(map[cluster.Key]struct{})
			}
			a.sharing[c.sharing][s.Key] = struct{}{}
		}
		delete(a.left, s.Key)
		return c
	case s.Spec != nil && s.Spec.Type == cluster.LoadBalancer && len(s.Spec.Ingress) > 0:
		return &claim{} // of another implementation
	}
	return nil
}

// sort orders Services by their age, and those of one age by their keys. Those of other implementations come last.
func (a *Assigner) sort(keys []cluster.Key) {
	age := func(key cluster.Key) int64 {
		if c := a.claims[key]; c != nil && c.demand != nil {
			return c.created
		}
		return math.MaxInt64
	}
	slices.SortFunc(keys, func(x, y cluster.Key) int { return cmp.Or(cmp.Compare(age(x), age(y)), x.Compare(y)) })
}

// keep gives a Service an address that it has had, if it may still have it.
func (a *Assigner) keep(key cluster.Key, c *claim, addr netip.Addr) {
	switch {
	case slices.Contains(c.addrs, addr):
	case c.demand == nil: // whoever gave it
		a.hold(key, c, addr)
	case c.allows(addr) && !c.hasFamily(cluster.FamilyOf(addr)) && a.available(key, c.demand, addr) == "":
		a.hold(key, c, addr)
	}
}

func (c *claim) hasFamily(f cluster.AddressType) bool {
	return slices.ContainsFunc(c.addrs, func(addr netip.Addr) bool { return cluster.FamilyOf(addr) == f })
}

// available returns why a Service cannot have an address because of others; empty if it can.
func (a *Assigner) available(key cluster.Key, d *demand, addr netip.Addr) string {
	for _, other := range a.holders[addr] {
		o := a.claims[other]
		switch {
		case other == key:
		case o == nil || o.demand == nil:
			return fmt.Sprintf("Service %s has the address %s", other, addr)
		case !d.shares(key, o.demand, other):
			return fmt.Sprintf("Service %s has the address %s: to share it, both need the same annotation %s, different "+
				"ports, and externalTrafficPolicy Cluster or the same selector", other, addr, cluster.AnnotationSharingKey)
		}
	}
	return ""
}

func (a *Assigner) hold(key cluster.Key, c *claim, addr netip.Addr) {
	c.addrs = append(c.addrs, addr)
	a.holders[addr] = append(a.holders[addr], key)
}

// drop removes a claim with its addresses.
func (a *Assigner) drop(key cluster.Key, c *claim) {
	for _, addr := range c.addrs {
		rest := slices.DeleteFunc(a.holders[addr], func(k cluster.Key) bool { return k == key })
		if a.holders[addr] = rest; len(rest) == 0 {
			delete(a.holders, addr)
			a.free(addr)
		}
	}
	if c.demand != nil && c.sharing != "" {
		delete(a.sharing[c.sharing], key)
		if len(a.sharing[c.sharing]) == 0 {
			delete(a.sharing, c.sharing)
		}
	}
	delete(a.claims, key)
	delete(a.waiting, key)
	a.loosened = true
}

// free notes that an address may be given again.
func (a *Assigner) free(addr netip.Addr) {
	for _, p := range a.spaces {
		for i, r := range p.Ranges {
			if r.Contains(addr) && (!p.next[i].IsValid() || addr.Less(p.next[i])) {
				p.next[i] = addr
			}
		}
	}
}

// fill gives a Service the addresses that it lacks. It reports whether anything changed.
func (a *Assigner) fill(key cluster.Key, c *claim) (changed bool) {
	had, problem := len(c.addrs), c.problem
	if c.problem, c.partial = c.demand.problem, false; c.problem == "" {
		a.complete(key, c)
	}
	order := func(addr netip.Addr) int { return slices.Index(c.families, cluster.FamilyOf(addr)) }
	slices.SortFunc(c.addrs, func(x, y netip.Addr) int { return cmp.Compare(order(x), order(y)) })
	delete(a.waiting, key)
	if c.problem != "" || c.partial {
		a.waiting[key] = struct{}{}
	}
	return len(c.addrs) != had || problem != c.problem
}

// complete gives a Service the addresses that it lacks, or sets the first problem.
func (a *Assigner) complete(key cluster.Key, c *claim) {
	var more []netip.Addr
	had := len(c.addrs)
	for _, f := range c.families {
		if c.hasFamily(f) {
			continue
		}
		addr, why := a.find(key, c.demand, f)
		if why == "" {
			more = append(more, addr)
			continue
		}
		c.partial = c.partial || c.required || c.offered(f)
		c.problem = cmp.Or(c.problem, why)
	}
	switch {
	case c.problem != "" && c.required && had == 0:
		more = nil // all families or none; but what it has stays
	case c.problem != "" && !c.required && len(c.requested) == 0 && had+len(more) > 0:
		c.problem = "" // PreferDualStack
	}
	for _, addr := range more {
		a.hold(key, c, addr)
	}
}

// offered reports whether a pool gives a Service addresses of a family.
func (d *demand) offered(f cluster.AddressType) bool {
	return slices.ContainsFunc(d.pools, func(p *space) bool { return p.has(f) && (p.Automatic || d.named) })
}

// find returns an address of a family that a Service can have, or why there is none.
func (a *Assigner) find(key cluster.Key, d *demand, f cluster.AddressType) (addr netip.Addr, why string) {
	if addr := d.requestOf(f); addr.IsValid() {
		if d.poolOf(addr) == nil {
			return addr, fmt.Sprintf("the requested address %s is in no pool that is for this Service", addr)
		}
		return addr, a.available(key, d, addr)
	}
	if addr, ok := a.shared(key, d, f); ok {
		return addr, ""
	}
	why = fmt.Sprintf("no pool for this Service that is automatic has %s addresses: request an address or a pool with an "+
		"annotation", f)
	if d.named {
		why = fmt.Sprintf("the pool %q, of the annotation %s, has no %s addresses", d.pools[0].Name,
			cluster.AnnotationPool, f)
	}
	for _, p := range d.pools {
		if !p.Automatic && !d.named || !p.has(f) {
			continue
		}
		if addr, ok := a.lowest(p, f); ok {
			return addr, ""
		}
		why = fmt.Sprintf("all %s addresses of the pools for this Service are assigned: delete Services that are not used, "+
			"or add a range to a pool", f)
	}
	return netip.Addr{}, why
}

// shared returns the lowest address that a Service can share with others.
func (a *Assigner) shared(key cluster.Key, d *demand, f cluster.AddressType) (lowest netip.Addr, ok bool) {
	if d.sharing == "" {
		return netip.Addr{}, false
	}
	for other := range a.sharing[d.sharing] {
		for _, addr := range a.claims[other].addrs {
			if cluster.FamilyOf(addr) != f || lowest.IsValid() && lowest.Less(addr) {
				continue
			}
			p := d.poolOf(addr)
			if p != nil && (p.Automatic || d.named) && d.allows(addr) && a.available(key, d, addr) == "" {
				lowest = addr
			}
		}
	}
	return lowest, lowest.IsValid()
}

// lowest returns the first free address of a family.
func (a *Assigner) lowest(p *space, f cluster.AddressType) (netip.Addr, bool) {
	for i, r := range p.Ranges {
		if r.family() != f {
			continue
		}
		for addr := p.next[i]; addr.IsValid() && r.Contains(addr); addr = addr.Next() {
			if reserved := p.reservedAt(addr); reserved.Last.IsValid() {
				addr = reserved.Last
				continue
			}
			if len(a.holders[addr]) == 0 {
				p.next[i] = addr
				return addr, true
			}
		}
		p.next[i] = netip.Addr{}
	}
	return netip.Addr{}, false
}

// reservedAt returns the reserved range that an address is in; the zero Range if it is in none.
func (p *Pool) reservedAt(addr netip.Addr) Range {
	for _, r := range p.Reserved {
		if r.Contains(addr) {
			return r
		}
	}
	return Range{}
}

// Assignment is what a Service has.
type Assignment struct {
	// Ours: the Assigner gives the Service addresses. Left: it did, or would have given what the status has, and does
	// no longer, so that the status has to be cleared.
	Ours, Left bool
	Addrs      []netip.Addr
	// Problem is why an address is missing, and what to do; empty if none is.
	Problem string
}

// Of returns what a Service has.
func (a *Assigner) Of(s *cluster.Service) Assignment {
	c := a.claims[s.Key]
	if c != nil && c.demand != nil {
		return Assignment{Ours: true, Addrs: slices.Clone(c.addrs), Problem: c.problem}
	}
	_, left := a.left[s.Key]
	if s.Spec != nil && s.Spec.Type != cluster.LoadBalancer && len(s.Spec.Ingress) > 0 {
		left = left || !slices.ContainsFunc(s.Spec.Ingress, func(ip cluster.IngressIP) bool { return a.pool(ip.Addr) == nil })
	}
	return Assignment{Left: left}
}

// Cleared notes that a Service has nothing of the Assigner in its status any more.
func (a *Assigner) Cleared(key cluster.Key) { delete(a.left, key) }

func (a *Assigner) pool(addr netip.Addr) *space {
	for _, p := range a.spaces {
		if p.contains(addr) {
			return p
		}
	}
	return nil
}

// Usage are the numbers of addresses of a pool, of one family. Reserved are those that are not assigned; Free are the
// others.
type Usage struct {
	Pool                     string
	Family                   cluster.AddressType
	Assigned, Reserved, Free float64
}

// Usage returns the usage of each pool, for each family that it has, and the number of Services that lack an address.
func (a *Assigner) Usage() (all []Usage, lacking int) {
	type part struct {
		of     *space
		family cluster.AddressType
	}
	at := make(map[part]int)
	for _, p := range a.spaces {
		for _, f := range []cluster.AddressType{cluster.IPv4, cluster.IPv6} {
			if p.has(f) {
				at[part{p, f}] = len(all)
				reserved := sizeOf(p.Reserved, f)
				all = append(all, Usage{Pool: p.Name, Family: f, Reserved: reserved, Free: sizeOf(p.Ranges, f) - reserved})
			}
		}
	}
	for addr := range a.holders {
		p := a.pool(addr)
		if p == nil {
			continue
		}
		u := &all[at[part{p, cluster.FamilyOf(addr)}]]
		u.Assigned++
		if inAny(p.Reserved, addr) {
			u.Reserved--
		} else {
			u.Free--
		}
	}
	for key := range a.waiting {
		if a.claims[key].problem != "" {
			lacking++
		}
	}
	return all, lacking
}
