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

// updating is one change of a Copy.
type updating struct {
	*Secondary
	whole bool // what is not given goes
	// nodes are the names that will have a node, beside those that have: bases
	// and their ancestors.
	nodes map[dnsname.Name]bool
	kept  map[dnsname.Name]bool // bases that stay, when whole

	changes  Changes
	pointers []delta[pointer]
	named    map[netip.Addr]bool // addresses whose pointers are given, when whole
}

// run is what stands at one name.
type run struct {
	name  dnsname.Name
	items []TransferRecord
	home  dnsname.Name // the base of the subtree that it belongs to
}

func (u *updating) update(soa dnswire.SOA, runs []run) error {
	if soa.Zone != u.zone.apex.name {
		return fmt.Errorf("start of authority of %s in %s: %w", soa.Zone, u.zone.apex.name, ErrTransferRecord)
	}
	u.db.mu.Lock()
	defer u.db.mu.Unlock()
	runs, err := u.takePointers(runs)
	if err != nil {
		return err
	}
	if err := u.findHomes(runs); err != nil {
		return err
	}
	slices.SortFunc(runs, func(a, b run) int { return cmp.Compare(a.home.WireLabels(), b.home.WireLabels()) })
	for len(runs) > 0 {
		n := 1
		for n < len(runs) && runs[n].home == runs[0].home {
			n++
		}
		if err := u.compile(runs[0].home, runs[:n]); err != nil {
			return err
		}
		runs = runs[n:]
	}
	if u.whole {
		u.dropOthers()
	}
	u.apply(soa)
	return nil
}

// apply makes the changes; from here on nothing fails.
func (u *updating) apply(soa dnswire.SOA) {
	b := batch{db: u.db}
	b.add(u.changes)
	b.pointers = append(b.pointers, u.pointers...)
	b.show()
	b.drop()
	u.zone.touched = false
	u.zone.soa.Store(&soa)
}

// takePointers takes out the reverse names of addresses.
func (u *updating) takePointers(runs []run) (rest []run, err error) {
	if !u.zone.reverse {
		return runs, nil
	}
	u.named = make(map[netip.Addr]bool)
	rest = runs[:0]
	for _, r := range runs {
		addr, ok := u.pointerAddr(r.name)
		if !ok {
			rest = append(rest, r)
			continue
		}
		u.named[addr] = true
		if err := u.point(addr, r); err != nil {
			return nil, err
		}
	}
	if u.whole {
		for addr, old := range u.db.pointers.all {
			if !u.named[addr] && u.db.zoneOf(addr) == u.zone {
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

// point has the reverse name of addr point to what is said in r.
func (u *updating) point(addr netip.Addr, r run) error {
	if u.db.zoneOf(addr) != u.zone {
		return fmt.Errorf("%s: %w", r.name, ErrTransferRecord)
	}
	first := make(map[dnsname.Name]bool)
	for _, it := range r.items {
		if it.Type == TypeMetadata {
			marked, err := parsePointerMarks(it.RData)
			if err != nil {
				return fmt.Errorf("%s: %w: %w", r.name, ErrTransferRecord, err)
			}
			first[marked] = true
		}
	}
	made := make([]pointer, 0, len(r.items))
	for _, it := range r.items {
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
		if host, ok := hostSpelled([]byte(target.WireLabels())[:firstLabel(target)]); ok && host == addr {
			p.base, p.host = target.Parent(), true
		}
		if n := u.db.find(p.base); n != nil {
			p.base = n.name // which is kept once
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

// firstLabel is the length of a name's first label in wire form.
func firstLabel(n dnsname.Name) int {
	if n.IsRoot() {
		return 0
	}
	return 1 + len(n.Label())
}

// findHomes finds the subtree that each run belongs to: that of the nearest name
// that has a node. Names with marks have one, and those with hosts below them.
func (u *updating) findHomes(runs []run) error {
	u.addNode(u.zone.apex.name)
	for i := range runs {
		r := &runs[i]
		if !r.name.IsSubdomainOf(u.zone.apex.name) {
			return fmt.Errorf("%s is not in %s: %w", r.name, u.zone.apex.name, ErrTransferRecord)
		}
		switch _, host := r.host(); {
		case slices.ContainsFunc(r.items, isMarks):
			u.addNode(r.name)
		case host && len(r.items) > 0 && r.name != u.zone.apex.name:
			u.addNode(r.name.Parent())
		}
	}
	for i := range runs {
		r := &runs[i]
		for r.home = r.name; !u.hasNode(r.home); {
			r.home = r.home.Parent()
		}
	}
	return u.checkNodes()
}

func isMarks(it TransferRecord) bool { return it.Type == TypeMetadata }

// addNode notes that name, in the zone, will have a node.
func (u *updating) addNode(name dnsname.Name) {
	for !u.nodes[name] {
		u.nodes[name] = true
		if name == u.zone.apex.name {
			return
		}
		name = name.Parent()
	}
}

func (u *updating) hasNode(name dnsname.Name) bool {
	return u.nodes[name] || !u.whole && u.db.find(name) != nil
}

// checkNodes refuses nodes that would hide names of the subtree above them: what
// marks a name comes with it, or before.
func (u *updating) checkNodes() error {
	for name := range u.nodes {
		wire := []byte(name.WireLabels())
		n, at, _ := u.db.closest(wire)
		if u.whole || n == nil || at == 0 {
			continue
		}
		if t := n.seen.Load(); t != nil && t.hasBelow(wire[:at]) {
			return fmt.Errorf("marks at %s, which has records already: %w", name, ErrTransferRecord)
		}
	}
	return nil
}

// hasBelow tells whether t has names at labels below its base, or below that.
func (t *Subtree) hasBelow(labels []byte) bool {
	for i := range int(t.names) {
		if name, _ := t.name(i); endsWithLabels(name, labels) {
			return true
		}
	}
	addr, ok := hostSpelled(labels)
	return ok && t.hasHost(addr)
}

// endsWithLabels tells whether name, in wire form, ends with the labels of end.
func endsWithLabels(name, end []byte) bool {
	for len(name) > len(end) {
		name = name[1+name[0]:]
	}
	return bytes.Equal(name, end)
}

// host is the address that r's name spells, if r can be a host: it has that
// address and nothing else, or nothing any more.
func (r *run) host() (addr netip.Addr, ok bool) {
	addr, ok = hostSpelled([]byte(r.name.WireLabels())[:firstLabel(r.name)])
	if !ok || len(r.items) == 0 {
		return addr, ok
	}
	k := keyOf(addr)
	it := &r.items[0]
	return addr, len(r.items) == 1 && it.Type == addrType(addr) && bytes.Equal(it.RData, k.octets())
}

// compile makes the subtree and the hosts at a base, of which runs are given.
func (u *updating) compile(base dnsname.Name, runs []run) error {
	n := u.db.find(base)
	var before *Subtree
	var hosts *hosts
	if n != nil {
		before, hosts = n.seen.Load(), n.hosts.Load()
	}
	if u.whole {
		u.kept[base] = true
		before = nil
	}
	if (before == nil || before.names+before.hosts4+before.hosts6 == 0) && onlyHosts(base, runs) {
		u.compileHosts(base, hosts, runs)
		runs = slices.DeleteFunc(slices.Clone(runs), func(r run) bool { return r.name != base })
		hosts = nil
	}
	made, err := u.subtree(base, before, hosts, runs)
	if err != nil {
		return err
	}
	u.dropHosts(base, hosts)
	if n == nil || !n.seen.Load().equal(made) {
		u.changes.Subtrees = append(u.changes.Subtrees, Change{base, made})
	}
	return nil
}

// onlyHosts tells whether hosts are all that is said below base, and marks all
// that is said of itself: then its hosts come and go one by one.
func onlyHosts(base dnsname.Name, runs []run) bool {
	for i := range runs {
		r := &runs[i]
		if r.name == base {
			if slices.ContainsFunc(r.items, func(it TransferRecord) bool { return !isMarks(it) }) {
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

// compileHosts has the hosts of base come and go one by one: each is a source
// of its own.
func (u *updating) compileHosts(base dnsname.Name, present *hosts, runs []run) {
	given := make(map[string]bool, len(runs))
	for i := range runs {
		r := &runs[i]
		if r.name == base {
			continue
		}
		h := Hosts{Parent: base, Source: r.name.Label()}
		given[h.Source] = true
		if addr, _ := r.host(); len(r.items) > 0 {
			h.Addrs, h.TTL = []netip.Addr{addr}, r.items[0].TTL
		}
		u.changes.Hosts = append(u.changes.Hosts, h)
	}
	if present == nil || !u.whole {
		return
	}
	for source := range present.sources {
		if !given[source] {
			u.changes.Hosts = append(u.changes.Hosts, Hosts{Parent: base, Source: source})
		}
	}
}

// dropHosts takes from base those hosts that came one by one.
func (u *updating) dropHosts(base dnsname.Name, present *hosts) {
	if present == nil {
		return
	}
	for source := range present.sources {
		u.changes.Hosts = append(u.changes.Hosts, Hosts{Parent: base, Source: source})
	}
}

// dropOthers takes out the bases that are not given.
func (u *updating) dropOthers() {
	for n := range u.db.table.Load().all {
		if n.zone != u.zone || u.kept[n.name] {
			continue
		}
		if n.seen.Load() != nil {
			u.changes.Subtrees = append(u.changes.Subtrees, Change{n.name, nil})
		}
		u.dropHosts(n.name, n.hosts.Load())
	}
}
