package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// putPods has the model hold the Pods that are declared, with what was not said
// of them, and those that workloads make. It tells what there is no address for,
// and what can't be.
func (c *ControlPlane) putPods(tx *cluster.Tx) (refused []cluster.Refusal) {
	nodes := c.nodeNames(tx.View)
	put := make(map[cluster.Key]ours[cluster.Pod])
	for p := range c.declaredPods(tx.View) {
		if full := placed(p, nodes); full != p || lacksAddresses(p) {
			put[p.Key] = ours[cluster.Pod]{p, full}
		}
	}
	all := workloads(tx.View)
	if len(put)+len(all) > 0 {
		c.addresses.declare(c.declaredPods(tx.View))
	}
	if len(all) > 0 {
		refused = c.makePods(all, c.indexed(tx.View, put), nodes, put)
	}
	refused = append(refused, c.giveAddresses(tx.View, put)...)
	for key, o := range c.pods {
		if o.declared == nil && put[key].put == nil {
			tx.Delete(cluster.KindPod, key)
		}
	}
	for key, o := range put {
		tx.Put(o.put)
		put[key] = ours[cluster.Pod]{o.declared, tx.Pod(key)} // the one that was there, if it was the same
	}
	c.pods = put
	return refused
}

// lacksAddresses tells whether a Pod runs, as far as is known, and has no address.
func lacksAddresses(p *cluster.Pod) bool { return len(p.IPs) == 0 && !p.Finished && p.Scheduled() }

// makePods adds the Pods of workloads to those that are put. Declared Pods that a
// workload selects are its own, as its controller would have it: it makes so many
// fewer.
func (c *ControlPlane) makePods(all []*cluster.Workload, declared map[string]*declaredPods, nodes []string, put map[cluster.Key]ours[cluster.Pod]) (refused []cluster.Refusal) {
	room := c.addresses.room()
	for _, w := range all {
		m := maker{workload: w, nodes: nodes, declared: declared[w.Namespace], put: put, room: room}
		for _, p := range m.pods() {
			room--
			put[p.Key] = ours[cluster.Pod]{put: p}
		}
		for _, err := range m.problems {
			err.Kind, err.Key = w.Kind, w.Key
			refused = append(refused, err)
		}
	}
	return refused
}

// giveAddresses gives the Pods that lack them addresses, and takes back those of
// Pods that don't any more.
func (c *ControlPlane) giveAddresses(v *cluster.View, put map[cluster.Key]ours[cluster.Pod]) (refused []cluster.Refusal) {
	var without []*cluster.Pod
	for _, o := range put {
		if lacksAddresses(o.put) {
			without = append(without, o.put)
		}
	}
	slices.SortFunc(without, func(a, b *cluster.Pod) int { return a.Key.Compare(b.Key) })
	c.addresses.keep(without)
	for _, p := range without {
		full := *p
		if full.IPs, full.Simulated = c.addressesOf(v, p), true; len(full.IPs) == 0 {
			refused = append(refused, cluster.Refusal{Kind: cluster.KindPod, Key: p.Key, Err: errors.New("the range of Pods has no address for it")})
		}
		put[p.Key] = ours[cluster.Pod]{put[p.Key].declared, &full}
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

// addressesOf are a Pod's own or, if it uses its Node's network, that one's: those
// that are known, or else some for all Pods there.
func (c *ControlPlane) addressesOf(v *cluster.View, p *cluster.Pod) []netip.Addr {
	if p.Spec == nil || !p.Spec.HostNetwork {
		return c.addresses.of(p.Key)
	}
	if n := v.Node(p.Node); n != nil && len(n.Addresses) > 0 {
		return n.Addresses
	}
	return c.addresses.of(networkOf(p))
}

// networkOf is the key for which addresses of a Pod are held.
func networkOf(p *cluster.Pod) cluster.Key {
	if p.Spec != nil && p.Spec.HostNetwork {
		return cluster.Key{Name: p.Node}
	}
	return p.Key
}

// declaredPods are those of a namespace.
type declaredPods struct {
	all     []*cluster.Pod
	named   map[string]bool
	byLabel map[label][]*cluster.Pod
}

type label struct{ key, value string }

// indexed are the declared Pods of each namespace as they are put, for many
// workloads that look for theirs.
func (c *ControlPlane) indexed(v *cluster.View, put map[cluster.Key]ours[cluster.Pod]) map[string]*declaredPods {
	all := make(map[string]*declaredPods)
	for p := range c.declaredPods(v) {
		if o, is := put[p.Key]; is {
			p = o.put
		}
		d := all[p.Namespace]
		if d == nil {
			d = &declaredPods{named: make(map[string]bool), byLabel: make(map[label][]*cluster.Pod)}
			all[p.Namespace] = d
		}
		d.all = append(d.all, p)
		d.named[p.Name] = true
		for k, v := range p.Labels {
			d.byLabel[label{k, v}] = append(d.byLabel[label{k, v}], p)
		}
	}
	return all
}

// has tells whether a Pod of that name is declared.
func (d *declaredPods) has(name string) bool { return d != nil && d.named[name] }

// selected are the Pods that a selector chooses and that did not end.
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

// noRoom is what is said of Pods that were left out.
func noRoom(field string, short, room int) cluster.Refusal {
	if room == maxPods {
		return cluster.Refusal{Field: field, Err: fmt.Errorf("%d Pods are left out: no more than %d are made up", short, maxPods)}
	}
	return cluster.Refusal{Field: field, Err: fmt.Errorf("the range of Pods has no addresses for %d of them: those are left out", short)}
}
