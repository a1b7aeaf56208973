package diff

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/policy/semantics"
)

// Party is one of the ends of a Change.
type Party struct {
	// Kind is Pods, Nodes, Network or Domain. Without a further field it is all of them.
	Kind string `json:"kind"`
	// Namespace and Labels select Pods: without Labels all of the namespace. Absent are labels that they
	// do not have.
	Namespace string            `json:"namespace,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Absent    []string          `json:"absent,omitempty"`
	// Names are those of Nodes, or of Pods that Labels do not tell from others.
	Names []string `json:"names,omitempty"`
	// Own: a Pod's own Node is meant.
	Own bool `json:"own,omitempty"`
	// Block has the addresses of a Network, but for those in Except.
	Block  string   `json:"block,omitempty"`
	Except []string `json:"except,omitempty"`
	Domain string   `json:"domain,omitempty"`
}

// The values of Party.Kind.
const (
	Pods    = "pods"
	Nodes   = "nodes"
	Network = "network"
	Domain  = "domain"
)

// mostNames is the maximum number of names and parties that the text lists.
const mostNames = 5

// String returns the party as in "shop/app=web".
func (p *Party) String() string {
	switch {
	case p.Kind == Nodes && p.Own:
		return "the Pod's own node"
	case p.Kind == Nodes && len(p.Names) == 0:
		return "other nodes"
	case p.Kind == Nodes:
		return "node " + some(p.Names)
	case p.Kind == Domain:
		return p.Domain
	case p.Kind == Network && p.Block == "":
		return "all addresses outside"
	case p.Kind == Network && len(p.Except) > 0:
		return "(" + p.Block + " but " + some(p.Except) + ")"
	case p.Kind == Network:
		return p.Block
	case p.Namespace == "":
		return "all Pods"
	}
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(p.Labels)) {
		labels = append(labels, name+"="+p.Labels[name])
	}
	if len(labels) == 0 {
		for _, name := range p.Absent {
			labels = append(labels, "!"+name)
		}
	}
	text := p.Namespace + "/" + cmp.Or(strings.Join(labels, ","), "*")
	if len(p.Names) > 0 {
		text += " (" + some(p.Names) + ")"
	}
	return text
}

// some lists the first few words.
func some(words []string) string {
	if more := len(words) - mostNames; more > 0 {
		return strings.Join(words[:mostNames], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(words, ", ")
}

// joinParties lists the first few parties.
func joinParties(all []Party) string {
	var words []string
	for i := range all {
		words = append(words, all[i].String())
	}
	return some(words)
}

// String returns the change in a line.
func (c *Change) String() string {
	text := fmt.Sprintf("%-6s  %s → %s  %s", c.Change, joinParties(c.From), joinParties(c.To), c.ports)
	if len(c.Why) > 0 {
		text += "  (" + strings.Join(c.Why, "; ") + ")"
	}
	return text
}

// WriteText prints changes, one on each line.
func WriteText(w io.Writer, changes []Change) error {
	for i := range changes {
		if _, err := fmt.Fprintln(w, changes[i].String()); err != nil {
			return err
		}
	}
	return nil
}

// reason says what decides on a direction.
func reason(v *semantics.Verdict, d ruleset.Direction) string {
	switch {
	case v.Decider.Policy != nil:
		return fmt.Sprintf("ClusterNetworkPolicy %s, %s", v.Decider.Policy.Name, cluster.RulePath(d.String(), v.Decider.Rule))
	case v.Rule.Policy != nil:
		return fmt.Sprintf("NetworkPolicy %s, %s", v.Rule.Policy, cluster.RulePath(d.String(), v.Rule.Rule))
	case v.Allowed && len(v.Audit) > 0:
		return "only policies in audit mode restrict its " + d.String()
	case v.Allowed:
		return "no policy restricts its " + d.String()
	}
	names := semantics.PolicyNames(v.Policies)
	if len(names) == 1 {
		return fmt.Sprintf("NetworkPolicy %s, no rule of spec.%s", names[0], d)
	}
	return fmt.Sprintf("NetworkPolicies %s, no rule of spec.%s", some(names), d)
}

// changes groups the cells: first those to the same end, then those from the same ends.
func (c *comparison) changes() []Change {
	type kind struct {
		opens           bool
		ports           int32
		egress, ingress string // what decides
	}
	type column struct {
		kind
		to int
	}
	froms := make(map[column][]int)
	for _, cell := range c.cells {
		of := column{kind{opens: cell.opens, ports: cell.ports}, cell.to}
		of.egress, of.ingress = c.why(cell)
		froms[of] = append(froms[of], cell.from)
	}
	type group struct {
		kind
		from string
	}
	tos := make(map[group][]int)
	lists := make(map[string][]int)
	for of, from := range froms {
		slices.Sort(from)
		key := joinNumbers(from)
		lists[key] = from
		tos[group{of.kind, key}] = append(tos[group{of.kind, key}], of.to)
	}
	n := newNaming(c.ends, c.pods)
	changes := []Change{}
	for g, to := range tos {
		slices.Sort(to)
		ports := &c.ports[g.ports]
		change := Change{
			Change: Closes,
			From:   n.parties(lists[g.from]),
			To:     n.parties(to),
			Ports:  ports.list(),
			Why: slices.DeleteFunc(
				[]string{g.egress, g.ingress},
				func(why string) bool { return why == "" },
			),
			ports: ports.text(),
		}
		if g.opens {
			change.Change = Opens
		}
		changes = append(changes, change)
	}
	sortChanges(changes)
	return changes
}

// sortChanges sorts changes by their texts.
func sortChanges(all []Change) {
	texts := make(map[*Change]string, len(all))
	sorted := make([]*Change, len(all))
	for i := range all {
		sorted[i] = &all[i]
		texts[sorted[i]] = all[i].String()
	}
	slices.SortFunc(sorted, func(a, b *Change) int { return cmp.Compare(texts[a], texts[b]) })
	in := make([]Change, len(all))
	for i, c := range sorted {
		in[i] = *c
	}
	copy(all, in)
}

func joinNumbers(all []int) string {
	var b []byte
	for _, n := range all {
		b = append(strconv.AppendInt(b, int64(n), 36), ' ')
	}
	return string(b)
}

// naming names sets of ends.
type naming struct {
	ends []*end
	// members are the Pods by namespace, and varying the labels by which these differ.
	members map[string][]int
	varying map[string][]string
	// texts are the Pods as they are printed, and alike those of each text.
	texts []string
	alike map[string][]int
	pods  int
	count map[place]int
	// parent is of each block the smallest one that contains it, -1 without one.
	parent []int
}

func newNaming(ends []*end, podCount int) *naming {
	n := &naming{
		ends: ends, members: make(map[string][]int), varying: make(map[string][]string), alike: make(map[string][]int),
		pods: podCount, count: make(map[place]int),
	}
	n.findParents()
	for i, e := range ends {
		n.count[e.place]++
		if i < podCount {
			n.members[e.after.Namespace] = append(n.members[e.after.Namespace], i)
		}
	}
	for namespace, of := range n.members {
		var names []string
		for _, i := range of {
			names = append(names, slices.Collect(maps.Keys(ends[i].labels))...)
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			value, there := ends[of[0]].labels[name]
			if slices.ContainsFunc(of, func(i int) bool {
				v, ok := ends[i].labels[name]
				return v != value || ok != there
			}) {
				n.varying[namespace] = append(n.varying[namespace], name)
			}
		}
	}
	for i := range podCount {
		p := n.podParty(i)
		n.texts = append(n.texts, p.String())
		n.alike[n.texts[i]] = append(n.alike[n.texts[i]], i)
	}
	return n
}

// podParty returns the party of a class of Pods, by the labels by which it differs from others.
func (n *naming) podParty(i int) Party {
	e := n.ends[i]
	p := Party{Kind: Pods, Namespace: e.after.Namespace}
	for _, name := range n.varying[p.Namespace] {
		if value, ok := e.labels[name]; ok {
			if p.Labels == nil {
				p.Labels = make(map[string]string)
			}
			p.Labels[name] = value
		} else {
			p.Absent = append(p.Absent, name)
		}
	}
	return p
}

// parties names a sorted set of ends.
func (n *naming) parties(set []int) (all []Party) {
	has := make(map[int]bool, len(set))
	count := make(map[place]int)
	for _, i := range set {
		has[i] = true
		count[n.ends[i].place]++
	}
	all = n.podParties(set, has, count[pods])
	if k := count[nodes]; k > 0 {
		all = append(all, n.nodeParty(set, nodes, k))
	}
	if k := count[ownNode]; k > 0 {
		all = append(all, n.nodeParty(set, ownNode, k))
	}
	if k := count[network]; k > 0 && k == n.count[network] {
		all = append(all, Party{Kind: Network})
	} else if k > 0 {
		all = append(all, n.networkParties(set, has)...)
	}
	for _, i := range set {
		if n.ends[i].place == domain {
			all = append(all, Party{Kind: Domain, Domain: n.ends[i].name})
		}
	}
	return all
}

func (n *naming) podParties(set []int, has map[int]bool, count int) (all []Party) {
	if count == n.pods && count > 0 {
		return []Party{{Kind: Pods}}
	}
	complete := func(of []int) bool { return !slices.ContainsFunc(of, func(j int) bool { return !has[j] }) }
	done := make(map[string]bool) // namespaces and texts
	for _, i := range set[:count] {
		namespace, text := n.ends[i].after.Namespace, n.texts[i]
		if done[namespace] || done[text] {
			continue
		}
		if complete(n.members[namespace]) {
			done[namespace] = true
			all = append(all, Party{Kind: Pods, Namespace: namespace})
			continue
		}
		done[text] = true
		p := n.podParty(i)
		if alike := n.alike[text]; !complete(alike) {
			for _, j := range alike {
				if has[j] {
					p.Names = append(p.Names, n.ends[j].members...)
				}
			}
			slices.Sort(p.Names)
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Party) int { return cmp.Compare(a.String(), b.String()) })
	return all
}

// nodeParty names k classes of Nodes: by their names, if these are not all.
func (n *naming) nodeParty(set []int, of place, k int) Party {
	p := Party{Kind: Nodes, Own: of == ownNode}
	if k == n.count[of] {
		return p
	}
	for _, i := range set {
		if n.ends[i].place == of {
			p.Names = append(p.Names, n.ends[i].members...)
		}
	}
	slices.Sort(p.Names)
	p.Names = slices.Compact(p.Names)
	return p
}

// networkParties names blocks: the largest of the set, without those in them that are not in it.
func (n *naming) networkParties(set []int, has map[int]bool) (all []Party) {
	at := make(map[int]int) // where the party of a block is that no other of the set contains
	root := func(i int) int {
		for n.parent[i] >= 0 && has[n.parent[i]] {
			i = n.parent[i]
		}
		return i
	}
	for _, i := range set {
		if n.ends[i].place == network && root(i) == i {
			at[i] = len(all)
			all = append(all, Party{Kind: Network, Block: n.ends[i].block.String()})
		}
	}
	for i, e := range n.ends {
		if e.place == network && !has[i] && n.parent[i] >= 0 && has[n.parent[i]] {
			of := &all[at[root(n.parent[i])]]
			of.Except = append(of.Except, e.block.String())
		}
	}
	return all
}

// findParents finds for each block the smallest one that contains it: blocks are sorted.
func (n *naming) findParents() {
	var above []int
	for i, e := range n.ends {
		n.parent = append(n.parent, -1)
		if e.place != network {
			continue
		}
		for len(above) > 0 && !n.ends[above[len(above)-1]].block.Contains(e.block.Addr()) {
			above = above[:len(above)-1]
		}
		if len(above) > 0 {
			n.parent[i] = above[len(above)-1]
		}
		above = append(above, i)
	}
}
