// Package localzone holds zones that an operator wrote, as master files (RFC 1035,
// section 5) or in the configuration. Files are read again when they change; a file
// that cannot be used never replaces the zone of one that could.
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
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
	"portolan.dev/portolan/internal/support/deadline"
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

	mu    sync.Mutex
	zones []*loading
}

// loading is a zone and what was last read of it.
type loading struct {
	Source
	reader *deadline.Call[*written]
	now    *content // nil until the zone was read once
	err    error    // of the last reading
	broken failure  // the last one, so that a broken file is parsed once
}

// failure is why a version of a file could not be parsed.
type failure struct {
	version
	err error
}

// New reads the zones. before is what the new Zones replace: a zone that cannot be
// read keeps the content that before has of the same source, or stays not loaded, and
// if before does not have the source New fails. If before is nil, the process starts:
// zones that cannot be read are not loaded. Run reads these when they can be.
func New(cfg Config, before *Zones) (*Zones, error) {
	z := &Zones{cfg: cfg}
	for _, s := range cfg.Sources {
		l := &loading{Source: s, reader: new(deadline.Call[*written])}
		if before != nil {
			l.now = before.content(s, slices.Equal(cfg.Inner, before.cfg.Inner))
		}
		z.zones = append(z.zones, l)
	}
	z.read(context.Background())
	for _, l := range z.zones {
		isNew := before != nil && !slices.Contains(before.cfg.Sources, l.Source)
		if l.now == nil && (isNew || l.File == "") {
			return nil, l.err
		}
	}
	return z, nil
}

// content returns what is known of a source, or nil. Unless it is valid, the file is
// read again although it did not change.
func (z *Zones) content(s Source, valid bool) *content {
	z.mu.Lock()
	defer z.mu.Unlock()
	i := slices.IndexFunc(z.zones, func(l *loading) bool { return l.Source == s })
	if i < 0 || z.zones[i].now == nil || s.File == "" {
		return nil
	}
	now := *z.zones[i].now
	if !valid {
		now.version = version{}
	}
	return &now
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

// Problems returns why zones are not loaded, or not as their files are now.
func (z *Zones) Problems() (all []string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, l := range z.zones {
		switch {
		case l.err != nil && l.now == nil:
			all = append(all, fmt.Sprintf("zone %s is not loaded: %s", l.Apex, l.err))
		case l.err != nil:
			all = append(all, fmt.Sprintf("zone %s is as it was before its file changed: %s", l.Apex, l.err))
		}
	}
	return all
}

// pollInterval is the interval at which files are checked for changes.
const pollInterval = time.Second

// Run reads files again when they change and publishes what they hold, until ctx is
// done. It calls changed after each publication. It returns ctx's error.
func (z *Zones) Run(ctx context.Context, log *slog.Logger, db *zone.DB, changed func()) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	logged := z.report(log, "")
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		before := z.read(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if z.publishChanges(log, db, before) {
			changed()
		}
		logged = z.report(log, logged)
	}
}

// report logs the zones' problems unless they are those logged before, and returns
// them.
func (z *Zones) report(log *slog.Logger, logged string) (now string) {
	problems := z.Problems()
	if now = strings.Join(problems, "\n"); now != logged {
		for _, p := range problems {
			log.Error("cannot use a zone's file", "err", p)
		}
	}
	return now
}

// publishChanges publishes the zones whose content differs from that before, by zone.
func (z *Zones) publishChanges(log *slog.Logger, db *zone.DB, before []*content) (changed bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	var changes zone.Changes
	for i, l := range z.zones {
		if l.now == before[i] {
			continue
		}
		l.now.change(&changes, before[i])
		log.Info("zone loaded", "zone", l.Apex, "file", l.File, "records", l.now.records)
		changed = true
	}
	if changed {
		db.Apply(changes)
	}
	return changed
}

// read reads the sources that changed. It reads the files at once, so that those that
// block cost one deadline. It returns the content before.
func (z *Zones) read(ctx context.Context) (before []*content) {
	z.mu.Lock()
	all := slices.Clone(z.zones)
	for _, l := range all {
		before = append(before, l.now)
	}
	z.mu.Unlock()
	files, errs := make([]*written, len(all)), make([]error, len(all))
	var reads sync.WaitGroup
	for i, l := range all {
		reads.Go(func() { files[i], errs[i] = l.readFile(ctx, before[i]) })
	}
	reads.Wait()
	now, octets := slices.Clone(before), 0
	for _, c := range before {
		octets += c.size()
	}
	for i, l := range all { // one after the other, to bound all of them together
		if errs[i] != nil {
			continue
		}
		octets -= before[i].size()
		var made *content
		if made, errs[i] = z.cfg.make(l, files[i], before[i], MaxOctets-octets); errs[i] == nil {
			now[i] = made
		}
		octets += now[i].size()
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	for i, l := range all {
		l.now, l.err = now[i], errs[i]
	}
	return before
}

// version identifies the content of a file; the zero value is that of no file.
type version struct{ info fs.FileInfo }

// isOf reports whether a file has that content. Files that are written one soon after
// the other may have the same time and size.
func (v version) isOf(now fs.FileInfo) bool {
	return v.info != nil && os.SameFile(v.info, now) && v.info.Size() == now.Size() &&
		v.info.ModTime().Equal(now.ModTime())
}

// written is what a file holds; without text if it is unchanged.
type written struct {
	version version
	text    []byte
}

// readFile reads the source's file, if it has one and it changed. Only this has a
// deadline: a large zone may take longer to parse.
func (l *loading) readFile(ctx context.Context, before *content) (*written, error) {
	if l.File == "" {
		return new(written), nil
	}
	known := l.broken.version
	if l.err == nil && before != nil {
		known = before.version
	}
	return l.reader.Do(ctx, deadline.File, "read "+l.File, func() (*written, error) {
		return readUnlessKnown(l.File, known)
	})
}

// make parses a source, of at most maxOctets, or returns before if it is unchanged.
func (c *Config) make(l *loading, file *written, before *content, maxOctets int) (*content, error) {
	switch {
	case l.File == "" && before != nil:
		return before, nil
	case l.File == "":
		return c.parse(l.Source, strings.NewReader(l.Text), maxOctets)
	case file.text == nil && l.err != nil:
		return nil, l.broken.err
	case file.text == nil:
		return before, nil
	}
	made, err := c.parse(l.Source, bytes.NewReader(file.text), maxOctets)
	if bad, ok := errors.AsType[*dnswire.MasterError](err); ok {
		err = fmt.Errorf("%s:%d: %w", l.File, bad.Line, bad.Err)
	}
	if err != nil {
		l.broken = failure{file.version, err}
		return nil, err
	}
	made.version = file.version
	return made, nil
}

// readUnlessKnown reads a file unless it is of the version that is known.
func readUnlessKnown(path string, known version) (*written, error) {
	if info, err := os.Stat(path); err == nil && known.isOf(info) {
		return &written{version: known}, nil
	}
	file, err := deadline.Open(path, deadline.File, deadline.Large)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	return &written{version{file.Stat()}, text}, nil
}

// Check returns the error of a source whose records are text, and how many octets they
// have; used are those of others.
func (c *Config) Check(s Source, used int) (octets int, err error) {
	made, err := c.parse(s, strings.NewReader(s.Text), MaxOctets-used)
	return made.size(), err
}
