package proxy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/gateway/upstream"
)

const (
	// authorizeWithin is how long an authorization service may take, unless the rule says.
	authorizeWithin = 5 * time.Second
	// maxAuthBody is how many octets of its response's body are read, and given to the client. Longer ones are left out.
	maxAuthBody = 64 << 10
	// maxOutside is how many connections to a host outside the cluster there are at once.
	maxOutside = 64
)

// decision is what an authorization service says of a request.
type decision struct {
	allowed bool
	granted granted
	// status, header and body are the answer to a request that is refused.
	status int
	header http.Header
	body   []byte
	reason table.Reason
}

// granted are fields that the backend gets, in place of those that the client sent, and fields of the response.
type granted struct {
	remove   []string
	set, add []table.Field
	response []table.Field
}

// apply changes the fields of a request. What is removed is so in any form that backends could take for the name.
func (g *granted) apply(to *upstream.Fields) {
	*to = slices.DeleteFunc(*to, func(f upstream.Field) bool {
		return slices.ContainsFunc(g.remove, func(name string) bool {
			return strings.EqualFold(strings.ReplaceAll(f.Name, "_", "-"), strings.ReplaceAll(name, "_", "-"))
		})
	})
	change(to, &table.HeaderChange{Set: g.set, Add: g.add})
}

// reply is the response of an authorization service over HTTP.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// external reports whether a service allows a request; otherwise it is answered. If the service cannot be reached,
// it is refused.
func (p *Proxy) external(w *recorder, r *http.Request, x *exchange, auth *table.ExternalAuth) bool {
	if auth.Reason != "" {
		p.answer(w, x, http.StatusInternalServerError, auth.Reason)
		return false
	}
	if auth.MaxBody > 0 {
		if err := p.holdForAuth(r, x, auth); err != nil {
			p.fail(w, r, x, err)
			return false
		}
	}
	ctx, cancel := context.WithDeadline(r.Context(), x.authDeadline(auth))
	defer cancel()
	made, err := p.decide(ctx, r, x, auth)
	switch {
	case err != nil && r.Context().Err() != nil:
		p.abort(x, ClientGone)
	case err != nil:
		p.answer(w, x, http.StatusServiceUnavailable, NoAuthorization)
		return false
	case made.allowed:
		x.granted = &made.granted
		return true
	}
	p.refuse(w, x, made)
	return false
}

// holdForAuth reads a body that the service is to get.
func (p *Proxy) holdForAuth(r *http.Request, x *exchange, auth *table.ExternalAuth) error {
	held, err := p.hold(r, x, int64(auth.MaxBody))
	if err == nil && !held && r.ContentLength != 0 {
		return errBodyTooLarge // or its length is not known
	}
	return err
}

// authDeadline returns when the service must have answered.
func (x *exchange) authDeadline(auth *table.ExternalAuth) time.Time {
	at := time.Now().Add(cmp.Or(auth.Timeout, authorizeWithin))
	if x.Rule.Request > 0 && x.Began.Add(x.Rule.Request).Before(at) {
		at = x.Began.Add(x.Rule.Request)
	}
	return at
}

// refuse gives the client what a service answers.
func (p *Proxy) refuse(w *recorder, x *exchange, made *decision) {
	x.Reason = made.reason
	header := w.Header()
	for name, values := range made.header {
		if !ownFields[name] {
			header[name] = values
		}
	}
	if len(made.body) == 0 && header.Get("Location") == "" {
		p.answer(w, x, made.status, made.reason)
		return
	}
	w.WriteHeader(made.status)
	if x.Request.Method != http.MethodHead {
		_, _ = w.Write(made.body)
	}
}

// decide asks a service.
func (p *Proxy) decide(ctx context.Context, r *http.Request, x *exchange, auth *table.ExternalAuth) (*decision, error) {
	switch auth.Kind {
	case table.AuthGRPC:
		return p.checkEnvoy(ctx, r, x, auth)
	case table.AuthSubrequest:
		return p.subrequest(ctx, r, x, auth)
	}
	out := &upstream.Request{
		Method: cmp.Or(auth.Method, r.Method), Host: hostOf(r), Target: targetOf(auth.Path+x.path, r), Length: 0,
		Header: make(http.Header), Certificate: x.certificate,
	}
	for _, name := range append([]string{"Authorization"}, auth.RequestHeaders...) {
		if ownFields[name] || out.Fields.Has(name) {
			continue
		}
		for _, value := range r.Header[name] {
			out.Fields.Add(name, value)
		}
	}
	got, err := p.askService(ctx, auth, out, x.content)
	if err != nil {
		return nil, err
	}
	if got.status == http.StatusOK {
		return &decision{allowed: true, granted: grantedBy(got.header, auth)}, nil
	}
	made := &decision{status: got.status, body: got.body, reason: Refused, header: make(http.Header)}
	for _, name := range []string{"Www-Authenticate", "Location", "Set-Cookie", "Content-Type", "Retry-After"} {
		if values := got.header[name]; values != nil {
			made.header[name] = values
		}
	}
	if got.status < http.StatusMultipleChoices { // which would say that the request was served
		made.status, made.body = http.StatusForbidden, nil
	}
	return made, nil
}

// bodyFields are fields of a response that say what its body is like, which a request does not have.
var bodyFields = []string{"Content-Type", "Content-Encoding", "Content-Language", "Content-Range", "Content-Location"}

// grantedBy returns the fields of a service's response that the backend gets: those that are listed, or all but those
// that are of that response itself.
func grantedBy(header http.Header, auth *table.ExternalAuth) (made granted) {
	names := auth.ResponseHeaders
	if names == nil && auth.Kind == table.AuthHTTP {
		for name := range header {
			if !slices.Contains(bodyFields, name) && name != "Set-Cookie" && name != "Date" {
				names = append(names, name)
			}
		}
		slices.Sort(names)
	}
	made.remove = names
	for _, name := range names {
		for _, value := range header[name] {
			made.add = append(made.add, table.Field{Name: name, Value: value})
		}
	}
	return made
}

// subrequest asks a service as auth_request of nginx does.
func (p *Proxy) subrequest(
	ctx context.Context, r *http.Request, x *exchange, auth *table.ExternalAuth,
) (*decision, error) {
	values := valuesOf(r, x)
	at, err := url.Parse(auth.URL.Expand(values))
	if err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
		return nil, errors.Join(errAuthURL, err)
	}
	out := &upstream.Request{
		Method: cmp.Or(auth.Method, http.MethodGet), Host: at.Host, Target: at.RequestURI(), Length: 0,
		Header: make(http.Header), Certificate: x.certificate,
	}
	whole := values.Scheme + "://" + values.HTTPHost + values.URI
	for _, f := range p.fields(nil, r, nil) {
		if !slices.Contains(bodyFields, f.Name) &&
			(auth.RequestHeaders == nil || slices.Contains(auth.RequestHeaders, f.Name)) {
			out.Fields.Add(f.Name, f.Value)
		}
	}
	for _, f := range append([]table.Field{
		{Name: "X-Original-Url", Value: whole}, {Name: "X-Original-Method", Value: r.Method},
		{Name: "X-Auth-Request-Redirect", Value: values.URI},
		{Name: "X-Real-Ip", Value: Client(r, p.cfg.Trusted).String()},
	}, auth.SetHeaders...) {
		out.Fields.Set(f.Name, f.Value)
	}
	var got *reply
	if auth.Upstream != (table.Upstream{}) {
		got, err = p.askService(ctx, auth, out, x.content)
	} else {
		got, err = p.askOutside(ctx, at, out)
	}
	if err != nil {
		return nil, err
	}
	cookies := got.header["Set-Cookie"]
	switch {
	case got.status >= http.StatusOK && got.status < http.StatusMultipleChoices:
		made := &decision{allowed: true, granted: grantedBy(got.header, auth)}
		for _, c := range cookies {
			made.granted.response = append(made.granted.response, table.Field{Name: "Set-Cookie", Value: c})
		}
		return made, nil
	case got.status == http.StatusUnauthorized && auth.SignIn != nil:
		header := http.Header{"Location": {signIn(auth.SignIn, values, whole)}}
		if cookies != nil {
			header["Set-Cookie"] = cookies
		}
		return &decision{status: http.StatusFound, header: header, reason: SignIn}, nil
	case got.status == http.StatusUnauthorized, got.status == http.StatusForbidden:
		header := make(http.Header)
		for _, name := range []string{"Www-Authenticate", "Set-Cookie"} {
			if values := got.header[name]; values != nil {
				header[name] = values
			}
		}
		return &decision{status: got.status, header: header, reason: Refused}, nil
	}
	return &decision{status: http.StatusInternalServerError, reason: NoAuthorization}, nil
}

var errAuthURL = errors.New("the URL of the authorization service is not one")

// valuesOf returns the variables of a request.
func valuesOf(r *http.Request, x *exchange) *table.TemplateValues {
	made := &table.TemplateValues{Host: x.Host, HTTPHost: hostOf(r), Scheme: "http", URI: targetOf(x.path, r)}
	if r.TLS != nil {
		made.Scheme = "https"
	}
	return made
}

// errService: the service has no endpoint.
var errService = errors.New("the authorization service has no endpoint")

// askService sends a request to the Service of an ExternalAuth. It is sent to another endpoint if nothing of it was
// sent.
func (p *Proxy) askService(
	ctx context.Context, auth *table.ExternalAuth, out *upstream.Request, content []byte,
) (*reply, error) {
	pool := p.cfg.Endpoints.Pool(auth.Upstream)
	if pool == nil {
		return nil, errService
	}
	out.Deadline, _ = ctx.Deadline()
	err := errService
	for range table.MaxAttempts {
		e := pool.Pick()
		if e == nil {
			break
		}
		again := out.Again(nil)
		if auth.MaxBody > 0 && len(content) > 0 {
			again = out.Again(inMemory{bytes.NewReader(content)})
			again.Length = int64(len(content))
		}
		var got *reply
		got, err = p.askEndpoint(ctx, auth.Upstream, again, e)
		failed, _ := errors.AsType[*upstream.Error](err)
		if failed == nil || failed.Failure != upstream.Unsent && failed.Failure != upstream.Stale {
			return got, err
		}
	}
	return nil, err
}

// newOutside returns what connects to services outside the cluster. It follows no redirects, and uses no proxy.
func newOutside() *http.Transport {
	return &http.Transport{
		MaxConnsPerHost: maxOutside, MaxIdleConns: maxOutside, MaxIdleConnsPerHost: maxOutside / 4,
		IdleConnTimeout: time.Minute, TLSHandshakeTimeout: authorizeWithin, MaxResponseHeaderBytes: maxAuthBody,
		DisableCompression: true,
	}
}

// askOutside sends a request to a host.
func (p *Proxy) askOutside(ctx context.Context, at *url.URL, out *upstream.Request) (*reply, error) {
	r, err := http.NewRequestWithContext(ctx, out.Method, at.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header["User-Agent"] = nil // unless the client says one
	for _, f := range out.Fields {
		r.Header.Add(f.Name, f.Value)
	}
	res, err := p.outside.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAuthBody+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxAuthBody {
		body = nil
	}
	return &reply{res.StatusCode, res.Header, body}, nil
}

// signIn returns where a client is sent to sign in, with the URL that it asked for.
func signIn(to *table.SignIn, values *table.TemplateValues, whole string) string {
	at := to.URL.Expand(values)
	name := cmp.Or(to.Parameter, "rd")
	if u, err := url.Parse(at); err != nil || u.Query().Has(name) {
		return at
	}
	separator := "?"
	if strings.Contains(at, "?") {
		separator = "&"
	}
	return at + separator + url.QueryEscape(name) + "=" + url.QueryEscape(whole)
}
