package api

import (
	"maps"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"portolan.dev/portolan/internal/cluster"
)

var _ cache.TransformingStore = (*reading)(nil)

// The types of events.
const (
	eventAdded = iota
	eventModified
	eventDeleted
	eventBookmark
	eventListed // all objects at once
	eventTypes
)

// EventTypes names the types of events that a Status counts, in its order.
var EventTypes = [eventTypes]string{"added", "modified", "deleted", "bookmark", "listed"}

// convert converts an object, unless Transformer did.
func (r *reading) convert(o any) item {
	if it, ok := o.(item); ok {
		return it
	}
	r.source.cfg.Between()
	it := r.resource.convert(o.(runtime.Object), &r.source.cfg)
	if p, ok := it.model.(*cluster.Pod); ok && r.source.cfg.Detail == ForPolicy {
		r.share(p)
	}
	return it
}

// share has a Pod share what is equal with the Pod before it. A list is sorted by name, and so has the Pods
// of a workload one after another.
func (r *reading) share(p *cluster.Pod) {
	if before := r.lastPod; before != nil {
		if maps.Equal(p.Labels, before.Labels) {
			p.Labels = before.Labels
		}
		if reflect.DeepEqual(p.Spec, before.Spec) {
			p.Spec = before.Spec
		}
	}
	r.lastPod = p
}

// Transformer returns what converts the objects of a streamed list as they
// arrive.
func (r *reading) Transformer() cache.TransformFunc {
	return func(o any) (any, error) {
		r.told()
		return r.convert(o), nil
	}
}

// Replace puts all objects of a list into the Store.
func (r *reading) Replace(objects []any, _ string) error {
	r.told()
	r.events[eventListed].Add(1)
	r.replace(objects)
	return nil
}

// replace replaces the objects of the reading's scope in the Store by these, in
// one transaction. Only differences change anything.
func (r *reading) replace(objects []any) {
	present := make(map[cluster.Key]struct{}, len(objects))
	r.update(func(tx *cluster.Tx) {
		for i, o := range objects {
			objects[i] = nil // it is in the Store soon, and its list can be large
			if l, ok := o.(*listed); ok {
				present[l.key] = struct{}{}
				if l.item != nil {
					r.put(tx, *l.item)
				}
				continue
			}
			it := r.convert(o)
			present[it.key] = struct{}{}
			r.put(tx, it)
		}
		for _, k := range r.absent(tx.View, present) {
			tx.Delete(r.resource.Model, k)
		}
		r.listed.Store(true)
		r.source.listed(tx, r)
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.refused, func(k cluster.Key, _ string) bool {
		_, there := present[k]
		return !there
	})
}

// absent returns the keys of the objects in the Store that are not present.
func (r *reading) absent(v *cluster.View, present map[cluster.Key]struct{}) (keys []cluster.Key) {
	for o := range v.Objects(r.resource.Model) {
		k := o.Ref().Key
		if _, ok := present[k]; !ok && r.scope.holds(k) {
			keys = append(keys, k)
		}
	}
	return keys
}

// update changes the Store, unless the reading ended.
func (r *reading) update(change func(*cluster.Tx)) {
	r.source.cfg.Store.Update(func(tx *cluster.Tx) {
		if !r.ended.Load() {
			change(tx)
		}
	})
}

// put writes an object, or logs why it is invalid; its last good version stays, unless its kind
// fails closed.
func (r *reading) put(tx *cluster.Tx, it item) {
	if it.model != nil {
		tx.Put(it.model)
		r.source.referenced.note(tx, it.model)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case it.err == nil:
		delete(r.refused, it.key)
	case r.refused[it.key] != it.err.Error():
		r.refused[it.key] = it.err.Error()
		log := r.source.cfg.Log.With("resource", r.resource.Resource, "object", it.key, "err", it.err)
		if it.model == nil {
			log.Error("object refused; its last good version, if any, stays")
		} else {
			log.Error("object is invalid; what is invalid lets nothing through")
		}
	}
}

// Add puts a new object.
func (r *reading) Add(o any) error { return r.event(eventAdded, o) }

// Update puts a changed object.
func (r *reading) Update(o any) error { return r.event(eventModified, o) }

func (r *reading) event(kind int, o any) error {
	r.told()
	r.events[kind].Add(1)
	it := r.convert(o)
	r.update(func(tx *cluster.Tx) {
		if !it.caused.IsZero() {
			tx.CausedAt(it.caused)
		}
		r.put(tx, it)
	})
	return nil
}

// Delete removes an object.
func (r *reading) Delete(o any) error {
	r.told()
	r.events[eventDeleted].Add(1)
	it := r.convert(o)
	r.update(func(tx *cluster.Tx) {
		// Its annotation is about its last change, not about its deletion.
		tx.Delete(r.resource.Model, it.key)
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.refused, it.key)
	return nil
}

// Bookmark notes that nothing else happened.
func (r *reading) Bookmark(string) error {
	r.told()
	r.events[eventBookmark].Add(1)
	return nil
}

// Resync does nothing: the Reflector is made without resyncs.
func (r *reading) Resync() error { return nil }

// Status is the state of reading a kind.
type Status struct {
	Kind cluster.Kind
	// Listed: all objects were read since the start.
	Listed bool
	// Staleness is for how long the API has been lost; 0 while it is watched.
	Staleness time.Duration
	// Problem is why the API is lost; nil when unknown.
	Problem error
	// Invalid counts the objects whose last version is not valid: that version is not used, or only
	// what is valid of it.
	Invalid int
	// Events counts the events received, by type as in EventTypes.
	Events [eventTypes]uint64
}

// Status returns the state of each kind that is read; of a kind that is read in
// several Namespaces, the worst.
func (s *Source) Status() []Status {
	var all []Status
	for _, r := range s.all() {
		if len(all) == 0 || all[len(all)-1].Kind != r.resource.Model {
			all = append(all, Status{Kind: r.resource.Model, Listed: true})
		}
		r.addTo(&all[len(all)-1])
	}
	return all
}

func (r *reading) addTo(st *Status) {
	st.Listed = st.Listed && r.listed.Load()
	for i := range r.events {
		st.Events[i] += r.events[i].Load()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	st.Invalid += len(r.refused)
	if !r.lost.IsZero() {
		st.Staleness = max(st.Staleness, time.Since(r.lost))
	}
	if r.problem != nil {
		st.Problem = r.problem
	}
}
