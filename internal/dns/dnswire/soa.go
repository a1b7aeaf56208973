package dnswire

import (
	"encoding/binary"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// AppendRData appends the uncompressed RDATA of the SOA record (RFC 1035,
// section 3.3.13).
func (s *SOA) AppendRData(b []byte) []byte {
	b = s.RName.AppendWire(s.MName.AppendWire(b))
	for _, n := range [...]uint32{s.Serial, s.Refresh, s.Retry, s.Expire, s.Minimum} {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}

// ParseSOA parses the uncompressed RDATA of zone's SOA record; ttl is in
// seconds.
func ParseSOA(zone dnsname.Name, ttl uint32, rdata []byte) (s SOA, ok bool) {
	s.Zone, s.TTL = zone, ttl
	for _, name := range []*dnsname.Name{&s.MName, &s.RName} {
		n, taken, err := dnsname.FromWire(rdata)
		if err != nil {
			return SOA{}, false
		}
		*name, rdata = n, rdata[taken:]
	}
	if len(rdata) != soaNumbers {
		return SOA{}, false
	}
	for _, to := range []*uint32{&s.Serial, &s.Refresh, &s.Retry, &s.Expire, &s.Minimum} {
		*to, rdata = binary.BigEndian.Uint32(rdata), rdata[4:]
	}
	return s, true
}

// AppendTransferQuery appends a query for a transfer of zone, with an OPT
// record that has one option without value. It is for IXFR from version has
// (RFC 1995, section 3), or for AXFR if has is nil.
func AppendTransferQuery(b []byte, id uint16, zone dnsname.Name, has *SOA, option OptionCode) []byte {
	t := TypeAXFR
	if has != nil {
		t = TypeIXFR
	}
	head := len(b)
	b = binary.BigEndian.AppendUint16(b, id)
	b = append(b, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1)
	b = AppendQuestion(b, []byte(zone.WireLabels()), t)
	if has != nil {
		b[head+9] = 1
		b = binary.BigEndian.AppendUint16(b, 0xc000|HeaderLen)
		b = binary.BigEndian.AppendUint16(b, uint16(TypeSOA))
		b = binary.BigEndian.AppendUint16(b, uint16(ClassIN))
		b = binary.BigEndian.AppendUint32(b, has.TTL)
		length := len(b)
		b = has.AppendRData(append(b, 0, 0))
		binary.BigEndian.PutUint16(b[length:], uint16(len(b)-length-2))
	}
	b = append(b, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(TypeOPT))
	b = binary.BigEndian.AppendUint16(b, MaxMessage)
	b = append(b, 0, 0, 0, 0, 0, byte(OptionLen(0)))
	b = binary.BigEndian.AppendUint16(b, uint16(option))
	return append(b, 0, 0)
}
