package frontend

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
)

// Choice is how one of several endpoints is chosen for a new connection.
type Choice uint8

const (
	// Random draws a random number.
	Random Choice = iota
	// ClientHash hashes the client's address: its connections go to one endpoint, through all
	// addresses and ports of a Service whose ports have the same endpoints.
	ClientHash
	// ConnectionHash hashes the client's address and port.
	ConnectionHash
)

// choiceNames are the names of choices in settings and annotations.
var choiceNames = [...]string{"random", "client-hash", "connection-hash"}

// String returns the name of the choice in settings and annotations.
func (c Choice) String() string { return choiceNames[c] }

// ParseChoice returns the choice of a name. Its error names the value and those that there are.
func ParseChoice(name string) (Choice, error) {
	i := slices.Index(choiceNames[:], name)
	if i < 0 {
		last := len(choiceNames) - 1
		return Random, fmt.Errorf("%q is not %s or %s", name, strings.Join(choiceNames[:last], ", "), choiceNames[last])
	}
	return Choice(i), nil
}

// Choices by hash are consistent: nodes with the same endpoints choose the same one, and few
// connections choose another one when the endpoints change (Dong and Wang, "DxHash: A Scalable
// Consistent Hash Based on the Pseudo-Random Sequence"). Endpoints are at slots of a table that is
// a quarter to half full. Where a hash of the connection meets an empty slot, another hash is
// taken. Thus every endpoint is as likely as any other, and one that is added takes its
// connections from the others. An endpoint's slots are hashes of its address; it takes the first
// one that none before it in the order of addresses has taken, so that one that is added moves
// few others.

// maxHashes is how many hashes are taken before the spare slots, which are never empty. At most
// 1 % of connections get there: 0.75 to the power of 16.
const maxHashes = 16

// SpareSlot is the number of the first spare slot of a table.
const SpareSlot = 1 << 17

// TableSize returns the size of the table for n endpoints, up to 32768.
func TableSize(n int) int {
	const least, most = 8, 1 << 16
	return min(max(least, 1<<bits.Len(uint(2*n-1))), most)
}

// spareSlots returns how many spare slots a table has.
func spareSlots(size int) int { return min(size/4, 64) }

// Draw draws a slot: a hash with a seed, scaled to the slots from First on.
type Draw struct{ Seed, Below, First uint32 }

// Draws returns which slots of a table of the given size are drawn until one has an endpoint.
// The last ones are repetitions, for elements that are replaced meanwhile, and for a table of
// another size.
func Draws(size int) (all []Draw) {
	const spread = 0x9e3779b9 // 2^32 divided by the golden ratio
	for i := range uint32(maxHashes) {
		all = append(all, Draw{Seed: (i + 1) * spread, Below: uint32(size)})
	}
	last := Draw{Seed: (maxHashes + 1) * spread & (1<<32 - 1), Below: uint32(spareSlots(size)), First: SpareSlot}
	first := last
	first.Below = 1
	return append(all, last, last, first)
}

// slot returns the slot that is drawn for a key, as the kernel does (net/netfilter/nft_hash.c).
func (d Draw) slot(key []byte) uint32 { return scale(jhash(key, d.Seed), d.Below) + d.First }

// scale returns a number below n (linux/kernel.h, reciprocal_scale).
func scale(hash, n uint32) uint32 { return uint32(uint64(hash) * uint64(n) >> 32) }

// Slot is an endpoint at a slot of a table.
type Slot struct {
	Number uint32
	To     netip.AddrPort
}

// HashTable returns the slots of the table for endpoints, each as often as it has slots, in the
// order of Frontend.Slots. It depends on nothing else.
func HashTable(endpoints []netip.AddrPort) (slots []Slot) {
	if len(endpoints) == 0 {
		return nil
	}
	size := TableSize(len(endpoints))
	slots = make([]Slot, 0, len(endpoints)+spareSlots(size))
	hashes := make([]uint64, len(endpoints))
	taken := make([]bool, size)
	for i, to := range endpoints {
		hashes[i] = addressHash(to.Addr())
		for step := uint64(0); ; step++ {
			if n := scale(uint32(mixed(hashes[i]+step)>>32), uint32(size)); !taken[n] {
				taken[n] = true
				slots = append(slots, Slot{n, to})
				break
			}
		}
	}
	for i := range spareSlots(size) {
		slots = append(slots, Slot{uint32(SpareSlot + i), endpoints[spare(hashes, i)]})
	}
	return slots
}

// spare returns the index of the endpoint at spare slot i: the one with the greatest hash
// (rendezvous hashing).
func spare(hashes []uint64, i int) (found int) {
	var most uint64
	for j, hash := range hashes {
		if h := mixed(hash ^ mixed(uint64(i))); h > most {
			found, most = j, h
		}
	}
	return found
}

// addressHash hashes an address (FNV-1a).
func addressHash(a netip.Addr) uint64 {
	h := uint64(14695981039346656037)
	for _, b := range a.As16() {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return mixed(h)
}

// mixed mixes the bits of a number (the finalizer of SplitMix64).
func mixed(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// chosen returns the endpoint of Slots or LocalSlots of f that c gets; not valid if it is random, or if the
// client's port is not known.
func (f *Frontend) chosen(c *Connection, list []netip.AddrPort) netip.AddrPort {
	key := c.Source.AsSlice()
	switch {
	case f.Choice == Random, f.Affinity != nil, f.Choice == ConnectionHash && c.SourcePort == 0:
		return netip.AddrPort{}
	case f.Choice == ConnectionHash:
		key = append(binary.BigEndian.AppendUint16(key, c.SourcePort), 0, 0)
	}
	slots := HashTable(list)
	for _, d := range Draws(TableSize(len(list))) {
		n := d.slot(key)
		if i := slices.IndexFunc(slots, func(s Slot) bool { return s.Number == n }); i >= 0 {
			return slots[i].To
		}
	}
	return netip.AddrPort{}
}

// jhash is the hash of the kernel, Jenkins' lookup3, for keys of a multiple of four octets, in
// the order of the machine's (include/linux/jhash.h).
func jhash(key []byte, seed uint32) uint32 {
	a := 0xdeadbeef + uint32(len(key)) + seed
	b, c := a, a
	word := func(i int) uint32 { return binary.NativeEndian.Uint32(key[4*i:]) }
	for ; len(key) > 12; key = key[12:] {
		a, b, c = jhashMix(a+word(0), b+word(1), c+word(2))
	}
	switch len(key) {
	case 12:
		a, b, c = a+word(0), b+word(1), c+word(2)
	case 8:
		a, b = a+word(0), b+word(1)
	case 4:
		a += word(0)
	default:
		return c
	}
	return jhashFinal(a, b, c)
}

func jhashMix(a, b, c uint32) (_, _, _ uint32) {
	for _, by := range [...][3]int{{4, 6, 8}, {16, 19, 4}} {
		a = a - c ^ bits.RotateLeft32(c, by[0])
		c += b
		b = b - a ^ bits.RotateLeft32(a, by[1])
		a += c
		c = c - b ^ bits.RotateLeft32(b, by[2])
		b += a
	}
	return a, b, c
}

func jhashFinal(a, b, c uint32) uint32 {
	c = (c ^ b) - bits.RotateLeft32(b, 14)
	a = (a ^ c) - bits.RotateLeft32(c, 11)
	b = (b ^ a) - bits.RotateLeft32(a, 25)
	c = (c ^ b) - bits.RotateLeft32(b, 16)
	a = (a ^ c) - bits.RotateLeft32(c, 4)
	b = (b ^ a) - bits.RotateLeft32(a, 14)
	return (c ^ b) - bits.RotateLeft32(b, 24)
}
