package proxy

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"slices"
	"time"

	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/gateway/upstream"
)

const (
	// maxMirrored is the largest body that is mirrored, in octets.
	maxMirrored = 64 << 10
	// mirrorWithin is how long the copy of a request may take.
	mirrorWithin = 10 * time.Second
	// maxMirrors is how many copies may be under way at once.
	maxMirrors = 64
)

// mirror sends copies of a request (HTTPRequestMirrorFilter). A body that is too large, or of which the length is not
// known, is not copied, and the request is not mirrored. The error is that of reading the body.
func (p *Proxy) mirror(r *http.Request, x *exchange) error {
	var mirrors []table.Mirror
	for _, a := range []*table.Actions{&x.Rule.Actions, &x.backend.Actions} {
		for _, m := range a.Mirrors {
			if m.Denominator == 0 || rand.Uint32N(m.Denominator) < m.Numerator {
				mirrors = append(mirrors, m)
			}
		}
	}
	if len(mirrors) == 0 {
		return nil
	}
	if held, err := p.hold(r, x, maxMirrored); !held {
		return err
	}
	for _, m := range mirrors {
		select {
		case p.mirrors <- struct{}{}:
			made := x.copyOf(r)
			go func() {
				defer func() { <-p.mirrors }()
				defer p.survive()
				p.send(m.Upstream, made)
			}()
		default:
		}
	}
	return nil
}

// survive is deferred: a fault in what runs beside requests must end none of them.
func (p *Proxy) survive() {
	if v := recover(); v != nil {
		p.cfg.Log.Error("sending a copy of a request panicked", "panic", v, "stack", string(debug.Stack()))
	}
}

// copyOf returns a copy of a request.
func (x *exchange) copyOf(r *http.Request) *upstream.Request {
	made := &upstream.Request{
		Method: r.Method, Target: targetOf(x.path, r), Host: hostOf(r), Fields: slices.Clone(x.fields), Length: -1,
		Header: make(http.Header), Certificate: x.certificate,
	}
	if len(x.content) > 0 {
		made.Body, made.Length = inMemory{bytes.NewReader(x.content)}, int64(len(x.content))
	}
	change(&made.Fields, x.Rule.Actions.Request)
	return made
}

// send sends a request to an endpoint, and ignores the answer.
func (p *Proxy) send(to table.Upstream, r *upstream.Request) {
	pool := p.cfg.Endpoints.Pool(to)
	if pool == nil || !upstream.Valid(r.Method, r.Target, r.Host) {
		return
	}
	e := pool.Pick()
	if e == nil {
		return
	}
	defer e.Done()
	defer r.Free()
	r.Deadline = time.Now().Add(mirrorWithin)
	res, err := p.do(context.Background(), to, e, r)
	if err != nil {
		return
	}
	defer res.Close()
	for n := 0; n < maxMirrored; {
		part, err := res.Next()
		if n += len(part); err != nil {
			return
		}
	}
}
