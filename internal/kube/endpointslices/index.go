package endpointslices

import (
	"maps"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/support/parallel"
)

// Index knows which Pods each Service selects. It is kept up by Update, and not
// for use by several goroutines at once.
type Index struct {
	spaces map[string]*space
	zones  map[string]string // of the Nodes, by their names
}

// space is what is in a Namespace.
type space struct {
	selections map[string]*selection // by the Service's name
	members    map[string]*member    // by the Pod's name
	// byPair has each selection under one label of its selector.
	byPair map[label][]*selection
}

type label struct{ key, value string }

// selection is a Service that selects, and the Pods it does.
type selection struct {
	service *cluster.Service
	under   label
	members []*member // in no order
}

// member is a Pod, and the Services that select it.
type member struct {
	pod *cluster.Pod
	of  []membership
}

// membership is a member's in a selection, at a place among the members there.
type membership struct {
	in *selection
	at int
}

// join makes m a member of s.
func (m *member) join(s *selection) {
	m.of = append(m.of, membership{s, len(s.members)})
	s.members = append(s.members, m)
}

// leave ends the membership of m in s, if it has one. The last member takes its
// place.
func (m *member) leave(s *selection) {
	i := slices.IndexFunc(m.of, func(o membership) bool { return o.in == s })
	if i < 0 {
		return
	}
	at, last := m.of[i].at, len(s.members)-1
	moved := s.members[last]
	moved.of[slices.IndexFunc(moved.of, func(o membership) bool { return o.in == s })].at = at
	s.members[at], s.members[last] = moved, nil
	s.members = s.members[:last]
	m.of = slices.Delete(m.of, i, i+1)
}

// isIn tells whether m is a member of s.
func (m *member) isIn(s *selection) bool {
	return slices.ContainsFunc(m.of, func(o membership) bool { return o.in == s })
}

// Touched is what changes mean for a Service.
type Touched struct {
	// Whole says that anything may have changed. Else only Pods did.
	Whole bool
	Pods  []PodChange
}

// PodChange is a change of a Pod as a Service sees it that selects it: Old is nil
// when it did not before, New when it does no more.
type PodChange struct{ Old, New *cluster.Pod }

// NewIndex makes an Index, empty so far.
func NewIndex() *Index {
	return &Index{spaces: make(map[string]*space), zones: make(map[string]string)}
}

// Update brings the Index up to date with what changed in the view, and tells
// which Services that touches: those that changed, those with Pods that changed,
// and those with Pods on Nodes that changed. Services that select nothing are
// told too when they changed.
func (x *Index) Update(v *cluster.View, changes cluster.Changes) map[cluster.Key]*Touched {
	t := make(touches)
	if changes.Everything {
		for name, s := range x.spaces {
			for service := range s.selections {
				t.whole(cluster.Key{Namespace: name, Name: service})
			}
		}
		*x = *NewIndex()
		x.fill(v, t)
	}
	var selecting []*selection // anew
	nodes, moved := false, make(map[string]bool)
	for ch := range changes.Objects {
		switch {
		case ch.Kind == cluster.KindService:
			t.whole(ch.Key)
			if !changes.Everything {
				selecting = x.service(ch.Key, v.Service(ch.Key), selecting)
			}
		case ch.Kind == cluster.KindPod && !changes.Everything:
			x.pod(ch.Key, v.Pod(ch.Key), t)
		case ch.Kind == cluster.KindNode && !changes.Everything:
			nodes = true
			x.node(ch.Key.Name, v.Node(ch.Key.Name), moved)
		}
		x.drop(ch.Key.Namespace)
	}
	x.gather(selecting)
	if nodes {
		x.touchOn(moved, t)
		x.touchAuto(t)
	}
	return t
}

// Pods are those that the Service at key selects, in no order.
func (x *Index) Pods(key cluster.Key) []*cluster.Pod {
	space := x.spaces[key.Namespace]
	if space == nil || space.selections[key.Name] == nil {
		return nil
	}
	s := space.selections[key.Name]
	pods := make([]*cluster.Pod, len(s.members))
	for i, m := range s.members {
		pods[i] = m.pod
	}
	return pods
}

// fill takes in everything that is there, the Pods of several Namespaces side by
// side.
func (x *Index) fill(v *cluster.View, t touches) {
	for s := range v.Services() {
		t.whole(s.Key)
		if HasSlices(s) {
			x.space(s.Namespace).add(s)
		}
	}
	pods := make(map[*space][]*cluster.Pod)
	for p := range v.Pods() {
		space := x.space(p.Namespace)
		pods[space] = append(pods[space], p)
	}
	spaces := slices.Collect(maps.Keys(pods))
	parallel.Each(len(spaces), func(i int) { spaces[i].fill(pods[spaces[i]]) })
	for n := range v.Nodes() {
		x.zones[n.Name] = n.Zone
	}
}

// node takes in a Node, nil when it went, and notes whether it moved: endpoints on
// it change when it comes or goes, and with its zone.
func (x *Index) node(name string, now *cluster.Node, moved map[string]bool) {
	zone, known := x.zones[name]
	switch {
	case now == nil:
		delete(x.zones, name)
	case known && now.Zone == zone:
		return
	default:
		x.zones[name] = now.Zone
	}
	moved[name] = true
}

// touchOn touches the Services that have Pods on these Nodes.
func (x *Index) touchOn(nodes map[string]bool, t touches) {
	if len(nodes) == 0 {
		return
	}
	for _, space := range x.spaces {
		for _, m := range space.members {
			if !nodes[m.pod.Node] {
				continue
			}
			for _, o := range m.of {
				t.whole(o.in.service.Key)
			}
		}
	}
}

// touchAuto touches the Services whose endpoints are allotted to zones by the
// Nodes that there are.
func (x *Index) touchAuto(t touches) {
	for _, space := range x.spaces {
		for _, s := range space.selections {
			if allotted(s.service) {
				t.whole(s.service.Key)
			}
		}
	}
}

func (x *Index) space(namespace string) *space {
	s := x.spaces[namespace]
	if s == nil {
		s = &space{selections: make(map[string]*selection), members: make(map[string]*member), byPair: make(map[label][]*selection)}
		x.spaces[namespace] = s
	}
	return s
}

// drop forgets a Namespace that has nothing any more.
func (x *Index) drop(namespace string) {
	if s := x.spaces[namespace]; s != nil && len(s.selections) == 0 && len(s.members) == 0 {
		delete(x.spaces, namespace)
	}
}

// service takes in a Service, nil when it went, and appends to selecting when
// its Pods are to be found.
func (x *Index) service(key cluster.Key, now *cluster.Service, selecting []*selection) []*selection {
	space := x.space(key.Namespace)
	old := space.selections[key.Name]
	if old != nil && HasSlices(now) && maps.Equal(now.Selector, old.service.Selector) {
		old.service = now
		return selecting
	}
	if old != nil {
		space.remove(old)
	}
	if !HasSlices(now) {
		return selecting
	}
	return append(selecting, space.add(now))
}

// add takes in a Service, which has no members yet. Of the labels of its
// selector it stands under the one that the fewest others do.
func (s *space) add(service *cluster.Service) *selection {
	added := &selection{service: service}
	fewest := -1
	for k, v := range service.Selector {
		pair := label{k, v}
		if n := len(s.byPair[pair]); fewest < 0 || n < fewest || n == fewest && k < added.under.key {
			fewest, added.under = n, pair
		}
	}
	s.byPair[added.under] = append(s.byPair[added.under], added)
	s.selections[service.Name] = added
	return added
}

func (s *space) remove(old *selection) {
	delete(s.selections, old.service.Name)
	under := s.byPair[old.under]
	i := slices.Index(under, old)
	if under = slices.Delete(under, i, i+1); len(under) == 0 {
		delete(s.byPair, old.under)
	} else {
		s.byPair[old.under] = under
	}
	for _, m := range old.members {
		m.of = slices.DeleteFunc(m.of, func(o membership) bool { return o.in == old })
	}
}

// selecting appends to found the Services that select a Pod with these labels.
func (s *space) selecting(pod *cluster.Pod, found []*selection) []*selection {
	for k, v := range pod.Labels {
		for _, candidate := range s.byPair[label{k, v}] {
			if candidate.service.Selects(pod) {
				found = append(found, candidate)
			}
		}
	}
	return found
}

// fill takes in the Pods of a space that has none yet.
func (s *space) fill(pods []*cluster.Pod) {
	s.members = make(map[string]*member, len(pods))
	var found []*selection
	for _, p := range pods {
		m := &member{pod: p}
		s.members[p.Name] = m
		found = s.selecting(p, found[:0])
		for _, by := range found {
			m.join(by)
		}
	}
}

// pod takes in a Pod, nil when it went, and notes what that touches.
func (x *Index) pod(key cluster.Key, now *cluster.Pod, t touches) {
	space := x.space(key.Namespace)
	m := space.members[key.Name]
	var old *cluster.Pod
	switch {
	case now == nil && m == nil:
		return
	case now == nil:
		old = m.pod
		delete(space.members, key.Name)
	case m == nil:
		m = &member{pod: now}
		space.members[key.Name] = m
	default:
		old, m.pod = m.pod, now
	}
	var after []*selection
	if now != nil {
		after = space.selecting(now, nil)
	}
	for _, o := range slices.Clone(m.of) {
		if slices.Contains(after, o.in) {
			t.pod(o.in, PodChange{old, now})
		} else {
			m.leave(o.in)
			t.pod(o.in, PodChange{Old: old})
		}
	}
	for _, s := range after {
		if !m.isIn(s) {
			m.join(s)
			t.pod(s, PodChange{New: now})
		}
	}
}

// gather finds the Pods of Services that select anew, in one pass over the Pods
// of their Namespaces.
func (x *Index) gather(selecting []*selection) {
	anew := make(map[string]*space)
	for _, s := range selecting {
		namespace := s.service.Namespace
		if anew[namespace] == nil {
			anew[namespace] = &space{byPair: make(map[label][]*selection)}
		}
		anew[namespace].byPair[s.under] = append(anew[namespace].byPair[s.under], s)
	}
	for namespace, of := range anew {
		var found []*selection
		for _, m := range x.spaces[namespace].members {
			found = of.selecting(m.pod, found[:0])
			for _, s := range found {
				if !m.isIn(s) { // by a Pod that changed after the Service
					m.join(s)
				}
			}
		}
	}
}

// touches collects what is touched.
type touches map[cluster.Key]*Touched

func (t touches) at(key cluster.Key) *Touched {
	touched := t[key]
	if touched == nil {
		touched = &Touched{}
		t[key] = touched
	}
	return touched
}

func (t touches) whole(key cluster.Key) { t.at(key).Whole = true }

func (t touches) pod(s *selection, ch PodChange) {
	touched := t.at(s.service.Key)
	touched.Pods = append(touched.Pods, ch)
}
