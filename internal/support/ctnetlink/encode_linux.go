package ctnetlink

import (
	"encoding/binary"
	"errors"
	"iter"
	"net/netip"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/nfnetlink"
)

// The messages (linux/netfilter/nfnetlink_conntrack.h, enum cntl_msg_types).
const (
	msgGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1
	msgDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2
)

// The attributes of entries (the same file, enum ctattr_type), and those within them.
const (
	attrOriginal   = 1
	attrReply      = 2
	attrStatus     = 3
	attrID         = 12
	attrZone       = 18
	attrFilter     = 25
	attrStatusMask = 26

	tupleIP       = 1
	tupleProtocol = 2
	tupleZone     = 3

	ipv4Source, ipv4Destination = 1, 2
	ipv6Source, ipv6Destination = 3, 4

	protocolNumber          = 1
	protocolSourcePort      = 2
	protocolDestinationPort = 3

	filterOriginal = 1 // CTA_FILTER_ORIG_FLAGS
)

// What of the original tuple is compared (net/netfilter/nf_internals.h, CTA_FILTER_F_CTA_*).
const (
	compareDestination     = 1 << 1
	compareProtocol        = 1 << 3
	compareDestinationPort = 1 << 5
)

// sizeofNfgenmsg is the size of struct nfgenmsg (linux/netfilter/nfnetlink.h).
const sizeofNfgenmsg = 4

// statusTranslated is the status of entries whose destination was translated (IPS_DST_NAT).
const statusTranslated = 1 << 5

var protocolFamily = map[Family]byte{IPv4: unix.AF_INET, IPv6: unix.AF_INET6}

// newMessage returns the headers of a message (struct nlmsghdr and nfgenmsg) without length.
func newMessage(flags, kind uint16, sequence uint32, f Family) []byte {
	buf := make([]byte, 4, 128)
	buf = binary.NativeEndian.AppendUint16(buf, kind)
	buf = binary.NativeEndian.AppendUint16(buf, flags)
	buf = binary.NativeEndian.AppendUint32(buf, sequence)
	buf = binary.NativeEndian.AppendUint32(buf, 0)
	return append(buf, protocolFamily[f], unix.NFNETLINK_V0, 0, 0)
}

// sized sets the length of a message.
func sized(message []byte) []byte {
	binary.NativeEndian.PutUint32(message, uint32(len(message)))
	return message
}

// appendFilter has the kernel leave out entries. Kernels before 5.8 (the tuple) and 5.15 (the status)
// ignore it and return more. Addresses of IPv6 are not compared: kernels, 6.18 among them, leave out
// the entries that have the address, and return the others (net/netfilter/nf_conntrack_netlink.c,
// ctnetlink_filter_match_tuple).
func appendFilter(buf []byte, f *Filter) []byte {
	if f.Protocol == 0 {
		return buf
	}
	compare := uint32(compareProtocol)
	if f.Family == IPv4 && f.Destination.IsValid() {
		compare |= compareDestination
	}
	if f.DestinationPort != 0 {
		compare |= compareDestinationPort
	}
	buf, filter := nfnetlink.OpenNested(buf, attrFilter)
	buf = nfnetlink.AppendAttribute(buf, filterOriginal, string(binary.NativeEndian.AppendUint32(nil, compare)))
	nfnetlink.CloseNested(buf, filter)

	buf, original := nfnetlink.OpenNested(buf, attrOriginal)
	if compare&compareDestination != 0 {
		buf = appendNested(buf, tupleIP, attribute{ipv4Destination, f.Destination.AsSlice()})
	}
	protocol := []attribute{{protocolNumber, []byte{f.Protocol}}}
	if f.DestinationPort != 0 {
		protocol = append(protocol, attribute{protocolDestinationPort, binary.BigEndian.AppendUint16(nil, f.DestinationPort)})
	}
	buf = appendNested(buf, tupleProtocol, protocol...)
	nfnetlink.CloseNested(buf, original)

	if f.Translated {
		buf = nfnetlink.AppendUint32(buf, attrStatus, statusTranslated)
		buf = nfnetlink.AppendUint32(buf, attrStatusMask, statusTranslated)
	}
	return buf
}

// Identity returns the entry's identity. Its reply has the endpoint: if the flow begins anew, at
// another endpoint, its entry has another reply. Its ID may be the same: it is made of the entry's
// place in memory and the original tuple.
func (e *Entry) Identity() Identity {
	buf := nfnetlink.AppendAttribute(nil, attrReply|unix.NLA_F_NESTED, string(e.reply))
	if e.zone != nil {
		buf = nfnetlink.AppendAttribute(buf, attrZone, string(e.zone))
	}
	return nfnetlink.AppendAttribute(buf, attrID, string(e.id))
}

// parse returns the entry with the attributes, and whether it is whole.
func parse(attributes []byte) (e Entry, ok bool) {
	var zone uint16
	for a := range each(attributes) {
		switch a.kind {
		case attrOriginal:
			e.Original, zone = parseTuple(a.value)
		case attrReply:
			e.reply = a.value
			e.Reply, _ = parseTuple(a.value)
		case attrZone:
			e.zone, e.Zone = a.value, number(a.value)
		case attrID:
			e.id = a.value
		}
	}
	if zone != 0 {
		e.Zone = zone
	}
	return e, e.Original.Destination.Addr().IsValid() && e.Reply.Source.Addr().IsValid() && e.id != nil
}

// parseTuple returns one direction of a flow, and the zone of that direction.
func parseTuple(attributes []byte) (t Tuple, zone uint16) {
	var source, destination netip.Addr
	var sourcePort, destinationPort uint16
	for a := range each(attributes) {
		switch a.kind {
		case tupleZone:
			zone = number(a.value)
		case tupleIP:
			for a := range each(a.value) {
				switch a.kind {
				case ipv4Source, ipv6Source:
					source, _ = netip.AddrFromSlice(a.value)
				case ipv4Destination, ipv6Destination:
					destination, _ = netip.AddrFromSlice(a.value)
				}
			}
		case tupleProtocol:
			for a := range each(a.value) {
				switch {
				case a.kind == protocolNumber && len(a.value) > 0:
					t.Protocol = a.value[0]
				case a.kind == protocolSourcePort:
					sourcePort = number(a.value)
				case a.kind == protocolDestinationPort:
					destinationPort = number(a.value)
				}
			}
		}
	}
	t.Source, t.Destination = netip.AddrPortFrom(source, sourcePort), netip.AddrPortFrom(destination, destinationPort)
	return t, zone
}

// number returns a number of 16 bits in network byte order; 0 if it is none.
func number(value []byte) uint16 {
	if len(value) < 2 {
		return 0
	}
	return binary.BigEndian.Uint16(value)
}

// attribute is a netlink attribute (linux/netlink.h, struct nlattr).
type attribute struct {
	kind  uint16
	value []byte
}

// each returns the attributes, up to one that is malformed.
func each(data []byte) iter.Seq[attribute] {
	return func(yield func(attribute) bool) {
		for len(data) >= unix.SizeofNlAttr {
			size := int(binary.NativeEndian.Uint16(data))
			kind := binary.NativeEndian.Uint16(data[2:]) & ^uint16(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER)
			if size < unix.SizeofNlAttr || size > len(data) {
				return
			}
			if !yield(attribute{kind, data[unix.SizeofNlAttr:size]}) {
				return
			}
			data = data[min(aligned(size), len(data)):]
		}
	}
}

func appendNested(buf []byte, kind uint16, inner ...attribute) []byte {
	buf, at := nfnetlink.OpenNested(buf, kind)
	for _, a := range inner {
		buf = nfnetlink.AppendAttribute(buf, a.kind, string(a.value))
	}
	nfnetlink.CloseNested(buf, at)
	return buf
}

func aligned(n int) int { return (n + unix.NLA_ALIGNTO - 1) &^ (unix.NLA_ALIGNTO - 1) }

// reply is a message of the kernel (linux/netlink.h, struct nlmsghdr).
type reply struct {
	kind, flags uint16
	sequence    uint32
	data        []byte
}

var errMalformed = errors.New("malformed netlink message")

// nextReply returns the first message in a datagram, and what is behind it.
func nextReply(datagram []byte) (m reply, behind []byte, err error) {
	if len(datagram) < unix.SizeofNlMsghdr {
		return reply{}, nil, errMalformed
	}
	size := int(binary.NativeEndian.Uint32(datagram))
	if size < unix.SizeofNlMsghdr || size > len(datagram) {
		return reply{}, nil, errMalformed
	}
	m = reply{
		kind: binary.NativeEndian.Uint16(datagram[4:]), flags: binary.NativeEndian.Uint16(datagram[6:]),
		sequence: binary.NativeEndian.Uint32(datagram[8:]), data: datagram[unix.SizeofNlMsghdr:size],
	}
	return m, datagram[min(aligned(size), len(datagram)):], nil
}

// errno returns the error in a message that ends a dump or answers a request; nil if it has
// none.
func (m *reply) errno() error {
	if len(m.data) < 4 {
		return nil
	}
	if number := int32(binary.NativeEndian.Uint32(m.data)); number != 0 {
		return unix.Errno(-number)
	}
	return nil
}
