// Package respond answers one DNS query, in four stages: validate → route →
// solve → finish. Every outcome passes finish, the only place that sets flags,
// EDNS, size and truncation; an outcome that nobody set is SERVFAIL, never
// NXDOMAIN.
//
// It implements RFC 1034, section 4.3.2 (answers), RFC 2181, section 9
// (truncation), RFC 2308 (denials), RFC 6604 (the rcode behind a CNAME), RFC
// 6891 (EDNS0), RFC 7871 (client subnets, for others), RFC 7873 and 9018
// (cookies), RFC 5001 (NSID), RFC 7828 (TCP keepalive), RFC 7830 (padding), RFC
// 8482 (ANY) and RFC 8914 (Extended DNS Errors).
package respond

import (
	"crypto/x509"
	"fmt"
	"hash/maphash"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/dns/autopath"
	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/filter"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/zone"
)

// Data is where answers come from; *zone.DB is one.
type Data interface {
	// Lookup finds the RRset of qtype at the lower-case name qname, in wire
	// form without the root's closing zero octet.
	Lookup(s *zone.Scratch, qname []byte, qtype dnswire.Type) zone.Answer
	// Addresses finds the A and the AAAA RRset at such a name.
	Addresses(s *zone.Scratch, name []byte) (a, aaaa dnswire.RRset)
}

// Upstreams answer names outside the zones served here; *forward.Forwarder does.
type Upstreams interface {
	// Known gives what can be answered at once; nil when somebody must be
	// asked. routed tells whether there is anybody to ask.
	Cached(q cache.Key, now time.Time) (e *cache.Entry, routed bool)
	// TakesSubnet tells whether they may know where a client is that asks for a
	// name.
	ForwardsSubnet(name []byte) bool
	// Ask begins to ask for a client. It fails when too many wait already.
	Reserve(client netip.Addr, q cache.Key) (*forward.Request, error)
}

// Transport is how a query came.
type Transport uint8

// The transports.
const (
	UDP Transport = iota
	TCP
	TLS
	HTTPS
)

// String is the transport's name in logs and metrics.
func (t Transport) String() string { return transportNames[t] }

// Client is who asks, and how.
type Client struct {
	Addr      netip.Addr
	Port      uint16
	Transport Transport
	// Certificate is the client's, which was verified; nil when it has none.
	Certificate *x509.Certificate
}

// AddrPort is where the client asks from.
func (c Client) AddrPort() netip.AddrPort { return netip.AddrPortFrom(c.Addr, c.Port) }

// Observer is told of each query and its answer; *querylog.Log is one. It must
// not wait, and not keep what it is given.
type Observer interface{ Observe(*Observation) }

// Observation is a query and what became of it.
type Observation struct {
	Client Client
	Query  []byte
	Answer []byte // nil when there was none
	// QName, in lower-case wire form without the root's closing zero octet, and
	// QType are those of the question; RCode is the answer's.
	QName   []byte
	QType   dnswire.Type
	RCode   dnswire.RCode
	Began   time.Time
	Elapsed time.Duration
}

// DefaultUDPSize is the longest response over UDP, in octets, that is known to
// cross networks unfragmented (DNS Flag Day 2020).
const DefaultUDPSize = 1232

// MaxNSID is the longest NSID, in octets, so that an answer to a client of 512
// octets has room for more.
const MaxNSID = 128

// Config is what a Responder is made from. The zero value of each field but
// Data is usable.
type Config struct {
	Data Data
	// Upstreams answer what Data does not have; nil is none.
	Upstreams Upstreams
	// ForwardWhileLoading sends queries for names of Data that are not loaded yet
	// to Upstreams.
	ForwardWhileLoading bool
	// UDPSize limits responses over UDP, in octets; 0 is DefaultUDPSize.
	UDPSize int
	// NSID is given to clients that ask for it (RFC 5001); none when empty.
	NSID string
	// ServerID and Version answer id.server and version.bind in class CHAOS;
	// refused when empty.
	ServerID, Version string
	// CookieSecrets make and check server cookies: the first makes, all check.
	// Cookies are not answered when there is none.
	CookieSecrets []CookieSecret
	// TCPIdle is announced to clients that ask how long an idle connection
	// stays open (RFC 7828).
	TCPIdle time.Duration
	// Rules are applied before anything is looked for, and Limiter bounds what
	// goes to one client; nil is none.
	Rules   *filter.Filter
	Limiter *filter.RateLimiter
	// Search reads what names are searched for in; nil is nothing. SearchSOA is
	// that of names that say so themselves, for denials; aliases to what was found
	// have its TTL.
	Search    *autopath.Reader
	SearchSOA dnswire.SOA
	// Relay has Upstreams search rather than Data.
	Relay Relay
	// Transfers sends zones to other servers; nil refuses to.
	Transfers Transfers
	// NotifyHandler takes NOTIFY messages (RFC 1996); nil refuses them.
	NotifyHandler NotifyHandler
	// Stats counts queries and answers; nil is not to count.
	Stats *Stats
	// Observer is told of them, but for packets that are no queries; nil is
	// nobody.
	Observer Observer
	// Now tells the time, for cookies; nil is time.Now.
	Now func() time.Time
}

// Relay is how others are told in what to search for a name.
type Relay uint8

// The ways.
const (
	NoRelay      Relay = iota // they are not
	RelayPaths                // by all search paths
	RelayCompact              // by the Namespace and the zone
)

// Responder answers queries. Its Workers do the work.
type Responder struct {
	cfg      Config
	chaos    map[dnsname.Name]dnswire.RRset
	hashSeed maphash.Seed
	workers  sync.Pool // of *deferredWorker
}

// New makes a Responder. It fails on settings out of range, by name.
func New(cfg Config) (*Responder, error) {
	if cfg.UDPSize == 0 {
		cfg.UDPSize = DefaultUDPSize
	}
	if cfg.UDPSize < dnswire.MinUDPSize || cfg.UDPSize > dnswire.MaxMessage {
		return nil, fmt.Errorf("UDP size %d: not between %d and %d", cfg.UDPSize, dnswire.MinUDPSize, dnswire.MaxMessage)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if len(cfg.NSID) > MaxNSID {
		return nil, fmt.Errorf("NSID of %d octets: longer than %d", len(cfg.NSID), MaxNSID)
	}
	r := &Responder{cfg: cfg, chaos: make(map[dnsname.Name]dnswire.RRset), hashSeed: maphash.MakeSeed()}
	r.workers.New = func() any { return &deferredWorker{Worker: r.NewWorker(0)} }
	for name, text := range map[string]string{"id.server": cfg.ServerID, "version.bind": cfg.Version} {
		if text != "" {
			r.chaos[dnsname.MustParse(name)] = dnswire.NewChaosTXT(text)
		}
	}
	return r, nil
}

// Worker answers queries one at a time; each goroutine needs its own. It keeps
// what a query works in, so that answering allocates nothing.
type Worker struct {
	*Responder
	query             dnswire.Query
	response          dnswire.Response
	scratch           zone.Scratch
	cookie            cookie
	turns             [turnSlots]turn
	counts            *shard
	names             [maxAliases + 1][dnsname.MaxWire]byte // targets of others' aliases
	upstreamAnswers   []upstreamAnswer                      // what others answered to this query
	renamed           [dnsname.MaxWire]byte                 // the name that the query's is answered as
	upstreamQuestions []cache.Key                           // what others must be asked, when pending
	searcher          searcher
}

// NewWorker makes a Worker. Workers of different seats, which are numbers from 0
// on, do not slow each other down when they work at the same time.
func (r *Responder) NewWorker(seat int) *Worker {
	w := &Worker{Responder: r}
	if r.cfg.Search != nil {
		w.query.SearchOption = dnswire.OptionCode(r.cfg.Search.OptionCode())
	}
	if r.cfg.Stats != nil {
		w.counts = r.cfg.Stats.shard(seat)
	}
	return w
}

// exchange is one query and what becomes of it.
type exchange struct {
	client    Client
	outcome   outcome
	ours      bool // the answer is from our data
	truncated bool
	why       *zone.EDE                  // said to the client, when not nil
	stale     *zone.EDE                  // likewise, of data from an earlier time
	zone      *dnswire.SOA               // of the name that was asked for, when it is in one
	again     bool                       // it was tried before
	renamed   bool                       // the name is answered as another one
	relayed   bool                       // others search for it
	search    *[searchEnds]atomic.Uint64 // counts it; nil when nothing is searched for
	echoes    bool                       // it repeats that it was told what to search in
	scoped    bool                       // others say for which clients the answer is:
	scope     uint8                      // for those of the subnet of so many bits
	aliases   int                        // that were followed
	now       time.Time
	validated bool     // all of the answer is, as others say
	messages  Messages // of the answer, when transferring
	signature signature
}

// outcome is how an exchange ends. The zero value is harmless.
type outcome uint8

const (
	failed outcome = iota // SERVFAIL
	dropped
	answered
	denied
	malformed
	notImplemented
	refused
	badVersion
	badCookie
	notAuthoritative
	pending      // others must be asked first
	transferring // the answer is several messages
)

// rcodes says what each outcome but dropped is on the wire.
var rcodes = [...]dnswire.RCode{
	failed:           dnswire.ServFail,
	answered:         dnswire.NoError,
	denied:           dnswire.NXDomain,
	malformed:        dnswire.FormErr,
	notImplemented:   dnswire.NotImp,
	refused:          dnswire.Refused,
	badVersion:       dnswire.BadVers,
	badCookie:        dnswire.BadCookie,
	notAuthoritative: dnswire.NotAuth,
	transferring:     dnswire.NoError,
}

// Respond answers packet into buf, whose capacity must be dnswire.MaxMessage at
// least, and returns the response. It keeps neither. Where others must be asked
// for it there is none yet, but a Deferred. Where there shall be no response there
// is neither.
func (w *Worker) Respond(packet []byte, client Client, buf []byte) (answer []byte, later *Deferred) {
	x := exchange{client: client, now: time.Now()}
	answer = w.exchange(&x, packet, buf)
	if x.outcome == pending {
		if later = w.ask(&x, packet); later != nil {
			return nil, later
		}
		answer = w.finish(&x)
	}
	w.done(&x, packet, answer, x.now)
	if x.outcome == transferring {
		return nil, &Deferred{messages: x.messages}
	}
	return answer, nil
}

// done counts a query that came at the given time, and tells of it.
func (w *Worker) done(x *exchange, packet, answer []byte, began time.Time) {
	took := time.Since(began)
	w.count(x, len(packet), len(answer), took)
	if w.cfg.Observer != nil && x.outcome != dropped {
		w.cfg.Observer.Observe(&Observation{
			Client: x.client, Query: packet, Answer: answer, QName: w.query.QName(), QType: w.query.Type,
			RCode: rcodes[x.outcome], Began: began, Elapsed: took,
		})
	}
}

func (w *Worker) exchange(x *exchange, packet, buf []byte) []byte {
	w.upstreamQuestions = w.upstreamQuestions[:0]
	valid := w.validate(x, packet) && (x.again || w.mayAsk(x)) && w.checkSignature(x, packet)
	if valid && w.query.Opcode == dnswire.OpcodeNotify {
		w.notify(x)
		valid = false
	}
	if x.outcome == dropped {
		return nil
	}
	w.start(x, buf)
	if valid {
		switch w.route(x) {
		case routeZone:
			w.solve(x)
		case routeChaos:
			w.solveChaos(x)
		case routeTransfer:
			w.transfer(x, packet)
		case routeNowhere:
		}
	}
	if x.outcome == pending || x.outcome == transferring {
		return nil
	}
	return w.finish(x)
}

// validate reads the query and tells whether it can be answered; where not, it
// sets the outcome.
func (w *Worker) validate(x *exchange, packet []byte) (valid bool) {
	q := &w.query
	if q.ParseHeader(packet) != nil || q.Flags&dnswire.FlagQR != 0 {
		x.outcome = dropped
		return false
	}
	err := q.ParseBody(packet)
	w.readCookie(x.client.Addr)
	switch {
	case q.Opcode == dnswire.OpcodeNotify && w.cfg.NotifyHandler == nil && w.cfg.Transfers != nil:
		x.outcome, x.why = refused, &noPrimary
		return false
	case q.Opcode != dnswire.OpcodeQuery && (q.Opcode != dnswire.OpcodeNotify || w.cfg.NotifyHandler == nil):
		x.outcome = notImplemented
		return false
	case err == dnswire.ErrQuestions && w.cookie.asked && q.QuestionCount() == 0:
		// RFC 7873, section 5.4: a query for a cookie and nothing else.
		x.outcome = answered
		return false
	case err != nil:
		x.outcome = malformed
		return false
	case q.EDNS.Version != 0:
		x.outcome = badVersion
		return false
	case q.Type == dnswire.TypeOPT:
		x.outcome = malformed
		return false
	}
	return true
}

// route is where an answer comes from.
type route uint8

const (
	routeNowhere route = iota // the outcome is set
	routeZone
	routeChaos
	routeTransfer
)

// route chooses by class and by type.
func (w *Worker) route(x *exchange) route {
	switch {
	case w.query.Class == dnswire.ClassCHAOS && len(w.chaos) > 0:
		return routeChaos
	case w.query.Class != dnswire.ClassIN:
		x.outcome = refused
		return routeNowhere
	case (w.query.Type == dnswire.TypeAXFR || w.query.Type == dnswire.TypeIXFR) && w.cfg.Transfers != nil:
		return routeTransfer
	case w.query.Type == dnswire.TypeAXFR || w.query.Type == dnswire.TypeIXFR:
		x.outcome = refused
		x.why = &noTransfer
		return routeNowhere
	}
	return routeZone
}
