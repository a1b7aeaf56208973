package proxy

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"portolan.dev/portolan/internal/gateway/balance"
	"portolan.dev/portolan/internal/gateway/upstream"
)

// attemptAgain is attempt for a rule with a Retry. Each attempt is sent to an endpoint that was not tried before, as
// long as there is one. The budget of the Service, if it has one, limits them.
func (p *Proxy) attemptAgain(
	ctx context.Context, x *exchange, pool *balance.Pool,
) (*upstream.Response, *balance.Endpoint, error) {
	out := &x.out
	defer func() { out.Free() }()
	budget := p.budgetOf(x)
	var tried []*balance.Endpoint
	for {
		e := pick(pool, x, tried)
		if e == nil && len(tried) > 0 {
			tried = tried[:0]
			e = pool.Pick()
		}
		if e == nil {
			return nil, nil, errNoEndpoint
		}
		x.Endpoint = e.Addr
		x.Attempts++
		out.Deadline = x.deadline()
		res, err := p.do(ctx, x.Upstream, e, out)
		at := neither
		if err != nil {
			at = blame(ctx, x, err)
		}
		if at == endpoints || err == nil {
			pool.Report(e, err == nil)
		}
		wait := x.backoff()
		if at == requests || !x.again(out, res, err) || !x.hasTime(wait) {
			if err != nil {
				e.Done()
				return nil, nil, err
			}
			return res, e, nil
		}
		if res != nil {
			discard(res)
		}
		e.Done()
		clear(out.Header)
		if budget != nil && !budget.take(x.backend.Retries) {
			return nil, nil, errRetryBudget
		}
		if !pause(ctx, wait) {
			return nil, nil, ctx.Err()
		}
		tried = append(tried, e)
		if len(x.content) > 0 {
			out.Free()
			out = out.Again(inMemory{bytes.NewReader(x.content)})
		}
	}
}

// again reports whether a request is to be sent again after an attempt: a response, or a failure.
func (x *exchange) again(out *upstream.Request, res *upstream.Response, err error) bool {
	retry := x.Rule.Retry
	switch {
	case x.Attempts > retry.Attempts:
		return false
	case err != nil && retry.CodesOnly:
		return false
	case err == nil && !slices.Contains(retry.Codes, res.Status):
		return false
	case retry.Idempotent && slices.Contains(nonIdempotent, out.Method) && !unsent(err):
		return false
	}
	return out.Body == nil || len(x.content) > 0
}

// nonIdempotent are the methods of which the effect of two requests may be another one than that of one.
var nonIdempotent = []string{http.MethodPost, http.MethodPatch, "LOCK"}

// unsent reports whether a request failed before anything of it was sent.
func unsent(err error) bool {
	failed, ok := errors.AsType[*upstream.Error](err)
	return ok && (failed.Failure == upstream.Unsent || failed.Failure == upstream.Exhausted)
}

// backoff returns how long to wait before the next attempt: twice as long each time up to ten times what the rule says,
// and up to half of it more, so that requests that failed together are not sent again together.
func (x *exchange) backoff() time.Duration {
	const most, doublings = 10, 4
	base := x.Rule.Retry.Backoff
	if base <= 0 {
		return 0
	}
	wait := min(base<<min(x.Attempts-1, doublings), most*base)
	return wait + rand.N(wait/2+1)
}

// hasTime reports whether there is time for another attempt after a wait.
func (x *exchange) hasTime(wait time.Duration) bool {
	at := time.Since(x.Began) + wait
	within := x.Rule.Retry.Within
	return (x.Rule.Request <= 0 || at < x.Rule.Request) && (within <= 0 || at < within)
}

// pause waits, and reports whether the request goes on.
func pause(ctx context.Context, wait time.Duration) bool {
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// discard closes a response. What has come of its body is read, so that the connection may be used again.
func discard(res *upstream.Response) {
	defer res.Close()
	for n := 0; n < maxHeld; {
		part, err := res.NextReceived()
		if n += len(part); err != nil || len(part) == 0 {
			return
		}
	}
}
