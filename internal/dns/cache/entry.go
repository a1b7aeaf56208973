package cache

import (
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// Entry is the cached result of a question: a reply, a failure, or both if the last
// query failed. It is immutable except for the fields that Use changes.
type Entry struct {
	question
	// Reply is nil if no reply was ever received.
	Reply *dnswire.Reply
	// Failure is the reason why the last query failed; nil if it did not.
	Failure *Failure
	// Guarded means that aliases in the reply must not lead to local names.
	Guarded bool

	stored int64 // when Reply was stored, in Unix nanoseconds
	life   time.Duration
	stale  time.Duration
	failed int64 // when Failure was stored, in Unix nanoseconds
	pause  time.Duration
	// staleTTL is the TTL of the records in a stale answer, in seconds.
	staleTTL uint32
	// failure is the Entry without Reply, for clients that Reply is not valid for. It
	// is nil if the Entry lacks a reply or a failure.
	failure *Entry

	uses       atomic.Uint32
	refreshing atomic.Bool
}

// question is the question that an Entry answers.
type question struct {
	name   string
	search string
	qtype  dnswire.Type
	bits   byte
}

// Failure is the reason why there is no answer, as an Extended DNS Error.
type Failure struct {
	Code dnswire.EDECode
	Text string
	// OfSubnet means that the failure is known for the clients of one subnet only.
	OfSubnet bool
}

func (e *Entry) isOf(q Key, t dnswire.Type) bool {
	return e.qtype == t && e.bits == q.bits() && e.name == string(q.Name) && e.search == string(q.Search)
}

// isForAll reports whether the reply is valid for the clients of all subnets. A reply
// to a query without a subnet may depend on this server's address.
func (e *Entry) isForAll() bool { return e.Reply != nil && e.Reply.Subnet.CoversAllClients() }

// to returns the part of e that answers q: for a q with Subnet, a reply that is valid
// for all clients, or the failure. It returns nil if there is neither.
func (e *Entry) to(q Key) *Entry {
	if q.Subnet == nil || e.Reply == nil || e.isForAll() {
		return e
	}
	return e.failure
}

// overhead is the approximate size of an Entry in octets, including the library's data,
// without its reply and its name.
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

// age returns the age of the reply.
func (e *Entry) age(now time.Time) time.Duration {
	return time.Duration(max(now.UnixNano()-e.stored, 0))
}

// Fresh reports whether the reply is within its TTL.
func (e *Entry) Fresh(now time.Time) bool { return e.Reply != nil && e.age(now) < e.life }

// Stale reports whether the reply is past its TTL and may be used as a stale answer.
func (e *Entry) Stale(now time.Time) bool {
	return e.Reply != nil && e.age(now) >= e.life && e.age(now) < e.life+e.stale
}

// Failed reports whether a recent failure makes another query to the upstreams
// unnecessary.
func (e *Entry) Failed(now time.Time) bool {
	return e.Failure != nil && now.UnixNano()-e.failed < int64(e.pause)
}

// Answer returns the reply of the entry, how to adjust its TTLs at time now, and
// whether it is stale. The reply is nil if the entry has none to use.
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

// staleTTL is the highest TTL of stale records, in seconds (RFC 8767, section 4).
const staleTTL = 30

// An entry with a lifetime of leastLife or more is refreshed in the background when it
// was used popular times and 1/lastPart of its lifetime is left.
const (
	popular   = 3
	lastPart  = 10
	leastLife = 10 * time.Second
)

// Use counts a use of a fresh reply. It reports whether the caller is to refresh the
// entry, which is true for one caller only.
func (e *Entry) Use(now time.Time) (refresh bool) {
	if e.life < leastLife {
		return false
	}
	if e.uses.Load() < popular && e.uses.Add(1) < popular {
		return false
	}
	return e.life-e.age(now) <= e.life/lastPart && !e.refreshing.Load() && e.refreshing.CompareAndSwap(false, true)
}
