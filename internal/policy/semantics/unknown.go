package semantics

import (
	"net/netip"
	"slices"
)

// isIn reports whether an end has an address in a block that none of the exceptions has. Of addresses that are not
// known, it is whether they may be such, or, if they are doubted, whether they are whatever they are.
func (e *End) isIn(block netip.Prefix, except []netip.Prefix) bool {
	switch {
	case len(e.Addrs) > 0:
		return slices.ContainsFunc(e.Addrs, func(a netip.Addr) bool { return block.Contains(a) && !contains(except, a) })
	case e.Doubted:
		return e.mustBeIn(block, except)
	}
	return e.mayBeIn(block, except)
}

// contains reports whether one of the prefixes has an address.
func contains(all []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(a) })
}

// covers reports whether a prefix has all addresses of another one.
func covers(p, all netip.Prefix) bool { return p.Bits() <= all.Bits() && p.Contains(all.Addr()) }

// mayBeIn reports whether a part of a block that no single exception covers may have the end's address.
func (e *End) mayBeIn(block netip.Prefix, except []netip.Prefix) bool {
	free := func(part netip.Prefix) bool {
		return !slices.ContainsFunc(except, func(p netip.Prefix) bool { return covers(p, part) })
	}
	if len(e.Within) == 0 {
		return free(block)
	}
	return slices.ContainsFunc(e.Within, func(w netip.Prefix) bool {
		return covers(block, w) && free(w) || covers(w, block) && free(block)
	})
}

// mustBeIn reports whether a block has each address that the end may have of its family, and no exception has one.
func (e *End) mustBeIn(block netip.Prefix, except []netip.Prefix) bool {
	if len(e.Within) == 0 {
		return block.Bits() == 0 && len(except) == 0
	}
	found := false
	for _, w := range e.Within {
		if w.Addr().Is4() != block.Addr().Is4() {
			continue
		}
		if found = true; !covers(block, w) || slices.ContainsFunc(except, w.Overlaps) {
			return false
		}
	}
	return found
}
