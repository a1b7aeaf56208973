// Package dnswire reads queries and writes responses in the DNS wire format.
// It is the only importer of the DNS message library, which it uses to print
// records and to talk to other servers; the path of a query is its own code
// and allocates nothing.
//
// It implements RFC 1035, section 4 (messages), RFC 2782 (SRV), RFC 3596
// (AAAA) and RFC 6891 (EDNS0). Numbers are those of IANA's registry "Domain
// Name System (DNS) Parameters".
package dnswire

import (
	"encoding/binary"
	"strconv"

	"github.com/miekg/dns"
)

// Type is an RR type or a QTYPE.
type Type uint16

// The types that this package writes or treats specially.
const (
	TypeA     = Type(dns.TypeA)
	TypeNS    = Type(dns.TypeNS)
	TypeCNAME = Type(dns.TypeCNAME)
	TypeSOA   = Type(dns.TypeSOA)
	TypePTR   = Type(dns.TypePTR)
	TypeTXT   = Type(dns.TypeTXT)
	TypeAAAA  = Type(dns.TypeAAAA)
	TypeSRV   = Type(dns.TypeSRV)
	TypeOPT   = Type(dns.TypeOPT)
	TypeRRSIG = Type(dns.TypeRRSIG)
	TypeIXFR  = Type(dns.TypeIXFR)
	TypeAXFR  = Type(dns.TypeAXFR)
	TypeANY   = Type(dns.TypeANY)
)

// Types whose RDATA holds names, see layouts.
const (
	typeDNAME = Type(dns.TypeDNAME)
	typeMB    = Type(dns.TypeMB)
	typeMG    = Type(dns.TypeMG)
	typeMR    = Type(dns.TypeMR)
	typeMINFO = Type(dns.TypeMINFO)
	typeRP    = Type(dns.TypeRP)
	typeMX    = Type(dns.TypeMX)
	typeAFSDB = Type(dns.TypeAFSDB)
	typeRT    = Type(dns.TypeRT)
	typeKX    = Type(dns.TypeKX)
	typePX    = Type(dns.TypePX)
	typeNAPTR = Type(dns.TypeNAPTR)
	typeNSEC  = Type(dns.TypeNSEC)
	typeTSIG  = Type(dns.TypeTSIG)
)

// Types whose RDATA may hold addresses, see ReplyRecord.Addresses.
const (
	typeSVCB  = Type(dns.TypeSVCB)
	typeHTTPS = Type(dns.TypeHTTPS)
)

// String is the type's mnemonic, or TYPE and its number (RFC 3597, section 5).
func (t Type) String() string {
	if t == Type(dns.TypeNone) || t == Type(dns.TypeReserved) { // the library has words for them
		return "TYPE" + strconv.Itoa(int(t))
	}
	return dns.Type(t).String()
}

// Class is an RR class or a QCLASS.
type Class uint16

// The classes that a server meets.
const (
	ClassIN    = Class(dns.ClassINET)
	ClassCHAOS = Class(dns.ClassCHAOS)
	classANY   = Class(dns.ClassANY)
)

// RCode is a response code, those above 15 in EDNS's extended form (RFC 6891,
// section 6.1.3).
type RCode uint16

// Response codes. The zero value is NoError, as on the wire.
const (
	NoError  = RCode(dns.RcodeSuccess)
	FormErr  = RCode(dns.RcodeFormatError)
	ServFail = RCode(dns.RcodeServerFailure)
	NXDomain = RCode(dns.RcodeNameError)
	NotImp   = RCode(dns.RcodeNotImplemented)
	Refused  = RCode(dns.RcodeRefused)
	NotAuth  = RCode(dns.RcodeNotAuth)
	BadVers  = RCode(dns.RcodeBadVers)
	// BadCookie asks for the server cookie that comes with it (RFC 7873).
	BadCookie = RCode(dns.RcodeBadCookie)
)

// String is the code's mnemonic, or RCODE and its number.
func (r RCode) String() string {
	if r == BadVers { // the library knows 16 by its other name, BADSIG
		return "BADVERS"
	}
	if s, ok := dns.RcodeToString[int(r)]; ok {
		return s
	}
	return "RCODE" + strconv.Itoa(int(r))
}

// Opcode is a message's kind.
type Opcode uint8

// OpcodeQuery is the standard query.
const OpcodeQuery = Opcode(dns.OpcodeQuery)

// Header flags (RFC 1035, section 4.1.1; AD and CD RFC 4035, section 3.2).
const (
	FlagQR = 1 << 15
	FlagAA = 1 << 10
	FlagTC = 1 << 9
	FlagRD = 1 << 8
	FlagRA = 1 << 7
	FlagAD = 1 << 5
	FlagCD = 1 << 4

	opcodeShift = 11
	opcodeMask  = 0xf << opcodeShift
)

// EDNSFlags are the flags of an OPT record (RFC 6891, section 6.1.3).
type EDNSFlags uint16

// FlagDO says that DNSSEC records are welcome (RFC 3225).
const FlagDO EDNSFlags = 1 << 15

// OptionCode names an EDNS option.
type OptionCode uint16

// EDNS options: NSID RFC 5001, client subnet RFC 7871, COOKIE RFC 7873, TCP
// keepalive RFC 7828, padding RFC 7830, Extended DNS Errors RFC 8914.
const (
	OptionNSID      = OptionCode(dns.EDNS0NSID)
	OptionSubnet    = OptionCode(dns.EDNS0SUBNET)
	OptionCookie    = OptionCode(dns.EDNS0COOKIE)
	OptionKeepalive = OptionCode(dns.EDNS0TCPKEEPALIVE)
	OptionPadding   = OptionCode(dns.EDNS0PADDING)
	OptionEDE       = OptionCode(dns.EDNS0EDE)
)

// optionNames are those of IANA's registry, and our own.
var optionNames = map[OptionCode]string{
	OptionNSID: "NSID", OptionSubnet: "ECS", OptionCookie: "COOKIE", OptionKeepalive: "KEEPALIVE",
	OptionPadding: "PADDING", OptionEDE: "EDE", OptionMetadata: "MARKS",
}

// Known tells whether this package knows what the option is.
func (c OptionCode) Known() bool { return optionNames[c] != "" }

// String is the option's name, or its number.
func (c OptionCode) String() string {
	if name := optionNames[c]; name != "" {
		return name
	}
	return strconv.Itoa(int(c))
}

// EDECode is an INFO-CODE of Extended DNS Errors (RFC 8914, section 4).
type EDECode uint16

// The codes that a cluster's server gives.
const (
	EDEOther            = EDECode(dns.ExtendedErrorCodeOther)
	EDEStale            = EDECode(dns.ExtendedErrorCodeStaleAnswer)
	EDEStaleNXDomain    = EDECode(dns.ExtendedErrorCodeStaleNXDOMAINAnswer)
	EDENotReady         = EDECode(dns.ExtendedErrorCodeNotReady)
	EDEProhibited       = EDECode(dns.ExtendedErrorCodeProhibited)
	EDENotAuthoritative = EDECode(dns.ExtendedErrorCodeNotAuthoritative)
	EDEBlocked          = EDECode(dns.ExtendedErrorCodeBlocked)
	EDEFiltered         = EDECode(dns.ExtendedErrorCodeFiltered)
	EDENoReachable      = EDECode(dns.ExtendedErrorCodeNoReachableAuthority)
	EDENetworkError     = EDECode(dns.ExtendedErrorCodeNetworkError)
)

// MinUDPSize is what every client takes over UDP (RFC 1035, section 2.3.4).
const MinUDPSize = 512

// HeaderLen is the length of a message's header, and so the place of the
// question's name.
const HeaderLen = 12

// OpcodeOf is the opcode of a message; of one that is too short it is OpcodeQuery.
func OpcodeOf(message []byte) Opcode {
	if len(message) < HeaderLen {
		return OpcodeQuery
	}
	return Opcode(binary.BigEndian.Uint16(message[2:]) & opcodeMask >> opcodeShift)
}

// MaxMessage is the longest message that TCP's length prefix can announce
// (RFC 1035, section 4.2.2).
const MaxMessage = 65535
