// Package cache keeps the answers of other servers while they are good, and
// for some time after that, in case that nobody answers any more.
//
// It implements RFC 1035, section 7.4 and RFC 2181, section 8 (TTLs), RFC 2308
// (denials), RFC 8020 (nothing is below a name that does not exist), RFC 8767
// (stale answers) and RFC 9520 (failures).
package cache

import (
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"time"

	"github.com/maypok86/otter/v2"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// Key is what an answer depends on. Its class is IN.
type Key struct {
	// Name is in lower-case wire form, without the root's closing zero octet.
	Name []byte
	Type dnswire.Type
	// DO and CD are the query's flags of these names (RFC 3225; RFC 4035,
	// section 3.2.2).
	DO, CD bool
	// Subnet says where the client is (RFC 7871). With it, only replies that are
	// the same for all clients are kept and found. Nil is that nobody shall know.
	Subnet dnswire.Subnet
	// Search is an option that says where who is asked shall search for the name;
	// nil is that it shall not.
	Search []byte
}

// Clone is a copy that shares nothing with q.
func (q Key) Clone() Key {
	q.Name, q.Subnet, q.Search = slices.Clone(q.Name), slices.Clone(q.Subnet), slices.Clone(q.Search)
	return q
}

// anyType is in the key of a denial that is of a name, whatever is asked for.
const anyType dnswire.Type = 0

// Config is what a Cache is made from.
type Config struct {
	// Size is how many octets entries take up, about; with 0 nothing is kept.
	Size int64
	// MinTTL and MaxTTL bound the TTLs of records, in seconds. A TTL of 0 stays.
	MinTTL, MaxTTL uint32
	// MaxNegativeTTL bounds those of denials, in seconds.
	MaxNegativeTTL uint32
	// Stale is how long an answer is kept behind its TTL.
	Stale time.Duration
}

// Cache keeps answers. It may be used by several goroutines at once.
type Cache struct {
	cfg     Config
	seed    maphash.Seed
	entries *otter.Cache[uint64, *Entry] // nil when nothing is kept
}

// New makes an empty Cache.
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

// Stats are figures of a Cache.
type Stats struct {
	Entries int
	Octets  uint64
}

// Stats gives the figures of the moment.
func (c *Cache) Stats() Stats {
	if c.entries == nil {
		return Stats{}
	}
	return Stats{c.entries.EstimatedSize(), c.entries.WeightedSize()}
}

// Get finds what is kept of q: an answer, good or stale, or a failure; nil when
// there is nothing. It allocates nothing.
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

// find gives the entry of q and the given type; name is q's hash.
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

// Above finds a good denial of a name that q's is below, if it says that nothing
// is there (RFC 8020, section 2); nil when there is none. Names of fewer octets
// than least are not looked at: others may be asked for those.
func (c *Cache) Above(q Key, least int, now time.Time) *Entry {
	if q.Search != nil {
		return nil // what is not found for one name may be for another
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

// hash is that of q's name and of where it is searched for; 0 when nothing is
// kept.
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

// key is a hash as well, of all that an entry is of: entries tell themselves what
// that is, so that two of one key only take each other's place.
func (q Key) key(name uint64, t dnswire.Type) uint64 {
	const odd = 0x9e3779b97f4a7c15 // 2 to the 64th, divided by the golden ratio
	return name ^ (uint64(t)<<8|uint64(q.bits())+1)*odd
}

// bits are the flags.
func (q Key) bits() (b byte) {
	if q.DO {
		b |= 1
	}
	if q.CD {
		b |= 2
	}
	return b
}

// Put keeps a reply to q, unless it says nothing that could be kept, and gives
// it as an Entry anyway. The reply becomes the Cache's. What was known before is
// forgotten, unless the reply is for the clients of a subnet only.
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
	// What is denied behind an alias is its target (RFC 6604, section 3).
	if terms.Below && q.Search == nil && reply.RCode == dnswire.NXDomain && reply.Count(dnswire.Answer) == 0 {
		e.question = keep(q, anyType)
	}
	c.set(q, e.qtype, e)
	return e
}

// Terms are what goes with a reply.
type Terms struct {
	// Below has a denial of the name be one of all types, and of all names below.
	Below bool
	// Guarded says that aliases must not lead to names of ours.
	Guarded bool
}

// lifetime bounds the TTLs of reply and tells for how many seconds it may be
// kept, if at all.
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
	// A denial without SOA says not for how long it is good (RFC 2308, section
	// 5); one cut off is not whole.
	return seconds, kept && (soa || !negative) && reply.Flags&dnswire.FlagTC == 0
}

// The least and the most time that a failure is remembered (RFC 9520, section
// 3.2).
const (
	minFailure = time.Second
	maxFailure = 5 * time.Second
)

// Fail remembers that q could not be answered, and why, for the clients of all
// subnets, unless it is known of one only. What was known of q stays, for a stale
// answer. Each failure is remembered twice as long as the one before.
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

// forget forgets what is known of q.
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

// keep copies what an Entry is of.
func keep(q Key, t dnswire.Type) question {
	return question{string(q.Name), string(q.Search), t, q.bits()}
}

// weightLimit is what the library can weigh.
const weightLimit = math.MaxUint32
