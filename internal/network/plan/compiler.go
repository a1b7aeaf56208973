package plan

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/network/nft"
	"portolan.dev/portolan/internal/network/route"
	"portolan.dev/portolan/internal/network/wireguard"
)

// Compiler compiles what changed of a cluster. What it holds is what compiling everything anew yields.
type Compiler struct {
	cfg    Config
	host   route.Host
	nodes  map[string]*node
	claims claims
	own    *own // nil if the own Node is missing
	peers  map[string]*peer
	// troubled are the names of the peers with verdicts.
	troubled map[string]struct{}
	local    route.Local
	// needs6 counts the peers with needs6, and tunneled those with tunneled, by family.
	needs6   int
	tunneled [2]int
	keyless  int // how many peers are

	pods, cluster *cover
	members       *cover // addresses of Nodes
	services      []netip.Prefix
}

// NewCompiler returns a Compiler that has compiled nothing.
func NewCompiler(cfg Config) *Compiler {
	if cfg.mac == nil {
		cfg.mac = route.MACOf
	}
	c := &Compiler{
		cfg: cfg, nodes: make(map[string]*node), claims: newClaims(), peers: make(map[string]*peer),
		troubled: make(map[string]struct{}),
		pods:     newCover(), cluster: newCover(), members: newCover(),
	}
	for _, p := range cfg.NonMasquerade {
		c.cluster.insert(p.Masked())
	}
	return c
}

// All compiles everything, for a host, and returns the whole state.
func (c *Compiler) All(v *cluster.View, h route.Host) *State {
	*c = *NewCompiler(c.cfg)
	c.host = h
	for n := range cluster.Nodes.All(v) {
		c.replace(n.Name, c.newNode(n))
	}
	c.setServices(v)
	c.update(maps.Keys(c.nodes))
	c.cluster.changes()
	c.pods.changes()
	c.members.changes()
	return c.State()
}

// State returns the whole state as it was compiled last.
func (c *Compiler) State() *State {
	s := &State{Ranges: nft.Ranges{
		Pods: c.pods.all(), Cluster: c.cluster.all(), Nodes: addrsOfSingles(c.members.all()),
	}}
	s.Routes.Local = c.local
	for _, name := range slices.Sorted(maps.Keys(c.peers)) {
		p := c.peers[name]
		if !p.isEmpty() {
			s.Routes.Peers = append(s.Routes.Peers, p.Peer)
		}
		if p.isEncrypted() {
			s.Tunnels = append(s.Tunnels, p.encrypted)
		}
	}
	return s
}

// Apply compiles the Nodes with the given names again, and the ranges of cluster IPs, and returns what changed.
func (c *Compiler) Apply(v *cluster.View, names iter.Seq[string]) *Changes {
	affected := make(map[string]struct{})
	insert := func(name string) { affected[name] = struct{}{} }
	ownChanged := false
	for name := range names {
		was, is := c.nodes[name], c.newNode(cluster.Nodes.Get(v, cluster.Key{Name: name}))
		if was.equal(is) {
			continue
		}
		ownChanged = ownChanged || name == c.cfg.Node
		insert(name)
		c.claims.rivals(was, insert)
		c.claims.rivals(is, insert)
		c.replace(name, is)
	}
	c.setServices(v)
	if ownChanged {
		return c.update(c.everybody())
	}
	return c.update(maps.Keys(affected))
}

// SetHost compiles everything for a host that changed, and returns what changed.
func (c *Compiler) SetHost(h route.Host) *Changes {
	c.host = h
	return c.update(c.everybody())
}

// everybody yields the names of all Nodes and of all peers.
func (c *Compiler) everybody() iter.Seq[string] {
	all := make(map[string]struct{}, len(c.nodes))
	for name := range c.nodes {
		all[name] = struct{}{}
	}
	for name := range c.peers {
		all[name] = struct{}{}
	}
	return maps.Keys(all)
}

// replace replaces a Node; nil is none.
func (c *Compiler) replace(name string, is *node) {
	was := c.nodes[name]
	c.claims.insert(is)
	c.claims.remove(was)
	is.eachRange(c.cluster.insert)
	was.eachRange(c.cluster.remove)
	is.eachAddr(c.members.insert)
	was.eachAddr(c.members.remove)
	if name == c.cfg.Node {
		is.eachPodRange(c.pods.insert)
		was.eachPodRange(c.pods.remove)
	}
	if is == nil {
		delete(c.nodes, name)
	} else {
		c.nodes[name] = is
	}
}

// eachPodRange calls use with the ranges of a Node's Pods.
func (n *node) eachPodRange(use func(netip.Prefix)) {
	if n == nil {
		return
	}
	for _, p := range n.ranges {
		use(p)
	}
}

// eachRange calls use with all that a Node adds to the ranges of the cluster.
func (n *node) eachRange(use func(netip.Prefix)) {
	n.eachPodRange(use)
	n.eachAddr(use)
}

// eachAddr calls use with the addresses of a Node.
func (n *node) eachAddr(use func(netip.Prefix)) {
	if n == nil {
		return
	}
	for _, a := range n.internal {
		use(netip.PrefixFrom(a, a.BitLen()))
	}
}

// addrsOfSingles returns the addresses of ranges that have one each.
func addrsOfSingles(all []netip.Prefix) (addrs []netip.Addr) {
	for _, p := range all {
		addrs = append(addrs, p.Addr())
	}
	return addrs
}

// setServices replaces the ranges of cluster IPs.
func (c *Compiler) setServices(v *cluster.View) {
	var all []netip.Prefix
	for s := range cluster.ServiceCIDRs.All(v) {
		for _, p := range s.CIDRs {
			all = append(all, p.Masked())
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	if slices.Equal(all, c.services) {
		return
	}
	for _, p := range all {
		c.cluster.insert(p)
	}
	for _, p := range c.services {
		c.cluster.remove(p)
	}
	c.services = all
}

// update compiles Nodes again, and returns what changed.
func (c *Compiler) update(names iter.Seq[string]) *Changes {
	changes := new(Changes)
	c.own = newOwn(c.nodes[c.cfg.Node], &c.host)
	for name := range names {
		var is *peer
		if n := c.nodes[name]; n != nil && name != c.cfg.Node && c.own != nil {
			is = c.compilePeer(n)
		}
		was := c.setPeer(name, is)
		changes.addRoutes(name, was, is)
		changes.addTunnels(name, was, is)
	}
	changes.sort()
	if local := c.compileLocal(); !local.Equal(&c.local) {
		c.local = local
		changes.Routes.Local = &local
	}
	r := &changes.Ranges
	r.AddPods, r.DeletePods = c.pods.changes()
	r.AddCluster, r.DeleteCluster = c.cluster.changes()
	add, remove := c.members.changes()
	r.AddNodes, r.DeleteNodes = addrsOfSingles(add), addrsOfSingles(remove)
	return changes
}

// addRoutes adds what changed of the routes to a Node.
func (c *Changes) addRoutes(name string, was, is *peer) {
	switch {
	case !is.isEmpty() && (was.isEmpty() || !was.Equal(&is.Peer)):
		c.Routes.Put = append(c.Routes.Put, is.Peer)
	case is.isEmpty() && !was.isEmpty():
		c.Routes.Delete = append(c.Routes.Delete, name)
	}
}

// addTunnels adds what changed of the encrypted tunnel to a Node.
func (c *Changes) addTunnels(name string, was, is *peer) {
	switch {
	case is.isEncrypted() && (!was.isEncrypted() || !was.encrypted.Equal(&is.encrypted)):
		c.Tunnels.Put = append(c.Tunnels.Put, is.encrypted)
	case !is.isEncrypted() && was.isEncrypted():
		c.Tunnels.Delete = append(c.Tunnels.Delete, name)
	}
}

func (c *Changes) sort() {
	slices.SortFunc(c.Routes.Put, func(a, b route.Peer) int { return cmp.Compare(a.Name, b.Name) })
	slices.Sort(c.Routes.Delete)
	slices.SortFunc(c.Tunnels.Put, func(a, b wireguard.Peer) int { return cmp.Compare(a.Name, b.Name) })
	slices.Sort(c.Tunnels.Delete)
}

// setPeer replaces what a Node was compiled into, and returns what was.
func (c *Compiler) setPeer(name string, is *peer) (was *peer) {
	was = c.peers[name]
	c.count(was, -1)
	c.count(is, 1)
	if is == nil {
		delete(c.peers, name)
	} else {
		c.peers[name] = is
	}
	delete(c.troubled, name)
	if is != nil && len(is.verdicts) > 0 {
		c.troubled[name] = struct{}{}
	}
	return was
}

func (c *Compiler) count(p *peer, sign int) {
	if p == nil {
		return
	}
	if p.needs6 {
		c.needs6 += sign
	}
	if p.keyless {
		c.keyless += sign
	}
	for f, n := range p.tunneled {
		c.tunneled[f] += sign * n
	}
}

// isEmpty reports whether there is nothing to program.
func (p *peer) isEmpty() bool { return p == nil || len(p.Routes) == 0 && len(p.Unreachable) == 0 }

// isEncrypted reports whether there is an encrypted tunnel.
func (p *peer) isEncrypted() bool { return p != nil && p.encrypted.Key != wireguard.Key{} }

// Keyless returns how many other Nodes have no key for an encrypted tunnel, and should.
func (c *Compiler) Keyless() int { return c.keyless }

// Problems yields the names of the other Nodes of which something has no effect, and what.
func (c *Compiler) Problems() iter.Seq2[string, []Verdict] {
	return func(yield func(string, []Verdict) bool) {
		for name := range c.troubled {
			if !yield(name, c.Verdicts(name)) {
				return
			}
		}
	}
}

// Verdicts returns what of a Node has no effect.
func (c *Compiler) Verdicts(name string) []Verdict {
	switch {
	case c.own == nil && name == c.cfg.Node:
		return []Verdict{{Reason: OwnMissing}}
	case name != c.cfg.Node:
		if p := c.peers[name]; p != nil {
			return p.verdicts
		}
		return nil
	}
	verdicts := slices.Clone(c.own.verdicts)
	for _, r := range c.own.ranges {
		if holder := c.claims.holderOfRange(c.own.node, r); holder != nil {
			verdicts = append(verdicts, Verdict{Reason: RangeTaken, Range: r, Other: holder.name})
		}
	}
	for _, a := range c.own.addrs {
		if holder := c.claims.addrs[a][0]; holder.name != c.own.name {
			verdicts = append(verdicts, Verdict{Reason: AddressTaken, Addr: a, Other: holder.name})
		}
	}
	return verdicts
}
