package zone

import (
	"fmt"
	"net/netip"
	"slices"
	"unsafe"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// History bounds what a DB remembers of all zones' changes. Its zero value is
// nothing.
type HistoryLimits struct {
	Changes int   // how many: of subtrees, of hosts, and of reverse names
	Octets  int64 // that they take in memory, about
}

// history is what changed, in order.
type history struct {
	limit  HistoryLimits
	all    []past
	octets int64
}

// past is something that changed, as it was before: the node of a name, one host
// of it, or the reverse name of an address.
type past struct {
	zone   *authority
	serial uint32 // of the zone, before
	what   spot
	was    state
}

// spot is what of a zone changes at once.
type spot struct {
	name dnsname.Name // of a node
	addr netip.Addr   // of a host below it or, where the name is the root, of a reverse name
}

// state is what is there at a moment.
type state struct {
	subtree  *Subtree  // of a node
	parent   bool      // a node that has hosts
	host     bool      // a host
	ttl      uint32    // its own
	pointers []pointer // of a reverse name
}

// Remember has db remember changes from now on. What it remembers already it keeps
// where the bounds are the same.
func (db *DB) SetHistoryLimits(h HistoryLimits) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if h == db.history.limit && h != (HistoryLimits{}) {
		return
	}
	db.history = history{limit: h}
	for _, z := range db.zones {
		z.oldest = z.soa.Load().Serial
	}
}

// Remembered is how many changes are remembered now, and about how many octets
// they take.
func (db *DB) HistorySize() (changes int, octets int64) {
	db.mu.Lock()
	defer db.mu.Unlock()
	return len(db.history.all), db.history.octets
}

// touch notes that something of a zone changes, and what was there.
func (db *DB) touch(z *authority, what spot, was state) {
	z.touched = true
	h, serial := &db.history, z.soa.Load().Serial
	if h.limit == (HistoryLimits{}) {
		z.oldest = serial + 1
		return
	}
	was.pointers = slices.Clone(was.pointers) // of a page that others are in
	p := past{z, serial, what, was}
	h.all = append(h.all, p)
	h.octets += p.size()
	for len(h.all) > h.limit.Changes || h.octets > h.limit.Octets {
		oldest := &h.all[0]
		h.octets -= oldest.size()
		oldest.zone.oldest = oldest.serial + 1
		*oldest = past{}
		h.all = h.all[1:]
	}
}

func (p *past) size() int64 {
	size := unsafe.Sizeof(*p) + uintptr(len(p.was.pointers))*unsafe.Sizeof(pointer{})
	if p.was.subtree != nil {
		size += unsafe.Sizeof(*p.was.subtree) + uintptr(len(p.was.subtree.data))
	}
	return int64(size)
}

// state is what is seen of n.
func (n *node) state() state {
	return state{subtree: n.seen.Load(), parent: n.hosts.Load().holds()}
}

// now is what is there now.
func (db *DB) now(what spot) (s state) {
	if what.name.IsRoot() && what.addr.IsValid() {
		return state{pointers: db.pointers.find(what.addr)}
	}
	n := db.find(what.name)
	switch {
	case n == nil:
		return state{}
	case !what.addr.IsValid():
		return n.state()
	}
	if h := n.hosts.Load(); h != nil {
		if ttls := h.ttls.find(what.addr); len(ttls) > 0 {
			s = state{host: true, ttl: uint32(ttls[0])}
		}
	}
	return s
}

// Difference is what changed in a zone between two moments. It does not change.
type Difference struct {
	// From and To are the zone's SOA at the one and at the other.
	From, To dnswire.SOA

	changed []changed
}

type changed struct {
	what          spot
	before, after state
}

// Since gives what changed in a zone since it had that serial.
func (db *DB) Since(apex dnsname.Name, serial uint32) (*Difference, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	z, err := db.settled(apex)
	if err != nil {
		return nil, err
	}
	d := &Difference{From: *z.soa.Load(), To: *z.soa.Load()}
	d.From.Serial = serial
	// Serials are numbers on a circle (RFC 1982).
	age := d.To.Serial - serial
	if age > d.To.Serial-z.oldest {
		return nil, fmt.Errorf("zone %s, serial %d: %w", apex, serial, ErrHistory)
	}
	at := make(map[spot]int)
	for _, p := range slices.Backward(db.history.all) {
		if p.zone != z {
			continue
		}
		if d.To.Serial-p.serial > age {
			break
		}
		i, ok := at[p.what]
		if !ok {
			i = len(d.changed)
			at[p.what] = i
			d.changed = append(d.changed, changed{what: p.what, after: db.now(p.what)})
		}
		d.changed[i].before = p.was // the earliest is the last to come
	}
	return d, nil
}

// Octets is about how many octets the records that went and came take in a transfer;
// no fewer than in fact, where parts of what changed stay.
func (d *Difference) Octets() (n int64) {
	for i := range d.changed {
		for _, s := range [...]*state{&d.changed[i].before, &d.changed[i].after} {
			b := base{subtree: s.subtree}
			n += b.octets() + ownedOctets*int64(len(s.pointers))
		}
	}
	return n
}

// Records are those that went and those that came, in order. Of an RRset that
// changed these are the records that differ; all of them where its TTL does.
// Where only the order changed there is nothing.
func (d *Difference) Records(detail Detail) (gone, come []OwnedRRset) {
	var allGone, allCome []ownedRecord
	for i := range d.changed {
		c := &d.changed[i]
		g, n := compareRecords(
			flatten(func(yield func(OwnedRRset) bool) bool { return c.before.records(c.what, detail, yield) }),
			flatten(func(yield func(OwnedRRset) bool) bool { return c.after.records(c.what, detail, yield) }))
		allGone, allCome = append(allGone, g...), append(allCome, n...)
	}
	slices.SortFunc(allGone, ownedRecord.compare)
	slices.SortFunc(allCome, ownedRecord.compare)
	return join(allGone), join(allCome)
}

// records yields what a state makes at its place.
func (s *state) records(what spot, d Detail, yield func(OwnedRRset) bool) (more bool) {
	switch {
	case what.addr.IsValid() && what.name.IsRoot():
		return pointerRecords(what.addr, s.pointers, d, yield)
	case what.addr.IsValid():
		return !s.host || yield(hostRecord(what.name, what.addr, s.ttl))
	case s.subtree.sameData(nil) && !s.parent:
		return true
	}
	b := base{name: what.name, subtree: s.subtree}
	return b.records(d, yield)
}
