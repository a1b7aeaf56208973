package proxy

import (
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"time"

	"github.com/dchest/siphash"

	"portolan.dev/portolan/internal/gateway/balance"
	"portolan.dev/portolan/internal/gateway/table"
)

// session is the session that a request is part of: its endpoint, nil for none yet, and when it began in seconds since
// 1970.
type session struct {
	endpoint *balance.Endpoint
	began    uint32
}

// tokenSize is that of a token: when the session began, and a hash of that and of the endpoint. The token is this in
// base64. Each gateway finds the endpoint by comparing the hash with those of all endpoints of the rule, so that none
// has to remember sessions, and none sends a request anywhere that the rule does not lead.
const tokenSize = 4 + 8

var encoding = base64.RawURLEncoding

// resume chooses the backend and the endpoint of a request's session, if it has one that is not over, and its endpoint
// is there. The backend may have the weight 0 by now (GEP-1619, "Traffic Splitting").
func (p *Proxy) resume(r *http.Request, x *exchange) {
	rule := x.Rule.Persistence
	const most = 4 // with one name, of other paths or domains
	for i, text := range tokens(r, rule) {
		if i == most {
			return
		}
		var token [tokenSize]byte
		if len(text) != encoding.EncodedLen(tokenSize) {
			continue
		}
		if _, err := encoding.Decode(token[:], []byte(text)); err != nil {
			continue
		}
		began := binary.BigEndian.Uint32(token[:])
		if rule.Absolute > 0 && time.Since(time.Unix(int64(began), 0)) >= rule.Absolute {
			continue
		}
		if p.findSession(x, began, binary.BigEndian.Uint64(token[4:])) {
			return
		}
	}
}

// tokens returns what may be tokens of a request.
func tokens(r *http.Request, of *table.Persistence) (all []string) {
	if of.Header {
		return r.Header[of.Name]
	}
	for _, c := range r.CookiesNamed(of.Name) {
		all = append(all, c.Value)
	}
	return all
}

// findSession finds the endpoint of a session by its hash.
func (p *Proxy) findSession(x *exchange, began uint32, hash uint64) bool {
	rule := x.Rule
	for i := range rule.Backends {
		b := &rule.Backends[i]
		pool := p.cfg.Endpoints.Pool(b.Upstream)
		if pool == nil {
			continue
		}
		made := newHasher(rule.Persistence, began, &b.Upstream)
		for _, e := range pool.All() {
			if made.of(e) == hash {
				x.backend, x.session = b, session{e, began}
				return true
			}
		}
	}
	return false
}

// hasher makes the hashes of endpoints of an upstream.
type hasher struct {
	low, high uint64
	room      [256]byte
	text      []byte // what all have, in room unless names are long
}

func newHasher(by *table.Persistence, began uint32, up *table.Upstream) *hasher {
	h := &hasher{low: binary.LittleEndian.Uint64(by.Key[:8]), high: binary.LittleEndian.Uint64(by.Key[8:])}
	h.text = binary.BigEndian.AppendUint32(h.room[:0], began)
	h.text = append(append(h.text, up.Namespace...), 0)
	h.text = append(append(h.text, up.Service...), 0)
	h.text = binary.BigEndian.AppendUint16(h.text, up.Port)
	return h
}

// of returns the hash of an endpoint.
func (h *hasher) of(e *balance.Endpoint) uint64 {
	addr := e.Addr.Addr().As16()
	text := binary.BigEndian.AppendUint16(append(h.text, addr[:]...), e.Addr.Port())
	return siphash.Hash(h.low, h.high, text)
}

// persist has a response say which session it is of, if it is a new one.
func (x *exchange) persist(h http.Header, at *balance.Endpoint) {
	rule := x.Rule.Persistence
	if at == x.session.endpoint && !rule.Header {
		return
	}
	began := x.session.began
	if at != x.session.endpoint {
		began = uint32(time.Now().Unix())
	}
	var token [tokenSize]byte
	binary.BigEndian.PutUint32(token[:], began)
	binary.BigEndian.PutUint64(token[4:], newHasher(rule, began, &x.Upstream).of(at))
	text := encoding.EncodeToString(token[:])
	if rule.Header {
		h.Set(rule.Name, text)
		return
	}
	cookie := http.Cookie{
		Name: rule.Name, Value: text, Path: rule.Path, Domain: rule.Domain, HttpOnly: true,
		MaxAge: int(rule.MaxAge / time.Second), Secure: rule.Secure || x.Request.TLS != nil,
		SameSite: sameSite(rule.SameSite),
	}
	if cookie.Path == "" {
		cookie.Path = "/"
	}
	h.Add("Set-Cookie", cookie.String())
}

// sameSite returns the mode that an attribute says.
func sameSite(text string) http.SameSite {
	switch text {
	case "Lax":
		return http.SameSiteLaxMode
	case "Strict":
		return http.SameSiteStrictMode
	case "None":
		return http.SameSiteNoneMode
	}
	return 0
}
