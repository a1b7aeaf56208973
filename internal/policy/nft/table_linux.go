package nft

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/support/nfnetlink"
)

// Table is the table of a node's policies. All methods are safe for concurrent use; ChangeResolved does
// not wait for Apply.
type Table struct {
	cfg      Config
	listener nfnetlink.Listener

	mu     sync.Mutex
	socket *netlink.Conn // nil after an error
	have   *record       // nil before Sync, and after an error

	resolved resolved

	divideAt  int    // see transaction
	committed func() // see transaction
}

// New returns a Table, and changes nothing. Its error names what the kernel lacks.
func New(cfg Config) (*Table, error) {
	t := &Table{cfg: cfg.withDefaults(), resolved: resolved{sets: make(map[string]struct{})}, divideAt: maxBatch}
	if err := t.open(); err != nil {
		return nil, tableError(t.cfg.Name, err)
	}
	if err := t.probe(); err != nil {
		_ = t.Close()
		return nil, tableError(t.cfg.Name, err)
	}
	return t, nil
}

// Close closes the sockets. The table stays in force. Watch must have returned.
func (t *Table) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.resolved.mu.Lock()
	defer t.resolved.mu.Unlock()
	t.disconnect()
	closeSocket(&t.resolved.socket)
	t.listener.Close()
	return nil
}

// open opens the socket of transactions, unless it is open.
func (t *Table) open() (err error) {
	if t.socket == nil {
		t.socket, err = t.connect(ofApply)
	}
	return err
}

// Places of own sockets, see nfnetlink.Listener.
const (
	ofApply = iota
	ofResolved
)

// connect opens a socket whose changes Watch ignores.
func (t *Table) connect(place int) (*netlink.Conn, error) {
	socket, err := dial()
	if err != nil {
		return nil, err
	}
	if err := t.listener.Ignore(socket, place); err != nil {
		_ = socket.Close()
		return nil, err
	}
	return socket, nil
}

// Watch reports on notices, which has room for one, what other programs did to the table since the last Sync
// began and from then on, until ctx is done; it returns nil then, and at once before the first Sync. After
// an error, changes may have been missed: after the next Sync Watch can be called again.
func (t *Table) Watch(ctx context.Context, notices chan<- Notice) error {
	if err := t.listener.Watch(ctx, t.cfg.Name, notices); err != nil {
		return tableError(t.cfg.Name, err)
	}
	return nil
}

// dial opens a socket with large buffers.
func dial() (*netlink.Conn, error) {
	socket, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	// Without the right to large buffers, small clusters still work.
	_ = socket.SetReadBuffer(bufferSize)
	_ = socket.SetWriteBuffer(bufferSize)
	return socket, nil
}

// disconnect closes the socket of transactions, which may have more answers.
func (t *Table) disconnect() {
	closeSocket(&t.socket)
	t.have = nil
}

func closeSocket(socket **netlink.Conn) {
	if *socket != nil {
		_ = (*socket).Close()
		*socket = nil
	}
}

// errOutOfStep is returned by Apply before Sync, after an error, and for a Delta that does not fit what
// there is.
var errOutOfStep = errors.New("Sync must be called first")

// Apply changes the kernel by d, which is how rs changed since the last Sync or Apply. What has an
// effect is one transaction; see transaction. After an error Sync must be called.
func (t *Table) Apply(rs ruleset.Ruleset, d *ruleset.Delta) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := errOutOfStep
	switch {
	case t.have == nil:
	case t.have.lacksFamily(rs, d):
		err = t.sync(rs)
	default:
		err = t.apply(rs, d)
	}
	if err != nil {
		t.disconnect()
		return tableError(t.cfg.Name, err)
	}
	return nil
}

// lacksFamily reports whether a Delta brings the first address of a family.
func (r *record) lacksFamily(rs ruleset.Ruleset, d *ruleset.Delta) bool {
	for _, addr := range d.Pods {
		if _, ok := rs.Pod(addr); ok && !slices.Contains(r.families, familyOf(addr)) {
			return true
		}
	}
	return d.Ranges && slices.ContainsFunc(rs.Ranges(), func(p netip.Prefix) bool {
		return !slices.Contains(r.families, familyOf(p.Addr()))
	})
}

// begin begins a transaction.
func (t *Table) begin() *transaction {
	return &transaction{
		batch: batch{
			table: t.cfg.Name,
		},
		socket:    t.socket,
		divideAt:  t.divideAt,
		committed: t.committed,
	}
}

func (t *Table) apply(rs ruleset.Ruleset, d *ruleset.Delta) error {
	x := t.begin()
	if err := t.prepare(x, rs, d); err != nil {
		return err
	}
	t.changeElements(x, d)
	t.changeOwn(x, rs, d)
	if d.Ranges {
		t.changeRanges(x, rs.Ranges())
	}
	if err := x.divide(); err != nil {
		return err
	}
	t.resolved.forget(d.GoneSets)
	if err := t.removeGone(x, d); err != nil {
		return err
	}
	if err := x.commit(); err != nil {
		return err
	}
	for _, name := range d.NewSets {
		if t.have.sets[name] == ruleset.Resolved {
			t.resolved.know(name)
		}
	}
	return nil
}

// prepare adds the sets and chains that are new.
func (t *Table) prepare(x *transaction, rs ruleset.Ruleset, d *ruleset.Delta) error {
	for _, name := range d.NewSets {
		s, ok := rs.Set(name)
		if _, there := t.have.sets[name]; there || !ok {
			return fmt.Errorf("new set %s: %w", name, errOutOfStep)
		}
		t.have.sets[name] = s.Kind
		for _, f := range t.have.families {
			if err := x.declare(name+f.suffix, f.shapeOf(s.Kind), s.Comment); err != nil {
				return err
			}
		}
		elements := contents(rs, name, s.Kind)
		for _, f := range t.have.families {
			if err := x.fill(name+f.suffix, elements[f]); err != nil {
				return err
			}
		}
	}
	r := t.renderer(rs, t.have.families)
	var made []chain
	for _, name := range d.NewChains {
		c := rs.Chain(name)
		if _, there := t.have.chains[name]; there || c == nil {
			return fmt.Errorf("new chain %s: %w", name, errOutOfStep)
		}
		all, err := r.chain(name, c)
		if err != nil {
			return err
		}
		t.have.chains[name] = namesOf(all)
		made = append(made, all...)
	}
	return x.create(made)
}

func (t *Table) renderer(rs ruleset.Ruleset, of []*family) *renderer {
	kind := func(set string) (ruleset.Kind, bool) {
		s, ok := rs.Set(set)
		return s.Kind, ok
	}
	return &renderer{Config: t.cfg, kind: kind, families: of}
}

func namesOf(all []chain) (names []string) {
	for _, c := range all {
		names = append(names, c.name)
	}
	return names
}

// contents returns the elements of a set by family.
func contents(rs ruleset.Ruleset, set string, k ruleset.Kind) map[*family][]element {
	all := make(map[*family][]element)
	if k == ruleset.Resolved {
		return all
	}
	for e := range rs.Elements(set) {
		f := familyOf(e.Prefix.Addr())
		all[f] = encode(all[f], k, e)
	}
	return all
}

// changeElements adds the changes of sets that stay.
func (t *Table) changeElements(x *transaction, d *ruleset.Delta) {
	for set, c := range d.Elements {
		for _, step := range []struct {
			operation
			elements []ruleset.Element
		}{{deletion, c.Remove}, {addition, c.Add}} {
			all := make(map[*family][]element)
			for _, e := range step.elements {
				f := familyOf(e.Prefix.Addr())
				all[f] = encode(all[f], t.have.sets[set], e)
			}
			for _, f := range t.have.families {
				x.edit(step.operation, set+f.suffix, all[f])
			}
		}
	}
}

// changeOwn adds the changes of the table's own sets by Pod and by device.
func (t *Table) changeOwn(x *transaction, rs ruleset.Ruleset, d *ruleset.Delta) {
	c := replacement{make(map[string][]element), make(map[string][]element)}
	for _, addr := range d.Pods {
		var before, after []entry
		if was, ok := t.have.pods[addr]; ok {
			before = podEntries(addr, was)
			delete(t.have.pods, addr)
		}
		if is, ok := rs.Pod(addr); ok {
			after = podEntries(addr, is)
			t.have.pods[addr] = is
		}
		c.record(before, after)
	}
	for _, index := range d.Devices {
		var before, after []entry
		if was, ok := t.have.devices[index]; ok {
			before = deviceEntries(index, was)
			delete(t.have.devices, index)
		}
		if is, ok := rs.Device(index); ok {
			after = deviceEntries(index, is)
			t.have.devices[index] = is
		}
		c.record(before, after)
	}
	for set, elements := range c.gone {
		x.edit(deletion, set, elements)
	}
	for set, elements := range c.come {
		x.edit(addition, set, elements)
	}
}

// replacement is elements that go and others that come, by set.
type replacement struct{ gone, come map[string][]element }

// record adds how entries change.
func (c *replacement) record(before, after []entry) {
	for _, e := range before {
		if !slices.Contains(after, e) {
			c.gone[e.set] = append(c.gone[e.set], e.element)
		}
	}
	for _, e := range after {
		if !slices.Contains(before, e) {
			c.come[e.set] = append(c.come[e.set], e.element)
		}
	}
}

// changeRanges adds the change of the ranges of Pods.
func (t *Table) changeRanges(x *transaction, ranges []netip.Prefix) {
	edit := func(op operation, all, but []netip.Prefix) {
		for _, r := range all {
			if !slices.Contains(but, r) {
				x.edit(op, setRanges+familyOf(r.Addr()).suffix, encodeBlock(nil, r))
			}
		}
	}
	edit(deletion, t.have.ranges, ranges)
	edit(addition, ranges, t.have.ranges)
	t.have.ranges = slices.Clone(ranges)
}

// removeGone adds the removal of sets and chains.
func (t *Table) removeGone(x *transaction, d *ruleset.Delta) error {
	var sets, chains []string
	for _, name := range d.GoneSets {
		for _, f := range t.have.families {
			sets = append(sets, name+f.suffix)
		}
		delete(t.have.sets, name)
	}
	for _, name := range d.GoneChains {
		chains = append(chains, t.have.chains[name]...)
		delete(t.have.chains, name)
	}
	return x.remove(sets, chains)
}

// Cleanup removes the table with a name from the kernel, and reports whether there was one.
func Cleanup(name string) (removed bool, err error) {
	socket, err := dial()
	if err != nil {
		return false, tableError(name, err)
	}
	defer socket.Close()
	for _, name := range []string{name + probeSuffix, name} {
		removed, err = removeTable(socket, name)
		if err != nil {
			return false, tableError(name, err)
		}
	}
	return removed, nil
}

// removeTable removes a table, and reports whether there was one.
func removeTable(socket *netlink.Conn, name string) (removed bool, err error) {
	r := &reader{socket: socket, table: name}
	removed, _, err = r.tableFlags()
	if !removed || err != nil {
		return false, err
	}
	b := &batch{table: name}
	b.deleteTable()
	return true, b.Commit(socket)
}
