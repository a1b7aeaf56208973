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

// scope is the set of Namespaces whose Pods are computed; nil is all Namespaces.
type scope map[string]bool

func (s scope) has(namespace string) bool { return s == nil || s[namespace] }

// scope returns the Namespaces whose Pods the changes affect. Pods of different
// Namespaces depend on each other only through the Nodes and through addresses: if
// Nodes changed, or if addresses are short, all Namespaces are in scope.
func (c *ControlPlane) scope(changes cluster.Changes) scope {
	if !c.started || changes.Everything || c.short {
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

// affectsPods reports whether Pods are computed from objects of the kind.
func affectsPods(k cluster.Kind) bool {
	switch k {
	case cluster.KindNamespace, cluster.KindService, cluster.KindEndpointSlice, cluster.KindNetworkPolicy:
		return false
	}
	return true
}

// podDraft is the result of computing the Pods in a scope.
type podDraft struct {
	pods    map[cluster.Key]owned[cluster.Pod]
	refused []cluster.Refusal
	short   bool // some Pods have no address
}

// putPods writes to the model the declared Pods in scope, completed, and those of
// workloads. It records what is refused.
func (c *ControlPlane) putPods(tx *cluster.Tx, s scope) {
	s = c.withConflicts(tx.View, s)
	d := c.draftPods(tx.View, s)
	if d.short && s != nil { // which Pods have no address depends on all
		s = nil
		d = c.draftPods(tx.View, s)
	}
	for key, o := range c.pods {
		if s.has(key.Namespace) && o.declared == nil && d.pods[key].put == nil {
			tx.Delete(cluster.KindPod, key)
		}
	}
	for key, o := range d.pods {
		tx.Put(o.put)
		d.pods[key] = owned[cluster.Pod]{o.declared, tx.Pod(key)} // the previous one if it is equal
	}
	maps.DeleteFunc(c.pods, func(key cluster.Key, _ owned[cluster.Pod]) bool { return s.has(key.Namespace) })
	maps.Copy(c.pods, d.pods)
	kept := slices.DeleteFunc(c.refused, func(r cluster.Refusal) bool { return s.has(r.Key.Namespace) })
	c.refused = append(kept, d.refused...)
	slices.SortStableFunc(c.refused, func(a, b cluster.Refusal) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), a.Key.Compare(b.Key))
	})
	c.short = d.short
}

// withConflicts returns the scope with the Namespaces of those simulated Pods whose
// address another Pod declares by now.
func (c *ControlPlane) withConflicts(v *cluster.View, s scope) scope {
	if s == nil || len(c.pods) == 0 {
		return s
	}
	c.addresses.setDeclared(c.declaredPods(v))
	for addr := range c.addresses.declared {
		holder, held := c.addresses.holders[addr]
		switch {
		case held && holder.Namespace == "": // the network of a Node
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
		c.addWorkloadPods(d, all, c.indexed(v, d, s), nodes, c.room(s))
	}
	c.assignAddresses(v, d, s)
	return d
}

// lacksAddresses reports whether a Pod runs, as far as is known, and has no address.
func lacksAddresses(p *cluster.Pod) bool { return len(p.IPs) == 0 && !p.Finished && p.Scheduled() }

// room returns how many Pods may be simulated for the workloads in scope.
func (c *ControlPlane) room(s scope) int {
	room := c.addresses.room()
	for key, o := range c.pods {
		if o.declared == nil && !s.has(key.Namespace) {
			room--
		}
	}
	return max(0, room)
}

// addWorkloadPods adds the Pods of workloads, at most room. Declared Pods that a
// workload selects are its own, as for its controller: it gets so many fewer.
func (c *ControlPlane) addWorkloadPods(
	d *podDraft, all []*cluster.Workload, declared map[string]*declaredPods, nodes []string, room int,
) {
	for _, w := range all {
		m := maker{workload: w, nodes: nodes, declared: declared[w.Namespace], pods: d.pods, room: room}
		for _, p := range m.make() {
			room--
			d.pods[p.Key] = owned[cluster.Pod]{put: p}
		}
		d.short = d.short || m.short
		for _, r := range m.refused {
			r.Kind, r.Key = w.Kind, w.Key
			d.refused = append(d.refused, r)
		}
	}
}

// assignAddresses assigns addresses to the Pods in scope that lack them, and releases
// those of Pods that need them no more.
func (c *ControlPlane) assignAddresses(v *cluster.View, d *podDraft, s scope) {
	var without []*cluster.Pod
	for _, o := range d.pods {
		if lacksAddresses(o.put) {
			without = append(without, o.put)
		}
	}
	slices.SortFunc(without, func(a, b *cluster.Pod) int { return a.Key.Compare(b.Key) })
	c.releaseAddresses(without, s)
	for _, p := range without {
		completed := *p
		completed.IPs, completed.Simulated = c.addressesOf(v, p), true
		if len(completed.IPs) == 0 {
			d.short = true
			d.refused = append(d.refused, cluster.Refusal{
				Kind: cluster.KindPod, Key: p.Key, Err: errors.New("the range of Pods has no address for it"),
			})
		}
		d.pods[p.Key] = owned[cluster.Pod]{d.pods[p.Key].declared, &completed}
	}
}

// releaseAddresses releases the addresses in scope that none of these Pods uses, and
// those of Nodes' networks that no Pod at all uses.
func (c *ControlPlane) releaseAddresses(users []*cluster.Pod, s scope) {
	if len(c.addresses.held) == 0 {
		return
	}
	used := make(map[cluster.Key]bool, len(users))
	for _, p := range users {
		used[networkOf(p)] = true
	}
	for key, o := range c.pods {
		if network := networkOf(o.put); network.Namespace == "" && !s.has(key.Namespace) {
			used[network] = true
		}
	}
	for key := range c.addresses.held {
		if !used[key] && (key.Namespace == "" || s.has(key.Namespace)) {
			c.addresses.release(key)
		}
	}
}

// workloads returns the workloads of all kinds in scope, sorted.
func workloads(v *cluster.View, s scope) (all []*cluster.Workload) {
	for _, kind := range cluster.WorkloadKinds() {
		for w := range v.Workloads(kind) {
			if s.has(w.Namespace) {
				all = append(all, w)
			}
		}
	}
	slices.SortFunc(all, func(a, b *cluster.Workload) int {
		return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(a.Kind, b.Kind))
	})
	return all
}

// addressesOf returns a Pod's own addresses or, if it uses its Node's network, those
// of the Node: the declared ones, else simulated ones that all Pods there share.
func (c *ControlPlane) addressesOf(v *cluster.View, p *cluster.Pod) []netip.Addr {
	if p.Spec == nil || !p.Spec.HostNetwork {
		return c.addresses.assign(p.Key)
	}
	if n := v.Node(p.Node); n != nil && len(n.Addresses) > 0 {
		return n.Addresses
	}
	return c.addresses.assign(networkOf(p))
}

// networkOf returns the key that a Pod's addresses are held under: its own, or, if it
// uses its Node's network, one with the Node's name and without a Namespace.
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
			p = o.put
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

// has reports whether a Pod of that name is declared. The receiver may be nil.
func (d *declaredPods) has(name string) bool { return d != nil && d.names[name] }

// selected returns the Pods that a selector selects and that have not terminated. The
// receiver may be nil.
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

// noRoom returns the refusal of Pods that are omitted because there is room for room
// Pods only.
func noRoom(field string, omitted, room int) cluster.Refusal {
	if room == maxPods {
		return cluster.Refusal{Field: field, Err: fmt.Errorf("%d Pods omitted: at most %d Pods are simulated", omitted, maxPods)}
	}
	return cluster.Refusal{Field: field, Err: fmt.Errorf("%d Pods omitted: the range of Pods has no addresses for them", omitted)}
}
