// Package rulesettest has a Ruleset for tests, without indexes of what its elements stand for.
package rulesettest

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/policy/ruleset"
)

// State is a Ruleset in maps, without indexes of what the elements stand for.
type State struct {
	sets     map[string]ruleset.Set
	elements map[string]map[ruleset.Element]struct{}
	chains   map[string]*ruleset.Chain
	pods     map[netip.Addr]ruleset.Pod
	devices  map[uint32]ruleset.Device
	ranges   []netip.Prefix
}

// NewState returns a State with nothing in it.
func NewState() *State {
	return &State{
		sets: make(map[string]ruleset.Set), elements: make(map[string]map[ruleset.Element]struct{}),
		chains: make(map[string]*ruleset.Chain), pods: make(map[netip.Addr]ruleset.Pod),
		devices: make(map[uint32]ruleset.Device),
	}
}

// Copy returns a State equal to a Ruleset.
func Copy(rs ruleset.Ruleset) *State {
	s := NewState()
	d := ruleset.Delta{Ranges: true}
	for name := range rs.Sets() {
		d.NewSets = append(d.NewSets, name)
	}
	for name := range rs.Chains() {
		d.NewChains = append(d.NewChains, name)
	}
	for addr := range rs.Pods() {
		d.Pods = append(d.Pods, addr)
	}
	for index := range rs.Devices() {
		d.Devices = append(d.Devices, index)
	}
	s.Apply(&d, rs)
	return s
}

// Apply changes s by d, which is how rs changed.
func (s *State) Apply(d *ruleset.Delta, rs ruleset.Ruleset) {
	for _, name := range d.GoneChains {
		delete(s.chains, name)
	}
	for _, name := range d.GoneSets {
		s.DeleteSet(name)
	}
	for _, name := range d.NewSets {
		if set, ok := rs.Set(name); ok {
			s.PutSet(name, set, slices.Collect(rs.Elements(name))...)
		}
	}
	for name, c := range d.Elements {
		for _, e := range c.Remove {
			delete(s.elements[name], e)
		}
		for _, e := range c.Add {
			s.elements[name][e] = struct{}{}
		}
	}
	for _, name := range d.NewChains {
		s.chains[name] = rs.Chain(name)
	}
	for _, addr := range d.Pods {
		delete(s.pods, addr)
		if pod, ok := rs.Pod(addr); ok {
			s.pods[addr] = pod
		}
	}
	for _, index := range d.Devices {
		delete(s.devices, index)
		if device, ok := rs.Device(index); ok {
			s.devices[index] = device
		}
	}
	if d.Ranges {
		s.ranges = slices.Clone(rs.Ranges())
	}
}

// PutSet adds a set, or replaces one and its elements.
func (s *State) PutSet(name string, set ruleset.Set, elements ...ruleset.Element) {
	s.sets[name], s.elements[name] = set, make(map[ruleset.Element]struct{}, len(elements))
	for _, e := range elements {
		s.elements[name][e] = struct{}{}
	}
}

// DeleteSet removes a set.
func (s *State) DeleteSet(name string) {
	delete(s.sets, name)
	delete(s.elements, name)
}

// PutChain adds a chain, or replaces one.
func (s *State) PutChain(name string, c *ruleset.Chain) { s.chains[name] = c }

// DeleteChain removes a chain.
func (s *State) DeleteChain(name string) { delete(s.chains, name) }

// PutPod sets the chains of an address.
func (s *State) PutPod(addr netip.Addr, pod ruleset.Pod) { s.pods[addr] = pod }

// DeletePod has no Pod have an address.
func (s *State) DeletePod(addr netip.Addr) { delete(s.pods, addr) }

// PutDevice sets what comes by a device.
func (s *State) PutDevice(index uint32, device ruleset.Device) { s.devices[index] = device }

// SetRanges replaces the ranges.
func (s *State) SetRanges(ranges ...netip.Prefix) { s.ranges = ranges }

// Sets implements Ruleset.
func (s *State) Sets() iter.Seq2[string, ruleset.Set] { return maps.All(s.sets) }

// Set implements Ruleset.
func (s *State) Set(name string) (ruleset.Set, bool) {
	set, ok := s.sets[name]
	return set, ok
}

// Elements implements Ruleset.
func (s *State) Elements(set string) iter.Seq[ruleset.Element] { return maps.Keys(s.elements[set]) }

// Contains implements Ruleset.
func (s *State) Contains(set string, addr netip.Addr, protocol ruleset.Protocol, port uint16) bool {
	in := s.elements[set]
	switch s.sets[set].Kind {
	case ruleset.Hosts:
		_, ok := in[ruleset.Element{Prefix: ruleset.Whole(addr)}]
		return ok
	case ruleset.HostPorts:
		_, ok := in[ruleset.Element{Prefix: ruleset.Whole(addr), Protocol: protocol, Port: port}]
		return ok
	case ruleset.Blocks:
		for bits := range addr.BitLen() + 1 {
			block, err := addr.Prefix(bits)
			if _, ok := in[ruleset.Element{Prefix: block}]; ok && err == nil {
				return true
			}
		}
	}
	return false
}

// Chains implements Ruleset.
func (s *State) Chains() iter.Seq2[string, *ruleset.Chain] { return maps.All(s.chains) }

// Chain implements Ruleset.
func (s *State) Chain(name string) *ruleset.Chain { return s.chains[name] }

// Pods implements Ruleset.
func (s *State) Pods() iter.Seq2[netip.Addr, ruleset.Pod] { return maps.All(s.pods) }

// Pod implements Ruleset.
func (s *State) Pod(addr netip.Addr) (ruleset.Pod, bool) {
	pod, ok := s.pods[addr]
	return pod, ok
}

// Devices implements Ruleset.
func (s *State) Devices() iter.Seq2[uint32, ruleset.Device] { return maps.All(s.devices) }

// Device implements Ruleset.
func (s *State) Device(index uint32) (ruleset.Device, bool) {
	device, ok := s.devices[index]
	return device, ok
}

// Ranges implements Ruleset.
func (s *State) Ranges() []netip.Prefix { return s.ranges }
