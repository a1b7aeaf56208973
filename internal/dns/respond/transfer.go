package respond

import (
	"context"
	"iter"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// Transfers sends zones to other servers; *transfer.Sender does.
type Transfers interface {
	// Key gives the key of that name; nil when there is none.
	Key(name dnsname.Name) *dnswire.TSIGKey
	// Begin begins a transfer, or refuses it. Where it does neither, the answer is
	// the zone's SOA alone.
	Begin(q *TransferQuery) (Messages, *Refusal)
}

// Messages gives the messages of an answer, one behind another, while they are
// taken; each is good until the next. It is called once.
type Messages func(ctx context.Context) iter.Seq[[]byte]

// TransferQuery asks for a zone.
type TransferQuery struct {
	Client Client
	Zone   dnsname.Name
	Type   dnswire.Type // AXFR or IXFR
	// Held is what the client has of the zone; nil when it asks for all of it.
	Held   *dnswire.IXFRBase
	Detail zone.Detail
	// Key is the name of the key that signed the query, and Exchange signs the
	// answer; the root and nil when it was not signed.
	Key      dnsname.Name
	Exchange *dnswire.TSIGExchange
	// Repeats is what the answer repeats of the query.
	Repeats dnswire.TransferQuery
}

// Refusal says why there is no transfer.
type Refusal struct {
	RCode dnswire.RCode
	Note  *zone.EDE
}

var (
	noTransfer = zone.EDE{Code: dnswire.EDEProhibited, Text: "zone transfer is not allowed"}
	noPrimary  = zone.EDE{Code: dnswire.EDEProhibited, Text: "the zones here come from no other server"}
)

// transfer begins to answer a query for a zone.
func (w *Worker) transfer(x *exchange, packet []byte) {
	q := &w.query
	asked := &TransferQuery{
		Client: x.client, Type: q.Type, Key: x.signature.key, Exchange: x.signature.exchange,
		Repeats: dnswire.TransferQuery{ID: q.ID, Flags: q.Flags, Question: append([]byte{}, q.Question...), EDNS: q.EDNS.Present},
	}
	asked.Zone, _, _ = dnsname.FromWire(q.Question) // which was read
	if q.EDNS.Metadata {
		asked.Detail = zone.WithMetadata
	}
	if q.Type == dnswire.TypeIXFR {
		held, ok := dnswire.ReadIXFRBase(packet)
		if !ok {
			x.outcome = malformed
			return
		}
		asked.Held = &held
	}
	for range maxBegins {
		if w.beginTransfer(x, asked) {
			return
		}
	}
}

// maxBegins is how often a zone may change just as it was found that it did not.
const maxBegins = 3

// beginTransfer begins a transfer, or answers instead; it does neither, and fails, where
// the SOA alone would be the answer and is no more, since the zone has changed.
func (w *Worker) beginTransfer(x *exchange, asked *TransferQuery) (begun bool) {
	messages, refusal := w.cfg.Transfers.Begin(asked)
	switch {
	case refusal != nil:
		x.outcome, x.why = outcomeOfRefusal(refusal), refusal.Note
		return true
	case messages != nil:
		x.outcome, x.messages = transferring, messages
		return true
	}
	a := w.cfg.Data.Lookup(&w.scratch, w.query.QName(), dnswire.TypeSOA)
	// Over TCP it says that nothing is new (RFC 1995, section 4).
	if a.SOA != nil && asked.Held != nil && asked.Held.Serial != a.SOA.Serial && asked.Client.Transport != UDP {
		x.outcome = failed
		return false
	}
	x.zone = a.SOA
	w.conclude(x, 0, &a)
	return true
}

func outcomeOfRefusal(r *Refusal) outcome {
	switch r.RCode {
	case dnswire.Refused:
		return refused
	case dnswire.NotAuth:
		return notAuthoritative
	}
	return failed
}

// signature is what is known of a query's TSIG record, and what the answer's says.
type signature struct {
	key      dnsname.Name // the root when the query has no good one
	exchange *dnswire.TSIGExchange
	length   int // of the record in the answer, at most
	asked    *dnswire.TSIG
	err      dnswire.TSIGError
}

// checkSignature checks a query's signature, where it has one and there are keys,
// and tells whether the query can be answered (RFC 8945, section 5.2).
func (w *Worker) checkSignature(x *exchange, packet []byte) (valid bool) {
	if w.cfg.Transfers == nil && w.cfg.NotifyHandler == nil || !w.query.HasTSIG() {
		return true
	}
	asked, err := dnswire.ReadTSIG(packet)
	if err != nil || asked == nil {
		x.outcome = malformed
		return false
	}
	s := &x.signature
	s.asked = asked
	key := w.keyOf(asked.Key)
	if key == nil {
		x.outcome, s.err = notAuthoritative, dnswire.BadKey
		return false
	}
	s.length, s.exchange = key.Overhead(), key.NewExchange()
	switch err := s.exchange.Verify(packet, time.Now()).(type) {
	case nil:
		s.key = key.Name
		return true
	case dnswire.TSIGError:
		x.outcome, s.err = notAuthoritative, err
	default:
		x.outcome, s.exchange, s.asked, s.length = malformed, nil, nil, 0
	}
	return false
}

// keyOf is the key of that name; nil when there is none.
func (w *Worker) keyOf(name dnsname.Name) (key *dnswire.TSIGKey) {
	if w.cfg.NotifyHandler != nil {
		key = w.cfg.NotifyHandler.Key(name)
	}
	if key == nil && w.cfg.Transfers != nil {
		key = w.cfg.Transfers.Key(name)
	}
	return key
}

// sign signs the answer where the query was signed, or says why it is not
// (section 5.3).
func (x *exchange) sign(answer []byte) []byte {
	s := &x.signature
	switch {
	case s.asked == nil:
		return answer
	case s.err == dnswire.BadTime:
		return s.exchange.SignBadTime(answer, s.asked, time.Now())
	case s.err != 0:
		return dnswire.AppendTSIGError(answer, s.asked, s.err)
	}
	return s.exchange.Sign(answer, time.Now())
}

// Answers gives the messages of the answer, one behind another, while they are
// taken; it is called once, instead of Answer.
func (l *Deferred) Answers(ctx context.Context) iter.Seq[[]byte] {
	if l.messages != nil {
		return l.messages(ctx)
	}
	return func(yield func([]byte) bool) {
		if answer := l.Answer(ctx); answer != nil {
			yield(answer)
		}
	}
}
