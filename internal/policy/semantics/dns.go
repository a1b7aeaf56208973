package semantics

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	"portolan.dev/portolan/internal/cluster"
)

// dnsPort is the port of DNS for clients.
const dnsPort = 53

// usualLabels are the labels of the DNS Pods, if the Service is not known.
var usualLabels = map[string]string{"k8s-app": "kube-dns"}

// DNS describes how Pods reach the cluster DNS.
type DNS struct {
	// Service is nil if it is not in the model.
	Service *cluster.Service
	// Addrs are the addresses to which Pods send queries.
	Addrs []netip.Addr
	ends  []End // its Pods
}

// FindDNS returns the cluster DNS for its Service: the Pods that the Service selects, else
// the templates that it selects, else assumed Pods with the labels of its selector. Pods
// send queries to the Service's cluster IPs, and to the given nameservers.
func FindDNS(v *cluster.View, service cluster.Key, nameservers []netip.Addr) *DNS {
	d := &DNS{Service: v.Service(service), Addrs: slices.Clone(nameservers)}
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

// podsOf returns the Pods of a namespace that a selector matches, sorted.
func podsOf(v *cluster.View, namespace string, selector map[string]string) (ends []End) {
	var chosen []*cluster.Pod
	for p := range v.Pods() {
		if p.Namespace == namespace && !p.Finished && p.Spec != nil &&
			(&cluster.Selector{Labels: selector}).Selects(p.Labels) {
			chosen = append(chosen, p)
		}
	}
	slices.SortFunc(chosen, func(a, b *cluster.Pod) int { return a.Compare(b.Key) })
	for _, p := range chosen {
		ends = append(ends, *EndOf(p))
	}
	return ends
}

// templatesOf returns the workloads of a namespace whose templates a selector matches.
func templatesOf(v *cluster.View, namespace string, selector map[string]string) (ends []End) {
	for _, k := range cluster.WorkloadKinds() {
		var chosen []*cluster.Workload
		for w := range v.Workloads(k) {
			if w.Namespace == namespace && (&cluster.Selector{Labels: selector}).Selects(w.Labels) {
				chosen = append(chosen, w)
			}
		}
		slices.SortFunc(chosen, func(a, b *cluster.Workload) int { return a.Compare(b.Key) })
		for _, w := range chosen {
			ends = append(ends, *EndOfWorkload(w))
		}
	}
	return ends
}

// usualPorts returns the assumed container ports of unknown Pods: port 53 under the
// Service's named target ports and under its usual names.
func (d *DNS) usualPorts() []cluster.Port {
	ports := []cluster.Port{
		{Name: "dns", Protocol: cluster.UDP, Number: dnsPort},
		{Name: "dns-tcp", Protocol: cluster.TCP, Number: dnsPort},
	}
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

// target returns the targetPort of the Service's port with that index, or "".
func (d *DNS) target(i int) string {
	if i < len(d.Service.Targets) {
		return d.Service.Targets[i]
	}
	return ""
}

// port returns the port of a DNS Pod for port 53 of the Service.
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

// Reach is the result of DNS.Reach.
type Reach struct {
	Egress, Ingress Verdict
	// Port is the port of the DNS Pod, or 0 if the connection is allowed.
	Port uint16
}

// Allowed reports whether both directions are allowed.
func (r *Reach) Allowed() bool { return r.Egress.Allowed && r.Ingress.Allowed }

// Reach evaluates the connections from a Pod to each DNS Pod over a protocol, and returns
// the first one that is denied. For a Pod with hostNetwork the result is not defined by
// Kubernetes, and counts as allowed.
func (d *DNS) Reach(s *Set, from *End, p cluster.Protocol) Reach {
	open := Reach{Egress: Verdict{Allowed: true}, Ingress: Verdict{Allowed: true}}
	if from.HostNetwork || len(s.tiers) == 0 && len(s.policies[from.Namespace]) == 0 && !d.restricted(s) {
		return open
	}
	from = d.reached(from)
	for i := range d.ends {
		to := d.reached(&d.ends[i])
		port := d.port(to, p)
		r := Reach{Egress: s.Egress(from, to, port, d.Addrs...), Ingress: s.Ingress(to, from, port), Port: port.Number}
		if !r.Allowed() {
			return r
		}
	}
	return open
}

// reached returns an end with its addresses of the families that queries are sent in: those of the other one do not
// count in IP blocks. An end without any of these is returned as it is.
func (d *DNS) reached(e *End) *End {
	of := func(addr netip.Addr) bool {
		return slices.ContainsFunc(d.Addrs, func(a netip.Addr) bool { return a.Is4() == addr.Is4() })
	}
	if len(d.Addrs) == 0 || !slices.ContainsFunc(e.Addrs, of) {
		return e
	}
	other := *e
	other.Addrs = slices.DeleteFunc(slices.Clone(e.Addrs), func(a netip.Addr) bool { return !of(a) })
	return &other
}

// restricted reports whether a namespace of the DNS Pods has any policy.
func (d *DNS) restricted(s *Set) bool {
	return slices.ContainsFunc(d.ends, func(e End) bool { return len(s.policies[e.Namespace]) > 0 })
}

// otherDNSPort is the port of DNS Pods that may not open ports below 1024, such as those
// of OpenShift (OpenShift Container Platform, Networking, "DNS Operator").
const otherDNSPort = 5353

// PossibleDNSRule returns the first egress rule that may be meant for the cluster DNS,
// if its Pods are not known: it allows a port of DNS, or all ports of Pods in other
// namespaces or of IP blocks. Policy is nil if there is none.
func PossibleDNSRule(policies []*cluster.NetworkPolicy, protocol cluster.Protocol) NearestRule {
	for _, p := range policies {
		for i := range p.EgressRules {
			r := &p.EgressRules[i]
			outside := slices.ContainsFunc(r.Peers,
				func(peer cluster.PolicyPeer) bool { return peer.Namespaces != nil || peer.Block.IsValid() })
			named := slices.ContainsFunc([]uint16{dnsPort, otherDNSPort}, func(n uint16) bool {
				return len(r.Ports) > 0 && portsAllow(r.Ports, &End{}, cluster.Port{Protocol: protocol, Number: n})
			})
			if named || outside && len(r.Ports) == 0 {
				return NearestRule{p, i, Peers}
			}
		}
	}
	return NearestRule{}
}

// Isolating returns those of Policies that are not in audit mode; if it is denied without a Decider,
// there is at least one.
func (v *Verdict) Isolating() []*cluster.NetworkPolicy {
	return slices.DeleteFunc(slices.Clone(v.Policies), func(p *cluster.NetworkPolicy) bool { return p.Audit })
}

// PolicyNames returns the keys of the policies, sorted.
func PolicyNames(policies []*cluster.NetworkPolicy) (names []string) {
	sorted := slices.SortedFunc(slices.Values(policies), func(a, b *cluster.NetworkPolicy) int {
		return cmp.Compare(a.String(), b.String())
	})
	for _, p := range sorted {
		names = append(names, p.String())
	}
	return names
}

// Egress evaluates the egress of the connections from a Pod to each DNS Pod over a protocol, and returns
// the first that is denied. DNS Pods in the network of their node count as if they had one of their own:
// policies that name them mean the DNS, wherever it is reached.
func (d *DNS) Egress(s *Set, from *End, p cluster.Protocol) Verdict {
	for i := range d.ends {
		to := d.ends[i]
		to.HostNetwork, to.Node = false, ""
		if v := s.Egress(from, &to, d.port(&to, p), d.Addrs...); !v.Allowed {
			return v
		}
	}
	return Verdict{Allowed: true}
}
