package h1

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// refusal is an answer to what is no valid request. The connection ends with it.
type refusal struct {
	status int
	reason string
}

// Error implements error.
func (r *refusal) Error() string { return fmt.Sprintf("%d: %s", r.status, r.reason) }

// response returns the whole response.
func (r *refusal) response() []byte {
	text := r.reason + "\n"
	allow := ""
	if r.status == http.StatusMethodNotAllowed { // RFC 9110, section 15.5.6
		allow = "Allow: \r\n"
	}
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n"+
		"Content-Length: %d\r\n%s\r\n%s", r.status, http.StatusText(r.status), len(text), allow, text)
}

// Reasons to refuse a request. The sections are those of RFC 9112 if no other RFC is named.
var (
	// Section 2.2: lines end with CRLF, and CR does not stand alone.
	errLineEnd = &refusal{400, "a line does not end with CRLF"}
	// Section 3.
	errRequestLine = &refusal{400, "invalid request line"}
	errMethod      = &refusal{400, "invalid method"}
	errTargetSize  = &refusal{414, "the request-target is too long"}
	errVersion     = &refusal{505, "only HTTP/1.0 and HTTP/1.1 are served"}
	// Section 3.2, and RFC 9110, section 4.2.4: a request has no userinfo.
	errTarget  = &refusal{400, "invalid request-target"}
	errScheme  = &refusal{421, "the scheme of the request-target is not that of the connection"}
	errConnect = &refusal{405, "CONNECT is not served"}
	// Section 3.2.
	errNoHost    = &refusal{400, "no Host"}
	errHosts     = &refusal{400, "more than one Host"}
	errHost      = &refusal{400, "invalid Host"}
	errOtherHost = &refusal{400, "the request-target has another host than Host"}
	// Section 5.
	errHeadSize   = &refusal{431, "the head is too long"}
	errFieldCount = &refusal{431, "too many fields"}
	errFieldName  = &refusal{400, "invalid field name"}
	errFieldValue = &refusal{400, "invalid field value"}
	errFolded     = &refusal{400, "a field is folded"}
	// Section 6.
	errBothFramings  = &refusal{400, "both Transfer-Encoding and Content-Length"}
	errCoding        = &refusal{501, "only the transfer coding chunked is served"}
	errCodings       = &refusal{400, "more than one Transfer-Encoding"}
	errCodingVersion = &refusal{400, "Transfer-Encoding in HTTP/1.0"}
	errLength        = &refusal{400, "invalid Content-Length"}
	errLengths       = &refusal{400, "more than one Content-Length"}
	// Section 7.1.
	errChunkSize    = &refusal{400, "invalid size of a chunk"}
	errChunkLine    = &refusal{400, "the extensions of a chunk are too long"}
	errChunkEnd     = &refusal{400, "a chunk does not end with CRLF"}
	errTrailerField = &refusal{400, "a field that is not allowed in trailers"}
	errIncomplete   = &refusal{400, "the body is not complete"}
	// RFC 9110, sections 10.1.1 and 15.5.9.
	errExpect      = &refusal{417, "only 100-continue can be expected"}
	errHeadTimeout = &refusal{408, "the head came too slowly"}
	errBodyTimeout = &refusal{408, "the body came too slowly"}
)

// errPreface: the head is the begin of HTTP/2's preface (RFC 9113, section 3.4).
var errPreface = errors.New("preface of HTTP/2")

// section finds the end of a head or a trailer section, an empty line, as more of it comes.
type section struct {
	line int // where the present line begins
	at   int // up to where was searched
}

// find returns how many octets the section has, 0 if its end has not come.
func (s *section) find(p []byte) (int, error) {
	for {
		i := bytes.IndexByte(p[s.at:], '\n')
		if i < 0 {
			s.at = len(p)
			return 0, nil
		}
		i += s.at
		if i == 0 || p[i-1] != '\r' {
			return 0, errLineEnd
		}
		if i-1 == s.line {
			return i + 1, nil
		}
		s.line, s.at = i+1, i+1
	}
}

// tooLarge returns why a section that is too large is refused.
func (s *section) tooLarge() error {
	if s.line == 0 {
		return errTargetSize
	}
	return errHeadSize
}

// framing is what http.Request does not say of a request.
type framing struct {
	length int64 // of the body in octets, -1 if it is chunked
	expect bool  // the client waits for 100 (Continue) before it sends the body
}

// parseHead parses a head, which ends with its empty line, into a request without body and context. It
// changes the octets of the head.
func parseHead(head []byte, lim *Limits) (*http.Request, framing, error) {
	end := bytes.IndexByte(head, '\n') + 1
	line := head[:end-2]
	methodEnd, targetEnd := bytes.IndexByte(line, ' '), bytes.LastIndexByte(line, ' ')
	if methodEnd <= 0 || targetEnd <= methodEnd+1 {
		return nil, framing{}, errRequestLine
	}
	var room [64]field
	fields, err := splitFields(head, end, room[:0], lim)
	if err != nil {
		return nil, framing{}, err
	}
	text := string(head) // of which all strings below are parts
	method, target, version := text[:methodEnd], text[methodEnd+1:targetEnd], text[targetEnd+1:len(line)]
	if !isToken(method) {
		return nil, framing{}, errMethod
	}
	minor, err := minorVersion(version)
	if err != nil {
		if version == "HTTP/2.0" && method == "PRI" && target == "*" && len(fields) == 0 {
			err = errPreface
		}
		return nil, framing{}, err
	}
	req := &http.Request{
		Method: method, RequestURI: target, Proto: version, ProtoMajor: 1, ProtoMinor: minor,
		Header: make(http.Header, len(fields)),
	}
	f, err := setFields(req, text, fields)
	if err != nil {
		return nil, framing{}, err
	}
	if err := setTarget(req, lim); err != nil {
		return nil, framing{}, err
	}
	return req, f, nil
}

// minorVersion returns the minor version of HTTP/1 (RFC 9112, section 2.3).
func minorVersion(version string) (int, error) {
	const prefix, length = "HTTP/", len("HTTP/1.1")
	if len(version) != length || version[:len(prefix)] != prefix || version[6] != '.' || !isDigit(version[5]) ||
		!isDigit(version[7]) {
		return 0, errRequestLine
	}
	if version[5] != '1' {
		return 0, errVersion
	}
	return int(version[7] - '0'), nil
}

// field is where a field is in a head.
type field struct{ name, nameEnd, value, valueEnd int }

// splitFields finds the fields in a section, of which the first begins at an offset. It changes their names
// to the form of http.Header (RFC 9112, section 5).
func splitFields(section []byte, from int, into []field, lim *Limits) ([]field, error) {
	for {
		size := bytes.IndexByte(section[from:], '\n')
		line := section[from : from+size-1] // section.find has seen CRLF
		if len(line) == 0 {
			return into, nil
		}
		if line[0] == ' ' || line[0] == '\t' {
			return nil, errFolded
		}
		if len(into) == lim.Fields {
			return nil, errFieldCount
		}
		colon := bytes.IndexByte(line, ':')
		if colon <= 0 || !canonize(line[:colon]) {
			return nil, errFieldName
		}
		begin, end := colon+1, len(line)
		for begin < end && isSpace(line[begin]) {
			begin++
		}
		for end > begin && isSpace(line[end-1]) {
			end--
		}
		for _, c := range line[begin:end] {
			if c < ' ' && c != '\t' || c == 0x7f {
				return nil, errFieldValue
			}
		}
		into = append(into, field{from, from + colon, from + begin, from + end})
		from += size + 1
	}
}

// canonize changes a name to the form of http.Header, and reports whether it is one.
func canonize(name []byte) bool {
	upper := true
	for i, c := range name {
		if !tokenOctets[c] {
			return false
		}
		switch {
		case upper && 'a' <= c && c <= 'z':
			name[i] = c - 'a' + 'A'
		case !upper && 'A' <= c && c <= 'Z':
			name[i] = c - 'A' + 'a'
		}
		upper = c == '-'
	}
	return true
}

// setFields sets what fields say of a request.
func setFields(req *http.Request, text string, fields []field) (framing, error) {
	values := make([]string, len(fields))
	hosts, lengths, codings := 0, 0, 0
	var length, coding, expect string
	for i, at := range fields {
		name, value := text[at.name:at.nameEnd], text[at.value:at.valueEnd]
		switch name {
		case "Host":
			req.Host = value
			hosts++
			continue
		case "Content-Length":
			length = value
			lengths++
		case "Transfer-Encoding":
			coding = value
			codings++
			continue
		case "Connection":
			req.Close = req.Close || hasElement(value, "close")
		case "Expect":
			if expect != "" {
				return framing{}, errExpect
			}
			expect = value
		case "Content_length", "Transfer_encoding": // some backends take an underscore for a hyphen
			return framing{}, errFieldName
		}
		if before := req.Header[name]; before != nil {
			req.Header[name] = append(before, value)
			continue
		}
		values[i] = value
		req.Header[name] = values[i : i+1 : i+1]
	}
	switch {
	case hosts == 0 && req.ProtoMinor > 0:
		return framing{}, errNoHost
	case hosts > 1:
		return framing{}, errHosts
	case hosts == 1 && !validHost(req.Host):
		return framing{}, errHost
	case lengths > 1:
		return framing{}, errLengths
	case codings > 1:
		return framing{}, errCodings
	case lengths > 0 && codings > 0:
		return framing{}, errBothFramings
	}
	if req.ProtoMinor == 0 { // RFC 9112, section 9.3, and RFC 9110, sections 7.8 and 10.1.1
		req.Close = true
		delete(req.Header, "Upgrade")
		delete(req.Header, "Expect")
		expect = ""
	}
	if expect != "" && !strings.EqualFold(expect, "100-continue") {
		return framing{}, errExpect
	}
	switch {
	case lengths > 0:
		n, ok := parseLength(length)
		if !ok {
			return framing{}, errLength
		}
		req.ContentLength = n
	case codings > 0:
		if err := setChunked(req, coding); err != nil {
			return framing{}, err
		}
	}
	return framing{length: req.ContentLength, expect: expect != "" && req.ContentLength != 0}, nil
}

// setChunked makes a request one with a chunked body (RFC 9112, section 6.1).
func setChunked(req *http.Request, coding string) error {
	if req.ProtoMinor == 0 {
		return errCodingVersion
	}
	if !strings.EqualFold(coding, "chunked") {
		return errCoding
	}
	req.ContentLength = -1
	req.TransferEncoding = []string{"chunked"}
	for _, value := range req.Header["Trailer"] {
		for name := range strings.SplitSeq(value, ",") {
			name = http.CanonicalHeaderKey(strings.Trim(name, " \t"))
			if !isToken(name) || forbiddenTrailers[name] {
				return errTrailerField
			}
			if req.Trailer == nil {
				req.Trailer = make(http.Header)
			}
			req.Trailer[name] = nil
		}
	}
	delete(req.Header, "Trailer")
	return nil
}

// parseLength parses a length in octets (RFC 9110, section 8.6).
func parseLength(s string) (int64, bool) {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// setTarget sets the URL of a request and, of a target in absolute-form, the host (RFC 9112, section 3.2).
func setTarget(req *http.Request, lim *Limits) error {
	target := req.RequestURI
	if len(target) > lim.Target {
		return errTargetSize
	}
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c >= 0x7f || c == '#' {
			return errTarget
		}
	}
	switch {
	case req.Method == http.MethodConnect:
		return errConnect
	case target == "*":
		if req.Method != http.MethodOptions {
			return errTarget
		}
		req.URL = &url.URL{Path: "*"}
		return nil
	}
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return errTarget
	}
	req.URL = u
	if target[0] == '/' {
		return nil
	}
	return absolute(req)
}

// absolute checks a target in absolute-form (RFC 9112, section 3.2.2). A gateway in front of this one may
// have looked at Host only, so that has to be the same.
func absolute(req *http.Request) error {
	u := req.URL
	switch {
	case u.Opaque != "", u.User != nil, !validHost(u.Host):
		return errTarget
	case u.Scheme != "http":
		return errScheme
	case req.Host == "": // of HTTP/1.0
		req.Host = u.Host
	case !strings.EqualFold(req.Host, u.Host):
		return errOtherHost
	}
	if u.Path == "" {
		u.Path = "/"
	}
	return nil
}

// validHost reports whether a value is a host and, it may be, a port (RFC 9110, section 7.2). Of the
// characters of a reg-name only those of names are allowed, and percent-encoding is not.
func validHost(value string) bool {
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

// hasElement reports whether a list has an element (RFC 9110, section 5.6.1), in lower or upper case.
func hasElement(list, element string) bool {
	for e := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.Trim(e, " \t"), element) {
			return true
		}
	}
	return false
}

// isToken reports whether s is a token (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		if !tokenOctets[s[i]] {
			return false
		}
	}
	return s != ""
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
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

// forbiddenTrailers are fields that say how a message is read, where it goes, or who may send it (RFC 9110,
// section 6.5.1).
var forbiddenTrailers = map[string]bool{
	"Authorization": true, "Connection": true, "Content-Encoding": true, "Content-Length": true,
	"Content-Range": true, "Content-Type": true, "Cookie": true, "Expect": true, "Forwarded": true, "Host": true,
	"Proxy-Authorization": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
	"X-Forwarded-For": true, "X-Forwarded-Host": true, "X-Forwarded-Proto": true,
}
