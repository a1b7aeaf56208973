package simulate

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// makePods brings the Pods of all workloads into the transaction. Declared Pods
// that a workload selects are its own, as its controller would have it: it makes
// so many fewer.
func (c *ControlPlane) makePods(tx *cluster.Tx) (refused []cluster.Refusal) {
	declared, nodes := indexed(c.declaredPods(tx)), c.declaredNodes(tx.View)
	made := make(map[cluster.Key]*cluster.Pod)
	for _, w := range workloads(tx.View) {
		m := maker{workload: w, nodes: nodes, declared: declared[w.Namespace], room: c.addresses.room() - len(made)}
		for _, p := range m.pods() {
			made[p.Key] = p
		}
		if m.short > 0 {
			refused = append(refused, cluster.Refusal{Kind: w.Kind, Key: w.Key, Field: countedBy[w.Kind],
				Err: fmt.Errorf("the range of Pods has no addresses for %d of them: those are left out", m.short)})
		}
	}
	for key, p := range c.pods {
		if made[key] == nil {
			delete(c.pods, key)
			if tx.Pod(key) == p {
				tx.DeletePod(key)
			}
		}
	}
	c.addresses.observe(tx, made)
	for _, key := range slices.SortedFunc(maps.Keys(made), cluster.Key.Compare) {
		p := made[key]
		if now := tx.Pod(key); now != nil && now != c.pods[key] {
			continue // declared
		}
		p.IPs = c.addressesOf(tx, p)
		tx.PutPod(p)
		c.pods[key] = tx.Pod(key)
	}
	return refused
}

// countedBy is the field that says how many Pods a workload has.
var countedBy = map[cluster.Kind]string{
	cluster.KindDeployment: "spec.replicas", cluster.KindStatefulSet: "spec.replicas", cluster.KindJob: "spec.parallelism",
}

// workloads are those of all kinds, in order.
func workloads(v *cluster.View) (all []*cluster.Workload) {
	for _, kind := range cluster.WorkloadKinds() {
		all = slices.AppendSeq(all, v.Workloads(kind))
	}
	slices.SortFunc(all, func(a, b *cluster.Workload) int { return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(a.Kind, b.Kind)) })
	return all
}

// declaredPods are the Pods that were not made here, by namespace and in order.
func (c *ControlPlane) declaredPods(tx *cluster.Tx) map[string][]*cluster.Pod {
	declared := make(map[string][]*cluster.Pod)
	for p := range tx.Pods() {
		if c.pods[p.Key] != p {
			declared[p.Namespace] = append(declared[p.Namespace], p)
		}
	}
	for _, pods := range declared {
		slices.SortFunc(pods, func(a, b *cluster.Pod) int { return a.Key.Compare(b.Key) })
	}
	return declared
}

// addressesOf are a Pod's own or, if it uses its Node's network, that one's: those
// that are known, or else some for all Pods there.
func (c *ControlPlane) addressesOf(tx *cluster.Tx, p *cluster.Pod) []netip.Addr {
	if !p.Spec.HostNetwork {
		return c.addresses.of(p.Key)
	}
	if n := tx.Node(p.Node); n != nil && len(n.Addresses) > 0 {
		return n.Addresses
	}
	return c.addresses.of(cluster.Key{Name: p.Node})
}

// completePods gives declared Pods that have no status what a kubelet would have
// told of them: addresses, a Node, and that they are ready.
func (c *ControlPlane) completePods(tx *cluster.Tx) {
	nodes := c.declaredNodes(tx.View)
	declared := c.declaredPods(tx)
	for _, ns := range slices.Sorted(maps.Keys(declared)) {
		for _, p := range declared[ns] {
			if p.Finished || p.Simulated || !p.Scheduled() {
				continue
			}
			full := *p
			full.Node = cmp.Or(p.Node, nodes[hash(p.Key)%uint64(len(nodes))])
			full.Ready = p.Ready || len(p.Unmet) == 0
			if len(p.IPs) == 0 {
				full.IPs, full.Simulated = c.addressesOf(tx, &full), true
			}
			tx.PutPod(&full)
		}
	}
}
