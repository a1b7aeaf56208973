package plan

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/ruleset"
)

// Compiler compiles what changed of a cluster, for one node. What it holds is what compiling everything
// anew yields. It implements ruleset.Ruleset. It is not safe for concurrent use.
type Compiler struct {
	config Config

	namespaces map[string]map[string]string // labels, with nameLabel
	nodes      map[string]*cluster.Node
	podRanges  []podRange
	ranges     []netip.Prefix // those of podRanges that are enforced
	byRef      map[cluster.Ref]*policy
	admin      []*policy
	baseline   []*policy
	policies   map[string][]*policy // by namespace
	lastID     uint32

	pods      map[cluster.Key]*pod
	strangers map[cluster.Key]*pod // that the model does not know yet
	locals    map[*pod]struct{}
	bySlot    []*pod
	free      []uint32
	holders   map[netip.Addr]*pod
	rivals    map[netip.Addr][]*pod // those that would have the address next, in no order
	reports   map[cluster.Key]Local
	devices   map[uint32]*pod

	// subjects are groups of Pods of the node that policies apply to, peers those of sets.
	subjects, peers groups
	sets            map[string]*set // by name
	setsByID        map[setID]*set
	nodeSets        []*set
	chains          map[string]*chain
	classes         map[string]*class
	dns             dns
	dispatchFrom    int // the constant, but in tests
	setDigits       int // the same

	pending
}

// pending is what the next Delta is made of.
type pending struct {
	reported    map[cluster.Key]struct{} // Pods with other reports
	dirtyPods   []*pod
	touched     map[netip.Addr]held
	devicesWere map[uint32]*ruleset.Device // nil was none
	rangesWere  []netip.Prefix
	newSets     []*set
	newChains   []*chain
	changedSets []*set
	idleClasses []*class
	idleChains  []*chain
	idleSets    []*set
}

// held is what an address had.
type held struct {
	pod ruleset.Pod
	ok  bool
}

// New returns a Compiler that has compiled nothing: a ruleset without anything in it.
func New(config Config) *Compiler {
	c := &Compiler{
		config: config, dispatchFrom: dispatchFrom, setDigits: setDigits,
		namespaces: make(map[string]map[string]string), nodes: make(map[string]*cluster.Node),
		byRef: make(map[cluster.Ref]*policy), policies: make(map[string][]*policy),
		pods: make(map[cluster.Key]*pod), strangers: make(map[cluster.Key]*pod), locals: make(map[*pod]struct{}),
		holders: make(map[netip.Addr]*pod), rivals: make(map[netip.Addr][]*pod), reports: make(map[cluster.Key]Local),
		devices:  make(map[uint32]*pod),
		subjects: newGroups(), peers: newGroups(),
		sets: make(map[string]*set), setsByID: make(map[setID]*set),
		chains: make(map[string]*chain), classes: make(map[string]*class),
		dns: dns{DNS: config.DNS, pods: make(map[cluster.Key]bool)},
	}
	c.dns.Addrs = slices.SortedFunc(slices.Values(config.DNS.Addrs), netip.Addr.Compare)
	c.dns.Addrs = slices.Compact(c.dns.Addrs)
	c.setPodRanges(config.Ranges)
	for _, gs := range []*groups{&c.subjects, &c.peers} {
		gs.at = func(slot uint32) *pod { return c.bySlot[slot] }
		gs.labelsOf = c.labelsOf
	}
	c.subjects.flipped = func(_ *group, p *pod) { c.dirty(p) }
	c.peers.flipped = func(g *group, p *pod) {
		for _, s := range g.sets {
			s.flip(g, p)
		}
	}
	c.pending = newPending()
	return c
}

// newPending returns maps that are as small as what changes next: those of the first Delta are large.
func newPending() pending {
	return pending{
		reported: make(map[cluster.Key]struct{}), touched: make(map[netip.Addr]held),
		devicesWere: make(map[uint32]*ruleset.Device),
	}
}

// Local is what a Pod of the node is attached to.
type Local struct {
	Addrs []netip.Addr
	// Devices are the indexes of the devices that the Pod is behind, as far as they are known. No other Pod is
	// behind one of them.
	Devices []uint32
}

// SetLocal reports the addresses of a Pod that starts on the node, before its status has them. They are
// its addresses from the next Apply until ForgetLocal, whatever the model says, and no other Pod has them.
// A Pod that the model does not know yet, or knows on another node, is isolated in both directions.
func (c *Compiler) SetLocal(key cluster.Key, l Local) {
	c.reports[key] = Local{slices.Clone(l.Addrs), slices.Clone(l.Devices)}
	c.reported[key] = struct{}{}
}

// ForgetLocal ends what SetLocal reported, from the next Apply on.
func (c *Compiler) ForgetLocal(key cluster.Key) {
	if _, ok := c.reports[key]; ok {
		delete(c.reports, key)
		c.reported[key] = struct{}{}
	}
}

// Owner returns the Pod that has an address, and whether one has.
func (c *Compiler) Owner(addr netip.Addr) (cluster.Key, bool) {
	p, ok := c.holders[addr]
	if !ok {
		return cluster.Key{}, false
	}
	return p.key, true
}

// Admits reports whether addresses that SetLocal reported are judged by the policies of their Pod: the
// model has it on this node, with the UID unless that is empty.
func (c *Compiler) Admits(key cluster.Key, uid string, addrs []netip.Addr) bool {
	return !slices.ContainsFunc(addrs, func(addr netip.Addr) bool {
		p := c.holders[addr]
		return p == nil || p.key != key || p.source == nil || p.local == nil ||
			uid != "" && uid != p.source.UID && uid != p.source.StaticUID
	})
}

// Behind returns the Pod behind a device, and whether one is known.
func (c *Compiler) Behind(device uint32) (cluster.Key, bool) {
	p, ok := c.devices[device]
	if !ok {
		return cluster.Key{}, false
	}
	return p.key, true
}

// Locals yields the Pods that SetLocal reported.
func (c *Compiler) Locals() iter.Seq2[cluster.Key, Local] { return maps.All(c.reports) }

// Apply compiles what changed in the model, and what was reported, and returns how the ruleset changed.
// All Kinds must be loaded: a policy that is missing restricts nothing.
func (c *Compiler) Apply(v *cluster.View, changes *cluster.Changes) *ruleset.Delta {
	c.rangesWere = c.ranges
	for ref := range c.refs(v, changes) {
		switch ref.Kind {
		case cluster.KindNamespace:
			c.updateNamespace(v, ref.Key.Name)
		case cluster.KindNode:
			c.updateNode(v, ref.Key.Name)
		case cluster.KindNetworkPolicy, cluster.KindClusterNetworkPolicy:
			c.updatePolicy(v, ref)
		case cluster.KindService:
			c.dns.reviewService(v, ref.Key)
		case cluster.KindPod:
			c.updatePod(v, ref.Key)
		}
	}
	for key := range c.reported {
		c.updatePod(v, key)
	}
	for _, p := range c.dirtyPods {
		if _, ok := c.locals[p]; ok {
			c.classify(v, p)
		}
	}
	c.reviewDNS(v)
	c.ranges = c.enforced()
	c.collect()
	return c.delta()
}

// refs yields what may have changed, and what is no more.
func (c *Compiler) refs(v *cluster.View, changes *cluster.Changes) iter.Seq[cluster.Ref] {
	if !changes.Everything {
		return maps.Keys(changes.Objects)
	}
	return func(yield func(cluster.Ref) bool) {
		for _, kind := range Kinds() {
			for o := range v.Objects(kind) {
				if !yield(o.Ref()) {
					return
				}
			}
		}
		for _, ref := range c.compiled() {
			if v.Object(ref.Kind, ref.Key) == nil && !yield(ref) {
				return
			}
		}
	}
}

// compiled lists what was compiled.
func (c *Compiler) compiled() (refs []cluster.Ref) {
	for name := range c.namespaces {
		refs = append(refs, cluster.Ref{Kind: cluster.KindNamespace, Key: cluster.Key{Name: name}})
	}
	for name := range c.nodes {
		refs = append(refs, cluster.Ref{Kind: cluster.KindNode, Key: cluster.Key{Name: name}})
	}
	for ref := range c.byRef {
		refs = append(refs, ref)
	}
	for key := range c.pods {
		refs = append(refs, cluster.Ref{Kind: cluster.KindPod, Key: key})
	}
	for key := range c.dns.pods {
		refs = append(refs, cluster.Ref{Kind: cluster.KindPod, Key: key})
	}
	return append(refs, cluster.Ref{Kind: cluster.KindService, Key: c.dns.Service})
}

// labelsOf returns the labels of a Namespace, which the model need not have.
func (c *Compiler) labelsOf(namespace string) map[string]string {
	if labels, ok := c.namespaces[namespace]; ok {
		return labels
	}
	return map[string]string{nameLabel: namespace}
}

func (c *Compiler) updateNamespace(v *cluster.View, name string) {
	was := c.labelsOf(name)
	if n := v.Namespace(name); n != nil {
		labels := maps.Clone(n.Labels)
		if labels == nil {
			labels = make(map[string]string, 1)
		}
		labels[nameLabel] = name
		c.namespaces[name] = labels
	} else {
		delete(c.namespaces, name)
	}
	if maps.Equal(was, c.labelsOf(name)) {
		return
	}
	c.dns.set = nil
	if name == c.dns.Service.Namespace {
		c.dns.changed = true
	}
	c.subjects.relabelNamespace(name)
	c.peers.relabelNamespace(name)
}

func (c *Compiler) updateNode(v *cluster.View, name string) {
	old, now := c.nodes[name], v.Node(name)
	if old == now {
		return
	}
	if old == nil || now == nil || !slices.Equal(old.Addresses, now.Addresses) || !maps.Equal(old.Labels, now.Labels) {
		c.dns.set, c.dns.changed = nil, true
		for _, s := range c.nodeSets {
			s.putNode(old, -1)
			s.putNode(now, 1)
		}
	}
	c.countForeign(c.nodeAddrs(old), -1)
	c.countForeign(c.nodeAddrs(now), 1)
	if now != nil {
		c.nodes[name] = now
	} else {
		delete(c.nodes, name)
	}
	if name == c.config.Node && len(c.config.Ranges) == 0 {
		var ranges []netip.Prefix
		if now != nil {
			ranges = now.PodCIDRs
		}
		c.setPodRanges(ranges)
	}
}

func (c *Compiler) updatePolicy(v *cluster.View, ref cluster.Ref) {
	old, source := c.byRef[ref], v.Object(ref.Kind, ref.Key)
	if old != nil && old.source == source || old == nil && source == nil {
		return
	}
	c.dns.set = nil
	var now *policy
	switch o := source.(type) {
	case *cluster.NetworkPolicy:
		now = networkPolicy(o)
	case *cluster.ClusterNetworkPolicy:
		now = clusterPolicy(o)
	}
	if now != nil {
		c.lastID++
		now.id = c.lastID
		now.subject = c.subjects.reserve(&now.selector)
		c.place(now)
		c.byRef[ref] = now
		c.dirtySubjects(now)
	}
	if old != nil {
		c.displace(old)
		c.dirtySubjects(old)
		c.subjects.release(old.subject)
	}
	if now == nil {
		delete(c.byRef, ref)
	}
}

// dirtySubjects has the classes of the Pods determined again that a policy selects.
func (c *Compiler) dirtySubjects(p *policy) {
	for slot := range p.subject.members.all() {
		c.dirty(c.bySlot[slot])
	}
}

// tier returns the list that a policy is in.
func (c *Compiler) tier(p *policy) []*policy {
	switch {
	case p.tier == nil:
		return c.policies[p.ref.Key.Namespace]
	case p.tier.Tier == cluster.BaselineTier:
		return c.baseline
	}
	return c.admin
}

func (c *Compiler) setTier(p *policy, list []*policy) {
	switch {
	case p.tier != nil && p.tier.Tier == cluster.BaselineTier:
		c.baseline = list
	case p.tier != nil:
		c.admin = list
	case len(list) == 0:
		delete(c.policies, p.ref.Key.Namespace)
	default:
		c.policies[p.ref.Key.Namespace] = list
	}
}

// place inserts a policy at its place in the order of evaluation.
func (c *Compiler) place(p *policy) {
	list := c.tier(p)
	i, _ := slices.BinarySearchFunc(list, p, (*policy).compare)
	c.setTier(p, slices.Insert(list, i, p))
}

func (c *Compiler) displace(p *policy) {
	list := c.tier(p)
	if i := slices.Index(list, p); i >= 0 {
		c.setTier(p, slices.Delete(list, i, i+1))
	}
}

// touch records what an address has before it changes.
func (c *Compiler) touch(addr netip.Addr) {
	if _, ok := c.touched[addr]; !ok {
		pod, ok := c.Pod(addr)
		c.touched[addr] = held{pod, ok}
	}
}

// touchPod does so with all that a Pod of the node has.
func (c *Compiler) touchPod(p *pod) {
	for _, addr := range p.held {
		c.touch(addr)
	}
	c.touchDevices(p)
}

// touchDevices records what comes by the devices of a Pod before it changes.
func (c *Compiler) touchDevices(p *pod) {
	for _, index := range p.devices {
		if _, ok := c.devicesWere[index]; ok {
			continue
		}
		c.devicesWere[index] = nil
		if was, ok := c.Device(index); ok {
			c.devicesWere[index] = &was
		}
	}
}

// collect deletes what is not used any more.
func (c *Compiler) collect() {
	for _, k := range c.idleClasses {
		if k.refs == 0 && c.classes[k.key] == k {
			delete(c.classes, k.key)
			c.releaseChain(k.chain)
		}
	}
}

// delta returns what changed since the last call.
func (c *Compiler) delta() *ruleset.Delta {
	d := new(ruleset.Delta)
	for i := 0; i < len(c.idleChains); i++ { // it grows meanwhile
		ch := c.idleChains[i]
		if ch.refs > 0 || c.chains[ch.name] != ch {
			continue
		}
		delete(c.chains, ch.name)
		if !ch.isNew {
			d.GoneChains = append(d.GoneChains, ch.name)
		}
		for _, s := range ch.sets {
			c.releaseSet(s)
		}
		for _, next := range ch.next {
			c.releaseChain(next)
		}
	}
	for _, s := range c.idleSets {
		if s.refs > 0 || c.sets[s.name] != s {
			continue
		}
		c.deleteSet(s)
		if !s.isNew {
			d.GoneSets = append(d.GoneSets, s.name)
		}
	}
	for _, ch := range c.newChains {
		if c.chains[ch.name] == ch {
			d.NewChains = append(d.NewChains, ch.name)
		}
		ch.isNew = false
	}
	for _, s := range c.newSets {
		if c.sets[s.name] == s {
			d.NewSets = append(d.NewSets, s.name)
		}
		s.isNew = false
	}
	c.elementDelta(d)
	for addr, was := range c.touched {
		if pod, ok := c.Pod(addr); ok != was.ok || pod != was.pod {
			d.Pods = append(d.Pods, addr)
		}
	}
	for index, was := range c.devicesWere {
		if device, ok := c.Device(index); ok != (was != nil) || ok && !device.Equal(was) {
			d.Devices = append(d.Devices, index)
		}
	}
	d.Ranges = !slices.Equal(c.ranges, c.rangesWere)
	c.pending = newPending()
	return d
}

// elementDelta adds the changes of sets that stay.
func (c *Compiler) elementDelta(d *ruleset.Delta) {
	for _, s := range c.changedSets {
		var change ruleset.Change
		for e, by := range s.changes {
			switch {
			case by > 0:
				change.Add = append(change.Add, e)
			case by < 0:
				change.Remove = append(change.Remove, e)
			}
		}
		s.changes = nil
		if c.sets[s.name] != s || len(change.Add)+len(change.Remove) == 0 {
			continue
		}
		if d.Elements == nil {
			d.Elements = make(map[string]ruleset.Change)
		}
		d.Elements[s.name] = change
	}
}
