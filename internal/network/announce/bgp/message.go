package bgp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"slices"
	"time"
)

// Types of messages (RFC 4271, section 4.1; RFC 2918).
const (
	typeOpen, typeUpdate, typeNotification, typeKeepalive, typeRefresh = 1, 2, 3, 4, 5
)

const (
	headerLen  = 19
	maxMessage = 4096
	openLen    = 10
	// asTrans stands for a number of four octets where there is room for two (RFC 6793).
	asTrans = 23456

	// Capabilities (RFC 5492).
	capMultiprotocol, capRefresh, capGraceful, capASN4 = 1, 2, 64, 65

	// Attributes of routes.
	attrOrigin, attrPath, attrNextHop, attrPreference = 1, 2, 3, 5
	attrCommunities, attrReach, attrUnreach           = 8, 14, 15
	// Their flags.
	flagOptional, flagTransitive, flagExtended = 0x80, 0x40, 0x10

	unicast = 1
)

// family is an address family (RFC 4760).
type family uint16

const (
	familyIPv4 family = 1
	familyIPv6 family = 2
)

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return familyIPv4
	}
	return familyIPv6
}

// message is a message without its header.
type message struct {
	kind uint8
	body []byte
}

// readMessage reads a message. An error that is to be told to the router is a NotificationError.
func readMessage(r io.Reader) (m message, err error) {
	var head [headerLen]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return m, err
	}
	if !bytes.Equal(head[:16], marker[:]) {
		return m, &NotificationError{Code: 1, Subcode: 1}
	}
	length := int(binary.BigEndian.Uint16(head[16:]))
	m.kind = head[18]
	shortest, known := map[uint8]int{
		typeOpen: 29, typeUpdate: 23, typeNotification: 21, typeKeepalive: headerLen, typeRefresh: 23,
	}[m.kind]
	switch {
	case !known:
		return m, &NotificationError{Code: 1, Subcode: 3}
	case length < shortest, length > maxMessage, m.kind == typeKeepalive && length != headerLen:
		return m, &NotificationError{Code: 1, Subcode: 2}
	}
	m.body = make([]byte, length-headerLen)
	_, err = io.ReadFull(r, m.body)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return m, err
}

// marker begins each message.
var marker = [16]byte(bytes.Repeat([]byte{0xff}, 16))

// encode returns the octets of a message.
func (m message) encode() []byte {
	b := append(make([]byte, 0, headerLen+len(m.body)), marker[:]...)
	b = binary.BigEndian.AppendUint16(b, uint16(headerLen+len(m.body)))
	return append(append(b, m.kind), m.body...)
}

// open is an OPEN message (RFC 4271, section 4.2).
type open struct {
	asn      uint32
	holdTime time.Duration
	routerID netip.Addr
	// families are those of which routes may be sent.
	families []family
	asn4     bool
	// graceful is for how long the routes are kept when the connection ends, and restarted whether the process has just
	// begun.
	graceful  time.Duration
	restarted bool
}

func (o *open) encode() message {
	var caps []byte
	add := func(code uint8, value ...byte) { caps = append(append(caps, code, byte(len(value))), value...) }
	for _, f := range o.families {
		add(capMultiprotocol, 0, byte(f), 0, unicast)
	}
	add(capRefresh)
	add(capASN4, binary.BigEndian.AppendUint32(nil, o.asn)...)
	if o.graceful > 0 {
		head := uint16(min(o.graceful/time.Second, 0xfff))
		if o.restarted {
			head |= 0x8000
		}
		value := binary.BigEndian.AppendUint16(nil, head)
		for _, f := range o.families {
			value = append(value, 0, byte(f), unicast, 0x80) // the kernel passes packets on meanwhile
		}
		add(capGraceful, value...)
	}
	asn := uint16(asTrans)
	if o.asn < 1<<16 {
		asn = uint16(o.asn)
	}
	id := o.routerID.As4()
	b := binary.BigEndian.AppendUint16([]byte{4}, asn)
	b = binary.BigEndian.AppendUint16(b, uint16(o.holdTime/time.Second))
	b = append(append(b, id[:]...), byte(2+len(caps)), 2, byte(len(caps)))
	return message{typeOpen, append(b, caps...)}
}

// parseOpen reads the body of an OPEN message.
func parseOpen(b []byte) (o open, err error) {
	malformed := &NotificationError{Code: 2, Subcode: 0}
	if len(b) < openLen {
		return o, malformed
	}
	if b[0] != 4 {
		return o, &NotificationError{Code: 2, Subcode: 1}
	}
	o.asn = uint32(binary.BigEndian.Uint16(b[1:]))
	o.holdTime = time.Duration(binary.BigEndian.Uint16(b[3:])) * time.Second
	o.routerID = netip.AddrFrom4([4]byte(b[5:9]))
	params := b[openLen:]
	if int(b[9]) != len(params) {
		return o, malformed
	}
	for len(params) > 0 {
		if len(params) < 2 || len(params) < 2+int(params[1]) {
			return o, malformed
		}
		value := params[2 : 2+int(params[1])]
		if params[0] == 2 && !o.capabilities(value) {
			return o, malformed
		}
		params = params[2+int(params[1]):]
	}
	switch {
	case o.holdTime == time.Second, o.holdTime == 2*time.Second:
		return o, &NotificationError{Code: 2, Subcode: 6}
	case o.routerID.IsUnspecified():
		return o, &NotificationError{Code: 2, Subcode: 3}
	}
	return o, nil
}

// capabilities reads a parameter with capabilities, and reports whether it is well formed.
func (o *open) capabilities(b []byte) bool {
	for len(b) > 0 {
		if len(b) < 2 || len(b) < 2+int(b[1]) {
			return false
		}
		value := b[2 : 2+int(b[1])]
		switch {
		case b[0] == capMultiprotocol && len(value) == 4 && value[3] == unicast:
			o.families = append(o.families, family(binary.BigEndian.Uint16(value)))
		case b[0] == capASN4 && len(value) == 4:
			o.asn, o.asn4 = binary.BigEndian.Uint32(value), true
		case b[0] == capGraceful && len(value) >= 2:
			o.graceful = time.Duration(binary.BigEndian.Uint16(value)&0xfff) * time.Second
		}
		b = b[2+len(value):]
	}
	return true
}

// accepts reports whether routes of a family may be sent to the router that sent the OPEN message. One without
// capabilities takes IPv4.
func (o *open) accepts(f family) bool {
	return slices.Contains(o.families, f) || f == familyIPv4 && len(o.families) == 0
}

// route is what routes have in common.
type route struct {
	nextHop     netip.Addr
	asn         uint32
	asn4        bool // AS numbers have four octets
	internal    bool
	preference  uint32
	communities []uint32
}

// maxRoutes is how many routes an UPDATE message has at most, so that it fits with all communities of a peer.
const maxRoutes = 100

// announce returns the UPDATE messages that announce addresses of the family of the next hop.
func (r *route) announce(addrs []netip.Addr) (all []message) {
	for some := range slices.Chunk(addrs, maxRoutes) {
		attrs := appendAttribute(nil, flagTransitive, attrOrigin, []byte{0}) // IGP
		attrs = appendAttribute(attrs, flagTransitive, attrPath, r.path())
		hop := r.nextHop.AsSlice()
		if r.nextHop.Is4() {
			attrs = appendAttribute(attrs, flagTransitive, attrNextHop, hop)
		}
		if r.internal {
			attrs = appendAttribute(attrs, flagTransitive, attrPreference, binary.BigEndian.AppendUint32(nil, r.preference))
		}
		if len(r.communities) > 0 {
			var value []byte
			for _, c := range r.communities {
				value = binary.BigEndian.AppendUint32(value, c)
			}
			attrs = appendAttribute(attrs, flagOptional|flagTransitive, attrCommunities, value)
		}
		if r.nextHop.Is4() {
			all = append(all, update(nil, attrs, prefixes(some)))
			continue
		}
		value := append([]byte{0, byte(familyIPv6), unicast, byte(len(hop))}, hop...)
		value = append(append(value, 0), prefixes(some)...)
		all = append(all, update(nil, appendAttribute(attrs, flagOptional, attrReach, value), nil))
	}
	return all
}

// path is the attribute AS_PATH: external routers see the number of the nodes' system.
func (r *route) path() []byte {
	switch {
	case r.internal:
		return nil
	case r.asn4:
		return binary.BigEndian.AppendUint32([]byte{2, 1}, r.asn)
	}
	return binary.BigEndian.AppendUint16([]byte{2, 1}, uint16(r.asn))
}

// withdraw returns the UPDATE messages that withdraw addresses of a family.
func withdraw(f family, addrs []netip.Addr) (all []message) {
	for some := range slices.Chunk(addrs, maxRoutes) {
		if f == familyIPv4 {
			all = append(all, update(prefixes(some), nil, nil))
			continue
		}
		value := append([]byte{0, byte(f), unicast}, prefixes(some)...)
		all = append(all, update(nil, appendAttribute(nil, flagOptional, attrUnreach, value), nil))
	}
	return all
}

// endOfRIB returns the message that says that all routes of a family were sent (RFC 4724, section 2).
func endOfRIB(f family) message {
	if f == familyIPv4 {
		return update(nil, nil, nil)
	}
	return update(nil, appendAttribute(nil, flagOptional, attrUnreach, []byte{0, byte(f), unicast}), nil)
}

func update(withdrawn, attrs, announced []byte) message {
	b := append(binary.BigEndian.AppendUint16(nil, uint16(len(withdrawn))), withdrawn...)
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(attrs))), attrs...)
	return message{typeUpdate, append(b, announced...)}
}

func appendAttribute(b []byte, flags, kind uint8, value []byte) []byte {
	if len(value) < 1<<8 {
		return append(append(b, flags, kind, byte(len(value))), value...)
	}
	b = append(b, flags|flagExtended, kind)
	return append(binary.BigEndian.AppendUint16(b, uint16(len(value))), value...)
}

// prefixes encodes addresses as prefixes of full length.
func prefixes(addrs []netip.Addr) (b []byte) {
	for _, a := range addrs {
		b = append(append(b, byte(a.BitLen())), a.AsSlice()...)
	}
	return b
}
