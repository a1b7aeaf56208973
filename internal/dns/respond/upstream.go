package respond

import (
	"context"
	"errors"
	"slices"
	"time"

	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/zone"
)

var (
	tooMany       = zone.EDE{Code: dnswire.EDEOther, Text: "too many queries are waiting for upstream servers"}
	tooManyYours  = zone.EDE{Code: dnswire.EDEProhibited, Text: "too many queries of this client are waiting for upstream servers"}
	intoCluster   = zone.EDE{Code: dnswire.EDEBlocked, Text: "the name is an alias of one in the cluster, which names from there may not be"}
	staleAnswer   = zone.EDE{Code: dnswire.EDEStale, Text: "no upstream server answers; this is what one answered before"}
	badSubnet     = zone.EDE{Code: dnswire.EDEOther, Text: "the client subnet option is malformed"}
	staleNXDomain = zone.EDE{Code: dnswire.EDEStaleNXDomain, Text: staleAnswer.Text}
)

// isUpstreams tells whether others may know more than a: the name is in none of our
// zones, or it is a reverse name that nobody said is ours, or ours are not loaded
// and others have them.
func (w *Worker) isUpstreams(a *zone.Answer) bool {
	if w.cfg.Upstreams == nil || w.query.Flags&dnswire.FlagRD == 0 {
		return false
	}
	switch a.Outcome {
	case zone.OutOfZone:
		return true
	case zone.NXDomain:
		return isOpen(a.SOA)
	case zone.Unanswered:
		return w.cfg.ForwardWhileLoading
	default:
		return false
	}
}

// isOpen tells whether a zone has all reverse names that nobody said are ours.
func isOpen(z *dnswire.SOA) bool {
	return z.Zone == dnsname.ReverseIPv4 || z.Zone == dnsname.ReverseIPv6
}

// upstreamAnswer is what upstreams answered to a question, and when.
type upstreamAnswer struct {
	cache.Key
	entry *cache.Entry
	at    time.Time
}

// isSame tells whether two questions of one query are the same.
func isSame(q, o cache.Key) bool {
	return q.Type == o.Type && string(q.Name) == string(o.Name) && string(q.Search) == string(o.Search)
}

// question is what others are asked for a name of ours. Where the client says in
// no way that it may where it is, the exchange is concluded.
func (w *Worker) question(x *exchange, name []byte, t dnswire.Type) (q cache.Key, ok bool) {
	q = cache.Key{Name: name, Type: t, DO: w.wantsSigned(), CD: w.query.Flags&dnswire.FlagCD != 0}
	if x.relayed && string(name) == string(w.searcher.of.Name()) {
		q.Search = w.searcher.option
		return q, true
	}
	if subnet := w.query.EDNS.Subnet; subnet != nil && w.cfg.Upstreams.ForwardsSubnet(name) {
		if !subnet.IsValidInQuery() {
			w.response.DropRecords() // of the aliases that led here
			x.outcome, x.why, x.ours = malformed, &badSubnet, false
			return q, false
		}
		q.Subnet = subnet
	}
	return q, true
}

// known is what others are known to answer to q, and when they did; nil when they
// must be asked first. routed tells whether there is anybody to ask.
func (w *Worker) known(x *exchange, q cache.Key) (e *cache.Entry, at time.Time, routed bool) {
	for _, g := range w.upstreamAnswers {
		if isSame(g.Key, q) {
			return g.entry, g.at, true
		}
	}
	e, routed = w.cfg.Upstreams.Cached(q, x.now)
	return e, x.now, routed
}

// askFor notes that others must be asked q.
func (w *Worker) askFor(x *exchange, q cache.Key) {
	x.outcome = pending
	if !slices.ContainsFunc(w.upstreamQuestions, func(o cache.Key) bool { return isSame(q, o) }) {
		w.upstreamQuestions = append(w.upstreamQuestions, q.Clone())
	}
}

// solveUpstream answers with what others know of name; own is what our data
// says of it. It gives the name at which to go on, or nil when the exchange is
// concluded, or others must be asked.
func (w *Worker) solveUpstream(x *exchange, step int, name []byte, own *zone.Answer) (next []byte) {
	q, ok := w.question(x, name, w.query.Type)
	if !ok {
		return nil
	}
	entry, at, routed := w.known(x, q)
	switch {
	case !routed:
		w.conclude(x, step, own)
		return nil
	case entry == nil:
		w.askFor(x, q)
		return nil
	}
	return w.relayReply(x, step, name, entry, at)
}

// relayReply answers with what an entry for name says.
func (w *Worker) relayReply(x *exchange, step int, name []byte, e *cache.Entry, at time.Time) (next []byte) {
	reply, as, old := e.Answer(at)
	if reply == nil {
		x.outcome, x.ours = failed, false
		if e.Failure != nil {
			x.why = &zone.EDE{Code: e.Failure.Code, Text: e.Failure.Text}
		}
		return nil
	}
	if !w.notesScope(x, reply) {
		x.outcome, x.truncated = answered, true
		return nil
	}
	switch {
	case old && reply.RCode == dnswire.NXDomain:
		x.stale = &staleNXDomain
	case old:
		x.stale = &staleAnswer
	}
	x.noteError(reply)
	x.validated = reply.Flags&dnswire.FlagAD != 0 && !old && !x.renamed && (step == 0 || x.validated)
	if step == 0 && !x.renamed && len(reply.Question()) == len(w.query.Question) && (!reply.HasCNAME || w.endsOutside(reply)) {
		x.outcome, x.ours = outcomeOf(reply), false
		x.truncated = w.isCut(reply, w.response.AddReply(reply, as))
		return nil
	}
	return w.follow(x, name, e, reply, as)
}

// notesScope notes for which clients a reply is, and keeps room to say so; where
// there is none left, it gives false. An answer of several replies is for those
// that all of them are for.
func (w *Worker) notesScope(x *exchange, reply *dnswire.Reply) bool {
	if reply.Subnet == nil || w.query.EDNS.Subnet == nil {
		return true
	}
	if !x.scoped {
		n := dnswire.OptionLen(len(w.query.EDNS.Subnet))
		if !w.response.Fits(n) {
			return false
		}
		w.response.Reserve(n)
		x.scoped = true
	}
	x.scope = max(x.scope, reply.Subnet.Scope())
	return true
}

// noteError notes what who answered says of the answer: a server of the cluster
// says why there is none, and that it is of earlier data.
func (x *exchange) noteError(reply *dnswire.Reply) {
	e := reply.EDE
	switch {
	case e == nil:
	case e.Code == dnswire.EDEStale, e.Code == dnswire.EDEStaleNXDomain:
		x.stale = &zone.EDE{Code: e.Code, Text: e.Text}
	default:
		x.why = &zone.EDE{Code: e.Code, Text: e.Text}
	}
}

// wantsSigned tells whether the client checks signatures (RFC 3225).
func (w *Worker) wantsSigned() bool { return w.query.EDNS.Flags&dnswire.FlagDO != 0 }

// isCut tells whether a client must ask over TCP for a reply of which the
// sections up to last are there: without its authority section a denial can't be
// kept, and what is signed not be checked.
func (w *Worker) isCut(reply *dnswire.Reply, last dnswire.Section) bool {
	switch {
	case last < dnswire.Answer, reply.Flags&dnswire.FlagTC != 0:
		return true
	case last >= dnswire.Authority || reply.Count(dnswire.Authority) == 0:
		return false
	}
	return reply.Count(dnswire.Answer) == 0 || w.wantsSigned()
}

func outcomeOf(reply *dnswire.Reply) outcome {
	if reply.RCode == dnswire.NXDomain {
		return denied
	}
	return answered
}

// endsOutside tells whether the aliases of a reply lead to its end and never into
// our zones: it can be passed on as it is.
func (w *Worker) endsOutside(reply *dnswire.Reply) bool {
	whole := reply.RCode == dnswire.NXDomain || w.query.Type == dnswire.TypeCNAME || w.query.Type == dnswire.TypeANY
	target := w.names[maxAliases][:0] // of no alias that is followed yet
	for rec := range reply.Records {
		switch t := rec.Type(); {
		case rec.Section == dnswire.Authority && t == dnswire.TypeSOA:
			whole = true
		case rec.Section != dnswire.Answer:
		case t == w.query.Type:
			whole = true
		case t == dnswire.TypeCNAME:
			a := w.cfg.Data.Lookup(&w.scratch, rec.AppendTarget(target), w.query.Type)
			if !w.isUpstreams(&a) {
				return false
			}
		}
	}
	return whole
}

// follow writes the records of a reply from name on, along its aliases. It gives
// the name at which they leave the reply, or enter our zones; nil when they end
// here.
func (w *Worker) follow(x *exchange, name []byte, e *cache.Entry, reply *dnswire.Reply, as dnswire.Aging) (next []byte) {
	x.ours = x.zone != nil && !isOpen(x.zone)
	for first := name; ; {
		target, whole := w.addOwned(reply, w.names[x.aliases][:0], name, as)
		switch {
		case !whole:
			x.outcome, x.truncated = answered, true
			return nil
		case target == nil && string(name) != string(first) && reply.RCode == dnswire.NoError && !ends(reply, name, w.query.Type):
			return name // whose records the upstream did not look for
		case target == nil:
			x.outcome = outcomeOf(reply)
			if x.relayed && w.searcher.named && string(name) == string(first) {
				x.truncated = !w.denyRelayed(reply, as)
				return nil
			}
			x.truncated = !w.addDenial(reply, as) || reply.Flags&dnswire.FlagTC != 0
			return nil
		case x.aliases == maxAliases:
			x.outcome, x.why, x.ours = failed, &noEnd, false
			return nil
		}
		name = target
		x.aliases++
		a := w.cfg.Data.Lookup(&w.scratch, name, w.query.Type)
		switch {
		case w.isUpstreams(&a):
		case e.Guarded:
			x.outcome, x.why, x.ours = failed, &intoCluster, false
			return nil
		default:
			return name
		}
	}
}

// addOwned writes the records of the answer section that name owns and that were
// asked for. An alias is one, and its target is given, in room.
func (w *Worker) addOwned(reply *dnswire.Reply, room, name []byte, as dnswire.Aging) (target []byte, whole bool) {
	var owner [dnsname.MaxWire]byte
	next := 0
	for rec := range reply.Records {
		if rec.Section != dnswire.Answer || string(rec.AppendOwner(owner[:0])) != string(name) {
			continue
		}
		t := rec.Type()
		if t == dnswire.TypeRRSIG && w.wantsSigned() {
			t = rec.Covers()
		}
		if t != w.query.Type && w.query.Type != dnswire.TypeANY && t != dnswire.TypeCNAME {
			continue
		}
		at, whole := w.response.AddRelayedAtOwner(rec, as)
		if !whole {
			return nil, false
		}
		if rec.Type() == dnswire.TypeCNAME && w.query.Type != dnswire.TypeCNAME {
			target, next = rec.AppendTarget(room), at
		}
	}
	return target, target == nil || w.response.SetOwner(next)
}

// ends tells whether a reply has the records of type t of name, or denies them.
func ends(reply *dnswire.Reply, name []byte, t dnswire.Type) bool {
	var owner [dnsname.MaxWire]byte
	for rec := range reply.Records {
		switch {
		case rec.Section == dnswire.Authority && rec.Type() == dnswire.TypeSOA:
			return true
		case rec.Section == dnswire.Answer && rec.Type() == t && string(rec.AppendOwner(owner[:0])) == string(name):
			return true
		}
	}
	return false
}

// addDenial writes what denies, in a reply that does: the SOA record and, for
// those who check, the rest of the authority section.
func (w *Worker) addDenial(reply *dnswire.Reply, as dnswire.Aging) (whole bool) {
	for rec := range reply.Records {
		if rec.Section != dnswire.Authority || rec.Type() != dnswire.TypeSOA && !w.wantsSigned() {
			continue
		}
		if !w.response.AddRelayed(dnswire.Authority, rec, as) {
			return false
		}
	}
	return true
}

// Deferred is a query whose answer others must be asked for first. Answer must be
// called, and once.
type Deferred struct {
	responder *Responder
	packet    []byte
	client    Client
	began     time.Time
	counts    *shard
	got       []upstreamAnswer
	asks      []upstreamQuestion // and wait for: none was waited for yet
	asked     []upstreamQuestion // all, so far
	messages  Messages           // of a transfer; nil for other answers
}

// maxAsked is how many questions one query may have others asked: each alias of an
// answer, or each path of a search, for both families, and then the aliases there.
const maxUpstreamQuestions = 128

// upstreamQuestion is a question that upstreams are asked.
type upstreamQuestion struct {
	cache.Key
	request *forward.Request // nil where there is no place to ask
}

// noPlace is what is known of a question that nobody could be asked.
var noPlace = &cache.Entry{Failure: &cache.Failure{Code: tooMany.Code, Text: tooMany.Text}}

// wait asks, and gives the answer.
func (a *upstreamQuestion) wait(ctx context.Context) upstreamAnswer {
	if a.request == nil {
		return upstreamAnswer{a.Key, noPlace, time.Now()}
	}
	e, at := a.request.Resolve(ctx)
	return upstreamAnswer{a.Key, e, at}
}

// deferredWorker is a Worker and where its answers go.
type deferredWorker struct {
	*Worker
	buf [dnswire.MaxMessage]byte
}

// ask begins to ask others for what x needs; where that can't be, it sets the
// outcome and gives nil.
func (w *Worker) ask(x *exchange, packet []byte) *Deferred {
	asks := w.begin(x, nil)
	if asks == nil {
		return nil
	}
	return &Deferred{
		responder: w.Responder,
		packet:    slices.Clone(packet),
		client:    x.client,
		began:     x.now,
		counts:    w.counts,
		got:       slices.Clone(w.upstreamAnswers),
		asks:      asks,
	}
}

// begin takes places for the questions that x needs answered, but for those that
// were asked before. Where there is none for the first of all, it sets the outcome
// and gives nil.
func (w *Worker) begin(x *exchange, before []upstreamQuestion) (asks []upstreamQuestion) {
	for _, q := range w.upstreamQuestions {
		if slices.ContainsFunc(before, func(a upstreamQuestion) bool { return isSame(a.Key, q) }) {
			continue
		}
		request, err := w.cfg.Upstreams.Reserve(x.client.Addr, q)
		if err != nil && len(asks)+len(before) == 0 {
			w.refuse(x, err)
			return nil
		}
		asks = append(asks, upstreamQuestion{q, request})
	}
	return asks
}

// refuse ends an exchange for which others can't be asked.
func (w *Worker) refuse(x *exchange, err error) {
	x.outcome, x.why, x.ours = failed, &tooMany, false
	if errors.Is(err, forward.ErrClientBusy) {
		x.outcome, x.why = refused, &tooManyYours
	}
}

// Answer asks others and gives the response, or nil when there shall be none. Each
// of their answers is a step: it leads to another attempt at the whole query, which
// may need others. What is not needed any more is not waited for.
func (l *Deferred) Answer(ctx context.Context) []byte {
	ended := make(chan struct{})
	defer close(ended)
	answers := make(chan upstreamAnswer)
	for waiting := 0; ; {
		waiting += len(l.asks)
		if waiting == 1 && len(l.asks) == 1 {
			l.got = append(l.got, l.asks[0].wait(ctx))
		} else {
			for _, a := range l.asks {
				go func() {
					g := a.wait(ctx)
					select {
					case answers <- g:
					case <-ended:
					}
				}()
			}
			l.got = append(l.got, <-answers)
		}
		waiting--
		l.asked = append(l.asked, l.asks...)
		answer, again := l.attempt(waiting)
		if !again {
			return answer
		}
	}
}

// attempt tries to answer with what is known now, while so many answers are waited
// for, and begins to ask for what is missing.
func (l *Deferred) attempt(waiting int) (answer []byte, again bool) {
	w := l.responder.workers.Get().(*deferredWorker)
	defer l.responder.workers.Put(w)
	w.upstreamAnswers, w.counts = l.got, l.counts
	defer func() { w.upstreamAnswers = nil }()
	x := exchange{client: l.client, now: time.Now(), again: true}
	answer = w.exchange(&x, l.packet, w.buf[:0])
	if x.outcome == pending {
		if len(l.asked) < maxUpstreamQuestions {
			if l.asks = w.begin(&x, l.asked); len(l.asks)+waiting > 0 {
				return nil, true
			}
		}
		if x.outcome == pending {
			x.outcome, x.why = failed, &noEnd
		}
		answer = w.finish(&x)
	}
	w.done(&x, l.packet, answer, l.began)
	return slices.Clone(answer), false
}
