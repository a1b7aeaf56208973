package upstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"portolan.dev/portolan/internal/gateway/balance"
	"portolan.dev/portolan/internal/gateway/wire"
)

const (
	// maxHead is how many octets the head of a response may have, and maxFields how many field lines.
	maxHead   = 64 << 10
	maxFields = 256
	// maxInformational is how many responses there may be before the last one.
	maxInformational = 32
	// continueWithin is how long an endpoint may take to ask for a body before that is sent anyway: not all know how to
	// (RFC 9110, section 10.1.1).
	continueWithin = time.Second
)

var sectionLimits = wire.Limits{Size: maxHead, Fields: maxFields}

// Reasons to refuse a response. The sections are those of RFC 9112 if no other RFC is named.
var (
	errStatusLine     = errors.New("invalid status line")                         // section 4
	errCoding         = errors.New("a transfer coding other than chunked")        // section 6.1
	errBothFramings   = errors.New("both Transfer-Encoding and Content-Length")   // section 6.1
	errCodingVersion  = errors.New("Transfer-Encoding in HTTP/1.0")               // section 6.1
	errLength         = errors.New("invalid Content-Length")                      // section 6.2
	errLengths        = errors.New("more than one Content-Length")                // section 6.3
	errUpgrade        = errors.New("a protocol that was not asked for")           // RFC 9110, section 7.8
	errInformational  = errors.New("too many responses before the last one")      // RFC 9110, section 15.2
	errFieldUnderline = errors.New("Content_Length or Transfer_Encoding as name") // some take it for a hyphen
)

// exchange is an exchange over HTTP/1.1. It implements stream.
type exchange struct {
	ctx     context.Context // of Do, whose caller closes the exchange
	request *Request
	conn    *conn
	release func() bool // has the end of ctx not close the connection any more, unless it has
	sending *sending    // nil if all was sent with the head
	began   bool        // something was received
	keep    bool        // the endpoint keeps the connection
	body    body
	res     Response
}

// Do sends a request to an endpoint, and returns its response when the head has come. Its error is an *Error, that of
// ctx, or os.ErrDeadlineExceeded.
func (c *Client) Do(ctx context.Context, e *balance.Endpoint, r *Request) (*Response, error) {
	conn, err := c.connect(ctx, e, r)
	if err != nil {
		return nil, err
	}
	if !r.Deadline.IsZero() {
		_ = conn.SetDeadline(r.Deadline)
	}
	x := &exchange{ctx: ctx, request: r, conn: conn, release: afterFunc(ctx, conn.abort)}
	res, err := x.begin()
	if err == nil {
		return res, nil
	}
	if failed, ok := errors.AsType[*Error](err); ok && failed.Failure == Stale {
		c.forget(conn.of)
	}
	x.Close()
	return nil, err
}

// afterFunc is context.AfterFunc. Contexts that have a method of that name are asked themselves, which costs less.
func afterFunc(ctx context.Context, f func()) (stop func() bool) {
	if own, ok := ctx.(interface {
		AfterFunc(f func()) (stop func() bool)
	}); ok {
		return own.AfterFunc(f)
	}
	return context.AfterFunc(ctx, f)
}

// begin sends the request and reads the head of the response.
func (x *exchange) begin() (*Response, error) {
	r := x.request
	if err := r.prepare(); err != nil {
		return nil, &Error{BadBody, err}
	}
	if n, err := x.conn.Write(r.out); n == 0 && err != nil {
		return nil, x.failed(Unsent, err)
	} else if err != nil {
		return nil, x.failed(Lost, err)
	}
	whole := r.whole
	r.Free()
	if !whole && r.Expect {
		_ = x.conn.SetReadDeadline(earlier(r.Deadline, time.Now().Add(continueWithin)))
	} else if !whole {
		x.send()
	}
	for range maxInformational {
		head, err := x.readHead()
		if err != nil {
			return nil, err
		}
		if head.status >= 200 || head.status == http.StatusSwitchingProtocols {
			return x.respond(&head)
		}
		if head.status == http.StatusContinue {
			x.proceed()
		} else if r.Informational != nil {
			r.Informational.WriteHeader(head.status)
		}
		clear(r.Header)
	}
	return nil, &Error{Malformed, errInformational}
}

// send begins to send the rest of the body.
func (x *exchange) send() {
	x.sending = &sending{request: x.request, conn: x.conn, done: make(chan struct{})}
	go x.sending.run()
}

// proceed begins to send a body that waited for 100 (Continue).
func (x *exchange) proceed() {
	if x.request.Expect && x.request.Body != nil && x.sending == nil {
		_ = x.conn.SetReadDeadline(x.request.Deadline)
		x.send()
	}
}

// readHead reads the head of a response.
func (x *exchange) readHead() (head, error) {
	in, section := &x.conn.in, wire.Section{}
	for {
		end, err := section.Find(in.Received())
		switch {
		case err != nil:
			return head{}, &Error{Malformed, err}
		case end > maxHead || end == 0 && in.W-in.R > maxHead:
			return head{}, &Error{Malformed, wire.ErrHeadSize}
		case end > 0:
			text := in.Received()[:end]
			in.R += end
			h, err := parseHead(text, x.request.Header)
			if err != nil {
				return head{}, &Error{Malformed, err}
			}
			return h, nil
		}
		switch err = x.conn.fill(); {
		case err == nil:
			x.began = true
		case errors.Is(err, io.ErrShortBuffer):
			small := in.Room
			in.Grow(maxHead + 1)
			wire.FreeRoom(small)
		case errors.Is(err, os.ErrDeadlineExceeded) && x.awaited():
			x.proceed()
		default:
			return head{}, x.lost(err)
		}
	}
}

// awaited reports whether a body waits for 100 (Continue), and no deadline but that of the wait has passed.
func (x *exchange) awaited() bool {
	r := x.request
	return r.Expect && r.Body != nil && x.sending == nil && !x.expired()
}

// lost returns the error of an exchange when that of reading is err.
func (x *exchange) lost(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if x.conn.used && !x.began {
		return x.failed(Stale, err)
	}
	return x.failed(Lost, err)
}

// failed returns the error of an exchange: what closed the connection here, else what became of it.
func (x *exchange) failed(as Failure, err error) error {
	switch {
	case x.sending != nil && x.sending.failed.Load() != nil:
		return &Error{BadBody, *x.sending.failed.Load()}
	case x.ctx.Err() != nil:
		return x.ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded) && x.expired():
		return os.ErrDeadlineExceeded
	}
	return &Error{as, err}
}

// expired reports whether the deadline of the request has passed.
func (x *exchange) expired() bool {
	d := x.request.Deadline
	return !d.IsZero() && !time.Now().Before(d)
}

// head is the head of a response.
type head struct {
	status  int
	minor   int // of the version
	close   bool
	upgrade string
	// length is that of the body; -1 if there is no Content-Length.
	length  int64
	chunked bool
}

// parseHead parses a head, which ends with its empty line, and adds the fields that do not concern the connection to
// into. It changes the octets of the head.
func parseHead(octets []byte, into http.Header) (head, error) {
	end := bytes.IndexByte(octets, '\n') + 1
	if end == len(octets) { // it is an empty line
		return head{}, errStatusLine
	}
	var room [32]wire.Field
	fields, err := wire.SplitFields(octets, end, room[:0], maxFields)
	if err != nil {
		return head{}, err
	}
	text := string(octets) // of which all strings below are parts
	h := head{length: -1}
	if err := h.parseStatus(text[:end-2]); err != nil {
		return head{}, err
	}
	if err := h.setFields(text, fields, into); err != nil {
		return head{}, err
	}
	return h, nil
}

// parseStatus parses a status line (RFC 9112, section 4). Some servers leave out the space before an empty reason.
func (h *head) parseStatus(line string) error {
	const begin, digits = len("HTTP/1.1 "), 3
	if len(line) < begin+digits || !strings.HasPrefix(line, "HTTP/1.") || !wire.IsDigit(line[begin-2]) ||
		line[begin-1] != ' ' {
		return errStatusLine
	}
	status, reason := line[begin:begin+digits], line[begin+digits:]
	if reason != "" && reason[0] != ' ' {
		return errStatusLine
	}
	h.minor = int(line[begin-2] - '0')
	for i := range len(status) {
		if !wire.IsDigit(status[i]) {
			return errStatusLine
		}
		h.status = 10*h.status + int(status[i]-'0')
	}
	for i := range len(reason) {
		if c := reason[i]; c < ' ' && c != '\t' || c == 0x7f {
			return errStatusLine
		}
	}
	if h.status < 100 {
		return errStatusLine
	}
	return nil
}

// setFields reads what fields say of the message, and adds the others to into.
func (h *head) setFields(text string, fields []wire.Field, into http.Header) error {
	values := make([]string, len(fields))
	lengths, codings := 0, 0
	var options []string // of Connection
	for i, at := range fields {
		name, value := text[at.Name:at.NameEnd], text[at.Value:at.ValueEnd]
		switch name {
		case "Content-Length":
			lengths++
			var ok bool
			if h.length, ok = wire.ParseLength(value); !ok || value == "" {
				return errLength
			}
			if value[0] == '0' {
				value = strconv.FormatInt(h.length, 10)
			}
		case "Transfer-Encoding":
			codings++
			if !strings.EqualFold(value, "chunked") {
				return errCoding
			}
			continue
		case "Connection":
			options = append(options, value)
			continue
		case "Upgrade":
			if h.upgrade != "" {
				value = h.upgrade + ", " + value
			}
			h.upgrade = value
			continue
		case "Content_length", "Transfer_encoding":
			return errFieldUnderline
		case "Keep-Alive", "Proxy-Connection", "Te", "Proxy-Authenticate", "Proxy-Authorization":
			continue
		}
		if before := into[name]; before != nil {
			into[name] = append(before, value)
			continue
		}
		values[i] = value
		into[name] = values[i : i+1 : i+1]
	}
	h.chunked = codings > 0
	h.close = h.minor == 0
	for _, list := range options {
		for option := range strings.SplitSeq(list, ",") {
			option = strings.Trim(option, " \t")
			switch {
			case strings.EqualFold(option, "close"):
				h.close = true
			case strings.EqualFold(option, "keep-alive"), strings.EqualFold(option, "Content-Length"):
			default:
				delete(into, http.CanonicalHeaderKey(option))
			}
		}
	}
	switch {
	case lengths > 1:
		return errLengths
	case codings > 1:
		return errCoding
	case lengths > 0 && codings > 0:
		return errBothFramings
	case codings > 0 && h.minor == 0:
		return errCodingVersion
	}
	return nil
}

// respond returns the response that has a head.
func (x *exchange) respond(h *head) (*Response, error) {
	r, header := x.request, x.request.Header
	x.res = Response{Status: h.status, stream: x}
	res := &x.res
	x.keep = !h.close
	x.body.conn = x.conn
	switch {
	case h.status == http.StatusSwitchingProtocols:
		if !slices.ContainsFunc(strings.Split(r.Upgrade, ","), func(protocol string) bool {
			return h.upgrade != "" && strings.EqualFold(strings.Trim(protocol, " \t"), h.upgrade)
		}) {
			return nil, &Error{Malformed, errUpgrade}
		}
		header["Connection"], header["Upgrade"] = []string{"Upgrade"}, []string{h.upgrade}
		x.keep = false
		x.body.err = io.EOF
		_ = x.conn.SetDeadline(time.Time{}) // what is limited is the time until the response
		x.conn.upgrade()
	case r.Method == http.MethodHead, h.status == http.StatusNotModified:
		x.body.err = io.EOF
	case h.status == http.StatusNoContent:
		x.keep = x.keep && !h.chunked && h.length <= 0 // else what comes might be a body
		x.body.err = io.EOF
		delete(header, "Content-Length")
	case h.chunked:
		x.body.chunked = true
		res.Length = -1
	case h.length > 0:
		x.body.left, res.Length = h.length, h.length
	case h.length == 0:
		x.body.err = io.EOF
	default:
		x.body.untilClose = true
		x.keep = false
		res.Length = -1
	}
	if !x.body.chunked {
		delete(header, "Trailer")
	}
	return res, nil
}

// Upgraded implements stream.
func (x *exchange) Upgraded() (conn net.Conn, received []byte) {
	return x.conn.Conn, bytes.Clone(x.conn.in.Received())
}

// Close implements stream.
func (x *exchange) Close() {
	if x.conn == nil {
		return
	}
	conn := x.conn
	x.conn = nil
	if x.release() && x.keep && errors.Is(x.body.err, io.EOF) && conn.in.Empty() && !x.Unread() && x.sending.sent() {
		if !x.request.Deadline.IsZero() {
			_ = conn.SetDeadline(time.Time{})
		}
		conn.put()
		return
	}
	conn.end()
}

// Unread implements stream.
func (x *exchange) Unread() bool {
	if x.sending != nil {
		return !x.sending.last.Load()
	}
	return x.request.Expect && x.request.Body != nil // the response came in place of 100 (Continue)
}
