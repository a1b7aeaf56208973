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

// putPods has the model hold the Pods that are declared, with what was not said
// of them, and those that workloads make. It tells what there is no address for,
// and what can't be.
func (c *ControlPlane) putPods(tx *cluster.Tx) (refused []cluster.Refusal) {
	nodes := c.declared.nodeNames()
	wanted := c.declared.placed(nodes)
	c.addresses.declare(c.declared.pods)
	made, refused := c.makePods(tx, wanted, nodes)
	maps.Copy(wanted, made)
	c.addresses.keep(wanted)
	var without []cluster.Key
	for key, p := range wanted {
		if len(p.IPs) == 0 && !p.Finished && p.Scheduled() {
			without = append(without, key)
		}
	}
	slices.SortFunc(without, cluster.Key.Compare)
	for _, key := range without {
		full := *wanted[key]
		if full.IPs, full.Simulated = c.addressesOf(&full), true; len(full.IPs) == 0 {
			refused = append(refused, cluster.Refusal{Kind: cluster.KindPod, Key: key, Err: errors.New("the range of Pods has no address for it")})
		}
		wanted[key] = &full
	}
	for key, p := range c.pods {
		if wanted[key] == nil && tx.Pod(key) == p {
			tx.DeletePod(key)
		}
	}
	clear(c.pods)
	for key, p := range wanted {
		if tx.Pod(key) != p {
			tx.PutPod(p)
		}
		c.pods[key] = tx.Pod(key)
	}
	return refused
}

// makePods makes the Pods of all workloads. Declared Pods that a workload selects
// are its own, as its controller would have it: it makes so many fewer.
func (c *ControlPlane) makePods(tx *cluster.Tx, placed map[cluster.Key]*cluster.Pod, nodes []string) (made map[cluster.Key]*cluster.Pod, refused []cluster.Refusal) {
	made = make(map[cluster.Key]*cluster.Pod)
	all := workloads(tx.View)
	if len(all) == 0 {
		return made, nil
	}
	declared, room := indexed(placed), c.addresses.room()
	for _, w := range all {
		m := maker{workload: w, nodes: nodes, declared: declared[w.Namespace], room: room - len(made)}
		for _, p := range m.pods() {
			made[p.Key] = p
		}
		for _, err := range m.problems {
			err.Kind, err.Key = w.Kind, w.Key
			refused = append(refused, err)
		}
	}
	return made, refused
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
func (c *ControlPlane) addressesOf(p *cluster.Pod) []netip.Addr {
	if p.Spec == nil || !p.Spec.HostNetwork {
		return c.addresses.of(p.Key)
	}
	if n := c.declared.nodes[p.Node]; n != nil && len(n.Addresses) > 0 {
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

// indexed are the Pods of each namespace, for many workloads that look for
// theirs.
func indexed(pods map[cluster.Key]*cluster.Pod) map[string]*declaredPods {
	all := make(map[string]*declaredPods)
	for key, p := range pods {
		d := all[key.Namespace]
		if d == nil {
			d = &declaredPods{named: make(map[string]bool), byLabel: make(map[label][]*cluster.Pod)}
			all[key.Namespace] = d
		}
		d.all = append(d.all, p)
		d.named[key.Name] = true
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
