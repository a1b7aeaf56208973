package lint

import (
	"fmt"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/policy/semantics"
)

// reachesDNS checks that NetworkPolicies allow the Pod to reach the cluster DNS, over
// UDP and then over TCP.
func (p *podChecker) reachesDNS() {
	if !p.loaded(cluster.KindNetworkPolicy, cluster.KindNamespace, cluster.KindService) {
		return
	}
	if usesClusterDNS, _ := p.nameserverKinds(); !usesClusterDNS {
		return
	}
	dns := p.dns()
	from := EndOf(p.subject)
	policies := p.indexed().policies
	if r := dns.Reach(policies, from, cluster.UDP); !r.Allowed() {
		p.reportBlocked(&blockedDNS{rule: NetworkPolicyBlocksDNS, Reach: r, protocol: cluster.UDP})
		return
	}
	if r := dns.Reach(policies, from, cluster.TCP); !r.Allowed() {
		p.reportBlocked(&blockedDNS{rule: NetworkPolicyDNSOverTCP, Reach: r, protocol: cluster.TCP})
	}
}

// EndOf returns the end of connections that a Subject's Pods are.
func EndOf(s *dnsconfig.Subject) *semantics.End {
	if s.Pod != nil {
		return semantics.EndOf(s.Pod)
	}
	return semantics.EndOfWorkload(s.Workload)
}

// dns returns the cluster DNS at the addresses that this Pod uses.
func (p *podChecker) dns() *semantics.DNS {
	x := p.indexed()
	key := addrTexts(p.node.ClusterDNS)
	if x.dns[key] == nil {
		x.dns[key] = semantics.FindDNS(p.View, p.DNSService, p.node.ClusterDNS)
	}
	return x.dns[key]
}

// dnsIsKnown reports whether the addresses that the Pod uses are cluster IPs of the
// Service of the cluster DNS.
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

// dnsName returns the Service of the cluster DNS, if it exists, else what it stands for.
func (c *Linter) dnsName() string {
	if c.View.Service(c.DNSService) == nil {
		return "the cluster DNS"
	}
	return c.DNSService.String()
}

// blockedDNS describes why a Subject cannot reach the cluster DNS.
type blockedDNS struct {
	rule    string
	subject *dnsconfig.Subject
	semantics.Reach
	protocol cluster.Protocol
	// possible is a rule that may be meant for the cluster DNS, where its Pods are not
	// known for sure.
	possible semantics.NearestRule
}

// ingress reports whether policies of the DNS Pods deny the ingress. Otherwise
// policies of the Subject deny the egress.
func (b *blockedDNS) ingress() bool { return b.Egress.Allowed }

// verdict returns the verdict of the direction that is denied.
func (b *blockedDNS) verdict() *semantics.Verdict {
	if b.ingress() {
		return &b.Ingress
	}
	return &b.Egress
}

// direction returns the direction that is denied.
func (b *blockedDNS) direction() string {
	if b.ingress() {
		return "ingress"
	}
	return "egress"
}

// consequence returns what fails in the Pod.
func (b *blockedDNS) consequence() string {
	if b.protocol == cluster.TCP {
		return "responses that do not fit a UDP packet are lost"
	}
	return "no name resolves"
}

// severity returns the severity of the rule, or Warning if a rule may be meant for the
// cluster DNS.
func (b *blockedDNS) severity() Severity {
	if b.possible.Policy != nil {
		return Warning
	}
	return severities[b.rule]
}

// culprit returns the policy that the finding is reported for: of those that apply,
// the one with the nearest rule, else one without rules.
func (b *blockedDNS) culprit() *cluster.NetworkPolicy {
	v := b.verdict()
	switch {
	case b.possible.Policy != nil:
		return b.possible.Policy
	case v.Nearest.Policy != nil:
		return v.Nearest.Policy
	}
	isolating := v.Isolating()
	for _, p := range isolating {
		if b.ingress() && len(p.IngressRules) == 0 || !b.ingress() && len(p.EgressRules) == 0 {
			return p
		}
	}
	return isolating[0]
}

// fix returns the cure for Pods of the given namespaces. dns is the Service of the cluster
// DNS, or what stands for it if there is none.
func (b *blockedDNS) fix(dns string, namespaces []string) string {
	if !b.ingress() {
		return fmt.Sprintf("allow egress to UDP and TCP port %d of the Pods of %s", b.Port, dns)
	}
	from := "namespace " + namespaces[0]
	if len(namespaces) > 1 {
		from = "the namespaces " + firstFew(namespaces)
	}
	return fmt.Sprintf("allow ingress from %s to UDP and TCP port %d of the Pods of %s", from, b.Port, dns)
}

// mismatch returns what the nearest rule allows instead.
func (b *blockedDNS) mismatch() string {
	switch b.verdict().Nearest.Mismatch {
	case semantics.Ports:
		return "allows other ports"
	case semantics.VirtualIPs:
		return "allows the cluster IP, which is replaced by a Pod's address first"
	case semantics.Excepted:
		return "excepts the address"
	}
	return "allows other Pods or addresses"
}

// reportBlocked reports the policies that deny the Pod's queries, with the nearest rule.
func (p *podChecker) reportBlocked(b *blockedDNS) {
	b.subject = p.subject
	if d := b.verdict().Decider; d.Policy != nil {
		p.add(
			b.rule,
			"",
			fmt.Sprintf("have a rule before it that accepts UDP and TCP port %d of the Pods of %s", b.Port, p.dnsName()),
			"%s of clusternetworkpolicy %s denies the cluster DNS at %s port %d: %s",
			cluster.RulePath(b.direction(), d.Rule),
			d.Policy.Name,
			b.protocol,
			b.Port,
			b.consequence(),
		)
		return
	}
	if !b.ingress() && !p.dnsIsKnown() {
		b.possible = semantics.PossibleDNSRule(b.Egress.Policies, b.protocol)
	}
	near := ""
	switch n := b.verdict().Nearest; {
	case b.possible.Policy != nil:
		near = fmt.Sprintf(
			", unless %s of %s is meant for it",
			cluster.RulePath("egress", b.possible.Rule),
			b.possible.Policy.Key,
		)
	case n.Policy != nil:
		near = fmt.Sprintf(
			" (the nearest rule, %s of %s, %s)",
			cluster.RulePath(b.direction(), n.Rule),
			n.Policy.Key,
			b.mismatch(),
		)
	}
	way := b.direction() + " to the cluster DNS"
	p.addAs(b.severity(), b.rule, "", b.fix(p.dnsName(), []string{p.subject.Namespace}),
		"no rule of %s allows %s at %s port %d%s: %s",
		networkPolicies(semantics.PolicyNames(b.verdict().Policies)), way, b.protocol, b.Port, near, b.consequence())
	p.findings[len(p.findings)-1].blocked = b
}

// networkPolicies lists the policies that apply.
func networkPolicies(names []string) string {
	if len(names) == 1 {
		return "networkpolicy " + names[0]
	}
	return "the networkpolicies " + firstFew(names)
}

// groupByPolicy replaces the findings about Pods that cannot reach the cluster DNS by
// one finding for each NetworkPolicy and rule.
func (c *Linter) groupByPolicy(all []Finding) []Finding {
	type group struct {
		policy *cluster.NetworkPolicy
		rule   string
		denied string
	}
	var order []group
	of := make(map[group][]*blockedDNS)
	all = slices.DeleteFunc(all, func(f Finding) bool {
		if f.blocked == nil {
			return false
		}
		g := group{f.blocked.culprit(), f.Rule, f.blocked.direction()}
		if of[g] == nil {
			order = append(order, g)
		}
		of[g] = append(of[g], f.blocked)
		return true
	})
	for _, g := range order {
		j := c.reporterFor(cluster.KindNetworkPolicy, g.policy.Key)
		j.policyBlocks(of[g])
		all = append(all, j.findings...)
	}
	return all
}

// policyBlocks reports the Subjects that a NetworkPolicy keeps from the cluster DNS in
// one direction.
func (j *reporter) policyBlocks(all []*blockedDNS) {
	first := all[0]
	var subjects, namespaces []string
	others := ""
	for _, b := range all {
		subjects = append(subjects, b.subject.String())
		namespaces = append(namespaces, b.subject.Namespace)
		if len(b.verdict().Policies) > 1 {
			others = " or of the other policies that apply"
		}
		if b.severity() > first.severity() {
			first = b
		}
	}
	slices.Sort(namespaces)
	whose := subjects[0]
	if len(subjects) > 1 {
		whose = fmt.Sprintf("%d Pods and workloads (%s)", len(subjects), firstFew(subjects))
	}
	near := ""
	switch n := first.verdict().Nearest; {
	case first.possible.Policy != nil:
		near = fmt.Sprintf(", unless %s is meant for it", cluster.RulePath("egress", first.possible.Rule))
	case n.Policy != nil:
		near = fmt.Sprintf(" (the nearest rule, %s, %s)", cluster.RulePath(first.direction(), n.Rule), first.mismatch())
	}
	j.addAs(first.severity(), first.rule, "spec."+first.direction(), first.fix(j.dnsName(), slices.Compact(namespaces)),
		"no rule of it%s lets %s reach the cluster DNS at %s port %d%s: %s",
		others, whose, first.protocol, first.Port, near, first.consequence())
}
