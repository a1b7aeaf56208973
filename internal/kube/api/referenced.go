package api

import (
	"context"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fieldselector "k8s.io/apimachinery/pkg/fields"

	"portolan.dev/portolan/internal/cluster"
)

// referenced reads the Secrets and ConfigMaps that other objects refer to (cluster.References), each with
// a list and a watch of its own, and no others. Those that nothing refers to any more are deleted from
// the model.
//
//	Ingress, Gateway, policies    ──► note ──► sync ──► a reading per object ──► settle
//	(in the Store)                    (a new           (as of the references)   (all are read:
//	                                   reference)                                the kind is live)
//
// While a reference is not read yet, its kind is Loading, or Confirming if it was live before. An object
// that is missing then may exist.
type referenced struct {
	source    *Source
	resources map[cluster.Kind]*resource // that are read
	referring []cluster.Kind             // whose References count
	ended     sync.WaitGroup

	mu       sync.Mutex
	readings map[cluster.Ref]*reading
	cancel   map[cluster.Ref]context.CancelFunc
	// unread are the references that were not read since their reading started.
	unread map[cluster.Kind]map[cluster.Ref]bool
	// behind: there are references that readings do not have yet.
	behind bool
}

// newReferenced returns nil if none of the kinds is read.
func newReferenced(s *Source) *referenced {
	r := &referenced{
		source: s, resources: make(map[cluster.Kind]*resource), behind: true,
		readings: make(map[cluster.Ref]*reading), cancel: make(map[cluster.Ref]context.CancelFunc),
		unread: make(map[cluster.Kind]map[cluster.Ref]bool),
	}
	for _, of := range resources {
		k := of.Model
		if !slices.Contains(s.cfg.Kinds, k) {
			continue
		}
		if slices.Contains(cluster.ReferencedKinds(), k) {
			r.resources[k], r.unread[k] = of, make(map[cluster.Ref]bool)
		}
		if slices.Contains(cluster.ReferringKinds(), k) {
			r.referring = append(r.referring, k)
		}
	}
	if len(r.resources) == 0 {
		return nil
	}
	return r
}

// all returns the readings, those of a kind together.
func (r *referenced) all() (all []*reading) {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range cluster.ReferencedKinds() {
		for ref, reading := range r.readings {
			if ref.Kind == k {
				all = append(all, reading)
			}
		}
	}
	return all
}

// reads reports whether an object is read if something refers to it.
func (r *referenced) reads(ref cluster.Ref) bool {
	only := r.source.cfg.Namespaces
	return r.resources[ref.Kind] != nil && (len(only) == 0 || slices.Contains(only, ref.Key.Namespace))
}

// note is called in the transaction that puts an object: kinds of new references are no longer live.
func (r *referenced) note(tx *cluster.Tx, o cluster.Object) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ref := range cluster.References(o) {
		if !r.reads(ref) || r.readings[ref] != nil {
			continue
		}
		r.behind = true
		if tx.Freshness(ref.Kind) == cluster.Live {
			tx.SetFreshness(cluster.Confirming, ref.Kind)
		}
	}
}

// run follows the references until ctx is done, and returns ctx's error.
func (r *referenced) run(ctx context.Context) error {
	feed := r.source.cfg.Store.Subscribe()
	defer feed.Close()
	defer r.ended.Wait()
	for r.sync(ctx); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-feed.Ready():
		}
		if changes := feed.Pending(); changes.Everything || r.refer(changes.Objects) {
			r.sync(ctx)
		}
	}
}

// refer reports whether objects of the referring kinds are among those that changed.
func (r *referenced) refer(changed map[cluster.Ref]int64) bool {
	for ref := range changed {
		if slices.Contains(r.referring, ref.Kind) {
			return true
		}
	}
	return false
}

// sync starts and ends readings, so that each reference has one. It waits for all referring objects.
func (r *referenced) sync(ctx context.Context) {
	r.source.cfg.Store.Update(func(tx *cluster.Tx) {
		if !tx.Loaded(r.referring...) {
			return
		}
		wanted := make(map[cluster.Ref]bool)
		for ref := range cluster.Referenced(tx.View) {
			if r.reads(ref) {
				wanted[ref] = true
			}
		}
		r.mu.Lock()
		for ref := range wanted {
			if r.readings[ref] == nil {
				r.start(ctx, ref)
			}
		}
		for _, ref := range slices.Collect(maps.Keys(r.readings)) {
			if !wanted[ref] {
				r.end(ref)
				tx.Delete(ref.Kind, ref.Key)
			}
		}
		r.behind = false
		r.mu.Unlock()
		r.settle(tx)
	})
}

// start starts a reading. It needs mu.
func (r *referenced) start(ctx context.Context, ref cluster.Ref) {
	reading := newReading(r.source, r.resources[ref.Kind], scope{
		namespace: ref.Key.Namespace, name: ref.Key.Name,
		fields: fieldselector.OneTermEqualSelector(metav1.ObjectNameField, ref.Key.Name).String(),
	})
	ctx, r.cancel[ref] = context.WithCancel(ctx)
	r.readings[ref], r.unread[ref.Kind][ref] = reading, true
	r.ended.Go(func() { _ = reading.run(ctx) }) // both end with their context
	r.ended.Go(func() { _ = reading.watchdog(ctx, r.source.cfg.Silence) })
}

// end ends a reading. It needs mu.
func (r *referenced) end(ref cluster.Ref) {
	r.readings[ref].ended.Store(true)
	r.cancel[ref]()
	delete(r.readings, ref)
	delete(r.cancel, ref)
	delete(r.unread[ref.Kind], ref)
}

// listed is called when tx holds what a reference leads to.
func (r *referenced) listed(tx *cluster.Tx, of *reading) {
	r.mu.Lock()
	delete(r.unread[of.resource.Model], of.ref())
	r.mu.Unlock()
	r.settle(tx)
}

// ref returns the object that is read.
func (r *reading) ref() cluster.Ref {
	return cluster.Ref{Kind: r.resource.Model, Key: cluster.Key{Namespace: r.scope.namespace, Name: r.scope.name}}
}

// settle sets the kinds live of which all references are read.
func (r *referenced) settle(tx *cluster.Tx) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range r.resources {
		if !r.behind && len(r.unread[k]) == 0 {
			tx.SetFreshness(cluster.Live, k)
		}
	}
}
