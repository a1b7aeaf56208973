package transfer

import "sync/atomic"

// Kind is what is transferred.
type Kind uint8

// The kinds. Instead is a whole zone that answers a question for a difference.
const (
	KindAXFR Kind = iota
	KindIXFR
	KindFullIXFR
	kinds
)

// String is the kind in metrics.
func (k Kind) String() string { return [...]string{"axfr", "ixfr", "axfr_instead"}[k] }

// Result is how a transfer ended.
type TransferResult uint8

// The results.
const (
	ResultDone     TransferResult = iota
	ResultUpToDate                // there is nothing to send
	ResultRefused                 // to who may not
	ResultNotReady                // the zone is not loaded
	ResultBusy                    // there is no room for its messages, or its turn did not come
	ResultAborted                 // the other end does not take it in, or too slowly, or the server stops
	results
)

// String is the result in metrics.
func (r TransferResult) String() string {
	return [...]string{"done", "up_to_date", "refused", "not_ready", "busy", "aborted"}[r]
}

// NoticeResult is what became of a NOTIFY.
type NotifyResult uint8

// The results of notices.
const (
	NotifyAnswered NotifyResult = iota
	NotifyUnanswered
	NotifyUnsent
	noticeResults
)

// String is the result in metrics.
func (r NotifyResult) String() string { return [...]string{"answered", "unanswered", "unsent"}[r] }

// Figures counts.
type Counters struct {
	transfers [kinds][results]atomic.Uint64
	octets    atomic.Uint64
	notices   [noticeResults]atomic.Uint64
}

func (f *Counters) count(k Kind, r TransferResult) { f.transfers[k][r].Add(1) }

// Figures are those of this Sender and of those before it.
func (s *Sender) Counters() *Counters { return s.figures }

// Octets were sent in transfers.
func (f *Counters) Octets() uint64 { return f.octets.Load() }

// Transfers yields how many there were.
func (f *Counters) Transfers(yield func(Kind, TransferResult, uint64)) {
	for k := range kinds {
		for r := range results {
			yield(k, r, f.transfers[k][r].Load())
		}
	}
}

// Notices yields what became of how many.
func (f *Counters) Notifies(yield func(NotifyResult, uint64)) {
	for r := range noticeResults {
		yield(r, f.notices[r].Load())
	}
}
