package endpointslices

import (
	"maps"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// Index knows which Pods each Service selects. It is kept up by Update, and not
// for use by several goroutines at once.
type Index struct {
	spaces map[string]*space
	// onNode are the Pods of each Node, by its name, and zones those of the Nodes.
	onNode map[string]map[*member]struct{}
	zones  map[string]string
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
	members map[*member]struct{}
}

// member is a Pod, and the Services that select it.
type member struct {
	pod *cluster.Pod
	of  []*selection
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
	return &Index{spaces: make(map[string]*space), onNode: make(map[string]map[*member]struct{}), zones: make(map[string]string)}
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
	nodes := false
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
			x.node(ch.Key.Name, v.Node(ch.Key.Name), t)
		}
		x.drop(ch.Key.Namespace)
	}
	x.gather(selecting)
	if nodes {
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
	pods := make([]*cluster.Pod, 0, len(s.members))
	for m := range s.members {
		pods = append(pods, m.pod)
	}
	return pods
}

// fill takes in everything that is there.
func (x *Index) fill(v *cluster.View, t touches) {
	for s := range v.Services() {
		t.whole(s.Key)
		if HasSlices(s) {
			x.space(s.Namespace).add(s)
		}
	}
	for p := range v.Pods() {
		x.pod(p.Key, p, nil)
	}
	for n := range v.Nodes() {
		x.zones[n.Name] = n.Zone
	}
}

// node takes in a Node, nil when it went. Its Pods' endpoints change when it
// comes or goes, and with its zone.
func (x *Index) node(name string, now *cluster.Node, t touches) {
	zone, known := x.zones[name]
	switch {
	case now == nil:
		delete(x.zones, name)
	case known && now.Zone == zone:
		return
	default:
		x.zones[name] = now.Zone
	}
	for m := range x.onNode[name] {
		for _, s := range m.of {
			t.whole(s.service.Key)
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
	added := &selection{service: service, members: make(map[*member]struct{})}
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
	for m := range old.members {
		m.of = slices.DeleteFunc(m.of, func(s *selection) bool { return s == old })
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

// pod takes in a Pod, nil when it went, and notes what that touches, unless t is
// nil.
func (x *Index) pod(key cluster.Key, now *cluster.Pod, t touches) {
	space := x.space(key.Namespace)
	m := space.members[key.Name]
	var old *cluster.Pod
	var before []*selection
	if m != nil {
		old, before = m.pod, m.of
	}
	switch {
	case now == nil && m == nil:
		return
	case now == nil:
		delete(space.members, key.Name)
	case m == nil:
		m = &member{}
		space.members[key.Name] = m
	}
	if old == nil || now == nil || old.Node != now.Node {
		x.move(m, old, now)
	}
	var after []*selection
	if now != nil {
		m.pod = now
		after = space.selecting(now, nil)
	}
	m.of = after
	for _, s := range before {
		if slices.Contains(after, s) {
			t.pod(s, PodChange{old, now})
		} else {
			delete(s.members, m)
			t.pod(s, PodChange{Old: old})
		}
	}
	for _, s := range after {
		if !slices.Contains(before, s) {
			s.members[m] = struct{}{}
			t.pod(s, PodChange{New: now})
		}
	}
}

// move keeps onNode up.
func (x *Index) move(m *member, old, now *cluster.Pod) {
	if old != nil {
		if delete(x.onNode[old.Node], m); len(x.onNode[old.Node]) == 0 {
			delete(x.onNode, old.Node)
		}
	}
	if now != nil {
		if x.onNode[now.Node] == nil {
			x.onNode[now.Node] = make(map[*member]struct{})
		}
		x.onNode[now.Node][m] = struct{}{}
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
				if _, known := s.members[m]; !known { // by a Pod that changed after the Service
					s.members[m] = struct{}{}
					m.of = append(m.of, s)
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
	if t != nil {
		touched := t.at(s.service.Key)
		touched.Pods = append(touched.Pods, ch)
	}
}
