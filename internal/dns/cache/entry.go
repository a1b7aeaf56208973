package cache

import (
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// Entry is what is kept of a question: a reply, a failure, or both, when there
// is no newer reply. It is immutable but for what Use notes.
type Entry struct {
	question
	// Reply is nil when there was never one.
	Reply *dnswire.Reply
	// Failure is why there is no newer reply; nil when there is no need for one.
	Failure *Failure
	// Guarded says that aliases in the reply must not lead to names of ours.
	Guarded bool

	stored int64 // the reply, in nanoseconds of Unix time
	life   time.Duration
	stale  time.Duration
	failed int64 // likewise
	pause  time.Duration
	// staleTTL is the TTL of its records when it is stale, in seconds.
	staleTTL uint32
	// failure is the Entry without its reply, for whom that is not; nil when it
	// has no reply, or no failure.
	failure *Entry

	uses       atomic.Uint32
	refreshing atomic.Bool
}

// question is what an Entry is of.
type question struct {
	name   string
	search string
	qtype  dnswire.Type
	bits   byte
}

// Failure is why there is no answer, as an Extended DNS Error.
type Failure struct {
	Code dnswire.EDECode
	Text string
	// OfSubnet says that it is known of the clients of one subnet only.
	OfSubnet bool
}

func (e *Entry) isOf(q Key, t dnswire.Type) bool {
	return e.qtype == t && e.bits == q.bits() && e.name == string(q.Name) && e.search == string(q.Search)
}

// isForAll reports whether the reply is the same for the clients of all subnets. One
// to a question without may depend on where this server is.
func (e *Entry) isForAll() bool { return e.Reply != nil && e.Reply.Subnet.CoversAllClients() }

// to is what e says to q: to one with a Subnet a reply that is for all, or why
// there is none; nil when it says nothing.
func (e *Entry) to(q Key) *Entry {
	if q.Subnet == nil || e.Reply == nil || e.isForAll() {
		return e
	}
	return e.failure
}

// overhead is about how many octets an Entry takes, with what the library keeps
// of it, beside its reply and its name.
const overhead = 256

func (e *Entry) weight() uint32 {
	n := overhead + len(e.name) + len(e.search)
	if e.Reply != nil {
		n += e.Reply.Size()
	}
	if e.Failure != nil {
		n += len(e.Failure.Text)
	}
	if e.failure != nil {
		n += overhead
	}
	return uint32(min(n, weightLimit))
}

// age is how old the reply is.
func (e *Entry) age(now time.Time) time.Duration {
	return time.Duration(max(now.UnixNano()-e.stored, 0))
}

// Fresh reports whether the reply is within its TTL.
func (e *Entry) Fresh(now time.Time) bool { return e.Reply != nil && e.age(now) < e.life }

// Stale reports whether the reply is past its TTL, and may be given where no other
// is to be had.
func (e *Entry) Stale(now time.Time) bool {
	return e.Reply != nil && e.age(now) >= e.life && e.age(now) < e.life+e.stale
}

// Failed reports whether there was a failure so short a time ago that nobody needs
// to be asked again.
func (e *Entry) Failed(now time.Time) bool {
	return e.Failure != nil && now.UnixNano()-e.failed < int64(e.pause)
}

// Answer is what the entry answers at the given time, if it does: its reply, how
// that is shown, and whether it is stale.
func (e *Entry) Answer(now time.Time) (reply *dnswire.Reply, as dnswire.Aging, stale bool) {
	switch {
	case e.Reply == nil:
		return nil, as, false
	case e.Fresh(now), e.Failure == nil && e.stored == now.UnixNano():
		return e.Reply, dnswire.Aging{Age: uint32(e.age(now) / time.Second)}, false
	case e.Stale(now):
		return e.Reply, dnswire.Aging{Stale: e.staleTTL}, true
	}
	return nil, as, false
}

// staleTTL is the TTL of stale records at most, in seconds (RFC 8767, section 4).
const staleTTL = 30

// An entry is asked for anew, behind those who ask, when it was used so often
// and this part of its time is left.
const (
	popular   = 3
	lastPart  = 10
	leastLife = 10 * time.Second
)

// Use counts a use of a good reply, and tells one of those who use it at the end
// of its time to ask for it anew.
func (e *Entry) Use(now time.Time) (refresh bool) {
	if e.life < leastLife {
		return false
	}
	if e.uses.Load() < popular && e.uses.Add(1) < popular {
		return false
	}
	return e.life-e.age(now) <= e.life/lastPart && !e.refreshing.Load() && e.refreshing.CompareAndSwap(false, true)
}
