// Package secondary keeps zones of a Portolan server as a copy, without the
// Kubernetes API: it follows one server by zone transfer, and answers come from
// the copy however long no server is there.
//
// It implements the client of RFC 5936 (AXFR), RFC 1995 (IXFR), RFC 8945 (TSIG)
// and RFC 9103 (over TLS), and takes in RFC 1996 (NOTIFY). A copy answers as the
// server does, byte for byte: transfers are asked to hold marks (see
// zone.TypeMarks), and one without is refused.
package secondary

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/zone"
)

// Finder finds servers that come and go, such as those of a headless Service.
type Finder interface {
	// Find gives the servers of the moment.
	Find(ctx context.Context) ([]forward.Upstream, error)
}

// Limits bound what is taken from a server.
type Limits struct {
	// Octets are those of the messages of one transfer, Records their records.
	Octets, Records int
}

// DefaultLimits are some ten times what 10,000 Services of 3 endpoints take.
var DefaultLimits = Limits{Octets: 256 << 20, Records: 4_000_000}

// Default times. A check finds what a lost NOTIFY would have told, and that the
// server is there. The refresh time of the SOA is hours, for the file of a
// secondary; names of Pods are out of date within seconds. Three checks without
// an answer make a copy old.
const (
	DefaultCheckInterval = 5 * time.Second
	DefaultStaleAfter    = 3 * DefaultCheckInterval
)

// Config is what a Replica is made from. Of Servers and Finder there is one, or
// both.
type Config struct {
	// Zones are those to keep, the one that matters most first.
	Zones   []dnsname.Name
	Servers []forward.Upstream // over TCP or TLS; UDP stands for TCP
	Finder  Finder
	// Node is this node's name. Each node prefers other servers.
	Node string
	// Key signs all transfers, when it is not nil; it is called for each, and may
	// give another one each time.
	Key func() *dnswire.TSIGKey
	// TLS is for servers over TLS, with the roots and this node's certificate.
	TLS *tls.Config
	// File keeps the copy for the next start; empty is none. Where two agents have
	// one, as during an upgrade, the one that goes on saves last.
	File string
	// Check is how often the server is asked for news, and Stale for how long none
	// may answer until the copy is called old; 0 is the default.
	CheckInterval, StaleAfter time.Duration
	Limits                    Limits // DefaultLimits when zero
	Log                       *slog.Logger
}

// Replica keeps the zones. Its methods may be called at any time.
type Secondary struct {
	cfg   Config
	db    *zone.DB
	zones []*followed
	wake  chan struct{} // a NOTIFY came

	restored sync.Once

	// write is held while a zone changes, is saved, or ages.
	write sync.Mutex

	mu       sync.Mutex // of what follows, and of the zones' bookkeeping
	server   *forward.Upstream
	known    []forward.Upstream
	unfound  error     // why no servers are found; nil when they are
	heard    time.Time // when the server last answered
	counts   Counters
	state    saving
	failures map[forward.Upstream]*failing
}

// Errors that New wraps.
var (
	ErrNoZones   = errors.New("no zone to keep")
	ErrNoServers = errors.New("no server to follow")
	ErrTransport = errors.New("not a server for transfers, which go over TCP or TLS")
)

// New makes a Replica whose zones are not loaded. It reads and starts nothing.
func New(cfg Config) (*Secondary, error) {
	switch {
	case len(cfg.Zones) == 0:
		return nil, ErrNoZones
	case len(cfg.Servers) == 0 && cfg.Finder == nil:
		return nil, ErrNoServers
	}
	for _, s := range cfg.Servers {
		if s.Transport == forward.HTTPS {
			return nil, fmt.Errorf("%s: %w", s, ErrTransport)
		}
	}
	if cfg.CheckInterval == 0 {
		cfg.CheckInterval = DefaultCheckInterval
	}
	if cfg.StaleAfter == 0 {
		cfg.StaleAfter = DefaultStaleAfter
	}
	if cfg.Limits == (Limits{}) {
		cfg.Limits = DefaultLimits
	}
	r := &Secondary{cfg: cfg, wake: make(chan struct{}, 1), failures: make(map[forward.Upstream]*failing)}
	var soas []dnswire.SOA
	for _, name := range cfg.Zones {
		soas = append(soas, dnswire.SOA{Zone: name})
	}
	var err error
	if r.db, err = zone.New(soas...); err != nil {
		return nil, err
	}
	for i, soa := range soas {
		c, err := r.db.Secondary(soa.Zone)
		if err != nil {
			return nil, err
		}
		notLoaded := zone.Metadata{EDE: notLoaded, Below: notLoaded}
		err = c.Replace(soa, []zone.TransferRecord{{Name: soa.Zone, Type: zone.TypeMetadata, RData: zone.AppendMetadata(nil, &notLoaded)}})
		if err != nil {
			return nil, err
		}
		r.zones = append(r.zones, &followed{name: soa.Zone, first: i == 0, copy: c})
	}
	return r, nil
}

// DB holds the copies. Names are not loaded, as at a server's start, until there
// is one.
func (r *Secondary) DB() *zone.DB { return r.db }

// Run follows a server until ctx is done, and saves what is there then, see File. It
// returns ctx's error.
func (r *Secondary) Run(ctx context.Context) error {
	r.Restore()
	var beside sync.WaitGroup
	beside.Go(func() { r.watch(ctx) })
	if r.cfg.File != "" {
		beside.Go(func() { r.keepSaved(ctx) })
	}
	r.follow(ctx)
	beside.Wait()
	if r.cfg.File != "" {
		r.saveLast()
	}
	return ctx.Err()
}

func (r *Secondary) key() *dnswire.TSIGKey {
	if r.cfg.Key == nil {
		return nil
	}
	return r.cfg.Key()
}

// What is said with answers.
var (
	notLoaded = &zone.EDE{Code: dnswire.EDENotReady, Text: "this node has no copy of the cluster's names yet", Pending: true}

	old = &zone.Stale{
		Found:     &zone.EDE{Code: dnswire.EDEStale, Text: "from this node's copy, and no server has told for a while whether it is still so"},
		Denied:    &zone.EDE{Code: dnswire.EDEStaleNXDomain, Text: "not in this node's copy, and no server has told for a while what there is"},
		DeniedTTL: 1,
	}
)

// followed is one zone.
type followed struct {
	name  dnsname.Name
	first bool            // of those configured
	copy  *zone.Secondary // used with write held

	// With mu held:
	soa       dnswire.SOA // of the copy
	loaded    bool        // there is one
	old       bool        // and it is marked so
	confirmed time.Time   // when it was as the server's
	since     time.Time   // since when it is so
	failure   error       // why it is not, as it seems; nil when it is
	failed    int         // how often it was put off, one after another
	asked     time.Time   // when a server was asked last
	due       time.Time   // when to ask again
	notified  time.Time   // when a NOTIFY came that was not followed yet
	idle      time.Time   // when one was followed last that brought nothing
}

// watch marks copies as old, until ctx is done.
func (r *Secondary) watch(ctx context.Context) {
	ticker := time.NewTicker(max(r.cfg.StaleAfter/8, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			r.ageZones(now)
		}
	}
}

func (r *Secondary) ageZones(now time.Time) {
	for _, z := range r.zones {
		r.mu.Lock()
		aged := z.loaded && !z.old && now.Sub(r.lastSure(z)) > r.cfg.StaleAfter
		r.mu.Unlock()
		if aged && r.markOld(z, now) {
			r.cfg.Log.Warn("the copy of a zone is old; answers go on", "zone", z.name, "sure", r.sureAt(z))
		}
	}
}

// lastSure is when the copy of z was last the server's: a server that answers
// would have told what changed. Its caller holds mu.
func (r *Secondary) lastSure(z *followed) time.Time {
	if z.failure == nil && r.heard.After(z.confirmed) {
		return r.heard
	}
	return z.confirmed
}

func (r *Secondary) sureAt(z *followed) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lastSure(z)
}

// markOld marks the copy of z, unless a server was heard meanwhile.
func (r *Secondary) markOld(z *followed, now time.Time) bool {
	r.write.Lock()
	defer r.write.Unlock()
	r.mu.Lock()
	stale := !z.old && now.Sub(r.lastSure(z)) > r.cfg.StaleAfter
	z.old = z.old || stale
	r.mu.Unlock()
	if stale {
		z.copy.SetStale(old)
	}
	return stale
}

// isServer tells whether a server has that address. Its caller holds mu.
func (r *Secondary) isServer(addr netip.Addr) bool {
	for _, list := range [][]forward.Upstream{r.cfg.Servers, r.known} {
		for _, s := range list {
			if s.Addr.Addr() == addr {
				return true
			}
		}
	}
	return false
}
