package nft

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/nfnetlink"
)

// bufferSize is the size of the socket's buffers, which a transaction must fit in.
const bufferSize = 32 << 20

// Table is the table of a node's Pod network. All methods are safe for concurrent use.
type Table struct {
	cfg      Config
	listener nfnetlink.Listener

	mu     sync.Mutex
	socket *netlink.Conn // nil before Sync, and after an error
	plain  bool          // the kernel has no tables that are owned and persist
	ports  *ports
	// shared counts the owners of each element of ports.
	shared map[element]int
}

// New returns a Table, and changes nothing.
func New(cfg Config) *Table {
	return &Table{cfg: cfg.withDefaults(), plain: cfg.plain, ports: newPorts(), shared: make(map[element]int)}
}

// Close closes the socket. The table stays in force. Watch must have returned.
func (t *Table) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.disconnect()
	t.listener.Close()
}

func (t *Table) disconnect() {
	if t.socket != nil {
		_ = t.socket.Close()
		t.socket = nil
	}
}

// Watch reports on notices, which has room for one, what other programs did to the table since the last Sync began
// and from then on, until ctx is done; it returns nil then, and at once before the first Sync and where nobody else
// can change the table. After an error, changes may have been missed: after the next Sync Watch can be called again.
func (t *Table) Watch(ctx context.Context, notices chan<- Notice) error {
	if err := t.listener.Watch(ctx, t.cfg.Name, notices); err != nil {
		return tableError(t.cfg.Name, err)
	}
	return nil
}

// Restore replaces the ports of all owners, for the next Sync. Of two owners that have one port, the one keeps its
// ports for which the kernel has them: the other's were refused, or are about to be removed. If that is neither, the
// first one keeps them. The error has the conflicts; the ports of the other owner are left out.
func (t *Table) Restore(owners []Owner) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	kernel, err := readElements(t.cfg.Name)
	err = errors.Join(err, t.ports.restore(owners, kernel))
	clear(t.shared)
	for _, all := range t.ports.owners {
		for e := range portElements(all) {
			t.shared[e]++
		}
	}
	return err
}

// readElements returns the elements that the kernel has, of a table that any process may have.
func readElements(name string) (all map[element]bool, err error) {
	socket, err := dial()
	if err != nil {
		return nil, tableError(name, err)
	}
	defer socket.Close()
	r := &reader{socket, name}
	exists, _, err := r.flags()
	if err == nil && exists {
		all, err = r.elements()
	}
	if err != nil && !errors.Is(err, unix.ENOENT) { // a set that an earlier version did not have
		return nil, tableError(name, err)
	}
	return all, nil
}

// CheckPorts returns an error for each port of the node that does not lead to the Pod as the owner wants it: another
// owner has it, or the kernel lacks it. It reads the kernel.
func (t *Table) CheckPorts(owner string, wanted []Port) error {
	all, err := normal(wanted)
	if err == nil {
		t.mu.Lock()
		err = t.ports.check(owner, all)
		t.mu.Unlock()
	}
	if err != nil {
		return err
	}
	socket, err := dial()
	if err != nil {
		return tableError(t.cfg.Name, err)
	}
	defer socket.Close()
	r := &reader{socket, t.cfg.Name}
	var errs []error
	for _, p := range all {
		for _, e := range sorted(slices.Collect(maps.Keys(portElements([]Port{p})))) {
			has, err := r.has(e)
			if err == nil && !has {
				err = fmt.Errorf("hostPort %s does not lead to %s: set %s lacks it", p, p.To, e.set)
			}
			if err != nil {
				errs = append(errs, tableError(t.cfg.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// AddPorts has ports of the node lead to a Pod, instead of those that the owner had. A ConflictError names who has
// one of them; nothing changes then. It is one transaction, after which the ports are in force.
func (t *Table) AddPorts(owner string, wanted []Port) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	all, err := normal(wanted)
	if err == nil {
		err = t.ports.check(owner, all)
	}
	if err != nil {
		return err
	}
	return t.changePorts(owner, all)
}

// DeletePorts removes the ports of an owner; it is no error if there are none.
func (t *Table) DeletePorts(owner string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changePorts(owner, nil)
}

// changePorts replaces the ports of an owner. After an error they are as they were.
func (t *Table) changePorts(owner string, all []Port) error {
	was := t.ports.owners[owner]
	if slices.Equal(was, all) && t.socket != nil {
		return nil
	}
	before, after := portElements(was), portElements(all)
	if t.socket == nil && len(all) > 0 {
		return tableError(t.cfg.Name, ErrNotSynced)
	}
	if t.socket == nil { // the next Sync has the others
		t.count(before, nil)
		t.ports.put(owner, nil)
		return nil
	}
	b := &batch{table: t.cfg.Name}
	var gone, come []element
	for e := range before {
		if !after[e] && t.shared[e] == 1 {
			gone = append(gone, e)
		}
	}
	for e := range after {
		if !before[e] && t.shared[e] == 0 {
			come = append(come, e)
		}
	}
	b.edit(deletion, sorted(gone))
	b.edit(addition, sorted(come))
	if err := t.commit(b); err != nil {
		return err
	}
	t.count(before, after)
	t.ports.put(owner, all)
	return nil
}

// count notes that some elements have one user less, and others one more.
func (t *Table) count(before, after map[element]bool) {
	for e := range before {
		if t.shared[e]--; t.shared[e] == 0 {
			delete(t.shared, e)
		}
	}
	for e := range after {
		t.shared[e]++
	}
}

// sorted sorts elements by set and key: where one interval ends and another begins, the end is first, as the kernel
// wants it.
func sorted(all []element) []element {
	end := map[bool]int{true: 0, false: 1}
	slices.SortFunc(all, func(a, b element) int {
		return cmp.Or(
			cmp.Compare(a.set, b.set), cmp.Compare(a.key, b.key), end[a.isEnd]-end[b.isEnd], cmp.Compare(a.data, b.data),
		)
	})
	return all
}

// commit commits a transaction of changes. After an error Sync must be called.
func (t *Table) commit(b *batch) error {
	if err := b.Commit(t.socket); err != nil {
		t.disconnect()
		return tableError(t.cfg.Name, err)
	}
	return nil
}

// Apply applies changes of the ranges, in one transaction. After an error Sync must be called.
func (t *Table) Apply(c *RangeChanges) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.socket == nil {
		return tableError(t.cfg.Name, ErrNotSynced)
	}
	b := &batch{table: t.cfg.Name}
	gone := Ranges{Pods: c.DeletePods, Cluster: c.DeleteCluster, Nodes: c.DeleteNodes}
	come := Ranges{Pods: c.AddPods, Cluster: c.AddCluster, Nodes: c.AddNodes}
	b.edit(deletion, sorted(gone.elements()))
	b.edit(addition, sorted(come.elements()))
	return t.commit(b)
}

// Sync has the kernel have exactly these ranges, and the ports of all owners. A table that is not as it should be is
// replaced in one transaction; else its elements are. The error wraps ErrOwned if another process has the table.
func (t *Table) Sync(r Ranges) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.sync(r); err != nil {
		t.disconnect()
		return tableError(t.cfg.Name, err)
	}
	return nil
}

func (t *Table) sync(r Ranges) error {
	if err := t.open(); err != nil {
		return err
	}
	wanted := make(map[element]bool)
	for _, e := range r.elements() {
		wanted[e] = true
	}
	for e := range t.shared {
		wanted[e] = true
	}
	intact, err := t.inspect()
	if err != nil {
		return err
	}
	if !intact {
		return t.create(wanted)
	}
	reader := &reader{t.socket, t.cfg.Name}
	have, err := reader.elements()
	if err != nil {
		return err
	}
	var gone []element
	for e := range have {
		if !wanted[e] {
			gone = append(gone, e)
		}
		delete(wanted, e)
	}
	b := &batch{table: t.cfg.Name}
	b.edit(deletion, sorted(gone))
	b.edit(addition, sorted(slices.Collect(maps.Keys(wanted))))
	return b.Commit(t.socket)
}

// open opens the socket, unless it is open.
func (t *Table) open() error {
	if t.socket == nil {
		socket, err := dial()
		if err != nil {
			return err
		}
		if t.socket = socket; t.listener.Ignore(socket, 0) != nil {
			return errors.New("netlink: no port")
		}
	}
	if t.plain {
		return t.listener.Listen()
	}
	return nil
}

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

func (t *Table) flags() uint32 {
	if t.plain {
		return 0
	}
	return flagOwner | flagPersist
}

// inspect reports whether the table is there and as it should be, but for elements. The socket owns it then.
func (t *Table) inspect() (intact bool, err error) {
	r := &reader{t.socket, t.cfg.Name}
	exists, flags, err := r.flags()
	if err != nil || !exists || flags&flagDormant != 0 || t.plain != (flags&flagPersist == 0) {
		return false, err
	}
	b := &batch{table: t.cfg.Name}
	b.newTable(t.flags())
	if err := owned(b.Commit(t.socket)); err != nil {
		return false, err
	}
	return r.isIntact(t.cfg.layout())
}

// owned returns ErrOwned for the kernel's error about a table of another socket. Tables were read before, so that no
// right is missing.
func owned(err error) error {
	if errors.Is(err, unix.EPERM) {
		return ErrOwned
	}
	return err
}

// create creates the table with elements, in the place of one that may be there.
func (t *Table) create(elements map[element]bool) error {
	b := &batch{table: t.cfg.Name}
	b.newTable(0) // deleting one that is not there would fail
	b.deleteTable()
	b.newTable(t.flags())
	for _, f := range families {
		for _, name := range setNames {
			b.newSet(name+f.suffix, f.shapeOf(name))
		}
	}
	b.edit(addition, sorted(slices.Collect(maps.Keys(elements))))
	layout := t.cfg.layout()
	for i := range layout {
		if err := b.newChain(&layout[i]); err != nil {
			return err
		}
	}
	err := owned(b.Commit(t.socket))
	if t.plain || !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	t.plain = true // before Linux 6.9
	t.disconnect()
	if err := t.open(); err != nil {
		return err
	}
	return t.create(elements)
}

// Cleanup removes the table with a name from the kernel, and returns what it removed. Its error wraps ErrOwned if a
// process has it.
func Cleanup(name string) (removed []string, err error) {
	socket, err := dial()
	if err != nil {
		return nil, tableError(name, err)
	}
	defer socket.Close()
	r := &reader{socket, name}
	exists, _, err := r.flags()
	if err == nil && exists {
		b := &batch{table: name}
		b.deleteTable()
		if err = owned(b.Commit(socket)); err == nil {
			return []string{"nftables table inet " + name}, nil
		}
	}
	if err != nil {
		return nil, tableError(name, err)
	}
	return nil, nil
}
