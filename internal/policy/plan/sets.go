package plan

import (
	"crypto/sha256"
	"encoding/base32"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/ruleset"
)

// setSpec describes a set: what its elements are, whatever they are now. Its fields are sorted and
// unique.
type setSpec struct {
	kind ruleset.Kind
	// groups have the Pods of a set of kind Hosts or HostPorts.
	groups []podSelector
	// all: all Pods, for HostPorts.
	all bool
	// blocks are the elements for Blocks, and have Pods for HostPorts.
	blocks []netip.Prefix
	// nodes select the Nodes of a set of kind Hosts, which has no groups then.
	nodes []nodeSelector
	// port is that of HostPorts.
	port namedPort
	// addrs are elements for Hosts.
	addrs   []netip.Addr
	domains []string
}

// nodeSelector selects Nodes; key is the same for equal selectors.
type nodeSelector struct {
	key      string
	selector *cluster.Selector
}

// namedPort is a port by its name; protocol 0 is any.
type namedPort struct {
	name     string
	protocol ruleset.Protocol
}

const (
	// dnsSet is the name of the set with the addresses of the node's DNS.
	dnsSet = "dns"
	// namesPrefix begins those of sets of kind Resolved.
	namesPrefix = "names-"
)

// describe returns how the set's name begins, and its content in words.
func (s *setSpec) describe() (prefix, text string) {
	var parts []string
	switch {
	case len(s.addrs) > 0:
		return dnsSet, "DNS on this node"
	case s.kind == ruleset.Resolved:
		prefix, parts = namesPrefix, s.domains
	case s.kind == ruleset.Blocks:
		prefix, parts = "blocks-", s.blockTexts()
	case s.kind == ruleset.HostPorts:
		prefix = "ports-"
		parts = append(parts, plain(s.port.name)+"/"+protocolName(s.port.protocol)+" of")
		if s.all {
			parts = append(parts, "all Pods")
		}
		parts = append(append(parts, s.groupTexts()...), s.blockTexts()...)
	case len(s.nodes) > 0:
		prefix = "nodes-"
		for _, n := range s.nodes {
			parts = append(parts, "{"+n.key+"}")
		}
	default:
		prefix, parts = "pods-", s.groupTexts()
	}
	return prefix, strings.Join(parts, " ")
}

// setID identifies a set by its content.
type setID struct {
	prefix string
	digest [sha256.Size]byte
}

// How many digits of 5 bits the names of sets have. The kernel finds a set in a list of all, and reads each name to
// its end.
const (
	setDigits = 8
	// namesDigits are those of kind Resolved. The kernel keeps their elements over a restart of the agent, so that
	// no other set must ever have such a name.
	namesDigits = 20
)

// newSetName returns the name of a new set: digits of its digest, more if another set has these. Which of the two has
// fewer may be different after a restart.
func (c *Compiler) newSetName(id setID) string {
	if id.prefix == dnsSet {
		return dnsSet
	}
	digits, n := setNames.EncodeToString(id.digest[:]), c.setDigits
	if id.prefix == namesPrefix {
		n = namesDigits
	}
	for c.sets[id.prefix+digits[:n]] != nil {
		n++
	}
	return id.prefix + digits[:n]
}

// setNames are the digits of the names of sets.
var setNames = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

func (s *setSpec) groupTexts() (texts []string) {
	for i := range s.groups {
		texts = append(texts, s.groups[i].key)
	}
	return texts
}

func (s *setSpec) blockTexts() (texts []string) {
	for _, b := range s.blocks {
		texts = append(texts, b.String())
	}
	return texts
}

// set is a set that chains use, with its elements as far as they are not those of Pods.
type set struct {
	setSpec
	id      setID
	name    string
	comment string
	refs    int
	from    []*group
	// in are the Pods of the groups; of a single group its own.
	in *slots
	// nodeAddrs counts the Nodes of each address.
	nodeAddrs map[netip.Addr]int
	// size is the number of elements.
	size int
	// isNew: it is not in the ruleset yet. changes are those of a set that is: 1 for an element that
	// came, -1 for one that left.
	isNew   bool
	changes map[ruleset.Element]int
	changed func(*set)
}

// record adds to the changes that an element came (1) or left (-1).
func (s *set) record(e ruleset.Element, by int) {
	s.size += by
	if s.isNew {
		return
	}
	if s.changes == nil {
		s.changes = make(map[ruleset.Element]int)
		s.changed(s)
	}
	s.changes[e] += by
}

// recordAddr records that a Pod got an address or lost it.
func (s *set) recordAddr(p *pod, addr netip.Addr, by int) {
	if s.hasPod(p, addr) {
		for e := range s.elementsAt(p, addr) {
			s.record(e, by)
		}
	}
}

// recordPod records that a Pod came into the groups of the set, or left them.
func (s *set) recordPod(p *pod, by int) {
	for _, addr := range p.held {
		if s.all || contain(s.blocks, addr) {
			continue // it has the Pod anyway
		}
		for e := range s.elementsAt(p, addr) {
			s.record(e, by)
		}
	}
}

// flip is called after a Pod joined or left one of the groups.
func (s *set) flip(g *group, p *pod) {
	joined := g.members.has(p.slot)
	if s.in != &g.members {
		is := joined || slices.ContainsFunc(s.from, func(g *group) bool { return g.members.has(p.slot) })
		if is == s.in.has(p.slot) {
			return
		}
		if is {
			s.in.insert(p.slot)
		} else {
			s.in.remove(p.slot)
		}
	}
	if joined {
		s.recordPod(p, 1)
	} else {
		s.recordPod(p, -1)
	}
}

// hasPod reports whether the set has the elements of a Pod at an address.
func (s *set) hasPod(p *pod, addr netip.Addr) bool {
	switch {
	case s.in != nil && s.in.has(p.slot):
		return true
	case s.kind != ruleset.HostPorts:
		return false
	}
	return s.all || contain(s.blocks, addr)
}

// elementsAt yields the elements that a Pod of the set has at an address.
func (s *set) elementsAt(p *pod, addr netip.Addr) iter.Seq[ruleset.Element] {
	return func(yield func(ruleset.Element) bool) {
		e := ruleset.Element{Prefix: ruleset.Whole(addr)}
		if s.kind != ruleset.HostPorts {
			yield(e)
			return
		}
		ports := p.ports()
		for i := range ports {
			if !s.port.matches(&ports[i]) || slices.ContainsFunc(ports[:i], func(o cluster.Port) bool { return o == ports[i] }) {
				continue
			}
			e.Protocol, e.Port = protocolOf(ports[i].Protocol), ports[i].Number
			if !yield(e) {
				return
			}
		}
	}
}

// matches reports whether a port of a Pod is the named one.
func (n *namedPort) matches(p *cluster.Port) bool {
	protocol := protocolOf(p.Protocol)
	return p.Name == n.name && protocol != 0 && (n.protocol == 0 || n.protocol == protocol)
}

// putNode records that a Node, unless it is nil, came (1) or left (-1).
func (s *set) putNode(n *cluster.Node, by int) {
	if n == nil || !slices.ContainsFunc(s.nodes, func(sel nodeSelector) bool { return sel.selector.Selects(n.Labels) }) {
		return
	}
	for _, addr := range n.Addresses {
		had := s.nodeAddrs[addr] > 0
		if s.nodeAddrs[addr] += by; s.nodeAddrs[addr] == 0 {
			delete(s.nodeAddrs, addr)
		}
		if has := s.nodeAddrs[addr] > 0; has != had {
			s.record(ruleset.Element{Prefix: ruleset.Whole(addr)}, by)
		}
	}
}

// elements yields those of a set.
func (c *Compiler) elements(s *set) iter.Seq[ruleset.Element] {
	return func(yield func(ruleset.Element) bool) {
		switch {
		case s.kind == ruleset.Resolved:
		case s.kind == ruleset.Blocks:
			for _, b := range s.blocks {
				if !yield(ruleset.Element{Prefix: b}) {
					return
				}
			}
		case len(s.addrs) > 0:
			for _, addr := range s.addrs {
				if !yield(ruleset.Element{Prefix: ruleset.Whole(addr)}) {
					return
				}
			}
		case len(s.nodes) > 0:
			for addr := range s.nodeAddrs {
				if !yield(ruleset.Element{Prefix: ruleset.Whole(addr)}) {
					return
				}
			}
		default:
			c.podElements(s, yield)
		}
	}
}

// podElements yields the elements of a set that are those of Pods.
func (c *Compiler) podElements(s *set, yield func(ruleset.Element) bool) {
	each := func(p *pod) bool {
		for _, addr := range p.held {
			if !s.hasPod(p, addr) {
				continue
			}
			for e := range s.elementsAt(p, addr) {
				if !yield(e) {
					return false
				}
			}
		}
		return true
	}
	if s.all || len(s.blocks) > 0 {
		for _, p := range c.pods {
			if !each(p) {
				return
			}
		}
		return
	}
	for slot := range s.in.all() {
		if !each(c.bySlot[slot]) {
			return
		}
	}
}

// contains reports whether an address is in a set, for HostPorts with the protocol and the port.
func (c *Compiler) contains(s *set, addr netip.Addr, protocol ruleset.Protocol, port uint16) bool {
	switch {
	case s.kind == ruleset.Resolved:
		return false
	case s.kind == ruleset.Blocks:
		return contain(s.blocks, addr)
	case len(s.addrs) > 0:
		return slices.Contains(s.addrs, addr)
	case len(s.nodes) > 0:
		return s.nodeAddrs[addr] > 0
	}
	p := c.holders[addr]
	if p == nil || !s.hasPod(p, addr) {
		return false
	}
	if s.kind == ruleset.Hosts {
		return true
	}
	return slices.ContainsFunc(p.ports(), func(own cluster.Port) bool {
		return s.port.matches(&own) && own.Number == port && protocolOf(own.Protocol) == protocol
	})
}

// reserveSet returns the set that a spec describes, with one more reference.
func (c *Compiler) reserveSet(spec *setSpec) *set {
	prefix, text := spec.describe()
	id := setID{prefix, sha256.Sum256([]byte(text))}
	s := c.setsByID[id]
	if s == nil {
		s = &set{setSpec: *spec, id: id, name: c.newSetName(id), comment: printable(text, maxComment), isNew: true}
		s.changed = func(s *set) { c.changedSets = append(c.changedSets, s) }
		c.sets[s.name], c.setsByID[id] = s, s
		c.newSets = append(c.newSets, s)
		c.fillSet(s)
	}
	s.refs++
	return s
}

// fillSet gives a new set its elements.
func (c *Compiler) fillSet(s *set) {
	for i := range s.groups {
		g := c.peers.reserve(&s.groups[i])
		g.sets = append(g.sets, s)
		s.from = append(s.from, g)
	}
	if len(s.from) == 1 {
		s.in = &s.from[0].members
	} else {
		s.in = new(slots)
		for _, g := range s.from {
			s.in.insertAll(&g.members)
		}
	}
	if len(s.nodes) > 0 {
		c.nodeSets = append(c.nodeSets, s)
		s.nodeAddrs = make(map[netip.Addr]int)
		for _, n := range c.nodes {
			s.putNode(n, 1)
		}
		return
	}
	for range c.elements(s) {
		s.size++
	}
}

// releaseSet removes a reference to a set; collect deletes it after the last one.
func (c *Compiler) releaseSet(s *set) {
	if s.refs--; s.refs == 0 {
		c.idleSets = append(c.idleSets, s)
	}
}

// deleteSet deletes a set that nothing uses.
func (c *Compiler) deleteSet(s *set) {
	delete(c.sets, s.name)
	delete(c.setsByID, s.id)
	if len(s.nodes) > 0 {
		c.nodeSets = remove(c.nodeSets, s)
	}
	for _, g := range s.from {
		g.sets = remove(g.sets, s)
		c.peers.release(g)
	}
}
