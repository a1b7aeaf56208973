package proxy

import (
	"bytes"
	"cmp"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/gateway/upstream"
	"portolan.dev/portolan/internal/gateway/wire"
)

// request makes the request that the upstream gets, of whose response a header gets the fields. It reports whether
// there can be one.
func (x *exchange) request(r *http.Request, header http.Header) bool {
	out := &x.out
	*out = upstream.Request{
		Method: r.Method, Host: hostOf(r), Fields: x.fields, Length: -1, Header: header,
		Trailers: listHas(r.Header["Te"], "trailers"), ConnectWithin: x.Rule.Connect,
	}
	path := x.path
	for _, a := range []*table.Actions{&x.Rule.Actions, &x.backend.Actions} {
		change(&out.Fields, a.Request)
		if a.Rewrite == nil {
			continue
		}
		out.Host = cmp.Or(a.Rewrite.Host, out.Host)
		if a.Rewrite.Path != nil {
			path = encode(a.Rewrite.Path.Apply(x.path, &x.route.Match))
		}
	}
	x.fields = out.Fields
	out.Target = targetOf(path, r)
	x.setBody(r)
	if out.Body == nil && x.Upstream.Protocol != table.H2C { // HTTP/2 has no upgrades
		out.Upgrade = upgradeOf(r)
	}
	return upstream.Valid(out.Method, out.Target, out.Host)
}

// setBody sets the body of the request that the upstream gets.
func (x *exchange) setBody(r *http.Request) {
	out := &x.out
	if len(x.content) > 0 {
		out.Body, out.Length = inMemory{bytes.NewReader(x.content)}, int64(len(x.content))
		return
	}
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		_, said := r.Header["Content-Length"]
		if said || r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch {
			out.Length = 0 // RFC 9110, section 8.6
		}
		return
	}
	out.Body, out.Length = r.Body, r.ContentLength
	if x.maxBody > 0 && r.ContentLength < 0 {
		out.Body = &limitedBody{r.Body, x.maxBody}
	}
	out.Trailer = func() http.Header { return r.Trailer }
	out.Expect = strings.EqualFold(r.Header.Get("Expect"), "100-continue")
}

// hostOf returns the host that a request names. One of HTTP/1.0 may name none: then it is where it came to (RFC 9112,
// section 3.3).
func hostOf(r *http.Request) string {
	if r.Host != "" {
		return r.Host
	}
	if addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		return addr.String()
	}
	return ""
}

// targetOf returns the target for a path that is percent-encoded, with the query of a request.
func targetOf(path string, r *http.Request) string {
	query := r.URL.RawQuery
	if query == "" && !r.URL.ForceQuery {
		return path
	}
	if rest, ok := strings.CutPrefix(r.RequestURI, path); ok && len(rest) == 1+len(query) && rest[0] == '?' {
		return r.RequestURI // most are as they came
	}
	return path + "?" + query
}

// encode returns a path percent-encoded, which may be from a rule.
func encode(path string) string {
	plain, err := url.PathUnescape(path)
	if err != nil {
		plain = path
	}
	return (&url.URL{Path: plain, RawPath: path}).EscapedPath()
}

// ownFields are those that are for one connection only (RFC 9110, section 7.6.1), and those that other parts of a
// request or a response say, so that no field of the client, nor a filter, can say something else.
var ownFields = map[string]bool{
	"Connection": true, "Proxy-Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true,
	"Proxy-Authorization": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
	"Content-Length": true, "Host": true, "Expect": true,
}

// replacedFields are those of the way of a request that the proxy says itself, or nobody.
var replacedFields = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// The fields of a trace.
const traceParent, traceState = "Traceparent", "Tracestate"

// fields appends the fields of a request that an upstream gets without filters, sorted by name. A span replaces those
// of the trace.
func (p *Proxy) fields(to upstream.Fields, r *http.Request, of Span) upstream.Fields {
	options, trusted := optionsOf(r.Header["Connection"]), p.trusts(r)
	var room [48]string
	names := room[:0]
	for name := range r.Header {
		if !ownFields[name] && !slices.Contains(options, name) && !isForwarded(name, trusted) &&
			(of == nil || name != traceParent && name != traceState) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range r.Header[name] {
			to.Add(name, value)
		}
	}
	if of != nil {
		parent, state := of.Fields()
		if to.Add(traceParent, parent); state != "" {
			to.Add(traceState, state)
		}
	}
	return p.addForwarded(to, r)
}

// optionsOf returns the names of the fields that Connection lists.
func optionsOf(lists []string) (names []string) {
	for _, list := range lists {
		for option := range strings.SplitSeq(list, ",") {
			switch option = strings.Trim(option, " \t"); {
			case option == "", strings.EqualFold(option, "close"), strings.EqualFold(option, "keep-alive"),
				strings.EqualFold(option, "upgrade"):
			default:
				names = append(names, http.CanonicalHeaderKey(option))
			}
		}
	}
	return names
}

// isForwarded reports whether a name is one of replacedFields, or of the others that say where a request came from,
// which only trusted clients may set; or could be taken for it: some backends take an underscore for a hyphen.
func isForwarded(name string, trusted bool) bool {
	if strings.IndexByte(name, '_') >= 0 {
		name = http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
	}
	return slices.Contains(replacedFields, name) ||
		!trusted && (name == "X-Real-Ip" || strings.HasPrefix(name, "X-Forwarded-"))
}

// addForwarded adds X-Forwarded-For, -Host and -Proto. Those of clients that are trusted stay, and get the client's
// address.
func (p *Proxy) addForwarded(to upstream.Fields, r *http.Request) upstream.Fields {
	client, host, proto := clientOf(r), r.Host, "http"
	if r.TLS != nil {
		proto = "https"
	}
	if p.trusts(r) {
		if before := r.Header["X-Forwarded-For"]; len(before) > 0 {
			client = strings.Join(before, ", ") + ", " + client
		}
		host = cmp.Or(strings.Join(r.Header["X-Forwarded-Host"], ", "), host)
		proto = cmp.Or(strings.Join(r.Header["X-Forwarded-Proto"], ", "), proto)
	}
	to.Add("X-Forwarded-For", client)
	to.Add("X-Forwarded-Host", host)
	to.Add("X-Forwarded-Proto", proto)
	return to
}

// clientOf returns the address of a client.
func clientOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	return host
}

// trusts reports whether a client is trusted.
func (p *Proxy) trusts(r *http.Request) bool {
	if len(p.cfg.Trusted) == 0 {
		return false
	}
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && slices.ContainsFunc(p.cfg.Trusted, func(of netip.Prefix) bool {
		return of.Contains(at.Addr().Unmap())
	})
}

// upgradeOf returns the protocols that the client asks to change to; empty if it does not, or must not.
func upgradeOf(r *http.Request) string {
	protocols := strings.Join(r.Header["Upgrade"], ", ")
	if protocols == "" || r.ProtoMajor != 1 || !listHas(r.Header["Connection"], "upgrade") || carriesRequests(protocols) {
		return ""
	}
	return protocols
}

// carriesRequests reports whether one of the protocols in an Upgrade field is none by name, or HTTP in another version,
// or below TLS (RFC 2817). An upstream that changed to it would get requests that no rule was found for.
func carriesRequests(upgrade string) bool {
	for protocol := range strings.SplitSeq(strings.ToLower(upgrade), ",") {
		name, version, versioned := strings.Cut(strings.Trim(protocol, " \t"), "/")
		switch name {
		case "h2c", "h2", "h3", "http", "https", "tls":
			return true
		}
		if !wire.IsToken(name) || versioned && !wire.IsToken(version) {
			return true
		}
	}
	return false
}

// listHas reports whether one of several lists has an element.
func listHas(lists []string, element string) bool {
	return slices.ContainsFunc(lists, func(list string) bool { return wire.HasElement(list, element) })
}

// inMemory is a body that was read.
type inMemory struct{ io.Reader }

// ReadReceived is Read, see upstream.Request.
func (b inMemory) ReadReceived(p []byte) (int, error) { return b.Read(p) }
