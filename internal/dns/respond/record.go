package respond

import (
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
	"portolan.dev/portolan/internal/support/evidence"
)

// Observer receives queries and their answers; *querylog.Log is one. It must not
// block, nor keep what it receives.
type Observer interface{ Observe(*Observation) }

// Observation is a query and its answer.
type Observation struct {
	Client Client
	Query  []byte
	Answer []byte // nil without one, or when it is several messages
	// QName, in lower-case wire form without the root's closing zero octet, and
	// QType are those of the question; RCode is the answer's.
	QName []byte
	QType dnswire.Type
	RCode dnswire.RCode
	// EDE is the reason of the answer; nil without one.
	EDE     *zone.EDE
	Began   time.Time
	Elapsed time.Duration
}

// reason returns why the answer is negative or stale, nil if it is neither.
func (v *verdict) reason() *zone.EDE {
	if v.ede != nil {
		return v.ede
	}
	return v.stale
}

// record counts a query and its answer, and shows them to the Observer and, if it is drawn, to
// Evidence.
func (w *Worker) record(x *exchange, v *verdict, answer []byte) {
	elapsed := w.elapsed(x.start)
	if w.cfg.Stats != nil {
		w.count(x, v, len(answer), elapsed)
	}
	reason, weight := 0, 0
	if w.sampler != nil && v.cause != notQuery {
		reason = w.evidenceReason(v)
		weight = w.sampler.Draw(reason, x.start)
	}
	isObserved := w.cfg.Observer != nil && v.outcome != dropped
	if weight == 0 && !isObserved {
		return
	}
	w.observed = Observation{
		Client: x.client, Query: x.packet, Answer: answer, QName: x.query.QName(), QType: x.query.Type,
		RCode: rcodes[v.outcome], EDE: v.reason(), Began: x.start, Elapsed: elapsed,
	}
	if isObserved {
		w.cfg.Observer.Observe(&w.observed)
	}
	if weight > 0 {
		w.sample(&w.observed, evidence.Sample{Reason: reason, Weight: weight})
	}
}
