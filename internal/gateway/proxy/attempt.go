package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"portolan.dev/portolan/internal/gateway/balance"
)

// errNoEndpoint: the upstream has no endpoint.
var errNoEndpoint = errors.New("no endpoint")

// maxAttempts is to how many endpoints a request is sent at most.
const maxAttempts = 3

// attempts sends requests to endpoints. It implements http.RoundTripper.
type attempts struct{ *Proxy }

// RoundTrip sends a request to an endpoint. If that could not be connected to, or the request is
// idempotent and has no body, it tries others (RFC 9110, section 9.2.2).
func (a attempts) RoundTrip(r *http.Request) (*http.Response, error) {
	x := exchangeOf(r)
	pool := a.cfg.Endpoints.Pool(x.Upstream)
	if pool == nil || pool.Len() == 0 {
		return nil, errNoEndpoint
	}
	a.retries.request()
	var tried []*balance.Endpoint
	for {
		e := pool.Pick(tried...)
		if e == nil {
			return nil, errNoEndpoint
		}
		x.Endpoint = e.Addr
		x.Attempts++
		res, err := a.attempt(r, x, e)
		if err == nil {
			pool.Report(e, true)
			return res, nil
		}
		e.Done()
		if r.Context().Err() != nil { // the client's or the rule's end, not the endpoint's
			return nil, err
		}
		pool.Report(e, false)
		if len(tried)+1 == maxAttempts || !retryable(r, err) || !a.retries.take() {
			return nil, err
		}
		tried = append(tried, e)
	}
}

// attempt sends a request to an endpoint. The endpoint is done when the body of the response is closed.
func (a attempts) attempt(r *http.Request, x *exchange, e *balance.Endpoint) (*http.Response, error) {
	ctx, cancel := r.Context(), context.CancelFunc(func() {})
	if x.Rule.BackendRequest > 0 {
		ctx, cancel = context.WithTimeout(ctx, x.Rule.BackendRequest)
	}
	out := r.WithContext(ctx)
	out.URL = new(*r.URL)
	out.URL.Host = e.Addr.String()
	if r.Body != nil && r.Body != http.NoBody {
		out.Body = io.NopCloser(r.Body) // a transport closes it when it cannot connect, too
	}
	res, err := a.transport(x.Upstream).RoundTrip(out)
	if err != nil {
		if cause := ctx.Err(); cause != nil {
			err = cause
		}
		cancel()
		return nil, err
	}
	done := sync.OnceFunc(func() {
		cancel()
		e.Done()
	})
	if both, ok := res.Body.(io.ReadWriteCloser); ok { // of an upgraded connection
		res.Body = &upgraded{both, done}
	} else {
		res.Body = &body{res.Body, done}
	}
	return res, nil
}

// retryable reports whether a request may be sent again after an error.
func retryable(r *http.Request, err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return true // not a byte was sent
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return r.Body == nil || r.Body == http.NoBody
	}
	return false
}

// body calls a function when it is closed.
type body struct {
	io.ReadCloser
	done func()
}

// Close implements io.Closer.
func (b *body) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}

// upgraded is body for both directions.
type upgraded struct {
	io.ReadWriteCloser
	done func()
}

// Close implements io.Closer.
func (b *upgraded) Close() error {
	defer b.done()
	return b.ReadWriteCloser.Close()
}

// budget limits retries to a fifth of the requests, so that they don't multiply the load of upstreams
// that fail. The zero budget allows a few.
type budget struct{ tokens atomic.Int64 }

const (
	requestTokens, retryTokens = 1, 5
	firstTokens                = 50 // is how much below zero the tokens may go
	maxTokens                  = 500
)

// request counts a request.
func (b *budget) request() {
	if b.tokens.Add(requestTokens) > maxTokens {
		b.tokens.Add(-requestTokens)
	}
}

// take reports whether a retry is allowed, and counts it.
func (b *budget) take() bool {
	if b.tokens.Add(-retryTokens) >= -firstTokens {
		return true
	}
	b.tokens.Add(retryTokens)
	return false
}
