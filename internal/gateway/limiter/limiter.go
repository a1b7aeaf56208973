// Package limiter counts what clients do: how many requests they send in a time, by the generic cell rate algorithm
// (ITU-T I.371, annex A.1), which is a bucket of tokens in one number; and how many they have under way.
//
//	Rates:  limit's key, client ──► when the bucket is full again. An entry that is full says nothing, and can go
//	Counts: limit's key, client ──► requests under way. An entry goes with the last one
//
// Both are divided into shards by client, each with a lock of its own.
package limiter

import (
	"hash/maphash"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"
)

// Client is whom requests are counted for: an IPv4 address, or a /64 of IPv6, which one client has all of (RFC 6177).
type Client [16]byte

// ClientOf returns the Client of an address; one for all that are not valid.
func ClientOf(addr netip.Addr) (c Client) {
	if !addr.IsValid() {
		return c
	}
	c = addr.As16()
	if !addr.Unmap().Is4() {
		clear(c[8:])
	}
	return c
}

// Rate is a limit of requests: Requests in each Per, and Burst at once.
type Rate struct {
	// Key names what is limited. Limits with the same Key share their clients.
	Key      string
	Requests uint32
	Per      time.Duration
	Burst    uint32
}

// interval is the time between two requests at the Rate, and whole how long an empty bucket takes to be full.
func (r *Rate) interval() int64 { return max(1, int64(r.Per)/int64(max(1, r.Requests))) }

func (r *Rate) whole() int64 {
	const most = int64(100 * 24 * time.Hour)
	burst, interval := int64(max(1, r.Burst)), r.interval()
	if burst > most/interval {
		return max(most, interval)
	}
	return burst * interval
}

const shards = 64

// drawn are the entries of which the one that says least has to go for another.
const drawn = 8

// Rates knows how fast clients send requests. It has a highest number of entries, and half of them for one key. If they
// are used up, of some that are drawn that one goes whose bucket is nearest to full, so its client may send a burst
// anew: what it forgets is the least. To refuse clients that are not known would have one with many addresses lock
// out all others, and not to limit them would have it pass without a limit.
type Rates struct {
	seed   maphash.Seed
	start  time.Time
	most   int // entries of a shard
	shards [shards]rateShard
}

// rateShard is the clients of a shard, by key.
type rateShard struct {
	mu   sync.Mutex
	keys map[string]*clients
	n    int
	_    [64]byte // a line of the cache for each
}

// clients are those of a key: entries in no order, and their places.
type clients struct {
	places map[Client]int32
	all    []entry
}

// entry is a client, and the time at which its bucket is full.
type entry struct {
	client Client
	full   int64
}

// NewRates returns Rates for at most about so many entries. Each takes some 100 octets.
func NewRates(entries int) *Rates {
	return &Rates{seed: maphash.MakeSeed(), start: time.Now(), most: max(2, entries/shards)}
}

// Allow reports whether a client may send a request now, and counts it for all limits. If one refuses it, it counts for
// none, and wait is how long it will be refused.
func (r *Rates) Allow(c Client, now time.Time, limits []Rate) (wait time.Duration, allowed bool) {
	at := int64(now.Sub(r.start))
	s := &r.shards[maphash.Comparable(r.seed, c)%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range limits {
		if over := s.full(c, at, &limits[i]) + limits[i].interval() - at - limits[i].whole(); over > 0 {
			wait = max(wait, time.Duration(over))
		}
	}
	if wait > 0 {
		return wait, false
	}
	for i := range limits {
		s.set(c, at, limits[i].Key, s.full(c, at, &limits[i])+limits[i].interval(), r.most)
	}
	return 0, true
}

// full returns when the bucket of a client is full: never later than if it were empty, as the limit may have changed.
func (s *rateShard) full(c Client, now int64, limit *Rate) int64 {
	if of := s.keys[limit.Key]; of != nil {
		if place, ok := of.places[c]; ok {
			return min(max(of.all[place].full, now), now+limit.whole())
		}
	}
	return now
}

// set notes when the bucket of a client is full.
func (s *rateShard) set(c Client, now int64, key string, full int64, most int) {
	of := s.keys[key]
	if of != nil {
		if place, ok := of.places[c]; ok {
			of.all[place].full = full
			return
		}
		if len(of.all) >= max(1, most/2) {
			s.forget(key, of, now)
		}
	}
	if s.n >= most {
		s.forgetAny(now)
	}
	if of = s.keys[key]; of == nil { // or its last entry was forgotten
		if s.keys == nil {
			s.keys = make(map[string]*clients)
		}
		of = &clients{places: make(map[Client]int32)}
		s.keys[key] = of
	}
	of.places[c] = int32(len(of.all))
	of.all = append(of.all, entry{c, full})
	s.n++
}

// forgetAny removes an entry of the key that has the most, of some keys.
func (s *rateShard) forgetAny(now int64) {
	const looked = 4
	var key string
	var of *clients
	n := 0
	for k, candidate := range s.keys { // begins anywhere
		if of == nil || len(candidate.all) > len(of.all) {
			key, of = k, candidate
		}
		if n++; n == looked {
			break
		}
	}
	if of != nil {
		s.forget(key, of, now)
	}
}

// forget removes an entry of a key: one whose bucket is full, or nearest to full of those that are drawn.
func (s *rateShard) forget(key string, of *clients, now int64) {
	least := rand.IntN(len(of.all))
	for range drawn {
		if of.all[least].full <= now {
			break
		}
		if n := rand.IntN(len(of.all)); of.all[n].full < of.all[least].full {
			least = n
		}
	}
	last := len(of.all) - 1
	delete(of.places, of.all[least].client)
	if least != last {
		of.all[least] = of.all[last]
		of.places[of.all[least].client] = int32(least)
	}
	of.all = of.all[:last]
	if s.n--; last == 0 {
		delete(s.keys, key)
	}
}

// Len returns how many entries there are.
func (r *Rates) Len() (n int) {
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		n += s.n
		s.mu.Unlock()
	}
	return n
}

// Counts knows how many requests clients have under way. It has an entry for each client that has any, so that it is as
// large as the requests that are under way.
type Counts struct {
	seed   maphash.Seed
	shards [shards]countShard
}

type countShard struct {
	mu     sync.Mutex
	counts map[counted]uint32
	_      [64]byte
}

// counted is what is counted.
type counted struct {
	key    string
	client Client
}

// NewCounts returns Counts.
func NewCounts() *Counts { return &Counts{seed: maphash.MakeSeed()} }

// Enter counts a request of a client, and reports whether it is one of the most that there may be. Then Leave must be
// called when it ends.
func (c *Counts) Enter(key string, client Client, most uint32) bool {
	s := &c.shards[maphash.Comparable(c.seed, client)%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	at := counted{key, client}
	if s.counts[at] >= most {
		return false
	}
	if s.counts == nil {
		s.counts = make(map[counted]uint32)
	}
	s.counts[at]++
	return true
}

// Leave ends a request that Enter counted.
func (c *Counts) Leave(key string, client Client) {
	s := &c.shards[maphash.Comparable(c.seed, client)%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	at := counted{key, client}
	if s.counts[at] > 1 {
		s.counts[at]--
	} else {
		delete(s.counts, at)
	}
}

// Len returns how many clients have requests under way, each counted for each key.
func (c *Counts) Len() (n int) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		n += len(s.counts)
		s.mu.Unlock()
	}
	return n
}
