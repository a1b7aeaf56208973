package zone

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// secondaryUpdate is one change of a Secondary's zone.
type secondaryUpdate struct {
	*Secondary
	replace bool // data not given is deleted
	// nodes are the names that get a node, in addition to those that have one:
	// bases and their ancestors.
	nodes map[dnsname.Name]bool
	keep  map[dnsname.Name]bool // bases to keep, if replace is set

	changes      Changes
	pointers     []delta[pointer]
	pointerAddrs map[netip.Addr]bool // addresses whose PTR records are given, if replace is set
}

// run is all records at one name.
type nameRecords struct {
	name    dnsname.Name
	records []TransferRecord
	base    dnsname.Name // the base of the subtree that contains the name
}

func (u *secondaryUpdate) run(soa dnswire.SOA, runs []nameRecords) error {
	if soa.Zone != u.zone.apex.name {
		return fmt.Errorf("SOA record of %s in zone %s: %w", soa.Zone, u.zone.apex.name, ErrTransferRecord)
	}
	u.db.mu.Lock()
	defer u.db.mu.Unlock()
	runs, err := u.extractPointers(runs)
	if err != nil {
		return err
	}
	if err := u.assignBases(runs); err != nil {
		return err
	}
	slices.SortFunc(runs, func(a, b nameRecords) int { return cmp.Compare(a.base.WireLabels(), b.base.WireLabels()) })
	for len(runs) > 0 {
		n := 1
		for n < len(runs) && runs[n].base == runs[0].base {
			n++
		}
		if err := u.compile(runs[0].base, runs[:n]); err != nil {
			return err
		}
		runs = runs[n:]
	}
	if u.replace {
		u.removeMissing()
	}
	u.apply(soa)
	return nil
}

// apply publishes the changes. It cannot fail.
func (u *secondaryUpdate) apply(soa dnswire.SOA) {
	b := batch{db: u.db}
	b.plan(u.changes)
	b.pointers = append(b.pointers, u.pointers...)
	b.publishAdditions()
	b.publishRemovals()
	u.zone.changed = false
	u.zone.soa.Store(&soa)
}

// extractPointers turns the records at reverse names of addresses into deltas
// and returns the other runs.
func (u *secondaryUpdate) extractPointers(runs []nameRecords) (rest []nameRecords, err error) {
	if !u.zone.reverse || u.zone.wildcards {
		return runs, nil
	}
	u.pointerAddrs = make(map[netip.Addr]bool)
	rest = runs[:0]
	for _, r := range runs {
		addr, ok := u.pointerAddr(r.name)
		if !ok {
			rest = append(rest, r)
			continue
		}
		u.pointerAddrs[addr] = true
		if err := u.updatePointers(addr, r); err != nil {
			return nil, err
		}
	}
	if u.replace {
		for addr, old := range u.db.pointers.all {
			if !u.pointerAddrs[addr] && u.db.zoneOf(addr) == u.zone {
				u.pointers = appendDeltas(u.pointers, addr, old, true)
			}
		}
	}
	return rest, nil
}

func appendDeltas(deltas []delta[pointer], addr netip.Addr, of []pointer, gone bool) []delta[pointer] {
	for _, p := range of {
		deltas = append(deltas, delta[pointer]{addr, p, gone})
	}
	return deltas
}

// updatePointers adds the deltas that make r the PTR records of addr.
func (u *secondaryUpdate) updatePointers(addr netip.Addr, r nameRecords) error {
	if u.db.zoneOf(addr) != u.zone {
		return fmt.Errorf("%s: %w", r.name, ErrTransferRecord)
	}
	first := make(map[dnsname.Name]bool)
	for _, it := range r.records {
		if it.Type == TypeMetadata {
			marked, err := parsePointerMetadata(it.RData)
			if err != nil {
				return fmt.Errorf("%s: %w: %w", r.name, ErrTransferRecord, err)
			}
			first[marked] = true
		}
	}
	made := make([]pointer, 0, len(r.records))
	for _, it := range r.records {
		if it.Type == TypeMetadata {
			continue
		}
		target, taken, err := dnsname.FromWire(it.RData)
		if it.Type != dnswire.TypePTR || err != nil || taken != len(it.RData) || len(made) > 0 && it.TTL != made[0].ttl {
			return fmt.Errorf("%s: %w", r.name, ErrTransferRecord)
		}
		p := pointer{base: target, ttl: it.TTL, rank: Tier(0, First)}
		if len(first) > 0 && !first[target] {
			p.rank = Tier(0, Last)
		}
		if host, ok := parseHostLabel([]byte(target.WireLabels())[:firstLabelLen(target)]); ok && host == addr {
			p.base, p.host = target.Parent(), true
		}
		if n := u.db.findNode(p.base); n != nil {
			p.base = n.name // shares the memory of the name
		}
		made = append(made, p)
	}
	old := u.db.pointers.find(addr)
	if slices.EqualFunc(old, made, pointer.Equal) {
		return nil
	}
	u.pointers = appendDeltas(u.pointers, addr, made, false)
	u.pointers = appendDeltas(u.pointers, addr, old, true)
	return nil
}

// firstLabelLen returns the length of a name's first label in wire form, with
// its length octet.
func firstLabelLen(n dnsname.Name) int {
	if n.IsRoot() {
		return 0
	}
	return 1 + len(n.Label())
}

// assignBases finds the subtree of each run: that of the nearest name with a
// node. Names with metadata have a node, and so do parents of hosts.
func (u *secondaryUpdate) assignBases(runs []nameRecords) error {
	u.addNode(u.zone.apex.name)
	for i := range runs {
		r := &runs[i]
		if !r.name.IsSubdomainOf(u.zone.apex.name) {
			return fmt.Errorf("%s is not in %s: %w", r.name, u.zone.apex.name, ErrTransferRecord)
		}
		switch _, host := r.host(); {
		case slices.ContainsFunc(r.records, isMetadata):
			u.addNode(r.name)
		case host && len(r.records) > 0 && r.name != u.zone.apex.name:
			u.addNode(r.name.Parent())
		}
	}
	for i := range runs {
		r := &runs[i]
		for r.base = r.name; !u.hasNode(r.base); {
			r.base = r.base.Parent()
		}
	}
	return u.checkNodes()
}

func isMetadata(it TransferRecord) bool { return it.Type == TypeMetadata }

// addNode records that name, which is in the zone, gets a node.
func (u *secondaryUpdate) addNode(name dnsname.Name) {
	for !u.nodes[name] {
		u.nodes[name] = true
		if name == u.zone.apex.name {
			return
		}
		name = name.Parent()
	}
}

func (u *secondaryUpdate) hasNode(name dnsname.Name) bool {
	return u.nodes[name] || !u.replace && u.db.findNode(name) != nil
}

// checkNodes rejects new nodes that would hide names of the subtree above them.
// The metadata of a name must come with its records or before them.
func (u *secondaryUpdate) checkNodes() error {
	for name := range u.nodes {
		wire := []byte(name.WireLabels())
		n, at, _ := u.db.closestNode(wire)
		if u.replace || n == nil || at == 0 {
			continue
		}
		if t := n.subtree.Load(); t != nil && t.hasBelow(wire[:at]) {
			return fmt.Errorf("metadata at %s, which already has records: %w", name, ErrTransferRecord)
		}
	}
	return nil
}

// hasBelow reports whether t has a name that ends with labels.
func (t *Subtree) hasBelow(labels []byte) bool {
	for i := range int(t.names) {
		if name, _ := t.name(i); endsWithLabels(name, labels) {
			return true
		}
	}
	addr, ok := parseHostLabel(labels)
	return ok && t.hasHost(addr)
}

// endsWithLabels reports whether name, in wire form, ends with the labels of
// end.
func endsWithLabels(name, end []byte) bool {
	for len(name) > len(end) {
		name = name[1+name[0]:]
	}
	return bytes.Equal(name, end)
}

// host returns the address that r's name spells. ok reports whether r can be a
// host: it has that address and nothing else, or it has been deleted.
func (r *nameRecords) host() (addr netip.Addr, ok bool) {
	addr, ok = parseHostLabel([]byte(r.name.WireLabels())[:firstLabelLen(r.name)])
	if !ok || len(r.records) == 0 {
		return addr, ok
	}
	k := keyOf(addr)
	it := &r.records[0]
	return addr, len(r.records) == 1 && it.Type == addrType(addr) && bytes.Equal(it.RData, k.octets())
}

// compile builds the subtree and the hosts of a base from its runs.
func (u *secondaryUpdate) compile(base dnsname.Name, runs []nameRecords) error {
	n := u.db.findNode(base)
	var before *Subtree
	var hosts *hosts
	if n != nil {
		before, hosts = n.subtree.Load(), n.hosts.Load()
	}
	if u.replace {
		u.keep[base] = true
		before = nil
	}
	if (before == nil || before.names+before.hosts4+before.hosts6 == 0) && onlyHosts(base, runs) {
		u.compileHosts(base, hosts, runs)
		runs = slices.DeleteFunc(slices.Clone(runs), func(r nameRecords) bool { return r.name != base })
		hosts = nil
	}
	made, err := u.subtree(base, before, hosts, runs)
	if err != nil {
		return err
	}
	u.removeHosts(base, hosts)
	if n == nil || !n.subtree.Load().equal(made) {
		u.changes.Subtrees = append(u.changes.Subtrees, Change{base, made})
	}
	return nil
}

// onlyHosts reports whether all runs below base are hosts and base has metadata
// only. Then its hosts change one by one.
func onlyHosts(base dnsname.Name, runs []nameRecords) bool {
	for i := range runs {
		r := &runs[i]
		if r.name == base {
			if slices.ContainsFunc(r.records, func(it TransferRecord) bool { return !isMetadata(it) }) {
				return false
			}
			continue
		}
		if _, ok := r.host(); !ok || r.name.Parent() != base {
			return false
		}
	}
	return true
}

// compileHosts makes each host of base a source of its own, so that hosts
// change one by one.
func (u *secondaryUpdate) compileHosts(base dnsname.Name, present *hosts, runs []nameRecords) {
	given := make(map[string]bool, len(runs))
	for i := range runs {
		r := &runs[i]
		if r.name == base {
			continue
		}
		h := Hosts{Parent: base, Source: r.name.Label()}
		given[h.Source] = true
		if addr, _ := r.host(); len(r.records) > 0 {
			h.Addrs, h.TTL = []netip.Addr{addr}, r.records[0].TTL
		}
		u.changes.Hosts = append(u.changes.Hosts, h)
	}
	if present == nil || !u.replace {
		return
	}
	for source := range present.sources {
		if !given[source] {
			u.changes.Hosts = append(u.changes.Hosts, Hosts{Parent: base, Source: source})
		}
	}
}

// removeHosts removes the hosts of base that are sources of their own.
func (u *secondaryUpdate) removeHosts(base dnsname.Name, present *hosts) {
	if present == nil {
		return
	}
	for source := range present.sources {
		u.changes.Hosts = append(u.changes.Hosts, Hosts{Parent: base, Source: source})
	}
}

// removeMissing removes the bases that are not given.
func (u *secondaryUpdate) removeMissing() {
	for n := range u.db.table.Load().all {
		if n.zone != u.zone || u.keep[n.name] {
			continue
		}
		if n.subtree.Load() != nil {
			u.changes.Subtrees = append(u.changes.Subtrees, Change{n.name, nil})
		}
		u.removeHosts(n.name, n.hosts.Load())
	}
}
