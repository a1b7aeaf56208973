package dnswire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
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

// lineReader counts lines, and finds the directives and quotes that the parser reports
// badly. The parser reads an octet at a time.
type lineReader struct {
	*bufio.Reader
	complete int // lines
	within   bool
	failure  error // of reading, or an unknown directive; the parser reports neither

	inside    byte // '"' in a quoted string, ';' in a comment, else 0
	escaped   bool
	braces    int
	quoteLine int // where the last quoted string begins that goes on in another line
	openLine  int // where the last quoted string begins
	// entry is the first word of the entry that was begun last, if it begins with $;
	// wordEnded reports whether it has been read.
	entry     []byte
	entryLine int
	wordEnded bool
}

func (l *lineReader) ReadByte() (byte, error) {
	c, err := l.Reader.ReadByte()
	if err != nil {
		if !errors.Is(err, io.EOF) {
			l.failure = err
		}
		return c, err
	}
	if err := l.scan(c); err != nil {
		l.failure = err
		return 0, err
	}
	if l.within = c != '\n'; !l.within {
		l.complete++
	}
	return c, nil
}

// scan follows the structure of the file. It returns an error for an unknown directive.
func (l *lineReader) scan(c byte) error {
	line := l.complete + 1
	switch {
	case !l.within && l.inside == 0 && l.braces == 0: // an entry begins
		l.entry, l.entryLine, l.wordEnded = l.entry[:0], line, c != '$'
	case l.wordEnded:
	case strings.IndexByte(" \t\r\n;", c) >= 0:
		l.wordEnded = true
		if !slices.Contains(directives, strings.ToUpper(string(l.entry))) {
			return &MasterError{line, fmt.Errorf(
				"unknown directive %s; write \\$ if a name begins with it", strconv.QuoteToASCII(string(l.entry)),
			)}
		}
	}
	if !l.wordEnded {
		l.entry = append(l.entry, c)
	}
	switch {
	case l.inside == ';':
		if c == '\n' {
			l.inside = 0
		}
	case l.escaped:
		l.escaped = false
	case c == '\\':
		l.escaped = true
	case c == '"' && l.inside == 0:
		l.inside, l.openLine = '"', line
	case c == '"':
		l.inside = 0
	case l.inside == '"':
		if c == '\n' && l.quoteLine == 0 {
			l.quoteLine = l.openLine
		}
	case c == ';':
		l.inside = ';'
	case c == '(':
		l.braces++
	case c == ')':
		l.braces--
	}
	return nil
}

// directives are those that the parser knows.
var directives = []string{"$ORIGIN", "$TTL", "$INCLUDE", generate}

const generate = "$GENERATE"

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
	switch {
	case l.inside == '"':
		return &MasterError{Line: max(l.quoteLine, 1), Err: errQuote}
	case strings.ToUpper(string(l.entry)) == generate: // the lines are those of what it makes
		line = l.entryLine
	}
	return &MasterError{Line: line, Err: errors.New(explainSyntax(text))}
}

// explainSyntax returns an error of the parser in other words, where its own mislead.
func explainSyntax(text string) string {
	what, token, _ := strings.Cut(text, ": ")
	switch {
	case token == `" "` || token == `"\n"` || token == `""`:
		return what + ": the value is missing"
	case what == "not a TTL":
		return "neither a type nor a TTL: " + token
	case what == "bad A A":
		return "A record: " + token + " is not an IPv4 address"
	case what == "bad AAAA AAAA":
		return "AAAA record: " + token + " is not an IPv6 address"
	case strings.HasSuffix(what, " not this..."):
		return strings.TrimSuffix(what, " this...") + " " + token
	}
	return text
}

var (
	errClass  = errors.New("not of class IN")
	errSigned = errors.New("a record of a signed zone; signatures are not served, so give the zone without them")
	errQuote  = errors.New("a quoted string is open until the end of the file")
	errData   = errors.New("more than 65,535 octets of data")
	errText   = errors.New("a character-string of more than 255 octets")
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
	switch {
	case errors.Is(err, dns.ErrBuf):
		err = errData
	case err != nil && strings.HasSuffix(err.Error(), "string exceeded 255 bytes in txt"):
		err = errText
	}
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
