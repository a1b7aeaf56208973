package lint

import (
	"fmt"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/policy/semantics"
)

// reachesDNS: NetworkPolicies must let the Pod ask.
func (p *podChecker) reachesDNS() {
	if !p.loaded(cluster.KindNetworkPolicy, cluster.KindNamespace, cluster.KindService) {
		return
	}
	if asks, _ := p.asks(); !asks {
		return
	}
	dns := p.dns()
	from := &semantics.End{Namespace: p.subject.Namespace, Labels: p.subject.Labels, Ports: p.subject.Spec.Ports, HostNetwork: p.subject.Spec.HostNetwork}
	if p.subject.Pod != nil {
		from.Addrs = p.subject.Pod.IPs
	}
	policies := p.indexed().policies
	if r := dns.Reach(policies, from, cluster.UDP); !r.Allowed() {
		p.forbidden(&blocked{rule: NetworkPolicyBlocksDNS, Reach: r, protocol: cluster.UDP})
		return
	}
	if r := dns.Reach(policies, from, cluster.TCP); !r.Allowed() {
		p.forbidden(&blocked{rule: NetworkPolicyDNSOverTCP, Reach: r, protocol: cluster.TCP})
	}
}

// dns is the cluster's DNS as this Pod asks it.
func (p *podChecker) dns() *semantics.DNS {
	x := p.indexed()
	key := addrTexts(p.node.ClusterDNS)
	if x.dns[key] == nil {
		x.dns[key] = semantics.FindDNS(p.View, p.DNSService, p.node.ClusterDNS)
	}
	return x.dns[key]
}

// dnsIsKnown tells whether the addresses that the Pod asks at are those of the
// DNS Service.
func (p *podChecker) dnsIsKnown() bool {
	s := p.View.Service(p.DNSService)
	if s == nil {
		return false
	}
	for _, addr := range p.node.ClusterDNS {
		if !slices.Contains(s.ClusterIPs, addr) {
			return false
		}
	}
	return true
}

// blocked is what keeps a Subject from asking the cluster's DNS.
type blocked struct {
	rule    string
	subject *dnsconfig.Subject
	semantics.Reach
	protocol cluster.Protocol
	// perhaps is a rule that may be for the DNS, where it is not known for sure
	// which that is.
	perhaps semantics.NearestRule
}

// ingress tells whether it is the DNS that does not take the query; otherwise
// it does not leave the Pod.
func (b *blocked) ingress() bool { return b.Egress.Allowed }

// verdict is that of the direction which is forbidden.
func (b *blocked) verdict() *semantics.Verdict {
	if b.ingress() {
		return &b.Ingress
	}
	return &b.Egress
}

// field is that of the policies' rules.
func (b *blocked) field() string {
	if b.ingress() {
		return "spec.ingress"
	}
	return "spec.egress"
}

// consequence is what the Pod does not get.
func (b *blocked) consequence() string {
	if b.protocol == cluster.TCP {
		return "answers that do not fit a packet are lost"
	}
	return "no name resolves"
}

// severity is the rule's own, where it is sure.
func (b *blocked) severity() Severity {
	if b.perhaps.Policy != nil {
		return Warning
	}
	return severities[b.rule]
}

// culprit is the policy to blame of those that apply: that with the rule which
// comes nearest, or one that has no rules.
func (b *blocked) culprit() *cluster.NetworkPolicy {
	v := b.verdict()
	switch {
	case b.perhaps.Policy != nil:
		return b.perhaps.Policy
	case v.Nearest.Policy != nil:
		return v.Nearest.Policy
	}
	for _, p := range v.Policies {
		if b.ingress() && len(p.IngressRules) == 0 || !b.ingress() && len(p.EgressRules) == 0 {
			return p
		}
	}
	return v.Policies[0]
}

// fix is the cure, for Pods of some namespaces.
func (b *blocked) fix(service cluster.Key, namespaces []string) string {
	if !b.ingress() {
		return fmt.Sprintf("allow egress to UDP and TCP port %d of the Pods of %s", b.Port, service)
	}
	from := "namespace " + namespaces[0]
	if len(namespaces) > 1 {
		from = "the namespaces " + some(namespaces)
	}
	return fmt.Sprintf("allow ingress from %s at UDP and TCP port %d of the Pods of %s", from, b.Port, service)
}

// lacks says what the rule that comes nearest does not allow.
func (b *blocked) lacks() string {
	if b.verdict().Nearest.Mismatch == semantics.Ports {
		return "has other ports"
	}
	return "is for other Pods or addresses"
}

// forbidden says which policies forbid a Pod to ask, and what the nearest rule
// lacks.
func (p *podChecker) forbidden(b *blocked) {
	b.subject = p.subject
	if !b.ingress() && !p.dnsIsKnown() {
		b.perhaps = semantics.PossibleDNSRule(b.Egress.Policies, b.protocol)
	}
	near := ""
	switch n := b.verdict().Nearest; {
	case b.perhaps.Policy != nil:
		near = fmt.Sprintf(", unless spec.egress[%d] of %s is for it", b.perhaps.Rule, b.perhaps.Policy.Key)
	case n.Policy != nil:
		near = fmt.Sprintf(", the rule that comes nearest %s, see %s[%d] of %s", b.lacks(), b.field(), n.Rule, n.Policy.Key)
	}
	way := "leave the Pod for"
	if b.ingress() {
		way = "reach"
	}
	p.addAs(b.severity(), b.rule, "", b.fix(p.DNSService, []string{p.subject.Namespace}), "no rule of %s lets %s port %d %s the cluster's DNS%s: %s",
		networkPolicies(semantics.PolicyNames(b.verdict().Policies)), b.protocol, b.Port, way, near, b.consequence())
	p.findings[len(p.findings)-1].blocked = b
}

// networkPolicies names those that apply.
func networkPolicies(names []string) string {
	if len(names) == 1 {
		return "networkpolicy " + names[0]
	}
	return "the networkpolicies " + some(names)
}

// byPolicy tells of each NetworkPolicy once what is found of all Pods that it
// keeps from asking.
func (c *Linter) byPolicy(all []Finding) []Finding {
	type group struct {
		policy *cluster.NetworkPolicy
		rule   string
		field  string
	}
	var order []group
	of := make(map[group][]*blocked)
	all = slices.DeleteFunc(all, func(f Finding) bool {
		if f.blocked == nil {
			return false
		}
		g := group{f.blocked.culprit(), f.Rule, f.blocked.field()}
		if of[g] == nil {
			order = append(order, g)
		}
		of[g] = append(of[g], f.blocked)
		return true
	})
	for _, g := range order {
		j := c.reporterFor(cluster.KindNetworkPolicy, g.policy.Key)
		j.blocks(of[g])
		all = append(all, j.findings...)
	}
	return all
}

// blocks tells of a NetworkPolicy whom it keeps from asking, in one direction.
func (j *reporter) blocks(those []*blocked) {
	first := those[0]
	var subjects, namespaces []string
	others := ""
	for _, b := range those {
		subjects = append(subjects, b.subject.String())
		namespaces = append(namespaces, b.subject.Namespace)
		if len(b.verdict().Policies) > 1 {
			others = ", nor of others beside it,"
		}
		if b.severity() > first.severity() {
			first = b
		}
	}
	slices.Sort(namespaces)
	whose := subjects[0]
	if len(subjects) > 1 {
		whose = fmt.Sprintf("%d Pods and workloads (%s)", len(subjects), some(subjects))
	}
	near := ""
	switch n := first.verdict().Nearest; {
	case first.perhaps.Policy != nil:
		near = fmt.Sprintf(", unless spec.egress[%d] is for it", first.perhaps.Rule)
	case n.Policy != nil:
		near = fmt.Sprintf(", the rule that comes nearest, %s[%d], %s", first.field(), n.Rule, first.lacks())
	}
	j.addAs(first.severity(), first.rule, first.field(), first.fix(j.DNSService, slices.Compact(namespaces)), "no rule of it%s lets %s ask the cluster's DNS at %s port %d%s: %s",
		others, whose, first.protocol, first.Port, near, first.consequence())
}
