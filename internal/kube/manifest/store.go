package manifest

import (
	"portolan.dev/portolan/internal/cluster"
)

// write makes the Store hold values, and nothing else of ours.
func (s *Source) write(values map[identity]any) (refused []cluster.Refusal) {
	s.cfg.Store.Update(func(tx *cluster.Tx) {
		if s.applied == nil { // a snapshot may have filled it
			s.applied = objectsOf(tx.View)
		}
		for id := range s.applied {
			if _, ok := values[id]; !ok {
				remove(tx, id)
			}
		}
		for id, v := range values {
			if s.applied[id] == v {
				continue
			}
			if s.cfg.ControlPlane != nil && makesUp(id.kind) {
				remove(tx, id) // what it put there may be equal, and would stay
			}
			put(tx, v)
		}
		tx.SetFreshness(cluster.Live, s.kinds()...)
		if s.cfg.ControlPlane != nil {
			refused = s.cfg.ControlPlane.Complete(tx)
		}
	})
	s.applied = values
	return refused
}

// makesUp tells whether a control plane makes or completes objects of a kind, but for
// Services, of which it is told by Services.Requested.
func makesUp(kind string) bool {
	return kind == cluster.KindPod.String() || kind == cluster.KindNode.String() || kind == cluster.KindEndpointSlice.String()
}

// objectsOf are all objects of a view.
func objectsOf(v *cluster.View) map[identity]any {
	all := make(map[identity]any)
	for _, k := range cluster.Kinds() {
		for o := range v.Objects(k) {
			all[identity{k.String(), o.Ref().Key}] = o
		}
	}
	return all
}

// refused says where the object stands that is refused.
func (o *entry) refused(r cluster.Refusal) Problem {
	return Problem{File: o.file, Line: o.lineOf(r.Field), Object: o.id.String(), Field: r.Field, Err: r.Err, Rejected: true}
}

// kinds are those that are read.
func (s *Source) kinds() []cluster.Kind {
	if s.cfg.depth() == forNames {
		return cluster.KindsOfNames()
	}
	return cluster.Kinds()
}

func put(tx *cluster.Tx, value any) { tx.Put(value.(cluster.Object)) }

func remove(tx *cluster.Tx, id identity) {
	if k, ok := cluster.KindOf(id.kind); ok {
		tx.Delete(k, id.key)
	}
}
