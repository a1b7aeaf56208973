package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// scope is a set of Namespaces whose Pods are computed; nil means all Namespaces.
type scope map[string]bool

func (s scope) has(namespace string) bool { return s == nil || s[namespace] }

// scope returns the Namespaces whose Pods the changes affect. Pods of different
// Namespaces depend on each other only through Nodes and addresses: if a Node changed, or
// if some Pods have no address, all Namespaces are in scope.
func (c *ControlPlane) scope(changes cluster.Changes) scope {
	if !c.started || changes.Everything || c.exhausted {
		return nil
	}
	s := make(scope)
	for ch := range changes.Objects {
		switch {
		case ch.Kind == cluster.KindNode:
			return nil
		case affectsPods(ch.Kind):
			s[ch.Key.Namespace] = true
		}
	}
	return s
}

// affectsPods reports whether changes of objects of the kind affect simulated Pods.
func affectsPods(k cluster.Kind) bool {
	switch k {
	case cluster.KindNamespace, cluster.KindService, cluster.KindEndpointSlice, cluster.KindNetworkPolicy:
		return false
	}
	return true
}

// podDraft is the result of computing the Pods in a scope.
type podDraft struct {
	pods      map[cluster.Key]owned[cluster.Pod]
	refused   []cluster.Refusal
	exhausted bool // some Pods have no address
}

// putPods writes the completed declared Pods and the Pods of workloads in scope to the
// model, and records refusals.
func (c *ControlPlane) putPods(tx *cluster.Tx, s scope) {
	s = c.withConflicts(tx.View, s)
	d := c.draftPods(tx.View, s)
	if d.exhausted && s != nil { // the Pods of all Namespaces compete for the remaining addresses
		s = nil
		d = c.draftPods(tx.View, s)
	}
	for key, o := range c.pods {
		if s.has(key.Namespace) && o.declared == nil && d.pods[key].stored == nil {
			tx.Delete(cluster.KindPod, key)
		}
	}
	for key, o := range d.pods {
		tx.Put(o.stored)
		d.pods[key] = owned[cluster.Pod]{o.declared, tx.Pod(key)} // the Store retains the previous object if it is equal
	}
	maps.DeleteFunc(c.pods, func(key cluster.Key, _ owned[cluster.Pod]) bool { return s.has(key.Namespace) })
	maps.Copy(c.pods, d.pods)
	kept := slices.DeleteFunc(c.refused, func(r cluster.Refusal) bool { return s.has(r.Key.Namespace) })
	c.refused = append(kept, d.refused...)
	slices.SortStableFunc(c.refused, func(a, b cluster.Refusal) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), a.Key.Compare(b.Key))
	})
	c.exhausted = d.exhausted
}

// withConflicts returns the scope with the Namespaces of simulated Pods whose address a
// declared Pod has now.
func (c *ControlPlane) withConflicts(v *cluster.View, s scope) scope {
	if s == nil || len(c.pods) == 0 {
		return s
	}
	c.addresses.setDeclared(c.declaredPods(v))
	for addr := range c.addresses.declared {
		holder, held := c.addresses.holders[addr]
		switch {
		case held && holder.Namespace == "": // held for a Node's network
			return nil
		case held:
			s[holder.Namespace] = true
		}
	}
	return s
}

// draftPods computes the Pods in scope.
func (c *ControlPlane) draftPods(v *cluster.View, s scope) *podDraft {
	nodes := c.nodeNames(v)
	d := &podDraft{pods: make(map[cluster.Key]owned[cluster.Pod])}
	for p := range c.declaredPods(v) {
		if !s.has(p.Namespace) {
			continue
		}
		if completed := scheduled(p, nodes); completed != p || lacksAddresses(p) {
			d.pods[p.Key] = owned[cluster.Pod]{p, completed}
		}
	}
	all := workloads(v, s)
	if len(d.pods)+len(all) > 0 {
		c.addresses.setDeclared(c.declaredPods(v))
	}
	if len(all) > 0 {
		c.createWorkloadPods(d, all, c.indexed(v, d, s), nodes, c.podLimit(s))
	}
	c.assignAddresses(v, d, s)
	return d
}

// lacksAddresses reports whether a Pod is scheduled, has not terminated and has no
// address.
func lacksAddresses(p *cluster.Pod) bool { return len(p.IPs) == 0 && !p.Finished && p.Scheduled() }

// podLimit returns how many Pods may be simulated for the workloads in scope.
func (c *ControlPlane) podLimit(s scope) int {
	limit := c.addresses.available()
	for key, o := range c.pods {
		if o.declared == nil && !s.has(key.Namespace) {
			limit--
		}
	}
	return max(0, limit)
}

// createWorkloadPods adds at most limit Pods of workloads to the draft. Declared Pods
// that a workload selects count as its replicas.
func (c *ControlPlane) createWorkloadPods(
	d *podDraft, all []*cluster.Workload, declared map[string]*declaredPods, nodes []string, limit int,
) {
	for _, w := range all {
		m := controller{workload: w, nodes: nodes, declared: declared[w.Namespace], pods: d.pods, limit: limit}
		for _, p := range m.createPods() {
			limit--
			d.pods[p.Key] = owned[cluster.Pod]{stored: p}
		}
		d.exhausted = d.exhausted || m.exhausted
		for _, r := range m.refused {
			r.Kind, r.Key = w.Kind, w.Key
			d.refused = append(d.refused, r)
		}
	}
}

// assignAddresses assigns addresses to the Pods in scope that lack them, and releases the
// addresses of Pods that no longer exist or now declare their own.
func (c *ControlPlane) assignAddresses(v *cluster.View, d *podDraft, s scope) {
	var lacking []*cluster.Pod
	for _, o := range d.pods {
		if lacksAddresses(o.stored) {
			lacking = append(lacking, o.stored)
		}
	}
	slices.SortFunc(lacking, func(a, b *cluster.Pod) int { return a.Compare(b.Key) })
	c.releaseAddresses(lacking, s)
	for _, p := range lacking {
		completed := *p
		completed.IPs, completed.Simulated = c.addressesOf(v, p), true
		if len(completed.IPs) == 0 {
			d.exhausted = true
			d.refused = append(d.refused, cluster.Refusal{
				Kind: cluster.KindPod, Key: p.Key, Err: errors.New("the range of Pods has no address for it"),
			})
		}
		d.pods[p.Key] = owned[cluster.Pod]{d.pods[p.Key].declared, &completed}
	}
}

// releaseAddresses releases the addresses in scope that none of the users has, and those
// held for Nodes' networks that no Pod uses.
func (c *ControlPlane) releaseAddresses(users []*cluster.Pod, s scope) {
	if len(c.addresses.held) == 0 {
		return
	}
	used := make(map[cluster.Key]bool, len(users))
	for _, p := range users {
		used[networkOf(p)] = true
	}
	for key, o := range c.pods {
		if network := networkOf(o.stored); network.Namespace == "" && !s.has(key.Namespace) {
			used[network] = true
		}
	}
	for key := range c.addresses.held {
		if !used[key] && (key.Namespace == "" || s.has(key.Namespace)) {
			c.addresses.release(key)
		}
	}
}

// workloads returns the workloads of all kinds in scope, sorted by key and kind.
func workloads(v *cluster.View, s scope) (all []*cluster.Workload) {
	for _, kind := range cluster.WorkloadKinds() {
		for w := range v.Workloads(kind) {
			if s.has(w.Namespace) {
				all = append(all, w)
			}
		}
	}
	slices.SortFunc(all, func(a, b *cluster.Workload) int {
		return cmp.Or(a.Compare(b.Key), cmp.Compare(a.Kind, b.Kind))
	})
	return all
}

// addressesOf returns a Pod's own addresses or, if it uses the host network, the declared
// addresses of its Node, else simulated ones that all Pods on that Node share.
func (c *ControlPlane) addressesOf(v *cluster.View, p *cluster.Pod) []netip.Addr {
	if p.Spec == nil || !p.Spec.HostNetwork {
		return c.addresses.assign(p.Key)
	}
	if n := v.Node(p.Node); n != nil && len(n.Addresses) > 0 {
		return n.Addresses
	}
	return c.addresses.assign(networkOf(p))
}

// networkOf returns the key under which a Pod's addresses are held: its own key or, if it
// uses the host network, one with the Node's name and no Namespace.
func networkOf(p *cluster.Pod) cluster.Key {
	if p.Spec != nil && p.Spec.HostNetwork {
		return cluster.Key{Name: p.Node}
	}
	return p.Key
}

// declaredPods are the declared Pods of a Namespace.
type declaredPods struct {
	all     []*cluster.Pod
	names   map[string]bool
	byLabel map[label][]*cluster.Pod
}

type label struct{ key, value string }

// indexed returns the declared Pods in scope, completed, by Namespace.
func (c *ControlPlane) indexed(v *cluster.View, d *podDraft, s scope) map[string]*declaredPods {
	all := make(map[string]*declaredPods)
	for p := range c.declaredPods(v) {
		if !s.has(p.Namespace) {
			continue
		}
		if o, completed := d.pods[p.Key]; completed {
			p = o.stored
		}
		of := all[p.Namespace]
		if of == nil {
			of = &declaredPods{names: make(map[string]bool), byLabel: make(map[label][]*cluster.Pod)}
			all[p.Namespace] = of
		}
		of.all = append(of.all, p)
		of.names[p.Name] = true
		for k, v := range p.Labels {
			of.byLabel[label{k, v}] = append(of.byLabel[label{k, v}], p)
		}
	}
	return all
}

// exists reports whether a Pod of that name is declared. The receiver may be nil.
func (d *declaredPods) exists(name string) bool { return d != nil && d.names[name] }

// selected returns the Pods that match a selector and have not terminated. The receiver
// may be nil.
func (d *declaredPods) selected(s *cluster.Selector) (selected []*cluster.Pod) {
	if d == nil || s == nil {
		return nil
	}
	candidates := d.all
	for k, v := range s.Labels {
		if with := d.byLabel[label{k, v}]; len(with) < len(candidates) {
			candidates = with
		}
	}
	for _, p := range candidates {
		if !p.Finished && s.Selects(p.Labels) {
			selected = append(selected, p)
		}
	}
	return selected
}

// podsOmitted returns the refusal of a workload's Pods beyond the limit.
func podsOmitted(field string, omitted, limit int) cluster.Refusal {
	err := fmt.Errorf("%d Pods omitted: the range of Pods has no addresses for them", omitted)
	if limit == maxPods {
		err = fmt.Errorf("%d Pods omitted: at most %d Pods are simulated", omitted, maxPods)
	}
	return cluster.Refusal{Field: field, Err: err}
}
