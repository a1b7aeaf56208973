package zone

import (
	"fmt"
	"net/netip"
	"slices"
	"unsafe"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// HistoryLimits bounds the changes that a DB remembers for incremental
// transfers (RFC 1995), over all zones. The zero value remembers none.
type HistoryLimits struct {
	Changes int   // number of changes of subtrees, hosts and reverse names
	Octets  int64 // memory that they take, approximately
}

// history is a journal of changes, oldest first.
type history struct {
	limit  HistoryLimits
	all    []pastChange
	octets int64
}

// pastChange is one change, with the state before it.
type pastChange struct {
	zone   *zoneState
	serial uint32 // of the zone, before the change
	key    changeKey
	before state
}

// changeKey identifies what changed: the node of a name, one host below a node,
// or the reverse name of an address.
type changeKey struct {
	name dnsname.Name // of a node
	addr netip.Addr   // of a host below it or, if name is the root, of a reverse name
}

// state is the data at a changeKey at one time.
type state struct {
	subtree  *Subtree  // of a node
	parent   bool      // the node has hosts
	host     bool      // the host exists
	ttl      uint32    // of the host, in seconds
	pointers []pointer // of a reverse name
}

// SetHistoryLimits sets the limits and enables the journal. It discards
// remembered changes if the limits differ from those in force.
func (db *DB) SetHistoryLimits(h HistoryLimits) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if h == db.history.limit && h != (HistoryLimits{}) {
		return
	}
	db.history = history{limit: h}
	for _, z := range db.zones {
		z.oldestSerial = z.soa.Load().Serial
	}
}

// HistorySize returns how many changes are remembered and how many octets of
// memory they take, approximately.
func (db *DB) HistorySize() (changes int, octets int64) {
	db.mu.Lock()
	defer db.mu.Unlock()
	return len(db.history.all), db.history.octets
}

// recordChange marks the zone as changed and appends the state before the
// change to the journal. It drops the oldest entries over the limits.
func (db *DB) recordChange(z *zoneState, what changeKey, was state) {
	z.changed = true
	h, serial := &db.history, z.soa.Load().Serial
	if h.limit == (HistoryLimits{}) {
		z.oldestSerial = serial + 1
		return
	}
	was.pointers = slices.Clone(was.pointers) // a copy, so that the page of the index can be freed
	p := pastChange{z, serial, what, was}
	h.all = append(h.all, p)
	h.octets += p.size()
	for len(h.all) > h.limit.Changes || h.octets > h.limit.Octets {
		oldest := &h.all[0]
		h.octets -= oldest.size()
		oldest.zone.oldestSerial = oldest.serial + 1
		*oldest = pastChange{}
		h.all = h.all[1:]
	}
}

// forgetChanges makes the present version of a zone the oldest one that is remembered.
func (db *DB) forgetChanges(z *zoneState) {
	z.oldestSerial = z.soa.Load().Serial
	h := &db.history
	h.all = slices.DeleteFunc(h.all, func(p pastChange) bool {
		if p.zone == z {
			h.octets -= p.size()
		}
		return p.zone == z
	})
}

func (p *pastChange) size() int64 {
	size := unsafe.Sizeof(*p) + uintptr(len(p.before.pointers))*unsafe.Sizeof(pointer{})
	if p.before.subtree != nil {
		size += unsafe.Sizeof(*p.before.subtree) + uintptr(len(p.before.subtree.data))
	}
	return int64(size)
}

// state returns the published state of n.
func (n *node) state() state {
	return state{subtree: n.subtree.Load(), parent: n.hosts.Load().hasData()}
}

// currentState returns the state of what now.
func (db *DB) currentState(what changeKey) (s state) {
	if what.name.IsRoot() && what.addr.IsValid() {
		return state{pointers: db.pointers.find(what.addr)}
	}
	n := db.findNode(what.name)
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

// Difference is the difference between two versions of a zone (RFC 1995,
// section 4). It is immutable.
type Difference struct {
	// From and To are the zone's SOA in the older and in the newer version.
	From, To dnswire.SOA

	states []changedState
}

type changedState struct {
	key           changeKey
	before, after state
}

// Since returns the difference between the version of a zone with the given
// serial and the present one. Errors wrap ErrNoZone, ErrNotCurrent or
// ErrHistory.
func (db *DB) Since(apex dnsname.Name, serial uint32) (*Difference, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	z, err := db.currentZone(apex)
	if err != nil {
		return nil, err
	}
	d := &Difference{From: *z.soa.Load(), To: *z.soa.Load()}
	d.From.Serial = serial
	// Serial arithmetic is modulo 2^32 (RFC 1982).
	age := d.To.Serial - serial
	if age > d.To.Serial-z.oldestSerial {
		return nil, fmt.Errorf("zone %s, serial %d: %w", apex, serial, ErrHistory)
	}
	at := make(map[changeKey]int)
	for _, p := range slices.Backward(db.history.all) {
		if p.zone != z {
			continue
		}
		if d.To.Serial-p.serial > age {
			break
		}
		i, ok := at[p.key]
		if !ok {
			i = len(d.states)
			at[p.key] = i
			d.states = append(d.states, changedState{key: p.key, after: db.currentState(p.key)})
		}
		d.states[i].before = p.before // iteration is backward: the earliest state wins
	}
	return d, nil
}

// Octets estimates how many octets the deleted and added records take in a
// transfer. It never estimates too low, but counts unchanged parts of changed
// subtrees.
func (d *Difference) Octets() (n int64) {
	for i := range d.states {
		for _, s := range [...]*state{&d.states[i].before, &d.states[i].after} {
			b := base{subtree: s.subtree}
			n += b.octets() + recordOctets*int64(len(s.pointers))
		}
	}
	return n
}

// Records returns the deleted and the added records, in order. Of a changed
// RRset these are the records that differ, or all of them if its TTL changed. A
// change of order alone gives none.
func (d *Difference) Records(detail Detail) (deleted, added []OwnedRRset) {
	var allDeleted, allAdded []ownedRecord
	for i := range d.states {
		c := &d.states[i]
		g, n := compareRecords(
			flatten(func(yield func(OwnedRRset) bool) bool { return c.before.records(c.key, detail, yield) }),
			flatten(func(yield func(OwnedRRset) bool) bool { return c.after.records(c.key, detail, yield) }))
		allDeleted, allAdded = append(allDeleted, g...), append(allAdded, n...)
	}
	slices.SortFunc(allDeleted, ownedRecord.compare)
	slices.SortFunc(allAdded, ownedRecord.compare)
	return joinRRsets(allDeleted), joinRRsets(allAdded)
}

// records yields the RRsets of a state.
func (s *state) records(what changeKey, d Detail, yield func(OwnedRRset) bool) (more bool) {
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
