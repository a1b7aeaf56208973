package manifest

import (
	"portolan.dev/portolan/internal/cluster"
)

// write applies changes to the Store in one transaction, and returns what the
// control plane rejects.
func (s *Source) write(changes map[cluster.Ref]bool) (refused []cluster.Refusal) {
	s.cfg.Store.Update(func(tx *cluster.Tx) {
		if !s.loaded {
			s.deleteStrays(tx)
		}
		for ref := range changes {
			o := s.index.value(ref)
			if o == nil || s.cfg.ControlPlane != nil && completes(ref.Kind) {
				tx.Delete(ref.Kind, ref.Key) // see ControlPlane.Complete
			}
			if o != nil {
				tx.Put(o)
			}
		}
		tx.SetFreshness(cluster.Live, s.kinds()...)
		if s.cfg.ControlPlane != nil {
			refused = s.cfg.ControlPlane.Complete(tx)
		}
	})
	return refused
}

// deleteStrays deletes the objects of a snapshot that no manifest declares.
func (s *Source) deleteStrays(tx *cluster.Tx) {
	var strays []cluster.Ref
	for _, k := range cluster.Kinds() {
		for o := range tx.Objects(k) {
			if ref := o.Ref(); s.index.value(ref) == nil {
				strays = append(strays, ref)
			}
		}
	}
	for _, ref := range strays {
		tx.Delete(ref.Kind, ref.Key)
	}
}

// completes reports whether a control plane makes or completes objects of a
// kind and recognizes its own by pointer. Services it learns from
// Services.Requested.
func completes(k cluster.Kind) bool {
	return k == cluster.KindPod || k == cluster.KindNode || k == cluster.KindEndpointSlice
}

// refused returns the problem that an object is rejected, where it is declared.
func (o *entry) refused(r cluster.Refusal) Problem {
	return Problem{
		File:     o.file,
		Line:     o.lineOf(r.Field),
		Kind:     o.id.kind,
		Object:   o.id.String(),
		Field:    r.Field,
		Err:      r.Err,
		Rejected: true,
	}
}

// kinds returns the kinds that are read.
func (s *Source) kinds() []cluster.Kind {
	if s.cfg.depth() == kindsOfNames {
		return cluster.KindsOfNames()
	}
	return cluster.Kinds()
}
