package simulate

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"

	"portolan.dev/portolan/internal/cluster"
)

// maker makes the Pods of one workload.
type maker struct {
	workload *cluster.Workload
	nodes    []string
	declared *declaredPods // of its namespace; nil when there are none
	// put are the Pods of others, which may be called what this one's would be.
	put      map[cluster.Key]ours[cluster.Pod]
	room     int // how many may be made
	problems []cluster.Refusal
}

// pods are those that the workload has, but for declared ones; addresses are
// still missing. There are none of a template whose Pods an API server refuses.
func (m *maker) pods() []*cluster.Pod {
	w := m.workload
	if !m.valid("hostname", w.Spec.Hostname) || !m.valid("subdomain", w.Spec.Subdomain) {
		return nil
	}
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

// valid tells whether a field of the Pods is empty or one DNS label, as the API
// server wants it; if not, that is a problem of the workload.
func (m *maker) valid(field, name string) bool {
	if name == "" || len(validation.IsDNS1123Label(name)) == 0 {
		return true
	}
	m.problems = append(m.problems, cluster.Refusal{
		Field: m.workload.SpecPath(), Err: fmt.Errorf("its Pods can't be: %s %q is not a DNS label of 63 letters, digits and '-' at most", field, name),
	})
	return false
}

// fit is how many of n may be made.
func (m *maker) fit(n int) int {
	short := max(0, n-m.room)
	if short > 0 {
		m.problems = append(m.problems, noRoom(m.workload.CountPath(), short, m.room))
	}
	return n - short
}

// has tells whether there is a Pod of that name already.
func (m *maker) has(name string) bool {
	return m.declared.has(name) || m.put[cluster.Key{Namespace: m.workload.Namespace, Name: name}].put != nil
}

// several are as many as the workload has, with names that begin alike.
func (m *maker) several(prefix string, labels map[string]string) (made []*cluster.Pod) {
	taken := make(map[string]bool)
	n := m.fit(m.workload.Replicas - len(m.declared.selected(m.workload.Selector)))
	for i := 0; len(made) < n; i++ {
		name := generated(prefix, i)
		if !taken[name] && !m.has(name) {
			taken[name] = true
			made = append(made, m.pod(name, m.nodes[len(made)%len(m.nodes)], labels))
		}
	}
	return made
}

// statefulSet: Pods that have their ordinal in their names, and a hostname.
func (m *maker) statefulSet() (made []*cluster.Pod) {
	w := m.workload
	if w.Replicas > 0 && !m.valid("hostname", fmt.Sprintf("%s-%d", w.Name, w.LastOrdinal)) || !m.valid("subdomain", w.Service) {
		return nil
	}
	for i := range m.fit(w.Replicas) {
		ordinal := w.LastOrdinal - (w.Replicas - 1) + i
		name := fmt.Sprintf("%s-%d", w.Name, ordinal)
		if m.declared.has(name) {
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
	for _, p := range m.declared.selected(m.workload.Selector) {
		has[p.Node] = true
	}
	nodes := m.nodes[:m.fit(len(m.nodes))]
	for i := 0; len(nodes) > 0; i++ {
		name := generated(m.workload.Name+"-", i)
		if taken[name] || m.has(name) {
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
	if w.Replicas > 0 && !m.valid("hostname", cmp.Or(w.Spec.Hostname, fmt.Sprintf("%s-%d", w.Name, w.Replicas-1))) {
		return nil
	}
	for i := range m.fit(w.Replicas - len(m.declared.selected(w.Selector))) {
		name := generated(fmt.Sprintf("%s-%d-", w.Name, i), i)
		if m.declared.has(name) {
			continue
		}
		p := m.pod(name, m.nodes[i%len(m.nodes)], map[string]string{"batch.kubernetes.io/job-completion-index": strconv.Itoa(i)})
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
