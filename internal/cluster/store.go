package cluster

import (
	"iter"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Store holds the model. There is one writer at a time, see Update; readers use
// View. The zero Store is not usable, see NewStore.
type Store struct {
	mu      sync.RWMutex
	state   state
	feeds   []*Feed
	version atomic.Uint64
}

type state struct {
	rows      [kinds]any // *rows of each table
	freshness [kinds]Freshness
}

// NewStore returns an empty Store in which every kind is Loading.
func NewStore() *Store {
	s := new(Store)
	for k, t := range tables {
		s.state.rows[k] = t.newRows()
	}
	return s
}

// Tx is a transaction. Readers and feeds see its changes all at once. It is
// valid until the function that it was given to returns.
type Tx struct {
	*View
	changes   Changes
	cause     int64
	requested map[Ref]Object // of tables with keepRequests
}

// Update runs change with a transaction, exclusively.
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
		changes := tx.changes
		if i < len(s.feeds)-1 { // the last one may keep the map
			changes.Objects, changes.Hosts = maps.Clone(changes.Objects), maps.Clone(changes.Hosts)
		}
		f.add(changes)
	}
}

// Version returns a number that grows with each transaction that changed
// anything that feeds are told.
func (s *Store) Version() uint64 { return s.version.Load() }

// View runs read with a consistent view of the model. The view is valid until
// read returns; objects stay valid.
func (s *Store) View(read func(*View)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	read(&View{&s.state})
}

// CausedAt records when the event happened that caused the transaction's
// changes, for measuring how long they take to take effect.
func (tx *Tx) CausedAt(t time.Time) { tx.cause = t.UnixNano() }

// Changed returns what the transaction changed so far, as feeds are told.
func (tx *Tx) Changed() Changes {
	c := tx.changes
	c.Objects, c.Hosts = maps.Clone(c.Objects), maps.Clone(c.Hosts)
	return c
}

// recordRequest records what the transaction was asked to store at ref, nil for
// nothing.
func (tx *Tx) recordRequest(ref Ref, o Object) {
	if tx.requested == nil {
		tx.requested = make(map[Ref]Object)
	}
	tx.requested[ref] = o
}

// Put adds o, or replaces the object with its kind and key. Putting an equal
// object changes nothing: the old one stays.
func (tx *Tx) Put(o Object) { tables[o.Ref().Kind].put(tx, o) }

// Delete removes the object of the kind at key, if there is one.
func (tx *Tx) Delete(k Kind, key Key) { tables[k].remove(tx, key) }

// SetFreshness sets the freshness of the kinds. When one of them was Loading
// before, that is a change of everything: from now on absent objects do not
// exist. A kind that is loaded must not be set to Loading again.
func (tx *Tx) SetFreshness(f Freshness, ks ...Kind) {
	for _, k := range ks {
		was := tx.state.freshness[k]
		tx.changes.Everything = tx.changes.Everything || was == Loading && f != Loading
		tx.changes.Freshness = tx.changes.Freshness || was != f
		tx.state.freshness[k] = f
	}
}

// View reads the model at one moment.
type View struct{ state *state }

// Loaded reports whether all objects of every given kind are present.
func (v *View) Loaded(ks ...Kind) bool {
	return v.Freshness(ks...) != Loading
}

// Unread describes the given kinds of which not all objects are present, in words.
func (v *View) Unread(ks ...Kind) (missing []string) {
	for _, k := range ks {
		if !v.Loaded(k) {
			missing = append(missing, k.String()+"s are not read completely")
		}
	}
	return missing
}

// Freshness returns the lowest freshness of the given kinds.
func (v *View) Freshness(ks ...Kind) Freshness {
	lowest := Live
	for _, k := range ks {
		lowest = min(lowest, v.state.freshness[k])
	}
	return lowest
}

// Object returns the object of a kind at key, or nil.
func (v *View) Object(k Kind, key Key) Object { return tables[k].object(v, key) }

// Objects yields the objects of a kind, in no order.
func (v *View) Objects(k Kind) iter.Seq[Object] { return tables[k].objects(v) }

// Len returns the number of objects of a kind.
func (v *View) Len(k Kind) int { return tables[k].Len(v) }

// Namespace returns the Namespace with that name, or nil. It and the methods
// below are short forms for the tables that most readers use.
func (v *View) Namespace(name string) *Namespace { return Namespaces.Get(v, Key{Name: name}) }

// Service returns the Service at key, or nil.
func (v *View) Service(key Key) *Service { return Services.Get(v, key) }

// EndpointSlice returns the EndpointSlice at key, or nil.
func (v *View) EndpointSlice(key Key) *EndpointSlice { return EndpointSlices.Get(v, key) }

// Pod returns the Pod at key, or nil.
func (v *View) Pod(key Key) *Pod { return Pods.Get(v, key) }

// Node returns the Node with that name, or nil.
func (v *View) Node(name string) *Node { return Nodes.Get(v, Key{Name: name}) }

// Workload returns the workload of a kind at key, or nil.
func (v *View) Workload(k Kind, key Key) *Workload {
	w, _ := v.Object(k, key).(*Workload)
	return w
}

// SlicesOf returns the EndpointSlices of the Service at key, sorted by key. The
// list is valid as long as the view.
func (v *View) SlicesOf(service Key) []*EndpointSlice { return SlicesByService.Get(v, service) }

// Namespaces yields all Namespaces, in no order.
func (v *View) Namespaces() iter.Seq[*Namespace] { return Namespaces.All(v) }

// Services yields all Services, in no order.
func (v *View) Services() iter.Seq[*Service] { return Services.All(v) }

// EndpointSlices yields all EndpointSlices, in no order.
func (v *View) EndpointSlices() iter.Seq[*EndpointSlice] { return EndpointSlices.All(v) }

// Pods yields all Pods, in no order.
func (v *View) Pods() iter.Seq[*Pod] { return Pods.All(v) }

// Nodes yields all Nodes, in no order.
func (v *View) Nodes() iter.Seq[*Node] { return Nodes.All(v) }

// NetworkPolicies yields all NetworkPolicies, in no order.
func (v *View) NetworkPolicies() iter.Seq[*NetworkPolicy] { return NetworkPolicies.All(v) }

// Workloads yields the workloads of a kind, in no order; none of other kinds.
func (v *View) Workloads(k Kind) iter.Seq[*Workload] {
	if t, ok := tables[k].(*Table[*Workload]); ok {
		return t.All(v)
	}
	return func(func(*Workload) bool) {}
}
