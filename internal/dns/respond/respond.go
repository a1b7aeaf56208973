// Package respond answers DNS queries. A query passes these stages, each in the
// file of its name:
//
//	packet ─► validate ─► admit ─► authenticate ─► route ─┬─► solve ─► answer ─┬─► finish ─► record ─► response
//	          header,     access,  TSIG                   ├─► chaos            │   flags,    statistics,
//	          question,   rate                            ├─► notify           │   EDNS,     query log
//	          EDNS                                        └─► transfer         │   TSIG
//	                         ▲                                                 │
//	                         └───── replay ◄─── Deferred ◄── upstream reply ◄──┘ pending
//
// Each stage returns a verdict; the first one that is final ends the query. The
// zero verdict is SERVFAIL, never NXDOMAIN. Within solve a query meets search
// paths (search), rules (local) and the zones (answer); names outside the zones
// come from the cache of upstream replies (upstream, relay). Where a reply is
// missing, the query is pending: Respond returns a Deferred, which waits for the
// reply and replays the whole query. A replay skips admit only. A
// Gate may hold an answer with addresses back; its Deferred waits (gate).
//
// The package implements RFC 1034, section 4.3.2 (answers), RFC 2181, section 9
// (truncation), RFC 2308 (denials), RFC 6604 (the rcode behind a CNAME), RFC
// 6891 (EDNS0), RFC 7871 (client subnets, which upstreams receive), RFC 7873 and
// 9018 (cookies), RFC 5001 (NSID), RFC 7828 (TCP keepalive), RFC 7830 (padding),
// RFC 8482 (ANY), RFC 8914 (Extended DNS Errors) and RFC 8945 (TSIG).
package respond

import (
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"portolan.dev/portolan/internal/dns/autopath"
	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/filter"
	"portolan.dev/portolan/internal/dns/zone"
	"portolan.dev/portolan/internal/support/evidence"
)

// Data holds the zones served here; *zone.DB is one.
type Data interface {
	// Lookup finds the RRset of qtype at the lower-case name qname, in wire
	// form without the root's closing zero octet.
	Lookup(s *zone.Scratch, qname []byte, qtype dnswire.Type) zone.Answer
	// Addresses finds the A and the AAAA RRset at such a name.
	Addresses(s *zone.Scratch, name []byte) (a, aaaa dnswire.RRset)
}

// DefaultUDPSize is the longest response over UDP, in octets, that is known to
// cross networks unfragmented (DNS Flag Day 2020).
const DefaultUDPSize = 1232

// MaxNSID is the longest NSID, in octets, so that an answer to a client of 512
// octets has room for more.
const MaxNSID = 128

// Config configures a Responder. The zero value of each field but Data is
// usable.
type Config struct {
	Data Data
	// Upstreams answer what Data does not have; nil is none.
	Upstreams Upstreams
	// ForwardWhileLoading sends queries for names of Data that are not loaded yet
	// to Upstreams.
	ForwardWhileLoading bool
	// UDPSize limits responses over UDP, in octets; 0 is DefaultUDPSize.
	UDPSize int
	// NSID is sent to clients that request it (RFC 5001); none when empty.
	NSID string
	// ServerID and Version answer id.server and version.bind in class CHAOS;
	// refused when empty.
	ServerID, Version string
	// CookieSecrets make and check server cookies: the first makes, all check.
	// Without secrets, COOKIE options are ignored.
	CookieSecrets []CookieSecret
	// TCPIdle is how long an idle connection stays open, for clients that request
	// it (RFC 7828).
	TCPIdle time.Duration
	// Rules are applied before the zones are looked up, and Limiter bounds the
	// responses to one client; nil is none.
	Rules   *filter.Filter
	Limiter *filter.RateLimiter
	// Search reads search paths; nil disables searches. SearchSOA is the SOA of
	// the suffix of names that carry search paths, for denials. Aliases to the
	// name that a search found have its TTL.
	Search    *autopath.Reader
	SearchSOA dnswire.SOA
	// Relay has Upstreams search rather than Data.
	Relay Relay
	// Transfers sends zones to secondaries; nil refuses transfers.
	Transfers Transfers
	// NotifyHandler takes NOTIFY messages (RFC 1996); nil refuses them.
	NotifyHandler NotifyHandler
	// Stats counts queries and answers; nil counts nothing.
	Stats *Stats
	// Observer receives each query and its answer, except packets that are no
	// queries; nil is none.
	Observer Observer
	// Evidence receives a sample of queries, with the reasons of their answers; nil is none. Its
	// reasons are EvidenceReasons.
	Evidence *evidence.Source
	// Gate holds answers with addresses back; nil is none.
	Gate Gate
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Relay is the form in which upstreams receive search paths.
type Relay uint8

// The forms.
const (
	NoRelay      Relay = iota // not at all: this server searches
	RelayPaths                // all search paths
	RelayCompact              // the Namespace and the zone
)

// Responder answers queries by its Workers. Several goroutines may use it at
// once.
type Responder struct {
	cfg      Config
	elapsed  func(since time.Time) time.Duration // by the clock of cfg
	chaos    map[dnsname.Name]dnswire.RRset
	hashSeed maphash.Seed
	replays  sync.Pool // of *replayWorker
}

// New makes a Responder. It fails on settings out of range, by name.
func New(cfg Config) (*Responder, error) {
	if cfg.UDPSize == 0 {
		cfg.UDPSize = DefaultUDPSize
	}
	if cfg.UDPSize < dnswire.MinUDPSize || cfg.UDPSize > dnswire.MaxMessage {
		return nil, fmt.Errorf("UDP size %d: not between %d and %d", cfg.UDPSize, dnswire.MinUDPSize, dnswire.MaxMessage)
	}
	if len(cfg.NSID) > MaxNSID {
		return nil, fmt.Errorf("NSID of %d octets: longer than %d", len(cfg.NSID), MaxNSID)
	}
	r := &Responder{cfg: cfg, chaos: make(map[dnsname.Name]dnswire.RRset), hashSeed: maphash.MakeSeed()}
	r.elapsed = func(since time.Time) time.Duration { return r.cfg.Now().Sub(since) }
	if cfg.Now == nil {
		r.cfg.Now = time.Now
		r.elapsed = time.Since // reads the monotonic clock only
	}
	r.replays.New = func() any { return &replayWorker{Worker: r.NewWorker(0)} }
	for name, text := range map[string]string{"id.server": cfg.ServerID, "version.bind": cfg.Version} {
		if text != "" {
			r.chaos[dnsname.MustParse(name)] = dnswire.NewChaosTXT(text)
		}
	}
	return r, nil
}

// Worker answers queries one at a time; each goroutine needs its own. It holds
// the memory that a query needs, so that answering allocates nothing.
type Worker struct {
	*Responder
	query     dnswire.Query
	response  dnswire.Response
	scratch   zone.Scratch
	rotations [rotationSlots]rotation
	counts    *shard
	sampler   *evidence.Sampler                     // nil without Evidence
	observed  Observation                           // the last one; here so that none is allocated
	eventText [dnsname.MaxText + 16]byte            // a name and a type; here for the same reason
	targets   [maxAliases + 1][dnsname.MaxWire]byte // of the aliases in upstream replies
	rewritten [dnsname.MaxWire]byte                 // the name that a rule makes of another
	searcher  searcher

	replies []upstreamReply // to this query, in a replay
	missing []cache.Key     // the upstream replies that a pending query needs

	messages Messages // of the answer, when transferring
}

// NewWorker makes a Worker. Workers of different seats, which are numbers from 0
// on, share no cache line and so do not slow each other down.
func (r *Responder) NewWorker(seat int) *Worker {
	w := &Worker{Responder: r, sampler: r.cfg.Evidence.Sampler(seat)}
	if r.cfg.Search != nil {
		w.query.SearchOption = dnswire.OptionCode(r.cfg.Search.OptionCode())
	}
	if r.cfg.Stats != nil {
		w.counts = r.cfg.Stats.shard(seat)
	}
	return w
}

// Respond answers packet into buf, whose capacity must be dnswire.MaxMessage at
// least, and returns the response. It keeps neither. If the answer depends on
// upstream replies, or is several messages, it returns a Deferred instead. Both
// are nil for a packet that is dropped.
func (w *Worker) Respond(packet []byte, client Client, buf []byte) (answer []byte, deferred *Deferred) {
	x := exchange{client: client, packet: packet, query: &w.query, start: w.cfg.Now()}
	v := w.process(&x, buf)
	switch v.outcome {
	case dropped:
	case transferring:
		deferred = &Deferred{messages: w.messages}
	case pending:
		return nil, w.deferQuery(&x)
	default:
		answer = w.finish(&x, &v)
		if wait := w.hold(&x, &v, answer); wait != nil {
			deferred = held(answer, wait)
		}
	}
	w.record(&x, &v, answer)
	if deferred != nil {
		return nil, deferred
	}
	return answer, nil
}

// process takes a query through the stages up to its verdict. The records of the
// answer are in w.response then.
func (w *Worker) process(x *exchange, buf []byte) verdict {
	w.missing = w.missing[:0]
	if v, done := w.validate(x, buf); done {
		return v
	}
	if !x.replay {
		if v, done := w.admit(x); done {
			return v
		}
	}
	if v, done := w.authenticate(x); done {
		return v
	}
	return w.route(x)
}
