package plan

import (
	"cmp"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// Compiler compiles what changed of a cluster. What it holds is what compiling everything anew yields.
type Compiler struct {
	cfg      Config
	nodes    map[string]node
	ready    int // how many of nodes are
	services map[cluster.Key]*service
	addrs    map[netip.Addr]*address
	ofNode   map[string]map[netip.Addr]struct{} // the addresses that a node is among the best candidates of
	links    []netip.Prefix                     // of the node that is compiled for, the longest first
}

// address is an address and its candidates.
type address struct {
	services []cluster.Key // sorted
	best     []ranked
	// near: best are on the link of the address.
	near          bool
	mine, unshown bool
	// candidates are those that serve all Services, sorted; nil is all nodes.
	candidates []string
	// told: it is among the addresses of the Changes so far.
	told bool
}

// NewCompiler returns a Compiler that has compiled nothing.
func NewCompiler(cfg Config) *Compiler {
	return &Compiler{
		cfg: cfg, nodes: make(map[string]node), services: make(map[cluster.Key]*service),
		addrs: make(map[netip.Addr]*address), ofNode: make(map[string]map[netip.Addr]struct{}),
	}
}

// SetLinks sets the prefixes of the links of the node, and returns the addresses that have other candidates than
// before.
func (c *Compiler) SetLinks(links []netip.Prefix) Changes {
	links = slices.SortedFunc(slices.Values(links), func(a, b netip.Prefix) int {
		return cmp.Or(cmp.Compare(b.Bits(), a.Bits()), a.Compare(b))
	})
	if links = slices.Compact(links); slices.Equal(links, c.links) {
		return Changes{}
	}
	c.links = links
	b := batch{Compiler: c, stale: make(map[netip.Addr]struct{}), allStale: true}
	return b.finish()
}

// linkOf returns the prefix of the link that an address is on; it is invalid if that is none of the node's.
func (c *Compiler) linkOf(a netip.Addr) netip.Prefix {
	i := slices.IndexFunc(c.links, func(p netip.Prefix) bool { return p.Contains(a) })
	if i < 0 {
		return netip.Prefix{}
	}
	return c.links[i]
}

// Needs lists the kinds that addresses and candidates are compiled from.
func Needs() []cluster.Kind {
	return []cluster.Kind{cluster.KindService, cluster.KindEndpointSlice, cluster.KindNode}
}

// Apply compiles what changed, or everything, and returns the addresses that have others than before.
func (c *Compiler) Apply(v *cluster.View, changed cluster.Changes) Changes {
	b := batch{Compiler: c, view: v, stale: make(map[netip.Addr]struct{}), changed: make(map[string]struct{})}
	if changed.Everything {
		b.everything()
	}
	for ref := range changed.Objects {
		switch ref.Kind {
		case cluster.KindService:
			b.service(ref.Key)
		case cluster.KindNode:
			b.node(ref.Key.Name)
		}
	}
	return b.finish()
}

// batch is the changes that are compiled together.
type batch struct {
	*Compiler
	view *cluster.View
	// stale are the addresses whose candidates have to be found again, and allStale is whether these are all.
	stale    map[netip.Addr]struct{}
	allStale bool
	// changed are the nodes that became candidates, or ceased to be.
	changed map[string]struct{}
}

// everything has all objects compiled again that there are or were.
func (b *batch) everything() {
	for key := range b.services {
		b.service(key)
	}
	for s := range b.view.Services() {
		b.service(s.Key)
	}
	for name := range b.nodes {
		b.node(name)
	}
	for n := range b.view.Nodes() {
		b.node(n.Name)
	}
}

// service compiles the Service at key again.
func (b *batch) service(key cluster.Key) {
	old, now := b.services[key], compileService(b.view, &b.cfg, key)
	for _, a := range old.addresses() {
		b.stale[a] = struct{}{}
		held := b.addrs[a]
		held.services = slices.DeleteFunc(held.services, func(k cluster.Key) bool { return k == key })
	}
	if delete(b.services, key); now == nil {
		return
	}
	b.services[key] = now
	for _, a := range now.addrs {
		b.stale[a] = struct{}{}
		held := b.addrs[a]
		if held == nil {
			held = new(address)
			b.addrs[a] = held
		}
		i, _ := slices.BinarySearchFunc(held.services, key, cluster.Key.Compare)
		held.services = slices.Insert(held.services, i, key)
	}
}

func (s *service) addresses() []netip.Addr {
	if s == nil {
		return nil
	}
	return s.addrs
}

// node compiles the Node with a name again.
func (b *batch) node(name string) {
	old, now := b.nodes[name], node{id: IDOf(name)}
	if n := b.view.Node(name); n != nil {
		now.fitness, now.cordoned, now.addrs = b.cfg.fitnessOf(n), n.Cordoned, n.Addresses
	}
	if old.equal(now) || old.fitness == unfit && now.fitness == unfit {
		return
	}
	wasReady := b.ready > 0
	if old.fitness == ready {
		b.ready--
	}
	if now.fitness == ready {
		b.ready++
	}
	if b.nodes[name] = now; now.fitness == unfit {
		delete(b.nodes, name)
	}
	// Nodes that are not ready count while none is.
	b.allStale = b.allStale || wasReady != (b.ready > 0)
	b.changed[name] = struct{}{}
	for a := range b.ofNode[name] {
		b.stale[a] = struct{}{}
	}
}

// mayAnnounce reports whether a node may announce addresses.
func (c *Compiler) mayAnnounce(n node) bool {
	return n.fitness == ready || n.fitness == notReady && c.ready == 0
}

// finish finds the candidates of all addresses that the changes concern.
func (b *batch) finish() Changes {
	out := Changes{Put: make(map[netip.Addr]Address)}
	if b.allStale {
		for a := range b.addrs {
			b.stale[a] = struct{}{}
		}
	}
	for a := range b.stale {
		b.compile(a, &out)
	}
	if len(b.changed) > 0 && !b.allStale {
		for a, held := range b.addrs {
			if _, done := b.stale[a]; !done && !b.join(a, held, &out) {
				b.compile(a, &out)
			}
		}
	}
	return out
}

// compile finds the candidates of an address anew.
func (b *batch) compile(a netip.Addr, out *Changes) {
	held := b.addrs[a]
	if len(held.services) == 0 {
		b.rank(a, held, nil)
		if delete(b.addrs, a); held.told {
			out.Delete = append(out.Delete, a)
		}
		return
	}
	held.candidates = b.candidates(a, held.services)
	link := b.linkOf(a)
	var best, far []ranked
	consider := func(name string, n node) {
		switch {
		case !b.mayAnnounce(n):
		case n.isOn(link):
			best = insert(best, n.rank(a, name))
		default:
			far = insert(far, n.rank(a, name))
		}
	}
	if held.candidates == nil {
		for name, n := range b.nodes {
			consider(name, n)
		}
	}
	for _, name := range held.candidates {
		consider(name, b.nodes[name])
	}
	if held.near = len(best) > 0; !held.near {
		best = far
	}
	b.tell(a, held, best, out)
}

// join adds nodes that became candidates to those of an address of which none went. It reports whether it could: the
// first one on the link leaves the others out.
func (b *batch) join(a netip.Addr, held *address, out *Changes) bool {
	best, link := slices.Clone(held.best), b.linkOf(a)
	for name := range b.changed {
		n := b.nodes[name]
		if !held.serves(name) || !b.mayAnnounce(n) {
			continue
		}
		switch near := n.isOn(link); {
		case near == held.near:
			best = insert(best, n.rank(a, name))
		case near:
			return false
		}
	}
	b.tell(a, held, best, out)
	return true
}

// tell has the best candidates be those of an address, and adds them to the changes if they are others than before.
func (b *batch) tell(a netip.Addr, held *address, best []ranked, out *Changes) {
	mine := held.serves(b.cfg.Node) && b.mayAnnounce(b.nodes[b.cfg.Node])
	unshown := b.linkOf(a).IsValid() && !held.near && len(best) > 0
	same := held.told && held.mine == mine && held.unshown == unshown && slices.EqualFunc(held.best, best, ranked.isSame)
	if b.rank(a, held, best); same {
		return
	}
	held.mine, held.unshown, held.told = mine, unshown, true
	out.Put[a] = held.output()
}

func (h *address) output() Address {
	o := Address{Mine: h.mine, Unshown: h.unshown}
	for _, r := range h.best {
		o.Ranked = append(o.Ranked, r.name)
	}
	return o
}

// rank replaces the best candidates of an address.
func (c *Compiler) rank(a netip.Addr, held *address, best []ranked) {
	for _, r := range held.best {
		if of := c.ofNode[r.name]; len(of) == 1 {
			delete(c.ofNode, r.name)
		} else {
			delete(of, a)
		}
	}
	held.best = best
	for _, r := range best {
		if c.ofNode[r.name] == nil {
			c.ofNode[r.name] = make(map[netip.Addr]struct{})
		}
		c.ofNode[r.name][a] = struct{}{}
	}
}

// serves reports whether a node serves all Services of the address, if it may announce addresses.
func (h *address) serves(name string) bool {
	if h.candidates == nil {
		return true
	}
	_, found := slices.BinarySearch(h.candidates, name)
	return found
}

// candidates returns the nodes that serve all of some Services at an address, sorted; nil is all nodes.
func (c *Compiler) candidates(a netip.Addr, keys []cluster.Key) (common []string) {
	for _, key := range keys {
		s := c.services[key]
		if !s.local {
			continue
		}
		nodes := s.endpoints[cluster.FamilyOf(a)]
		if common == nil {
			common = append([]string{}, nodes...)
			continue
		}
		common = slices.DeleteFunc(common, func(name string) bool {
			_, found := slices.BinarySearch(nodes, name)
			return !found
		})
	}
	return common
}
