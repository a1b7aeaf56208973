package semantics

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
	ends  []End // its Pods
}

// DNSOf finds the Pods of the DNS Service: those that it selects, else the
// templates that it selects; where there is neither, Pods that have the labels
// that it wants. Pods ask at its ClusterIPs, and at asked.
func FindDNS(v *cluster.View, service cluster.Key, asked []netip.Addr) *DNS {
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
	if d.ends = podsOf(v, service.Namespace, selector); len(d.ends) == 0 {
		d.ends = templatesOf(v, service.Namespace, selector)
	}
	if len(d.ends) == 0 {
		d.ends = []End{{Namespace: service.Namespace, Labels: selector, Ports: d.usualPorts()}}
	}
	return d
}

// podsOf are the Pods of a namespace that a selector chooses, sorted.
func podsOf(v *cluster.View, namespace string, selector map[string]string) (ends []End) {
	var chosen []*cluster.Pod
	for p := range v.Pods() {
		if p.Namespace == namespace && !p.Finished && p.Spec != nil && (&cluster.Selector{Labels: selector}).Selects(p.Labels) {
			chosen = append(chosen, p)
		}
	}
	slices.SortFunc(chosen, func(a, b *cluster.Pod) int { return a.Key.Compare(b.Key) })
	for _, p := range chosen {
		ends = append(ends, End{Namespace: p.Namespace, Labels: p.Labels, Addrs: p.IPs, Ports: p.Spec.Ports, HostNetwork: p.Spec.HostNetwork})
	}
	return ends
}

// templatesOf is podsOf of workloads.
func templatesOf(v *cluster.View, namespace string, selector map[string]string) (ends []End) {
	for _, k := range cluster.WorkloadKinds() {
		var chosen []*cluster.Workload
		for w := range v.Workloads(k) {
			if w.Namespace == namespace && (&cluster.Selector{Labels: selector}).Selects(w.Labels) {
				chosen = append(chosen, w)
			}
		}
		slices.SortFunc(chosen, func(a, b *cluster.Workload) int { return a.Key.Compare(b.Key) })
		for _, w := range chosen {
			ends = append(ends, End{Namespace: w.Namespace, Labels: w.Labels, Ports: w.Spec.Ports, HostNetwork: w.Spec.HostNetwork})
		}
	}
	return ends
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

// otherDNSPort is that of DNS Pods that may not open ports below 1024, such as
// OpenShift's (OpenShift Container Platform, Networking, "DNS Operator").
const otherDNSPort = 5353

// PerhapsDNS is the first rule for egress that may be meant for the cluster's
// DNS where that is not known: it names a port of DNS, or allows all ports of
// Pods elsewhere or of addresses. Its Policy is nil if there is none.
func PossibleDNSRule(policies []*cluster.NetworkPolicy, protocol cluster.Protocol) NearestRule {
	for _, p := range policies {
		for i := range p.EgressRules {
			r := &p.EgressRules[i]
			elsewhere := slices.ContainsFunc(r.Peers, func(peer cluster.PolicyPeer) bool { return peer.Namespaces != nil || peer.Block.IsValid() })
			named := slices.ContainsFunc([]uint16{dnsPort, otherDNSPort}, func(n uint16) bool {
				return len(r.Ports) > 0 && portsAllow(r.Ports, &End{}, cluster.Port{Protocol: protocol, Number: n})
			})
			if named || elsewhere && len(r.Ports) == 0 {
				return NearestRule{p, i, Peers}
			}
		}
	}
	return NearestRule{}
}

// Names are the policies' keys, by namespace and name.
func PolicyNames(policies []*cluster.NetworkPolicy) (names []string) {
	sorted := slices.SortedFunc(slices.Values(policies), func(a, b *cluster.NetworkPolicy) int {
		return cmp.Compare(a.Key.String(), b.Key.String())
	})
	for _, p := range sorted {
		names = append(names, p.Key.String())
	}
	return names
}
