// Package ipam gives the Pods of a node their addresses, one of each family out of the node's podCIDRs
// (Kubernetes API, NodeSpec.podCIDRs), and records which attachment has which (CNI specification 1.1.0,
// section 2, "Deletion": a plugin undoes what it did from what it remembers).
//
//	Assign ──► band: an address ──► record on disk ──► Record
//	             ▲                      │
//	             └── Reuse is over ◄── tombstone on disk ◄── Release
//
// A record is a file that replaces the one before by a rename, so that a crash leaves the old or the new one.
// Records are those of a boot: no Pod's sandbox survives a reboot.
//
// Of an IPv4 range the first and the last address are given to nobody, since hosts take them for the network
// and its broadcast address (RFC 1122, section 3.2.1.3), but for ranges of two addresses (RFC 3021) and of one.
// Of an IPv6 range it is the first, the Subnet-Router anycast address (RFC 4291, section 2.6.1), with the same
// exceptions (RFC 6164). There is no gateway in the range: all others are the Pods'.
package ipam

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/support/statefile"
)

// Config configures a Pool.
type Config struct {
	// Dir has the records. It is made if there is none. One process has it open at a time; the caller sees to
	// that.
	Dir string
	// Ranges are the node's podCIDRs, at most one of each family; see Pool.SetRanges.
	Ranges []netip.Prefix
	// Reuse is how long a released address is given to no other Pod while another one is free.
	Reuse time.Duration
	// Now is the clock; time.Now if it is nil.
	Now func() time.Time
	Log *slog.Logger
}

// ErrNoRanges is returned by Assign while the node has no podCIDR.
var ErrNoRanges = errors.New("the node has no podCIDR: have the controller manager allocate them " +
	"(--allocate-node-cidrs), or run portolan controller nodes")

// ExhaustedError says that Pods have all addresses of a range.
type ExhaustedError struct {
	Range netip.Prefix
	Used  int
}

func (e *ExhaustedError) Error() string {
	return fmt.Sprintf("no address is free in %s, the node's podCIDR: %d Pods have one; lower the kubelet's maxPods, "+
		"or give nodes larger podCIDRs", e.Range, e.Used)
}

// Pool is the addresses of a node. Its methods are safe for concurrent use.
type Pool struct {
	cfg   Config
	store store

	mu      sync.Mutex
	records map[attach.ID]Record
	ended   map[attach.ID]struct{} // of records: see Ended
	owners  map[netip.Addr]attach.ID
	tombs   tombs
	bands   []*band // at most one of each family, IPv4 first
}

// Open returns a Pool with the records of this boot. It sets aside records that it cannot read, and logs them.
// Of two records with one address the older keeps it, and the other is logged: what has to be undone for its
// Pod is recorded still.
func Open(cfg Config) (*Pool, error) {
	boot, err := statefile.Boot()
	if err != nil {
		return nil, fmt.Errorf("records of addresses: %w", err)
	}
	return open(cfg, &directory{path: cfg.Dir, boot: boot, log: cfg.Log})
}

func open(cfg Config, from store) (*Pool, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	stored, err := from.load()
	if err != nil {
		return nil, fmt.Errorf("records of addresses: %w", err)
	}
	p := &Pool{
		cfg: cfg, store: from,
		records: make(map[attach.ID]Record), ended: make(map[attach.ID]struct{}),
		owners: make(map[netip.Addr]attach.ID), tombs: newTombs(),
	}
	if err := p.restore(stored); err != nil {
		return nil, err
	}
	return p, p.SetRanges(cfg.Ranges)
}

// restore inserts what was recorded.
func (p *Pool) restore(stored []entry) error {
	now := p.cfg.Now()
	slices.SortFunc(stored, entry.compare)
	for _, e := range stored {
		if !e.Released.IsZero() {
			if e.Released.After(now) { // the clock was set back
				e.Released = now
			}
			p.tombs.insert(tomb{e.ID, e.Addresses, e.Released})
			continue
		}
		own := make([]netip.Addr, 0, len(e.Addresses))
		for _, addr := range e.Addresses {
			if owner, taken := p.owners[addr]; taken {
				p.cfg.Log.Warn("two Pods have one address, which the older one keeps",
					"address", addr, "pod", p.records[owner].Pod(), "other", e.Pod())
				continue
			}
			p.owners[addr] = e.ID
			own = append(own, addr)
		}
		if len(own) < len(e.Addresses) {
			e.Addresses = own
			if err := p.store.write(e); err != nil {
				return fmt.Errorf("record that Pod %s has no longer the address of another: %w", e.Pod(), err)
			}
		}
		p.records[e.ID] = e.Record
		if e.ended {
			p.ended[e.ID] = struct{}{}
		}
	}
	return nil
}

// SetRanges replaces the ranges out of which Assign gives addresses. Records keep theirs.
func (p *Pool) SetRanges(ranges []netip.Prefix) error {
	if err := checkRanges(ranges); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var bands []*band
	for _, r := range ranges {
		r = r.Masked()
		if i := slices.IndexFunc(p.bands, func(b *band) bool { return b.prefix == r }); i >= 0 {
			bands = append(bands, p.bands[i])
			continue
		}
		bands = append(bands, p.newBand(r))
	}
	slices.SortFunc(bands, func(a, b *band) int { return a.prefix.Addr().Compare(b.prefix.Addr()) })
	p.bands = bands
	return nil
}

func checkRanges(ranges []netip.Prefix) error {
	for i, r := range ranges {
		if !r.IsValid() || r.Addr().Is4In6() {
			return fmt.Errorf("podCIDR %q is no range of addresses", r)
		}
		for _, other := range ranges[:i] {
			if other.Addr().Is4() == r.Addr().Is4() {
				return fmt.Errorf("the podCIDRs %s and %s are of one family", other, r)
			}
		}
	}
	return nil
}

// newBand returns a band in which the addresses of records are used, and those of tombstones are held back. It
// goes on after the newest of them.
func (p *Pool) newBand(r netip.Prefix) *band {
	b := newBand(r)
	var newest time.Time
	for _, record := range p.records {
		for _, addr := range record.Addresses {
			if !b.contains(addr) {
				continue
			}
			b.used++
			if record.Created.After(newest) {
				newest = record.Created
				b.startAfter(addr)
			}
		}
	}
	for t := range p.tombs.all() {
		for _, addr := range t.addresses {
			if _, used := p.owners[addr]; !used && b.contains(addr) {
				b.release(released{addr, t.id, t.released})
			}
		}
	}
	return b
}

// Assign gives an attachment one address of each family that has a range, and records it: the record is on disk
// when Assign returns. The attachment keeps addresses that it has, and gets those again that were released last
// under its ID, while they are free. Addresses and Created of r are ignored. The error is ErrNoRanges, an
// *ExhaustedError, or that of the disk; the attachment is as before then.
func (p *Pool) Assign(r Record) (Record, error) {
	if err := r.Validate(); err != nil {
		return Record{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Now()
	before, again := p.records[r.ID]
	r = r.clone()
	r.Created, r.Addresses = now, slices.Clone(before.Addresses)
	if again {
		r.Created = before.Created
	}
	if len(p.bands) == 0 && len(r.Addresses) == 0 {
		return Record{}, ErrNoRanges
	}
	var taken []*band
	for _, b := range p.bands {
		if slices.ContainsFunc(r.Addresses, func(a netip.Addr) bool { return a.Is4() == b.prefix.Addr().Is4() }) {
			continue
		}
		addr, ok := p.pick(b, r.ID, now)
		if !ok {
			return Record{}, &ExhaustedError{Range: b.prefix, Used: b.used}
		}
		r.Addresses, taken = append(r.Addresses, addr), append(taken, b)
	}
	slices.SortFunc(r.Addresses, netip.Addr.Compare)
	if err := p.store.write(entry{Record: r}); err != nil {
		return Record{}, fmt.Errorf("record the addresses of Pod %s: %w", r.Pod(), err)
	}
	p.insert(r, taken)
	p.expire(now)
	return r.clone(), nil
}

// pick returns a free address of a band: the one that the attachment had, or the next.
func (p *Pool) pick(b *band, id attach.ID, now time.Time) (netip.Addr, bool) {
	for _, addr := range p.tombs.of(id) {
		if b.isFree(addr) && b.releasedBy(addr) == id {
			return addr, true
		}
	}
	return b.next(now.Add(-p.cfg.Reuse), func(addr netip.Addr) bool {
		_, used := p.owners[addr]
		return used
	})
}

// insert inserts a record that is on disk, with addresses that are taken out of bands.
func (p *Pool) insert(r Record, taken []*band) {
	p.tombs.remove(r.ID) // its file is that of the record now
	delete(p.ended, r.ID)
	p.records[r.ID] = r
	for _, addr := range r.Addresses {
		p.owners[addr] = r.ID
		for _, b := range taken {
			if b.contains(addr) {
				b.take(addr)
			}
		}
	}
}

// Release ends an attachment, whose addresses are held back from then on. One that is unknown has ended before.
func (p *Pool) Release(id attach.ID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, ok := p.records[id]
	if !ok {
		if err := p.store.settle(id); err != nil {
			p.cfg.Log.Warn("the record of an attachment that ended before is not settled", "attachment", id, "err", err)
		}
		return nil
	}
	now := p.cfg.Now()
	if err := p.bury(r, now); err != nil {
		return fmt.Errorf("record that Pod %s has no address: %w", r.Pod(), err)
	}
	delete(p.records, id)
	delete(p.ended, id)
	for _, addr := range r.Addresses {
		delete(p.owners, addr)
		for _, b := range p.bands {
			if b.contains(addr) {
				b.used--
				b.release(released{addr, id, now})
			}
		}
	}
	p.expire(now)
	return nil
}

// bury replaces a record by its tombstone. Where there is no room for one it removes the record: a Pod's end must
// not fail, and a full disk is no reason to keep the addresses.
func (p *Pool) bury(r Record, now time.Time) error {
	err := p.store.write(entry{Record: r, Released: now})
	if err == nil {
		p.tombs.insert(tomb{r.ID, r.Addresses, now})
		return nil
	}
	if removed := p.store.remove(r.ID); removed != nil {
		return errors.Join(err, removed)
	}
	p.cfg.Log.Warn("addresses of a Pod that ended are not held back after a restart", "pod", r.Pod(), "err", err)
	return nil
}

// expire removes the files of the oldest tombstones. Each Assign and Release makes at most one tombstone, so
// that two are enough.
func (p *Pool) expire(now time.Time) {
	for range 2 {
		t, ok := p.tombs.oldest()
		if !ok || now.Sub(t.released) < p.cfg.Reuse {
			return
		}
		p.tombs.remove(t.id)
		if err := p.store.remove(t.id); err != nil {
			p.cfg.Log.Warn("the record of a Pod that ended stays", "err", err)
		}
	}
}

// Get returns the record of an attachment.
func (p *Pool) Get(id attach.ID) (Record, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, ok := p.records[id]
	return r.clone(), ok
}

// All returns the records, in order of their IDs.
func (p *Pool) All() []Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]Record, 0, len(p.records))
	for _, r := range p.records {
		all = append(all, r.clone())
	}
	slices.SortFunc(all, func(a, b Record) int { return compareIDs(a.ID, b.ID) })
	return all
}

// Ended returns the IDs of attachments that ended while no process had the directory open: whose file had the suffix
// ".ended" behind its name. They have their records and addresses until they are released.
func (p *Pool) Ended() []attach.ID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.ended))
}

// HasEnded reports whether an attachment is one of Ended now.
func (p *Pool) HasEnded(id attach.ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ended := p.ended[id]
	return ended
}

// Stats is the state of a range.
type Stats struct {
	Range netip.Prefix
	// Size is how many Pods can have an address of the range, at most 1<<64 - 1.
	Size uint64
	// Used is how many have one.
	Used int
	// HeldBack is how many addresses were released less than Reuse ago.
	HeldBack int
}

// Stats returns the state of each range, IPv4 first.
func (p *Pool) Stats() []Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]Stats, 0, len(p.bands))
	until := p.cfg.Now().Add(-p.cfg.Reuse)
	for _, b := range p.bands {
		all = append(all, Stats{Range: b.prefix, Size: b.size, Used: b.used, HeldBack: b.heldBack(until)})
	}
	return all
}
