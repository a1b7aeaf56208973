package forward

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// maxAttempts is how often a question is sent at most.
const maxAttempts = 8

// fly asks for q and keeps what comes of it, at the time it gives.
func (f *Forwarder) resolve(q cache.Key) (*cache.Entry, time.Time) {
	r := f.routeOf(q)
	if r == nil {
		return f.fail(q, &cache.Failure{Code: dnswire.EDENotAuthoritative, Text: "there is no upstream server for this name"})
	}
	if r.seesLoop(q.Name) || r.looping() {
		return f.fail(q, &cache.Failure{Code: dnswire.EDENoReachable, Text: fmt.Sprintf("route %s: an upstream server asks this server again, in a circle", r)})
	}
	f.budget.earn()
	reply, from, err := f.query(r, q)
	if err != nil {
		return f.fail(q, failureOf(r, err))
	}
	if reply.RCode != dnswire.NoError && reply.RCode != dnswire.NXDomain {
		return f.fail(q, refusal(r, from, reply))
	}
	if r.NoPrivate && pointsInside(reply) {
		return f.fail(q, &cache.Failure{
			Code: dnswire.EDEBlocked, Text: fmt.Sprintf("route %s: the answer has a private address, which names from there may not have", r),
			OfSubnet: isOfSubnet(reply),
		})
	}
	terms := cache.Terms{Below: reply.Flags&dnswire.FlagAD != 0 || r.TrustDenials, Guarded: r.NoPrivate}
	now := time.Now()
	return f.cfg.Cache.Put(q, reply, terms, now), now
}

// fail remembers a failure, and gives the stale answer in its place when there
// is one.
func (f *Forwarder) fail(q cache.Key, why *cache.Failure) (*cache.Entry, time.Time) {
	now := time.Now()
	e := f.cfg.Cache.Fail(q, why, now)
	if e.Stale(now) {
		f.counts.staleHits.Add(1)
	}
	return e, now
}

// refusal is what a reply says that is no answer, and who says so.
func refusal(r *route, from *upstream, reply *dnswire.Reply) *cache.Failure {
	why := &cache.Failure{Code: dnswire.EDEOther, Text: fmt.Sprintf("route %s: an upstream server answers %s", r, reply.RCode), OfSubnet: isOfSubnet(reply)}
	if reply.EDE != nil {
		why.Code = reply.EDE.Code
		why.Text = fmt.Sprintf("route %s: %s says: %s", r, from, cmp.Or(reply.EDE.Text, reply.RCode.String()))
	}
	return why
}

// isOfSubnet tells whether a reply is for the clients of one subnet only.
func isOfSubnet(reply *dnswire.Reply) bool { return reply.Subnet != nil && reply.Subnet.Scope() > 0 }

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
	of    int // the upstream, in the order
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

// race asks one upstream of r after the other until one answers, and gives the
// reply and who gave it: see racing.
func (f *Forwarder) query(r *route, q cache.Key) (*dnswire.Reply, *upstream, error) {
	order := r.order()
	if len(order) == 0 {
		return nil, nil, errNoUpstream
	}
	timeout := r.Timeout
	if r.downFor(time.Now()) >= r.Timeout {
		timeout = min(timeout, downTimeout)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	x := &race{forwarder: f, order: order, heard: make([]heard, len(order)), results: make(chan result, maxAttempts)}
	x.timer = time.NewTimer(x.begin(ctx, q))
	defer x.timer.Stop()
	res := x.run(ctx, q, timeout)
	return res.reply, order[res.of], res.err
}

// downTimeout is for how long a name is asked for when all upstreams have been
// down for longer than names are asked for else: who waits takes a place.
const downTimeout = time.Second

// racing is one question on its way to several upstreams. Another one is asked at
// once when one fails. When one takes longer than it usually does, another is
// asked as well: each of them once so, and earlyAttempts at least, as far as the
// budget goes. What comes behind that follows a clock that doubles up to a second:
// nobody is flooded who is slow for a reason, and some attempts are left for when
// it is over. When one answers with a failure, the others are not waited for to
// the end: see settle.
type race struct {
	forwarder *Forwarder
	order     []*upstream
	heard     []heard // of each of them
	results   chan result
	timer     *time.Timer
	enough    <-chan time.Time // when a failure will do; nil: never

	attempts, open int
	last           int       // the upstream that was asked last
	began          time.Time // that attempt
	late           bool      // and it is
}

// heard is what came of an upstream.
type heard struct {
	open   int  // attempts
	failed bool // a reply that is a failure
}

// earlyAttempts are those that do not wait for the clock.
const earlyAttempts = 3

// firstWait is after how long a second attempt is made whatever the budget says;
// each one after it takes twice as long, up to maxPatience.
const firstWait = 200 * time.Millisecond

// downPatience is how long an upstream that is down may take when all others have
// failed: it may be up again.
const downPatience = 50 * time.Millisecond

// losses is how often the patience with an upstream is waited for when all others
// have failed: what was lost may be asked again meanwhile.
const losses = 3

// next is the upstream to ask: the next one in the order that has not failed.
func (x *race) next() int {
	at := x.attempts % len(x.order)
	for range x.order {
		if !x.heard[at].failed {
			break
		}
		at = (at + 1) % len(x.order)
	}
	return at
}

// wait is how long after the last attempt another one is made at the latest.
func (x *race) wait() time.Duration { return min(firstWait<<(x.attempts-1), maxPatience) }

// begin makes another attempt, and tells when to look after it.
func (x *race) begin(ctx context.Context, q cache.Key) time.Duration {
	at := x.next()
	u := x.order[at]
	x.attempts++
	x.open++
	x.heard[at].open++
	x.last, x.began, x.late = at, time.Now(), false
	go func() {
		reply, err := u.ask(ctx, q)
		x.results <- result{at, reply, err}
	}()
	return min(u.patience()<<(x.attempts-1), x.wait())
}

func (x *race) run(ctx context.Context, q cache.Key, timeout time.Duration) result {
	var best result
	for {
		select {
		case res := <-x.results:
			x.open--
			x.heard[res.of].open--
			switch {
			case res.good():
				return res
			case res.err != nil && ctx.Err() != nil:
				continue // to its end
			}
			best = better(best, res)
			x.heard[res.of].failed = x.heard[res.of].failed || res.reply != nil
			if x.attempts < len(x.order) && x.attempts < maxAttempts {
				x.timer.Reset(x.begin(ctx, q))
			} else if x.open == 0 {
				return best
			}
			if best.reply != nil {
				x.settle()
			}
		case <-x.timer.C:
			x.tick(ctx, q)
		case <-x.enough:
			x.noteLate()
			return best
		case <-ctx.Done():
			if best.reply != nil {
				return best
			}
			return result{err: &silenceError{x.order, timeout}}
		}
	}
}

// settle says, once all upstreams were asked and one has answered with a failure,
// until when those are waited for of which nothing came: hardly where one is
// down, else for about as long as it usually takes.
func (x *race) settle() {
	if x.attempts < min(len(x.order), maxAttempts) {
		return
	}
	again, wait := maxPatience, downPatience
	for i, u := range x.order {
		if h := x.heard[i]; h.open > 0 && !h.failed && !u.down.Load() {
			again, wait = min(again, u.patience()), max(wait, losses*u.patience())
		}
	}
	x.timer.Reset(again)
	x.enough = time.After(wait)
}

// noteLate notes once that the last attempt is late, if nothing came of it.
func (x *race) noteLate() {
	if !x.late && x.heard[x.last].open > 0 {
		x.order[x.last].late(errLate)
	}
	x.late = true
}

// tick makes another attempt, if it is time for that.
func (x *race) tick(ctx context.Context, q cache.Key) {
	x.noteLate()
	left := x.wait() - time.Since(x.began)
	switch {
	case x.attempts >= maxAttempts:
	case left <= 0, x.attempts < max(earlyAttempts, len(x.order)) && x.forwarder.budget.spend():
		x.timer.Reset(x.begin(ctx, q))
	default:
		x.timer.Reset(left)
	}
}
