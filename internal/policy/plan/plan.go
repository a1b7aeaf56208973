// Package plan compiles the policies of the model into the ruleset of one node (Kubernetes, "Network
// Policies"; sigs.k8s.io/network-policy-api, v1alpha2). What they mean is defined by
// internal/policy/semantics.
//
//	cluster.View ──► policy.go:  policies, as far as they depend on themselves only
//	                 groups.go:  which Pods a selector selects, and what a change of labels concerns
//	                 pods.go:    which Pod has an address
//	                 ranges.go:  which addresses only Pods of the node have
//	                 class.go:   which policies apply to a Pod of the node, and their rules
//	                 dispatch.go: by port, if there are many
//	                 chain.go, sets.go: chains and sets, by what is in them
//	                 compiler.go: changes in, ruleset.Delta out
//	             ──► ruleset.Ruleset
//
// A Pod counts from the moment when it has an address until it has finished. Pods in the network of
// their node are the node: policies neither select them nor have them as peers, and a named port is none
// of theirs. If two Pods claim an address, the one whose address was reported by this node has it, else
// the one that is not being deleted, else the first by name.
package plan

import (
	"iter"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/ruleset"
)

// Config is what is compiled for.
type Config struct {
	// Node is the name of the node.
	Node string
	DNS  DNS
	// Ranges are what the node's Pods get addresses of; none are the Node's podCIDRs.
	Ranges []netip.Prefix
}

// Kinds are those that a Compiler reads.
func Kinds() []cluster.Kind {
	return []cluster.Kind{
		cluster.KindNamespace, cluster.KindPod, cluster.KindNode, cluster.KindService,
		cluster.KindNetworkPolicy, cluster.KindClusterNetworkPolicy,
	}
}

// Sets implements ruleset.Ruleset.
func (c *Compiler) Sets() iter.Seq2[string, ruleset.Set] {
	return func(yield func(string, ruleset.Set) bool) {
		for name, s := range c.sets {
			if !yield(name, s.set()) {
				return
			}
		}
	}
}

// Set implements ruleset.Ruleset.
func (c *Compiler) Set(name string) (ruleset.Set, bool) {
	s := c.sets[name]
	if s == nil {
		return ruleset.Set{}, false
	}
	return s.set(), true
}

func (s *set) set() ruleset.Set {
	return ruleset.Set{Kind: s.kind, Comment: s.comment, Domains: s.domains}
}

// Elements implements ruleset.Ruleset.
func (c *Compiler) Elements(set string) iter.Seq[ruleset.Element] {
	s := c.sets[set]
	if s == nil {
		return func(func(ruleset.Element) bool) {}
	}
	return c.elements(s)
}

// Contains implements ruleset.Ruleset.
func (c *Compiler) Contains(set string, addr netip.Addr, protocol ruleset.Protocol, port uint16) bool {
	s := c.sets[set]
	return s != nil && c.contains(s, addr, protocol, port)
}

// Chains implements ruleset.Ruleset.
func (c *Compiler) Chains() iter.Seq2[string, *ruleset.Chain] {
	return func(yield func(string, *ruleset.Chain) bool) {
		for name, chain := range c.chains {
			if !yield(name, &chain.Chain) {
				return
			}
		}
	}
}

// Chain implements ruleset.Ruleset.
func (c *Compiler) Chain(name string) *ruleset.Chain {
	if chain := c.chains[name]; chain != nil {
		return &chain.Chain
	}
	return nil
}

// Pods implements ruleset.Ruleset.
func (c *Compiler) Pods() iter.Seq2[netip.Addr, ruleset.Pod] {
	return func(yield func(netip.Addr, ruleset.Pod) bool) {
		for p := range c.locals {
			for _, addr := range p.held {
				if !yield(addr, p.local.chains()) {
					return
				}
			}
		}
	}
}

// Pod implements ruleset.Ruleset.
func (c *Compiler) Pod(addr netip.Addr) (ruleset.Pod, bool) {
	p := c.holders[addr]
	if p == nil || p.local == nil {
		return ruleset.Pod{}, false
	}
	return p.local.chains(), true
}

func (l *local) chains() ruleset.Pod {
	name := func(d ruleset.Direction) string {
		if l.classes[d] == nil {
			return ""
		}
		return nameOf(l.classes[d].chain)
	}
	return ruleset.Pod{Ingress: name(ruleset.Ingress), Egress: name(ruleset.Egress)}
}

// Devices implements ruleset.Ruleset.
func (c *Compiler) Devices() iter.Seq2[uint32, ruleset.Device] {
	return func(yield func(uint32, ruleset.Device) bool) {
		for index := range c.devices {
			if device, _ := c.Device(index); !yield(index, device) {
				return
			}
		}
	}
}

// Device implements ruleset.Ruleset.
func (c *Compiler) Device(index uint32) (ruleset.Device, bool) {
	p := c.devices[index]
	if p == nil {
		return ruleset.Device{}, false
	}
	addrs := slices.Clone(p.held)
	slices.SortFunc(addrs, netip.Addr.Compare)
	return ruleset.Device{Addrs: addrs, Egress: p.local.chains().Egress}, true
}

// Ranges implements ruleset.Ruleset: they are those of the Config, or the Node's podCIDRs, without SharedRanges.
func (c *Compiler) Ranges() []netip.Prefix { return c.ranges }

// Policies returns the policies that a chain comes from, in the order of their evaluation, without those
// of the chains in which it goes on; none for a chain of Pods that are not known yet.
func (c *Compiler) Policies(chain string) []cluster.Ref {
	if ch := c.chains[chain]; ch != nil {
		return slices.Clone(ch.sources)
	}
	return nil
}
