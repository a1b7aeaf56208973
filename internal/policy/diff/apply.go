package diff

import (
	"cmp"
	"maps"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// kinds are those that a comparison depends on.
func kinds() []cluster.Kind {
	return append(
		cluster.WorkloadKinds(),
		cluster.KindNamespace,
		cluster.KindNode,
		cluster.KindPod,
		cluster.KindNetworkPolicy,
		cluster.KindClusterNetworkPolicy,
		cluster.KindServiceCIDR,
	)
}

// isPolicy reports whether objects of a kind are policies.
func isPolicy(k cluster.Kind) bool {
	return k == cluster.KindNetworkPolicy || k == cluster.KindClusterNetworkPolicy
}

// Manifests are objects that are applied to a cluster.
type Manifests struct {
	Objects []cluster.Object
	// Prune deletes the policies that are not among Objects.
	Prune bool
}

// Apply returns the cluster after manifests are applied, as far as comparisons depend on it. As kubectl
// apply does, it keeps the labels of Namespaces that the manifests do not mention. Pods keep what their
// status says; those of a workload get the labels and ports of its template.
func Apply(v *cluster.View, m Manifests) *cluster.Store {
	after := cluster.NewStore()
	after.Update(func(tx *cluster.Tx) {
		for _, k := range kinds() {
			for o := range v.Objects(k) {
				tx.Put(o)
			}
		}
		ApplyTo(tx, m)
		tx.SetFreshness(cluster.Live, kinds()...)
	})
	return after
}

// ApplyTo applies manifests to a cluster as Apply does.
func ApplyTo(tx *cluster.Tx, m Manifests) {
	named := make(map[cluster.Ref]bool, len(m.Objects))
	for _, o := range m.Objects {
		named[o.Ref()] = true
		tx.Put(applied(tx, o))
	}
	if !m.Prune {
		return
	}
	for _, k := range kinds() {
		for _, o := range slices.Collect(tx.Objects(k)) {
			if isPolicy(k) && !named[o.Ref()] {
				tx.Delete(k, o.Ref().Key)
			}
		}
	}
}

// applied returns what an object of a manifest becomes, and changes the Pods of a workload.
func applied(tx *cluster.Tx, o cluster.Object) cluster.Object {
	switch o := o.(type) {
	case *cluster.Namespace:
		if old := tx.Namespace(o.Name); old != nil {
			changed := *o
			changed.Labels = maps.Clone(old.Labels)
			if changed.Labels == nil {
				changed.Labels = make(map[string]string, len(o.Labels))
			}
			maps.Copy(changed.Labels, o.Labels)
			return &changed
		}
	case *cluster.Pod:
		if old := tx.Pod(o.Key); old != nil {
			changed := *o
			changed.Node = cmp.Or(old.Node, o.Node)
			if len(o.IPs) == 0 {
				changed.IPs, changed.Finished = old.IPs, old.Finished
			}
			return &changed
		}
	case *cluster.Workload:
		if old := tx.Workload(o.Kind, o.Key); old != nil {
			for p := range tx.Pods() {
				if owns(old, p) {
					tx.Put(replaced(p, old, o))
				}
			}
		}
	}
	return o
}

// owns reports whether a Pod looks like one of a workload: it has the labels of its template.
func owns(w *cluster.Workload, p *cluster.Pod) bool {
	if p.Namespace != w.Namespace || p.Finished || len(w.Labels) == 0 {
		return false
	}
	return (&cluster.Selector{Labels: w.Labels}).Selects(p.Labels)
}

// replaced returns a Pod of a workload after a change of its template.
func replaced(p *cluster.Pod, before, after *cluster.Workload) *cluster.Pod {
	changed := *p
	changed.Labels = maps.Clone(p.Labels)
	for name := range before.Labels {
		delete(changed.Labels, name)
	}
	maps.Copy(changed.Labels, after.Labels)
	changed.Spec = &after.Spec
	return &changed
}
