package nft

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"

	"portolan.dev/portolan/internal/proxy/frontend"
)

// maxBatch is how many elements are in one transaction of a Sync, except that the elements of
// one Frontend are not divided.
const maxBatch = 1 << 13

// bufferSize is the size of the socket's buffers: a batch must fit, and the answers to a new
// table with all its rules.
const bufferSize = 32 << 20

// Table is the nftables tables of a node's frontends. It is for one goroutine.
type Table struct {
	cfg      Config
	conn     *nftables.Conn
	socket   *netlink.Conn
	families map[Family]*family
}

// family is what the kernel has of one family.
type family struct {
	Family
	table   *nftables.Table
	entries map[frontend.Address]*entry
	// addresses and clusterIPs count the entries at an address.
	addresses, clusterIPs map[netip.Addr]int
	hairpins              map[netip.Addr]struct{}
	cidrs                 []netip.Prefix
}

// New returns a Table. It changes nothing.
func New(cfg Config) *Table {
	cfg.Name, cfg.Mark = cmp.Or(cfg.Name, DefaultName), cmp.Or(cfg.Mark, DefaultMark)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Table{cfg: cfg}
}

// open opens the socket.
func (t *Table) open() error {
	if t.conn != nil {
		return nil
	}
	keep := func(socket *netlink.Conn) error {
		t.socket = socket
		// What is not permitted is not needed for small clusters.
		_ = socket.SetReadBuffer(bufferSize)
		_ = socket.SetWriteBuffer(bufferSize)
		return nil
	}
	conn, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(keep))
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	t.conn = conn
	return nil
}

// Close closes the socket. What is in the kernel stays.
func (t *Table) Close() error {
	if t.conn == nil {
		return nil
	}
	conn := t.conn
	t.conn, t.socket = nil, nil
	return conn.CloseLasting()
}

// Sync has the kernel hold s, whatever it holds, and returns how many elements it changed.
// Only differences are changed.
func (t *Table) Sync(s *frontend.State) (changed int, err error) {
	defer func() {
		if err != nil {
			_ = t.Close()
			err = tableError(t.cfg.Name, err)
		}
	}()
	if err := t.open(); err != nil {
		return 0, err
	}
	t.families = make(map[Family]*family)
	for _, f := range t.cfg.Families {
		n, err := t.syncFamily(f, s)
		changed += n
		if err != nil {
			return changed, err
		}
	}
	return changed, nil
}

func (t *Table) syncFamily(of Family, s *frontend.State) (changed int, err error) {
	table := &nftables.Table{Name: t.cfg.Name, Family: nftables.TableFamily(of.nfproto())}
	l := &layout{Config: t.cfg, family: of, table: table}
	before, err := t.adopt(l)
	if err != nil {
		return 0, err
	}
	f := newFamily(of, table)
	b := &batch{name: t.cfg.Name}
	flush := func() error {
		changed += b.elements
		err := b.commit(t.socket)
		b = &batch{name: t.cfg.Name}
		return err
	}
	wanted := make(map[identity]struct{})
	compare := func(elements []element) {
		var missing, wrong []element
		for _, e := range elements {
			wanted[identity{e.set, e.key}] = struct{}{}
			switch was, there := before.elements[e.set][e.key]; {
			case !there:
				missing = append(missing, e)
			case was != e:
				wrong, missing = append(wrong, was), append(missing, e)
			}
		}
		b.edit(of, deletion, wrong)
		b.edit(of, addition, missing)
	}
	for _, front := range s.Frontends {
		if FamilyOf(front.Addr) != of {
			continue
		}
		e := newEntry(front, before.entry(front.Address))
		compare(f.put(e))
		if b.elements >= maxBatch {
			if err := flush(); err != nil {
				return changed, err
			}
		}
	}
	compare(f.setHairpins(s.Hairpins))
	compare(f.setCIDRs(s.ServiceCIDRs))
	for _, name := range setNames {
		var gone []element
		for key, e := range before.elements[name] {
			if _, ok := wanted[identity{name, key}]; !ok {
				gone = append(gone, e)
			}
		}
		b.edit(of, deletion, gone)
	}
	if err := flush(); err != nil {
		return changed, err
	}
	t.families[of] = f
	return changed, nil
}

// identity identifies an element in a family.
type identity struct {
	set setName
	key string
}

// Apply applies changes in one transaction, and returns how many elements it changed. After
// an error Sync must be called.
func (t *Table) Apply(c *frontend.Changes) (changed int, err error) {
	if t.socket == nil {
		return 0, tableError(t.cfg.Name, errors.New("not open"))
	}
	b := &batch{name: t.cfg.Name}
	for _, of := range t.cfg.Families {
		removed, added := t.families[of].change(c)
		b.edit(of, deletion, removed)
		b.edit(of, addition, added)
	}
	if err := b.commit(t.socket); err != nil {
		_ = t.Close()
		return 0, tableError(t.cfg.Name, err)
	}
	return b.elements, nil
}

// marker returns the name of a chain without rules that says which layout the table has.
func (l *layout) marker() (string, error) {
	h := fnv.New64a()
	for _, c := range l.chains() {
		fmt.Fprintln(h, c.name)
		for _, r := range c.rules {
			for _, e := range r {
				data, err := expr.Marshal(l.family.nfproto(), e)
				if err != nil {
					return "", fmt.Errorf("chain %s: %w", c.name, err)
				}
				h.Write(data)
			}
			fmt.Fprintln(h)
		}
	}
	for _, name := range setNames {
		fmt.Fprintln(h, name, l.family.newSet(l.table, name).KeyType.Name)
	}
	return fmt.Sprintf("layout-%x", h.Sum64()), nil
}

// adopt reads the table if it has the layout; otherwise it creates it without elements.
func (t *Table) adopt(l *layout) (kernel, error) {
	marker, err := l.marker()
	if err != nil {
		return kernel{}, err
	}
	there, err := t.has(l, marker)
	if err != nil {
		return kernel{}, err
	}
	if there {
		return t.read(l)
	}
	return kernel{}, t.create(l, marker)
}

// has reports whether the table has the layout that marker stands for.
func (t *Table) has(l *layout, marker string) (bool, error) {
	if err := t.limit(); err != nil {
		return false, err
	}
	chains, err := t.conn.ListChainsOfTableFamily(l.table.Family)
	if err != nil {
		return false, err
	}
	n, marked := 0, false
	for _, c := range chains {
		if c.Table.Name == l.table.Name {
			n++
			marked = marked || c.Name == marker
		}
	}
	return marked && n == len(l.chains())+1, nil
}

// create creates the table without elements, and deletes the one before.
func (t *Table) create(l *layout, marker string) error {
	if err := t.limit(); err != nil {
		return err
	}
	// Deleting a table that does not exist fails.
	t.conn.AddTable(l.table)
	t.conn.DelTable(l.table)
	t.conn.AddTable(l.table)
	var sets []*nftables.Set
	for _, name := range setNames {
		set := l.family.newSet(l.table, name)
		if err := t.conn.AddSet(set, nil); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
		sets = append(sets, set)
	}
	for _, c := range l.chains() {
		made := &nftables.Chain{Name: c.name, Table: l.table}
		if c.base != nil {
			made.Type, made.Hooknum, made.Priority = c.base.Type, c.base.Hooknum, c.base.Priority
		}
		t.conn.AddChain(made)
		for _, r := range c.rules {
			t.conn.AddRule(&nftables.Rule{Table: l.table, Chain: made, Exprs: withIDs(r, sets)})
		}
	}
	t.conn.AddChain(&nftables.Chain{Name: marker, Table: l.table})
	return t.conn.Flush()
}

// withIDs returns expressions that find sets of the same transaction.
func withIDs(rule []expr.Any, sets []*nftables.Set) []expr.Any {
	for _, e := range rule {
		if l, ok := e.(*expr.Lookup); ok {
			i := slices.IndexFunc(sets, func(s *nftables.Set) bool { return s.Name == l.SetName })
			l.SetID = sets[i].ID
		}
	}
	return rule
}

func (t *Table) limit() error { return t.socket.SetDeadline(time.Now().Add(answerWithin)) }

func newFamily(of Family, table *nftables.Table) *family {
	return &family{
		Family: of, table: table, entries: make(map[frontend.Address]*entry),
		addresses: make(map[netip.Addr]int), clusterIPs: make(map[netip.Addr]int),
		hairpins: make(map[netip.Addr]struct{}),
	}
}

// put records e and returns its elements.
func (f *family) put(e *entry) []element {
	f.entries[e.Address] = e
	all := e.appendTo(nil)
	for _, s := range f.sets(e) {
		if s.count[e.Addr]++; s.count[e.Addr] == 1 {
			all = append(all, element{set: s.name, key: padded(e.Addr)})
		}
	}
	return all
}

// delete forgets e and returns its elements.
func (f *family) delete(e *entry) []element {
	delete(f.entries, e.Address)
	all := e.appendTo(nil)
	for _, s := range f.sets(e) {
		if s.count[e.Addr]--; s.count[e.Addr] == 0 {
			delete(s.count, e.Addr)
			all = append(all, element{set: s.name, key: padded(e.Addr)})
		}
	}
	return all
}

// counted is a set of addresses, and how many entries have each.
type counted struct {
	name  setName
	count map[netip.Addr]int
}

// sets returns the sets of addresses that e is in.
func (f *family) sets(e *entry) []counted {
	all := []counted{{setAddresses, f.addresses}}
	if e.Policy == frontend.Plain {
		all = append(all, counted{setClusterIPs, f.clusterIPs})
	}
	return all
}

// change applies changes to the family's record and returns the elements to remove and to
// add.
func (f *family) change(c *frontend.Changes) (removed, added []element) {
	for _, a := range c.Delete {
		if e := f.entries[a]; e != nil {
			removed = append(removed, f.delete(e)...)
		}
	}
	for _, front := range c.Put {
		if FamilyOf(front.Addr) != f.Family {
			continue
		}
		before := f.entries[front.Address]
		if before != nil {
			removed = append(removed, f.delete(before)...)
		}
		added = append(added, f.put(newEntry(front, before))...)
	}
	if len(c.Hairpins) > 0 {
		now := maps.Clone(f.hairpins)
		for a, there := range c.Hairpins {
			if there {
				now[a] = struct{}{}
			} else {
				delete(now, a)
			}
		}
		r, a := difference(f.hairpinElements(), f.setHairpins(slices.Collect(maps.Keys(now))))
		removed, added = append(removed, r...), append(added, a...)
	}
	if c.ServiceCIDRs != nil {
		before := f.cidrElements()
		removed, added = append(removed, before...), append(added, f.setCIDRs(c.ServiceCIDRs)...)
	}
	return difference(removed, added)
}

// difference drops the elements that are removed and added again.
func difference(removed, added []element) (_, _ []element) {
	was := make(map[element]struct{}, len(removed))
	for _, e := range removed {
		was[e] = struct{}{}
	}
	kept := make(map[element]struct{})
	added = slices.DeleteFunc(added, func(e element) bool {
		_, ok := was[e]
		if ok {
			kept[e] = struct{}{}
		}
		return ok
	})
	removed = slices.DeleteFunc(removed, func(e element) bool {
		_, ok := kept[e]
		return ok
	})
	return removed, added
}

func (f *family) setHairpins(all []netip.Addr) []element {
	clear(f.hairpins)
	for _, a := range all {
		if FamilyOf(a) == f.Family {
			f.hairpins[a] = struct{}{}
		}
	}
	return f.hairpinElements()
}

func (f *family) hairpinElements() (all []element) {
	for a := range f.hairpins {
		all = append(all, element{set: setHairpin, key: padded(a) + padded(a)})
	}
	return all
}

func (f *family) setCIDRs(all []netip.Prefix) []element {
	f.cidrs = slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool { return FamilyOf(p.Addr()) != f.Family })
	return f.cidrElements()
}

// cidrElements returns the first address of each range, and the first behind it. Ranges that
// overlap are joined.
func (f *family) cidrElements() (all []element) {
	for _, p := range joined(f.cidrs) {
		all = append(all, element{set: setServiceCIDRs, key: padded(p.first)})
		if behind := p.last.Next(); behind.IsValid() {
			all = append(all, element{set: setServiceCIDRs, key: padded(behind), isEnd: true})
		}
	}
	return all
}

// interval is a range of addresses, both ends inclusive.
type interval struct{ first, last netip.Addr }

// joined returns the prefixes as disjoint intervals that do not touch, in order.
func joined(prefixes []netip.Prefix) (all []interval) {
	for _, p := range slices.SortedFunc(slices.Values(prefixes), func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) }) {
		first, last := bounds(p)
		if n := len(all); n > 0 && (all[n-1].last.Compare(first) >= 0 || all[n-1].last.Next() == first) {
			if all[n-1].last.Less(last) {
				all[n-1].last = last
			}
			continue
		}
		all = append(all, interval{first, last})
	}
	return all
}
