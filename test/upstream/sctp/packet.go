package sctp

import (
	"encoding/binary"
	"hash/crc32"
)

// protocol is SCTP's number (RFC 9260, section 3).
const protocol = "132"

// kind is a type of a chunk (RFC 9260, section 3.2).
type kind byte

const (
	initiation    kind = 1
	initiationAck kind = 2
	abort         kind = 6
	cookieEcho    kind = 10
	cookieAck     kind = 11
)

// packet is a packet with one chunk.
type packet struct {
	source, destination uint16 // ports
	tag                 uint32 // of the receiver; 0 with an initiation
	kind                kind
	value               []byte // of the chunk
}

const (
	headerLength = 12 // of a packet
	chunkLength  = 4  // of a chunk without its value
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode returns what follows the IP header. The value's length is a multiple of four.
func (p packet) encode() []byte {
	data := binary.BigEndian.AppendUint16(nil, p.source)
	data = binary.BigEndian.AppendUint16(data, p.destination)
	data = binary.BigEndian.AppendUint32(data, p.tag)
	data = append(data, 0, 0, 0, 0, byte(p.kind), 0)
	data = binary.BigEndian.AppendUint16(data, uint16(chunkLength+len(p.value)))
	data = append(data, p.value...)
	binary.LittleEndian.PutUint32(data[8:], crc32.Checksum(data, castagnoli))
	return data
}

// decode returns a packet with its first chunk. It reports false for one that is too short.
func decode(data []byte) (p packet, ok bool) {
	if len(data) < headerLength+chunkLength {
		return packet{}, false
	}
	chunk := data[headerLength:]
	length := int(binary.BigEndian.Uint16(chunk[2:]))
	if length < chunkLength || length > len(chunk) {
		return packet{}, false
	}
	return packet{
		source: binary.BigEndian.Uint16(data), destination: binary.BigEndian.Uint16(data[2:]),
		tag: binary.BigEndian.Uint32(data[4:]), kind: kind(chunk[0]), value: chunk[chunkLength:length],
	}, true
}

// initiationOf is the value of an INIT or INIT ACK chunk with the sender's tag: a window, one stream each
// way, and the tag as first sequence number (RFC 9260, section 3.3.2).
func initiationOf(tag uint32) []byte {
	const window = 1 << 16
	value := binary.BigEndian.AppendUint32(nil, tag)
	value = binary.BigEndian.AppendUint32(value, window)
	value = append(value, 0, 1, 0, 1)
	return binary.BigEndian.AppendUint32(value, tag)
}

// initiationLength is the length of such a value without parameters.
const initiationLength = 16

// cookieParameter is the header of a state cookie of four octets in an INIT ACK chunk (RFC 9260, section
// 3.3.3).
var cookieParameter = []byte{0, 7, 0, chunkLength + 4}
