// Package allnames is DNS data in which every name has an address. Answering from it
// costs a Go program almost nothing.
package allnames

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// AppendAnswer appends the answer to a query: the name's address for type A, and NODATA
// for any other type. It returns false if query is not a query with one question.
func AppendAnswer(b, query []byte, ttl uint32) (answer []byte, ok bool) {
	const (
		response, recursion = 0x8000, 0x0080 // flags QR and RA
		toQuestion          = 0xc000 | dnswire.HeaderLen
		fixedLen            = 4 // of the type and class
		classIN             = 1
		typeOPT, udpSize    = 41, 1232
	)
	if len(query) < dnswire.HeaderLen || query[2]&0x80 != 0 || binary.BigEndian.Uint16(query[4:]) != 1 {
		return b, false
	}
	nameLen, ok := nameLength(query[dnswire.HeaderLen:])
	end := dnswire.HeaderLen + nameLen + fixedLen
	if !ok || len(query) < end {
		return b, false
	}
	edns := min(1, binary.BigEndian.Uint16(query[10:])) // no other records matter
	isA := dnswire.Type(binary.BigEndian.Uint16(query[end-fixedLen:])) == dnswire.TypeA
	counts := []uint16{1, 1, 0, edns}
	if !isA {
		counts = []uint16{1, 0, 1, edns}
	}
	b = append(b, query[:2]...)
	b = binary.BigEndian.AppendUint16(b, response|recursion|uint16(query[2])<<8&dnswire.FlagRD)
	for _, n := range counts {
		b = binary.BigEndian.AppendUint16(b, n)
	}
	b = append(b, query[dnswire.HeaderLen:end]...)
	if isA {
		address := addressOf(query[dnswire.HeaderLen:][:nameLen]).As4()
		b = appendHead(binary.BigEndian.AppendUint16(b, toQuestion), dnswire.TypeA, classIN, ttl)
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(address))), address[:]...)
	} else {
		b = appendHead(append(b, 0), dnswire.TypeSOA, classIN, ttl)
		b = appendSOA(b, ttl)
	}
	if edns > 0 {
		b = appendHead(append(b, 0), typeOPT, udpSize, 0)
		b = append(b, 0, 0)
	}
	return b, true
}

// appendHead appends the fields between a record's owner and its length.
func appendHead(b []byte, t dnswire.Type, class uint16, ttl uint32) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(t))
	b = binary.BigEndian.AppendUint16(b, class)
	return binary.BigEndian.AppendUint32(b, ttl)
}

// appendSOA appends the length and the data of a SOA record of the root with the given
// negative TTL (RFC 2308, section 3).
func appendSOA(b []byte, ttl uint32) []byte {
	const names, numbers = 2, 5
	b = binary.BigEndian.AppendUint16(b, names+4*numbers)
	b = append(b, 0, 0)
	for range numbers {
		b = binary.BigEndian.AppendUint32(b, ttl)
	}
	return b
}

// nameLength returns the length of a name in wire form, including the root's octet.
func nameLength(b []byte) (length int, ok bool) {
	const longestLabel = 63
	for length < len(b) && b[length] <= longestLabel {
		if b[length] == 0 {
			return length + 1, true
		}
		length += 1 + int(b[length])
	}
	return 0, false
}

// addressOf returns the address of a name in wire form, regardless of its case, in the
// range for measurements (RFC 2544, appendix C.2.2).
func addressOf(name []byte) netip.Addr {
	lower := make([]byte, len(name))
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	h := fnv.New32a()
	_, _ = h.Write(lower) // never fails
	sum := h.Sum32()
	return netip.AddrFrom4([4]byte{198, 18 | byte(sum>>16&1), byte(sum >> 8), byte(sum)})
}
