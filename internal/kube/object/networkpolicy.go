package object

import (
	"net/netip"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portolan.dev/portolan/internal/cluster"
)

// NetworkPolicy converts a NetworkPolicy. Without policyTypes it applies to ingress and, if it has egress
// rules or cluster.AnnotationEgressDomains, to egress (networking/v1, NetworkPolicySpec).
//
// What is invalid allows nothing: a podSelector selects all Pods of the namespace, a type of policyTypes
// is both, and peers, ports and rules that are left with none of them are missing.
func NetworkPolicy(p *networkingv1.NetworkPolicy) (*cluster.NetworkPolicy, field.ErrorList) {
	k, errs := key(&p.ObjectMeta, validation.IsDNS1123Subdomain)
	audit, bad := auditMode(p.Annotations)
	errs = append(errs, bad...)
	policy := &cluster.NetworkPolicy{Key: k, Audit: audit}
	pods, bad := selector(&p.Spec.PodSelector)
	if errs = append(errs, in(bad, "spec", "podSelector")...); len(bad) == 0 {
		policy.Pods = *pods
	}
	domains, named, bad := egressDomains(p.Annotations)
	errs = append(errs, bad...)
	policy.Ingress = len(p.Spec.PolicyTypes) == 0
	policy.Egress = policy.Ingress && (len(p.Spec.Egress) > 0 || named)
	for i, of := range p.Spec.PolicyTypes {
		if of != networkingv1.PolicyTypeIngress && of != networkingv1.PolicyTypeEgress {
			known := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
			errs = append(errs, in(nowhere(field.NotSupported(nil, of, known)), "spec", "policyTypes", i)...)
		}
		policy.Ingress = policy.Ingress || of != networkingv1.PolicyTypeEgress
		policy.Egress = policy.Egress || of != networkingv1.PolicyTypeIngress
	}
	for i := range p.Spec.Ingress {
		rule, allows, bad := policyRule(p.Spec.Ingress[i].From, p.Spec.Ingress[i].Ports, "from")
		errs = append(errs, in(bad, "spec", "ingress", i)...)
		if allows {
			policy.IngressRules = append(policy.IngressRules, rule)
		}
	}
	for i := range p.Spec.Egress {
		rule, allows, bad := policyRule(p.Spec.Egress[i].To, p.Spec.Egress[i].Ports, "to")
		errs = append(errs, in(bad, "spec", "egress", i)...)
		if allows {
			policy.EgressRules = append(policy.EgressRules, rule)
		}
	}
	if len(domains) > 0 {
		rule := cluster.PolicyRule{Peers: []cluster.PolicyPeer{{Domains: domains}}}
		policy.EgressRules = append(policy.EgressRules, rule)
	}
	return policy, errs
}

// auditMode returns the value of cluster.AnnotationAudit; one that is neither true nor false is false.
func auditMode(annotations map[string]string) (audit bool, errs field.ErrorList) {
	switch text, ok := annotations[cluster.AnnotationAudit]; {
	case text == "true":
		return true, nil
	case ok && text != "false":
		errs = nowhere(field.NotSupported(nil, text, []string{"true", "false"}))
	}
	return false, in(errs, "metadata", "annotations", cluster.AnnotationAudit)
}

// egressDomains returns the names of cluster.AnnotationEgressDomains that are valid, and whether the
// annotation is there.
func egressDomains(annotations map[string]string) (domains []string, named bool, errs field.ErrorList) {
	list, named := annotations[cluster.AnnotationEgressDomains]
	if !named {
		return nil, false, nil
	}
	for text := range strings.SplitSeq(list, ",") {
		name, bad := domain(strings.TrimSpace(text))
		errs = append(errs, in(bad, "metadata", "annotations", cluster.AnnotationEgressDomains)...)
		if len(bad) == 0 && !slices.Contains(domains, name) {
			domains = append(domains, name)
		}
	}
	return domains, true, errs
}

// selector converts a label selector of a policy. Invalid values of matchExpressions are valid, as in
// objects that API servers store: no object has such labels.
func selector(s *metav1.LabelSelector) (*cluster.Selector, field.ErrorList) {
	lenient := metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: true}
	return labelSelector(s), metav1validation.ValidateLabelSelector(s, lenient, nil)
}

// policyRule converts a rule whose peers are in the field called of. allows reports whether anything is
// left that it allows.
func policyRule(
	peers []networkingv1.NetworkPolicyPeer,
	ports []networkingv1.NetworkPolicyPort,
	of string,
) (rule cluster.PolicyRule, allows bool, errs field.ErrorList) {
	for i := range peers {
		peer, bad := policyPeer(&peers[i])
		if errs = append(errs, in(bad, of, i)...); len(bad) == 0 {
			rule.Peers = append(rule.Peers, peer)
		}
	}
	for i := range ports {
		port, bad := policyPort(&ports[i])
		if errs = append(errs, in(bad, "ports", i)...); len(bad) == 0 {
			rule.Ports = append(rule.Ports, port)
		}
	}
	allows = (len(rule.Peers) > 0 || len(peers) == 0) && (len(rule.Ports) > 0 || len(ports) == 0)
	return rule, allows, errs
}

func policyPeer(p *networkingv1.NetworkPolicyPeer) (peer cluster.PolicyPeer, errs field.ErrorList) {
	var bad field.ErrorList
	if p.PodSelector != nil {
		peer.Pods, bad = selector(p.PodSelector)
		errs = in(bad, "podSelector")
	}
	if p.NamespaceSelector != nil {
		peer.Namespaces, bad = selector(p.NamespaceSelector)
		errs = append(errs, in(bad, "namespaceSelector")...)
	}
	switch {
	case p.IPBlock == nil && peer.Pods == nil && peer.Namespaces == nil:
		return peer, nowhere(field.Required(nil, "must specify a peer"))
	case p.IPBlock == nil:
		return peer, errs
	case peer.Pods != nil || peer.Namespaces != nil:
		return peer, in(nowhere(field.Forbidden(nil, "may not be specified when podSelector or namespaceSelector is")),
			"ipBlock")
	}
	block, bad := prefix(p.IPBlock.CIDR)
	peer.Block, errs = block, in(bad, "ipBlock", "cidr")
	for i, text := range p.IPBlock.Except {
		except, bad := prefix(text)
		if len(bad) == 0 && len(errs) == 0 && !isWithin(except, block) {
			bad = nowhere(field.Invalid(nil, text, "must be a strict subset of cidr"))
		}
		peer.Except, errs = append(peer.Except, except), append(errs, in(bad, "ipBlock", "except", i)...)
	}
	return peer, errs
}

// isWithin reports whether part is in the range whole and smaller.
func isWithin(part, whole netip.Prefix) bool {
	return whole.Contains(part.Addr()) && part.Bits() > whole.Bits()
}

func policyPort(p *networkingv1.NetworkPolicyPort) (port cluster.PolicyPort, errs field.ErrorList) {
	port.Protocol = cluster.TCP
	if p.Protocol != nil {
		var bad field.ErrorList
		port.Protocol, bad = protocol(*p.Protocol)
		errs = in(bad, "protocol")
	}
	named := p.Port != nil && p.Port.Type == intstr.String
	if p.EndPort != nil && (p.Port == nil || named) {
		bad := nowhere(field.Forbidden(nil, "may not be specified without port, or when port is a name"))
		errs = append(errs, in(bad, "endPort")...)
	}
	switch {
	case p.Port == nil:
		return port, errs
	case named:
		port.Name = p.Port.StrVal
		for _, msg := range validation.IsValidPortName(port.Name) {
			errs = append(errs, in(nowhere(field.Invalid(nil, port.Name, msg)), "port")...)
		}
		return port, errs
	}
	number, bad := portNumber(p.Port.IntVal)
	port.Number, port.End, errs = number, number, append(errs, in(bad, "port")...)
	if p.EndPort != nil {
		end, bad := portNumber(*p.EndPort)
		if len(bad) == 0 && end < number {
			bad = nowhere(field.Invalid(nil, *p.EndPort, "must be greater than or equal to port"))
		}
		port.End, errs = end, append(errs, in(bad, "endPort")...)
	}
	return port, errs
}
