package diff

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/semantics"
)

// place is what an end is.
type place uint8

const (
	pods    place = iota
	nodes         // the addresses of Nodes, for Pods on others
	ownNode       // those of a Pod's own Node
	network       // addresses outside the cluster
	domain        // a domain name outside the cluster
)

// end is a class of ends of connections that policies cannot tell from one another, before and after.
type end struct {
	place         place
	before, after *semantics.End
	// labels are those of the Pods after the change that selectors look at.
	labels map[string]string
	// members are the names of Pods and workloads or of Nodes; several is whether it stands for more
	// Pods than one.
	members []string
	several bool
	// on are the Nodes that its Pods are on, or that it is.
	on map[string]bool
	// nodeLabels are the labels of Nodes by side, and known whether they are there.
	nodeLabels [sides]map[string]string
	known      [sides]bool
	block      netip.Prefix // of place network
	name       string       // of place domain
}

// side returns the end before or after the change.
func (e *end) side(s side) *semantics.End {
	if s == after {
		return e.after
	}
	return e.before
}

// side is the cluster before or after the change.
type side uint8

const (
	before side = iota
	after
	sides
)

// mentioned is what the policies of both sides look at.
type mentioned struct {
	labels, nodeLabels map[string]bool
	blocks             *blocks
	domains            map[string]bool
	// ports are the names of ports that policies name, and where Pods have them.
	ports map[string][]cluster.Port
}

func newMentioned(views ...*cluster.View) *mentioned {
	m := &mentioned{
		labels: make(map[string]bool), nodeLabels: make(map[string]bool), blocks: newBlocks(),
		domains: make(map[string]bool), ports: make(map[string][]cluster.Port),
	}
	for _, v := range views {
		for p := range v.NetworkPolicies() {
			addSelector(m.labels, &p.Pods)
			for _, r := range slices.Concat(p.IngressRules, p.EgressRules) {
				m.addPorts(r.Ports)
				for i := range r.Peers {
					m.addPeer(&r.Peers[i])
				}
			}
		}
		for p := range cluster.ClusterNetworkPolicies.All(v) {
			addSelector(m.labels, &p.Subject.Pods)
			for _, r := range slices.Concat(p.IngressRules, p.EgressRules) {
				m.addPorts(r.Ports)
				for i := range r.Peers {
					m.addTierPeer(&r.Peers[i])
				}
			}
		}
	}
	return m
}

func addSelector(labels map[string]bool, s *cluster.Selector) {
	if s == nil {
		return
	}
	for name := range s.Labels {
		labels[name] = true
	}
	for i := range s.Requirements {
		labels[s.Requirements[i].Label] = true
	}
}

func (m *mentioned) addPeer(p *cluster.PolicyPeer) {
	addSelector(m.labels, p.Pods)
	m.blocks.add(p.Block)
	for _, e := range p.Except {
		m.blocks.add(e)
	}
	for _, d := range p.Domains {
		m.domains[d] = true
	}
}

func (m *mentioned) addTierPeer(p *cluster.TierPeer) {
	if p.Pods != nil {
		addSelector(m.labels, &p.Pods.Pods)
	}
	addSelector(m.nodeLabels, p.Nodes)
	for _, n := range p.Networks {
		m.blocks.add(n)
	}
	for _, d := range p.Domains {
		m.domains[d] = true
	}
}

func (m *mentioned) addPorts(ports []cluster.PolicyPort) {
	for _, p := range ports {
		if p.Name != "" && m.ports[p.Name] == nil {
			m.ports[p.Name] = []cluster.Port{}
		}
	}
}

// key returns a text that is the same for ends that policies of a side cannot tell from one another.
func (m *mentioned) key(e *semantics.End) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\x00%t", e.Namespace, e.HostNetwork)
	for _, name := range slices.Sorted(maps.Keys(e.Labels)) {
		if m.labels[name] {
			fmt.Fprintf(&b, "\x00%s=%s", name, e.Labels[name])
		}
	}
	b.WriteString(m.portsKey(e))
	for _, a := range e.Addrs {
		fmt.Fprintf(&b, "\x00@%s", m.blocks.of(a))
	}
	return b.String()
}

// portsKey returns a text of the ports of an end that policies name.
func (m *mentioned) portsKey(e *semantics.End) string {
	var ports []string
	for _, p := range e.Ports {
		if m.ports[p.Name] != nil && p.Name != "" {
			ports = append(ports, fmt.Sprintf("\x00%s:%s:%d", p.Name, p.Protocol, p.Number))
		}
	}
	slices.Sort(ports)
	return strings.Join(slices.Compact(ports), "")
}

// notePorts records the ports of an end that policies name.
func (m *mentioned) notePorts(e *semantics.End) {
	for _, p := range e.Ports {
		if of, ok := m.ports[p.Name]; ok && !slices.Contains(of, p) {
			m.ports[p.Name] = append(of, p)
		}
	}
}

// classes collects ends by their keys.
type classes struct {
	*mentioned
	byKey map[string]*end
	list  []*end
}

// collect returns the classes of all ends: first the Pods, then all others.
func collect(m *mentioned, was, is *cluster.View) (all []*end, podCount int) {
	c := &classes{mentioned: m, byKey: make(map[string]*end)}
	c.addPods(was, is)
	podCount = len(c.list)
	c.addNodes(was, is)
	for _, e := range c.list[podCount:] {
		own := *e
		own.place = ownNode
		own.before, own.after = atNode(e.before, ownName), atNode(e.after, ownName)
		c.list = append(c.list, &own)
	}
	c.addNetworks(was, is)
	return c.list, podCount
}

// The names of nodes in classes: Pods are on ownName.
const (
	ownName   = "own"
	otherName = "other"
)

func atNode(e *semantics.End, node string) *semantics.End {
	at := *e
	at.Node = node
	return &at
}

// addPods adds the Pods, and the workloads without any. Those that are new count as if they had been
// there before, so that they only differ by what policies do.
func (c *classes) addPods(was, is *cluster.View) {
	had, has := byNamespace(was), byNamespace(is)
	for _, p := range slices.SortedFunc(is.Pods(), func(a, b *cluster.Pod) int { return a.Compare(b.Key) }) {
		if p.Finished {
			continue
		}
		now := semantics.EndOf(p)
		then := now
		if old := was.Pod(p.Key); old != nil {
			then = semantics.EndOf(old)
		}
		c.addPod(then, now, p.Name, false)
	}
	for _, k := range cluster.WorkloadKinds() {
		for _, w := range slices.SortedFunc(is.Workloads(k), func(a, b *cluster.Workload) int { return a.Compare(b.Key) }) {
			then, present := w, has
			if old := was.Workload(k, w.Key); old != nil {
				then, present = old, had
			}
			if slices.ContainsFunc(present[w.Namespace], func(p *cluster.Pod) bool { return owns(then, p) }) {
				continue
			}
			name := strings.ToLower(k.String()) + "/" + w.Name
			c.addPod(semantics.EndOfWorkload(then), semantics.EndOfWorkload(w), name, true)
		}
	}
}

// byNamespace returns the Pods by namespace.
func byNamespace(v *cluster.View) map[string][]*cluster.Pod {
	in := make(map[string][]*cluster.Pod)
	for p := range v.Pods() {
		in[p.Namespace] = append(in[p.Namespace], p)
	}
	return in
}

// addPod adds a Pod, or the Pods of a template. Pods in the network of their node are the node.
func (c *classes) addPod(then, now *semantics.End, name string, several bool) {
	switch {
	case now.HostNetwork:
		return
	case then.HostNetwork: // its address is another, so it is new
		then = now
	}
	c.notePorts(then)
	c.notePorts(now)
	key := c.key(then) + "\n" + c.key(now)
	e := c.byKey[key]
	if e == nil {
		e = &end{labels: make(map[string]string), on: make(map[string]bool)}
		for name, value := range now.Labels {
			if c.labels[name] {
				e.labels[name] = value
			}
		}
		e.before, e.after = anyOf(then), anyOf(now)
		c.byKey[key] = e
		c.list = append(c.list, e)
	}
	e.several = e.several || several || len(e.members) > 0
	e.members = append(e.members, name)
	e.on[now.Node] = true
}

// anyOf returns a Pod as one of its class: without its name, on a node that no other end names.
func anyOf(e *semantics.End) *semantics.End {
	one := *e
	one.Name, one.Node = "", ownName
	return &one
}

// addNodes adds the addresses of Nodes.
func (c *classes) addNodes(was, is *cluster.View) {
	for _, n := range slices.SortedFunc(is.Nodes(), func(a, b *cluster.Node) int { return cmp.Compare(a.Name, b.Name) }) {
		old := was.Node(n.Name)
		known := [sides]bool{old != nil, true}
		if old == nil {
			old = n
		}
		for _, a := range n.Addresses {
			key := fmt.Sprintf("node %v %s\n%s\n%s", known, c.nodeKey(old), c.nodeKey(n), c.blocks.of(a))
			e := c.byKey[key]
			if e == nil {
				at := &semantics.End{Addrs: []netip.Addr{a}, Node: otherName}
				e = &end{
					place: nodes, before: at, after: at, on: make(map[string]bool), known: known,
					nodeLabels: [sides]map[string]string{old.Labels, n.Labels},
				}
				c.byKey[key] = e
				c.list = append(c.list, e)
			}
			if !e.on[n.Name] {
				e.on[n.Name] = true
				e.members = append(e.members, n.Name)
			}
		}
	}
}

func (c *classes) nodeKey(n *cluster.Node) string {
	var labels []string
	for name, value := range n.Labels {
		if c.nodeLabels[name] {
			labels = append(labels, name+"="+value)
		}
	}
	slices.Sort(labels)
	return strings.Join(labels, ",")
}

// addNetworks adds the addresses outside the cluster by the blocks that policies name, and the names.
func (c *classes) addNetworks(was, is *cluster.View) {
	inside := insideOf(was, is)
	sorted := c.blocks.sorted()
	var rest netip.Addr // an address that no block names
	for i, p := range sorted {
		addr, ok := free(p, sorted[i:])
		if !ok || slices.ContainsFunc(inside, func(of netip.Prefix) bool { return of.Bits() <= p.Bits() && of.Overlaps(p) }) {
			continue
		}
		at := &semantics.End{Addrs: []netip.Addr{addr}}
		c.list = append(c.list, &end{place: network, before: at, after: at, block: p})
		if p.Bits() == 0 && !rest.IsValid() {
			rest = addr
		}
	}
	for _, d := range slices.Sorted(maps.Keys(c.domains)) {
		name := d
		if under, ok := strings.CutPrefix(d, "*"); ok {
			name = "name" + under
		}
		at := &semantics.End{Names: []string{name}}
		if rest.IsValid() {
			at.Addrs = []netip.Addr{rest}
		}
		c.list = append(c.list, &end{place: domain, before: at, after: at, name: d})
	}
}

// insideOf returns the ranges of the cluster: of Pods, of Services, and the addresses of Pods and Nodes.
func insideOf(views ...*cluster.View) (all []netip.Prefix) {
	one := func(a netip.Addr) { all = append(all, netip.PrefixFrom(a, a.BitLen())) }
	for _, v := range views {
		for n := range v.Nodes() {
			all = append(all, n.PodCIDRs...)
			for _, a := range n.Addresses {
				one(a)
			}
		}
		for s := range cluster.ServiceCIDRs.All(v) {
			all = append(all, s.CIDRs...)
		}
		for p := range v.Pods() {
			for _, a := range p.IPs {
				one(a)
			}
		}
	}
	return all
}
