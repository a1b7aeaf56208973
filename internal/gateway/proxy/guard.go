package proxy

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"portolan.dev/portolan/internal/gateway/limiter"
	"portolan.dev/portolan/internal/gateway/table"
)

// defaultClients are how many clients of limits are known at once, unless it is set.
const defaultClients = 64 << 10

// admission is what a request counts in until it ends.
type admission struct {
	key    string // empty for nothing
	client limiter.Client
}

// admit reports whether a client may send a request now; otherwise it is answered.
func (p *Proxy) admit(w *recorder, r *http.Request, x *exchange) bool {
	g := x.Rule.Guard
	client := Client(r, p.cfg.Trusted)
	if denied(g, client) {
		p.answer(w, x, http.StatusForbidden, AddressDenied)
		return false
	}
	if len(g.Limits) > 0 {
		if wait, ok := p.allow(g.Limits, client); !ok {
			p.retryAfter(w, x, wait, RateLimited)
			return false
		}
	}
	if c := g.Concurrent; c != nil && !contains(c.Exempt, client) {
		at := admission{c.Key, limiter.ClientOf(client)}
		if !p.counts.Enter(at.key, at.client, c.Max) {
			p.retryAfter(w, x, time.Second, TooManyAtOnce)
			return false
		}
		x.admitted = at
	}
	return true
}

// leave has a request count no more.
func (p *Proxy) leave(x *exchange) {
	if x.admitted.key != "" {
		p.counts.Leave(x.admitted.key, x.admitted.client)
	}
}

// denied reports whether a Guard denies a client by its address.
func denied(g *table.Guard, client netip.Addr) bool {
	instead := g.AnyOf && (g.BasicAuth != nil || g.External != nil)
	return contains(g.Deny, client) || len(g.Allow) > 0 && !instead && !contains(g.Allow, client)
}

func contains(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a.WithZone("")) })
}

// allow counts a request in limits, and reports whether they all allow it, or how long to wait.
func (p *Proxy) allow(limits []table.RateLimit, client netip.Addr) (time.Duration, bool) {
	var room [4]limiter.Rate
	rates := room[:0]
	for i := range limits {
		if l := &limits[i]; !contains(l.Exempt, client) {
			rates = append(rates, limiter.Rate{
				Key: l.Key, Requests: l.Requests, Per: l.Per, Burst: cmp.Or(l.Burst, l.Requests),
			})
		}
	}
	return p.rates.Allow(limiter.ClientOf(client), time.Now(), rates)
}

// retryAfter answers with 429 (RFC 6585, section 4).
func (p *Proxy) retryAfter(w *recorder, x *exchange, wait time.Duration, reason table.Reason) {
	seconds := (wait + time.Second - 1) / time.Second
	w.Header().Set("Retry-After", strconv.FormatInt(max(1, int64(seconds)), 10))
	p.answer(w, x, http.StatusTooManyRequests, reason)
}

// authorize reports whether a request has what a Guard demands of it; otherwise it is answered.
func (p *Proxy) authorize(w *recorder, r *http.Request, x *exchange) bool {
	g := x.Rule.Guard
	if !p.authenticate(w, r, x) {
		return false
	}
	if g.MaxBody > 0 && r.ContentLength > g.MaxBody {
		p.answer(w, x, http.StatusRequestEntityTooLarge, BodyTooLarge)
		return false
	}
	x.maxBody = g.MaxBody
	return true
}

// authenticate reports whether a request may be served to who sends it; otherwise it is answered.
func (p *Proxy) authenticate(w *recorder, r *http.Request, x *exchange) bool {
	g := x.Rule.Guard
	if g.AnyOf && len(g.Allow) > 0 && contains(g.Allow, Client(r, p.cfg.Trusted)) {
		return true
	}
	if g.BasicAuth != nil {
		if _, _, given := r.BasicAuth(); given || !g.AnyOf || g.External == nil {
			return p.login(w, r, x, g.BasicAuth) && (g.AnyOf || g.External == nil || p.external(w, r, x, g.External))
		}
	}
	return g.External == nil || p.external(w, r, x, g.External)
}

// login reports whether a request has the password of a user (RFC 7617); otherwise it is answered.
func (p *Proxy) login(w *recorder, r *http.Request, x *exchange, auth *table.BasicAuth) bool {
	user, password, given := r.BasicAuth()
	if given {
		client := limiter.ClientOf(Client(r, p.cfg.Trusted))
		switch p.passwords.check(r.Context(), client, auth.Users, user, password) {
		case matches:
			return true
		case busy:
			p.retryAfter(w, x, time.Second, TooManyLogins)
			return false
		}
	}
	w.Header().Set("Www-Authenticate", `Basic realm="`+quoted(auth.Realm)+`", charset="UTF-8"`)
	p.answer(w, x, http.StatusUnauthorized, Unauthenticated)
	return false
}

// quoted returns a text as it is in a quoted-string (RFC 9110, section 5.6.4).
func quoted(text string) string {
	text = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, text)
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text)
}

// errBodyTooLarge is the error of a body that has more octets than the rule allows.
var errBodyTooLarge = errors.New("the body is too large")

// limitedBody is a body that may have so many octets more. It implements io.Reader and ReadReceived of
// upstream.Request.
type limitedBody struct {
	io.Reader
	left int64
}

// Read implements io.Reader.
func (b *limitedBody) Read(p []byte) (int, error) { return b.limit(p, b.Reader.Read) }

// ReadReceived is Read of what has come, see upstream.Request.
func (b *limitedBody) ReadReceived(p []byte) (int, error) {
	if of, ok := b.Reader.(interface{ ReadReceived(p []byte) (int, error) }); ok {
		return b.limit(p, of.ReadReceived)
	}
	return 0, nil
}

// limit reads one octet more than there may be, to know whether there is one.
func (b *limitedBody) limit(p []byte, read func([]byte) (int, error)) (int, error) {
	if b.left < 0 {
		return 0, errBodyTooLarge
	}
	n, err := read(p[:min(int64(len(p)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		return n - 1, errBodyTooLarge
	}
	return n, err
}
