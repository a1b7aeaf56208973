package object

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"portolan.dev/portolan/internal/cluster"
)

const maxPriority = 1000

// beforeAll is the priority of a policy whose place is not known.
const beforeAll = -1

// ClusterNetworkPolicy converts a ClusterNetworkPolicy. The limits of the API on the number of rules,
// peers and names are the API server's to check.
//
// What is invalid lets nothing through. A subject selects all Pods. A rule is Unknown, and denies if its
// action is invalid. A policy without a valid tier or priority comes first, in the Admin tier if it has
// no valid tier, and only denies: as its place is not known, what it accepts could be what policies before
// it deny, and what it passes could be what policies after it deny.
func ClusterNetworkPolicy(p *policyv1alpha2.ClusterNetworkPolicy) (*cluster.ClusterNetworkPolicy, field.ErrorList) {
	errs := in(checkName(p.Name, validation.IsDNS1123Subdomain), "metadata", "name")
	audit, bad := auditMode(p.Annotations)
	errs = append(errs, bad...)
	out := &cluster.ClusterNetworkPolicy{
		Name: p.Name, Tier: cluster.Tier(p.Spec.Tier), Priority: p.Spec.Priority, Audit: audit,
	}
	subject, bad := podPeer(p.Spec.Subject.Namespaces, p.Spec.Subject.Pods)
	switch {
	case subject == nil:
		bad = nowhere(field.Required(nil, "must have either namespaces or pods"))
	case len(bad) == 0:
		out.Subject = *subject
	}
	errs = append(errs, in(bad, "spec", "subject")...)
	for i := range p.Spec.Ingress {
		r := &p.Spec.Ingress[i]
		var peers []tierPeer
		for _, from := range r.From {
			peers = append(peers, tierPeer{namespaces: from.Namespaces, pods: from.Pods})
		}
		rule, bad := tierRule(r.Name, r.Action, "from", peers, r.Protocols)
		out.IngressRules, errs = append(out.IngressRules, rule), append(errs, in(bad, "spec", "ingress", i)...)
	}
	for i := range p.Spec.Egress {
		r := &p.Spec.Egress[i]
		var peers []tierPeer
		for _, to := range r.To {
			peers = append(peers, tierPeer{to.Namespaces, to.Pods, to.Nodes, to.Networks, to.DomainNames})
		}
		rule, bad := tierRule(r.Name, r.Action, "to", peers, r.Protocols)
		out.EgressRules, errs = append(out.EgressRules, rule), append(errs, in(bad, "spec", "egress", i)...)
	}
	return out, append(errs, tierPlace(out)...)
}

// tierPlace checks the tier and the priority of a policy; without both it comes before all others.
func tierPlace(p *cluster.ClusterNetworkPolicy) (errs field.ErrorList) {
	if p.Tier != cluster.AdminTier && p.Tier != cluster.BaselineTier {
		known := []cluster.Tier{cluster.AdminTier, cluster.BaselineTier}
		errs = in(nowhere(field.NotSupported(nil, p.Tier, known)), "spec", "tier")
		p.Tier = cluster.AdminTier
	}
	if p.Priority < 0 || p.Priority > maxPriority {
		bad := nowhere(field.Invalid(nil, p.Priority, "must be between 0 and 1000, inclusive"))
		errs = append(errs, in(bad, "spec", "priority")...)
	}
	if len(errs) == 0 {
		return nil
	}
	p.Priority = beforeAll
	for _, rules := range [][]cluster.TierRule{p.IngressRules, p.EgressRules} {
		for i := range rules {
			switch r := &rules[i]; r.Action {
			case cluster.Accept:
				*r = cluster.TierRule{Name: r.Name, Action: r.Action, Unknown: true}
			case cluster.Pass:
				r.Action = cluster.Deny
			}
		}
	}
	return errs
}

// tierPeer is a peer of either direction.
type tierPeer struct {
	namespaces *metav1.LabelSelector
	pods       *policyv1alpha2.NamespacedPod
	nodes      *metav1.LabelSelector
	networks   []policyv1alpha2.CIDR
	domains    []policyv1alpha2.DomainName
}

// tierRule converts a rule whose peers are in the field called of. A rule that is not valid is Unknown.
func tierRule(
	name string,
	action policyv1alpha2.ClusterNetworkPolicyRuleAction,
	of string,
	peers []tierPeer,
	protocols []policyv1alpha2.ClusterNetworkPolicyProtocol,
) (rule cluster.TierRule, errs field.ErrorList) {
	rule = cluster.TierRule{Name: name, Action: cluster.Action(action)}
	switch rule.Action {
	case cluster.Accept, cluster.Deny, cluster.Pass:
	default:
		known := []cluster.Action{cluster.Accept, cluster.Deny, cluster.Pass}
		errs = in(nowhere(field.NotSupported(nil, rule.Action, known)), "action")
		rule.Action = cluster.Deny
	}
	if len(peers) == 0 {
		errs = append(errs, in(nowhere(field.Required(nil, "must have a peer")), of)...)
	}
	for i := range peers {
		peer, known, bad := peers[i].convert()
		if len(peer.Domains) > 0 && rule.Action != cluster.Accept {
			bad = append(bad, in(nowhere(field.Forbidden(nil, "only rules that accept can have names")), "domainNames")...)
		}
		rule.Unknown = rule.Unknown || !known
		rule.Peers, errs = append(rule.Peers, peer), append(errs, in(bad, of, i)...)
	}
	for i := range protocols {
		port, known, bad := tierPort(&protocols[i])
		rule.Unknown = rule.Unknown || !known
		rule.Ports, errs = append(rule.Ports, port), append(errs, in(bad, "protocols", i)...)
	}
	if len(errs) > 0 || rule.Unknown {
		rule = cluster.TierRule{Name: name, Action: rule.Action, Unknown: true}
	}
	return rule, errs
}

// convert converts a peer. A field of a later version of the API leaves none that is known.
func (p *tierPeer) convert() (peer cluster.TierPeer, known bool, errs field.ErrorList) {
	peer.Pods, errs = podPeer(p.namespaces, p.pods)
	if p.nodes != nil {
		nodes, bad := selector(p.nodes)
		peer.Nodes, errs = nodes, append(errs, in(bad, "nodes")...)
	}
	for i, text := range p.networks {
		network, bad := prefix(string(text))
		peer.Networks, errs = append(peer.Networks, network), append(errs, in(bad, "networks", i)...)
	}
	for i, text := range p.domains {
		name, bad := domain(string(text))
		peer.Domains, errs = append(peer.Domains, name), append(errs, in(bad, "domainNames", i)...)
	}
	fields := 0
	for _, present := range []bool{
		p.namespaces != nil, p.pods != nil, peer.Nodes != nil, len(peer.Networks) > 0, len(peer.Domains) > 0,
	} {
		if present {
			fields++
		}
	}
	if fields > 1 {
		errs = append(errs, nowhere(field.Forbidden(nil, "must have exactly one field"))...)
	}
	return peer, fields > 0, errs
}

// podPeer converts what selects Pods; nil if neither is there.
func podPeer(namespaces *metav1.LabelSelector, pods *policyv1alpha2.NamespacedPod) (*cluster.PodPeer, field.ErrorList) {
	switch {
	case namespaces != nil && pods != nil:
		return new(cluster.PodPeer), nowhere(field.Forbidden(nil, "must have either namespaces or pods, not both"))
	case namespaces != nil:
		selected, bad := selector(namespaces)
		return &cluster.PodPeer{Namespaces: *selected}, in(bad, "namespaces")
	case pods != nil:
		where, bad := selector(&pods.NamespaceSelector)
		errs := in(bad, "pods", "namespaceSelector")
		which, bad := selector(&pods.PodSelector)
		return &cluster.PodPeer{Namespaces: *where, Pods: *which}, append(errs, in(bad, "pods", "podSelector")...)
	}
	return nil, nil
}

// domain converts a name of domainNames: a name, or "*." and a name.
func domain(text string) (string, field.ErrorList) {
	name := strings.ToLower(strings.TrimSuffix(text, "."))
	rest := strings.TrimPrefix(name, "*.")
	labels := strings.Split(rest, ".")
	if len(labels) < 2 || len(rest) > 253 {
		return name, nowhere(field.Invalid(nil, text, "must be a name of at least two labels, or *. and such a name"))
	}
	for _, label := range labels {
		if !isDomainLabel(label) {
			return name, nowhere(field.Invalid(nil, text, "must be a name, or *. and a name"))
		}
	}
	return name, nil
}

// isDomainLabel reports whether a label, in lower case, is one of a DomainName.
func isDomainLabel(label string) bool {
	if label == "" || len(label) > 63 || strings.Trim(label, "-_") != label {
		return false
	}
	return strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

// tierPort converts a protocol with its ports.
func tierPort(
	p *policyv1alpha2.ClusterNetworkPolicyProtocol,
) (port cluster.PolicyPort, known bool, errs field.ErrorList) {
	var ports *policyv1alpha2.Port
	var of string
	switch {
	case p.TCP != nil:
		port.Protocol, ports, of = cluster.TCP, p.TCP.DestinationPort, "tcp"
	case p.UDP != nil:
		port.Protocol, ports, of = cluster.UDP, p.UDP.DestinationPort, "udp"
	case p.SCTP != nil:
		port.Protocol, ports, of = cluster.SCTP, p.SCTP.DestinationPort, "sctp"
	case p.DestinationNamedPort != "":
		return cluster.PolicyPort{Name: p.DestinationNamedPort}, true, nil
	default:
		return port, false, nil
	}
	switch {
	case ports == nil: // a kind of match that is not known
		return port, false, nil
	case ports.Range != nil:
		first, bad := portNumber(ports.Range.Start)
		errs = in(bad, of, "destinationPort", "range", "start")
		last, bad := portNumber(ports.Range.End)
		errs = append(errs, in(bad, of, "destinationPort", "range", "end")...)
		if len(errs) == 0 && first > last {
			bad := nowhere(field.Invalid(nil, last, "must not be less than start"))
			errs = in(bad, of, "destinationPort", "range", "end")
		}
		port.Number, port.End = first, last
	case ports.Number != 0:
		number, bad := portNumber(ports.Number)
		port.Number, port.End, errs = number, number, in(bad, of, "destinationPort", "number")
	default:
		return port, false, nil
	}
	return port, true, errs
}
