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
// Services, of which it is told by Tx.AskedServices.
func makesUp(kind string) bool {
	return kind == cluster.KindPod.String() || kind == cluster.KindNode.String() || kind == cluster.KindEndpointSlice.String()
}

// objectsOf are all objects of a view.
func objectsOf(v *cluster.View) map[identity]any {
	all := make(map[identity]any)
	for o := range v.Namespaces() {
		all[identity{"Namespace", cluster.Key{Name: o.Name}}] = o
	}
	for o := range v.Services() {
		all[identity{"Service", o.Key}] = o
	}
	for o := range v.EndpointSlices() {
		all[identity{"EndpointSlice", o.Key}] = o
	}
	for o := range v.Pods() {
		all[identity{"Pod", o.Key}] = o
	}
	for o := range v.Nodes() {
		all[identity{"Node", cluster.Key{Name: o.Name}}] = o
	}
	for _, k := range cluster.WorkloadKinds() {
		for o := range v.Workloads(k) {
			all[identity{k.String(), o.Key}] = o
		}
	}
	for o := range v.NetworkPolicies() {
		all[identity{"NetworkPolicy", o.Key}] = o
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

func put(tx *cluster.Tx, value any) {
	switch v := value.(type) {
	case *cluster.Namespace:
		tx.PutNamespace(v)
	case *cluster.Service:
		tx.PutService(v)
	case *cluster.EndpointSlice:
		tx.PutEndpointSlice(v)
	case *cluster.Pod:
		tx.PutPod(v)
	case *cluster.Node:
		tx.PutNode(v)
	case *cluster.Workload:
		tx.PutWorkload(v)
	case *cluster.NetworkPolicy:
		tx.PutNetworkPolicy(v)
	}
}

func remove(tx *cluster.Tx, id identity) {
	switch id.kind {
	case "Namespace":
		tx.DeleteNamespace(id.key.Name)
	case "Service":
		tx.DeleteService(id.key)
	case "EndpointSlice":
		tx.DeleteEndpointSlice(id.key)
	case "Pod":
		tx.DeletePod(id.key)
	case "Node":
		tx.DeleteNode(id.key.Name)
	case "NetworkPolicy":
		tx.DeleteNetworkPolicy(id.key)
	default:
		for _, k := range cluster.WorkloadKinds() {
			if k.String() == id.kind {
				tx.DeleteWorkload(k, id.key)
			}
		}
	}
}
