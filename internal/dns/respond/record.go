package respond

import (
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
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
	QName   []byte
	QType   dnswire.Type
	RCode   dnswire.RCode
	Began   time.Time
	Elapsed time.Duration
}

// record counts a query and its answer, and shows them to the Observer.
func (w *Worker) record(x *exchange, v *verdict, answer []byte) {
	elapsed := w.elapsed(x.start)
	if w.cfg.Stats != nil {
		w.count(x, v, len(answer), elapsed)
	}
	if w.cfg.Observer != nil && v.outcome != dropped {
		w.cfg.Observer.Observe(&Observation{
			Client: x.client, Query: x.packet, Answer: answer, QName: x.query.QName(), QType: x.query.Type,
			RCode: rcodes[v.outcome], Began: x.start, Elapsed: elapsed,
		})
	}
}
