package cluster

import "net/netip"

// ClusterNetworkPolicy is a ClusterNetworkPolicy (policy.networking.k8s.io/v1alpha2).
type ClusterNetworkPolicy struct { //nolint:revive // the name of the kind
	Name string
	Tier Tier
	// Priority is its place in its tier, from 0 to 1000: lower comes first. It is -1 if the place could
	// not be read.
	Priority int32
	Subject  PodPeer
	// IngressRules and EgressRules are in order: the first that matches decides. Without rules of
	// a direction, the policy does not apply to it.
	IngressRules, EgressRules []TierRule
	// Audit: what it denies is logged instead, and the next rule is evaluated (AnnotationAudit).
	Audit bool
}

// Ref returns kind and key.
func (p *ClusterNetworkPolicy) Ref() Ref { return Ref{KindClusterNetworkPolicy, Key{Name: p.Name}} }

// Tier is when policies are evaluated: those of AdminTier before NetworkPolicies, those of
// BaselineTier for Pods that no NetworkPolicy selects.
type Tier string

// The tiers, as the API spells them.
const (
	AdminTier    Tier = "Admin"
	BaselineTier Tier = "Baseline"
)

// Action is what a TierRule does with what it matches.
type Action string

// The actions, as the API spells them. Pass goes on with the next tier.
const (
	Accept Action = "Accept"
	Deny   Action = "Deny"
	Pass   Action = "Pass"
)

// TierRule is a rule of a ClusterNetworkPolicy. It matches any of the peers on any of the ports; no
// ports are all.
type TierRule struct {
	Name   string // empty without one
	Action Action
	Peers  []TierPeer
	Ports  []PolicyPort
	// Unknown: it has a peer or a protocol of a kind that is not known here, as of a later version of
	// the API. Such a rule matches nothing if it accepts, and denies everything otherwise
	// (ClusterNetworkPolicyEgressPeer).
	Unknown bool
}

// TierPeer is one of its fields.
type TierPeer struct {
	Pods *PodPeer
	// Nodes are the addresses of the selected Nodes.
	Nodes *Selector
	// Networks match all addresses in them, those of Pods and Nodes too.
	Networks []netip.Prefix
	// Domains are names in lower case without a dot at the end, or "*." and a name for all names
	// under it.
	Domains []string
}

// PodPeer is the Pods that Pods selects in the Namespaces that Namespaces selects, but for Pods in
// the network of their node.
type PodPeer struct{ Namespaces, Pods Selector }
