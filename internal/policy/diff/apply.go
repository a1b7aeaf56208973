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
	for _, o := range m.Objects {
		tx.Put(applied(tx, o))
	}
	if m.Prune {
		prune(tx, m.Objects)
	}
}

// Declare puts manifests in the place of those that a simulated cluster is made of. Its control plane completes the
// transaction: Pods of a workload are its own then, and so are the addresses of Services and Pods.
func Declare(tx *cluster.Tx, m Manifests) {
	for _, o := range m.Objects {
		if n, isNamespace := o.(*cluster.Namespace); isNamespace {
			o = withLabels(tx, n)
		}
		tx.Delete(o.Ref().Kind, o.Ref().Key) // an object that the control plane completed
		tx.Put(o)
	}
	if m.Prune {
		prune(tx, m.Objects)
	}
}

// prune deletes the policies that are not among objects.
func prune(tx *cluster.Tx, objects []cluster.Object) {
	named := make(map[cluster.Ref]bool, len(objects))
	for _, o := range objects {
		named[o.Ref()] = true
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
		return withLabels(tx, o)
	case *cluster.Service:
		if old := tx.Service(o.Key); old != nil && len(o.ClusterIPs) == 0 && !o.Headless && o.ExternalName == "" {
			changed := *o
			changed.ClusterIPs = old.ClusterIPs
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

// withLabels returns a Namespace with the labels that it has in the cluster and the manifest does not mention.
func withLabels(tx *cluster.Tx, n *cluster.Namespace) *cluster.Namespace {
	old := tx.Namespace(n.Name)
	if old == nil {
		return n
	}
	changed := *n
	changed.Labels = maps.Clone(old.Labels)
	if changed.Labels == nil {
		changed.Labels = make(map[string]string, len(n.Labels))
	}
	maps.Copy(changed.Labels, n.Labels)
	return &changed
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
