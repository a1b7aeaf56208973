package respond

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/zone"
)

// Deferred is an answer that takes time: one that depends on upstream replies, one
// that the Gate holds back, or a zone transfer. Call Answers or, when one message is enough, Answer; one of
// them, once.
type Deferred struct {
	responder *Responder
	packet    []byte
	client    Client
	start     time.Time // of the query
	counts    *shard
	replies   []upstreamReply
	reserved  []upstreamQuery // nothing waits for them yet
	queries   []upstreamQuery // all others, so far
	messages  Messages        // of a transfer; nil for other answers
	// held is a finished answer, nil without one, and wait waits until it may be sent.
	held []byte
	wait func(context.Context)
}

// maxUpstreamQueries bounds the upstream queries that one client query causes: one for
// each alias of an answer, or each path of a search, for both address families, and then
// for the aliases there. It also bounds what an attacker gains by one query.
const maxUpstreamQueries = 12

var tooManyQueries = zone.EDE{
	Code: dnswire.EDEOther,
	Text: fmt.Sprintf("the answer needs more than %d queries to upstream servers", maxUpstreamQueries),
}

// upstreamQuery is a question to upstreams.
type upstreamQuery struct {
	key     cache.Key
	request *forward.Request
}

// wait returns the reply.
func (q *upstreamQuery) wait(ctx context.Context) upstreamReply {
	e, at := q.request.Resolve(ctx)
	return upstreamReply{q.key, e, at}
}

// deferQuery reserves the upstream queries that a pending query needs.
func (w *Worker) deferQuery(x *exchange) *Deferred {
	return &Deferred{
		responder: w.Responder,
		packet:    slices.Clone(x.packet),
		client:    x.client,
		start:     x.start,
		counts:    w.counts,
		replies:   slices.Clone(w.replies),
		reserved:  w.reserve(x, nil),
	}
}

// reserve reserves the upstream queries that a pending query needs, except those made
// before, up to maxUpstreamQueries in all.
func (w *Worker) reserve(x *exchange, before []upstreamQuery) (reserved []upstreamQuery) {
	for _, key := range w.missing {
		switch {
		case len(before)+len(reserved) == maxUpstreamQueries:
			return reserved
		case !slices.ContainsFunc(before, func(q upstreamQuery) bool { return isSame(q.key, key) }):
			reserved = append(reserved, upstreamQuery{key, w.cfg.Upstreams.Reserve(x.client.Addr, key)})
		}
	}
	return reserved
}

// Answers returns the messages of the answer in order. A message is valid until
// the next one.
func (d *Deferred) Answers(ctx context.Context) iter.Seq[[]byte] {
	if d.messages != nil {
		return d.messages(ctx)
	}
	return func(yield func([]byte) bool) {
		if answer := d.Answer(ctx); answer != nil {
			yield(answer)
		}
	}
}

// Answer waits for upstream replies and returns the response; nil when there is
// none. Each reply leads to a replay of the query, which may need more replies;
// those that it does not need any more are not waited for.
func (d *Deferred) Answer(ctx context.Context) []byte {
	if d.held == nil {
		d.held = d.resolve(ctx)
	}
	if d.wait != nil {
		d.wait(ctx)
	}
	return d.held
}

// resolve waits for upstream replies and makes the response.
func (d *Deferred) resolve(ctx context.Context) []byte {
	ended := make(chan struct{})
	defer close(ended)
	replies := make(chan upstreamReply)
	for waiting := 0; ; {
		waiting += len(d.reserved)
		if waiting == 1 && len(d.reserved) == 1 {
			d.replies = append(d.replies, d.reserved[0].wait(ctx))
		} else {
			for _, q := range d.reserved {
				go func() {
					reply := q.wait(ctx)
					select {
					case replies <- reply:
					case <-ended:
					}
				}()
			}
			d.replies = append(d.replies, <-replies)
		}
		waiting--
		d.queries = append(d.queries, d.reserved...)
		if answer, done := d.replay(waiting); done {
			return answer
		}
	}
}

// replayWorker is a Worker with a buffer for its answers.
type replayWorker struct {
	*Worker
	buf [dnswire.MaxMessage]byte
}

// replay answers the whole query anew with the upstream replies so far, while so
// many are waited for. If it needs more, it reserves them, and done is false.
func (d *Deferred) replay(waiting int) (answer []byte, done bool) {
	w := d.responder.replays.Get().(*replayWorker)
	defer d.responder.replays.Put(w)
	w.replies, w.counts = d.replies, d.counts
	defer func() { w.replies = nil }()
	x := exchange{client: d.client, packet: d.packet, query: &w.query, start: w.cfg.Now(), replay: true}
	v := w.process(&x, w.buf[:0])
	if v.outcome == pending {
		d.reserved = w.reserve(&x, d.queries)
		if len(d.reserved)+waiting > 0 {
			return nil, false
		}
	}
	if v.outcome == pending {
		v.outcome, v.ede = failed, &tooManyQueries
	}
	if v.outcome != dropped {
		answer = slices.Clone(w.finish(&x, &v))
		d.wait = w.hold(&x, &v, answer)
	}
	x.start = d.start
	w.record(&x, &v, answer)
	return answer, true
}
