package forward

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// maxAttempts is how often a question is sent at most.
const maxAttempts = 8

// resolve queries the upstreams for q, stores the reply in the cache and
// returns the cache entry with its time; nil if ctx is done.
func (f *Forwarder) resolve(ctx context.Context, q cache.Key) (*cache.Entry, time.Time) {
	r := f.routeOf(q)
	if r == nil {
		return f.fail(q,
			&cache.Failure{Code: dnswire.EDENotAuthoritative, Text: "no upstream server is configured for this name"})
	}
	if r.receivesProbe(q.Name) || r.allLoop() {
		return f.fail(q, &cache.Failure{
			Code: dnswire.EDENoReachable,
			Text: fmt.Sprintf("route %s: forwarding loop: an upstream server forwards queries back to this server", r),
		})
	}
	f.hedges.earn()
	reply, from, err := f.query(ctx, r, q)
	switch {
	case ctx.Err() != nil: // nobody waits
		return nil, time.Time{}
	case err != nil:
		return f.fail(q, failureOf(r, err))
	}
	if reply.RCode != dnswire.NoError && reply.RCode != dnswire.NXDomain {
		return f.fail(q, refusal(r, from, reply))
	}
	if r.NoPrivate && hasPrivateAddress(reply) {
		return f.fail(q, &cache.Failure{
			Code:     dnswire.EDEBlocked,
			Text:     fmt.Sprintf("route %s: the answer has a private address, which is not allowed for names of this route", r),
			OfSubnet: isOfSubnet(reply),
		})
	}
	if f.exceeds(r, reply) {
		reply.DropAdditional()
	}
	terms := cache.Terms{Below: reply.Flags&dnswire.FlagAD != 0 || r.TrustDenials, Guarded: r.NoPrivate}
	now := time.Now()
	return f.cfg.Cache.Put(q, reply, terms, now), now
}

// exceeds reports whether a reply has additional records that are not for the upstreams of
// the route to give: of names of other routes, or in the zones served here.
func (f *Forwarder) exceeds(r *route, reply *dnswire.Reply) bool {
	var owner [dnsname.MaxWire]byte
	for rec := range reply.Records {
		if rec.Section != dnswire.Additional {
			continue
		}
		name := rec.AppendOwner(owner[:0])
		if f.route(name) != r || slices.ContainsFunc(f.cfg.Zones, func(z dnsname.Name) bool { return z.Contains(name) }) {
			return true
		}
	}
	return false
}

// fail stores a failure in the cache and returns the entry: a stale answer if
// there is one, otherwise the failure.
func (f *Forwarder) fail(q cache.Key, why *cache.Failure) (*cache.Entry, time.Time) {
	now := time.Now()
	e := f.cfg.Cache.Fail(q, why, now)
	if e.Stale(now) {
		f.counts.staleHits.Add(1)
	}
	return e, now
}

// refusal describes a reply with an error code, and which upstream sent it.
func refusal(r *route, from *upstream, reply *dnswire.Reply) *cache.Failure {
	why := &cache.Failure{
		Code:     dnswire.EDEOther,
		Text:     fmt.Sprintf("route %s: an upstream server answers %s", r, reply.RCode),
		OfSubnet: isOfSubnet(reply),
	}
	if reply.EDE != nil {
		why.Code = reply.EDE.Code
		why.Text = fmt.Sprintf("route %s: %s says: %s", r, from, cmp.Or(reply.EDE.Text, reply.RCode.String()))
	}
	return why
}

// isOfSubnet reports whether a reply is valid for the clients of one subnet
// only.
func isOfSubnet(reply *dnswire.Reply) bool { return reply.Subnet != nil && reply.Subnet.Scope() > 0 }

// failureOf describes why no upstream replied.
func failureOf(r *route, err error) *cache.Failure {
	code := dnswire.EDENoReachable
	if isNetworkError(err) {
		code = dnswire.EDENetworkError
	}
	return &cache.Failure{Code: code, Text: fmt.Sprintf("route %s: %s", r, err)}
}

// result is the result of one attempt.
type result struct {
	of    int // the upstream's index in the order
	reply *dnswire.Reply
	err   error
}

// good reports whether the result answers the question.
func (r result) good() bool {
	return r.err == nil && (r.reply.RCode == dnswire.NoError || r.reply.RCode == dnswire.NXDomain)
}

// better returns the more informative result: any reply rather than none.
func better(a, b result) result {
	if a.reply == nil && (a.err == nil || b.reply != nil || b.err != nil) {
		return b
	}
	return a
}

// query queries the upstreams of r until one answers, and returns the reply and
// the upstream that sent it.
func (f *Forwarder) query(ctx context.Context, r *route, q cache.Key) (*dnswire.Reply, *upstream, error) {
	order := r.order()
	if len(order) == 0 {
		return nil, nil, errNoUpstream
	}
	timeout := r.Timeout
	if r.downFor(time.Now()) >= r.Timeout {
		timeout = min(timeout, downTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	x := &race{forwarder: f, order: order, heard: make([]heard, len(order)), results: make(chan result, maxAttempts)}
	x.timer = time.NewTimer(x.begin(ctx, q))
	defer x.timer.Stop()
	res := x.run(ctx, q, timeout)
	return res.reply, order[res.of], res.err
}

// downTimeout replaces the route's timeout while all its upstreams have been
// down for longer than that timeout, because each waiting query takes up
// capacity.
const downTimeout = time.Second

// race is one question on its way to several upstreams.
//
//	order:   upstream 0        upstream 1        upstream 2     upstream 0 ...
//	         |- patience ----->|- failure ------>|- clock ----->|
//
// The next upstream is queried at once when one fails. It is also queried when
// the last one takes longer than usual (its patience): for each upstream once,
// and at least earlyAttempts times, as far as the budget allows. Further
// attempts follow a clock that doubles up to a second, so that a slow upstream
// is not flooded and some attempts are left for when it recovers. Once all were
// queried and one has replied with a failure, the others get only a short time:
// see settle.
type race struct {
	forwarder *Forwarder
	order     []*upstream
	heard     []heard // by index in order
	results   chan result
	timer     *time.Timer
	enough    <-chan time.Time // when a failure is accepted as the answer; nil if not yet

	attempts, open int
	last           int       // the upstream queried last
	began          time.Time // the start of that attempt
	late           bool      // that attempt counted as late
}

// heard is the state of one upstream in a race.
type heard struct {
	open   *attempt // nil if there is none
	failed bool     // it replied with a failure
}

// earlyAttempts is how many attempts may be made before the clock allows them.
const earlyAttempts = 3

// firstWait is the time after which a second attempt is made regardless of the
// budget. It doubles with each attempt, up to maxPatience.
const firstWait = 200 * time.Millisecond

// downPatience is how long a race waits for upstreams that are down after all
// others have failed: they may be up again.
const downPatience = 50 * time.Millisecond

// settlePatience is how many times the patience with an upstream a race waits
// after all others have failed, so that lost packets can be retransmitted.
const settlePatience = 3

// next returns the index of the upstream to query: the next one in order that
// has not failed.
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

// wait returns the longest time between the last attempt and the next.
func (x *race) wait() time.Duration { return min(firstWait<<(x.attempts-1), maxPatience) }

// begin queries another upstream, or one that still has no result once more, and returns
// the time until tick.
func (x *race) begin(ctx context.Context, q cache.Key) time.Duration {
	at := x.next()
	u := x.order[at]
	x.attempts++
	x.last, x.began, x.late = at, time.Now(), false
	if open := x.heard[at].open; open != nil {
		open.repeat()
	} else {
		made := newAttempt(u)
		x.open++
		x.heard[at].open = made
		go func() {
			reply, err := made.query(ctx, q)
			x.results <- result{at, reply, err}
		}()
	}
	return min(u.patience()<<(x.attempts-1), x.wait())
}

func (x *race) run(ctx context.Context, q cache.Key, timeout time.Duration) result {
	var best result
	for {
		select {
		case res := <-x.results:
			x.open--
			x.heard[res.of].open = nil
			switch {
			case res.good():
				return res
			case res.err != nil && ctx.Err() != nil:
				continue // wait until ctx is done
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

// settle ends the race soon, once all upstreams were queried and one has
// replied with a failure. It waits for upstreams without result: for about
// their usual time, or hardly at all if they are down.
func (x *race) settle() {
	if x.attempts < min(len(x.order), maxAttempts) {
		return
	}
	again, wait := maxPatience, downPatience
	for i, u := range x.order {
		if h := x.heard[i]; h.open != nil && !h.failed && !u.down.Load() {
			again, wait = min(again, u.patience()), max(wait, settlePatience*u.patience())
		}
	}
	x.timer.Reset(again)
	x.enough = time.After(wait)
}

// noteLate counts the last attempt as late, once, if it has no result.
func (x *race) noteLate() {
	if !x.late && x.heard[x.last].open != nil {
		x.order[x.last].late(errLate)
	}
	x.late = true
}

// tick starts another attempt if it is due.
func (x *race) tick(ctx context.Context, q cache.Key) {
	x.noteLate()
	left := x.wait() - time.Since(x.began)
	switch {
	case x.attempts >= maxAttempts:
	case left <= 0, x.attempts < max(earlyAttempts, len(x.order)) && x.forwarder.hedges.spend():
		x.timer.Reset(x.begin(ctx, q))
	default:
		x.timer.Reset(left)
	}
}
