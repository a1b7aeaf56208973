package transfer

import "sync/atomic"

// Kind is the kind of a transfer.
type Kind uint8

// Kinds. KindFullIXFR is a whole zone in reply to an IXFR query.
const (
	KindAXFR Kind = iota
	KindIXFR
	KindFullIXFR
	kinds
)

// String returns the label value in metrics.
func (k Kind) String() string { return [...]string{"axfr", "ixfr", "axfr_instead"}[k] }

// SendResult is the result of sending a zone.
type SendResult uint8

// Results of transfers.
const (
	ResultDone     SendResult = iota
	ResultUpToDate            // the secondary has the present version
	ResultRefused             // no permission matches
	ResultNotReady            // the zone is not loaded or is stale
	ResultBusy                // no memory for its messages, or no slot in time
	ResultAborted             // the client closed or was too slow, or the server stops
	results
)

// String returns the label value in metrics.
func (r SendResult) String() string {
	return [...]string{"done", "up_to_date", "refused", "not_ready", "busy", "aborted"}[r]
}

// NotifyResult is the result of a NOTIFY.
type NotifyResult uint8

// Results of NOTIFYs.
const (
	NotifyAnswered NotifyResult = iota
	NotifyUnanswered
	NotifyUnsent
	noticeResults
)

// String returns the label value in metrics.
func (r NotifyResult) String() string { return [...]string{"answered", "unanswered", "unsent"}[r] }

// Counters count transfers and NOTIFYs. The methods are safe for concurrent
// use.
type Counters struct {
	transfers [kinds][results]atomic.Uint64
	octets    atomic.Uint64
	notices   [noticeResults]atomic.Uint64
}

func (f *Counters) count(k Kind, r SendResult) { f.transfers[k][r].Add(1) }

// Counters returns the counters of this Sender and of those before it.
func (s *Sender) Counters() *Counters { return s.counters }

// Octets returns the number of octets sent in transfers.
func (f *Counters) Octets() uint64 { return f.octets.Load() }

// Transfers yields the number of transfers by kind and result.
func (f *Counters) Transfers(yield func(Kind, SendResult, uint64)) {
	for k := range kinds {
		for r := range results {
			yield(k, r, f.transfers[k][r].Load())
		}
	}
}

// Notifies yields the number of NOTIFYs by result.
func (f *Counters) Notifies(yield func(NotifyResult, uint64)) {
	for r := range noticeResults {
		yield(r, f.notices[r].Load())
	}
}
