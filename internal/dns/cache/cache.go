// Package cache stores the replies of upstreams for their TTL, and longer for use as
// stale answers when the upstreams fail.
//
// It implements RFC 1035, section 7.4 and RFC 2181, section 8 (TTLs), RFC 2308
// (negative answers), RFC 8020 (no names exist below a name that does not exist), RFC
// 8767 (stale answers) and RFC 9520 (failures).
package cache

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"time"

	"github.com/maypok86/otter/v2"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// Key is everything that an answer depends on. The class is IN.
type Key struct {
	// Name is in lower-case wire form, without the root's closing zero octet.
	Name []byte
	Type dnswire.Type
	// DO and CD are the flags of these names in the query (RFC 3225; RFC 4035, section
	// 3.2.2).
	DO, CD bool
	// Subnet is the client's subnet (RFC 7871). With a subnet, the Cache stores and
	// returns only replies that are valid for all clients. Nil means that the upstream
	// does not receive the subnet.
	Subnet dnswire.Subnet
	// Search is an EDNS option with the search path that the upstream applies to the
	// name; nil is none.
	Search []byte
}

// Clone returns a copy that shares no memory with q.
func (q Key) Clone() Key {
	q.Name, q.Subnet, q.Search = slices.Clone(q.Name), slices.Clone(q.Subnet), slices.Clone(q.Search)
	return q
}

// anyType is the type in the key of a negative answer that applies to all types of a
// name.
const anyType dnswire.Type = 0

// Config configures a Cache.
type Config struct {
	// Size is the approximate memory for entries, in octets; 0 turns the cache off.
	Size int64
	// MinTTL and MaxTTL are the bounds of TTLs, in seconds. A TTL of 0 stays 0.
	MinTTL, MaxTTL uint32
	// MaxNegativeTTL is the upper bound of the TTL of negative answers, in seconds.
	MaxNegativeTTL uint32
	// Stale is the time for which an answer is kept after its TTL.
	Stale time.Duration
}

// Cache stores answers. It is safe for concurrent use.
type Cache struct {
	cfg     Config
	seed    maphash.Seed
	entries *otter.Cache[uint64, *Entry] // nil if the cache is off
}

// New returns an empty Cache.
func New(cfg Config) (*Cache, error) {
	if cfg.Size < 0 {
		return nil, fmt.Errorf("cache: size %d is less than 0", cfg.Size)
	}
	if cfg.MinTTL > cfg.MaxTTL {
		return nil, fmt.Errorf("cache: the least TTL, %d, is more than the most, %d", cfg.MinTTL, cfg.MaxTTL)
	}
	if cfg.Size == 0 {
		return &Cache{cfg: cfg}, nil
	}
	entries, err := otter.New(&otter.Options[uint64, *Entry]{
		MaximumWeight: uint64(cfg.Size),
		Weigher:       func(_ uint64, e *Entry) uint32 { return e.weight() },
		Executor:      func(task func()) { task() }, // no goroutines
	})
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	return &Cache{cfg, maphash.MakeSeed(), entries}, nil
}

// Stats are the figures of a Cache.
type Stats struct {
	Entries int
	Octets  uint64
}

// Stats returns the current figures.
func (c *Cache) Stats() Stats {
	if c.entries == nil {
		return Stats{}
	}
	return Stats{c.entries.EstimatedSize(), c.entries.WeightedSize()}
}

// Get returns the entry for q: a fresh or stale answer, or a failure. It returns nil if
// there is none. Get does not allocate.
func (c *Cache) Get(q Key, now time.Time) *Entry {
	name := c.hash(q)
	exact := c.find(name, q, q.Type)
	if exact != nil && exact.Fresh(now) {
		return exact
	}
	if e := c.find(name, q, anyType); e != nil && e.Fresh(now) {
		return e
	}
	return exact
}

// find returns the entry for q and type t. name is q's hash.
func (c *Cache) find(name uint64, q Key, t dnswire.Type) *Entry {
	if c.entries == nil {
		return nil
	}
	e, ok := c.entries.GetIfPresent(q.key(name, t))
	if !ok || !e.isOf(q, t) {
		return nil
	}
	return e.to(q)
}

// Above returns a fresh NXDOMAIN answer for a parent of q's name (RFC 8020, section 2),
// or nil. It does not use parents shorter than least octets, for which other upstreams
// may be responsible.
func (c *Cache) Above(q Key, least int, now time.Time) *Entry {
	if q.Search != nil {
		return nil // the search path of a parent may differ
	}
	for len(q.Name) > 0 {
		q.Name = q.Name[1+int(q.Name[0]):]
		if len(q.Name) < least {
			break
		}
		if e := c.find(c.hash(q), q, anyType); e != nil && e.Fresh(now) {
			return e
		}
	}
	return nil
}

// hash returns the hash of q's name and search option, or 0 if the cache is off.
func (c *Cache) hash(q Key) uint64 {
	if c.entries == nil {
		return 0
	}
	name := maphash.Bytes(c.seed, q.Name)
	if q.Search != nil {
		name += maphash.Bytes(c.seed, q.Search)
	}
	return name
}

// key returns the hash of all parts of q. Entries store the parts, so that two
// questions with the same hash only evict each other.
func (q Key) key(name uint64, t dnswire.Type) uint64 {
	const odd = 0x9e3779b97f4a7c15 // 2 to the 64th power divided by the golden ratio
	return name ^ (uint64(t)<<8|uint64(q.bits())+1)*odd
}

// bits returns the flags as a bit set.
func (q Key) bits() (b byte) {
	if q.DO {
		b |= 1
	}
	if q.CD {
		b |= 2
	}
	return b
}

// Put stores a reply to q, if it may be cached, and returns it as an Entry in any case.
// The Cache owns the reply afterwards. Put removes previous entries for q, unless the
// reply is valid for the clients of one subnet only.
func (c *Cache) Put(q Key, reply *dnswire.Reply, terms Terms, now time.Time) *Entry {
	life, kept := c.lifetime(reply)
	e := &Entry{
		question: keep(q, q.Type), Reply: reply, Guarded: terms.Guarded,
		stored: now.UnixNano(), life: time.Duration(life) * time.Second,
	}
	if q.Subnet != nil && !e.isForAll() {
		return e
	}
	c.forget(q)
	if !kept || life == 0 {
		return e
	}
	e.stale, e.staleTTL = c.cfg.Stale, min(staleTTL, c.cfg.MaxTTL)
	// If the answer has an alias, NXDOMAIN applies to its target (RFC 6604, section 3).
	if terms.Below && q.Search == nil && reply.RCode == dnswire.NXDomain && reply.Count(dnswire.Answer) == 0 {
		e.question = keep(q, anyType)
	}
	c.set(q, e.qtype, e)
	return e
}

// Terms are the conditions under which a reply may be used.
type Terms struct {
	// Below means that NXDOMAIN applies to all types of the name and to all names below
	// it.
	Below bool
	// Guarded means that aliases must not lead to local names.
	Guarded bool
}

// lifetime applies the bounds of TTLs to reply. It returns the lifetime in seconds and
// reports whether the reply may be cached.
func (c *Cache) lifetime(reply *dnswire.Reply) (seconds uint32, kept bool) {
	kept = reply.RCode == dnswire.NoError || reply.RCode == dnswire.NXDomain
	negative := reply.RCode == dnswire.NXDomain || reply.Count(dnswire.Answer) == 0
	seconds, soa := c.cfg.MaxTTL, false
	reply.AdjustTTLs(func(rec dnswire.ReplyRecord) uint32 {
		ttl, most := rec.TTL(), c.cfg.MaxTTL
		if rec.Section == dnswire.Authority && rec.Type() == dnswire.TypeSOA {
			ttl, most, soa = rec.NegativeTTL(), min(most, c.cfg.MaxNegativeTTL), true
		}
		if ttl > 0 {
			ttl = max(min(ttl, most), min(c.cfg.MinTTL, most))
		}
		seconds = min(seconds, ttl)
		return ttl
	})
	// A negative answer without SOA must not be cached (RFC 2308, section 5), and a
	// truncated reply is incomplete.
	return seconds, kept && (soa || !negative) && reply.Flags&dnswire.FlagTC == 0
}

// These are the shortest and longest times for which a failure is cached (RFC 9520,
// section 3.2).
const (
	minFailure = time.Second
	maxFailure = 5 * time.Second
)

// Fail stores the failure why for q and returns it as an Entry. It applies to the
// clients of all subnets; a failure for one subnet is not stored. An earlier reply
// stays in the entry for use as a stale answer. Each failure is cached twice as long as
// the one before.
func (c *Cache) Fail(q Key, why *Failure, now time.Time) *Entry {
	ofAll := q
	ofAll.Subnet = nil
	e := &Entry{question: keep(q, q.Type), Failure: why, failed: now.UnixNano(), pause: minFailure}
	if before := c.find(c.hash(q), ofAll, q.Type); before != nil {
		if before.Failure != nil {
			e.pause = min(2*before.pause, maxFailure)
		}
		if before.Reply != nil {
			e.failure = &Entry{question: e.question, Failure: why, failed: e.failed, pause: e.pause}
			e.Reply, e.Guarded, e.stored, e.life = before.Reply, before.Guarded, before.stored, before.life
			e.stale, e.staleTTL = before.stale, before.staleTTL
		}
	}
	if !why.OfSubnet {
		c.set(q, q.Type, e)
	}
	return e.to(q)
}

// forget removes the entries for q.
func (c *Cache) forget(q Key) {
	if c.entries != nil {
		name := c.hash(q)
		c.entries.Invalidate(q.key(name, q.Type))
		c.entries.Invalidate(q.key(name, anyType))
	}
}

func (c *Cache) set(q Key, t dnswire.Type, e *Entry) {
	if c.entries != nil {
		c.entries.Set(q.key(c.hash(q), t), e)
	}
}

// keep returns a copy of the parts of q, with type t.
func keep(q Key, t dnswire.Type) question {
	return question{string(q.Name), string(q.Search), t, q.bits()}
}

// Listed describes an entry for people.
type Listed struct {
	Name string // with its closing dot
	// Type is the type of the question, or ANY for a denial of the name.
	Type  string
	RCode string // "" without a reply
	// Records is the number of records in the answer.
	Records int
	// TTL is what is left of it; negative for a stale reply.
	TTL    time.Duration
	Failed string // why the last query failed, "" if it did not
}

// List returns the entries, sorted by name and type.
func (c *Cache) List(now time.Time) (all []Listed) {
	if c.entries == nil {
		return nil
	}
	for _, e := range c.entries.All() {
		name, _, err := dnsname.FromWire(append([]byte(e.name), 0))
		if err != nil {
			continue // the name of a malformed query
		}
		l := Listed{Name: name.String(), Type: e.qtype.String()}
		if e.qtype == anyType {
			l.Type = dnswire.TypeANY.String()
		}
		if e.Reply != nil {
			l.RCode, l.TTL = e.Reply.RCode.String(), e.life-e.age(now)
			l.Records = e.Reply.Count(dnswire.Answer)
		}
		if e.Failure != nil {
			l.Failed = e.Failure.Text
		}
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b Listed) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Type, b.Type)) })
	return all
}

// Flush removes the entries for a name and for all names below it, and returns how many.
// These include denials of names above it, which deny it, too (RFC 8020).
func (c *Cache) Flush(name dnsname.Name) (n int) {
	if c.entries == nil {
		return 0
	}
	for key, e := range c.entries.All() {
		if name.Contains([]byte(e.name)) || e.qtype == anyType && isAbove([]byte(e.name), name) {
			c.entries.Invalidate(key)
			n++
		}
	}
	return n
}

// isAbove reports whether a name in wire form, without its closing zero octet, is above
// another.
func isAbove(labels []byte, name dnsname.Name) bool {
	above, _, err := dnsname.FromWire(append(labels, 0))
	return err == nil && above != name && name.IsSubdomainOf(above)
}

// weightLimit is the largest weight that the library supports.
const weightLimit = math.MaxUint32
