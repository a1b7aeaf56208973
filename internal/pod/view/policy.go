package view

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/policy/semantics"
)

// Policy is a policy that applies to Pods in one direction.
type Policy struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Effect is what it allows or denies, in a sentence.
	Effect string `json:"effect"`
	// Pods is to how many of the Pods that were looked at it applies; 0 for a view of one Pod.
	Pods int    `json:"pods,omitempty"`
	Href string `json:"href"`
}

// mostRules is the maximum number of rules of a policy that its Effect has, and mostPeers that of the peers, or of the
// ports, of each.
const (
	mostRules = 4
	mostPeers = 4
)

// policies returns the policies that apply to Pods in a direction, by kind, namespace and name: those of the Admin tier
// come first, and those of the Baseline tier last, as they are evaluated.
func (m *Model) policiesOf(ends []*semantics.End, d ruleset.Direction) (all []Policy) {
	applies, counts := applyingIn(m.set(), d), make(map[cluster.Ref]int)
	var namespaced []*cluster.NetworkPolicy
	var tiers []*cluster.ClusterNetworkPolicy
	for _, e := range ends {
		a := applies(e)
		for _, p := range a.Policies {
			if counts[p.Ref()]++; counts[p.Ref()] == 1 {
				namespaced = append(namespaced, p)
			}
		}
		for _, p := range a.Tiers {
			if counts[p.Ref()]++; counts[p.Ref()] == 1 {
				tiers = append(tiers, p)
			}
		}
	}
	slices.SortFunc(namespaced, func(a, b *cluster.NetworkPolicy) int { return a.Compare(b.Key) })
	slices.SortFunc(tiers, func(a, b *cluster.ClusterNetworkPolicy) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Name, b.Name))
	})
	add := func(tier cluster.Tier) {
		for _, p := range tiers {
			if p.Tier == tier {
				all = append(all, policyOf(p.Ref(), effectOfTier(p, d), counts[p.Ref()]))
			}
		}
	}
	add(cluster.AdminTier)
	for _, p := range namespaced {
		all = append(all, policyOf(p.Ref(), effect(p, d), counts[p.Ref()]))
	}
	add(cluster.BaselineTier)
	return all
}

func policyOf(r cluster.Ref, effect string, pods int) Policy {
	p := Policy{Kind: r.Kind.String(), Namespace: r.Key.Namespace, Name: r.Key.Name, Effect: effect, Pods: pods}
	p.Href = href(&Item{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name})
	return p
}

// applyingIn returns which policies apply to a Pod in a direction.
func applyingIn(s *semantics.Set, d ruleset.Direction) func(*semantics.End) semantics.Applying {
	if d == ruleset.Egress {
		return s.EgressOf
	}
	return s.IngressOf
}

// effect says what a NetworkPolicy allows in a direction.
func effect(p *cluster.NetworkPolicy, d ruleset.Direction) string {
	rules, word := p.IngressRules, "from"
	if d == ruleset.Egress {
		rules, word = p.EgressRules, "to"
	}
	text := "allows nothing"
	if len(rules) > 0 {
		var words []string
		for i := range rules[:min(len(rules), mostRules)] {
			words = append(words, some(rules[i].Peers, "anywhere", peerText)+portsText(rules[i].Ports))
		}
		text = "allows " + word + " " + strings.Join(words, "; ") + rest(len(rules), mostRules, "rule")
	}
	if p.Audit {
		text += " (audit mode: what it denies is logged only)"
	}
	return text
}

// effectOfTier says what a ClusterNetworkPolicy does in a direction, rule by rule.
func effectOfTier(p *cluster.ClusterNetworkPolicy, d ruleset.Direction) string {
	rules, word := p.IngressRules, "from"
	if d == ruleset.Egress {
		rules, word = p.EgressRules, "to"
	}
	var words []string
	for i := range rules[:min(len(rules), mostRules)] {
		r := &rules[i]
		words = append(words, fmt.Sprintf("%s %s %s%s", actions[r.Action], word, some(r.Peers, "nothing", tierPeerText),
			portsText(r.Ports)))
	}
	text := fmt.Sprintf("%s, priority %d: %s%s", p.Tier, p.Priority, strings.Join(words, "; "),
		rest(len(rules), mostRules, "rule"))
	if p.Audit {
		text += " (audit mode: what it denies is logged only)"
	}
	return text
}

var actions = map[cluster.Action]string{
	cluster.Accept: "accepts", cluster.Deny: "denies", cluster.Pass: "leaves to other policies",
}

// some joins the texts of the first elements of a list, and says how many more there are.
func some[T any](list []T, none string, text func(*T) string) string {
	if len(list) == 0 {
		return none
	}
	var words []string
	for i := range list[:min(len(list), mostPeers)] {
		words = append(words, text(&list[i]))
	}
	return strings.Join(words, ", ") + rest(len(list), mostPeers, "peer")
}

// rest says how many of so many are not shown.
func rest(n, shown int, thing string) string {
	switch more := n - shown; {
	case more <= 0:
		return ""
	case more == 1:
		return " and 1 more " + thing
	default:
		return fmt.Sprintf(" and %d more %ss", more, thing)
	}
}

func peerText(p *cluster.PolicyPeer) string {
	switch {
	case len(p.Domains) > 0:
		return strings.Join(p.Domains[:min(len(p.Domains), mostPeers)], ", ") + rest(len(p.Domains), mostPeers, "name")
	case p.Block.IsValid():
		if len(p.Except) > 0 {
			return p.Block.String() + " except " + some(p.Except, "", (*netip.Prefix).String)
		}
		return p.Block.String()
	case p.Namespaces == nil:
		return podsText(p.Pods) + " of the namespace"
	}
	return podsText(p.Pods) + " of " + namespacesText(p.Namespaces)
}

func tierPeerText(p *cluster.TierPeer) string {
	switch {
	case p.Pods != nil:
		return podsText(&p.Pods.Pods) + " of " + namespacesText(&p.Pods.Namespaces)
	case p.Nodes != nil:
		return "nodes" + selectorText(p.Nodes)
	case len(p.Networks) > 0:
		return some(p.Networks, "", (*netip.Prefix).String)
	}
	return strings.Join(p.Domains[:min(len(p.Domains), mostPeers)], ", ") + rest(len(p.Domains), mostPeers, "name")
}

func podsText(s *cluster.Selector) string {
	if s == nil || len(s.Labels)+len(s.Requirements) == 0 {
		return "all Pods"
	}
	return "Pods" + selectorText(s)
}

// labelOfName is the label with the name of a namespace.
const labelOfName = "kubernetes.io/metadata.name"

func namespacesText(s *cluster.Selector) string {
	switch name := s.Labels[labelOfName]; {
	case len(s.Labels)+len(s.Requirements) == 0:
		return "all namespaces"
	case name != "" && len(s.Labels)+len(s.Requirements) == 1:
		return "namespace " + name
	}
	return "namespaces" + selectorText(s)
}

// selectorText returns a selector as kubectl prints it, after a blank; empty if it selects all.
func selectorText(s *cluster.Selector) string {
	var words []string
	for _, label := range slices.Sorted(maps.Keys(s.Labels)) {
		words = append(words, label+"="+s.Labels[label])
	}
	for i := range s.Requirements {
		switch r := &s.Requirements[i]; r.Operator {
		case cluster.Exists:
			words = append(words, r.Label)
		case cluster.DoesNotExist:
			words = append(words, "!"+r.Label)
		case cluster.In, cluster.NotIn:
			words = append(words, fmt.Sprintf("%s %s (%s)", r.Label, strings.ToLower(string(r.Operator)),
				strings.Join(r.Values, ",")))
		default:
			words = append(words, r.Label+" "+string(r.Operator))
		}
	}
	if len(words) == 0 {
		return ""
	}
	return " " + strings.Join(words[:min(len(words), mostPeers)], ",") + rest(len(words), mostPeers, "label")
}

// portsText returns ports after "on"; empty if they are all.
func portsText(ports []cluster.PolicyPort) string {
	if len(ports) == 0 {
		return ""
	}
	return " on " + some(ports, "", portOfPolicy)
}

func portOfPolicy(p *cluster.PolicyPort) string {
	text := string(p.Protocol)
	switch {
	case p.Name != "":
		text += " " + p.Name
	case p.End > p.Number:
		text += fmt.Sprintf(" %d-%d", p.Number, p.End)
	case p.Number != 0:
		text += " " + strconv.Itoa(int(p.Number))
	}
	return text
}
