package cluster

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Store holds the model. One writer at a time; readers use View. The zero
// Store is not usable, see NewStore.
type Store struct {
	mu      sync.RWMutex
	state   state
	feeds   []*Feed
	version atomic.Uint64
}

type state struct {
	namespaces map[string]*Namespace
	services   map[Key]*Service
	slices     map[Key]*EndpointSlice
	pods       map[Key]*Pod
	nodes      map[string]*Node
	freshness  [kinds]Freshness

	// Secondary indexes.
	slicesByService     map[Key]keySet
	servicesByClusterIP map[netip.Addr]keySet
	servicesBySelector  map[selectorTerm]keySet
	podsByIP            map[netip.Addr]keySet
}

// selectorTerm is one term of a Service's selector; a Service is indexed by
// the least of its terms.
type selectorTerm struct{ namespace, label, value string }

// keySet is sorted; most hold one key.
type keySet []Key

func index[K comparable](m map[K]keySet, at K, key Key) {
	set := m[at]
	if i, found := slices.BinarySearchFunc(set, key, Key.Compare); !found {
		m[at] = slices.Insert(set, i, key)
	}
}

func unindex[K comparable](m map[K]keySet, at K, key Key) {
	set := m[at]
	i, found := slices.BinarySearchFunc(set, key, Key.Compare)
	switch {
	case !found:
	case len(set) == 1:
		delete(m, at)
	default:
		m[at] = slices.Delete(set, i, i+1)
	}
}

// NewStore makes an empty Store, of which no kind is loaded.
func NewStore() *Store {
	return &Store{state: state{
		namespaces:          make(map[string]*Namespace),
		services:            make(map[Key]*Service),
		slices:              make(map[Key]*EndpointSlice),
		pods:                make(map[Key]*Pod),
		nodes:               make(map[string]*Node),
		slicesByService:     make(map[Key]keySet),
		servicesByClusterIP: make(map[netip.Addr]keySet),
		servicesBySelector:  make(map[selectorTerm]keySet),
		podsByIP:            make(map[netip.Addr]keySet),
	}}
}

// Tx is a transaction: what it changes is seen all at once, by readers and by
// feeds. It is good until the function it was given to returns.
type Tx struct {
	*View
	changes Changes
	cause   int64
}

// Update runs change with a transaction, alone.
func (s *Store) Update(change func(*Tx)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tx := &Tx{View: &View{&s.state}, changes: make(Changes)}
	change(tx)
	if len(tx.changes) == 0 {
		return
	}
	s.version.Add(1)
	for i, f := range s.feeds {
		f.add(tx.changes, i == len(s.feeds)-1)
	}
}

// Version is another number after each transaction that changed anything.
func (s *Store) Version() uint64 { return s.version.Load() }

// View runs read with a view of one moment. The view is good until read
// returns; objects stay good.
func (s *Store) View(read func(*View)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	read(&View{&s.state})
}

// CausedAt says when what the transaction changes was caused, for those who
// measure how long it takes to show.
func (tx *Tx) CausedAt(t time.Time) { tx.cause = t.UnixNano() }

func (tx *Tx) changed(ch Change) { tx.changes.add(ch, tx.cause) }

// SetFreshness says how far the objects of the kinds can be relied on. It is a
// change of everything when one of them was not loaded before: from now on,
// what is absent does not exist.
func (tx *Tx) SetFreshness(f Freshness, ks ...Kind) {
	appeared, differs := false, false
	for _, k := range ks {
		was := tx.state.freshness[k]
		appeared = appeared || was == Loading && f != Loading
		differs = differs || was != f
		tx.state.freshness[k] = f
	}
	switch {
	case appeared:
		tx.state.addEverything(tx.changes)
	case differs:
		tx.changed(Change{Freshness: true})
	}
}

// PutNamespace adds or replaces n. To put what is there already changes
// nothing, here and below.
func (tx *Tx) PutNamespace(n *Namespace) {
	if tx.Namespace(n.Name) != nil {
		return
	}
	tx.state.namespaces[n.Name] = n
	tx.changed(Change{Kind: KindNamespace, Key: Key{Name: n.Name}})
}

// DeleteNamespace removes the Namespace of that name, if it is there.
func (tx *Tx) DeleteNamespace(name string) {
	if _, ok := tx.state.namespaces[name]; ok {
		delete(tx.state.namespaces, name)
		tx.changed(Change{Kind: KindNamespace, Key: Key{Name: name}})
	}
}

// PutService adds or replaces s.
func (tx *Tx) PutService(s *Service) {
	if old := tx.state.services[s.Key]; old != nil && old.equal(s) {
		return
	}
	tx.DeleteService(s.Key)
	tx.state.services[s.Key] = s
	for _, addr := range s.ClusterIPs {
		index(tx.state.servicesByClusterIP, addr, s.Key)
	}
	if term, ok := s.leastTerm(); ok {
		index(tx.state.servicesBySelector, term, s.Key)
	}
	tx.changed(Change{Kind: KindService, Key: s.Key})
}

// DeleteService removes the Service at key, if it is there.
func (tx *Tx) DeleteService(key Key) {
	s, ok := tx.state.services[key]
	if !ok {
		return
	}
	delete(tx.state.services, key)
	for _, addr := range s.ClusterIPs {
		unindex(tx.state.servicesByClusterIP, addr, key)
	}
	if term, ok := s.leastTerm(); ok {
		unindex(tx.state.servicesBySelector, term, key)
	}
	tx.changed(Change{Kind: KindService, Key: key})
}

func (s *Service) leastTerm() (term selectorTerm, ok bool) {
	for label, value := range s.Selector {
		if !ok || label < term.label {
			term, ok = selectorTerm{s.Namespace, label, value}, true
		}
	}
	return term, ok
}

// PutEndpointSlice adds or replaces s. A feed tells it as a change of the
// Service that it belongs to, and of the one that it belonged to.
func (tx *Tx) PutEndpointSlice(s *EndpointSlice) {
	if old := tx.state.slices[s.Key]; old != nil && old.equal(s) {
		return
	}
	tx.DeleteEndpointSlice(s.Key)
	tx.state.slices[s.Key] = s
	if s.Service != "" {
		index(tx.state.slicesByService, s.serviceKey(), s.Key)
		tx.changed(Change{Kind: KindService, Key: s.serviceKey()})
	}
}

// DeleteEndpointSlice removes the slice at key, if it is there.
func (tx *Tx) DeleteEndpointSlice(key Key) {
	s, ok := tx.state.slices[key]
	if !ok {
		return
	}
	delete(tx.state.slices, key)
	if s.Service != "" {
		unindex(tx.state.slicesByService, s.serviceKey(), key)
		tx.changed(Change{Kind: KindService, Key: s.serviceKey()})
	}
}

// PutPod adds or replaces p.
func (tx *Tx) PutPod(p *Pod) {
	if old := tx.state.pods[p.Key]; old != nil && old.equal(p) {
		return
	}
	tx.DeletePod(p.Key)
	tx.state.pods[p.Key] = p
	for _, addr := range p.IPs {
		index(tx.state.podsByIP, addr, p.Key)
	}
	tx.changed(Change{Kind: KindPod, Key: p.Key})
}

// DeletePod removes the Pod at key, if it is there.
func (tx *Tx) DeletePod(key Key) {
	p, ok := tx.state.pods[key]
	if !ok {
		return
	}
	delete(tx.state.pods, key)
	for _, addr := range p.IPs {
		unindex(tx.state.podsByIP, addr, key)
	}
	tx.changed(Change{Kind: KindPod, Key: key})
}

// PutNode adds or replaces n.
func (tx *Tx) PutNode(n *Node) {
	if old := tx.state.nodes[n.Name]; old != nil && old.equal(n) {
		return
	}
	tx.state.nodes[n.Name] = n
	tx.changed(Change{Kind: KindNode, Key: Key{Name: n.Name}})
}

// DeleteNode removes the Node of that name, if it is there.
func (tx *Tx) DeleteNode(name string) {
	if _, ok := tx.state.nodes[name]; ok {
		delete(tx.state.nodes, name)
		tx.changed(Change{Kind: KindNode, Key: Key{Name: name}})
	}
}

// View reads the model at one moment.
type View struct{ state *state }

// Loaded tells whether all objects of every given kind are there.
func (v *View) Loaded(ks ...Kind) bool {
	return v.Freshness(ks...) != Loading
}

// Freshness is the least of those of the given kinds.
func (v *View) Freshness(ks ...Kind) Freshness {
	least := Live
	for _, k := range ks {
		least = min(least, v.state.freshness[k])
	}
	return least
}

// Namespaces, Services, EndpointSlices, Pods and Nodes yield the objects of a
// kind, in no order.
func (v *View) Namespaces() iter.Seq[*Namespace]         { return maps.Values(v.state.namespaces) }
func (v *View) Services() iter.Seq[*Service]             { return maps.Values(v.state.services) }
func (v *View) EndpointSlices() iter.Seq[*EndpointSlice] { return maps.Values(v.state.slices) }
func (v *View) Pods() iter.Seq[*Pod]                     { return maps.Values(v.state.pods) }
func (v *View) Nodes() iter.Seq[*Node]                   { return maps.Values(v.state.nodes) }

// Len is how many objects of a kind there are.
func (v *View) Len(k Kind) int {
	switch k {
	case KindNamespace:
		return len(v.state.namespaces)
	case KindService:
		return len(v.state.services)
	case KindEndpointSlice:
		return len(v.state.slices)
	case KindPod:
		return len(v.state.pods)
	case KindNode:
		return len(v.state.nodes)
	}
	return 0
}

// Namespace is the Namespace of that name, or nil.
func (v *View) Namespace(name string) *Namespace { return v.state.namespaces[name] }

// Service is the Service at key, or nil.
func (v *View) Service(key Key) *Service { return v.state.services[key] }

// Pod is the Pod at key, or nil.
func (v *View) Pod(key Key) *Pod { return v.state.pods[key] }

// SlicesOf lists the EndpointSlices of the Service at key, by key.
func (v *View) SlicesOf(service Key) []*EndpointSlice {
	return lookup(v.state.slicesByService[service], v.state.slices)
}

// ServicesAt lists the Services that have the ClusterIP addr, by key.
func (v *View) ServicesAt(addr netip.Addr) []*Service {
	return lookup(v.state.servicesByClusterIP[addr], v.state.services)
}

// PodsAt lists the Pods that have the address addr, by key.
func (v *View) PodsAt(addr netip.Addr) []*Pod {
	return lookup(v.state.podsByIP[addr], v.state.pods)
}

// ServicesSelecting lists the Services that select p, by key.
func (v *View) ServicesSelecting(p *Pod) []*Service {
	var found []*Service
	for label, value := range p.Labels {
		for _, s := range lookup(v.state.servicesBySelector[selectorTerm{p.Namespace, label, value}], v.state.services) {
			if s.Selects(p) {
				found = append(found, s)
			}
		}
	}
	return sortByKey(found, func(s *Service) Key { return s.Key })
}

func lookup[T any](keys keySet, objects map[Key]T) []T {
	if len(keys) == 0 {
		return nil
	}
	found := make([]T, 0, len(keys))
	for _, k := range keys {
		found = append(found, objects[k])
	}
	return found
}

// addEverything adds each key that a consumer might know to changes.
func (s *state) addEverything(all Changes) {
	all.add(Change{Freshness: true}, 0)
	for name := range s.namespaces {
		all.add(Change{Kind: KindNamespace, Key: Key{Name: name}}, 0)
	}
	for key := range s.services {
		all.add(Change{Kind: KindService, Key: key}, 0)
	}
	for key := range s.slicesByService { // the Service need not be there yet
		all.add(Change{Kind: KindService, Key: key}, 0)
	}
	for key := range s.pods {
		all.add(Change{Kind: KindPod, Key: key}, 0)
	}
	for name := range s.nodes {
		all.add(Change{Kind: KindNode, Key: Key{Name: name}}, 0)
	}
}
