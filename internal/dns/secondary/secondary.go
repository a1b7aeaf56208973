// Package secondary serves zones as a secondary (RFC 9499) of a Portolan
// server, without access to the Kubernetes API. It follows one primary at a
// time by zone transfer. Its copy keeps answering while no primary is
// reachable, and is marked stale after a while.
//
//	NOTIFY ---------+
//	check interval -+-> refresh -> IXFR or AXFR -> zone.Secondary -> answers
//	                      |failure                      |
//	                      +-> retry, other primary      +-> state file -> next start
//	no reply for StaleAfter -> answers marked stale (RFC 8767); they never expire
//
// The package implements the client of RFC 5936 (AXFR), RFC 1995 (IXFR), RFC
// 8945 (TSIG) and RFC 9103 (transfers over TLS), and receives RFC 1996
// (NOTIFY). The copy answers as the primary does, byte for byte: transfers are
// requested with metadata (zone.TypeMetadata), and a transfer without it is
// rejected.
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
	"portolan.dev/portolan/internal/support/deadline"
)

// Finder finds primaries that come and go, such as the endpoints of a headless
// Service.
type Finder interface {
	// Find returns the present primaries.
	Find(ctx context.Context) ([]forward.Upstream, error)
}

// Limits bound what is accepted from a primary.
type Limits struct {
	// Octets bounds the messages of one transfer, Records their records.
	Octets, Records int
}

// DefaultLimits are about ten times what 10,000 Services with 3 endpoints each
// need.
var DefaultLimits = Limits{Octets: 256 << 20, Records: 4_000_000}

// Defaults. A check detects a change whose NOTIFY was lost, and whether the
// primary is up. The refresh time of the SOA is hours, as for zones from files;
// names of Pods are out of date within seconds. After three checks without
// reply the copy is stale.
const (
	DefaultCheckInterval = 5 * time.Second
	DefaultStaleAfter    = 3 * DefaultCheckInterval
)

// Config configures a Secondary. Servers or Finder or both must be set.
type Config struct {
	// Zones are the zones to serve, the most important first.
	Zones   []dnsname.Name
	Servers []forward.Upstream // primaries, over TCP or TLS; UDP means TCP
	Finder  Finder
	// Node is this node's name. It makes nodes prefer different primaries.
	Node string
	// Key returns the key that signs a transfer; nil if transfers are unsigned.
	// It is called for each transfer, so the key may change.
	Key func() *dnswire.TSIGKey
	// TLS is the configuration for TLS, with the trusted roots and this node's
	// certificate.
	TLS *tls.Config
	// File is the state file, which keeps the copy for the next start; empty
	// means none. If two agents share it, as during an upgrade, the one that
	// keeps running saves last.
	File string
	// CheckInterval is the interval between checks for changes. After
	// StaleAfter without reply of a primary the copy is stale. 0 means the
	// default.
	CheckInterval, StaleAfter time.Duration
	Limits                    Limits // zero means DefaultLimits
	Log                       *slog.Logger
}

// Secondary maintains copies of zones. Its methods are safe for concurrent use.
type Secondary struct {
	cfg   Config
	db    *zone.DB
	zones []*followedZone
	wake  chan struct{} // a NOTIFY arrived

	restored sync.Once

	// write is held while a zone changes, is saved, or becomes stale.
	write sync.Mutex

	mu       sync.Mutex // protects the fields below and those of zones
	server   *forward.Upstream
	known    []forward.Upstream
	unfound  error     // why no primaries are found; nil if some are
	heard    time.Time // when a primary last replied
	counts   Counters
	state    saving
	failures map[forward.Upstream]*failing
}

// Errors that New wraps.
var (
	ErrNoZones   = errors.New("no zone is configured")
	ErrNoServers = errors.New("no primary server is configured")
	ErrTransport = errors.New("zone transfers need TCP or TLS")
)

// New returns a Secondary whose zones are not loaded. It reads no file and
// starts nothing.
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
		err = c.Replace(soa,
			[]zone.TransferRecord{{Name: soa.Zone, Type: zone.TypeMetadata, RData: zone.AppendMetadata(nil, &notLoaded)}})
		if err != nil {
			return nil, err
		}
		r.zones = append(r.zones, &followedZone{name: soa.Zone, first: i == 0, copy: c})
	}
	return r, nil
}

// DB returns the database with the copies. Until a copy is loaded, the zone's
// data is pending, as at the start of a primary.
func (r *Secondary) DB() *zone.DB { return r.db }

// Run restores the state file, follows primaries until ctx is done, and then
// saves the state file. It returns ctx's error. A state file that blocks its writer holds
// the end up for deadline.File, twice at most.
func (r *Secondary) Run(ctx context.Context) error {
	r.Restore()
	var beside sync.WaitGroup
	beside.Go(func() { r.watch(ctx) })
	if r.cfg.File != "" {
		beside.Go(func() {
			_ = deadline.Until(ctx, deadline.File, func() error {
				r.keepSaved(ctx)
				return nil
			})
		})
	}
	r.follow(ctx)
	beside.Wait()
	if r.cfg.File != "" {
		_ = deadline.Until(ctx, deadline.File, func() error {
			r.saveLast()
			return nil
		})
	}
	return ctx.Err()
}

func (r *Secondary) key() *dnswire.TSIGKey {
	if r.cfg.Key == nil {
		return nil
	}
	return r.cfg.Key()
}

// Extended DNS Errors in answers.
var (
	notLoaded = &zone.EDE{
		Code:    dnswire.EDENotReady,
		Text:    "this node has no copy of the cluster's names yet",
		Pending: true,
	}

	old = &zone.Stale{
		Found: &zone.EDE{
			Code: dnswire.EDEStale,
			Text: "from this node's copy, which no primary server has confirmed recently",
		},
		Denied: &zone.EDE{
			Code: dnswire.EDEStaleNXDomain,
			Text: "not in this node's copy, which no primary server has confirmed recently",
		},
		DeniedTTL: 1,
	}
)

// followedZone is the state of one zone.
type followedZone struct {
	name  dnsname.Name
	first bool            // the first of the configured zones
	copy  *zone.Secondary // used with write held

	// Protected by mu:
	soa       dnswire.SOA // of the copy
	loaded    bool        // there is a copy
	stale     bool        // the copy is marked stale
	confirmed time.Time   // when the copy last equaled the primary's zone
	since     time.Time   // since when the copy has been current
	failure   error       // why the copy may be out of date; nil if it is not
	failed    int         // consecutive postponements
	asked     time.Time   // when the zone was last requested
	due       time.Time   // when to refresh
	notified  time.Time   // when a NOTIFY arrived that has not been handled
	idle      time.Time   // when a NOTIFY last announced no change
}

// watch marks copies as stale, until ctx is done.
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
		isStale := z.loaded && !z.stale && now.Sub(r.lastVerified(z)) > r.cfg.StaleAfter
		r.mu.Unlock()
		if isStale && r.markStale(z, now) {
			r.cfg.Log.Warn("the copy of a zone is stale; it stays in use", "zone", z.name, "verified", r.sureAt(z))
		}
	}
}

// lastVerified returns when the copy of z last equaled the primary's zone. A
// reply of the primary for any zone counts, because the primary would have
// announced changes. The caller must hold mu.
func (r *Secondary) lastVerified(z *followedZone) time.Time {
	if z.failure == nil && r.heard.After(z.confirmed) {
		return r.heard
	}
	return z.confirmed
}

func (r *Secondary) sureAt(z *followedZone) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lastVerified(z)
}

// markStale marks the copy of z as stale, unless a primary replied in the
// meantime. It reports whether it did.
func (r *Secondary) markStale(z *followedZone, now time.Time) bool {
	r.write.Lock()
	defer r.write.Unlock()
	r.mu.Lock()
	stale := !z.stale && now.Sub(r.lastVerified(z)) > r.cfg.StaleAfter
	z.stale = z.stale || stale
	r.mu.Unlock()
	if stale {
		z.copy.SetStale(old)
	}
	return stale
}

// isPrimary reports whether a primary has that address. The caller must hold
// mu.
func (r *Secondary) isPrimary(addr netip.Addr) bool {
	for _, list := range [][]forward.Upstream{r.cfg.Servers, r.known} {
		for _, s := range list {
			if s.Addr.Addr() == addr {
				return true
			}
		}
	}
	return false
}
