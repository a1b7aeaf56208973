// Package localzone holds zones that an operator wrote, as master files (RFC 1035,
// section 5) or in the configuration. Each file is followed by itself; one that cannot be
// used never replaces the zone of one that could.
//
//	file, text ──► parse ──► arrange ──► zone.Changes ──► zone.DB
//	               records   RRsets,     (one subtree for each name
//	                         by name      or delegated name)
//
// The zones are made by zone.NewWithWildcards: they may have wildcards (RFC 4592) and
// delegations.
package localzone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
	"portolan.dev/portolan/internal/support/follow"
)

// Source is where a zone comes from: a master file, or the text of one.
type Source struct {
	Apex dnsname.Name
	File string // a path; empty if Text holds the records
	Text string
	// TTL is that of records before the first that has one, in seconds.
	TTL uint32
}

// Config configures Zones.
type Config struct {
	Sources []Source
	// Inner are the apexes of all zones of the server. Records at and below those
	// that lie in another zone belong to them, and are left out of that zone.
	Inner []dnsname.Name
	// SOA is the start of zones whose text has none, and of zones that are not
	// loaded; its Zone is ignored.
	SOA dnswire.SOA
}

// Zones are the zones of a Config. Its methods are safe for concurrent use.
type Zones struct {
	cfg Config

	changing sync.Mutex // held while a changed file is parsed and published
	mu       sync.Mutex
	zones    []*loading
}

// loading is a zone and what was last read of it.
type loading struct {
	Source
	now *content // nil until the zone was read once
	err error    // why now is not what the file holds
}

// New reads the zones. before is what the new Zones replace: a source that before has
// read keeps its content, and Run reads it when it has changed. If before does not have
// a source, and it cannot be read, New fails. If before is nil, the process starts:
// zones that cannot be read are not loaded. Run reads these when they can be.
func New(cfg Config, before *Zones) (*Zones, error) {
	z := &Zones{cfg: cfg}
	known := make([]*loading, len(cfg.Sources))
	for i, s := range cfg.Sources {
		known[i] = before.loading(s)
		z.zones = append(z.zones, &loading{Source: s})
	}
	isValid := before != nil && slices.Equal(cfg.Inner, before.cfg.Inner)
	files, errs := make([]*follow.Content, len(known)), make([]error, len(known))
	var reads sync.WaitGroup // at once, so that files that block cost one deadline
	for i, l := range z.zones {
		if k := known[i]; k != nil && k.now != nil {
			l.now, l.err = k.now, k.err
		}
		if l.File != "" && (l.now == nil || !isValid) {
			reads.Go(func() { files[i], errs[i] = follow.Read(context.Background(), l.File) })
		}
	}
	reads.Wait()
	for i, l := range z.zones { // one after the other, to bound all of them together
		switch {
		case l.now != nil && files[i] != nil && files[i].Equal(&l.now.version):
			l.err = z.load(l, files[i]) // by the new Inner
		case l.now != nil && !isValid: // it has changed or cannot be read, which Run follows
			old := *l.now
			old.version = follow.Version{}
			l.now = &old
		case l.now != nil:
		case errs[i] != nil:
			l.err = errs[i]
		default:
			l.err = z.load(l, files[i])
		}
		if l.now == nil && (l.File == "" || before != nil && known[i] == nil) {
			return nil, l.err
		}
	}
	return z, nil
}

// loading returns a copy of what is known of a source in a file, or nil.
func (z *Zones) loading(s Source) *loading {
	if z == nil || s.File == "" {
		return nil
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	i := slices.IndexFunc(z.zones, func(l *loading) bool { return l.Source == s })
	if i < 0 {
		return nil
	}
	known := *z.zones[i]
	return &known
}

// load parses a source, whose file is nil if it has none, and makes it the zone's content.
// All zones together are bounded.
func (z *Zones) load(l *loading, file *follow.Content) error {
	left := MaxOctets
	z.mu.Lock()
	for _, other := range z.zones {
		if other != l {
			left -= other.now.size()
		}
	}
	z.mu.Unlock()
	made, err := z.cfg.parseSource(l.Source, file, left)
	if err != nil {
		return err
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	l.now = made
	return nil
}

// SOAs returns the zones' starts of authority as Publish expects them in a new DB:
// with the serial before the present one.
func (z *Zones) SOAs() (all []dnswire.SOA) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, l := range z.zones {
		soa := z.cfg.SOA
		if l.now != nil {
			soa = l.now.soa
		}
		soa.Zone = l.Apex
		soa.Serial--
		all = append(all, soa)
	}
	return all
}

// Publish writes all zones into a DB that holds nothing of them.
func (z *Zones) Publish(db *zone.DB) {
	z.mu.Lock()
	defer z.mu.Unlock()
	var changes zone.Changes
	for _, l := range z.zones {
		if l.now == nil {
			changes.Subtrees = append(changes.Subtrees, zone.Change{Base: l.Apex, Subtree: notLoaded(l.Apex)})
			continue
		}
		l.now.change(&changes, nil)
	}
	db.Apply(changes)
}

// notLoaded returns the subtree that makes all names of a zone unanswered.
func notLoaded(apex dnsname.Name) *zone.Subtree {
	var b zone.Builder
	b.Begin(apex, 0)
	b.Metadata = zone.Metadata{EDE: &unread, Below: &unread}
	return b.Subtree()
}

var unread = zone.EDE{
	Code: dnswire.EDENotReady, Text: "the zone's file could not be read; the server's log says why", Pending: true,
}

// ZoneError is why a zone is not as its file is now.
type ZoneError struct {
	Zone   dnsname.Name
	Loaded bool  // the zone is as it was before its file changed
	Err    error // names the file and, if its text is wrong, the line
}

// Error returns the zone and the reason.
func (e *ZoneError) Error() string {
	if e.Loaded {
		return fmt.Sprintf("zone %s is as it was before its file changed: %s", e.Zone, e.Err)
	}
	return fmt.Sprintf("zone %s is not loaded: %s", e.Zone, e.Err)
}

// Unwrap returns the reason.
func (e *ZoneError) Unwrap() error { return e.Err }

// Problems returns why zones are not loaded, or not as their files are now. A nil Zones
// has none.
func (z *Zones) Problems() (all []*ZoneError) {
	if z == nil {
		return nil
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, l := range z.zones {
		if l.err != nil {
			all = append(all, &ZoneError{l.Apex, l.now != nil, l.err})
		}
	}
	return all
}

// Warnings returns what is loaded but cannot be answered, with its file and line.
func (z *Zones) Warnings() (all []string) {
	if z == nil {
		return nil
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, l := range z.zones {
		if l.now != nil {
			all = append(all, l.now.warnings...)
		}
	}
	return all
}

// Run reads files again when they change and publishes what they hold, until ctx is
// done. It calls changed after each publication. It returns ctx's error.
func (z *Zones) Run(ctx context.Context, log *slog.Logger, db *zone.DB, changed func()) error {
	for _, p := range z.Problems() {
		logProblem(log, p)
	}
	logWarnings(log, z.Warnings())
	var followers sync.WaitGroup
	for _, l := range z.zones {
		if l.File != "" {
			followers.Go(func() { _ = z.follower(l, log, db, changed).Run(ctx) }) // ends with ctx
		}
	}
	<-ctx.Done()
	followers.Wait()
	return ctx.Err()
}

func logProblem(log *slog.Logger, p *ZoneError) { log.Error("cannot use a zone's file", "err", p) }

func logWarnings(log *slog.Logger, warnings []string) {
	for _, w := range warnings {
		log.Warn("a zone has records that cannot be answered", "err", w)
	}
}

// follower returns what follows a zone's file.
func (z *Zones) follower(l *loading, log *slog.Logger, db *zone.DB, changed func()) *follow.Follower {
	f := &follow.Follower{Path: l.File, Reported: l.err}
	if l.now != nil {
		f.InUse = l.now.version
	}
	f.Use = func(file *follow.Content) error {
		z.changing.Lock()
		defer z.changing.Unlock()
		before := l.now
		if err := z.load(l, file); err != nil {
			return err
		}
		var changes zone.Changes
		l.now.change(&changes, before)
		db.Apply(changes)
		log.Info("zone loaded", "zone", l.Apex, "file", l.File, "records", l.now.records)
		logWarnings(log, l.now.warnings)
		changed()
		return nil
	}
	f.Report = func(err error) {
		z.mu.Lock()
		l.err = err
		p := &ZoneError{l.Apex, l.now != nil, err}
		z.mu.Unlock()
		if err != nil {
			logProblem(log, p)
		}
	}
	return f
}

// parseSource parses a source, whose file is nil if it has none, of at most maxOctets.
func (c *Config) parseSource(s Source, file *follow.Content, maxOctets int) (*content, error) {
	if file == nil {
		return c.parse(s, strings.NewReader(s.Text), maxOctets)
	}
	made, err := c.parse(s, bytes.NewReader(file.Text), maxOctets)
	if bad, ok := errors.AsType[*dnswire.MasterError](err); ok {
		err = fmt.Errorf("%s:%d: %w", s.File, bad.Line, bad.Err)
	}
	if err != nil {
		return nil, err
	}
	made.version = file.Version
	return made, nil
}

// Check returns the error of a source whose records are text, and how many octets they
// have; used are those of others.
func (c *Config) Check(s Source, used int) (octets int, err error) {
	made, err := c.parse(s, strings.NewReader(s.Text), MaxOctets-used)
	return made.size(), err
}
