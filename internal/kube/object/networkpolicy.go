package object

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portolan.dev/portolan/internal/cluster"
)

// NetworkPolicy converts a NetworkPolicy. Without policyTypes it applies to
// ingress and, if it has egress rules, to egress (networking/v1,
// NetworkPolicySpec).
func NetworkPolicy(p *networkingv1.NetworkPolicy) (*cluster.NetworkPolicy, field.ErrorList) {
	k, errs := key(&p.ObjectMeta, validation.IsDNS1123Subdomain)
	policy := &cluster.NetworkPolicy{
		Key:     k,
		Pods:    *labelSelector(&p.Spec.PodSelector),
		Ingress: len(p.Spec.PolicyTypes) == 0 || slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress),
		Egress: len(p.Spec.PolicyTypes) == 0 && len(p.Spec.Egress) > 0 ||
			slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress),
	}
	for i := range p.Spec.Ingress {
		rule, bad := policyRule(p.Spec.Ingress[i].From, p.Spec.Ingress[i].Ports, "from")
		policy.IngressRules, errs = append(policy.IngressRules, rule), append(errs, in(bad, "spec", "ingress", i)...)
	}
	for i := range p.Spec.Egress {
		rule, bad := policyRule(p.Spec.Egress[i].To, p.Spec.Egress[i].Ports, "to")
		policy.EgressRules, errs = append(policy.EgressRules, rule), append(errs, in(bad, "spec", "egress", i)...)
	}
	return policy, errs
}

// policyRule converts a rule whose peers are in the field called of.
func policyRule(
	peers []networkingv1.NetworkPolicyPeer,
	ports []networkingv1.NetworkPolicyPort,
	of string,
) (rule cluster.PolicyRule, errs field.ErrorList) {
	for i := range peers {
		peer, bad := policyPeer(&peers[i])
		rule.Peers, errs = append(rule.Peers, peer), append(errs, in(bad, of, i)...)
	}
	for i := range ports {
		port, bad := policyPort(&ports[i])
		rule.Ports, errs = append(rule.Ports, port), append(errs, in(bad, "ports", i)...)
	}
	return rule, errs
}

func policyPeer(p *networkingv1.NetworkPolicyPeer) (peer cluster.PolicyPeer, errs field.ErrorList) {
	if p.PodSelector != nil {
		peer.Pods = labelSelector(p.PodSelector)
	}
	if p.NamespaceSelector != nil {
		peer.Namespaces = labelSelector(p.NamespaceSelector)
	}
	switch {
	case p.IPBlock == nil && peer.Pods == nil && peer.Namespaces == nil:
		return peer, nowhere(field.Required(nil, "must specify a peer"))
	case p.IPBlock == nil:
		return peer, nil
	case peer.Pods != nil || peer.Namespaces != nil:
		return peer, in(nowhere(field.Forbidden(nil, "may not be specified when podSelector or namespaceSelector is")),
			"ipBlock")
	}
	block, bad := prefix(p.IPBlock.CIDR)
	peer.Block, errs = block, in(bad, "ipBlock", "cidr")
	for i, text := range p.IPBlock.Except {
		except, bad := prefix(text)
		peer.Except, errs = append(peer.Except, except), append(errs, in(bad, "ipBlock", "except", i)...)
	}
	return peer, errs
}

func policyPort(p *networkingv1.NetworkPolicyPort) (port cluster.PolicyPort, errs field.ErrorList) {
	port.Protocol = cluster.TCP
	if p.Protocol != nil {
		var bad field.ErrorList
		port.Protocol, bad = protocol(*p.Protocol)
		errs = in(bad, "protocol")
	}
	switch {
	case p.Port == nil:
		return port, errs
	case p.Port.Type == intstr.String:
		port.Name = p.Port.StrVal
		return port, errs
	}
	number, bad := portNumber(p.Port.IntVal)
	port.Number, port.End, errs = number, number, append(errs, in(bad, "port")...)
	if p.EndPort != nil {
		end, bad := portNumber(*p.EndPort)
		port.End, errs = end, append(errs, in(bad, "endPort")...)
	}
	return port, errs
}
