// Package access decides who may read the page for operators and its data on the admin server:
// clients on loopback, and elsewhere those with a token or a client certificate.
//
//	request ─► on loopback? ─► certificate? ─► token or cookie? ─► handler
//	                                             └─ failures.go: wrong tokens per source
package access

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"portolan.dev/portolan/internal/support/httpserver"
)

// Config configures a Guard.
type Config struct {
	// Token returns the token in force; empty if there is none at present. Nil accepts no tokens.
	Token func() string
	// Certificates: client certificates are verified where the connection begins.
	Certificates bool
	// TLSOnly: tokens count on connections with TLS only.
	TLSOnly bool
	// Now is time.Now; nil is that.
	Now func() time.Time
}

// Guard decides on requests.
type Guard struct {
	cfg      Config
	secret   [32]byte // of the cookies of this process
	failures failures
	judging  sync.Mutex // of tokens
}

// New returns a Guard.
func New(cfg Config) *Guard {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	g := &Guard{cfg: cfg}
	_, _ = rand.Read(g.secret[:]) // never fails
	return g
}

// The paths of Login and Logout.
const (
	LoginPath  = "/api/v1/login"
	LogoutPath = "/api/v1/logout"
)

const (
	// cookieName begins that of the cookie that stands for the token, see cookieOf.
	cookieName = "portolan-page"
	// cookieTime is for how long a cookie is valid.
	cookieTime = 12 * time.Hour
)

// refusal is why a request is not let in.
type refusal struct {
	status int
	why    string
	// login: a token would help.
	login bool
	// after is when to try again, in whole seconds; 0 does not say.
	after time.Duration
}

// Protect serves h to the clients that may read it. To others it says why they may not.
func (g *Guard) Protect(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if no := g.judge(r); no != nil {
			no.write(w)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// RefuseForeign serves h, except to browsers that send the request for the page of another site; it says so
// to them. It lets in all other clients.
func RefuseForeign(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isForeign(r) {
			foreign().write(w)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Login gives a client with a token a cookie. The page cannot read the cookie, and other sites
// cannot have it sent; it is worthless for another process and after a change of the token.
func (g *Guard) Login(w http.ResponseWriter, r *http.Request) {
	no := g.byToken(r)
	if no != nil {
		no.write(w)
		return
	}
	end := g.cfg.Now().Add(cookieTime)
	g.setCookie(w, r, g.sign(end), int(cookieTime.Seconds()))
}

// Logout has the client forget its cookie.
func (g *Guard) Logout(w http.ResponseWriter, r *http.Request) { g.setCookie(w, r, "", -1) }

func (g *Guard) setCookie(w http.ResponseWriter, r *http.Request, value string, seconds int) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieOf(r), Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, Secure: r.TLS != nil,
		SameSite: http.SameSiteStrictMode,
	})
	w.WriteHeader(http.StatusNoContent)
}

// judge returns why a request is not let in; nil if it is.
func (g *Guard) judge(r *http.Request) *refusal {
	switch {
	case isForeign(r):
		return foreign()
	case OnLoopback(r), r.TLS != nil && len(r.TLS.VerifiedChains) > 0:
		return nil
	case r.Header.Get("Authorization") == "" && g.hasCookie(r):
		return nil
	}
	return g.byToken(r)
}

// isForeign reports whether a browser says that the page of another site sends the request (Fetch
// Metadata Request Headers).
func isForeign(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site != "" && site != "same-origin" && site != "none"
}

// foreign is why a request of the page of another site is not let in.
func foreign() *refusal {
	return &refusal{status: http.StatusForbidden, why: "requests of pages of other sites are not answered"}
}

// byToken returns why a request is not let in by its token; nil if it is.
func (g *Guard) byToken(r *http.Request) *refusal {
	const unset = "this is served on loopback only, unless admin.tokenFile or admin.tls.clientCA is set"
	token := ""
	if g.cfg.Token != nil {
		token = g.cfg.Token()
	}
	switch {
	case g.cfg.Token == nil && g.cfg.Certificates:
		return &refusal{status: http.StatusForbidden, why: "a client certificate of admin.tls.clientCA is needed"}
	case g.cfg.Token == nil:
		return &refusal{status: http.StatusForbidden, why: unset}
	case token == "":
		return &refusal{status: http.StatusForbidden, why: "the file of admin.tokenFile has no token"}
	case g.cfg.TLSOnly && r.TLS == nil:
		return &refusal{status: http.StatusForbidden, why: "tokens are taken over https only, as admin.tls is set"}
	}
	source, now := sourceOf(r), g.cfg.Now()
	g.judging.Lock() // so that tokens sent at once count one after the other
	defer g.judging.Unlock()
	if wait := g.failures.wait(source, now); wait > 0 {
		return &refusal{status: http.StatusTooManyRequests, why: "too many wrong tokens; try again later", after: wait}
	}
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if given == "" || !strings.EqualFold(scheme, "Bearer") {
		return &refusal{status: http.StatusUnauthorized, why: "a token is needed, that of admin.tokenFile", login: true}
	}
	// Hashes have the same length, so that the comparison says nothing of that of the token.
	want, got := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(strings.TrimSpace(given)))
	if subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
		g.failures.add(source, now)
		return &refusal{status: http.StatusUnauthorized, why: "the token is not that of admin.tokenFile", login: true}
	}
	return nil
}

// hasCookie reports whether a request has a cookie of Login for the token in force.
func (g *Guard) hasCookie(r *http.Request) bool {
	c, err := r.Cookie(cookieOf(r))
	if err != nil || g.cfg.Token == nil || g.cfg.Token() == "" || g.cfg.TLSOnly && r.TLS == nil {
		return false
	}
	seconds, _, ok := strings.Cut(c.Value, ".")
	end, err := strconv.ParseInt(seconds, 10, 64)
	if !ok || err != nil || g.cfg.Now().Unix() >= end {
		return false
	}
	return hmac.Equal([]byte(c.Value), []byte(g.sign(time.Unix(end, 0))))
}

// cookieOf returns the name of the cookie: it has the port of the URL, since browsers send the cookies of a host to
// each of its ports, where other processes may listen.
func cookieOf(r *http.Request) string {
	_, port, err := net.SplitHostPort(r.Host)
	if _, notNumber := strconv.ParseUint(port, 10, 16); err != nil || notNumber != nil {
		return cookieName
	}
	return cookieName + "-" + port
}

// sign returns the value of a cookie that is valid until a time.
func (g *Guard) sign(end time.Time) string {
	mac := hmac.New(sha256.New, g.secret[:])
	_ = binary.Write(mac, binary.BigEndian, end.Unix()) // a hash takes everything
	mac.Write([]byte(g.cfg.Token()))
	return strconv.FormatInt(end.Unix(), 10) + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// write responds with the refusal, as JSON.
func (no *refusal) write(w http.ResponseWriter) {
	h := w.Header()
	if no.login {
		h.Set("WWW-Authenticate", `Bearer realm="portolan"`)
	}
	if no.after > 0 {
		h.Set("Retry-After", strconv.Itoa(int((no.after+time.Second-1)/time.Second)))
	}
	text := map[string]any{"error": no.why}
	if no.login {
		text["login"] = true
	}
	httpserver.RespondJSON(w, no.status, text)
}

// OnLoopback reports whether a client is on loopback. Web pages whose own name leads to loopback
// (DNS rebinding) are not: a client names the host by an address, or localhost.
func OnLoopback(r *http.Request) bool {
	client, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && client.Addr().Unmap().IsLoopback() && isPlainHost(r.Host)
}

// isPlainHost reports whether the host of a request is an address or localhost. It is empty
// on a Unix socket.
func isPlainHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || host == "localhost" || host == ""
}
