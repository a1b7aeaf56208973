package pool

import (
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"strings"

	"portolan.dev/portolan/internal/cluster"
)

// Range are the addresses of one family from First to Last, which are included.
type Range struct{ First, Last netip.Addr }

// ParseRange parses a prefix such as 192.0.2.0/28, two addresses with a hyphen between, or one address.
func ParseRange(text string) (Range, error) {
	wrong := fmt.Errorf("%q is not a range, such as 192.0.2.0/28, 192.0.2.40-192.0.2.60 or 192.0.2.1", text)
	if first, last, two := strings.Cut(text, "-"); two {
		r := Range{parseAddr(strings.TrimSpace(first)), parseAddr(strings.TrimSpace(last))}
		if !r.First.IsValid() || !r.Last.IsValid() || r.First.Is4() != r.Last.Is4() {
			return Range{}, wrong
		}
		if r.Last.Less(r.First) {
			return Range{}, fmt.Errorf("the last address of %s is less than the first", text)
		}
		return r, nil
	}
	if addr := parseAddr(text); addr.IsValid() {
		return Range{addr, addr}, nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() || p != p.Masked() {
		return Range{}, wrong
	}
	return Range{p.Addr(), lastOf(p)}, nil
}

// parseAddr returns an address without a zone, and not an IPv4-mapped IPv6 address; the zero Addr if text is none.
func parseAddr(text string) netip.Addr {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" || addr.Is4In6() {
		return netip.Addr{}
	}
	return addr
}

// lastOf returns the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	octets := p.Addr().AsSlice()
	for i := p.Bits(); i < len(octets)*8; i++ {
		octets[i/8] |= 1 << (7 - i%8)
	}
	addr, _ := netip.AddrFromSlice(octets)
	return addr
}

func (r Range) String() string { return r.First.String() + "-" + r.Last.String() }

// Contains reports whether an address is in the range.
func (r Range) Contains(a netip.Addr) bool {
	return a.Is4() == r.First.Is4() && !a.Less(r.First) && !r.Last.Less(a)
}

func (r Range) overlaps(o Range) bool { return r.Contains(o.First) || o.Contains(r.First) }

func (r Range) family() cluster.AddressType { return cluster.FamilyOf(r.First) }

// size returns the number of addresses, rounded.
func (r Range) size() float64 {
	first, last := new(big.Int).SetBytes(r.First.AsSlice()), new(big.Int).SetBytes(r.Last.AsSlice())
	n, _ := new(big.Float).SetInt(last.Sub(last, first)).Float64()
	return n + 1
}

// sizeOf returns the number of addresses of one family in ranges, rounded.
func sizeOf(all []Range, f cluster.AddressType) (n float64) {
	for _, r := range all {
		if r.family() == f {
			n += r.size()
		}
	}
	return n
}

// Pool is a set of addresses, and which Services may have them.
type Pool struct {
	Name string
	// Ranges do not overlap one another, or those of other pools.
	Ranges []Range
	// Reserved are only given to Services that request them.
	Reserved []Range
	// Namespaces are those whose Services may have addresses; none is all. So are the selectors, of labels of
	// Namespaces and of Services; nil selects all.
	Namespaces                         []string
	NamespaceSelector, ServiceSelector *cluster.Selector
	// Automatic: Services get addresses of the pool that request neither it nor an address.
	Automatic bool
}

func (p *Pool) contains(a netip.Addr) bool { return inAny(p.Ranges, a) }

// has reports whether the pool has addresses of a family.
func (p *Pool) has(f cluster.AddressType) bool {
	for _, r := range p.Ranges {
		if r.family() == f {
			return true
		}
	}
	return false
}

func inAny(all []Range, a netip.Addr) bool {
	for _, r := range all {
		if r.Contains(a) {
			return true
		}
	}
	return false
}

// Config is what is given to which Services.
type Config struct {
	// Class is the loadBalancerClass of the Services that get addresses. WithoutClass: those without one get some, too.
	Class        string
	WithoutClass bool
	Pools        []Pool
}

// Check reports names that occur twice, and ranges that overlap.
func (c *Config) Check() error {
	if c.Class == "" && !c.WithoutClass {
		return errors.New("no Service gets an address: class is empty, and withoutClass is false")
	}
	var all []Range
	names := make(map[string]bool)
	for i := range c.Pools {
		p := &c.Pools[i]
		switch {
		case p.Name == "":
			return errors.New("a pool has no name")
		case names[p.Name]:
			return fmt.Errorf("two pools are called %s", p.Name)
		case len(p.Ranges) == 0:
			return fmt.Errorf("pool %s has no ranges", p.Name)
		}
		names[p.Name] = true
		for _, r := range p.Ranges {
			for _, o := range all {
				if r.overlaps(o) {
					return fmt.Errorf("ranges %s and %s overlap", o, r)
				}
			}
			all = append(all, r)
		}
		for _, r := range p.Reserved {
			if !p.contains(r.First) {
				return fmt.Errorf("reserved addresses %s are not in pool %s", r, p.Name)
			}
		}
	}
	return nil
}
