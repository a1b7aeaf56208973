package simulate

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"

	"portolan.dev/portolan/internal/cluster"
)

// controller simulates the controller of one workload.
type controller struct {
	workload *cluster.Workload
	nodes    []string
	declared *declaredPods // of the workload's Namespace; nil if there are none
	// pods are the Pods created so far; their names are in use.
	pods  map[cluster.Key]owned[cluster.Pod]
	limit int // the maximum number of Pods

	refused   []cluster.Refusal // without kind and key
	exhausted bool              // some Pods exceed the limit
}

// createPods returns the Pods of the workload that are not declared, without addresses.
// It returns none if the API server would reject Pods of the template.
func (c *controller) createPods() []*cluster.Pod {
	w := c.workload
	if !c.valid("hostname", w.Spec.Hostname) || !c.valid("subdomain", w.Spec.Subdomain) {
		return nil
	}
	switch w.Kind {
	case cluster.KindDeployment:
		hash := templateHash(w)
		return c.replicas(fmt.Sprintf("%s-%s-", w.Name, hash), map[string]string{"pod-template-hash": hash})
	case cluster.KindStatefulSet:
		return c.statefulSet()
	case cluster.KindDaemonSet:
		return c.daemonSet()
	case cluster.KindJob:
		if w.Indexed {
			return c.indexed()
		}
		return c.replicas(w.Name+"-", nil)
	}
	return nil // a CronJob creates Jobs, not Pods
}

// valid reports whether a field of the Pods is empty or a DNS label, as the API server
// requires. If not, it refuses the workload.
func (c *controller) valid(field, name string) bool {
	if name == "" || len(validation.IsDNS1123Label(name)) == 0 {
		return true
	}
	c.refused = append(c.refused, cluster.Refusal{
		Field: c.workload.SpecPath(),
		Err: fmt.Errorf(
			"its Pods are invalid: %s %q is not a DNS label of at most 63 letters, digits and '-'", field, name,
		),
	})
	return false
}

// withinLimit returns how many of n Pods may be created. It refuses the others.
func (c *controller) withinLimit(n int) int {
	omitted := max(0, n-c.limit)
	if omitted > 0 {
		c.exhausted = true
		c.refused = append(c.refused, podsOmitted(c.workload.CountPath(), omitted, c.limit))
	}
	return n - omitted
}

// exists reports whether the workload's Namespace has a Pod of that name.
func (c *controller) exists(name string) bool {
	return c.declared.exists(name) || c.pods[cluster.Key{Namespace: c.workload.Namespace, Name: name}].stored != nil
}

// replicas returns the missing replicas, with names generated from a prefix.
func (c *controller) replicas(prefix string, labels map[string]string) (created []*cluster.Pod) {
	used := make(map[string]bool)
	n := c.withinLimit(c.workload.Replicas - len(c.declared.selected(c.workload.Selector)))
	for i := 0; len(created) < n; i++ {
		name := generateName(prefix, i)
		if !used[name] && !c.exists(name) {
			used[name] = true
			created = append(created, c.pod(name, c.nodes[len(created)%len(c.nodes)], labels))
		}
	}
	return created
}

// statefulSet returns the missing Pods of a StatefulSet; their names and hostnames
// contain the ordinal.
func (c *controller) statefulSet() (created []*cluster.Pod) {
	w := c.workload
	longest := fmt.Sprintf("%s-%d", w.Name, w.LastOrdinal)
	if w.Replicas > 0 && !c.valid("hostname", longest) || !c.valid("subdomain", w.Service) {
		return nil
	}
	for i := range c.withinLimit(w.Replicas) {
		ordinal := w.LastOrdinal - (w.Replicas - 1) + i
		name := fmt.Sprintf("%s-%d", w.Name, ordinal)
		if c.declared.exists(name) {
			continue
		}
		p := c.pod(name, c.nodes[i%len(c.nodes)], map[string]string{
			"statefulset.kubernetes.io/pod-name": name,
			"apps.kubernetes.io/pod-index":       strconv.Itoa(ordinal),
		})
		p.Spec.Hostname, p.Spec.Subdomain = name, w.Service
		created = append(created, p)
	}
	return created
}

// daemonSet returns a Pod for each Node that has none.
func (c *controller) daemonSet() (created []*cluster.Pod) {
	occupied, used := make(map[string]bool), make(map[string]bool)
	for _, p := range c.declared.selected(c.workload.Selector) {
		occupied[p.Node] = true
	}
	nodes := c.nodes[:c.withinLimit(len(c.nodes))]
	for i := 0; len(nodes) > 0; i++ {
		name := generateName(c.workload.Name+"-", i)
		if used[name] || c.exists(name) {
			continue
		}
		used[name] = true
		if !occupied[nodes[0]] {
			created = append(created, c.pod(name, nodes[0], nil))
		}
		nodes = nodes[1:]
	}
	return created
}

// indexed returns the missing Pods of an Indexed Job; their names and hostnames contain
// the completion index.
func (c *controller) indexed() (created []*cluster.Pod) {
	w := c.workload
	if w.Replicas > 0 && !c.valid("hostname", cmp.Or(w.Spec.Hostname, fmt.Sprintf("%s-%d", w.Name, w.Replicas-1))) {
		return nil
	}
	for i := range c.withinLimit(w.Replicas - len(c.declared.selected(w.Selector))) {
		name := generateName(fmt.Sprintf("%s-%d-", w.Name, i), i)
		if c.declared.exists(name) {
			continue
		}
		p := c.pod(name, c.nodes[i%len(c.nodes)], map[string]string{
			"batch.kubernetes.io/job-completion-index": strconv.Itoa(i),
		})
		p.Spec.Hostname = cmp.Or(p.Spec.Hostname, fmt.Sprintf("%s-%d", w.Name, i))
		created = append(created, p)
	}
	return created
}

// pod returns a Pod of the workload's template with additional labels.
func (c *controller) pod(name, node string, labels map[string]string) *cluster.Pod {
	spec := c.workload.Spec
	p := &cluster.Pod{
		Key:       cluster.Key{Namespace: c.workload.Namespace, Name: name},
		Labels:    make(map[string]string, len(c.workload.Labels)+len(labels)),
		Node:      node,
		Ready:     true,
		Simulated: true,
		Owner:     &cluster.Owner{Kind: c.workload.Kind, Name: c.workload.Name},
		Spec:      &spec,
	}
	maps.Copy(p.Labels, c.workload.Labels)
	maps.Copy(p.Labels, labels)
	return p
}
