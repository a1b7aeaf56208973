package plan

import (
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// group is the Pods that a selector selects.
type group struct {
	podSelector
	scope   *scope // nil for one namespace
	members slots
	refs    int
	sets    []*set // that have its members
}

// scope is the namespaces that a selector matches.
type scope struct {
	selector *cluster.Selector
	has      map[string]bool // the namespaces that were asked for
	groups   []*group
}

// groups are groups of Pods, with indexes of what changes concern them.
type groups struct {
	byKey  map[string]*group
	byTerm map[term][]*group
	scopes map[string]*scope
	// pods are those that groups may have, by namespace.
	pods map[string]*slots
	// at returns the Pod in a slot, and labelsOf the labels of a namespace.
	at       func(slot uint32) *pod
	labelsOf func(namespace string) map[string]string
	// flipped is called after a Pod joined or left a group.
	flipped func(g *group, p *pod)
}

func newGroups() groups {
	return groups{
		byKey: make(map[string]*group), byTerm: make(map[term][]*group),
		scopes: make(map[string]*scope), pods: make(map[string]*slots),
	}
}

// reserve returns the group of a selector, with one more reference.
func (gs *groups) reserve(s *podSelector) *group {
	g := gs.byKey[s.key]
	if g == nil {
		g = gs.create(s)
	}
	g.refs++
	return g
}

func (gs *groups) create(s *podSelector) *group {
	g := &group{podSelector: *s}
	gs.byKey[s.key] = g
	for _, t := range g.terms() {
		gs.byTerm[t] = append(gs.byTerm[t], g)
	}
	if g.of == nil {
		gs.fill(g, g.namespace)
		return g
	}
	key := canonical(g.of)
	if g.scope = gs.scopes[key]; g.scope == nil {
		g.scope = &scope{selector: g.of, has: make(map[string]bool)}
		gs.scopes[key] = g.scope
	}
	g.scope.groups = append(g.scope.groups, g)
	for namespace := range gs.pods {
		if gs.inScope(g, namespace) {
			gs.fill(g, namespace)
		}
	}
	return g
}

// fill inserts the Pods of a namespace, silently: nothing uses the group yet.
func (gs *groups) fill(g *group, namespace string) {
	of := gs.pods[namespace]
	if of == nil {
		return
	}
	for slot := range of.all() {
		if g.pods.Selects(gs.at(slot).labels()) {
			g.members.insert(slot)
		}
	}
}

// release removes a reference to a group, and the group after the last one.
func (gs *groups) release(g *group) {
	if g.refs--; g.refs > 0 {
		return
	}
	delete(gs.byKey, g.key)
	for _, t := range g.terms() {
		if gs.byTerm[t] = remove(gs.byTerm[t], g); len(gs.byTerm[t]) == 0 {
			delete(gs.byTerm, t)
		}
	}
	if g.scope == nil {
		return
	}
	if g.scope.groups = remove(g.scope.groups, g); len(g.scope.groups) == 0 {
		delete(gs.scopes, canonical(g.of))
	}
}

// remove removes an element from a list whose order does not matter.
func remove[T comparable](list []T, one T) []T {
	i := slices.Index(list, one)
	if i < 0 {
		return list
	}
	last := len(list) - 1
	list[i] = list[last]
	clear(list[last:])
	return list[:last]
}

// inScope reports whether the Pods of a namespace may be in a group.
func (gs *groups) inScope(g *group, namespace string) bool {
	if g.scope == nil {
		return g.namespace == namespace
	}
	in, known := g.scope.has[namespace]
	if !known {
		in = g.scope.selector.Selects(gs.labelsOf(namespace))
		g.scope.has[namespace] = in
	}
	return in
}

// insert adds a Pod to the groups that select it.
func (gs *groups) insert(p *pod) {
	of := gs.pods[p.key.Namespace]
	if of == nil {
		of = new(slots)
		gs.pods[p.key.Namespace] = of
	}
	of.insert(p.slot)
	gs.unlabelled(p, true)
	gs.relabel(p, nil, p.labels())
}

// remove removes a Pod from its groups.
func (gs *groups) remove(p *pod) {
	gs.relabel(p, p.labels(), nil)
	gs.unlabelled(p, false)
	of := gs.pods[p.key.Namespace]
	if of.remove(p.slot); of.n == 0 {
		delete(gs.pods, p.key.Namespace)
	}
}

// unlabelled adds a Pod as if it had no labels to the groups that select it, or removes it.
func (gs *groups) unlabelled(p *pod, present bool) {
	for _, namespace := range [...]string{p.key.Namespace, ""} {
		for _, g := range gs.byTerm[term{namespace, always, "", ""}] {
			gs.settle(g, p, present && gs.inScope(g, p.key.Namespace))
		}
	}
}

// relabel moves a Pod whose labels changed.
func (gs *groups) relabel(p *pod, old, now map[string]string) {
	for label, was := range old {
		is, has := now[label]
		if has && is == was {
			continue
		}
		gs.review(p, now, hasValue, label, was)
		if !has {
			gs.review(p, now, hasLabel, label, "")
		}
	}
	for label, is := range now {
		was, had := old[label]
		if had && is == was {
			continue
		}
		gs.review(p, now, hasValue, label, is)
		if !had {
			gs.review(p, now, hasLabel, label, "")
		}
	}
}

// review moves a Pod into or out of the groups that depend on a term.
func (gs *groups) review(p *pod, labels map[string]string, kind termKind, label, value string) {
	for _, namespace := range [...]string{p.key.Namespace, ""} {
		for _, g := range gs.byTerm[term{namespace, kind, label, value}] {
			gs.settle(g, p, gs.inScope(g, p.key.Namespace) && g.pods.Selects(labels))
		}
	}
}

// settle has a Pod in a group or not.
func (gs *groups) settle(g *group, p *pod, in bool) {
	if g.members.has(p.slot) == in {
		return
	}
	if in {
		g.members.insert(p.slot)
	} else {
		g.members.remove(p.slot)
	}
	gs.flipped(g, p)
}

// relabelNamespace moves the Pods of a namespace whose labels changed.
func (gs *groups) relabelNamespace(namespace string) {
	for _, s := range gs.scopes {
		was, known := s.has[namespace]
		if !known {
			continue
		}
		is := s.selector.Selects(gs.labelsOf(namespace))
		if is == was {
			continue
		}
		s.has[namespace] = is
		of := gs.pods[namespace]
		if of == nil {
			continue
		}
		for _, g := range s.groups {
			for slot := range of.all() {
				p := gs.at(slot)
				gs.settle(g, p, is && g.pods.Selects(p.labels()))
			}
		}
	}
}
