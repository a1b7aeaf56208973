package nft

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// family is a family of addresses.
type family struct {
	suffix  string // of names of sets
	nfproto byte   // NFPROTO_*
	size    uint32 // of an address in octets
	source  uint32 // where it is in a packet (RFC 791, section 3.1; RFC 8200, section 3); the destination follows
	magic   uint32 // the number of the type of addresses in nft
}

// The families.
var (
	ipv4     = &family{suffix: "4", nfproto: 2, size: 4, source: 12, magic: 7}
	ipv6     = &family{suffix: "6", nfproto: 10, size: 16, source: 8, magic: 8}
	families = []*family{ipv4, ipv6}
)

func familyOf(a netip.Addr) *family {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

// Names of sets, of which there is one of each family.
const (
	setPods      = "pods"           // ranges of own Pods
	setCluster   = "cluster"        // ranges of the cluster
	setNodes     = "nodes"          // addresses of all nodes
	setPorts     = "host-ports"     // protocol . port : address . port
	setAddresses = "host-addresses" // address . protocol . port : address . port
	setHairpin   = "hairpin"        // address . the same address, of Pods with hostPorts
)

// setNames are the names of all sets, less the family.
var setNames = []string{setPods, setCluster, setNodes, setPorts, setAddresses, setHairpin}

// shape is what a set is declared as.
type shape struct {
	flags              uint32 // NFT_SET_*
	keyType, keySize   uint32 // numbers of types in nft, 6 bits each
	dataType, dataSize uint32 // 0 if it is no map
}

// Flags of sets (linux/netfilter/nf_tables.h, enum nft_set_flags), and numbers of types (nftables,
// include/datatype.h).
const (
	flagInterval = 0x4
	flagMap      = 0x8
	typeProtocol = 12
	typePort     = 13
	typeBits     = 6
	field        = 4 // the octets of a protocol or a port in a key
)

// shapeOf returns the declaration of a set.
func (f *family) shapeOf(set string) shape {
	target := f.magic<<typeBits | typePort
	switch set {
	case setPorts:
		return shape{flagMap, typeProtocol<<typeBits | typePort, 2 * field, target, f.size + field}
	case setAddresses:
		return shape{
			flagMap, f.magic<<(2*typeBits) | typeProtocol<<typeBits | typePort, f.size + 2*field, target, f.size + field,
		}
	case setNodes:
		return shape{keyType: f.magic, keySize: f.size}
	case setHairpin:
		return shape{keyType: f.magic<<typeBits | f.magic, keySize: 2 * f.size}
	}
	return shape{flags: flagInterval, keyType: f.magic, keySize: f.size}
}

// element is an element of a set.
type element struct {
	set  string // with the family
	key  string
	data string // of a map
	// isEnd: the key is the first one behind an interval.
	isEnd bool
}

// rangeElements returns the elements of ranges in a set.
func rangeElements(set string, all []netip.Prefix) (made []element) {
	for _, p := range all {
		name := set + familyOf(p.Addr()).suffix
		first := p.Masked().Addr()
		made = append(made, element{set: name, key: string(first.AsSlice())})
		last := first.AsSlice()
		for i := p.Bits(); i < first.BitLen(); i++ {
			last[i/8] |= 0x80 >> (i % 8)
		}
		end, _ := netip.AddrFromSlice(last)
		if behind := end.Next(); behind.IsValid() {
			made = append(made, element{set: name, key: string(behind.AsSlice()), isEnd: true})
		}
	}
	return made
}

// addressElements returns the elements of addresses in a set.
func addressElements(set string, all []netip.Addr) (made []element) {
	for _, a := range all {
		made = append(made, element{set: set + familyOf(a).suffix, key: string(a.AsSlice())})
	}
	return made
}

// elements returns those of all ranges.
func (r *Ranges) elements() []element {
	return slices.Concat(
		rangeElements(setPods, r.Pods), rangeElements(setCluster, r.Cluster), addressElements(setNodes, r.Nodes),
	)
}

// portElements returns the elements of the ports of an owner, each once.
func portElements(all []Port) map[element]bool {
	made := make(map[element]bool)
	for _, p := range all {
		f, to := familyOf(p.To.Addr()), string(p.To.Addr().AsSlice())
		key := string([]byte{byte(p.Protocol), 0, 0, 0}) + port(p.HostPort)
		e := element{set: setPorts + f.suffix, key: key, data: to + port(p.To.Port())}
		if p.HostIP.IsValid() {
			e.set, e.key = setAddresses+f.suffix, string(p.HostIP.AsSlice())+key
		}
		made[e] = true
		made[element{set: setHairpin + f.suffix, key: to + to}] = true
	}
	return made
}

// port returns a port as a field of a key.
func port(n uint16) string { return string(append(binary.BigEndian.AppendUint16(nil, n), 0, 0)) }
