package access

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"portolan.dev/portolan/internal/support/deadline"
)

const (
	token       = "0123456789abcdef"
	near, far   = "127.0.0.1:1", "192.0.2.1:1"
	bearer      = "Bearer " + token
	wrongBearer = "Bearer fedcba9876543210"
)

// clock is a time that tests move.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func newClock() *clock { return &clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} }

// send sends a request from a client, with header fields, to a protected page.
func send(g *Guard, client string, fields ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/overview", http.NoBody)
	r.RemoteAddr, r.Host = client, "localhost:9153"
	for i := 0; i < len(fields); i += 2 {
		switch fields[i] {
		case "Host":
			r.Host = fields[i+1]
		case "TLS":
			r.TLS = new(tls.ConnectionState)
			if fields[i+1] == "verified" {
				r.TLS.VerifiedChains = [][]*x509.Certificate{{new(x509.Certificate)}}
			}
		default:
			r.Header.Add(fields[i], fields[i+1])
		}
	}
	w := httptest.NewRecorder()
	g.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "data") })).ServeHTTP(w, r)
	return w
}

func TestProtect(t *testing.T) {
	t.Parallel()
	with := Config{Token: func() string { return token }}
	empty := Config{Token: func() string { return "" }}
	secure := Config{Token: with.Token, TLSOnly: true}
	certificates := Config{Certificates: true, TLSOnly: true}
	for claim, test := range map[string]struct {
		cfg    Config
		client string
		fields []string
		status int
		words  string
	}{
		"loopback":                         {Config{}, near, nil, 200, "data"},
		"loopback in IPv6":                 {Config{}, "[::1]:1", []string{"Host", "[::1]:9153"}, 200, "data"},
		"loopback by another name":         {Config{}, near, []string{"Host", "evil.example:9153"}, 403, "admin.tokenFile"},
		"loopback, but another site":       {Config{}, near, []string{"Sec-Fetch-Site", "cross-site"}, 403, "other sites"},
		"loopback, the page itself":        {Config{}, near, []string{"Sec-Fetch-Site", "same-origin"}, 200, "data"},
		"far":                              {Config{}, far, nil, 403, "admin.tokenFile"},
		"far, with a needless token":       {Config{}, far, []string{"Authorization", bearer}, 403, "admin.tokenFile"},
		"far, with the token":              {with, far, []string{"Authorization", bearer}, 200, "data"},
		"far, in lower case":               {with, far, []string{"Authorization", "bearer " + token}, 200, "data"},
		"far, without the token":           {with, far, nil, 401, `"login":true`},
		"far, with a wrong token":          {with, far, []string{"Authorization", wrongBearer}, 401, "not that of"},
		"far, with a prefix of the token":  {with, far, []string{"Authorization", bearer[:20]}, 401, "not that of"},
		"far, by another scheme":           {with, far, []string{"Authorization", "Basic " + token}, 401, "needed"},
		"far, with an empty token":         {with, far, []string{"Authorization", "Bearer "}, 401, "needed"},
		"far, while the file has no token": {empty, far, []string{"Authorization", "Bearer "}, 403, "has no token"},
		"far, without TLS":                 {secure, far, []string{"Authorization", bearer}, 403, "https only"},
		"far, with TLS":                    {secure, far, []string{"Authorization", bearer, "TLS", "plain"}, 200, "data"},
		"far, with a certificate":          {certificates, far, []string{"TLS", "verified"}, 200, "data"},
		"far, without a certificate":       {certificates, far, []string{"TLS", "plain"}, 403, "client certificate"},
		"far, with a cookie that is wrong": {with, far, []string{"Cookie", cookieName + "-9153=99999999999.AAAA"}, 401, "needed"},
		"far, with a cookie that is none":  {with, far, []string{"Cookie", cookieName + "-9153=\x00"}, 401, "needed"},
	} {
		test.cfg.Now = newClock().now
		w := send(New(test.cfg), test.client, test.fields...)
		if w.Code != test.status || !strings.Contains(w.Body.String(), test.words) {
			t.Errorf("%s: %d %s, want %d and %q", claim, w.Code, w.Body, test.status, test.words)
		}
		if w.Code != http.StatusOK && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s: %s is no JSON", claim, w.Body)
		}
	}
}

// TestLogin verifies the cookie: what it is good for, and when it ends.
func TestLogin(t *testing.T) {
	t.Parallel()
	c, current := newClock(), token
	g := New(Config{Token: func() string { return current }, Now: c.now})
	login := func(fields ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, LoginPath, http.NoBody)
		r.RemoteAddr, r.Host = far, "localhost:9153"
		for i := 0; i < len(fields); i += 2 {
			r.Header.Set(fields[i], fields[i+1])
		}
		w := httptest.NewRecorder()
		g.Login(w, r)
		return w
	}
	if w := login("Authorization", wrongBearer); w.Code != http.StatusUnauthorized || len(w.Result().Cookies()) > 0 {
		t.Errorf("Login with a wrong token: %d, cookies %v", w.Code, w.Result().Cookies())
	}
	w := login("Authorization", bearer)
	cookies := w.Result().Cookies()
	if w.Code != http.StatusNoContent || len(cookies) != 1 {
		t.Fatalf("Login: %d, cookies %v", w.Code, cookies)
	}
	made := cookies[0]
	if !made.HttpOnly || made.SameSite != http.SameSiteStrictMode || strings.Contains(made.Value, token) {
		t.Errorf("Login: cookie %v, want HttpOnly, SameSite=Strict, and not the token", made)
	}
	cookie := made.Name + "=" + made.Value
	want := func(claim string, g *Guard, status int) {
		t.Helper()
		if w := send(g, far, "Cookie", cookie); w.Code != status {
			t.Errorf("%s: %d %s, want %d", claim, w.Code, w.Body, status)
		}
	}
	want("a cookie", g, http.StatusOK)
	want("another process", New(g.cfg), http.StatusUnauthorized)
	current = "another token, which is longer"
	want("another token", g, http.StatusUnauthorized)
	current = token
	c.at = c.at.Add(cookieTime - time.Second)
	want("before its end", g, http.StatusOK)
	c.at = c.at.Add(time.Second)
	want("after its end", g, http.StatusUnauthorized)
}

// TestCookieOfPort verifies that processes at other ports of a host have other cookies.
func TestCookieOfPort(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"127.0.0.1:9153": "portolan-page-9153", "[::1]:9154": "portolan-page-9154", "node-1.example": "portolan-page",
		"a:;x=1": "portolan-page", "a:99999": "portolan-page", "": "portolan-page",
	} {
		r := httptest.NewRequest(http.MethodPost, LoginPath, http.NoBody)
		r.Host = host
		r.Header.Set("Authorization", bearer)
		w := httptest.NewRecorder()
		New(Config{Token: func() string { return token }}).Login(w, r)
		if made := w.Result().Cookies(); len(made) != 1 || made[0].Name != want {
			t.Errorf("Login at %q: cookies %v, want %s", host, made, want)
		}
	}
}

// TestWrongTokens verifies that wrong tokens of a source are limited, and that this harms no other source.
func TestWrongTokens(t *testing.T) {
	t.Parallel()
	c := newClock()
	g := New(Config{Token: func() string { return token }, Now: c.now})
	for range failureBurst {
		if w := send(g, far, "Authorization", wrongBearer); w.Code != http.StatusUnauthorized {
			t.Fatalf("a wrong token: %d, want 401", w.Code)
		}
	}
	w := send(g, far, "Authorization", bearer)
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "10" {
		t.Errorf("after %d wrong tokens: %d, Retry-After %q, want 429 and 10", failureBurst, w.Code,
			w.Header().Get("Retry-After"))
	}
	if w := send(g, "192.0.2.2:1", "Authorization", bearer); w.Code != http.StatusOK {
		t.Errorf("another source: %d, want 200", w.Code)
	}
	c.at = c.at.Add(failureTime)
	if w := send(g, far, "Authorization", bearer); w.Code != http.StatusOK {
		t.Errorf("later: %d, want 200", w.Code)
	}
	if sourceOf(request("[2001:db8::1]:1")) != sourceOf(request("[2001:db8::2]:2")) {
		t.Error("two addresses of a network of IPv6 are two sources, want one")
	}
	for i := range 3 * mostSources {
		send(g, fmt.Sprintf("10.%d.%d.1:1", i>>8, i&255), "Authorization", wrongBearer)
	}
	if n := len(g.failures.free); n > mostSources {
		t.Errorf("%d sources are remembered, want at most %d", n, mostSources)
	}
}

func request(client string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.RemoteAddr = client
	return r
}

// TestTokenFile verifies that the token is that of the file, as it is now.
func TestTokenFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log := slog.New(slog.DiscardHandler)
	for claim, text := range map[string]string{"empty": "", "short": "secret\n"} {
		put(text)
		if _, _, err := Open(Files{Token: file}, log); err == nil || !strings.Contains(err.Error(), "less than 16 characters") {
			t.Errorf("Open with a file that is %s: %v, want an error", claim, err)
		}
	}
	put("\n" + token + "\nmore\n")
	tokens := &tokenFile{path: file, log: log}
	if err := tokens.open(); err != nil || tokens.get() != token {
		t.Fatalf("open() = %v, get() = %q, want %q", err, tokens.get(), token)
	}
	const next = "fedcba9876543210"
	for claim, test := range map[string]struct{ text, want string }{
		"another one": {next, next}, "no token any more": {"", ""}, "the first one": {token, token},
	} {
		put(test.text)
		at := time.Now().Add(time.Duration(len(claim)) * time.Hour)
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
		tokens.looked = time.Time{} // as if tokenInterval had passed
		if got := tokens.get(); got != test.want {
			t.Errorf("%s: get() = %q, want %q", claim, got, test.want)
		}
	}
}

// tokenFileAt opens a file with the token.
func tokenFileAt(t *testing.T, file string, log *slog.Logger) *tokenFile {
	t.Helper()
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens := &tokenFile{path: file, log: log}
	if err := tokens.open(); err != nil {
		t.Fatal(err)
	}
	return tokens
}

// TestTokenFileFails verifies that a file that could not be read lets nobody in, is read again although its
// modification time stays the same, and that its error is logged once.
func TestTokenFileFails(t *testing.T) {
	t.Parallel()
	for claim, test := range map[string]struct {
		fail func(file string) error // it moves the file to file.away
		want string                  // in the log
	}{
		"no file":     {func(string) error { return nil }, "no such file"},
		"a directory": {func(file string) error { return os.Mkdir(file, 0o700) }, "is a directory"},
	} {
		var words bytes.Buffer
		file := filepath.Join(t.TempDir(), "token")
		tokens := tokenFileAt(t, file, slog.New(slog.NewTextHandler(&words, nil)))
		at := time.Now().Add(time.Hour)
		if err := errors.Join(os.Rename(file, file+".away"), os.Chtimes(file+".away", at, at), test.fail(file)); err != nil {
			t.Fatal(err)
		}
		_ = os.Chtimes(file, at, at) // it fails if there is no file
		for range 2 {
			tokens.looked = time.Time{} // as if tokenInterval had passed
			if got := tokens.get(); got != "" {
				t.Errorf("%s: get() = %q, want none", claim, got)
			}
		}
		if n := strings.Count(words.String(), test.want); n != 1 {
			t.Errorf("%s: %q is %d times in the log, want once: %s", claim, test.want, n, words.String())
		}
		_ = os.Remove(file)
		if err := os.Rename(file+".away", file); err != nil {
			t.Fatal(err)
		}
		tokens.looked = time.Time{}
		if got := tokens.get(); got != token {
			t.Errorf("%s, and then the file with the same time: get() = %q, want %q", claim, got, token)
		}
	}
}

// TestTokenFileHangs verifies that a read that does not end leaves the token in force, also after its last
// deadline, and that the file is read again.
func TestTokenFileHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "token")
		tokens := tokenFileAt(t, file, slog.New(slog.DiscardHandler))
		// A pipe without a writer has no content and no end.
		if err := errors.Join(os.Remove(file), syscall.Mkfifo(file, 0o600)); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(time.Hour)
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if got := tokens.get(); got != token {
				t.Errorf("get() while the read hangs = %q, want %q", got, token)
			}
			time.Sleep(deadline.File + tokenInterval)
			if got := *tokens.token.Load(); got != token {
				t.Errorf("the token after the deadline of the read is %q, want %q", got, token)
			}
		}
		const next = "fedcba9876543210"
		if err := errors.Join(os.Remove(file), os.WriteFile(file, []byte(next), 0o600), os.Chtimes(file, at, at)); err != nil {
			t.Fatal(err)
		}
		if got := tokens.get(); got != next {
			t.Errorf("get() of a file with the time of the one that hung = %q, want %q", got, next)
		}
	})
}
