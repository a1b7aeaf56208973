package proxy

import (
	"io"
	"net/http"

	"portolan.dev/portolan/internal/gateway/upstream"
)

const (
	// maxHeld is the largest body that is held to be sent again, in octets.
	maxHeld = 64 << 10
	// maxHeldTotal is how many octets of bodies are held at once.
	maxHeldTotal = 16 << 20
)

// hold reads the body of a request, if it says its length, has at most limit octets, and there is room. It reports
// whether the request has no other body than x.content. The error is that of reading.
func (p *Proxy) hold(r *http.Request, x *exchange, limit int64) (held bool, err error) {
	n := r.ContentLength
	if r.Body == nil || r.Body == http.NoBody {
		n = 0
	}
	switch {
	case n > limit || n < 0:
		return false, nil
	case x.held || n == 0:
		return true, nil
	}
	if p.held.Add(n) > maxHeldTotal {
		p.held.Add(-n)
		return false, nil
	}
	content := make([]byte, n)
	x.content = content // which end has count no more
	if _, err := io.ReadFull(r.Body, content); err != nil {
		return false, &upstream.Error{Failure: upstream.BadBody, Err: err}
	}
	x.held = true
	return true, nil
}

// Held returns how many octets of bodies are held, of requests that may be sent again.
func (p *Proxy) Held() int64 { return p.held.Load() }
