package nft

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"

	"portolan.dev/portolan/internal/proxy/frontend"
)

// maxBatch is how many elements are in one transaction of a Sync, except that the elements of
// one Frontend are not divided.
const maxBatch = 1 << 13

// bufferSize is the size of the socket's buffers: a batch must fit, and the answers to a new
// table with all its rules.
const bufferSize = 32 << 20

// bridgeSuffix is added to the name of the tables that serve while those of another layout are
// replaced.
const bridgeSuffix = "-next"

// Table is the nftables tables of a node's frontends. It is for one goroutine, except Watch.
type Table struct {
	cfg      Config
	conn     *nftables.Conn // nil when closed
	socket   *netlink.Conn  // that of conn
	families []*family
	plain    bool          // the kernel has no tables that are owned and persist
	probed   bool          // so plain is known
	port     atomic.Uint32 // the port ID of socket
	// verified are the families whose table the socket owns and nobody changed.
	verified map[Family]bool
}

// family is a family's table.
type family struct {
	layout
	*record
	chains map[string]struct{} // that are there
}

// New returns a Table. It changes nothing.
func New(cfg Config) *Table {
	cfg.Name, cfg.Mark = cmp.Or(cfg.Name, DefaultName), cmp.Or(cfg.Mark, DefaultMark)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Table{cfg: cfg, verified: make(map[Family]bool)}
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
	port, err := portOf(t.socket)
	if err != nil {
		_ = conn.CloseLasting()
		return fmt.Errorf("netlink: %w", err)
	}
	t.port.Store(port)
	t.conn = conn
	return nil
}

// limit sets the deadline for the kernel's answers.
func (t *Table) limit() error { return t.socket.SetDeadline(time.Now().Add(answerWithin)) }

// Close closes the socket. What is in the kernel stays.
func (t *Table) Close() error {
	if t.conn == nil {
		return nil
	}
	conn := t.conn
	t.conn, t.socket = nil, nil
	clear(t.verified)
	return conn.CloseLasting()
}

// Sync has the kernel hold s, whatever it holds, and returns how many elements it changed.
// Only differences are changed. If the tables have another layout, others serve until they are
// replaced.
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
	if err := t.probe(); err != nil {
		return 0, err
	}
	t.families = nil
	for _, of := range t.cfg.Families {
		f := &family{layout: t.layout(of), record: newRecord(of)}
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
	filler := &filler{table: t, family: f, before: before, wanted: make(map[identity]struct{})}
	if changed, err = filler.fill(s); err != nil {
		return changed, err
	}
	// The bridge, or what a process left that was killed while it had one.
	next := f.layout
	next.table = &nftables.Table{Name: t.cfg.Name + bridgeSuffix, Family: f.table.Family}
	return changed, bridge.remove(&next)
}

// identity identifies an element in a family.
type identity struct {
	set setName
	key string
}

// filler brings the elements of a family from what they are to what they should be.
type filler struct {
	table   *Table
	family  *family
	before  kernel
	wanted  map[identity]struct{}
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
	f.removeIntervals(s)
	for _, front := range s.Frontends {
		if FamilyOf(front.Addr) != f.family.Family {
			continue
		}
		before, had := f.before.entry(front.Address)
		e, elements := f.family.put(front, before, had)
		if err := f.table.ensure(f.family, e); err != nil {
			return f.changed, err
		}
		f.compare(elements)
		if err := f.flush(maxBatch); err != nil {
			return f.changed, err
		}
	}
	f.compare(f.family.setHairpins(s.Hairpins))
	f.batch.edit(f.family.Family, addition, f.last)
	f.compare(f.family.setCIDRs(s.ServiceCIDRs))
	f.removeRest()
	return f.changed, f.flush(0)
}

// removeIntervals adds to the batch the removal of intervals that are not wanted, since they
// may overlap with those that are.
func (f *filler) removeIntervals(s *frontend.State) {
	wanted := make(map[identity]struct{})
	want := func(elements []element) {
		for _, e := range elements {
			wanted[identity{e.set, e.key}] = struct{}{}
		}
	}
	for _, front := range s.Frontends {
		if front.Sources != nil && FamilyOf(front.Addr) == f.family.Family {
			want((&entry{Frontend: front}).sourceElements())
		}
	}
	want(f.family.setCIDRs(s.ServiceCIDRs))
	for _, name := range []setName{setSourceRanges, setServiceCIDRs} {
		var gone []element
		for key, e := range f.before.elements[name] {
			if _, ok := wanted[identity{name, key}]; !ok {
				gone = append(gone, e)
				delete(f.before.elements[name], key)
			}
		}
		f.batch.edit(f.family.Family, deletion, gone)
	}
}

// compare adds to the batch what makes the elements be there.
func (f *filler) compare(elements []element) {
	var missing, wrong []element
	for _, e := range elements {
		f.wanted[identity{e.set, e.key}] = struct{}{}
		was, there := f.before.elements[e.set][e.key]
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

// removeRest adds to the batch the removal of all elements that are not wanted.
func (f *filler) removeRest() {
	for _, name := range setNames {
		var gone []element
		for key, e := range f.before.elements[name] {
			if _, ok := f.wanted[identity{name, key}]; !ok {
				gone = append(gone, e)
			}
		}
		f.batch.edit(f.family.Family, deletion, gone)
	}
}

// flush commits the batch if it has more than the given number of elements.
func (f *filler) flush(above int) error {
	if f.batch.elements <= above {
		return nil
	}
	f.changed += f.batch.elements
	err := f.batch.commit(f.table.socket)
	f.batch = batch{name: f.batch.name}
	return err
}

// errClosed is returned by Apply before Sync, and after an error.
var errClosed = errors.New("Sync must be called first")

// Apply applies changes in one transaction, and returns how many elements it changed. After
// an error Sync must be called.
func (t *Table) Apply(c *frontend.Changes) (changed int, err error) {
	if t.conn == nil {
		return 0, tableError(t.cfg.Name, errClosed)
	}
	b := &batch{name: t.cfg.Name}
	for _, f := range t.families {
		removed, added, entries := f.change(c)
		if err := t.ensure(f, entries...); err != nil {
			_ = t.Close()
			return 0, tableError(t.cfg.Name, err)
		}
		b.edit(f.Family, deletion, removed)
		b.edit(f.Family, addition, added)
	}
	if err := b.commit(t.socket); err != nil {
		_ = t.Close()
		return 0, tableError(t.cfg.Name, err)
	}
	return b.elements, nil
}
