// Package dnswire parses queries and replies and writes responses in the DNS
// wire format.
//
//	packet -> Query.ParseHeader, ParseBody -> (answer) -> Response.Start, AddRRset, AddOPT, Finish -> message
//	reply of an upstream -> ParseReply -> Reply -> Response.AddReply, AddRelayed
//
// The path of a query is code of this package and allocates nothing. The DNS
// message library, which only this package imports, prints records and builds
// and parses messages for tools.
//
// The package implements RFC 1035, section 4 (messages), RFC 2782 (SRV), RFC
// 3596 (AAAA), RFC 6891 (EDNS0), RFC 7871 (client subnet), RFC 8914 (Extended
// DNS Errors), RFC 5936 and RFC 1995 (messages of AXFR and IXFR), RFC 1996
// (NOTIFY) and RFC 8945 (TSIG). Numbers are those of IANA's registry "Domain
// Name System (DNS) Parameters".
package dnswire

import (
	"encoding/binary"
	"strconv"

	"github.com/miekg/dns"
)

// Type is an RR type or a QTYPE.
type Type uint16

// Types that this package writes or treats specially.
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
	TypeDS    = Type(dns.TypeDS)
	TypeRRSIG = Type(dns.TypeRRSIG)
	TypeIXFR  = Type(dns.TypeIXFR)
	TypeAXFR  = Type(dns.TypeAXFR)
	TypeANY   = Type(dns.TypeANY)
)

// IsData reports whether records of type t can be in a zone: t is no QTYPE, no meta-type
// (RFC 6895, section 3.1) and not OPT.
func (t Type) IsData() bool {
	const firstMeta = 128
	return t != 0 && t != TypeOPT && (t < firstMeta || t > TypeANY)
}

// Types whose RDATA contains names, see layouts.
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

// Types whose RDATA may contain addresses, see ReplyRecord.Addresses.
const (
	typeSVCB  = Type(dns.TypeSVCB)
	typeHTTPS = Type(dns.TypeHTTPS)
)

// String returns the type's mnemonic, or TYPE and its number (RFC 3597, section
// 5).
func (t Type) String() string {
	if t == Type(dns.TypeNone) || t == Type(dns.TypeReserved) { // which the library prints as words
		return "TYPE" + strconv.Itoa(int(t))
	}
	return dns.Type(t).String()
}

// Class is an RR class or a QCLASS.
type Class uint16

// Classes of queries.
const (
	ClassIN    = Class(dns.ClassINET)
	ClassCHAOS = Class(dns.ClassCHAOS)
	classANY   = Class(dns.ClassANY)
)

// RCode is a response code; codes above 15 need EDNS (RFC 6891, section 6.1.3).
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
	// BadCookie tells the client to retry with the server cookie in the
	// response (RFC 7873).
	BadCookie = RCode(dns.RcodeBadCookie)
)

// String returns the code's mnemonic, or RCODE and its number.
func (r RCode) String() string {
	if r == BadVers { // the library prints 16 as BADSIG
		return "BADVERS"
	}
	if s, ok := dns.RcodeToString[int(r)]; ok {
		return s
	}
	return "RCODE" + strconv.Itoa(int(r))
}

// Opcode is the kind of a message.
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

// EDNSFlags are the flags of an OPT record (RFC 6891, section 6.1.4).
type EDNSFlags uint16

// FlagDO says that the client accepts DNSSEC records (RFC 3225).
const FlagDO EDNSFlags = 1 << 15

// OptionCode is the code of an EDNS option.
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

// optionNames are the names in IANA's registry and those of options of this
// package.
var optionNames = map[OptionCode]string{
	OptionNSID: "NSID", OptionSubnet: "ECS", OptionCookie: "COOKIE", OptionKeepalive: "KEEPALIVE",
	OptionPadding: "PADDING", OptionEDE: "EDE", OptionMetadata: "METADATA",
}

// Known reports whether this package knows the option.
func (c OptionCode) Known() bool { return optionNames[c] != "" }

// String returns the option's name, or its number.
func (c OptionCode) String() string {
	if name := optionNames[c]; name != "" {
		return name
	}
	return strconv.Itoa(int(c))
}

// EDECode is an INFO-CODE of Extended DNS Errors (RFC 8914, section 4).
type EDECode uint16

// Codes used by this server.
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

// MinUDPSize is the message size that every client accepts over UDP (RFC 1035,
// section 2.3.4).
const MinUDPSize = 512

// HeaderLen is the length of a message's header, and so the offset of the
// question's name.
const HeaderLen = 12

// OpcodeOf returns the opcode of a message, or OpcodeQuery if it is too short.
func OpcodeOf(message []byte) Opcode {
	if len(message) < HeaderLen {
		return OpcodeQuery
	}
	return Opcode(binary.BigEndian.Uint16(message[2:]) & opcodeMask >> opcodeShift)
}

// MaxMessage is the longest message that TCP's length prefix allows (RFC 1035,
// section 4.2.2).
const MaxMessage = 65535
