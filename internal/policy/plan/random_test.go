package plan

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"portolan.dev/portolan/internal/cluster"
)

// random makes random objects, few and alike, so that they often concern each other.
type random struct{ *rand.Rand }

func pick[T any](r *random, from ...T) T { return from[r.IntN(len(from))] }

// rarely is true once in n times.
func (r *random) rarely(n int) bool { return r.IntN(n) == 0 }

func some[T any](r *random, most int, one func() T) (all []T) {
	for range r.IntN(most + 1) {
		all = append(all, one())
	}
	return all
}

func (r *random) labels() map[string]string {
	labels := make(map[string]string)
	for range r.IntN(4) {
		labels[pick(r, "app", "tier")] = pick(r, "a", "b", "c")
	}
	return labels
}

func (r *random) selector() *cluster.Selector {
	s := new(cluster.Selector)
	if r.rarely(4) {
		return s
	}
	if r.rarely(2) {
		s.Labels = r.labels()
	}
	s.Requirements = some(r, 2, func() cluster.Requirement {
		q := cluster.Requirement{Label: pick(r, "app", "tier"), Operator: pick(r, cluster.In, cluster.In, cluster.NotIn, cluster.Exists, cluster.DoesNotExist)}
		if q.Operator == cluster.In || q.Operator == cluster.NotIn {
			q.Values = append(some(r, 2, func() string { return pick(r, "a", "b", "c") }), "a")
		}
		return q
	})
	return s
}

func (r *random) namespaces() *cluster.Selector {
	s := r.selector()
	if r.rarely(3) {
		return &cluster.Selector{Requirements: []cluster.Requirement{{
			Label: nameLabel, Operator: pick(r, cluster.In, cluster.NotIn), Values: append(some(r, 1, r.namespace), r.namespace()),
		}}}
	}
	return s
}

func (r *random) namespace() string { return pick(r, "one", "two", "three") }

func (r *random) key() cluster.Key {
	return cluster.Key{Namespace: r.namespace(), Name: pick(r, "a", "b", "c", "d")}
}

func (r *random) prefix() netip.Prefix {
	return netip.MustParsePrefix(pick(r, "0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/24", "10.1.0.0/29", "10.2.0.2/32", "192.0.2.0/24", "::/0", "fd01::/64", "fd02::2/128", "192.168.0.2/31", "10.1.0.3/24"))
}

func (r *random) protocol() cluster.Protocol {
	return pick(r, cluster.TCP, cluster.TCP, cluster.UDP, cluster.SCTP)
}

func (r *random) portName() string { return pick(r, "web", "dns", "none") }

func (r *random) policyPort() cluster.PolicyPort {
	p := cluster.PolicyPort{Protocol: r.protocol()}
	switch r.IntN(6) {
	case 0:
	case 1, 2:
		p.Name = r.portName()
	default:
		p.Number = pick[uint16](r, 53, 80, 81, 8080)
		p.End = p.Number + pick[uint16](r, 0, 0, 1, 1000)
	}
	return p
}

func (r *random) domain() string {
	return pick(r, "a.example", "b.example", "*.example", "www.a.example", "*.a.example")
}

func (r *random) policyPeer() cluster.PolicyPeer {
	switch r.IntN(8) {
	case 0, 1:
		return cluster.PolicyPeer{Block: r.prefix(), Except: some(r, 2, r.prefix)}
	case 2:
		return cluster.PolicyPeer{Domains: append(some(r, 1, r.domain), r.domain())}
	case 3, 4:
		return cluster.PolicyPeer{Pods: r.selector()}
	case 5:
		return cluster.PolicyPeer{Namespaces: r.namespaces()}
	}
	return cluster.PolicyPeer{Pods: r.selector(), Namespaces: r.namespaces()}
}

func (r *random) policyRule() cluster.PolicyRule {
	return cluster.PolicyRule{Peers: some(r, 3, r.policyPeer), Ports: some(r, 3, r.policyPort)}
}

func (r *random) policy() *cluster.NetworkPolicy {
	p := &cluster.NetworkPolicy{Key: r.key(), Pods: *r.selector(), Ingress: !r.rarely(3), Egress: !r.rarely(3), Audit: r.rarely(4)}
	p.IngressRules, p.EgressRules = some(r, 2, r.policyRule), some(r, 2, r.policyRule)
	return p
}

func (r *random) podPeer() *cluster.PodPeer {
	return &cluster.PodPeer{Namespaces: *r.namespaces(), Pods: *r.selector()}
}

func (r *random) tierPeer() cluster.TierPeer {
	switch r.IntN(6) {
	case 0:
		return cluster.TierPeer{Nodes: r.selector()}
	case 1:
		return cluster.TierPeer{Networks: append(some(r, 2, r.prefix), r.prefix())}
	case 2:
		return cluster.TierPeer{Domains: []string{r.domain()}}
	}
	return cluster.TierPeer{Pods: r.podPeer()}
}

func (r *random) tierPort() cluster.PolicyPort {
	p := r.policyPort()
	if p.Name != "" && r.rarely(2) {
		p.Protocol = ""
	}
	return p
}

func (r *random) tierRule() cluster.TierRule {
	rule := cluster.TierRule{
		Name: pick(r, "", "a rule", `"`), Action: pick(r, cluster.Accept, cluster.Deny, cluster.Pass),
		Peers: append(some(r, 2, r.tierPeer), r.tierPeer()), Ports: some(r, 2, r.tierPort),
	}
	if r.rarely(15) {
		rule = cluster.TierRule{Action: rule.Action, Unknown: true}
	}
	return rule
}

func (r *random) clusterPolicy() *cluster.ClusterNetworkPolicy {
	p := &cluster.ClusterNetworkPolicy{
		Name: pick(r, "a", "b", "c"), Tier: pick(r, cluster.AdminTier, cluster.BaselineTier), Priority: int32(r.IntN(3)),
		Subject: *r.podPeer(), Audit: r.rarely(4),
	}
	p.IngressRules, p.EgressRules = some(r, 3, r.tierRule), some(r, 3, r.tierRule)
	return p
}

func (r *random) node() string { return pick(r, "n1", "n2", "n3") }

func (r *random) nodeObject(name string) *cluster.Node {
	n := &cluster.Node{Name: name, Labels: r.labels()}
	i := name[1:]
	n.Addresses = []netip.Addr{netip.MustParseAddr("192.168.0." + i)}
	if r.rarely(2) {
		n.Addresses = append(n.Addresses, netip.MustParseAddr("fd00::"+i))
	}
	n.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10." + i + ".0.0/24"), netip.MustParsePrefix("fd0" + i + "::/64")}
	return n
}

// pod returns a Pod with the given addresses.
func (r *random) pod(key cluster.Key, node string, addrs ...netip.Addr) *cluster.Pod {
	p := &cluster.Pod{Key: key, Node: node, IPs: addrs, Labels: r.labels(), Spec: &cluster.PodSpec{}}
	p.Finished, p.Deleting = r.rarely(10), r.rarely(10)
	p.Spec.Ports = some(r, 3, func() cluster.Port {
		return cluster.Port{Name: pick(r, "web", "dns", ""), Protocol: r.protocol(), Number: pick[uint16](r, 53, 80, 8080)}
	})
	return p
}

// podAddr is an address of the node with that number, of Pods.
func podAddr(node string, i int, v6 bool) netip.Addr {
	if v6 {
		return netip.MustParseAddr(fmt.Sprintf("fd0%s::%d", node[1:], i))
	}
	return netip.MustParseAddr(fmt.Sprintf("10.%s.0.%d", node[1:], i))
}

func (r *random) service() *cluster.Service {
	return &cluster.Service{
		Key: dnsConfig.Service, Selector: pick(r, map[string]string{"app": "a"}, map[string]string{"tier": "b"}, nil),
		ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.10")},
		Ports:      []cluster.Port{{Protocol: cluster.UDP, Number: 53}, {Protocol: cluster.TCP, Number: 53}},
		Targets:    pick(r, nil, []string{"dns", "dns"}, []string{"8080", ""}),
	}
}

// dnsConfig is the DNS of every node.
var dnsConfig = DNS{
	Service: cluster.Key{Namespace: "one", Name: "dns"}, Addrs: []netip.Addr{netip.MustParseAddr("169.254.20.10")},
}
