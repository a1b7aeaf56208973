package zone

import (
	"bytes"
	"encoding/binary"
	"iter"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// Builder builds Subtrees one after another and reuses its memory. The labels
// that its methods take are those of a name below the base, the first label
// first; no labels mean the base itself. A name that violates the limits of DNS
// (RFC 1035, section 2.3.4) is left out, with its records.
type Builder struct {
	// Metadata is the metadata of the base.
	Metadata Metadata

	base     dnsname.Name
	ttl      uint32
	records  []record
	hosts    []netip.Addr
	pointers [][]byte

	octets []byte // backing store of records and pointers
	packed []byte
	rdata  [][]byte
	shared map[Metadata]*Metadata // metadata of Subtrees built before
}

// record is one record, or an empty non-terminal.
type record struct {
	labels []byte
	typ    dnswire.Type // noType for an empty non-terminal
	ttl    uint32
	rdata  []byte
}

const noType = 0

func (r *record) compare(o *record) int {
	if c := bytes.Compare(r.labels, o.labels); c != 0 {
		return c
	}
	if c := int(r.typ) - int(o.typ); c != 0 {
		return c
	}
	return dnswire.CompareRData(r.typ, r.rdata, o.rdata)
}

// Begin discards all data and begins the subtree at base, whose records have
// the given TTL in seconds.
func (b *Builder) Begin(base dnsname.Name, ttl uint32) {
	b.base, b.ttl, b.Metadata = base, ttl, Metadata{}
	b.records, b.hosts, b.pointers = b.records[:0], b.hosts[:0], b.pointers[:0]
	b.octets = b.octets[:0]
}

// Add adds a record. Duplicate records are dropped.
func (b *Builder) Add(t dnswire.Type, rdata []byte, labels ...string) {
	if name, ok := b.wireName(labels); ok {
		b.addRecord(record{labels: name, typ: t, ttl: b.ttl, rdata: rdata})
	}
}

// AddSet adds the records of an RRset at name, the base or a name below it, with
// a TTL of their own.
func (b *Builder) AddSet(t dnswire.Type, ttl uint32, name dnsname.Name, rdata ...[]byte) {
	labels := b.copyOctets([]byte(name.WireLabels()[:name.WireLen()-b.base.WireLen()]))
	for _, data := range rdata {
		b.addRecord(record{labels: labels, typ: t, ttl: ttl, rdata: data})
	}
}

// addRecord adds a record. It copies the RDATA, but not the labels.
func (b *Builder) addRecord(r record) {
	name := r.labels
	r.rdata = b.copyOctets(r.rdata)
	b.records = append(b.records, r)
	for len(name) > 0 {
		if name = name[1+name[0]:]; len(name) > 0 {
			b.records = append(b.records, record{labels: name})
		}
	}
}

// AddAddr adds the A or AAAA record of addr.
func (b *Builder) AddAddr(addr netip.Addr, labels ...string) {
	k := keyOf(addr)
	b.Add(addrType(addr), k.octets(), labels...)
}

func addrType(addr netip.Addr) dnswire.Type {
	if addr.Is4() {
		return dnswire.TypeA
	}
	return dnswire.TypeAAAA
}

// AddHost adds a host: the name directly below the base that spells addr, with
// its A or AAAA record.
func (b *Builder) AddHost(addr netip.Addr) {
	if hostFits(b.base, addr) {
		b.hosts = append(b.hosts, addr.WithZone(""))
	}
}

// AddPTR adds a PTR record at the reverse name of addr that points to the name
// with the given labels.
func (b *Builder) AddPTR(addr netip.Addr, rank Rank, labels ...string) {
	if name, ok := b.wireName(labels); ok {
		b.addPointer(addr, byte(len(name)), name, rank)
	}
}

// AddHostPTR adds a PTR record at the reverse name of addr that points to its
// host name below the base.
func (b *Builder) AddHostPTR(addr netip.Addr, rank Rank) {
	if hostFits(b.base, addr) {
		b.addPointer(addr, hostTarget, nil, rank)
	}
}

// hostTarget takes the place of the labels' length if the target is the host of
// the address. No name is that long.
const hostTarget = 0xff

// minPointer is the length of the shortest packed pointer, in octets.
const minPointer = 7

// addPointer packs a pointer: the address's length, the address, the length of
// the labels, the labels, the rank. In the order of these octets, pointers to
// one target are neighbors, the lowest rank first.
func (b *Builder) addPointer(addr netip.Addr, length byte, labels []byte, rank Rank) {
	k := keyOf(addr)
	start := len(b.octets)
	b.octets = append(append(b.octets, byte(k.length)), k.octets()...)
	b.octets = append(append(append(b.octets, length), labels...), byte(rank))
	b.pointers = append(b.pointers, b.octets[start:])
}

// AppendName appends the uncompressed wire form of the name with the given
// labels. ok is false if the name violates the limits of DNS.
func (b *Builder) AppendName(wire []byte, labels ...string) (appended []byte, ok bool) {
	name, ok := b.wireName(labels)
	if !ok {
		return wire, false
	}
	return b.base.AppendWire(append(wire, name...)), true
}

// AppendHostName is AppendName for the host that spells addr.
func (b *Builder) AppendHostName(wire []byte, addr netip.Addr) (appended []byte, ok bool) {
	if !hostFits(b.base, addr) {
		return wire, false
	}
	return b.base.AppendWire(appendHostLabel(wire, addr)), true
}

// wireName stores the wire form of labels and returns it. ok is false if the
// name below the base violates the limits of DNS.
func (b *Builder) wireName(labels []string) (name []byte, ok bool) {
	start := len(b.octets)
	for _, l := range labels {
		if l == "" || len(l) > dnsname.MaxLabel {
			return nil, false
		}
		b.octets = dnsname.AppendLabel(b.octets, l)
	}
	name = b.octets[start:len(b.octets):len(b.octets)]
	return name, len(name)+b.base.WireLen() <= dnsname.MaxWire
}

func (b *Builder) copyOctets(octets []byte) []byte {
	start := len(b.octets)
	b.octets = append(b.octets, octets...)
	return b.octets[start:len(b.octets):len(b.octets)]
}

// hostFits reports whether a host of addr below parent fits the limit of names.
func hostFits(parent dnsname.Name, addr netip.Addr) bool {
	if parent.WireLen()+1+dnsname.MaxDashedAddr <= dnsname.MaxWire {
		return true
	}
	var buf [1 + dnsname.MaxDashedAddr]byte
	return parent.WireLen()+len(appendHostLabel(buf[:0], addr)) <= dnsname.MaxWire
}

// appendHostLabel appends the label of the host of addr, in wire form.
func appendHostLabel(b []byte, addr netip.Addr) []byte {
	length := len(b)
	b = dnsname.AppendDashedAddr(append(b, 0), addr)
	b[length] = byte(len(b) - length - 1)
	return b
}

// Subtree returns the data added since Begin as a Subtree; nil if there is none
// and Metadata is zero.
func (b *Builder) Subtree() *Subtree {
	b.sort()
	t := &Subtree{metadata: b.sharedMetadata(), ttl: b.ttl, names: b.countNames(), hosts4: uint32(len(b.hosts))}
	if v6 := slices.IndexFunc(b.hosts, netip.Addr.Is6); v6 >= 0 {
		t.hosts4, t.hosts6 = uint32(v6), uint32(len(b.hosts)-v6)
	}
	b.packed = append(b.packed[:0], make([]byte, offsetLen*t.names)...)
	b.packNames()
	b.packHosts()
	t.pointers = uint32(len(b.packed))
	for _, p := range b.pointers {
		b.packed = append(b.packed, p...)
	}
	if !t.hasData() && len(b.pointers) == 0 && *t.metadata == (Metadata{}) {
		return nil
	}
	t.data = bytes.Clone(b.packed)
	return t
}

// maxShared bounds the metadata that a Builder remembers. Few values differ.
const maxShared = 256

// sharedMetadata returns a pointer to b.Metadata that all Subtrees with equal
// metadata share.
func (b *Builder) sharedMetadata() *Metadata {
	shared, ok := b.shared[b.Metadata]
	if !ok {
		if b.shared == nil || len(b.shared) == maxShared {
			b.shared = make(map[Metadata]*Metadata)
		}
		made := b.Metadata
		shared = &made
		b.shared[b.Metadata] = shared
	}
	return shared
}

// sort sorts all data and removes duplicates.
func (b *Builder) sort() {
	slices.SortFunc(b.hosts, netip.Addr.Compare)
	b.hosts = slices.Compact(b.hosts)
	b.moveMixedHosts()
	slices.SortFunc(b.records, func(r, o record) int { return r.compare(&o) })
	b.records = slices.CompactFunc(b.records, func(r, o record) bool { return r.compare(&o) == 0 })
	slices.SortFunc(b.pointers, bytes.Compare)
	b.pointers = slices.CompactFunc(b.pointers, func(p, q []byte) bool { return bytes.Equal(p[:len(p)-1], q[:len(q)-1]) })
}

// moveMixedHosts turns hosts into records if their names have other records
// too.
func (b *Builder) moveMixedHosts() {
	if len(b.hosts) == 0 {
		return
	}
	for _, r := range b.records {
		if len(r.labels) == 0 || len(r.labels) > 1+int(r.labels[0]) {
			continue
		}
		addr, ok := dnsname.ParseDashedAddr(r.labels[1:])
		if !ok {
			continue
		}
		i, found := slices.BinarySearchFunc(b.hosts, addr, netip.Addr.Compare)
		if label := appendHostLabel(nil, addr); found && string(label) == string(r.labels) {
			k := keyOf(addr)
			b.addRecord(record{labels: r.labels, typ: addrType(addr), ttl: b.ttl, rdata: k.octets()})
			b.hosts = slices.Delete(b.hosts, i, i+1)
		}
	}
}

func (b *Builder) countNames() (names uint32) {
	for i, r := range b.records {
		if i == 0 || !bytes.Equal(r.labels, b.records[i-1].labels) {
			names++
		}
	}
	return names
}

func (b *Builder) packHosts() {
	for _, addr := range b.hosts {
		k := keyOf(addr)
		b.packed = append(b.packed, k.octets()...)
	}
}

// packNames packs each name with its RRsets. An RRset that equals one of the
// base's, such as the SRV RRset of the only port, refers to the base's.
func (b *Builder) packNames() {
	var base []byte // offsets of the base's RRsets
	for i, rest := 0, b.records; len(rest) > 0; i++ {
		n := runLength(rest, func(r *record) bool { return bytes.Equal(r.labels, rest[0].labels) })
		binary.BigEndian.PutUint32(b.packed[i*offsetLen:], uint32(len(b.packed)))
		offsets := b.packName(rest[:n], base)
		if len(rest[0].labels) == 0 {
			base = offsets
		}
		rest = rest[n:]
	}
}

// packName packs a name and those of its RRsets that are not among the base's.
// It returns the offsets of all of them.
func (b *Builder) packName(records []record, base []byte) (offsets []byte) {
	sets := 0
	for range rrsets(records) {
		sets++
	}
	labels := records[0].labels
	b.packed = append(append(b.packed, byte(len(labels))), labels...)
	b.packed = append(b.packed, byte(sets))
	start := len(b.packed)
	b.packed = append(b.packed, make([]byte, offsetLen*sets)...)
	at := start
	for set := range rrsets(records) {
		place := b.packSet(set, base)
		binary.BigEndian.PutUint32(b.packed[at:], place)
		at += offsetLen
	}
	return b.packed[start:at]
}

// rrsets yields the records of each type.
func rrsets(records []record) iter.Seq[[]record] {
	return func(yield func([]record) bool) {
		for len(records) > 0 {
			n := runLength(records, func(r *record) bool { return r.typ == records[0].typ })
			if records[0].typ != noType && !yield(records[:n]) {
				return
			}
			records = records[n:]
		}
	}
}

// packSet packs an RRset, unless it equals one of those at the offsets base,
// and returns its offset.
func (b *Builder) packSet(records []record, base []byte) (at uint32) {
	b.rdata = b.rdata[:0]
	for _, r := range records {
		b.rdata = append(b.rdata, r.rdata)
	}
	start := len(b.packed)
	b.packed = dnswire.AppendRRset(b.packed, records[0].typ, records[0].ttl, b.rdata...)
	for ; len(base) > 0; base = base[offsetLen:] {
		p := readOffset(base)
		if set := dnswire.ReadRRset(b.packed[start:]); set.Equal(dnswire.ReadRRset(b.packed[p:])) {
			b.packed = b.packed[:start]
			return p
		}
	}
	return uint32(start)
}

func runLength(rs []record, same func(*record) bool) int {
	n := 1
	for n < len(rs) && same(&rs[n]) {
		n++
	}
	return n
}
