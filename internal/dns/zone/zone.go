// Package zone holds authoritative data and answers lookups in it. It knows
// nothing of Kubernetes: it is given subtrees, each under its base, and hosts
// below a parent, and what is given anew replaces what was there.
//
// Lookup follows RFC 1034, section 4.3.2, without delegations: an exact match,
// else a denial. Empty non-terminals exist (RFC 4592, section 2.2.2), denials
// carry the zone's SOA (RFC 2308, section 2), and there are no wildcards.
//
// Readers take no lock and allocate nothing. Each subtree is replaced at once,
// and so are all reverse names; a change costs what it is given, whatever else
// there is.
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

// DB is the data of a set of zones.
type DB struct {
	table     atomic.Pointer[table]
	depths    [2]atomic.Int32 // see depth
	pointers  index[pointer]  // PTR records
	published atomic.Uint64   // grows when what readers see changes
	aged      atomic.Int32    // marks of age that are seen

	mu      sync.Mutex // held by the writer, and by who reads one moment
	zones   []*authority
	history history
}

// authority is a zone: its apex, and its start of authority with the serial of
// the moment.
type authority struct {
	apex    *node
	soa     atomic.Pointer[dnswire.SOA]
	reverse bool // reverse names are in it
	touched bool // by the change in hand

	unsettled int    // subtrees that are seen and not settled
	oldest    uint32 // the serial from which on all changes are remembered
}

// ErrDuplicateZone is wrapped by New.
var ErrDuplicateZone = errors.New("zone given twice")

// New makes a DB of zones that hold nothing but their SOA. A zone may lie
// inside another; the inner one has its names, and the outer one knows that
// they exist.
func New(zones ...dnswire.SOA) (*DB, error) {
	db := new(DB)
	db.table.Store(newTable(maphash.MakeSeed(), minTable))
	outerFirst := slices.SortedStableFunc(slices.Values(zones), func(a, b dnswire.SOA) int {
		return a.Zone.Labels() - b.Zone.Labels()
	})
	for _, soa := range outerFirst {
		z := new(authority)
		z.soa.Store(&soa)
		n := db.ensure(soa.Zone)
		switch {
		case n == nil:
			n = db.insert(&node{name: soa.Zone})
		case n.zone.apex == n:
			return nil, fmt.Errorf("zone %s: %w", soa.Zone, ErrDuplicateZone)
		}
		z.apex, n.zone = n, z
		z.reverse = holdsReverse(soa.Zone)
		n.settle()
		db.zones = append(db.zones, z)
	}
	return db, nil
}

// holdsReverse tells whether reverse names are in the zone of that apex.
func holdsReverse(apex dnsname.Name) bool {
	return slices.ContainsFunc([]dnsname.Name{dnsname.ReverseIPv4, dnsname.ReverseIPv6}, func(tree dnsname.Name) bool {
		return apex.IsSubdomainOf(tree) || tree.IsSubdomainOf(apex)
	})
}

// insert puts a new node into the table.
func (db *DB) insert(n *node) *node {
	depth := db.depth([]byte(n.name.WireLabels()))
	if l := int32(n.name.Labels()); l > depth.Load() {
		depth.Store(l)
	}
	db.table.Store(db.table.Load().put(n))
	return n
}

// Changes are what Apply is given.
type Changes struct {
	Subtrees []Change
	Hosts    []Hosts
}

// Change replaces the subtree at Base, by nothing where it is nil.
type Change struct {
	Base    dnsname.Name
	Subtree *Subtree
}

// Apply makes changes. Of a base that is given twice the first change counts.
// No two subtrees may have a name in common, nor a subtree one with the base of
// another, or with a host that is not its own.
//
// Each subtree changes at once, so that readers see the state before or the
// state after of it. Names that come are shown from the deepest up, before
// names that go: nothing that exists before and after is ever denied
// meanwhile, and the parents' notes come behind what they speak of. The serial
// of each zone in which anything is seen to change grows by one. Bases and
// parents outside every zone are left out.
func (db *DB) Apply(changes Changes) {
	db.mu.Lock()
	defer db.mu.Unlock()
	b := batch{db: db}
	b.add(changes)
	b.show()
	b.drop()
	for _, z := range db.zones {
		if z.touched {
			z.touched = false
			soa := *z.soa.Load()
			soa.Serial++
			z.soa.Store(&soa)
		}
	}
}

// ensure gives the node of name, made with its ancestors when it is not there,
// or nil when no zone holds it.
func (db *DB) ensure(name dnsname.Name) *node {
	if n := db.find(name); n != nil {
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
	return db.insert(&node{name: name, parent: parent, zone: parent.zone})
}

func (db *DB) find(name dnsname.Name) *node {
	var buf [dnsname.MaxWire]byte
	return db.table.Load().find(append(buf[:0], name.WireLabels()...))
}

// publish shows readers t at n.
func (db *DB) publish(n *node, t *Subtree) {
	n.touched = false
	before := n.seen.Load()
	if !before.sameData(t) {
		db.touch(n.zone, spot{name: n.name}, n.state())
	}
	db.countAged(before, t)
	n.zone.countUnsettled(before, t)
	n.seen.Store(t)
	n.settle()
	db.published.Add(1)
}

// holds tells whether what is given for n makes it exist.
func (n *node) holds() bool { return n.seen.Load().holds() || n.hosts.Load().holds() }

// settle works out whether n exists, and so its ancestors.
func (n *node) settle() {
	for {
		exists := n.zone.apex == n || n.existing > 0 || n.holds()
		if exists == n.exists {
			return
		}
		n.exists = exists
		if n = n.parent; n == nil {
			return
		}
		if exists {
			n.existing++
		} else {
			n.existing--
		}
		n.nonTerminal.Store(n.existing > 0)
	}
}

// prune takes out n, and its ancestors, where nobody needs them.
func (db *DB) prune(n *node) {
	for n.zone.apex != n && n.children == 0 && n.seen.Load() == nil && n.hosts.Load() == nil && !n.pruned {
		n.pruned = true
		db.table.Store(db.table.Load().remove(n))
		n.parent.children--
		n = n.parent
	}
}
