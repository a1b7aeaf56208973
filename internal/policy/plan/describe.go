package plan

import (
	"cmp"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// Verdict says that something is not, or not yet, as its object says.
type Verdict struct {
	// Object is a policy or a Pod.
	Object cluster.Ref
	Reason Reason
	// Addr and Other are for AddressTaken: the address, and the Pod that has it.
	Addr  netip.Addr
	Other cluster.Key
}

// Reason is why a Verdict is given; short and stable, for metrics.
type Reason string

// The reasons.
const (
	// UnknownRule: a ClusterNetworkPolicy has a rule that is not understood whole. It matches nothing if
	// it accepts, and denies everything otherwise.
	UnknownRule Reason = "unknown-rule"
	// AddressTaken: another Pod has the address, too, and the Pod is treated as if it did not.
	AddressTaken Reason = "address-taken"
	// UnknownPod: a Pod was reported on the node that the model does not know there; it is isolated.
	UnknownPod Reason = "unknown-pod"
	// LargeSet: a rule of a policy has so many Pods as peers that the kernel needs megabytes for them.
	LargeSet Reason = "large-set"
)

// largePeers is the number of Pods from which on a LargeSet is told.
const largePeers = 1 << 16

// Verdicts returns what is not as objects say, sorted.
func (c *Compiler) Verdicts() (verdicts []Verdict) {
	for _, p := range slices.Concat(c.admin, c.baseline) {
		unknown := func(r cluster.TierRule) bool { return r.Unknown }
		if slices.ContainsFunc(p.tier.IngressRules, unknown) || slices.ContainsFunc(p.tier.EgressRules, unknown) {
			verdicts = append(verdicts, Verdict{Object: p.ref, Reason: UnknownRule})
		}
	}
	for addr, rivals := range c.rivals {
		for _, p := range rivals {
			verdicts = append(verdicts, Verdict{
				Object: podRef(p), Reason: AddressTaken, Addr: addr, Other: c.holders[addr].key,
			})
		}
	}
	for _, p := range c.byRef {
		if c.isLarge(p) {
			verdicts = append(verdicts, Verdict{Object: p.ref, Reason: LargeSet})
		}
	}
	for _, p := range c.strangers {
		verdicts = append(verdicts, Verdict{Object: podRef(p), Reason: UnknownPod})
	}
	slices.SortFunc(verdicts, func(a, b Verdict) int {
		return cmp.Or(cmp.Compare(a.Object.Kind, b.Object.Kind), a.Object.Key.Compare(b.Object.Key),
			cmp.Compare(a.Reason, b.Reason), a.Addr.Compare(b.Addr))
	})
	return verdicts
}

// isLarge reports whether a policy that applies to Pods of the node has a rule with very many peers.
func (c *Compiler) isLarge(p *policy) bool {
	if p.subject.members.n == 0 {
		return false
	}
	for _, rules := range p.rules {
		for i := range rules {
			n := 0
			for _, of := range rules[i].peers.groups {
				if g := c.peers.byKey[of.key]; g != nil {
					n += g.members.n
				}
			}
			if n >= largePeers {
				return true
			}
		}
	}
	return false
}

func podRef(p *pod) cluster.Ref { return cluster.Ref{Kind: cluster.KindPod, Key: p.key} }

// Stats are numbers of what is compiled.
type Stats struct {
	// Pods are those with an address of their own in the cluster, Local those of the node.
	Pods, Local int
	// Groups are the distinct selectors of peers, Classes the distinct sets of policies that apply to
	// Pods of the node in a direction.
	Groups, Classes int
	// Sets, Elements and Chains are those of the ruleset.
	Sets, Elements, Chains int
}

// Stats returns how much is compiled.
func (c *Compiler) Stats() Stats {
	s := Stats{
		Pods: len(c.pods) + len(c.strangers), Local: len(c.locals), Groups: len(c.peers.byKey),
		Classes: len(c.classes), Sets: len(c.sets), Chains: len(c.chains),
	}
	for _, set := range c.sets {
		s.Elements += set.size
	}
	return s
}
