package dnswire

import (
	"bytes"
	"encoding/binary"
)

// Subnet is the value of a client subnet option (RFC 7871, section 6): family,
// length of the client's prefix, scope (0 in queries), and the octets of the
// prefix. nil means that there is no option.
type Subnet []byte

// subnetFixed is the length of a Subnet without its address.
const subnetFixed = 4

// subnetBits are the longest prefixes by family.
var subnetBits = [...]int{0, 32, 128}

// IsValid reports whether the family is known, the lengths agree, and no bit
// after the prefix is set.
func (s Subnet) IsValid() bool {
	if len(s) < subnetFixed {
		return false
	}
	family, source := binary.BigEndian.Uint16(s), int(s[2])
	address := s[subnetFixed:]
	if int(family) >= len(subnetBits) || max(source, int(s.Scope())) > subnetBits[family] || len(address) != (source+7)/8 {
		return false
	}
	return source%8 == 0 || address[len(address)-1]<<(source%8) == 0
}

// IsValidInQuery reports whether s is valid in a query.
func (s Subnet) IsValidInQuery() bool { return s.IsValid() && s.Scope() == 0 }

// Scope returns the length of the prefix for which an answer is valid.
func (s Subnet) Scope() uint8 { return s[3] }

// HasPrefix reports whether s has a prefix of the client's address.
func (s Subnet) HasPrefix() bool { return s[2] > 0 }

// Matches reports whether s in a reply has the same prefix as asked in the
// query, which must have one (section 7.3).
func (s Subnet) Matches(asked Subnet) bool {
	return s.IsValid() && bytes.Equal(s[:3], asked[:3]) && bytes.Equal(s[subnetFixed:], asked[subnetFixed:])
}

// CoversAllClients reports whether a reply with s is for the clients of all
// subnets, not only for clients that sent no prefix (section 7.3.1).
func (s Subnet) CoversAllClients() bool { return s != nil && s.HasPrefix() && s.Scope() == 0 }

// AddSubnet adds the client subnet option of a query, with the scope of the
// answer, to the OPT record that begins at opt. It omits an option that is
// invalid in a query.
func (r *Response) AddSubnet(opt int, asked Subnet, scope uint8) {
	if !asked.IsValidInQuery() {
		return
	}
	value := len(r.buf) + OptionLen(0)
	r.AddOption(opt, OptionSubnet, asked)
	r.buf[value+3] = scope
}

// Fits reports whether n more octets fit.
func (r *Response) Fits(n int) bool { return len(r.buf)+n <= r.limit }
