package simulate

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"

	"portolan.dev/portolan/internal/cluster"
)

// maker makes the Pods of one workload.
type maker struct {
	workload *cluster.Workload
	nodes    []string
	declared declaredPods // of its namespace
	room     int          // how many may be made
	short    int          // how many were not
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
		if w.Indexed {
			return m.indexed()
		}
		return m.several(w.Name+"-", nil)
	}
	return nil // a CronJob makes Jobs at its times
}

// own are the declared Pods that the workload selects and that did not end.
func (m *maker) own() (own []*cluster.Pod) {
	if m.workload.Selector == nil {
		return nil
	}
	for _, p := range m.declared.candidates(m.workload.Selector) {
		if !p.Finished && m.workload.Selector.Selects(p.Labels) {
			own = append(own, p)
		}
	}
	return own
}

// declaredPods are those of a namespace.
type declaredPods struct {
	all     []*cluster.Pod
	named   map[string]bool
	byLabel map[label][]*cluster.Pod
}

type label struct{ key, value string }

// indexed are the Pods of each namespace, for many workloads that look for
// theirs.
func indexed(declared map[string][]*cluster.Pod) map[string]declaredPods {
	all := make(map[string]declaredPods, len(declared))
	for ns, pods := range declared {
		d := declaredPods{all: pods, named: make(map[string]bool, len(pods)), byLabel: make(map[label][]*cluster.Pod)}
		for _, p := range pods {
			d.named[p.Name] = true
			for k, v := range p.Labels {
				d.byLabel[label{k, v}] = append(d.byLabel[label{k, v}], p)
			}
		}
		all[ns] = d
	}
	return all
}

// candidates are the Pods that a selector may choose, the fewest that one of its
// labels leaves.
func (d declaredPods) candidates(s *cluster.Selector) []*cluster.Pod {
	least := d.all
	for k, v := range s.Labels {
		if with := d.byLabel[label{k, v}]; len(with) < len(least) {
			least = with
		}
	}
	return least
}

// fit is how many of n may be made.
func (m *maker) fit(n int) int {
	m.short = max(0, n-m.room)
	return n - m.short
}

// several are as many as the workload has, with names that begin alike.
func (m *maker) several(prefix string, labels map[string]string) (made []*cluster.Pod) {
	taken := make(map[string]bool)
	n := m.fit(m.workload.Replicas - len(m.own()))
	for i := 0; len(made) < n; i++ {
		name := generated(prefix, i)
		if !taken[name] && !m.declared.named[name] {
			taken[name] = true
			made = append(made, m.pod(name, m.nodes[len(made)%len(m.nodes)], labels))
		}
	}
	return made
}

// statefulSet: Pods that have their ordinal in their names, and a hostname.
func (m *maker) statefulSet() (made []*cluster.Pod) {
	w := m.workload
	for i := range m.fit(w.Replicas) {
		ordinal := w.LastOrdinal - (w.Replicas - 1) + i
		name := fmt.Sprintf("%s-%d", w.Name, ordinal)
		if m.declared.named[name] {
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
	has, taken := make(map[string]bool), make(map[string]bool)
	for _, p := range m.own() {
		has[p.Node] = true
	}
	nodes := m.nodes[:m.fit(len(m.nodes))]
	for i := 0; len(nodes) > 0; i++ {
		name := generated(m.workload.Name+"-", i)
		if taken[name] || m.declared.named[name] {
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
func (m *maker) indexed() (made []*cluster.Pod) {
	w := m.workload
	for i := range m.fit(w.Replicas - len(m.own())) {
		p := m.pod(generated(fmt.Sprintf("%s-%d-", w.Name, i), i), m.nodes[i%len(m.nodes)],
			map[string]string{"batch.kubernetes.io/job-completion-index": strconv.Itoa(i)})
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
		Owner:     &cluster.Owner{Kind: m.workload.Kind, Name: m.workload.Name},
		Spec:      &spec,
	}
	maps.Copy(p.Labels, m.workload.Labels)
	maps.Copy(p.Labels, labels)
	return p
}
