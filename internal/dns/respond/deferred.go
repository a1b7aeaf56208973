package respond

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/forward"
)

// Deferred is an answer that takes time: one that depends on upstream replies, or
// a zone transfer. Call Answers or, when one message is enough, Answer; one of
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
}

// maxUpstreamQueries bounds the upstream queries that one client query causes:
// one for each alias of an answer, or each path of a search, for both address
// families, and then for the aliases there.
const maxUpstreamQueries = 128

// upstreamQuery is a question to upstreams.
type upstreamQuery struct {
	key     cache.Key
	request *forward.Request // nil when too many queries were in flight
}

// wait returns the reply.
func (q *upstreamQuery) wait(ctx context.Context, now func() time.Time) upstreamReply {
	if q.request == nil {
		return upstreamReply{q.key, errNotReserved, now()}
	}
	e, at := q.request.Resolve(ctx)
	return upstreamReply{q.key, e, at}
}

// deferQuery reserves the upstream queries that a pending query needs. If it
// can't, deferred is nil and final is the verdict.
func (w *Worker) deferQuery(x *exchange, v verdict) (deferred *Deferred, final verdict) {
	reserved, v := w.reserve(x, v, nil)
	if reserved == nil {
		return nil, v
	}
	return &Deferred{
		responder: w.Responder,
		packet:    slices.Clone(x.packet),
		client:    x.client,
		start:     x.start,
		counts:    w.counts,
		replies:   slices.Clone(w.replies),
		reserved:  reserved,
	}, v
}

// reserve reserves the upstream queries that a pending query needs, except those
// made before. If it can't reserve the first of all, v is no longer pending.
func (w *Worker) reserve(x *exchange, v verdict, before []upstreamQuery) ([]upstreamQuery, verdict) {
	var reserved []upstreamQuery
	for _, key := range w.missing {
		if slices.ContainsFunc(before, func(q upstreamQuery) bool { return isSame(q.key, key) }) {
			continue
		}
		request, err := w.cfg.Upstreams.Reserve(x.client.Addr, key)
		if err != nil && len(reserved)+len(before) == 0 {
			v.outcome, v.ede = failed, &tooMany
			if errors.Is(err, forward.ErrClientBusy) {
				v.outcome, v.ede = refused, &tooManyOfClient
			}
			return nil, v
		}
		reserved = append(reserved, upstreamQuery{key, request})
	}
	return reserved, v
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
	ended := make(chan struct{})
	defer close(ended)
	replies := make(chan upstreamReply)
	for waiting := 0; ; {
		waiting += len(d.reserved)
		if waiting == 1 && len(d.reserved) == 1 {
			d.replies = append(d.replies, d.reserved[0].wait(ctx, d.responder.cfg.Now))
		} else {
			for _, q := range d.reserved {
				go func() {
					reply := q.wait(ctx, d.responder.cfg.Now)
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
	if v.outcome == pending && len(d.queries) < maxUpstreamQueries {
		d.reserved, v = w.reserve(&x, v, d.queries)
		if v.outcome == pending && len(d.reserved)+waiting > 0 {
			return nil, false
		}
	}
	if v.outcome == pending {
		v.outcome, v.ede = failed, &endless
	}
	if v.outcome != dropped {
		answer = slices.Clone(w.finish(&x, &v))
	}
	x.start = d.start
	w.record(&x, &v, answer)
	return answer, true
}
