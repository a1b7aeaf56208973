package respond

import (
	"context"
	"iter"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// Transfers sends zones to secondaries; *transfer.Sender does.
type Transfers interface {
	// Key returns the TSIG key of that name; nil when there is none.
	Key(name dnsname.Name) *dnswire.TSIGKey
	// Begin begins a transfer, or refuses it. If it does neither, the answer is
	// the zone's SOA alone.
	Begin(q *TransferQuery) (Messages, *Refusal)
}

// Messages returns the messages of an answer in order; each is valid until the
// next. It is called once.
type Messages func(ctx context.Context) iter.Seq[[]byte]

// TransferQuery asks for a zone.
type TransferQuery struct {
	Client Client
	Zone   dnsname.Name
	Type   dnswire.Type // AXFR or IXFR
	// Held is the version that the client has; nil when it requests the whole zone.
	Held   *dnswire.IXFRBase
	Detail zone.Detail
	// Key is the name of the key that signed the query, and Exchange signs the
	// answer; the root and nil for an unsigned query.
	Key      dnsname.Name
	Exchange *dnswire.TSIGExchange
	// Repeats is the part of the query that the answer repeats.
	Repeats dnswire.TransferQuery
}

// Refusal is the reason for which there is no transfer.
type Refusal struct {
	RCode dnswire.RCode
	Note  *zone.EDE
}

var (
	noTransfer   = zone.EDE{Code: dnswire.EDEProhibited, Text: "zone transfer is not allowed"}
	notSecondary = zone.EDE{Code: dnswire.EDEProhibited, Text: "the zones here come from no other server"}
)

// maxBegins is how often a transfer is begun anew because the zone changed just
// after it was found unchanged.
const maxBegins = 3

// beginTransfer begins a transfer, or answers with the zone's SOA or a refusal.
func (w *Worker) beginTransfer(x *exchange) verdict {
	q := x.query
	t := &TransferQuery{
		Client: x.client,
		Type:   q.Type,
		Repeats: dnswire.TransferQuery{
			ID:       q.ID,
			Flags:    q.Flags,
			Question: append([]byte{}, q.Question...),
			EDNS:     q.EDNS.Present,
		},
	}
	if x.signature != nil {
		t.Key, t.Exchange = x.signature.key, x.signature.exchange
	}
	t.Zone, _, _ = dnsname.FromWire(q.Question) // which validate parsed
	if q.EDNS.Metadata {
		t.Detail = zone.WithMetadata
	}
	if q.Type == dnswire.TypeIXFR {
		held, ok := dnswire.ReadIXFRBase(x.packet)
		if !ok {
			return verdict{outcome: malformed}
		}
		t.Held = &held
	}
	for range maxBegins {
		messages, refusal := w.cfg.Transfers.Begin(t)
		switch {
		case refusal != nil:
			return verdict{outcome: outcomeOfRefusal(refusal), ede: refusal.Note}
		case messages != nil:
			w.messages = messages
			return verdict{outcome: transferring}
		}
		if v, ok := w.answerUnchanged(x, t); ok {
			return v
		}
	}
	return verdict{}
}

// answerUnchanged answers with the zone's SOA alone. Over TCP that says that the
// client is up to date (RFC 1995, section 4); ok is false when the zone has
// changed since it was.
func (w *Worker) answerUnchanged(x *exchange, t *TransferQuery) (v verdict, ok bool) {
	a := w.cfg.Data.Lookup(&w.scratch, x.query.QName(), dnswire.TypeSOA)
	if a.SOA != nil && t.Held != nil && t.Held.Serial != a.SOA.Serial && t.Client.Transport != UDP {
		return verdict{}, false
	}
	return w.conclude(x, &chain{zone: a.SOA}, &a, 0), true
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
