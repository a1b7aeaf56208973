package simulate

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"portolan.dev/portolan/internal/cluster"
)

// makePods brings the Pods of all workloads into the transaction. Declared Pods
// that a workload selects are its own, as its controller would have it: it makes
// so many fewer.
func (c *ControlPlane) makePods(tx *cluster.Tx) (refused []cluster.Refusal) {
	declared, nodes := c.declaredPods(tx), c.declaredNodes(tx.View)
	made := make(map[cluster.Key]*cluster.Pod)
	for _, w := range workloads(tx.View) {
		m := maker{workload: w, nodes: nodes, declared: declared[w.Namespace], room: c.addresses.room() - len(made)}
		for _, p := range m.pods() {
			made[p.Key] = p
		}
		if m.short > 0 {
			refused = append(refused, cluster.Refusal{Kind: w.Kind, Key: w.Key, Field: "spec.replicas",
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
		p.IPs = c.addressesOf(tx, p)
		tx.PutPod(p)
		c.pods[key] = tx.Pod(key)
	}
	return refused
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

// addressesOf are those of the Pod's Node if it uses its network, where they are
// known, and else its own.
func (c *ControlPlane) addressesOf(v *cluster.Tx, p *cluster.Pod) []netip.Addr {
	if n := v.Node(p.Node); p.Spec.HostNetwork && n != nil && len(n.Addresses) > 0 {
		return n.Addresses
	}
	return c.addresses.of(p.Key)
}

// maker makes the Pods of one workload.
type maker struct {
	workload *cluster.Workload
	nodes    []string
	declared []*cluster.Pod // of its namespace
	room     int            // how many may be made
	short    int            // how many were not
}

// pods are those that the workload has, but for declared ones; addresses are
// still missing.
func (m *maker) pods() []*cluster.Pod {
	w := m.workload
	switch w.Kind {
	case cluster.KindDeployment:
		hash := templateHash(w)
		return m.several(fmt.Sprintf("%s-%s-", w.Name, hash), map[string]string{"pod-template-hash": hash})
	case cluster.KindStatefulSet:
		return m.statefulSet()
	case cluster.KindDaemonSet:
		return m.daemonSet()
	case cluster.KindJob:
		labels := map[string]string{"batch.kubernetes.io/job-name": w.Name, "job-name": w.Name}
		if w.Indexed {
			return m.indexed(labels)
		}
		return m.several(w.Name+"-", labels)
	}
	return nil // a CronJob makes Jobs at its times
}

// own are the declared Pods that the workload selects and that did not end.
func (m *maker) own() (own []*cluster.Pod) {
	if m.workload.Selector == nil {
		return nil
	}
	for _, p := range m.declared {
		if !p.Finished && m.workload.Selector.Selects(p.Labels) {
			own = append(own, p)
		}
	}
	return own
}

// fit is how many of n may be made.
func (m *maker) fit(n int) int {
	m.short = max(0, n-m.room)
	return n - m.short
}

// several are as many as the workload has, with names that begin alike.
func (m *maker) several(prefix string, labels map[string]string) (made []*cluster.Pod) {
	taken := m.declaredNames()
	n := m.fit(m.workload.Replicas - len(m.own()))
	for i := 0; len(made) < n; i++ {
		name := generated(prefix, i)
		if !taken[name] {
			taken[name] = true
			made = append(made, m.pod(name, m.nodes[len(made)%len(m.nodes)], labels))
		}
	}
	return made
}

func (m *maker) declaredNames() map[string]bool {
	names := make(map[string]bool, len(m.declared))
	for _, p := range m.declared {
		names[p.Name] = true
	}
	return names
}

// statefulSet: Pods that have their ordinal in their names, and a hostname.
func (m *maker) statefulSet() (made []*cluster.Pod) {
	w, declared := m.workload, m.declaredNames()
	for i := range m.fit(w.Replicas) {
		ordinal := w.LastOrdinal - (w.Replicas - 1) + i
		name := fmt.Sprintf("%s-%d", w.Name, ordinal)
		if declared[name] {
			continue
		}
		p := m.pod(name, m.nodes[i%len(m.nodes)], map[string]string{
			"statefulset.kubernetes.io/pod-name": name,
			"apps.kubernetes.io/pod-index":       strconv.Itoa(ordinal),
		})
		p.Spec.Hostname, p.Spec.Subdomain = name, w.Service
		made = append(made, p)
	}
	return made
}

// daemonSet: a Pod on each Node.
func (m *maker) daemonSet() (made []*cluster.Pod) {
	has, taken := make(map[string]bool), m.declaredNames()
	for _, p := range m.own() {
		has[p.Node] = true
	}
	nodes := m.nodes[:m.fit(len(m.nodes))]
	for i := 0; len(nodes) > 0; i++ {
		name := generated(m.workload.Name+"-", i)
		if taken[name] {
			continue
		}
		taken[name] = true
		if !has[nodes[0]] {
			made = append(made, m.pod(name, nodes[0], nil))
		}
		nodes = nodes[1:]
	}
	return made
}

// indexed: Pods of a Job that have their index in their names, and a hostname.
func (m *maker) indexed(labels map[string]string) (made []*cluster.Pod) {
	w := m.workload
	for i := range m.fit(w.Replicas - len(m.own())) {
		p := m.pod(generated(fmt.Sprintf("%s-%d-", w.Name, i), i), m.nodes[i%len(m.nodes)], labels)
		p.Labels["batch.kubernetes.io/job-completion-index"] = strconv.Itoa(i)
		p.Spec.Hostname = cmp.Or(p.Spec.Hostname, fmt.Sprintf("%s-%d", w.Name, i))
		made = append(made, p)
	}
	return made
}

// pod makes one of the template, with some labels of its controller.
func (m *maker) pod(name, node string, labels map[string]string) *cluster.Pod {
	spec := m.workload.Spec
	p := &cluster.Pod{
		Key:       cluster.Key{Namespace: m.workload.Namespace, Name: name},
		Labels:    make(map[string]string, len(m.workload.Labels)+len(labels)),
		Node:      node,
		Ready:     true,
		Simulated: true,
		Spec:      &spec,
	}
	maps.Copy(p.Labels, m.workload.Labels)
	maps.Copy(p.Labels, labels)
	return p
}

// completePods gives declared Pods that have no status what a kubelet would have
// told of them: addresses, a Node, and that they are ready.
func (c *ControlPlane) completePods(tx *cluster.Tx) {
	nodes := c.declaredNodes(tx.View)
	declared := c.declaredPods(tx)
	for _, ns := range slices.Sorted(maps.Keys(declared)) {
		for _, p := range declared[ns] {
			if p.Finished || p.Simulated {
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
