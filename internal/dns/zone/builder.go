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

// Builder makes Subtrees, one after another, and uses its memory again. Labels
// that its methods take are those of a name below the base, the first label
// first; none are the base itself. A name that DNS does not allow is left out,
// with what belongs to it.
type Builder struct {
	// Marks are those of the base.
	Metadata Metadata

	base     dnsname.Name
	ttl      uint32
	records  []record
	hosts    []netip.Addr
	pointers [][]byte

	octets []byte // that records and pointers are made of
	packed []byte
	rdata  [][]byte
	marks  map[Metadata]*Metadata // of Subtrees made before
}

// record is one record, or makes a name exist that has names below it.
type record struct {
	labels []byte
	typ    dnswire.Type // noType for a name alone
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

// Begin forgets everything and begins the subtree at base, whose records have
// the given TTL, in seconds.
func (b *Builder) Begin(base dnsname.Name, ttl uint32) {
	b.base, b.ttl, b.Metadata = base, ttl, Metadata{}
	b.records, b.hosts, b.pointers = b.records[:0], b.hosts[:0], b.pointers[:0]
	b.octets = b.octets[:0]
}

// Add adds a record. Equal records become one.
func (b *Builder) Add(t dnswire.Type, rdata []byte, labels ...string) {
	if name, ok := b.name(labels); ok {
		b.addRecord(t, rdata, name)
	}
}

// addRecord adds a record at name, labels below the base in wire form, which
// stay as they are.
func (b *Builder) addRecord(t dnswire.Type, rdata, name []byte) {
	b.records = append(b.records, record{labels: name, typ: t, rdata: b.keep(rdata)})
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

// AddPTR points the reverse name of addr to the name that the labels make.
func (b *Builder) AddPTR(addr netip.Addr, rank Rank, labels ...string) {
	if name, ok := b.name(labels); ok {
		b.addPointer(addr, byte(len(name)), name, rank)
	}
}

// AddHostPTR points the reverse name of addr to the host that spells it.
func (b *Builder) AddHostPTR(addr netip.Addr, rank Rank) {
	if hostFits(b.base, addr) {
		b.addPointer(addr, toHost, nil, rank)
	}
}

// toHost stands for the length of the labels where the target is the host. No
// name is as long.
const toHost = 0xff

// minPointer is the length of the shortest pointer that addPointer packs.
const minPointer = 7

// addPointer packs a pointer: the address's length, the address, the length of
// the labels, the labels, the rank. In order of these octets pointers to one
// target are neighbours, the lowest rank first.
func (b *Builder) addPointer(addr netip.Addr, length byte, labels []byte, rank Rank) {
	k := keyOf(addr)
	start := len(b.octets)
	b.octets = append(append(b.octets, byte(k.length)), k.octets()...)
	b.octets = append(append(append(b.octets, length), labels...), byte(rank))
	b.pointers = append(b.pointers, b.octets[start:])
}

// AppendName appends the uncompressed wire form of the name that the labels
// make, if DNS allows it.
func (b *Builder) AppendName(wire []byte, labels ...string) (appended []byte, ok bool) {
	name, ok := b.name(labels)
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

// name keeps the wire form of labels, if DNS allows the name that they make
// below the base.
func (b *Builder) name(labels []string) (name []byte, ok bool) {
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

func (b *Builder) keep(octets []byte) []byte {
	start := len(b.octets)
	b.octets = append(b.octets, octets...)
	return b.octets[start:len(b.octets):len(b.octets)]
}

// hostFits tells whether parent can have a host with that address.
func hostFits(parent dnsname.Name, addr netip.Addr) bool {
	if parent.WireLen()+1+dnsname.MaxDashedAddr <= dnsname.MaxWire {
		return true
	}
	var buf [1 + dnsname.MaxDashedAddr]byte
	return parent.WireLen()+len(appendHostLabel(buf[:0], addr)) <= dnsname.MaxWire
}

// appendHostLabel appends the label of the host with that address, in wire
// form.
func appendHostLabel(b []byte, addr netip.Addr) []byte {
	length := len(b)
	b = dnsname.AppendDashedAddr(append(b, 0), addr)
	b[length] = byte(len(b) - length - 1)
	return b
}

// Subtree is what was added since Begin, and the Marks; nil when that is
// nothing.
func (b *Builder) Subtree() *Subtree {
	b.sort()
	t := &Subtree{marks: b.sharedMarks(), ttl: b.ttl, names: b.countNames(), hosts4: uint32(len(b.hosts))}
	if v6 := slices.IndexFunc(b.hosts, netip.Addr.Is6); v6 >= 0 {
		t.hosts4, t.hosts6 = uint32(v6), uint32(len(b.hosts)-v6)
	}
	b.packed = append(b.packed[:0], make([]byte, placeLen*t.names)...)
	b.packNames()
	b.packHosts()
	t.pointers = uint32(len(b.packed))
	for _, p := range b.pointers {
		b.packed = append(b.packed, p...)
	}
	if !t.holds() && len(b.pointers) == 0 && *t.marks == (Metadata{}) {
		return nil
	}
	t.data = bytes.Clone(b.packed)
	return t
}

// maxShared is how many Marks a Builder remembers: there are few.
const maxShared = 256

// sharedMarks are b.Marks, where Subtrees with the same ones have them too.
func (b *Builder) sharedMarks() *Metadata {
	shared, ok := b.marks[b.Metadata]
	if !ok {
		if b.marks == nil || len(b.marks) == maxShared {
			b.marks = make(map[Metadata]*Metadata)
		}
		made := b.Metadata
		shared = &made
		b.marks[b.Metadata] = shared
	}
	return shared
}

// sort puts everything in order, without duplicates.
func (b *Builder) sort() {
	slices.SortFunc(b.hosts, netip.Addr.Compare)
	b.hosts = slices.Compact(b.hosts)
	b.mixHosts()
	slices.SortFunc(b.records, func(r, o record) int { return r.compare(&o) })
	b.records = slices.CompactFunc(b.records, func(r, o record) bool { return r.compare(&o) == 0 })
	slices.SortFunc(b.pointers, bytes.Compare)
	b.pointers = slices.CompactFunc(b.pointers, func(p, q []byte) bool { return bytes.Equal(p[:len(p)-1], q[:len(q)-1]) })
}

// mixHosts makes records of the hosts whose names have other records too.
func (b *Builder) mixHosts() {
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
			b.records = append(b.records, record{labels: r.labels, typ: addrType(addr), rdata: b.keep(k.octets())})
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

// packNames packs each name with its RRsets. One that is the base's too, as the
// SRV records of an only port are, is not repeated.
func (b *Builder) packNames() {
	var base []byte // places of the base's RRsets
	for i, rest := 0, b.records; len(rest) > 0; i++ {
		n := runLength(rest, func(r *record) bool { return bytes.Equal(r.labels, rest[0].labels) })
		binary.BigEndian.PutUint32(b.packed[i*placeLen:], uint32(len(b.packed)))
		places := b.packName(rest[:n], base)
		if len(rest[0].labels) == 0 {
			base = places
		}
		rest = rest[n:]
	}
}

// packName packs a name and those of its RRsets that are not among the base's.
// It gives the places of all of them.
func (b *Builder) packName(records []record, base []byte) (places []byte) {
	sets := 0
	for range rrsets(records) {
		sets++
	}
	labels := records[0].labels
	b.packed = append(append(b.packed, byte(len(labels))), labels...)
	b.packed = append(b.packed, byte(sets))
	start := len(b.packed)
	b.packed = append(b.packed, make([]byte, placeLen*sets)...)
	at := start
	for set := range rrsets(records) {
		place := b.packSet(set, base)
		binary.BigEndian.PutUint32(b.packed[at:], place)
		at += placeLen
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

// packSet packs an RRset, unless it is one of those at the places base, and says
// where it begins.
func (b *Builder) packSet(records []record, base []byte) (at uint32) {
	b.rdata = b.rdata[:0]
	for _, r := range records {
		b.rdata = append(b.rdata, r.rdata)
	}
	start := len(b.packed)
	b.packed = dnswire.AppendRRset(b.packed, records[0].typ, b.ttl, b.rdata...)
	for ; len(base) > 0; base = base[placeLen:] {
		p := place(base)
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
