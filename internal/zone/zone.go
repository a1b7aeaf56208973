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
	aged  atomic.Int32 // marks of age that are seen

	mu     sync.Mutex // held by the writer, and by Entries
	zones  []*authority
	owners map[Owner][]*node // by name
}

// authority is a zone: its apex, and its start of authority with the serial of
// the moment.
type authority struct {
	apex    *node
	soa     atomic.Pointer[dnswire.SOA]
	touched bool // by the change in hand
}

// ErrDuplicateZone is wrapped by New.
var ErrDuplicateZone = errors.New("zone given twice")

// New makes a DB of zones that hold nothing but their SOA. A zone may lie
// inside another; the inner one has its names, and the outer one knows that
// they exist.
func New(zones ...dnswire.SOA) (*DB, error) {
	db := &DB{owners: make(map[Owner][]*node)}
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
		n.settle(nil)
		db.zones = append(db.zones, z)
	}
	return db, nil
}

// insert puts a new node into the table.
func (db *DB) insert(n *node) *node {
	t := db.table.Load()
	n.hash = t.hashName(n.name)
	if l := int32(n.name.Labels()); l > db.depth.Load() {
		db.depth.Store(l)
	}
	db.table.Store(t.put(n))
	return n
}

// Change replaces what Owner contributed by Contribution.
type Change struct {
	Owner        Owner
	Contribution Contribution
}

// Apply makes changes. Each name that they touch changes once, so that readers
// see the state before or the state after of it, whoever its owners are. Names
// that come are shown from the deepest up, before names that go: nothing that
// exists before and after is ever denied meanwhile, and the parents' notes come
// behind what they speak of. The serial of each zone in which anything is seen
// to change grows by one. Names outside every zone are left out.
func (db *DB) Apply(changes ...Change) {
	db.mu.Lock()
	defer db.mu.Unlock()
	var touched touchedNodes
	for _, c := range changes {
		db.replace(c.Owner, c.Contribution.shares, &touched)
	}
	touched.deepestFirst(func(n *node) {
		n.next = n.merged()
		if n.next.holds() || n.zone.apex == n {
			db.publish(n)
		}
	})
	touched.deepestFirst(func(n *node) {
		if n.touched { // still: it holds nothing any more
			db.publish(n)
		}
		db.prune(n)
	})
	for _, z := range db.zones {
		if z.touched {
			z.touched = false
			soa := *z.soa.Load()
			soa.Serial++
			z.soa.Store(&soa)
		}
	}
}

// touchedNodes are the nodes whose shares a change touches, by their names'
// number of labels.
type touchedNodes [][]*node

func (t *touchedNodes) add(n *node) {
	if n.touched {
		return
	}
	n.touched = true
	depth := n.name.Labels()
	for len(*t) <= depth {
		*t = append(*t, nil)
	}
	(*t)[depth] = append((*t)[depth], n)
}

func (t touchedNodes) deepestFirst(do func(*node)) {
	for _, nodes := range slices.Backward(t) {
		for _, n := range nodes {
			do(n)
		}
	}
}

// replace walks the owner's old nodes and new shares, both in order of name.
func (db *DB) replace(owner Owner, shares []share, touched *touchedNodes) {
	old := db.owners[owner]
	nodes := make([]*node, 0, len(shares))
	for _, s := range shares {
		for len(old) > 0 && compareLabels(old[0].name, s.name) < 0 {
			old[0].withdraw(owner, touched)
			old = old[1:]
		}
		var n *node
		if len(old) > 0 && old[0].name == s.name {
			n, old = old[0], old[1:]
		} else if n = db.ensure(s.name); n == nil {
			continue
		}
		nodes = append(nodes, n)
		n.contribute(owner, s.bundle, touched)
	}
	for _, n := range old {
		n.withdraw(owner, touched)
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
	if n := db.table.Load().find([]byte(name.WireLabels())); n != nil {
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

func (n *node) contribute(owner Owner, b *bundle, touched *touchedNodes) {
	i, found := n.find(owner)
	switch {
	case !found:
		n.shares = slices.Insert(n.shares, i, ownedShare{owner, b})
	case n.shares[i].bundle.equal(b):
		return
	default:
		n.shares[i].bundle = b
	}
	touched.add(n)
}

func (n *node) withdraw(owner Owner, touched *touchedNodes) {
	if i, found := n.find(owner); found {
		n.shares = slices.Delete(n.shares, i, i+1)
		touched.add(n)
	}
}

func (n *node) find(owner Owner) (at int, found bool) {
	return slices.BinarySearchFunc(n.shares, owner, func(s ownedShare, o Owner) int {
		return strings.Compare(string(s.owner), string(o))
	})
}

// merged is what n's owners contribute now.
func (n *node) merged() *bundle {
	var buf [8]*bundle
	bundles := buf[:0]
	for _, s := range n.shares {
		bundles = append(bundles, s.bundle)
	}
	return merge(n.name, bundles)
}

// publish shows readers n.next.
func (db *DB) publish(n *node) {
	b := n.next
	n.touched, n.next = false, nil
	before := n.seen.Load()
	if !before.sameData(b) {
		n.zone.touched = true
	}
	db.countAged(before, b)
	// Readers look at seen before exists, so a name never seems to exist
	// without the records that it exists by.
	if b.holds() {
		n.seen.Store(b)
		n.settle(b)
	} else {
		n.settle(b)
		n.seen.Store(b)
	}
}

// settle works out whether n exists by what is contributed to it, and so its
// ancestors.
func (n *node) settle(b *bundle) {
	for {
		exists := n.zone.apex == n || n.existing > 0 || b.holds()
		if exists == n.exists.Load() {
			return
		}
		n.exists.Store(exists)
		if n = n.parent; n == nil {
			return
		}
		if exists {
			n.existing++
		} else {
			n.existing--
		}
		b = n.seen.Load()
	}
}

// prune takes out n, and its ancestors, where nobody needs them.
func (db *DB) prune(n *node) {
	for n.zone.apex != n && len(n.shares) == 0 && n.children == 0 && !n.pruned {
		n.pruned = true
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
		e := Entry{Name: n.name, Zone: n.zone.apex.name, Exists: n.exists.Load()}
		if n.zone.apex == n {
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
