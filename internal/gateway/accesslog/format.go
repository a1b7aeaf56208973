package accesslog

import (
	"net"
	"net/http"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"portolan.dev/portolan/internal/gateway/proxy"
	"portolan.dev/portolan/internal/gateway/table"
)

// maxText is how many octets of a field of the request are logged.
const maxText = 1 << 10

// entry is what a line says. Of a request that was refused most fields are empty.
type entry struct {
	time         time.Time // when it began
	client, peer string    // an address; that of the connection, with its port
	request      *http.Request
	status       int
	sent         int64
	reason       string
	record       *proxy.Record
	passed       *passed // nil for requests
}

// passed is what a line says of a connection that was passed on, or of a session of UDP.
type passed struct {
	protocol   string
	serverName string
	received   int64 // octets
}

// requestEntry returns what is logged of a request.
func (l *Log) requestEntry(r *proxy.Record) entry {
	return entry{
		time: r.Began, client: l.client(r.Request), peer: r.Request.RemoteAddr, request: r.Request, status: r.Status,
		sent: r.Sent, reason: string(r.Reason), record: r,
	}
}

// client returns the address of the client, see proxy.Client.
func (l *Log) client(r *http.Request) string {
	if addr := proxy.Client(r, l.cfg.Trusted); addr.IsValid() {
		return addr.String()
	}
	return hostOf(r.RemoteAddr)
}

// hostOf returns the address in one with a port.
func hostOf(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

// appendJSON appends a line of JSON.
func (e *entry) appendJSON(to []byte) []byte {
	to = append(to, `{"time":"`...)
	to = e.time.UTC().AppendFormat(to, "2006-01-02T15:04:05.000000Z07:00")
	to = append(to, '"')
	to = text(to, "client", e.client)
	to = text(to, "peer", e.peer)
	if r := e.request; r != nil {
		to = text(to, "method", r.Method)
		to = text(to, "host", r.Host)
		to = text(to, "target", target(r))
		to = text(to, "protocol", r.Proto)
	}
	if p := e.passed; p != nil {
		to = text(to, "host", p.serverName)
		to = text(to, "protocol", p.protocol)
		to = number(to, "received", p.received)
	} else {
		to = number(to, "status", int64(e.status))
	}
	to = text(to, "reason", e.reason)
	if e.record != nil {
		to = e.appendRecord(to)
	}
	if r := e.request; r != nil {
		to = text(to, "referer", cut(r.Referer()))
		to = text(to, "userAgent", cut(r.UserAgent()))
	}
	return append(to, '}', '\n')
}

// appendRecord appends what the gateway did with a request.
func (e *entry) appendRecord(to []byte) []byte {
	r := e.record
	to = number(to, "sent", r.Sent)
	to = append(to, `,"duration":`...)
	to = strconv.AppendFloat(to, r.Duration.Seconds(), 'f', 6, 64)
	to = text(to, "listener", r.Listener)
	if r.Rule != nil {
		to = text(to, "route", r.Rule.Object)
		to = number(to, "rule", int64(r.Rule.Index))
	}
	if r.Upstream != (table.Upstream{}) {
		to = text(to, "upstream", r.Upstream.Namespace+"/"+r.Upstream.Service+":"+strconv.Itoa(int(r.Upstream.Port)))
	}
	if r.Endpoint.IsValid() {
		to = text(to, "endpoint", r.Endpoint.String())
		to = number(to, "attempts", int64(r.Attempts))
	}
	return to
}

// text appends a member of an object; none if the value is empty.
func text(to []byte, name, value string) []byte {
	if value == "" {
		return to
	}
	to = append(append(append(to, ',', '"'), name...), `":"`...)
	plain := 0 // octets that stand for themselves
	for plain < len(value) && ' ' <= value[plain] && value[plain] < 0x7f && value[plain] != '"' && value[plain] != '\\' {
		plain++
	}
	to = append(to, value[:plain]...)
	for _, r := range value[plain:] {
		switch {
		case r == '"' || r == '\\':
			to = append(to, '\\', byte(r))
		case unicode.IsControl(r) || r == '\u2028' || r == '\u2029':
			const hex = "0123456789abcdef"
			to = append(to, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
		default: // what is no UTF-8 becomes the replacement character
			to = utf8.AppendRune(to, r)
		}
	}
	return append(to, '"')
}

func number(to []byte, name string, value int64) []byte {
	to = append(append(append(to, ',', '"'), name...), '"', ':')
	return strconv.AppendInt(to, value, 10)
}

// target returns what a request asks for, as it came.
func target(r *http.Request) string {
	if r.RequestURI != "" {
		return r.RequestURI
	}
	return r.URL.RequestURI()
}

// cut returns the beginning of a text.
func cut(s string) string { return s[:min(len(s), maxText)] }

// appendCombined appends a line of the combined format.
func (e *entry) appendCombined(to []byte) []byte {
	to = append(to, e.client...)
	to = append(to, " - - ["...)
	to = e.time.AppendFormat(to, "02/Jan/2006:15:04:05 -0700")
	to = append(to, `] "`...)
	referer, agent := "", ""
	if r := e.request; r != nil {
		to = quoted(to, r.Method)
		to = append(to, ' ')
		to = quoted(to, target(r))
		to = append(to, ' ')
		to = quoted(to, r.Proto)
		referer, agent = cut(r.Referer()), cut(r.UserAgent())
	} else {
		to = append(to, '-')
	}
	to = append(to, `" `...)
	to = strconv.AppendInt(to, int64(e.status), 10)
	to = append(to, ' ')
	if e.sent == 0 {
		to = append(to, '-')
	} else {
		to = strconv.AppendInt(to, e.sent, 10)
	}
	for _, value := range []string{referer, agent} {
		to = append(to, ` "`...)
		if value == "" {
			value = "-"
		}
		to = append(quoted(to, value), '"')
	}
	return append(to, '\n')
}

// quoted appends a text as Apache does (mod_log_config, "Format Notes").
func quoted(to []byte, value string) []byte {
	for i := range len(value) {
		switch c := value[i]; {
		case c == '"' || c == '\\':
			to = append(to, '\\', c)
		case c < ' ' || c >= 0x7f:
			const hex = "0123456789abcdef"
			to = append(to, '\\', 'x', hex[c>>4], hex[c&15])
		default:
			to = append(to, c)
		}
	}
	return to
}
