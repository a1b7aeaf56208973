package cluster

import (
	"net/netip"
	"slices"
	"strconv"
)

// Selector selects objects by their labels (metav1.LabelSelector). The empty
// Selector selects all.
type Selector struct {
	Labels       map[string]string
	Requirements []Requirement
}

// Requirement is one of a Selector's matchExpressions.
type Requirement struct {
	Label    string
	Operator Operator
	Values   []string
}

// Operator is the operator of a Requirement, as the API spells it.
type Operator string

// The operators.
const (
	In           Operator = "In"
	NotIn        Operator = "NotIn"
	Exists       Operator = "Exists"
	DoesNotExist Operator = "DoesNotExist"
)

// Selects reports whether the Selector selects an object with these labels.
func (s *Selector) Selects(labels map[string]string) bool {
	for k, v := range s.Labels {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	for i := range s.Requirements {
		if !s.Requirements[i].met(labels) {
			return false
		}
	}
	return true
}

func (r *Requirement) met(labels map[string]string) bool {
	value, there := labels[r.Label]
	switch r.Operator {
	case In:
		return there && slices.Contains(r.Values, value)
	case NotIn:
		return !there || !slices.Contains(r.Values, value)
	case Exists:
		return there
	case DoesNotExist:
		return !there
	}
	return false
}

// NetworkPolicy is a NetworkPolicy (networking.k8s.io/v1).
type NetworkPolicy struct {
	Key
	// Pods selects the Pods of its namespace that it applies to.
	Pods Selector
	// Ingress and Egress are the directions that it applies to: traffic that no
	// rule of any policy allows there is denied.
	Ingress, Egress           bool
	IngressRules, EgressRules []PolicyRule
	// Audit: what only this policy denies is logged instead (AnnotationAudit).
	Audit bool
}

// Annotations of policies.
const (
	// AnnotationAudit, if it is "true", has a NetworkPolicy or ClusterNetworkPolicy log what it would deny.
	AnnotationAudit = "portolan.dev/policy-audit"
	// AnnotationEgressDomains allows a NetworkPolicy's Pods connections to the addresses of domain names:
	// names and wildcards as in ClusterNetworkPolicies, separated by commas.
	AnnotationEgressDomains = "portolan.dev/egress-domains"
)

// Ref returns kind and key.
func (p *NetworkPolicy) Ref() Ref { return Ref{KindNetworkPolicy, p.Key} }

// PolicyRule allows traffic with any of the peers on any of the ports. No peers
// are all, and no ports are all.
type PolicyRule struct {
	Peers []PolicyPeer
	Ports []PolicyPort
}

// PolicyPeer is either Pods, addresses or domain names. The Pods are those that Pods selects in
// the namespaces that Namespaces selects. Nil Namespaces is the policy's own; nil
// Pods with Namespaces is all Pods there.
type PolicyPeer struct {
	Pods, Namespaces *Selector
	Block            netip.Prefix // the zero Prefix when it is not a block
	Except           []netip.Prefix
	// Domains are those of AnnotationEgressDomains, as in TierPeer; the other fields are zero then.
	Domains []string
}

// PolicyPort is the ports of a protocol from Number to End, or the one called
// Name; without both, all ports.
type PolicyPort struct {
	Protocol    Protocol
	Number, End uint16
	Name        string
}

// RulePath returns the path in the API of a rule of a NetworkPolicy or ClusterNetworkPolicy, as in
// spec.egress[0]: how users are told which rule is meant. The direction is ingress or egress.
func RulePath(direction string, rule int) string {
	return "spec." + direction + "[" + strconv.Itoa(rule) + "]"
}
