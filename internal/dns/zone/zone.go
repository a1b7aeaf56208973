// Package zone holds authoritative data and answers lookups in it. It knows
// nothing of Kubernetes. Its input is subtrees, each below a base name, and
// hosts below a parent name; new input for a name replaces the previous input.
//
//	Builder -> Subtree -+                         +-> Lookup, Addresses
//	           Hosts   -+-> DB.Apply (one writer) -+-> Version, Since (AXFR, IXFR)
//	AXFR, IXFR -> Secondary -+                    +-> Entries, WriteMaster
//
// Lookup follows RFC 1034, section 4.3.2. Delegations and wildcards (RFC 4592)
// are only in zones that allow them; in the others there is an exact match or a denial.
// Empty non-terminals exist (RFC 4592, section 2.2.2),
// denials carry the zone's SOA (RFC 2308, section 2), and stale data is marked
// (RFC 8767). Differences between versions serve RFC 1995.
//
// There is one writer at a time. Readers take no lock and allocate nothing:
// they follow atomic pointers to immutable subtrees and index pages. Each
// subtree is replaced atomically, and so are all PTR records of one change. The
// cost of a change depends on its size only.
package zone

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// DB is the data of a set of zones. Its methods are safe for concurrent use.
type DB struct {
	table      atomic.Pointer[table]
	depths     [2]atomic.Int32 // see depth
	pointers   index[pointer]  // PTR records
	generation atomic.Uint64   // increases when published data changes
	batches    atomic.Uint64   // increases before the first of the data that changes together is published
	staleCount atomic.Int32    // number of published stale marks

	mu      sync.Mutex // held by writers, and by readers that need one version
	zones   []*zoneState
	history history
}

// zoneState is a zone: its apex and its present SOA.
type zoneState struct {
	apex      *node
	soa       atomic.Pointer[dnswire.SOA]
	reverse   bool // the zone can contain reverse names
	wildcards bool // the zone can contain wildcards and delegations
	changed   bool // by the change in progress

	notCurrent   int    // number of published subtrees that are stale or not loaded
	oldestSerial uint32 // the serial since which all changes are remembered
}

// ErrDuplicateZone is wrapped by New.
var ErrDuplicateZone = errors.New("zone given twice")

// New returns a DB of zones that have only their SOA. A zone may lie inside
// another: the names of the inner zone belong to it alone, and to the outer
// zone they exist. New fails with ErrDuplicateZone.
func New(zones ...dnswire.SOA) (*DB, error) { return NewWithWildcards(zones, nil) }

// NewWithWildcards is New with further zones, which may contain wildcards and
// delegations; a lookup in them takes longer. A name other than the apex is
// delegated if its subtree has NS records at the base. Nothing but that subtree may
// have names below it then; its addresses are glue.
func NewWithWildcards(zones, wildcards []dnswire.SOA) (*DB, error) {
	db := new(DB)
	db.table.Store(newTable(maphash.MakeSeed(), minTable))
	outerFirst := slices.SortedStableFunc(slices.Values(slices.Concat(zones, wildcards)), func(a, b dnswire.SOA) int {
		return a.Zone.Labels() - b.Zone.Labels()
	})
	for _, soa := range outerFirst {
		z := new(zoneState)
		z.soa.Store(&soa)
		n := db.ensureNode(soa.Zone)
		switch {
		case n == nil:
			n = db.insertNode(&node{name: soa.Zone})
		case n.zone.apex == n:
			return nil, fmt.Errorf("zone %s: %w", soa.Zone, ErrDuplicateZone)
		}
		z.apex, n.zone = n, z
		z.reverse = canHoldReverse(soa.Zone)
		z.wildcards = slices.ContainsFunc(wildcards, func(g dnswire.SOA) bool { return g.Zone == soa.Zone })
		db.updateExists(n)
		db.zones = append(db.zones, z)
	}
	return db, nil
}

// AllowsWildcards reports whether the zone with that apex can contain wildcards and delegations.
func (db *DB) AllowsWildcards(apex dnsname.Name) bool {
	return slices.ContainsFunc(db.zones, func(z *zoneState) bool { return z.wildcards && z.apex.name == apex })
}

// canHoldReverse reports whether the zone with that apex can contain reverse
// names.
func canHoldReverse(apex dnsname.Name) bool {
	return slices.ContainsFunc([]dnsname.Name{dnsname.ReverseIPv4, dnsname.ReverseIPv6}, func(tree dnsname.Name) bool {
		return apex.IsSubdomainOf(tree) || tree.IsSubdomainOf(apex)
	})
}

// insertNode adds a new node to the table.
func (db *DB) insertNode(n *node) *node {
	depth := db.depth([]byte(n.name.WireLabels()))
	if l := int32(n.name.Labels()); l > depth.Load() {
		depth.Store(l)
	}
	db.table.Store(db.table.Load().insert(n))
	return n
}

// Changes is the input of Apply.
type Changes struct {
	Subtrees []Change
	Hosts    []Hosts
	// SOAs replace those of their zones. The serial of a zone becomes the given
	// one if that is later than the serial it would have otherwise, or if the zone
	// was not loaded, so that nobody has seen its serial.
	SOAs []dnswire.SOA
}

// Change replaces the subtree at Base; nil deletes it.
type Change struct {
	Base    dnsname.Name
	Subtree *Subtree
}

// Apply applies changes. If a base is given twice, the first change counts. No
// two subtrees may contain the same name, nor may a subtree contain the base of
// another or a host from Hosts below another name.
//
// Each subtree changes atomically: readers see its old or its new state.
// Additions are published first, from the deepest name up, then deletions. So a
// name that exists before and after is never denied in between, and the
// metadata of a parent is published after the names that it describes. The
// serial of each zone whose published data changes increases by one. Bases and
// parents outside every zone are ignored.
func (db *DB) Apply(changes Changes) {
	db.mu.Lock()
	defer db.mu.Unlock()
	b := batch{db: db}
	b.plan(changes)
	first := db.beginZones(changes.SOAs)
	b.publishAdditions()
	b.publishRemovals()
	for _, z := range first {
		z.changed = false
		db.forgetChanges(z)
	}
	for _, soa := range changes.SOAs {
		db.replaceSOA(soa)
	}
	for _, z := range db.zones {
		if z.changed {
			z.changed = false
			soa := *z.soa.Load()
			soa.Serial++
			z.soa.Store(&soa)
		}
	}
}

// beginZones replaces the SOAs of the zones that are not loaded, before their data is
// published, and returns these zones.
func (db *DB) beginZones(soas []dnswire.SOA) (first []*zoneState) {
	for _, soa := range soas {
		for _, z := range db.zones {
			if z.apex.name == soa.Zone && z.apex.subtree.Load().pending() {
				z.soa.Store(&soa)
				first = append(first, z)
			}
		}
	}
	return first
}

// replaceSOA replaces the SOA of a zone.
func (db *DB) replaceSOA(soa dnswire.SOA) {
	for _, z := range db.zones {
		if z.apex.name != soa.Zone {
			continue
		}
		now, given := *z.soa.Load(), soa.Serial
		soa.Serial = now.Serial
		if z.changed || soa != now {
			soa.Serial++
		}
		if int32(given-soa.Serial) > 0 { // RFC 1982, section 3.2
			soa.Serial = given
		}
		z.changed = false
		z.soa.Store(&soa)
		db.generation.Add(1)
	}
}

// ensureNode returns the node of name. It creates the node and its ancestors if
// needed, and returns nil if no zone contains the name.
func (db *DB) ensureNode(name dnsname.Name) *node {
	if n := db.findNode(name); n != nil {
		return n
	}
	if name.IsRoot() {
		return nil
	}
	parent := db.ensureNode(name.Parent())
	if parent == nil {
		return nil
	}
	parent.children++
	return db.insertNode(&node{name: name, parent: parent, zone: parent.zone})
}

func (db *DB) findNode(name dnsname.Name) *node {
	var buf [dnsname.MaxWire]byte
	return db.table.Load().find(append(buf[:0], name.WireLabels()...))
}

// publish makes t the subtree of n for readers.
func (db *DB) publish(n *node, t *Subtree) {
	n.changed = false
	before := n.subtree.Load()
	if !before.sameData(t) {
		db.recordChange(n.zone, changeKey{name: n.name}, n.state())
	}
	db.countStale(before, t)
	n.zone.countNotCurrent(before, t)
	n.data = t.hasData() || n.hosts.Load().hasData()
	if !n.data { // see updateExists
		db.updateExists(n)
	}
	n.subtree.Store(t)
	db.generation.Add(1)
	if n.data {
		db.updateExists(n)
	}
}

// hasData reports whether n's own data makes it exist.
func (n *node) hasData() bool { return n.subtree.Load().hasData() || n.hosts.Load().hasData() }

// updateExists updates the existence of n and of its ancestors. Readers go up from a
// name to the first one that exists (see answerWildcard), so names come to exist from
// the deepest up, after the data, and cease to exist from the highest down, before it:
// a reader that starts in between finds the name, or nothing above it that only the
// name makes exist.
func (db *DB) updateExists(n *node) {
	exists, parent := n.zone.apex == n || n.existingChildren > 0 || n.data, n.parent
	if exists == n.exists {
		return
	}
	n.exists = exists
	switch {
	case parent == nil:
	case exists:
		parent.existingChildren++
		parent.nonTerminal.Store(true)
		db.generation.Add(1)
		db.updateExists(parent)
	default:
		parent.existingChildren--
		db.updateExists(parent)
		parent.nonTerminal.Store(parent.existingChildren > 0)
		db.generation.Add(1)
	}
}

// prune removes n and its ancestors from the table if they are not needed.
func (db *DB) prune(n *node) {
	for n.zone.apex != n && n.children == 0 && n.subtree.Load() == nil && n.hosts.Load() == nil && !n.pruned {
		n.pruned = true
		db.table.Store(db.table.Load().remove(n))
		n.parent.children--
		n = n.parent
	}
}
