// Package zone holds authoritative data and answers lookups in it. It knows
// nothing of Kubernetes: owners contribute records and notes to names, and
// replace what they contributed.
//
// Lookup follows RFC 1034, section 4.3.2, without delegations: an exact match,
// else a denial. Empty non-terminals exist (RFC 4592, section 2.2.2), denials
// carry the zone's SOA (RFC 2308, section 2), and there are no wildcards.
//
// Readers take no lock and allocate nothing. Each name is replaced at once; a
// change costs what its owner contributes, whatever else there is.
package zone

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"portolan.dev/portolan/internal/dnsname"
	"portolan.dev/portolan/internal/dnswire"
)

// DB is the data of a set of zones.
type DB struct {
	table atomic.Pointer[table]
	depth atomic.Int32 // labels of the longest name that was ever there

	mu     sync.Mutex // held by the writer, and by Entries
	zones  []*authority
	owners map[Owner][]*node // by name
}

// authority is a zone: its start of authority, with the serial of the moment.
type authority struct {
	apex    dnsname.Name
	soa     atomic.Pointer[dnswire.SOA]
	touched bool // by the change in hand
}

// ErrDuplicateZone is wrapped by New.
var ErrDuplicateZone = errors.New("zone given twice")

// New makes a DB of zones that hold nothing but their SOA. A zone may lie
// inside another; the inner one has its names.
func New(zones ...dnswire.SOA) (*DB, error) {
	db := &DB{owners: make(map[Owner][]*node)}
	t := newTable(maphash.MakeSeed(), minTable)
	for _, soa := range zones {
		if t.find([]byte(soa.Zone.WireLabels())) != nil {
			return nil, fmt.Errorf("zone %s: %w", soa.Zone, ErrDuplicateZone)
		}
		a := &authority{apex: soa.Zone}
		a.soa.Store(&soa)
		db.zones = append(db.zones, a)
		n := &node{hash: t.hashName(soa.Zone), name: soa.Zone, zone: a}
		n.exists.Store(true)
		t = t.put(n)
		db.deepen(soa.Zone)
	}
	db.table.Store(t)
	return db, nil
}

func (db *DB) deepen(name dnsname.Name) {
	if l := int32(name.Labels()); l > db.depth.Load() {
		db.depth.Store(l)
	}
}

// Change replaces what Owner contributed by Contribution.
type Change struct {
	Owner        Owner
	Contribution Contribution
}

// Apply makes changes, in order. The serial of each zone in which anything is
// seen to change grows by one. Names outside every zone are left out.
func (db *DB) Apply(changes ...Change) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, c := range changes {
		db.replace(c.Owner, c.Contribution.shares)
	}
	for _, z := range db.zones {
		if z.touched {
			z.touched = false
			soa := *z.soa.Load()
			soa.Serial++
			z.soa.Store(&soa)
		}
	}
}

// replace walks the owner's old nodes and new shares, both in order of name.
func (db *DB) replace(owner Owner, shares []share) {
	old := db.owners[owner]
	nodes := make([]*node, 0, len(shares))
	for _, s := range shares {
		for len(old) > 0 && compareLabels(old[0].name, s.name) < 0 {
			db.withdraw(old[0], owner)
			old = old[1:]
		}
		var n *node
		if len(old) > 0 && old[0].name == s.name {
			n, old = old[0], old[1:]
		} else if n = db.ensure(s.name); n == nil {
			continue
		}
		nodes = append(nodes, n)
		db.contribute(n, owner, s.bundle)
	}
	for _, n := range old {
		db.withdraw(n, owner)
	}
	if len(nodes) == 0 {
		delete(db.owners, owner)
		return
	}
	db.owners[owner] = nodes
}

func compareLabels(a, b dnsname.Name) int { return strings.Compare(a.WireLabels(), b.WireLabels()) }

// ensure gives the node of name, made with its ancestors when it is not there,
// or nil when no zone holds it.
func (db *DB) ensure(name dnsname.Name) *node {
	t := db.table.Load()
	if n := t.find([]byte(name.WireLabels())); n != nil {
		return n
	}
	if name.IsRoot() {
		return nil
	}
	parent := db.ensure(name.Parent())
	if parent == nil {
		return nil
	}
	parent.children++
	n := &node{hash: t.hashName(name), name: name, parent: parent, zone: parent.zone}
	db.deepen(name)
	db.table.Store(db.table.Load().put(n))
	return n
}

func (db *DB) contribute(n *node, owner Owner, b *bundle) {
	i, found := n.find(owner)
	switch {
	case !found:
		n.shares = slices.Insert(n.shares, i, ownedShare{owner, b})
	case n.shares[i].bundle.equal(b):
		return
	default:
		n.shares[i].bundle = b
	}
	db.publish(n)
}

func (db *DB) withdraw(n *node, owner Owner) {
	if i, found := n.find(owner); found {
		n.shares = slices.Delete(n.shares, i, i+1)
		db.publish(n)
	}
	db.prune(n)
}

func (n *node) find(owner Owner) (at int, found bool) {
	return slices.BinarySearchFunc(n.shares, owner, func(s ownedShare, o Owner) int {
		return strings.Compare(string(s.owner), string(o))
	})
}

// publish shows readers what n's owners contribute now.
func (db *DB) publish(n *node) {
	var buf [8]*bundle
	bundles := buf[:0]
	for _, s := range n.shares {
		bundles = append(bundles, s.bundle)
	}
	b := merge(n.name, bundles)
	if !n.seen.Load().sameData(b) {
		n.zone.touched = true
	}
	// Readers look at seen before exists, so a name never seems to exist
	// without the records that it exists by.
	if n.existsBy(b) {
		n.seen.Store(b)
		n.settle(true)
	} else {
		n.settle(false)
		n.seen.Store(b)
	}
}

// existsBy tells whether n exists when b is what is contributed to it.
func (n *node) existsBy(b *bundle) bool {
	return n.parent == nil || n.existing > 0 || b != nil && (len(b.sets) > 0 || b.marks != nil && b.marks.Exists)
}

// settle says whether n exists, and so its ancestors.
func (n *node) settle(exists bool) {
	for exists != n.exists.Load() {
		n.exists.Store(exists)
		n = n.parent
		if exists {
			n.existing++
		} else {
			n.existing--
		}
		exists = n.existsBy(n.seen.Load())
	}
}

// prune takes out n, and its ancestors, where nobody needs them.
func (db *DB) prune(n *node) {
	for n.parent != nil && len(n.shares) == 0 && n.children == 0 {
		db.table.Store(db.table.Load().remove(n))
		n.parent.children--
		n = n.parent
	}
}

// Entry is one name and all that is seen of it.
type Entry struct {
	Name   dnsname.Name
	Zone   dnsname.Name // the zone that it is in
	Exists bool
	// SOA is the zone's when the name is its apex.
	SOA   *dnswire.SOA
	Sets  []dnswire.RRset
	Marks Marks
}

// Entries lists every name at one moment, in canonical order. Writers wait
// meanwhile, readers do not.
func (db *DB) Entries() []Entry {
	db.mu.Lock()
	defer db.mu.Unlock()
	t := db.table.Load()
	entries := make([]Entry, 0, t.nodes)
	for n := range t.all {
		e := Entry{Name: n.name, Zone: n.zone.apex, Exists: n.exists.Load()}
		if n.parent == nil {
			e.SOA = n.zone.soa.Load()
		}
		if b := n.seen.Load(); b != nil {
			e.Sets = b.sets
			if b.marks != nil {
				e.Marks = *b.marks
			}
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b Entry) int { return a.Name.Compare(b.Name) })
	return entries
}
