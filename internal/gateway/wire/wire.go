// Package wire reads what requests and responses of HTTP/1.1 have in common: lines, sections of fields, and chunks
// (RFC 9112, sections 2.2, 5 and 7). It is strict where recipients that read a message differently could be made to
// see messages that others do not: what is not in the grammar is an Error.
package wire

import (
	"net/netip"
	"strconv"
	"strings"
)

// Error is why a message is refused.
type Error struct {
	// Status is what a server answers a request that has the error with.
	Status int
	Reason string
}

// NewError returns an Error.
func NewError(status int, reason string) *Error { return &Error{status, reason} }

// Error implements error.
func (e *Error) Error() string { return e.Reason }

// Errors. The sections are those of RFC 9112.
var (
	// ErrLineEnd is of section 2.2: lines end with CRLF, and CR does not stand alone.
	ErrLineEnd = &Error{400, "a line does not end with CRLF"}
	// The others up to ErrFolded are of section 5.
	ErrHeadSize   = &Error{431, "the head is too long"}
	ErrFieldCount = &Error{431, "too many fields"}
	ErrFieldName  = &Error{400, "invalid field name"}
	ErrFieldValue = &Error{400, "invalid field value"}
	ErrFolded     = &Error{400, "a field is folded"}
	// The rest is of section 7.1.
	ErrChunkSize    = &Error{400, "invalid size of a chunk"}
	ErrChunkLine    = &Error{400, "the extensions of a chunk are too long"}
	ErrChunkEnd     = &Error{400, "a chunk does not end with CRLF"}
	ErrTrailerField = &Error{400, "a field that is not allowed in trailers"}
)

// Limits bound a section of fields.
type Limits struct {
	Size   int // octets
	Fields int // field lines
}

// ParseLength parses a length in octets (RFC 9110, section 8.6).
func ParseLength(s string) (int64, bool) {
	for i := range len(s) {
		if !IsDigit(s[i]) {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// HasElement reports whether a list has an element (RFC 9110, section 5.6.1), in lower or upper case.
func HasElement(list, element string) bool {
	for e := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.Trim(e, " \t"), element) {
			return true
		}
	}
	return false
}

// ValidHost reports whether a value is a host and, it may be, a port (RFC 9110, section 7.2). Of the
// characters of a reg-name only those of names are allowed, and percent-encoding is not.
func ValidHost(value string) bool {
	const maxHost = 255 + len(":65535")
	if len(value) > maxHost {
		return false
	}
	host := value
	if i := strings.LastIndexByte(value, ':'); i >= 0 && strings.IndexByte(value[i:], ']') < 0 {
		port := value[i+1:]
		host = value[:i]
		if n, err := strconv.ParseUint(port, 10, 16); port != "" && (err != nil || n == 0) || len(port) > 5 {
			return false
		}
	}
	if len(host) > 1 && host[0] == '[' && host[len(host)-1] == ']' {
		addr, err := netip.ParseAddr(host[1 : len(host)-1])
		return err == nil && addr.Is6() && addr.Zone() == ""
	}
	for i := range len(host) {
		if !hostOctets[host[i]] {
			return false
		}
	}
	return host != ""
}

// ValidTarget reports whether a request-target has only the octets of one (RFC 9112, section 3.2).
func ValidTarget(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '#' {
			return false
		}
	}
	return s != ""
}

// Clean returns a value without what would end the line of its field: that becomes spaces (RFC 9110, section 5.5).
func Clean(value string) string {
	if strings.IndexByte(value, '\n') < 0 && strings.IndexByte(value, '\r') < 0 && strings.IndexByte(value, 0) < 0 {
		return value
	}
	return strings.Map(func(c rune) rune {
		if c == '\r' || c == '\n' || c == 0 {
			return ' '
		}
		return c
	}, value)
}

// IsToken reports whether s is a token (RFC 9110, section 5.6.2).
func IsToken(s string) bool {
	for i := range len(s) {
		if !tokenOctets[s[i]] {
			return false
		}
	}
	return s != ""
}

// IsTokenOctet reports whether c may be in a token.
func IsTokenOctet(c byte) bool { return tokenOctets[c] }

// IsDigit reports whether c is a decimal digit.
func IsDigit(c byte) bool { return '0' <= c && c <= '9' }

func isSpace(c byte) bool { return c == ' ' || c == '\t' }

const alphanumeric = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

var (
	tokenOctets = octets(alphanumeric + "!#$%&'*+-.^_`|~")
	hostOctets  = octets(alphanumeric + "-._")
)

func octets(of string) (in [256]bool) {
	for i := range len(of) {
		in[of[i]] = true
	}
	return in
}
