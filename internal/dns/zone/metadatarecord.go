package zone

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// TypeMetadata is the type of records that carry the Metadata of names to a
// Portolan secondary, in the range for private use (RFC 6895, section 3.1).
// Transfers to other secondaries do not contain them. Each base of a Subtree
// and each parent of Hosts owns one with its Metadata. A reverse name whose PTR
// records are not in canonical order owns one for each target that comes first.
const TypeMetadata = dnswire.Type(65280)

// ErrMetadata is wrapped by errors about RDATA of TypeMetadata.
var ErrMetadata = errors.New("not metadata of a known version")

// The first octet of the RDATA: its kind and version.
const (
	baseMetadataV1    = 1 // metadata of a base
	pointerMetadataV1 = 2 // order of a reverse name's targets
)

// Flags in the second octet of a base's metadata.
const (
	flagExists      = 1 << 0
	childrenShift   = 1 // two bits
	flagEDE         = 1 << 3
	flagBelow       = 1 << 4
	flagUnderscored = 1 << 5
	flagsUnknown    = 1<<6 | 1<<7

	flagPending = 1 << 0 // flag of an EDE
	reasonShift = 1      // the other bits are its Reason
)

// maxEDEText is the longest text of an EDE in a transfer, in octets.
const maxEDEText = 4096

// AppendMetadata appends m without Stale as RDATA of TypeMetadata: version,
// flags, ChildTTL and each EDE present: code, flags, length of the text, text.
func AppendMetadata(b []byte, m *Metadata) []byte {
	flags := byte(m.Children) << childrenShift
	if m.Exists {
		flags |= flagExists
	}
	head := len(b)
	b = append(b, baseMetadataV1, 0)
	b = binary.BigEndian.AppendUint32(b, m.ChildTTL)
	for _, n := range [...]struct {
		flag byte
		ede  *EDE
	}{{flagEDE, m.EDE}, {flagBelow, m.Below}, {flagUnderscored, m.Underscored}} {
		if n.ede != nil {
			flags |= n.flag
			b = appendEDE(b, n.ede)
		}
	}
	b[head+1] = flags
	return b
}

func appendEDE(b []byte, n *EDE) []byte {
	text := n.Text[:min(len(n.Text), maxEDEText)]
	b = binary.BigEndian.AppendUint16(b, uint16(n.Code))
	flags := byte(n.Reason) << reasonShift
	if n.Pending {
		flags |= flagPending
	}
	b = append(b, flags)
	b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
	return append(b, text...)
}

// ParseMetadata parses RDATA that AppendMetadata wrote. Errors wrap
// ErrMetadata.
func ParseMetadata(rdata []byte) (m Metadata, err error) {
	if len(rdata) < 6 || rdata[0] != baseMetadataV1 || rdata[1]&flagsUnknown != 0 {
		return Metadata{}, ErrMetadata
	}
	flags := rdata[1]
	m.Exists = flags&flagExists != 0
	m.Children = Children(flags >> childrenShift & 3)
	m.ChildTTL = binary.BigEndian.Uint32(rdata[2:])
	rdata = rdata[6:]
	for _, n := range [...]struct {
		flag byte
		ede  **EDE
	}{{flagEDE, &m.EDE}, {flagBelow, &m.Below}, {flagUnderscored, &m.Underscored}} {
		if flags&n.flag == 0 {
			continue
		}
		if *n.ede, rdata = parseEDE(rdata); *n.ede == nil {
			return Metadata{}, ErrMetadata
		}
	}
	if len(rdata) != 0 || m.Children > Synthesized {
		return Metadata{}, ErrMetadata
	}
	return m, nil
}

// parseEDE parses the EDE at the start of b and returns the rest of b. It
// returns nil if b holds no valid EDE.
func parseEDE(b []byte) (n *EDE, rest []byte) {
	const fixed = 5
	if len(b) < fixed {
		return nil, nil
	}
	end := fixed + int(binary.BigEndian.Uint16(b[3:]))
	if len(b) < end || end-fixed > maxEDEText {
		return nil, nil
	}
	reason := Reason(b[2] >> reasonShift)
	if reason >= Reasons {
		reason = Other // of a newer server
	}
	return &EDE{
		Code: dnswire.EDECode(binary.BigEndian.Uint16(b)), Pending: b[2]&flagPending != 0, Text: string(b[fixed:end]),
		Reason: reason,
	}, b[end:]
}

// pointerMetadata returns RDATA of TypeMetadata which says that a target of a
// PTR record comes before those without such a record: version and target.
func pointerMetadata(p pointer, addr netip.Addr) []byte {
	return p.appendTarget([]byte{pointerMetadataV1}, addr)
}

// parsePointerMetadata parses RDATA that pointerMetadata returned.
func parsePointerMetadata(rdata []byte) (target dnsname.Name, err error) {
	if len(rdata) == 0 || rdata[0] != pointerMetadataV1 {
		return dnsname.Name{}, ErrMetadata
	}
	target, n, err := dnsname.FromWire(rdata[1:])
	if err != nil || 1+n != len(rdata) {
		return dnsname.Name{}, ErrMetadata
	}
	return target, nil
}
