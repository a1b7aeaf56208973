package cluster

import (
	"iter"
	"maps"
	"reflect"
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
	workloads  [kinds]map[Key]*Workload // of WorkloadKinds
	policies   map[Key]*NetworkPolicy
	freshness  [kinds]Freshness

	// slicesByService is a secondary index; its slices are sorted.
	slicesByService map[Key][]*EndpointSlice
}

// NewStore makes an empty Store, of which no kind is loaded.
func NewStore() *Store {
	return &Store{state: state{
		namespaces:      make(map[string]*Namespace),
		services:        make(map[Key]*Service),
		slices:          make(map[Key]*EndpointSlice),
		pods:            make(map[Key]*Pod),
		nodes:           make(map[string]*Node),
		policies:        make(map[Key]*NetworkPolicy),
		slicesByService: make(map[Key][]*EndpointSlice),
	}}
}

// Tx is a transaction: what it changes is seen all at once, by readers and by
// feeds. It is good until the function it was given to returns.
type Tx struct {
	*View
	changes Changes
	cause   int64
	asked   map[Key]*Service // see AskedServices
}

// Update runs change with a transaction, alone.
func (s *Store) Update(change func(*Tx)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tx := &Tx{View: &View{&s.state}}
	change(tx)
	if tx.changes.Empty() {
		return
	}
	s.version.Add(1)
	for i, f := range s.feeds {
		f.add(tx.changes, i == len(s.feeds)-1)
	}
}

// Version is another number after each transaction of which anything was told.
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

// Changed is what the transaction changed so far, of kinds that are loaded.
func (tx *Tx) Changed() Changes {
	c := tx.changes
	c.Objects = maps.Clone(c.Objects)
	return c
}

// AskedServices is what the transaction was asked to hold of Services so far:
// what was put last at each key, nil where it was deleted. Other than Changed, it
// tells of what was there, or was not there, before.
func (tx *Tx) AskedServices() map[Key]*Service { return maps.Clone(tx.asked) }

// ask notes what Service is to be at key.
func (tx *Tx) ask(key Key, s *Service) {
	if tx.asked == nil {
		tx.asked = make(map[Key]*Service)
	}
	tx.asked[key] = s
}

// changed notes that an object did. While its kind is not loaded nobody may
// rely on it, and nothing is told.
func (tx *Tx) changed(k Kind, key Key) {
	if tx.Loaded(k) {
		tx.changes.add(Change{k, key}, tx.cause)
	}
}

// sliceChanged notes that a slice did, which is told as its Service.
func (tx *Tx) sliceChanged(s *EndpointSlice) {
	if tx.Loaded(KindEndpointSlice) {
		tx.changed(KindService, s.serviceKey())
	}
}

// SetFreshness says how far the objects of the kinds can be relied on. It is a
// change of everything when one of them was not loaded before: from now on,
// what is absent does not exist. A kind that is loaded may not be Loading again.
func (tx *Tx) SetFreshness(f Freshness, ks ...Kind) {
	for _, k := range ks {
		was := tx.state.freshness[k]
		tx.changes.Everything = tx.changes.Everything || was == Loading && f != Loading
		tx.changes.Freshness = tx.changes.Freshness || was != f
		tx.state.freshness[k] = f
	}
}

// PutNamespace adds or replaces n. To put what is there already changes
// nothing, here and below.
func (tx *Tx) PutNamespace(n *Namespace) {
	if old := tx.Namespace(n.Name); old != nil && old.equal(n) {
		return
	}
	tx.state.namespaces[n.Name] = n
	tx.changed(KindNamespace, Key{Name: n.Name})
}

// DeleteNamespace removes the Namespace of that name, if it is there.
func (tx *Tx) DeleteNamespace(name string) {
	if _, ok := tx.state.namespaces[name]; ok {
		delete(tx.state.namespaces, name)
		tx.changed(KindNamespace, Key{Name: name})
	}
}

// PutService adds or replaces s.
func (tx *Tx) PutService(s *Service) {
	tx.ask(s.Key, s)
	if old := tx.state.services[s.Key]; old != nil && old.equal(s) {
		return
	}
	tx.state.services[s.Key] = s
	tx.changed(KindService, s.Key)
}

// DeleteService removes the Service at key, if it is there.
func (tx *Tx) DeleteService(key Key) {
	tx.ask(key, nil)
	if _, ok := tx.state.services[key]; ok {
		delete(tx.state.services, key)
		tx.changed(KindService, key)
	}
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
		of := tx.state.slicesByService[s.serviceKey()]
		tx.state.slicesByService[s.serviceKey()] = slices.Insert(of, place(of, s.Key), s)
		tx.sliceChanged(s)
	}
}

// DeleteEndpointSlice removes the slice at key, if it is there.
func (tx *Tx) DeleteEndpointSlice(key Key) {
	s, ok := tx.state.slices[key]
	if !ok {
		return
	}
	delete(tx.state.slices, key)
	if s.Service == "" {
		return
	}
	of := tx.state.slicesByService[s.serviceKey()]
	if len(of) == 1 {
		delete(tx.state.slicesByService, s.serviceKey())
	} else {
		i := place(of, key)
		tx.state.slicesByService[s.serviceKey()] = slices.Delete(of, i, i+1)
	}
	tx.sliceChanged(s)
}

// place is where the slice with that key is, or would be.
func place(sorted []*EndpointSlice, key Key) int {
	i, _ := slices.BinarySearchFunc(sorted, key, func(s *EndpointSlice, k Key) int { return s.Key.Compare(k) })
	return i
}

// PutPod adds or replaces p.
func (tx *Tx) PutPod(p *Pod) {
	if old := tx.state.pods[p.Key]; old != nil && old.equal(p) {
		return
	}
	tx.state.pods[p.Key] = p
	tx.changed(KindPod, p.Key)
}

// DeletePod removes the Pod at key, if it is there.
func (tx *Tx) DeletePod(key Key) {
	if _, ok := tx.state.pods[key]; ok {
		delete(tx.state.pods, key)
		tx.changed(KindPod, key)
	}
}

// PutNode adds or replaces n.
func (tx *Tx) PutNode(n *Node) {
	if old := tx.state.nodes[n.Name]; old != nil && old.equal(n) {
		return
	}
	tx.state.nodes[n.Name] = n
	tx.changed(KindNode, Key{Name: n.Name})
}

// DeleteNode removes the Node of that name, if it is there.
func (tx *Tx) DeleteNode(name string) {
	if _, ok := tx.state.nodes[name]; ok {
		delete(tx.state.nodes, name)
		tx.changed(KindNode, Key{Name: name})
	}
}

// PutWorkload adds or replaces w, among those of its kind.
func (tx *Tx) PutWorkload(w *Workload) {
	of := tx.state.workloads[w.Kind]
	if old := of[w.Key]; old != nil && reflect.DeepEqual(old, w) {
		return
	}
	if of == nil {
		of = make(map[Key]*Workload)
		tx.state.workloads[w.Kind] = of
	}
	of[w.Key] = w
	tx.changed(w.Kind, w.Key)
}

// DeleteWorkload removes the workload of that kind at key, if it is there.
func (tx *Tx) DeleteWorkload(k Kind, key Key) {
	if _, ok := tx.state.workloads[k][key]; ok {
		delete(tx.state.workloads[k], key)
		tx.changed(k, key)
	}
}

// PutNetworkPolicy adds or replaces p.
func (tx *Tx) PutNetworkPolicy(p *NetworkPolicy) {
	if old := tx.state.policies[p.Key]; old != nil && reflect.DeepEqual(old, p) {
		return
	}
	tx.state.policies[p.Key] = p
	tx.changed(KindNetworkPolicy, p.Key)
}

// DeleteNetworkPolicy removes the NetworkPolicy at key, if it is there.
func (tx *Tx) DeleteNetworkPolicy(key Key) {
	if _, ok := tx.state.policies[key]; ok {
		delete(tx.state.policies, key)
		tx.changed(KindNetworkPolicy, key)
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

// Namespaces, Services, EndpointSlices, Pods, Nodes, Workloads and
// NetworkPolicies yield the objects of a kind, in no order.
func (v *View) Namespaces() iter.Seq[*Namespace]          { return maps.Values(v.state.namespaces) }
func (v *View) Services() iter.Seq[*Service]              { return maps.Values(v.state.services) }
func (v *View) EndpointSlices() iter.Seq[*EndpointSlice]  { return maps.Values(v.state.slices) }
func (v *View) Pods() iter.Seq[*Pod]                      { return maps.Values(v.state.pods) }
func (v *View) Nodes() iter.Seq[*Node]                    { return maps.Values(v.state.nodes) }
func (v *View) Workloads(k Kind) iter.Seq[*Workload]      { return maps.Values(v.state.workloads[k]) }
func (v *View) NetworkPolicies() iter.Seq[*NetworkPolicy] { return maps.Values(v.state.policies) }

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
	case KindNetworkPolicy:
		return len(v.state.policies)
	case KindDeployment, KindStatefulSet, KindDaemonSet, KindJob, KindCronJob:
		return len(v.state.workloads[k])
	}
	return 0
}

// Namespace is the Namespace of that name, or nil.
func (v *View) Namespace(name string) *Namespace { return v.state.namespaces[name] }

// Service is the Service at key, or nil.
func (v *View) Service(key Key) *Service { return v.state.services[key] }

// Node is the Node of that name, or nil.
func (v *View) Node(name string) *Node { return v.state.nodes[name] }

// Pod is the Pod at key, or nil.
func (v *View) Pod(key Key) *Pod { return v.state.pods[key] }

// EndpointSlice is the EndpointSlice at key, or nil.
func (v *View) EndpointSlice(key Key) *EndpointSlice { return v.state.slices[key] }

// Workload is the workload of that kind at key, or nil.
func (v *View) Workload(k Kind, key Key) *Workload { return v.state.workloads[k][key] }

// SlicesOf lists the EndpointSlices of the Service at key, by key. The list is
// good as long as the view.
func (v *View) SlicesOf(service Key) []*EndpointSlice { return v.state.slicesByService[service] }
