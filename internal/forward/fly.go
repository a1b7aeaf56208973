package forward

import (
	"context"
	"fmt"
	"time"

	"portolan.dev/portolan/internal/cache"
	"portolan.dev/portolan/internal/dnswire"
)

// maxAttempts is how often a question is sent at most.
const maxAttempts = 6

// fly asks for q and keeps what comes of it, at the time it gives.
func (f *Forwarder) fly(q cache.Question) (*cache.Entry, time.Time) {
	r := f.route(q.Name)
	if r == nil {
		return f.fail(q, &cache.Failure{Code: dnswire.EDENotAuthoritative, Text: "there is no upstream server for this name"})
	}
	if r.seesLoop(q.Name) || r.looping() {
		return f.fail(q, &cache.Failure{Code: dnswire.EDENoReachable, Text: fmt.Sprintf("route %s: an upstream server asks this server again, in a circle", r)})
	}
	f.budget.earn()
	reply, err := f.race(r, q)
	if err != nil {
		return f.fail(q, failureOf(r, err))
	}
	if reply.RCode != dnswire.NoError && reply.RCode != dnswire.NXDomain {
		return f.fail(q, refusal(r, reply))
	}
	if r.guards() && pointsInside(reply) {
		return f.fail(q, &cache.Failure{Code: dnswire.EDEBlocked, Text: fmt.Sprintf("route %s: the answer has a private address, which names from there may not have", r)})
	}
	cut := cache.CutNothing
	if reply.Flags&dnswire.FlagAD != 0 || r.TrustDenials {
		cut = cache.CutBelow
	}
	now := time.Now()
	return f.cfg.Cache.Put(q, reply, cut, now), now
}

// fail remembers a failure, and gives the stale answer in its place when there
// is one.
func (f *Forwarder) fail(q cache.Question, why *cache.Failure) (*cache.Entry, time.Time) {
	now := time.Now()
	e := f.cfg.Cache.Fail(q, why, now)
	if e.Stale(now) {
		f.counts.staleHits.Add(1)
	}
	return e, now
}

// refusal is what a reply says that is no answer.
func refusal(r *route, reply *dnswire.Reply) *cache.Failure {
	if reply.Error != nil {
		return &cache.Failure{Code: reply.Error.Code, Text: reply.Error.Text}
	}
	return &cache.Failure{Code: dnswire.EDEOther, Text: fmt.Sprintf("route %s: an upstream server answers %s", r, reply.RCode)}
}

// failureOf says why nobody answered.
func failureOf(r *route, err error) *cache.Failure {
	code := dnswire.EDENoReachable
	if isNetworkError(err) {
		code = dnswire.EDENetworkError
	}
	return &cache.Failure{Code: code, Text: fmt.Sprintf("route %s: %s", r, err)}
}

// result is what came of an attempt.
type result struct {
	reply *dnswire.Reply
	err   error
}

// good tells whether no other upstream need be asked.
func (r result) good() bool {
	return r.err == nil && (r.reply.RCode == dnswire.NoError || r.reply.RCode == dnswire.NXDomain)
}

// better gives the result that says more: any reply more than none.
func better(a, b result) result {
	if a.reply == nil && (a.err == nil || b.reply != nil || b.err != nil) {
		return b
	}
	return a
}

// race asks one upstream of r after the other until one answers. Another one is
// asked at once when one fails, and when one takes longer than it usually does.
func (f *Forwarder) race(r *route, q cache.Question) (*dnswire.Reply, error) {
	order := r.order()
	if len(order) == 0 {
		return nil, errNoUpstream
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.Timeout)
	defer cancel()
	results := make(chan result, maxAttempts)
	attempts, open := 0, 0
	begin := func() (patience time.Duration) {
		u := order[attempts%len(order)]
		round := attempts / len(order)
		attempts++
		open++
		go func() {
			reply, err := u.ask(ctx, q)
			results <- result{reply, err}
		}()
		return min(u.patience()<<round, maxPatience)
	}
	last := func() *upstream { return order[(attempts-1)%len(order)] }
	began, wait := time.Now(), begin()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	var best result
	for {
		select {
		case res := <-results:
			open--
			if res.good() {
				return res.reply, nil
			}
			if res.err != nil && ctx.Err() != nil {
				continue // to its end
			}
			best = better(best, res)
			if attempts < len(order) && attempts < maxAttempts {
				timer.Reset(begin())
			} else if open == 0 {
				return best.reply, best.err
			}
		case <-timer.C:
			last().late()
			switch {
			case attempts >= maxAttempts:
			case f.budget.spend() || time.Since(began) >= hardPatience*time.Duration(attempts):
				timer.Reset(begin())
			default:
				timer.Reset(hardPatience)
			}
		case <-ctx.Done():
			if best.reply != nil {
				return best.reply, nil
			}
			return nil, &silenceError{order, r.Timeout}
		}
	}
}

// hardPatience is after how long another attempt is made whatever the budget
// says.
const hardPatience = 400 * time.Millisecond
