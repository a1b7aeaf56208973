package h1

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"portolan.dev/portolan/internal/gateway/wire"
)

// refusal returns the whole answer to what is no valid request. The connection ends with it.
func refusal(of *wire.Error) []byte {
	text := of.Reason + "\n"
	allow := ""
	if of.Status == http.StatusMethodNotAllowed { // RFC 9110, section 15.5.6
		allow = "Allow: \r\n"
	}
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n"+
		"Content-Length: %d\r\n%s\r\n%s", of.Status, http.StatusText(of.Status), len(text), allow, text)
}

// Reasons to refuse a request. The sections are those of RFC 9112 if no other RFC is named.
var (
	// Section 3.
	errRequestLine = wire.NewError(400, "invalid request line")
	errMethod      = wire.NewError(400, "invalid method")
	errTargetSize  = wire.NewError(414, "the request-target is too long")
	errVersion     = wire.NewError(505, "only HTTP/1.0 and HTTP/1.1 are served")
	// Section 3.2, and RFC 9110, section 4.2.4: a request has no userinfo.
	errTarget  = wire.NewError(400, "invalid request-target")
	errScheme  = wire.NewError(421, "the scheme of the request-target is not that of the connection")
	errConnect = wire.NewError(405, "CONNECT is not served")
	// Section 3.2.
	errNoHost    = wire.NewError(400, "no Host")
	errHosts     = wire.NewError(400, "more than one Host")
	errHost      = wire.NewError(400, "invalid Host")
	errOtherHost = wire.NewError(400, "the request-target has another host than Host")
	// Section 6.
	errBothFramings  = wire.NewError(400, "both Transfer-Encoding and Content-Length")
	errCoding        = wire.NewError(501, "only the transfer coding chunked is served")
	errCodings       = wire.NewError(400, "more than one Transfer-Encoding")
	errCodingVersion = wire.NewError(400, "Transfer-Encoding in HTTP/1.0")
	errLength        = wire.NewError(400, "invalid Content-Length")
	errLengths       = wire.NewError(400, "more than one Content-Length")
	errIncomplete    = wire.NewError(400, "the body is not complete")
	// RFC 9110, sections 10.1.1 and 15.5.9.
	errExpect      = wire.NewError(417, "only 100-continue can be expected")
	errHeadTimeout = wire.NewError(408, "the head came too slowly")
	errBodyTimeout = wire.NewError(408, "the body came too slowly")
)

// errPreface: the head is the begin of HTTP/2's preface (RFC 9113, section 3.4).
var errPreface = errors.New("preface of HTTP/2")

// tooLarge returns why a head that is too large is refused.
func tooLarge(head *wire.Section) error {
	if head.FirstLine() {
		return errTargetSize
	}
	return wire.ErrHeadSize
}

// framing is what http.Request does not say of a request.
type framing struct {
	length int64 // of the body in octets, -1 if it is chunked
	expect bool  // the client waits for 100 (Continue) before it sends the body
}

// parseHead parses a head, which ends with its empty line, into a request without body and context. It
// changes the octets of the head.
func parseHead(head []byte, lim *Limits) (http.Request, framing, error) {
	end := bytes.IndexByte(head, '\n') + 1
	line := head[:end-2]
	methodEnd, targetEnd := bytes.IndexByte(line, ' '), bytes.LastIndexByte(line, ' ')
	if methodEnd <= 0 || targetEnd <= methodEnd+1 {
		return http.Request{}, framing{}, errRequestLine
	}
	var room [64]wire.Field
	fields, err := wire.SplitFields(head, end, room[:0], lim.Fields)
	if err != nil {
		return http.Request{}, framing{}, err
	}
	text := string(head) // of which all strings below are parts
	method, target, version := text[:methodEnd], text[methodEnd+1:targetEnd], text[targetEnd+1:len(line)]
	if !wire.IsToken(method) {
		return http.Request{}, framing{}, errMethod
	}
	minor, err := minorVersion(version)
	if err != nil {
		if version == "HTTP/2.0" && method == "PRI" && target == "*" && len(fields) == 0 {
			err = errPreface
		}
		return http.Request{}, framing{}, err
	}
	req := http.Request{
		Method: method, RequestURI: target, Proto: version, ProtoMajor: 1, ProtoMinor: minor,
		Header: make(http.Header, len(fields)),
	}
	f, err := setFields(&req, text, fields)
	if err != nil {
		return http.Request{}, framing{}, err
	}
	if err := setTarget(&req, lim); err != nil {
		return http.Request{}, framing{}, err
	}
	return req, f, nil
}

// minorVersion returns the minor version of HTTP/1 (RFC 9112, section 2.3).
func minorVersion(version string) (int, error) {
	const prefix, length = "HTTP/", len("HTTP/1.1")
	if len(version) != length || version[:len(prefix)] != prefix || version[6] != '.' || !wire.IsDigit(version[5]) ||
		!wire.IsDigit(version[7]) {
		return 0, errRequestLine
	}
	if version[5] != '1' {
		return 0, errVersion
	}
	return int(version[7] - '0'), nil
}

// setFields sets what fields say of a request.
func setFields(req *http.Request, text string, fields []wire.Field) (framing, error) {
	values := make([]string, len(fields))
	hosts, lengths, codings := 0, 0, 0
	var length, coding, expect string
	for i, at := range fields {
		name, value := text[at.Name:at.NameEnd], text[at.Value:at.ValueEnd]
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
			req.Close = req.Close || wire.HasElement(value, "close")
		case "Expect":
			if expect != "" {
				return framing{}, errExpect
			}
			expect = value
		case "Content_length", "Transfer_encoding": // some backends take an underscore for a hyphen
			return framing{}, wire.ErrFieldName
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
	case hosts == 1 && !wire.ValidHost(req.Host):
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
		n, ok := wire.ParseLength(length)
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
			if !wire.IsToken(name) || wire.ForbiddenTrailer(name) {
				return wire.ErrTrailerField
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

// setTarget sets the URL of a request and, of a target in absolute-form, the host (RFC 9112, section 3.2).
func setTarget(req *http.Request, lim *Limits) error {
	target := req.RequestURI
	if len(target) > lim.Target {
		return errTargetSize
	}
	switch {
	case !wire.ValidTarget(target):
		return errTarget
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
	case u.Opaque != "", u.User != nil, !wire.ValidHost(u.Host):
		return errTarget
	case u.Scheme != "http" && u.Scheme != "https":
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
