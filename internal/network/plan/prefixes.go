package plan

import (
	"iter"
	"net/netip"
	"slices"
)

// prefixes are values by range. Two ranges are disjoint, or one contains the other.
type prefixes[V any] struct {
	values map[netip.Prefix]V
	sorted sorted // those that a range contains come next to it
	// lengths counts the ranges of each length: IPv4, then IPv6.
	lengths [2][129]int
}

func newPrefixes[V any]() *prefixes[V] { return &prefixes[V]{values: make(map[netip.Prefix]V)} }

// put sets the value of a range.
func (s *prefixes[V]) put(p netip.Prefix, v V) {
	if _, ok := s.values[p]; !ok {
		s.sorted.insert(p)
		s.lengths[family(p.Addr())][p.Bits()]++
	}
	s.values[p] = v
}

// remove removes a range.
func (s *prefixes[V]) remove(p netip.Prefix) {
	if _, ok := s.values[p]; !ok {
		return
	}
	s.sorted.remove(p)
	s.lengths[family(p.Addr())][p.Bits()]--
	delete(s.values, p)
}

// containing yields the ranges that contain p, and not p itself, from the widest on.
func (s *prefixes[V]) containing(p netip.Prefix) iter.Seq2[netip.Prefix, V] {
	return func(yield func(netip.Prefix, V) bool) {
		lengths := &s.lengths[family(p.Addr())]
		for bits := range p.Bits() {
			if lengths[bits] == 0 {
				continue
			}
			wide := netip.PrefixFrom(p.Addr(), bits).Masked()
			if v, ok := s.values[wide]; ok && !yield(wide, v) {
				return
			}
		}
	}
}

// within yields the ranges that p contains, p itself too, in order.
func (s *prefixes[V]) within(p netip.Prefix) iter.Seq2[netip.Prefix, V] {
	return func(yield func(netip.Prefix, V) bool) {
		for q := range s.sorted.from(p) {
			if !p.Contains(q.Addr()) || !yield(q, s.values[q]) {
				return
			}
		}
	}
}

// sorted are ranges in order, in parts of at most maxPart, so that an insertion moves few of them.
type sorted struct{ parts [][]netip.Prefix }

const maxPart = 256

// part returns the part that has p, or would have it; the last one that begins before p.
func (s *sorted) part(p netip.Prefix) int {
	i, found := slices.BinarySearchFunc(
		s.parts,
		p,
		func(part []netip.Prefix, p netip.Prefix) int { return part[0].Compare(p) },
	)
	if found {
		return i
	}
	return max(0, i-1)
}

// insert adds a range that is not there.
func (s *sorted) insert(p netip.Prefix) {
	if len(s.parts) == 0 {
		s.parts = [][]netip.Prefix{{p}}
		return
	}
	at := s.part(p)
	i, _ := slices.BinarySearchFunc(s.parts[at], p, netip.Prefix.Compare)
	s.parts[at] = slices.Insert(s.parts[at], i, p)
	if part := s.parts[at]; len(part) > maxPart {
		s.parts[at] = part[: maxPart/2 : maxPart/2]
		s.parts = slices.Insert(s.parts, at+1, slices.Clone(part[maxPart/2:]))
	}
}

// remove removes a range that is there.
func (s *sorted) remove(p netip.Prefix) {
	at := s.part(p)
	i, _ := slices.BinarySearchFunc(s.parts[at], p, netip.Prefix.Compare)
	if s.parts[at] = slices.Delete(s.parts[at], i, i+1); len(s.parts[at]) == 0 {
		s.parts = slices.Delete(s.parts, at, at+1)
	}
}

// from yields the ranges from p on.
func (s *sorted) from(p netip.Prefix) iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		at := s.part(p)
		for i := at; i < len(s.parts); i++ {
			part := s.parts[i]
			if i == at {
				first, _ := slices.BinarySearchFunc(part, p, netip.Prefix.Compare)
				part = part[first:]
			}
			for _, q := range part {
				if !yield(q) {
					return
				}
			}
		}
	}
}

// all yields all ranges.
func (s *sorted) all() iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		for _, part := range s.parts {
			for _, q := range part {
				if !yield(q) {
					return
				}
			}
		}
	}
}

// family is the index of a family: 0 for IPv4, 1 for IPv6.
func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}
