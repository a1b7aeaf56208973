package dnswire

import (
	"bytes"
	"encoding/binary"
)

// Subnet is the value of a client subnet option (RFC 7871, section 6): family,
// length of the client's prefix, length of the prefix that an answer is for (0
// in queries), and the octets of the former. It is nil where there is no option.
type Subnet []byte

// subnetFixed is the length of a Subnet without its address.
const subnetFixed = 4

// subnetBits are how long prefixes may be, by family.
var subnetBits = [...]int{0, 32, 128}

// IsSound tells whether the octets of s are what its numbers say, with no bit
// behind the prefix.
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

// IsAsked tells whether s may be in a query.
func (s Subnet) IsValidInQuery() bool { return s.IsValid() && s.Scope() == 0 }

// Scope is the length of the prefix that an answer is for.
func (s Subnet) Scope() uint8 { return s[3] }

// HasPrefix tells whether s says something of a client.
func (s Subnet) HasPrefix() bool { return s[2] > 0 }

// Answers tells whether s can be in a reply to a query with asked, which has a
// prefix: it is the same one (section 7.3).
func (s Subnet) Matches(asked Subnet) bool {
	return s.IsValid() && bytes.Equal(s[:3], asked[:3]) && bytes.Equal(s[subnetFixed:], asked[subnetFixed:])
}

// IsForAll tells whether a reply with s is one for the clients of all subnets,
// and not of those alone that say nothing of theirs (section 7.3.1).
func (s Subnet) CoversAllClients() bool { return s != nil && s.HasPrefix() && s.Scope() == 0 }

// AddSubnet adds the client subnet option of a query, with the scope of the
// answer, to the OPT record that begins at opt. One that may not be in a query is
// not repeated.
func (r *Response) AddSubnet(opt int, asked Subnet, scope uint8) {
	if !asked.IsValidInQuery() {
		return
	}
	value := len(r.buf) + OptionLen(0)
	r.AddOption(opt, OptionSubnet, asked)
	r.buf[value+3] = scope
}

// Fits tells whether so many more octets do.
func (r *Response) Fits(n int) bool { return len(r.buf)+n <= r.limit }
