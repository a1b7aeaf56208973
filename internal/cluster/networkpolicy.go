package cluster

import (
	"net/netip"
	"slices"
)

// Selector chooses objects by their labels (metav1.LabelSelector). The empty
// Selector chooses all.
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

// Operator is a Requirement's, as the API spells it.
type Operator string

// The operators.
const (
	In           Operator = "In"
	NotIn        Operator = "NotIn"
	Exists       Operator = "Exists"
	DoesNotExist Operator = "DoesNotExist"
)

// Selects tells whether the Selector chooses an object with these labels.
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
	// Pods chooses those of its namespace that it applies to.
	Pods Selector
	// Ingress and Egress tell which ways it applies to: what no rule of it, or
	// of another policy, allows there is forbidden.
	Ingress, Egress           bool
	IngressRules, EgressRules []PolicyRule
}

// Ref returns kind and key.
func (p *NetworkPolicy) Ref() Ref { return Ref{KindNetworkPolicy, p.Key} }

// PolicyRule allows traffic with any of the peers on any of the ports. No peers
// are all, and no ports are all.
type PolicyRule struct {
	Peers []PolicyPeer
	Ports []PolicyPort
}

// PolicyPeer is either Pods, or addresses. Pods are those that Pods chooses in
// the namespaces that Namespaces chooses: nil Namespaces is the policy's own,
// nil Pods beside it is all of them.
type PolicyPeer struct {
	Pods, Namespaces *Selector
	Block            netip.Prefix // the zero Prefix when it is Pods
	Except           []netip.Prefix
}

// PolicyPort is the ports of a protocol from Number to End, or the one that has
// a Name; without both, all of them.
type PolicyPort struct {
	Protocol    Protocol
	Number, End uint16
	Name        string
}
