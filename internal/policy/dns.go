package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	"portolan.dev/portolan/internal/cluster"
)

// dnsPort is what clients ask at.
const dnsPort = 53

// usualLabels are those of the cluster's DNS Pods where no Service says which
// they are.
var usualLabels = map[string]string{"k8s-app": "kube-dns"}

// DNS is the cluster's DNS as Pods reach it.
type DNS struct {
	// Service is nil when it is not in the model.
	Service *cluster.Service
	// Addrs are those that Pods ask at.
	Addrs []netip.Addr
	// ends are its Pods, targets the port that each has for either protocol.
	ends []End
}

// DNSOf finds the Pods of the DNS Service: those that it selects, else the
// templates that it selects; where there is neither, Pods that have the labels
// that it wants. Pods ask at its ClusterIPs, and at asked.
func DNSOf(v *cluster.View, service cluster.Key, asked []netip.Addr) *DNS {
	d := &DNS{Service: v.Service(service), Addrs: slices.Clone(asked)}
	selector := usualLabels
	if d.Service != nil {
		for _, addr := range d.Service.ClusterIPs {
			if !slices.Contains(d.Addrs, addr) {
				d.Addrs = append(d.Addrs, addr)
			}
		}
		selector = d.Service.Selector
	}
	if len(selector) == 0 {
		return d
	}
	wanted := cluster.Selector{Labels: selector}
	for p := range v.Pods() {
		if p.Namespace == service.Namespace && !p.Finished && p.Spec != nil && wanted.Selects(p.Labels) {
			d.ends = append(d.ends, End{p.Namespace, p.Labels, p.IPs, p.Spec.Ports, p.Spec.HostNetwork})
		}
	}
	if len(d.ends) == 0 {
		for _, k := range cluster.WorkloadKinds() {
			for w := range v.Workloads(k) {
				if w.Namespace == service.Namespace && wanted.Selects(w.Labels) {
					d.ends = append(d.ends, End{w.Namespace, w.Labels, nil, w.Spec.Ports, w.Spec.HostNetwork})
				}
			}
		}
	}
	if len(d.ends) == 0 {
		d.ends = []End{{Namespace: service.Namespace, Labels: selector, Ports: d.usualPorts()}}
	}
	d.distinct()
	return d
}

// usualPorts are those of containers that nobody has seen: what the Service
// names, and port 53 by the names that it usually has.
func (d *DNS) usualPorts() []cluster.Port {
	ports := []cluster.Port{{Name: "dns", Protocol: cluster.UDP, Number: dnsPort}, {Name: "dns-tcp", Protocol: cluster.TCP, Number: dnsPort}}
	if d.Service == nil {
		return ports
	}
	for i := range d.Service.Ports {
		if target := d.target(i); target != "" {
			ports = append(ports, cluster.Port{Name: target, Protocol: d.Service.Ports[i].Protocol, Number: dnsPort})
		}
	}
	return ports
}

// target is the target of the Service's port of that index.
func (d *DNS) target(i int) string {
	if i < len(d.Service.Targets) {
		return d.Service.Targets[i]
	}
	return ""
}

// distinct sorts the ends, so that the same one is told of each time.
func (d *DNS) distinct() {
	slices.SortFunc(d.ends, func(a, b End) int {
		return slices.CompareFunc(a.Addrs, b.Addrs, func(x, y netip.Addr) int { return x.Compare(y) })
	})
}

// port is the port that a Pod of the DNS has for port 53 of the Service.
func (d *DNS) port(e *End, p cluster.Protocol) cluster.Port {
	port := cluster.Port{Protocol: p, Number: dnsPort}
	if d.Service == nil {
		return port
	}
	for i := range d.Service.Ports {
		if own := &d.Service.Ports[i]; own.Number != dnsPort || own.Protocol != p {
			continue
		}
		target := d.target(i)
		if n, err := strconv.ParseUint(target, 10, 16); err == nil {
			port.Number = uint16(n)
			return port
		}
		for _, c := range e.Ports {
			if target != "" && c.Name == target && c.Protocol == p {
				port.Number = c.Number
			}
		}
		return port
	}
	return port
}

// Reach says whether a Pod reaches the cluster's DNS over a protocol.
type Reach struct {
	Egress, Ingress Verdict
	// Port is that of the DNS' Pods; 0 when there is nothing to reach.
	Port uint16
}

// Allowed tells whether both directions are.
func (r *Reach) Allowed() bool { return r.Egress.Allowed && r.Ingress.Allowed }

// Reach judges the connection from a Pod to each of the DNS' Pods, and gives
// the first that is forbidden. What a Pod in the node's network may do is not
// defined, and counts as allowed.
func (d *DNS) Reach(s *Set, from *End, p cluster.Protocol) Reach {
	open := Reach{Egress: Verdict{Allowed: true}, Ingress: Verdict{Allowed: true}}
	if from.HostNetwork || len(s.policies[from.Namespace]) == 0 && !d.restricted(s) {
		return open
	}
	for i := range d.ends {
		to := &d.ends[i]
		port := d.port(to, p)
		r := Reach{Egress: s.Egress(from, to, port, d.Addrs...), Ingress: s.Ingress(to, from, port), Port: port.Number}
		if !r.Allowed() {
			return r
		}
	}
	return open
}

// restricted tells whether there is any policy where the DNS' Pods are.
func (d *DNS) restricted(s *Set) bool {
	return slices.ContainsFunc(d.ends, func(e End) bool { return len(s.policies[e.Namespace]) > 0 })
}

// Names are the policies' keys, by namespace and name.
func Names(policies []*cluster.NetworkPolicy) (names []string) {
	sorted := slices.SortedFunc(slices.Values(policies), func(a, b *cluster.NetworkPolicy) int {
		return cmp.Compare(a.Key.String(), b.Key.String())
	})
	for _, p := range sorted {
		names = append(names, p.Key.String())
	}
	return names
}
