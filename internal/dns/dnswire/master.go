package dnswire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// MasterRecord is one record of a master file.
type MasterRecord struct {
	Name  dnsname.Name
	Type  Type
	TTL   uint32 // in seconds
	RData []byte // uncompressed
	Line  int    // on which the record ends, from 1
}

// MasterError is an error in a master file.
type MasterError struct {
	Line int // from 1
	Err  error
}

// Error returns the line and the reason.
func (e *MasterError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Err) }

// Unwrap returns the reason.
func (e *MasterError) Unwrap() error { return e.Err }

// ReadMaster reads a master file (RFC 1035, section 5), with $ORIGIN, $TTL (RFC
// 2308, section 4) and $GENERATE, and calls each with its records, in order.
// origin is the first origin, and ttl the TTL of records before the first that
// has one, in seconds. Errors of the file and of each are *MasterError; others
// are of r.
func ReadMaster(r io.Reader, origin dnsname.Name, ttl uint32, each func(*MasterRecord) error) error {
	lines := &lineReader{Reader: bufio.NewReader(r)}
	parser := dns.NewZoneParser(lines, origin.String(), "")
	parser.SetDefaultTTL(ttl)
	wire := make([]byte, dns.MaxMsgSize)
	for rr, ok := parser.Next(); ok; rr, ok = parser.Next() {
		rec, err := masterRecord(rr, wire)
		if err == nil {
			rec.Line = lines.ended()
			err = each(rec)
		}
		if err != nil {
			return &MasterError{Line: lines.ended(), Err: err}
		}
	}
	switch err := parser.Err(); {
	case lines.failure != nil:
		return lines.failure
	case err != nil:
		return lines.syntaxError(err)
	}
	return nil
}

// lineReader counts lines. The parser reads an octet at a time.
type lineReader struct {
	*bufio.Reader
	complete int // lines
	within   bool
	failure  error // of reading; the parser does not report it
}

func (l *lineReader) ReadByte() (byte, error) {
	c, err := l.Reader.ReadByte()
	switch {
	case errors.Is(err, io.EOF):
	case err != nil:
		l.failure = err
	case c == '\n':
		l.complete++
		l.within = false
	default:
		l.within = true
	}
	return c, err
}

// ended returns the number of the line that was read last.
func (l *lineReader) ended() int {
	if l.within {
		return l.complete + 1
	}
	return max(1, l.complete)
}

// syntaxError converts an error of the parser, which ends with a line and a column.
func (l *lineReader) syntaxError(err error) error {
	text, at, hasPlace := strings.Cut(strings.TrimPrefix(err.Error(), "dns: "), " at line: ")
	line := l.ended()
	if hasPlace {
		var column int
		if _, err := fmt.Sscanf(at, "%d:%d", &line, &column); err != nil || line == 0 {
			line = l.ended()
		}
	}
	text = strings.Replace(text, "not a TTL:", "neither a type nor a TTL:", 1)
	return &MasterError{Line: line, Err: errors.New(text)}
}

var (
	errClass  = errors.New("not of class IN")
	errSigned = errors.New("a record of a signed zone; signatures are not served, so give the zone without them")
	errDNAME  = errors.New("DNAME records are not served; give the names below one by one, or use dns.rewrite")
)

// masterRecord converts a record; it uses wire. Names in RDATA are lower case, as
// lookups need them.
func masterRecord(rr dns.RR, wire []byte) (*MasterRecord, error) {
	h := rr.Header()
	if h.Class != dns.ClassINET {
		return nil, fmt.Errorf("%s %s: %w", h.Name, Type(h.Rrtype), errClass)
	}
	switch rr.(type) {
	case *dns.DNAME:
		return nil, fmt.Errorf("%s: %w", h.Name, errDNAME)
	case *dns.RRSIG, *dns.NSEC, *dns.NSEC3, *dns.NSEC3PARAM, *dns.DNSKEY:
		return nil, fmt.Errorf("%s %s: %w", h.Name, Type(h.Rrtype), errSigned)
	}
	end, err := dns.PackRR(rr, wire, 0, nil, false)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", h.Name, Type(h.Rrtype), err)
	}
	name, at, err := dnsname.FromWire(wire[:end])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", h.Name, err)
	}
	const fixed = 10 // type, class, TTL, length
	rdata := wire[at+fixed : end]
	if int(binary.BigEndian.Uint16(wire[at+fixed-2:])) != len(rdata) || len(rdata) == 0 {
		return nil, fmt.Errorf("%s %s: no data", h.Name, Type(h.Rrtype))
	}
	lowerTarget(Type(h.Rrtype), rdata)
	return &MasterRecord{Name: name, Type: Type(h.Rrtype), TTL: h.Ttl, RData: append([]byte(nil), rdata...)}, nil
}

// lowerTarget changes the name in the RDATA of a CNAME, NS or SRV record to lower case.
// The lengths of labels are no letters.
func lowerTarget(t Type, rdata []byte) {
	const fixedSRV = 6 // priority, weight, port (RFC 2782)
	switch {
	case t == TypeCNAME || t == TypeNS:
	case t == TypeSRV && len(rdata) > fixedSRV:
		rdata = rdata[fixedSRV:]
	default:
		return
	}
	for i, c := range rdata {
		if 'A' <= c && c <= 'Z' {
			rdata[i] = c + ('a' - 'A')
		}
	}
}
