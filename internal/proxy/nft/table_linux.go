package nft

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"

	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/support/nfnetlink"
)

// maxBatch is how many elements are in one transaction of a Sync, except that the elements of
// one Frontend are not divided.
const maxBatch = 1 << 13

// bufferSize is the size of the socket's buffers: a batch must fit, and the answers to a new
// table with all its rules.
const bufferSize = 32 << 20

// probeSuffix is added to the name of a table that shows what the kernel has, see probe.
const probeSuffix = "-probe"

// Table is the nftables tables of a node's frontends. It is for one goroutine, except Watch.
type Table struct {
	cfg      Config
	conn     *nftables.Conn // nil when closed
	socket   *netlink.Conn  // that of conn
	families []*family
	plain    bool // the kernel has no tables that are owned and persist
	probed   bool // so plain is known
	listener nfnetlink.Listener
	// verified are the families whose table the socket owns and nobody changed.
	verified map[Family]bool
}

// family is a family's table.
type family struct {
	layout
	*record
	chains map[string]struct{} // that are there
	kept   int                 // how many there were after prune
}

// maxUnused is how many chains there are at most that no Frontend uses any more, about.
const maxUnused = 256

// New returns a Table. It changes nothing.
func New(cfg Config) *Table {
	return &Table{cfg: cfg.withDefaults(), verified: make(map[Family]bool)}
}

func (c Config) withDefaults() Config {
	c.Name, c.Mark = cmp.Or(c.Name, DefaultName), cmp.Or(c.Mark, DefaultMark)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Configure changes the settings; the next Sync follows them. The tables go on being owned. No Watch
// may run.
func (t *Table) Configure(cfg Config) {
	t.cfg = cfg.withDefaults()
	clear(t.verified)
}

// open opens the socket, unless it is open.
func (t *Table) open() error {
	if t.conn != nil {
		return nil
	}
	keep := func(socket *netlink.Conn) error {
		t.socket = socket
		// Without the right to large buffers, small clusters still work.
		_ = socket.SetReadBuffer(bufferSize)
		_ = socket.SetWriteBuffer(bufferSize)
		return nil
	}
	conn, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(keep))
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	if err := t.listener.Ignore(t.socket, 0); err != nil {
		_ = conn.CloseLasting()
		return err
	}
	t.conn = conn
	return nil
}

// limit sets the deadline for the kernel's answers.
func (t *Table) limit() error { return t.socket.SetDeadline(time.Now().Add(nfnetlink.AnswerWithin)) }

// Close closes the sockets. What is in the kernel stays. Watch must have returned.
func (t *Table) Close() error {
	t.disconnect()
	t.listener.Close()
	return nil
}

// disconnect closes the socket of transactions, which owns the tables.
func (t *Table) disconnect() {
	if t.conn == nil {
		return
	}
	_ = t.conn.CloseLasting()
	t.conn, t.socket = nil, nil
	clear(t.verified)
}

// Watch reports on notices, which has room for one, what other programs did to the tables since the last Sync
// began and from then on, until ctx is done; it returns nil then, and at once if the tables are owned. After
// an error, changes may have been missed: after the next Sync Watch can be called again.
func (t *Table) Watch(ctx context.Context, notices chan<- Notice) error {
	return t.listener.Watch(ctx, t.cfg.Name, notices)
}

// Sync has the kernel hold s, whatever it holds, and returns how many elements it changed.
// Only differences are changed. If the tables have another layout, others serve until they are
// replaced.
func (t *Table) Sync(s *frontend.State) (changed int, err error) {
	defer func() {
		if err != nil {
			t.disconnect()
			err = tableError(t.cfg.Name, err)
		}
	}()
	if err := t.open(); err != nil {
		return 0, err
	}
	if err := t.probe(); err != nil {
		return 0, err
	}
	if t.plain { // nobody else can change tables that are owned
		if err := t.listener.Listen(); err != nil {
			return 0, err
		}
	}
	t.families = nil
	for _, of := range t.cfg.Families {
		f := &family{layout: t.layout(of), record: newRecord(of, t.cfg.Counters)}
		n, err := t.sync(f, s)
		changed += n
		if err != nil {
			return changed, err
		}
		t.families = append(t.families, f)
	}
	return changed, nil
}

func (t *Table) layout(of Family) layout {
	return layout{
		Config: t.cfg,
		family: of,
		table:  &nftables.Table{Name: t.cfg.Name, Family: nftables.TableFamily(of.nfproto())},
	}
}

// sync is Sync for a family.
func (t *Table) sync(f *family, s *frontend.State) (changed int, err error) {
	is, chains, err := t.inspect(&f.layout)
	if err != nil {
		return 0, err
	}
	bridge := t
	if is == outdated {
		cfg := t.cfg
		cfg.Name, cfg.Families = cfg.Name+bridgeSuffix, []Family{f.Family}
		bridge = New(cfg)
		bridge.plain, bridge.probed = t.plain, t.probed
		defer bridge.Close()
		if _, err := bridge.Sync(s); err != nil {
			return 0, err
		}
	}
	before := kernel{}
	if is == current {
		before, err = t.read(&f.layout)
	} else {
		err = t.create(&f.layout)
		chains = make(map[string]struct{})
	}
	if err != nil {
		return 0, err
	}
	f.chains = chains
	filler := &filler{table: t, family: f, before: before}
	if changed, err = filler.fill(s); err != nil {
		return changed, err
	}
	if err := t.prune(f); err != nil {
		return changed, err
	}
	return changed, bridge.removeBridges(f.Family, t.cfg.Name)
}

// filler brings the elements of a family from what they are to what they should be.
type filler struct {
	table   *Table
	family  *family
	before  kernel // less its elements that are wanted
	batch   batch
	last    []element // that are to be added after all others
	changed int
}

// fill compares everything. Addresses whose other ports are refused come last, when all of
// their ports are there.
func (f *filler) fill(s *frontend.State) (changed int, err error) {
	f.batch.name = f.table.cfg.Name
	for _, n := range f.before.remembered {
		f.family.groups.remember(n)
	}
	for _, front := range s.Frontends {
		if FamilyOf(front.Addr) != f.family.Family {
			continue
		}
		before, had := f.before.entry(front.Address)
		e, elements := f.family.put(front, before, had)
		if err := f.table.ensure(f.family, e); err != nil {
			return f.changed, err
		}
		f.compareSources(e)
		f.compare(elements)
		if err := f.flush(maxBatch); err != nil {
			return f.changed, err
		}
	}
	f.compare(f.family.setHairpins(s.Hairpins))
	if err := f.edit(addition, f.last); err != nil {
		return f.changed, err
	}
	f.compareCIDRs(s.ServiceCIDRs)
	if err := f.removeRest(); err != nil {
		return f.changed, err
	}
	return f.changed, f.flush(0)
}

// compareSources adds to the batch the removal of the ranges of sources that e does not have, since
// they may overlap with those that it has.
func (f *filler) compareSources(e *entry) {
	wanted := make(map[element]struct{})
	for _, w := range e.sourceElements() {
		wanted[w] = struct{}{}
	}
	var gone []element
	for _, was := range f.before.sources[destination(e.Address)] {
		if _, ok := wanted[was]; !ok {
			gone = append(gone, was)
			delete(f.before.elements[setSourceRanges], was.key)
		}
	}
	f.batch.edit(f.family.Family, deletion, gone)
}

// compareCIDRs adds to the batch what makes the ranges of cluster IPs be the ones that are there.
func (f *filler) compareCIDRs(all []netip.Prefix) {
	before, wanted := f.before.elements[setServiceCIDRs], f.family.setCIDRs(all)
	delete(f.before.elements, setServiceCIDRs) // removeRest has none to remove
	same := len(before) == len(wanted)
	for _, e := range wanted {
		same = same && before[e.id()] == e
	}
	if !same {
		f.batch.replace(f.family.Family, setServiceCIDRs, len(before), wanted)
	}
}

// compare adds to the batch what makes the elements be there.
func (f *filler) compare(elements []element) {
	var missing, wrong []element
	for _, e := range elements {
		was, there := f.before.elements[e.set][e.key]
		delete(f.before.elements[e.set], e.key)
		switch {
		case there && was == e:
			continue
		case there:
			wrong = append(wrong, was)
		case e.set == setClusterIPs || e.set == setAddresses:
			f.last = append(f.last, e)
			continue
		}
		missing = append(missing, e)
	}
	f.batch.edit(f.family.Family, deletion, wrong)
	f.batch.edit(f.family.Family, addition, missing)
}

// removeRest removes all elements that are left of those before, set by set.
func (f *filler) removeRest() error {
	for _, name := range f.family.setNames() {
		gone := slices.Collect(maps.Values(f.before.elements[name]))
		if err := f.edit(deletion, gone); err != nil {
			return err
		}
	}
	return nil
}

// edit adds a change of elements to the batch, and commits whenever that is large.
func (f *filler) edit(op operation, elements []element) error {
	for part := range slices.Chunk(elements, maxBatch) {
		f.batch.edit(f.family.Family, op, part)
		if err := f.flush(maxBatch); err != nil {
			return err
		}
	}
	return nil
}

// flush commits the batch if it has more than the given number of elements.
func (f *filler) flush(above int) error {
	if f.batch.elements <= above {
		return nil
	}
	f.changed += f.batch.elements
	err := f.batch.Commit(f.table.socket)
	f.batch.reset()
	return err
}

// errClosed is returned by Apply before Sync, and after an error.
var errClosed = errors.New("Sync must be called first")

// Apply applies changes, and returns how many elements it changed. It takes one transaction, or
// several if there are very many; each Frontend is changed by one. After an error Sync must be
// called.
func (t *Table) Apply(c *frontend.Changes) (changed int, err error) {
	if t.conn == nil {
		return 0, tableError(t.cfg.Name, errClosed)
	}
	for part := range t.parts(c, maxBatch) {
		n, err := t.apply(part)
		changed += n
		if err != nil {
			t.disconnect()
			return changed, tableError(t.cfg.Name, err)
		}
	}
	for _, f := range t.families {
		if len(f.chains) <= f.kept+maxUnused {
			continue
		}
		if err := t.prune(f); err != nil {
			t.disconnect()
			return changed, tableError(t.cfg.Name, err)
		}
	}
	return changed, nil
}

// apply applies changes in one transaction.
func (t *Table) apply(c *frontend.Changes) (changed int, err error) {
	b := &batch{name: t.cfg.Name}
	for _, f := range t.families {
		d := f.change(c)
		if err := t.ensure(f, d.entries...); err != nil {
			return 0, err
		}
		b.edit(f.Family, deletion, d.removed)
		b.edit(f.Family, addition, d.added)
		if d.newCIDRs {
			b.replace(f.Family, setServiceCIDRs, d.oldCIDRs, f.cidrElements())
		}
	}
	return b.elements, b.Commit(t.socket)
}

// parts divides changes into ones of about the given number of elements each, or one Frontend. What
// is put comes before what is deleted, so that a group of session affinity that goes on always has
// somebody who uses it; the ports of a cluster IP are put together, since others are refused.
func (t *Table) parts(c *frontend.Changes, most int) iter.Seq[*frontend.Changes] {
	return func(yield func(*frontend.Changes) bool) {
		part, size := new(frontend.Changes), 0
		// reserve makes room for a Frontend, and reports whether to go on.
		reserve := func(elements int, apart bool) bool {
			if size >= most && apart {
				if !yield(part) {
					return false
				}
				part, size = new(frontend.Changes), 0
			}
			size += elements
			return true
		}
		put := slices.SortedFunc(slices.Values(c.Put), func(a, b *frontend.Frontend) int { return a.Compare(b.Address) })
		for i, f := range put {
			apart := i == 0 || f.Policy != frontend.Plain || f.Addr != put[i-1].Addr
			if !reserve(t.weight(f.Address)+len(f.Endpoints)+len(f.Local)+len(f.Sources), apart) {
				return
			}
			part.Put = append(part.Put, f)
		}
		for _, a := range c.Delete {
			if !reserve(t.weight(a), true) {
				return
			}
			part.Delete = append(part.Delete, a)
		}
		part.Hairpins, part.ServiceCIDRs = c.Hairpins, c.ServiceCIDRs
		yield(part)
	}
}

// weight returns about how many elements the Frontend at an address has.
func (t *Table) weight(at frontend.Address) int {
	const fixed = 4 // beside those of its endpoints
	for _, f := range t.families {
		if e := f.entries[at]; e != nil {
			return fixed + len(e.slots) + len(e.local) + len(e.Sources)
		}
	}
	return fixed
}
