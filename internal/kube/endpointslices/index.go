package endpointslices

import (
	"maps"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/support/parallel"
)

// Index knows which Pods each Service selects. It is not for concurrent use.
type Index struct {
	namespaces map[string]*namespace
	zones      map[string]string // by Node name
}

// namespace is the part of an Index about one Namespace.
type namespace struct {
	selections map[string]*selection // by Service name
	members    map[string]*member    // by Pod name
	// byLabel has each selection under one label of its selector.
	byLabel map[label][]*selection
}

type label struct{ key, value string }

// selection is a Service with a selector and the Pods that it selects.
type selection struct {
	service *cluster.Service
	label   label     // under which byLabel has it
	members []*member // unordered
}

// member is a Pod and the Services that select it.
type member struct {
	pod         *cluster.Pod
	memberships []membership
}

// membership says that a member is at an index among the members of a selection.
type membership struct {
	selection *selection
	index     int
}

// join makes m a member of s.
func (m *member) join(s *selection) {
	m.memberships = append(m.memberships, membership{s, len(s.members)})
	s.members = append(s.members, m)
}

// leave ends the membership of m in s, if there is one. The last member of s moves
// to its index.
func (m *member) leave(s *selection) {
	i := m.membership(s)
	if i < 0 {
		return
	}
	index, last := m.memberships[i].index, len(s.members)-1
	moved := s.members[last]
	moved.memberships[moved.membership(s)].index = index
	s.members[index], s.members[last] = moved, nil
	s.members = s.members[:last]
	m.memberships = slices.Delete(m.memberships, i, i+1)
}

// membership returns the index of m's membership in s, -1 if there is none.
func (m *member) membership(s *selection) int {
	return slices.IndexFunc(m.memberships, func(of membership) bool { return of.selection == s })
}

// NewIndex returns an empty Index.
func NewIndex() *Index {
	return &Index{namespaces: make(map[string]*namespace), zones: make(map[string]string)}
}

// affected is a set of Services.
type affected map[cluster.Key]bool

// Update applies the changes of the view to the Index and returns the Services whose
// slices they may affect: Services that changed, selectors or not, those with Pods
// that changed, those with Pods on Nodes that changed, and, when a Node changed,
// those whose endpoints are allocated to zones.
func (x *Index) Update(v *cluster.View, changes cluster.Changes) map[cluster.Key]bool {
	found := make(affected)
	if changes.Everything {
		x.rebuild(v, found)
		for ch := range changes.Objects {
			if ch.Kind == cluster.KindService { // it may be gone
				found[ch.Key] = true
			}
		}
		return found
	}
	var reselecting []*selection
	nodes, moved := false, make(map[string]bool)
	for ch := range changes.Objects {
		switch ch.Kind {
		case cluster.KindService:
			found[ch.Key] = true
			reselecting = x.updateService(ch.Key, v.Service(ch.Key), reselecting)
		case cluster.KindPod:
			x.updatePod(ch.Key, v.Pod(ch.Key), found)
		case cluster.KindNode:
			nodes = true
			if x.updateNode(ch.Key.Name, v.Node(ch.Key.Name)) {
				moved[ch.Key.Name] = true
			}
		}
		x.dropIfEmpty(ch.Key.Namespace)
	}
	x.selectPods(reselecting)
	if nodes {
		x.addServicesOn(moved, found)
		x.addZoned(found)
	}
	return found
}

// Pods returns the Pods that the Service at key selects, in no order.
func (x *Index) Pods(key cluster.Key) []*cluster.Pod {
	n := x.namespaces[key.Namespace]
	if n == nil || n.selections[key.Name] == nil {
		return nil
	}
	s := n.selections[key.Name]
	pods := make([]*cluster.Pod, len(s.members))
	for i, m := range s.members {
		pods[i] = m.pod
	}
	return pods
}

// rebuild builds the Index anew from all objects, several Namespaces in parallel.
// All Services are affected, those of before and those of now.
func (x *Index) rebuild(v *cluster.View, found affected) {
	for name, n := range x.namespaces {
		for service := range n.selections {
			found[cluster.Key{Namespace: name, Name: service}] = true
		}
	}
	*x = *NewIndex()
	for s := range v.Services() {
		found[s.Key] = true
		if HasSlices(s) {
			x.namespace(s.Namespace).addSelection(s)
		}
	}
	pods := make(map[*namespace][]*cluster.Pod)
	for p := range v.Pods() {
		n := x.namespace(p.Namespace)
		pods[n] = append(pods[n], p)
	}
	namespaces := slices.Collect(maps.Keys(pods))
	parallel.Each(len(namespaces), func(i int) { namespaces[i].addPods(pods[namespaces[i]]) })
	for n := range v.Nodes() {
		x.zones[n.Name] = n.Zone
	}
}

// updateNode applies a change of a Node, nil if it is gone, and reports whether it
// affects endpoints on the Node: it was added or removed, or its zone changed.
func (x *Index) updateNode(name string, now *cluster.Node) (moved bool) {
	if now == nil {
		delete(x.zones, name)
		return true
	}
	zone, known := x.zones[name]
	x.zones[name] = now.Zone
	return !known || now.Zone != zone
}

// addServicesOn adds the Services that have Pods on these Nodes.
func (x *Index) addServicesOn(nodes map[string]bool, found affected) {
	if len(nodes) == 0 {
		return
	}
	for _, n := range x.namespaces {
		for _, m := range n.members {
			if !nodes[m.pod.Node] {
				continue
			}
			for _, of := range m.memberships {
				found[of.selection.service.Key] = true
			}
		}
	}
}

// addZoned adds the Services whose endpoints are allocated to zones, in proportion
// to the processors of the Nodes there.
func (x *Index) addZoned(found affected) {
	for _, n := range x.namespaces {
		for _, s := range n.selections {
			if allocatesZones(s.service) {
				found[s.service.Key] = true
			}
		}
	}
}

// namespace returns the part about a Namespace and creates it if there is none.
func (x *Index) namespace(name string) *namespace {
	n := x.namespaces[name]
	if n == nil {
		n = &namespace{
			selections: make(map[string]*selection), members: make(map[string]*member),
			byLabel: make(map[label][]*selection),
		}
		x.namespaces[name] = n
	}
	return n
}

func (x *Index) dropIfEmpty(name string) {
	if n := x.namespaces[name]; n != nil && len(n.selections) == 0 && len(n.members) == 0 {
		delete(x.namespaces, name)
	}
}

// updateService applies a change of a Service, nil if it is gone. It appends the
// selection to reselecting if its Pods have to be found.
func (x *Index) updateService(key cluster.Key, now *cluster.Service, reselecting []*selection) []*selection {
	n := x.namespace(key.Namespace)
	old := n.selections[key.Name]
	if old != nil && HasSlices(now) && maps.Equal(now.Selector, old.service.Selector) {
		old.service = now
		return reselecting
	}
	if old != nil {
		n.removeSelection(old)
	}
	if !HasSlices(now) {
		return reselecting
	}
	return append(reselecting, n.addSelection(now))
}

// addSelection adds a Service, without members. Of the labels of its selector it is
// indexed under the one that the fewest selections are.
func (n *namespace) addSelection(service *cluster.Service) *selection {
	added := &selection{service: service}
	fewest := -1
	for k, v := range service.Selector {
		candidate := label{k, v}
		if count := len(n.byLabel[candidate]); fewest < 0 || count < fewest || count == fewest && k < added.label.key {
			fewest, added.label = count, candidate
		}
	}
	n.byLabel[added.label] = append(n.byLabel[added.label], added)
	n.selections[service.Name] = added
	return added
}

func (n *namespace) removeSelection(old *selection) {
	delete(n.selections, old.service.Name)
	indexed := n.byLabel[old.label]
	i := slices.Index(indexed, old)
	if indexed = slices.Delete(indexed, i, i+1); len(indexed) == 0 {
		delete(n.byLabel, old.label)
	} else {
		n.byLabel[old.label] = indexed
	}
	for _, m := range old.members {
		m.memberships = slices.DeleteFunc(m.memberships, func(of membership) bool { return of.selection == old })
	}
}

// selecting appends to found the selections that select a Pod.
func (n *namespace) selecting(pod *cluster.Pod, found []*selection) []*selection {
	for k, v := range pod.Labels {
		for _, candidate := range n.byLabel[label{k, v}] {
			if candidate.service.Selects(pod) {
				found = append(found, candidate)
			}
		}
	}
	return found
}

// addPods adds the Pods of a Namespace that has none yet.
func (n *namespace) addPods(pods []*cluster.Pod) {
	n.members = make(map[string]*member, len(pods))
	var selections []*selection
	for _, p := range pods {
		m := &member{pod: p}
		n.members[p.Name] = m
		selections = n.selecting(p, selections[:0])
		for _, s := range selections {
			m.join(s)
		}
	}
}

// updatePod applies a change of a Pod, nil if it is gone, and adds the Services that
// select it or did so before.
func (x *Index) updatePod(key cluster.Key, now *cluster.Pod, found affected) {
	n := x.namespace(key.Namespace)
	m := n.members[key.Name]
	switch {
	case m == nil && now == nil:
		return
	case m == nil:
		m = new(member)
		n.members[key.Name] = m
	}
	var selections []*selection
	if now == nil {
		delete(n.members, key.Name)
	} else {
		m.pod = now
		selections = n.selecting(now, nil)
	}
	for _, of := range slices.Clone(m.memberships) {
		found[of.selection.service.Key] = true
		if !slices.Contains(selections, of.selection) {
			m.leave(of.selection)
		}
	}
	for _, s := range selections {
		found[s.service.Key] = true
		if m.membership(s) < 0 {
			m.join(s)
		}
	}
}

// selectPods finds the Pods of selections without members, in one pass over the Pods
// of their Namespaces.
func (x *Index) selectPods(selections []*selection) {
	byNamespace := make(map[string]*namespace)
	for _, s := range selections {
		name := s.service.Namespace
		if byNamespace[name] == nil {
			byNamespace[name] = &namespace{byLabel: make(map[label][]*selection)}
		}
		byNamespace[name].byLabel[s.label] = append(byNamespace[name].byLabel[s.label], s)
	}
	for name, n := range byNamespace {
		var found []*selection
		for _, m := range x.namespaces[name].members {
			found = n.selecting(m.pod, found[:0])
			for _, s := range found {
				if m.membership(s) < 0 { // a Pod that changed after the Service may have joined
					m.join(s)
				}
			}
		}
	}
}
