package view

import (
	"fmt"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/policy/semantics"
)

// NetworkPolicy is the view of a NetworkPolicy or a ClusterNetworkPolicy.
type NetworkPolicy struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Tier and Priority are when a ClusterNetworkPolicy is evaluated; nil for a NetworkPolicy.
	Tier     *cluster.Tier `json:"tier,omitempty"`
	Priority *int32        `json:"priority,omitempty"`
	// Audit: what it denies is logged only.
	Audit bool `json:"audit,omitempty"`
	// Selects says which Pods it is for, and Pods are those that run, by name.
	Selects string   `json:"selects"`
	Pods    []PodRef `json:"pods"`
	// In and Out are its rules by direction; nil for a direction to which it does not apply.
	In       []PolicyRule `json:"rulesIn,omitzero"`
	Out      []PolicyRule `json:"rulesOut,omitzero"`
	Findings []Finding    `json:"findings"`
	NotRead  []NotRead    `json:"notRead,omitempty"`
	More     More         `json:"more,omitempty"`
}

// PolicyRule is a rule of a policy.
type PolicyRule struct {
	// Field is its path in the policy, such as spec.ingress[0], and Effect what it does.
	Field  string `json:"field"`
	Effect string `json:"effect"`
	// Peers and Ports are those that it matches; empty ones match all.
	Peers []string `json:"peers"`
	Ports []string `json:"ports"`
	// More is how many peers and ports of this rule are left out.
	More More `json:"more,omitempty"`
}

// PodRef names a Pod.
type PodRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node,omitempty"`
	Href      string `json:"href"`
}

// NetworkPolicy returns the view of a NetworkPolicy or, without a namespace, of a ClusterNetworkPolicy; nil if it does
// not exist.
func (m *Model) NetworkPolicy(key cluster.Key) *NetworkPolicy {
	made := &NetworkPolicy{Namespace: key.Namespace, Name: key.Name}
	var applies func(semantics.Applying) bool
	if key.Namespace == "" {
		p := cluster.ClusterNetworkPolicies.Get(m.View, key)
		if p == nil {
			return nil
		}
		m.ofTier(made, p)
		applies = func(a semantics.Applying) bool { return slices.Contains(a.Tiers, p) }
	} else {
		p := cluster.NetworkPolicies.Get(m.View, key)
		if p == nil {
			return nil
		}
		m.ofNamespace(made, p)
		applies = func(a semantics.Applying) bool { return slices.Contains(a.Policies, p) }
	}
	made.NotRead = append(m.lacks(cluster.KindPod), m.partly("labels", cluster.KindPod)...)
	made.Pods = cut(&made.More, "pods", m.podsOf(key.Namespace, applies), mostPods)
	made.Findings = cut(&made.More, "findings", m.ofPolicy(made.Kind, key), mostFindings)
	return made
}

func (m *Model) ofNamespace(made *NetworkPolicy, p *cluster.NetworkPolicy) {
	made.Kind, made.Audit, made.Selects = p.Ref().Kind.String(), p.Audit, podsText(&p.Pods)+" of the namespace"
	of := func(direction string, applies bool, rules []cluster.PolicyRule) []PolicyRule {
		if !applies {
			return nil
		}
		all := []PolicyRule{}
		for i, r := range cut(&made.More, rulesKey[direction], rules, mostOfPolicy) {
			all = append(all, ruleOf(direction, i, "allows", texts(r.Peers, peerText), r.Ports))
		}
		return all
	}
	made.In, made.Out = of("ingress", p.Ingress, p.IngressRules), of("egress", p.Egress, p.EgressRules)
}

// ofPolicy returns what is wrong with a policy. What it does to Pods is known when all are checked.
func (m *Model) ofPolicy(kind string, key cluster.Key) []Finding {
	if !m.Whole {
		return nil
	}
	return findings(slices.DeleteFunc(slices.Clone(m.Found()), func(f lint.Finding) bool {
		return f.Object.Kind.String() != kind || f.Object.Key != key
	}))
}

func (m *Model) ofTier(made *NetworkPolicy, p *cluster.ClusterNetworkPolicy) {
	made.Kind, made.Audit, made.Tier, made.Priority = p.Ref().Kind.String(), p.Audit, &p.Tier, &p.Priority
	made.Selects = podsText(&p.Subject.Pods) + " of " + namespacesText(&p.Subject.Namespaces)
	of := func(direction string, rules []cluster.TierRule) (all []PolicyRule) {
		for i, r := range cut(&made.More, rulesKey[direction], rules, mostOfPolicy) {
			all = append(all, ruleOf(direction, i, actions[r.Action], texts(r.Peers, tierPeerText), r.Ports))
		}
		return all
	}
	made.In, made.Out = of("ingress", p.IngressRules), of("egress", p.EgressRules)
}

// rulesKey is the key in More of the rules of a direction.
var rulesKey = map[string]string{"ingress": "rulesIn", "egress": "rulesOut"}

// texts returns the text of each element.
func texts[T any](list []T, text func(*T) string) []string {
	all := make([]string, 0, len(list))
	for i := range list {
		all = append(all, text(&list[i]))
	}
	return all
}

// ruleOf returns the nth rule of a direction.
func ruleOf(direction string, n int, effect string, peers []string, ports []cluster.PolicyPort) PolicyRule {
	made := PolicyRule{Field: fmt.Sprintf("spec.%s[%d]", direction, n), Effect: effect}
	made.Peers = cut(&made.More, "peers", peers, mostOfPolicy)
	made.Ports = cut(&made.More, "ports", texts(ports, portOfPolicy), mostOfPolicy)
	return made
}

// podsOf returns the Pods to which a policy applies in a direction, by name. One with a namespace applies to Pods of it
// only.
func (m *Model) podsOf(namespace string, applies func(semantics.Applying) bool) (all []PodRef) {
	if !m.reads(cluster.KindPod) {
		return nil
	}
	var pods []*cluster.Pod
	for p := range m.View.Pods() {
		if p.Finished || namespace != "" && p.Namespace != namespace {
			continue
		}
		end := semantics.EndOf(p)
		if applies(m.set().IngressOf(end)) || applies(m.set().EgressOf(end)) {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, func(a, b *cluster.Pod) int { return a.Compare(b.Key) })
	for _, p := range pods {
		i := Item{Kind: cluster.KindPod.String(), Namespace: p.Namespace, Name: p.Name}
		all = append(all, PodRef{Namespace: p.Namespace, Name: p.Name, Node: p.Node, Href: href(&i)})
	}
	return all
}
