package nft

import (
	"encoding/binary"
	"net/netip"

	"portolan.dev/portolan/internal/proxy/frontend"
)

// element is an element of a set: its key, the end of an interval, and what it maps to.
type element struct {
	set setName
	key string
	end string // of an interval of concatenated keys, else empty
	// isEnd: the key is the first one behind an interval.
	isEnd bool
	// A map's element has data, a verdict map's a verdict.
	data string
	// verdict is the chain to go to, or dropVerdict.
	verdict string
}

// id identifies an element in its set: where an interval ends, another may begin.
func (e *element) id() string {
	if e.isEnd {
		return e.key + "end"
	}
	return e.key
}

// dropVerdict is the verdict of elements that drop packets. It is no chain's name.
const dropVerdict = "drop"

// length is the length of an address in octets.
func (f Family) length() int {
	if f == IPv4 {
		return 4
	}
	return 16
}

// entry is a frontend with its endpoints in slots.
type entry struct {
	*frontend.Frontend
	slots, local []netip.AddrPort
	group        *group // nil without affinity
}

// newEntry places the endpoints of f, given the entry before; nil is none.
func newEntry(f *frontend.Frontend, before *entry) *entry {
	if before == nil {
		before = new(entry)
	}
	if f.Choice != frontend.Random && f.Affinity == nil {
		before = new(entry) // the order counts, not what was
	}
	e := &entry{Frontend: f, slots: place(before.slots, f.Slots())}
	if f.Policy == frontend.ExternalLocal {
		e.local = place(before.local, f.LocalSlots())
	}
	return e
}

// appendTo appends the elements that the kernel needs for e alone, but for endpoints that other,
// which may be nil, has in the same slots.
func (e *entry) appendTo(all []element, other *entry) []element {
	if other == nil || !e.isPlain() || !other.isPlain() {
		other = new(entry)
	}
	key := destination(e.Address)
	if e.group != nil {
		all = append(all, element{set: setAffinityGroups, key: key, data: number(e.group.id)})
	}
	all = e.appendSlots(all, key, e.slots, 0, other.slots)
	all = e.appendSlots(all, key, e.local, localSlot, other.local)
	if e.Policy == frontend.ExternalLocal && len(e.slots) > 0 {
		verdict := dropVerdict
		if len(e.local) > 0 {
			verdict = e.chains().name(prefixLocal, e.chains().sizeFor(len(e.local)))
		}
		all = append(all, element{set: setLocal, key: key, verdict: verdict})
	}
	all = append(all, e.sourceElements()...)
	if e.Sources == nil {
		return append(all, element{set: setServices, key: key, verdict: e.chain()})
	}
	return append(
		all,
		element{set: setAdmitted, key: key, verdict: e.chain()},
		element{set: setServices, key: key, verdict: chainLimited},
	)
}

// sourceElements returns the elements for the sources that may connect. The kernel refuses
// intervals that overlap.
func (e *entry) sourceElements() (all []element) {
	key := destination(e.Address)
	for _, i := range joined(e.Sources) {
		all = append(all, element{set: setSourceRanges, key: key + padded(i.first), end: key + padded(i.last)})
	}
	return all
}

// isPlain reports whether a slot of e is an element of setEndpoints.
func (e *entry) isPlain() bool { return e.group == nil && !e.chains().hashed() }

// appendSlots appends the elements of a list of endpoints, whose slots begin at base: the endpoints,
// but for those in the same slots of other, or, with affinity, their numbers and the endpoints of
// those.
func (e *entry) appendSlots(
	all []element,
	key string,
	list []netip.AddrPort,
	base int,
	other []netip.AddrPort,
) []element {
	if e.chains().hashed() {
		for _, s := range frontend.HashTable(list) {
			all = append(all, element{set: setHashed, key: slotKey(key, base+int(s.Number)), data: target(s.To)})
		}
		return all
	}
	if e.group == nil {
		for i, to := range list {
			if i < len(other) && other[i] == to {
				continue
			}
			all = append(all, element{set: setEndpoints, key: slotKey(key, base+i), data: target(to)})
		}
		return all
	}
	known := make(map[netip.AddrPort]struct{}, len(list))
	for i, to := range list {
		n := number(e.group.numbers[candidate{to, base == localSlot}])
		all = append(all, element{set: setAffinityChoices, key: slotKey(key, base+i), data: n})
		if _, ok := known[to]; !ok {
			known[to] = struct{}{}
			all = append(all, element{set: setAffinityEndpoints, key: key + n, data: target(to)})
		}
	}
	return all
}

// chain returns the chain for the number of endpoints.
func (e *entry) chain() string {
	switch {
	case len(e.slots) > 0:
	case e.Empty == frontend.Drop:
		return dropVerdict
	default:
		return chainRefuse
	}
	n := e.chains().sizeFor(len(e.slots))
	switch e.Policy {
	case frontend.External:
		return e.chains().name(prefixMasquerade, n)
	case frontend.ExternalLocal:
		return e.chains().name(prefixExternalLocal, n)
	default:
		return e.chains().name(prefixEndpoints, n)
	}
}

// chains returns which chains e uses.
func (e *entry) chains() chains {
	switch {
	case e.group != nil:
		return chains(e.Affinity.Timeout.Seconds())
	case e.Affinity != nil: // of which there is no group left
		return plainChains
	case e.Choice == frontend.ClientHash:
		return clientHashChains
	case e.Choice == frontend.ConnectionHash:
		return connectionHashChains
	}
	return plainChains
}

// sizes returns the sizes of the chains that e uses.
func (e *entry) sizes() (all []int) {
	for _, list := range [][]netip.AddrPort{e.slots, e.local} {
		if len(list) > 0 {
			all = append(all, e.chains().sizeFor(len(list)))
		}
	}
	return all
}

// destination returns the key ip daddr . meta l4proto . th dport. Each part fills a multiple of
// four octets.
func destination(a frontend.Address) string {
	key := append(a.Addr.AsSlice(), byte(a.Protocol), 0, 0, 0)
	return string(append(binary.BigEndian.AppendUint16(key, a.Port), 0, 0))
}

// slotKey returns the key of a slot.
func slotKey(destination string, slot int) string {
	return string(binary.NativeEndian.AppendUint32([]byte(destination), uint32(slot)))
}

// target returns the data addr . port.
func target(to netip.AddrPort) string {
	return string(append(binary.BigEndian.AppendUint16(to.Addr().AsSlice(), to.Port()), 0, 0))
}

// number returns a number as data or key.
func number(n uint32) string { return string(binary.NativeEndian.AppendUint32(nil, n)) }

func padded(a netip.Addr) string { return string(a.AsSlice()) }

// bounds returns the first and the last address of a prefix.
func bounds(p netip.Prefix) (first, last netip.Addr) {
	p = p.Masked()
	end := p.Addr().AsSlice()
	for i := p.Bits(); i < len(end)*8; i++ {
		end[i/8] |= 0x80 >> (i % 8)
	}
	last, _ = netip.AddrFromSlice(end)
	return p.Addr(), last
}
