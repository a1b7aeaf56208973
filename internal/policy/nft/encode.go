package nft

import (
	"cmp"
	"encoding/binary"
	"iter"
	"net/netip"
	"time"

	"portolan.dev/portolan/internal/policy/ruleset"
)

// family is a family of addresses: each set of a Ruleset is two in the kernel.
type family struct {
	suffix  string // of names of sets
	nfproto byte   // NFPROTO_*
	size    uint32 // of an address in octets
	source  uint32 // where it is in a packet (RFC 791, section 3.1; RFC 8200, section 3); the destination follows
	magic   uint32 // the number of the type of addresses in nft
}

// The families.
var (
	ipv4     = &family{suffix: "-4", nfproto: 2, size: 4, source: 12, magic: 7}
	ipv6     = &family{suffix: "-6", nfproto: 10, size: 16, source: 8, magic: 8}
	families = []*family{ipv4, ipv6}
)

// familiesOf returns the families of the node's Pods, or one if it has none: others need no sets.
func familiesOf(rs ruleset.Ruleset) (all []*family) {
	has := make(map[*family]bool)
	for _, r := range rs.Ranges() {
		has[familyOf(r.Addr())] = true
	}
	for addr := range rs.Pods() {
		has[familyOf(addr)] = true
	}
	for _, f := range families {
		if has[f] || f == ipv4 && len(has) == 0 {
			all = append(all, f)
		}
	}
	return all
}

func familyOf(a netip.Addr) *family {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

// Sets of the table itself, of each family.
const (
	setEgress  = "egress"  // a Pod's address : its chain
	setIngress = "ingress" // the same
	setSelf    = "self"    // a Pod's address . the same address
	setRanges  = "ranges"  // what Pods on the node get addresses of
	setCut     = "cut"     // flows that may not go on, see Cut
	setSources = "sources" // the device of a Pod . an address of the Pod
)

// Sets of the table itself, of both families.
const (
	setDevices = "pod-devices" // the devices of Pods
	setLinks   = "links"       // the device of a Pod : its chain for egress
)

// shape is what a set is declared as.
type shape struct {
	flags   uint32 // NFT_SET_*
	keyType uint32 // numbers of types in nft, 6 bits each
	keySize uint32
	isMap   bool   // to verdicts
	most    uint32 // how many elements it may have; 0 is any number
}

// Flags of sets (linux/netfilter/nf_tables.h, enum nft_set_flags).
const (
	flagInterval = 0x4
	flagMap      = 0x8
	flagTimeout  = 0x10
)

// Numbers of types in nft (nftables, include/datatype.h).
const (
	typeProtocol = 12
	typePort     = 13
	typeDevice   = 20
	typeBits     = 6
)

// shapeOf returns the declaration of a set of a kind.
func (f *family) shapeOf(k ruleset.Kind) shape {
	s := shape{keyType: f.magic, keySize: f.size}
	switch k {
	case ruleset.Blocks:
		s.flags = flagInterval
	case ruleset.Resolved:
		s.flags = flagTimeout
	case ruleset.HostPorts:
		s.keyType = s.keyType<<(2*typeBits) | typeProtocol<<typeBits | typePort
		s.keySize += 2 * 4
	case ruleset.Hosts:
	}
	return s
}

// ownShapes returns the declarations of the table's own sets.
func (f *family) ownShapes() map[string]shape {
	addr := f.shapeOf(ruleset.Hosts)
	verdicts, pair, source := addr, addr, addr
	verdicts.flags, verdicts.isMap = flagMap, true
	pair.keyType, pair.keySize = f.magic<<typeBits|f.magic, 2*f.size
	source.keyType, source.keySize = typeDevice<<typeBits|f.magic, deviceSize+f.size
	return map[string]shape{
		setSources + f.suffix: source,
		setEgress + f.suffix:  verdicts, setIngress + f.suffix: verdicts, setSelf + f.suffix: pair,
		setRanges + f.suffix: f.shapeOf(ruleset.Blocks), setCut + f.suffix: f.cutShape(),
	}
}

// Of the sets of devices.
const (
	deviceSize = 4 // of an index in octets
	// maxDevices is how many devices of Pods are known at most. The kernel looks elements up faster in a set
	// with a limit, for which it allocates 8 octets for each element at once.
	maxDevices = 1 << 14
)

// deviceShapes returns the declarations of the table's own sets of both families.
func deviceShapes() map[string]shape {
	devices := shape{keyType: typeDevice, keySize: deviceSize, most: maxDevices}
	links := shape{keyType: typeDevice, keySize: deviceSize, flags: flagMap, isMap: true}
	return map[string]shape{setDevices: devices, setLinks: links}
}

// element is an element of a set.
type element struct {
	key   string
	isEnd bool // the key is the first one behind an interval
	// verdict is where an element of a map goes: a chain, acceptAll, or returnAll; empty for sets.
	verdict string
	// timeout is how long a new one lasts, expires how much of that is left.
	timeout, expires time.Duration
}

// Verdicts of Pods that nothing restricts, for ingress and for egress. They are no chain's names.
const (
	acceptAll = "accept"
	returnAll = "return"
)

// id identifies an element in its set: where an interval ends, another may begin.
func (e *element) id() string {
	if e.isEnd {
		return e.key + "end"
	}
	return e.key
}

// encode appends the elements that an element of a Ruleset is of a set of a kind.
func encode(all []element, k ruleset.Kind, e ruleset.Element) []element {
	switch addr := e.Prefix.Addr().Unmap(); k {
	case ruleset.Blocks:
		return encodeBlock(all, e.Prefix)
	case ruleset.HostPorts:
		key := append(addr.AsSlice(), byte(e.Protocol), 0, 0, 0)
		key = append(binary.BigEndian.AppendUint16(key, e.Port), 0, 0)
		return append(all, element{key: string(key)})
	case ruleset.Hosts, ruleset.Resolved:
		return append(all, element{key: string(addr.AsSlice())})
	}
	return all
}

// encodeBlock appends the first address of a prefix, and the first behind it, if there is one.
func encodeBlock(all []element, p netip.Prefix) []element {
	first := p.Masked().Addr()
	all = append(all, element{key: string(first.AsSlice())})
	last := first.AsSlice()
	for i := p.Bits(); i < first.BitLen(); i++ {
		last[i/8] |= 0x80 >> (i % 8)
	}
	end, _ := netip.AddrFromSlice(last)
	if behind := end.Next(); behind.IsValid() {
		all = append(all, element{key: string(behind.AsSlice()), isEnd: true})
	}
	return all
}

// entry is an element of one of the table's own sets.
type entry struct {
	set string
	element
}

// podEntries returns what a Pod's address has.
func podEntries(addr netip.Addr, p ruleset.Pod) []entry {
	f, key := familyOf(addr), string(addr.AsSlice())
	return []entry{
		{setEgress + f.suffix, element{key: key, verdict: cmp.Or(p.Egress, returnAll)}},
		{setIngress + f.suffix, element{key: key, verdict: cmp.Or(p.Ingress, acceptAll)}},
		{setSelf + f.suffix, element{key: key + key}},
	}
}

// deviceEntries returns what a Pod's device has.
func deviceEntries(index uint32, d ruleset.Device) []entry {
	key := string(binary.NativeEndian.AppendUint32(nil, index))
	all := []entry{
		{setDevices, element{key: key}},
		{setLinks, element{key: key, verdict: cmp.Or(d.Egress, returnAll)}},
	}
	for _, addr := range d.Addrs {
		all = append(all, entry{setSources + familyOf(addr).suffix, element{key: key + string(addr.AsSlice())}})
	}
	return all
}

// ownEntries yields what Pods' addresses and devices have.
func ownEntries(rs ruleset.Ruleset) iter.Seq[entry] {
	return func(yield func(entry) bool) {
		for addr, p := range rs.Pods() {
			for _, e := range podEntries(addr, p) {
				if !yield(e) {
					return
				}
			}
		}
		for index, d := range rs.Devices() {
			for _, e := range deviceEntries(index, d) {
				if !yield(e) {
					return
				}
			}
		}
	}
}
