package simulate

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"

	"portolan.dev/portolan/internal/cluster"
)

// maker simulates the controller of one workload.
type maker struct {
	workload *cluster.Workload
	nodes    []string
	declared *declaredPods // of its Namespace; nil if there are none
	// pods are those made so far, whose names are in use.
	pods map[cluster.Key]owned[cluster.Pod]
	room int // the number of Pods that may be made

	refused []cluster.Refusal // without kind and key
	short   bool              // room was too small
}

// make returns the Pods of the workload except for declared ones, without addresses.
// It returns none if the API server would refuse the Pods of the template.
func (m *maker) make() []*cluster.Pod {
	w := m.workload
	if !m.valid("hostname", w.Spec.Hostname) || !m.valid("subdomain", w.Spec.Subdomain) {
		return nil
	}
	switch w.Kind {
	case cluster.KindDeployment:
		hash := templateHash(w)
		return m.replicas(fmt.Sprintf("%s-%s-", w.Name, hash), map[string]string{"pod-template-hash": hash})
	case cluster.KindStatefulSet:
		return m.statefulSet()
	case cluster.KindDaemonSet:
		return m.daemonSet()
	case cluster.KindJob:
		if w.Indexed {
			return m.indexed()
		}
		return m.replicas(w.Name+"-", nil)
	}
	return nil // a CronJob has no Pods of its own
}

// valid reports whether a field of the Pods is empty or a DNS label, as the API server
// requires; if not, the workload is refused.
func (m *maker) valid(field, name string) bool {
	if name == "" || len(validation.IsDNS1123Label(name)) == 0 {
		return true
	}
	m.refused = append(m.refused, cluster.Refusal{
		Field: m.workload.SpecPath(),
		Err:   fmt.Errorf("its Pods are invalid: %s %q is not a DNS label of at most 63 letters, digits and '-'", field, name),
	})
	return false
}

// fit returns how many of n Pods there is room for.
func (m *maker) fit(n int) int {
	omitted := max(0, n-m.room)
	if omitted > 0 {
		m.short = true
		m.refused = append(m.refused, noRoom(m.workload.CountPath(), omitted, m.room))
	}
	return n - omitted
}

// has reports whether a Pod of that name exists already.
func (m *maker) has(name string) bool {
	return m.declared.has(name) || m.pods[cluster.Key{Namespace: m.workload.Namespace, Name: name}].put != nil
}

// replicas returns as many Pods as the workload declares, with names of one prefix.
func (m *maker) replicas(prefix string, labels map[string]string) (made []*cluster.Pod) {
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

// statefulSet returns Pods with their ordinal in the name, and with a hostname.
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

// daemonSet returns one Pod per Node.
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

// indexed returns the Pods of a Job with their index in the name, and with a hostname.
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

// pod returns a Pod of the template, with labels of its controller added.
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
