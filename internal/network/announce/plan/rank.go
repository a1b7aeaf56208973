package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"
)

// ID identifies a node in messages between nodes.
type ID uint64

// IDOf returns the ID of the node with a name. It never changes: nodes of other versions compute the same.
func IDOf(node string) ID {
	sum := sha256.Sum256([]byte(node))
	return ID(binary.BigEndian.Uint64(sum[:]))
}

// Score is the rank of a node among the candidates of an address: the one with the highest score is the first.
// It never changes, as IDOf.
func Score(addr netip.Addr, node ID) uint64 {
	octets := addr.As16() // IPv4-mapped, for IPv4
	high, low := binary.BigEndian.Uint64(octets[:8]), binary.BigEndian.Uint64(octets[8:])
	return mix(mix(mix(high)^low) ^ uint64(node))
}

// mix is the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
// 2014): each bit of the result depends on all bits of x.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// ranked is a candidate of an address. Those that are cordoned are after the others.
type ranked struct {
	cordoned bool
	score    uint64
	name     string
}

// compare orders candidates: the first is before the others.
func (a ranked) compare(b ranked) int {
	switch {
	case a.cordoned && !b.cordoned:
		return 1
	case b.cordoned && !a.cordoned:
		return -1
	}
	return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.name, b.name))
}

// isSame reports whether the candidates are the same node.
func (a ranked) isSame(b ranked) bool { return a.name == b.name }

// insert adds a candidate to those of the highest ranks, of which the last may fall out.
func insert(best []ranked, c ranked) []ranked {
	i, _ := slices.BinarySearchFunc(best, c, ranked.compare)
	if i == Ranks {
		return best
	}
	return slices.Insert(best[:min(len(best), Ranks-1)], i, c)
}
