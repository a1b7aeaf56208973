package plan

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/proxy/frontend"
)

// Compiler compiles what changed of a cluster. What it holds is what compiling everything anew
// yields.
type Compiler struct {
	node     Node
	services map[cluster.Key]*compiled
	// claims are those with the best right to each address, and others the rest, in the order
	// of their right.
	claims map[frontend.Address]claim
	others map[frontend.Address][]claim
	local  map[netip.Addr]int // how many Services have the endpoint on the node
	cidrs  []netip.Prefix
	checks map[cluster.Key]HealthCheck // nil until Checks is called after a change
	// noLocal counts the elements of Service.NoLocal of all Services.
	noLocal map[NoLocal]int
	// touched are the addresses that the Services of the last Apply had or have.
	touched []frontend.Address
	room    room
}

// compiled is a Service, what it was compiled from and when that was created.
type compiled struct {
	Service
	source  *cluster.Service
	created int64
}

// compare orders Services: the older one is before the younger one.
func (s *compiled) compare(o *compiled) int {
	return cmp.Or(cmp.Compare(s.created, o.created), s.source.Compare(o.source.Key))
}

// claim is a Service's wish for an address.
type claim struct {
	*compiled
	frontend *frontend.Frontend
}

// compare orders claims: the Service has the address whose cluster IP it is, since the API server
// gives each to one Service, and otherwise the oldest.
func (c claim) compare(o claim) int {
	if mine, others := c.frontend.Policy == frontend.Plain, o.frontend.Policy == frontend.Plain; mine != others {
		if mine {
			return -1
		}
		return 1
	}
	return c.compiled.compare(o.compiled)
}

// NewCompiler returns a Compiler that has compiled nothing.
func NewCompiler(node Node) *Compiler {
	return &Compiler{
		node: node, services: make(map[cluster.Key]*compiled),
		claims: make(map[frontend.Address]claim), others: make(map[frontend.Address][]claim),
		local: make(map[netip.Addr]int), noLocal: make(map[NoLocal]int),
		room: newRoom(cmp.Or(node.Room, DefaultRoom)),
	}
}

// All compiles all Services, and returns the whole state.
func (c *Compiler) All(v *cluster.View, node Node) *frontend.State {
	return c.these(v, node, v.Services())
}

// Some compiles some Services, and returns the state of their addresses. It is that of All, if they are all that have
// these addresses, and all Services fit (MostSize).
func (c *Compiler) Some(v *cluster.View, node Node, services []*cluster.Service) *frontend.State {
	return c.these(v, node, slices.Values(services))
}

func (c *Compiler) these(v *cluster.View, node Node, services iter.Seq[*cluster.Service]) *frontend.State {
	*c = *NewCompiler(node)
	put := func(key cluster.Key, now Service) { c.put(key, v.Service(key), now) }
	for s := range services {
		put(s.Key, Compile(v, &c.node, s.Key))
	}
	c.settle(v, put)
	c.cidrs = serviceCIDRs(v)
	s := &frontend.State{ServiceCIDRs: c.cidrs, Hairpins: slices.SortedFunc(maps.Keys(c.local), netip.Addr.Compare)}
	for _, claim := range c.claims {
		s.Frontends = append(s.Frontends, claim.frontend)
	}
	slices.SortFunc(s.Frontends, func(a, b *frontend.Frontend) int { return a.Compare(b.Address) })
	return s
}

// Apply compiles the Services with the given keys again, and the ranges of cluster IPs, and
// returns what changed.
func (c *Compiler) Apply(v *cluster.View, keys iter.Seq[cluster.Key]) *frontend.Changes {
	was := state{make(map[frontend.Address]*frontend.Frontend), make(map[netip.Addr]bool)}
	replace := func(key cluster.Key, now Service) { c.replace(v, key, now, &was) }
	for key := range keys {
		replace(key, Compile(v, &c.node, key))
	}
	c.settle(v, replace)
	return c.changesSince(v, &was)
}

// settle puts the Services again that are left out or served and should not be.
func (c *Compiler) settle(v *cluster.View, put func(cluster.Key, Service)) {
	out, in := c.misplaced()
	for _, key := range out { // the others fit then
		put(key, withoutRoom(c.services[key].Size))
	}
	for _, key := range in {
		put(key, Compile(v, &c.node, key))
	}
}

// state is what some addresses had.
type state struct {
	frontends map[frontend.Address]*frontend.Frontend
	local     map[netip.Addr]bool // whether it is an endpoint on the node
}

// replace replaces what the Service at key was compiled into, and adds to was what its addresses had.
func (c *Compiler) replace(v *cluster.View, key cluster.Key, now Service, was *state) {
	old := c.services[key]
	for _, fs := range [][]*frontend.Frontend{old.frontends(), now.Frontends} {
		for _, f := range fs {
			if _, seen := was.frontends[f.Address]; !seen {
				was.frontends[f.Address] = c.holder(f.Address)
			}
		}
	}
	for _, a := range append(old.locals(), now.Local...) {
		if _, seen := was.local[a]; !seen {
			was.local[a] = c.local[a] > 0
		}
	}
	c.put(key, v.Service(key), now)
}

// changesSince returns what changed since addresses had something.
func (c *Compiler) changesSince(v *cluster.View, before *state) *frontend.Changes {
	changes := new(frontend.Changes)
	c.touched = slices.AppendSeq(c.touched[:0], maps.Keys(before.frontends))
	for at, was := range before.frontends {
		switch is := c.holder(at); {
		case is == nil && was != nil:
			changes.Delete = append(changes.Delete, at)
		case is != nil && (was == nil || !was.Equal(is)):
			changes.Put = append(changes.Put, is)
		}
		if is := c.holder(at); is != nil && (was == nil || !was.SameFlows(is)) {
			changes.Serving = append(changes.Serving, is)
		}
	}
	for a, was := range before.local {
		if is := c.local[a] > 0; is != was {
			if changes.Hairpins == nil {
				changes.Hairpins = make(map[netip.Addr]bool)
			}
			changes.Hairpins[a] = is
		}
	}
	if cidrs := serviceCIDRs(v); !slices.Equal(cidrs, c.cidrs) {
		c.cidrs, changes.ServiceCIDRs = cidrs, cidrs
	}
	return changes
}

// Service returns what a Service was compiled into, with verdicts about addresses that other
// Services have.
func (c *Compiler) Service(key cluster.Key) Service {
	s := c.services[key]
	if s == nil {
		return Service{}
	}
	out := s.Service
	out.Verdicts = slices.Clone(out.Verdicts)
	for _, f := range s.Frontends {
		if holder := c.claims[f.Address]; holder.source.Key != key {
			out.Verdicts = append(out.Verdicts, Verdict{Address: f.Address, Reason: Taken, Other: holder.source.Key})
		}
	}
	return out
}

// IsCompiled reports whether s, which may be nil, is the Service at key that was compiled, so that
// only its endpoints may have changed since.
func (c *Compiler) IsCompiled(key cluster.Key, s *cluster.Service) bool {
	compiled := c.services[key]
	return s != nil && compiled != nil && compiled.source == s
}

// LeftOut yields the Services that are left out because they did not fit, see NoRoom, and how many
// there are.
func (c *Compiler) LeftOut() (keys iter.Seq[cluster.Key], n int) {
	return maps.Keys(c.room.leftOut), len(c.room.leftOut)
}

// WithoutLocal returns how many ports of Services lack endpoints on the node by a policy Local.
func (c *Compiler) WithoutLocal(of NoLocal) int { return c.noLocal[of] }

// Touched yields the addresses that may be those of another Service, or port, since the last call
// of Apply.
func (c *Compiler) Touched() iter.Seq[frontend.Address] { return slices.Values(c.touched) }

// Owner returns the Service that has an address. ok is false if none has.
func (c *Compiler) Owner(at frontend.Address) (key cluster.Key, ok bool) {
	holder, ok := c.claims[at]
	if !ok {
		return key, false
	}
	return holder.source.Key, true
}

// Addresses yields the addresses of all frontends.
func (c *Compiler) Addresses() iter.Seq[frontend.Address] { return maps.Keys(c.claims) }

// Serves reports whether there is a frontend at an address.
func (c *Compiler) Serves(at frontend.Address) bool { return c.holder(at) != nil }

// Checks returns the health checks by Service, in a map that is not changed any more, and whether
// they are others than at the last call.
func (c *Compiler) Checks() (checks map[cluster.Key]HealthCheck, changed bool) {
	if c.checks != nil {
		return c.checks, false
	}
	c.checks = make(map[cluster.Key]HealthCheck)
	for key, s := range c.services {
		if s.Check != nil {
			c.checks[key] = *s.Check
		}
	}
	return c.checks, true
}

// holder returns the frontend at an address, or nil.
func (c *Compiler) holder(at frontend.Address) *frontend.Frontend { return c.claims[at].frontend }

// claim changes the claims for an address: that of the Service at key is removed, and another one
// added if it has a frontend.
func (c *Compiler) claim(at frontend.Address, key cluster.Key, now claim) {
	all := c.others[at]
	if holder, ok := c.claims[at]; ok {
		all = append(all, holder)
	}
	all = slices.DeleteFunc(all, func(o claim) bool { return o.source.Key == key })
	if now.frontend != nil {
		all = append(all, now)
	}
	delete(c.claims, at)
	delete(c.others, at)
	if len(all) == 0 {
		return
	}
	slices.SortFunc(all, claim.compare)
	c.claims[at] = all[0]
	if len(all) > 1 {
		c.others[at] = slices.Clone(all[1:])
	}
}

// put replaces what the Service at key was compiled into; s is nil if there is none.
func (c *Compiler) put(key cluster.Key, s *cluster.Service, now Service) {
	old := c.services[key]
	for _, f := range old.frontends() {
		c.claim(f.Address, key, claim{})
	}
	if old != nil {
		c.room.remove(key, &old.Service)
		for _, n := range old.NoLocal {
			c.noLocal[n]--
		}
	}
	if s != nil && !c.room.fits(key, now.Size) {
		now = withoutRoom(now.Size)
	}
	if !equalChecks(old.check(), now.Check) {
		c.checks = nil
	}
	for _, a := range old.locals() {
		if c.local[a]--; c.local[a] == 0 {
			delete(c.local, a)
		}
	}
	if s == nil {
		delete(c.services, key)
		c.room.disturbed = true
		return
	}
	c.room.add(key, &now)
	if old == nil || old.Size != now.Size || old.created != age(s) {
		c.room.disturbed = true
	}
	made := &compiled{now, s, age(s)}
	c.services[key] = made
	for _, n := range now.NoLocal {
		c.noLocal[n]++
	}
	for _, f := range now.Frontends {
		c.claim(f.Address, key, claim{made, f})
	}
	for _, a := range now.Local {
		c.local[a]++
	}
}

// age returns when a Service was created; one of unknown age waits for those that are known.
func age(s *cluster.Service) int64 {
	if s.Created == 0 {
		return math.MaxInt64
	}
	return s.Created
}

func (s *compiled) frontends() []*frontend.Frontend {
	if s == nil {
		return nil
	}
	return s.Frontends
}

func (s *compiled) check() *HealthCheck {
	if s == nil {
		return nil
	}
	return s.Check
}

func equalChecks(a, b *HealthCheck) bool {
	return a == b || a != nil && b != nil && a.Port == b.Port && maps.Equal(a.Endpoints, b.Endpoints)
}

func (s *compiled) locals() []netip.Addr {
	if s == nil {
		return nil
	}
	return slices.Clone(s.Local)
}

// serviceCIDRs returns the ranges of all ServiceCIDRs, sorted; not nil.
func serviceCIDRs(v *cluster.View) []netip.Prefix {
	all := make([]netip.Prefix, 0, 2)
	for c := range cluster.ServiceCIDRs.All(v) {
		all = append(all, c.CIDRs...)
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}
