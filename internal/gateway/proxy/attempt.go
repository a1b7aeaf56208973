package proxy

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"portolan.dev/portolan/internal/gateway/balance"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/gateway/upstream"
)

// errNoEndpoint: the upstream has no endpoint.
var errNoEndpoint = errors.New("no endpoint")

// attempt sends a request to an endpoint. If nothing of it was sent, or it is idempotent and has no body, it tries
// others, each once (RFC 9110, section 9.2.2), within the budget of the Service or, without one, within p.retries. The
// caller closes the response, and then ends the request at the endpoint.
func (p *Proxy) attempt(ctx context.Context, x *exchange) (*upstream.Response, *balance.Endpoint, error) {
	pool := p.cfg.Endpoints.Pool(x.Upstream)
	if pool == nil || pool.Len() == 0 {
		return nil, nil, errNoEndpoint
	}
	if x.Rule.Retry != nil {
		return p.attemptAgain(ctx, x, pool)
	}
	defer x.out.Free()
	budget := p.budgetOf(x)
	if budget == nil {
		p.retries.request()
	}
	var tried []*balance.Endpoint
	e := pick(pool, x, tried)
	if e == nil {
		return nil, nil, errNoEndpoint
	}
	for {
		x.Endpoint = e.Addr
		x.Attempts++
		x.out.Deadline = x.deadline()
		res, err := p.do(ctx, x.Upstream, e, &x.out)
		if err == nil {
			pool.Report(e, true)
			return res, e, nil
		}
		e.Done()
		clear(x.out.Header)
		at := blame(ctx, x, err)
		if at == endpoints {
			pool.Report(e, false)
			tried = append(tried, e)
		}
		if at == requests || x.Attempts == table.MaxAttempts || !retryable(&x.out, err) {
			return nil, nil, err
		}
		next := pick(pool, x, tried) // a retry without an endpoint is none, and takes nothing of a budget
		switch {
		case next == nil:
			return nil, nil, err
		case budget == nil && !p.retries.take():
			next.Done()
			return nil, nil, err
		case budget != nil && !budget.take(x.backend.Retries):
			next.Done()
			return nil, nil, errRetryBudget
		}
		e = next
	}
}

// budgetOf counts a request in the retry budget of its Service, and returns that; nil without one.
func (p *Proxy) budgetOf(x *exchange) *serviceBudget {
	if x.backend.Retries == nil {
		return nil
	}
	return p.budgets.request(&x.Upstream, x.backend.Retries)
}

// pick chooses an endpoint of those that were not tried: first that of the session.
func pick(pool *balance.Pool, x *exchange, tried []*balance.Endpoint) *balance.Endpoint {
	if x.session.endpoint != nil && len(tried) == 0 && pool.Use(x.session.endpoint) {
		return x.session.endpoint
	}
	return pool.Pick(tried...)
}

// do sends a request to an endpoint of an upstream.
func (p *Proxy) do(
	ctx context.Context,
	to table.Upstream,
	e *balance.Endpoint,
	r *upstream.Request,
) (*upstream.Response, error) {
	if r.TLS = to.TLS; !to.Secure() {
		r.Certificate = nil
	}
	if to.Protocol == table.H2C {
		return p.upstreams.DoHTTP2(ctx, e, r)
	}
	return p.upstreams.Do(ctx, e, r)
}

// deadline returns when an attempt that begins now must have ended; zero for never.
func (x *exchange) deadline() (at time.Time) {
	if x.Rule.Request > 0 {
		at = x.Began.Add(x.Rule.Request)
	}
	if x.Rule.BackendRequest > 0 {
		if end := time.Now().Add(x.Rule.BackendRequest); at.IsZero() || end.Before(at) {
			at = end
		}
	}
	return at
}

// cause is whose fault it is that an attempt failed.
type cause int

const (
	endpoints cause = iota // that of the endpoint
	requests               // that of the client, or of the time that the request may take: it is not sent again
	neither                // that of a connection that had been kept, or of this process
)

// blame returns whose fault an error is.
func blame(ctx context.Context, x *exchange, err error) cause {
	if ctx.Err() != nil || x.Rule.Request > 0 && time.Since(x.Began) >= x.Rule.Request {
		return requests
	}
	if failed, ok := errors.AsType[*upstream.Error](err); ok {
		switch failed.Failure {
		case upstream.BadBody:
			return requests
		case upstream.Stale, upstream.Exhausted:
			return neither
		}
	}
	return endpoints
}

// retryable reports whether a request may be sent again after an error.
func retryable(r *upstream.Request, err error) bool {
	failed, ok := errors.AsType[*upstream.Error](err)
	if !ok && !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	if ok && failed.Failure == upstream.Unsent {
		return true
	}
	if ok && (failed.Failure == upstream.Malformed || failed.Failure == upstream.Exhausted) || r.Body != nil {
		return false
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}
