package proxy

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"

	"portolan.dev/portolan/internal/gateway/table"
)

const (
	// maxMirrored is the largest body that is mirrored, in octets.
	maxMirrored = 64 << 10
	// mirrorWithin is how long the copy of a request may take.
	mirrorWithin = 10 * time.Second
	// maxMirrors is how many copies may be under way at once.
	maxMirrors = 64
)

// mirror sends copies of a request (HTTPRequestMirrorFilter). A body that is too large, or of which the
// length is not known, is not copied, and the request is not mirrored.
func (p *Proxy) mirror(r *http.Request, x *exchange) {
	var mirrors []table.Mirror
	for _, a := range []*table.Actions{&x.Rule.Actions, &x.backend.Actions} {
		for _, m := range a.Mirrors {
			if m.Denominator == 0 || rand.Uint32N(m.Denominator) < m.Numerator {
				mirrors = append(mirrors, m)
			}
		}
	}
	if len(mirrors) == 0 || r.ContentLength < 0 || r.ContentLength > maxMirrored {
		return
	}
	content, err := io.ReadAll(r.Body)
	rest := r.Body
	r.Body = readCloser{io.MultiReader(bytes.NewReader(content), rest), rest}
	if err != nil {
		return // the request itself fails likewise
	}
	for _, m := range mirrors {
		select {
		case p.mirrors <- struct{}{}:
			go func() {
				p.send(m.Upstream, p.copyOf(r, x, content))
				<-p.mirrors
			}()
		default:
		}
	}
}

type readCloser struct {
	io.Reader
	io.Closer
}

// copyOf returns a copy of a request that does not end with it.
func (p *Proxy) copyOf(r *http.Request, x *exchange, content []byte) *http.Request {
	made := r.Clone(context.WithoutCancel(r.Context()))
	made.Body = io.NopCloser(bytes.NewReader(content))
	made.RequestURI = ""
	made.URL.Scheme = "http"
	setPath(made.URL, x.path)
	for _, options := range r.Header["Connection"] {
		for name := range strings.SplitSeq(options, ",") {
			made.Header.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range notCopied {
		made.Header.Del(name)
	}
	p.forwarded(&httputil.ProxyRequest{In: r, Out: made})
	change(made.Header, x.Rule.Actions.Request)
	return made
}

// notCopied are fields that are for one connection only (RFC 9110, section 7.6.1), and those that only
// trusted clients may set.
var notCopied = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
}

// send sends a request to an endpoint, and ignores the answer.
func (p *Proxy) send(to table.Upstream, r *http.Request) {
	pool := p.cfg.Endpoints.Pool(to)
	if pool == nil {
		return
	}
	e := pool.Pick()
	if e == nil {
		return
	}
	defer e.Done()
	ctx, cancel := context.WithTimeout(r.Context(), mirrorWithin)
	defer cancel()
	r = r.WithContext(ctx)
	r.URL.Host = e.Addr.String()
	res, err := p.transport(to).RoundTrip(r)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxMirrored))
	res.Body.Close()
}
