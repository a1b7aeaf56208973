package nft

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/nfnetlink"
)

// condition is in which condition the kernel has a table.
type condition uint8

const (
	absent   condition = iota
	outdated           // by another version, or with other settings
	current
)

// marker returns the name of a chain without rules that says which layout the table has.
func (l *layout) marker() (string, error) {
	h := fnv.New64a()
	all := append(l.static(), l.affinityChains(1, 1)...)
	for _, k := range []chains{clientHashChains, connectionHashChains} {
		all = append(all, l.hashChains(k, k.sizeFor(1))...)
	}
	for _, c := range all {
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
	for _, name := range append(l.setNames(), setAffinity) {
		s := l.family.newSet(l.table, name)
		fmt.Fprintln(h, name, s.KeyType.Name, s.DataType.Name, s.Interval, s.Dynamic, s.Size)
	}
	return fmt.Sprintf("layout-%016x", h.Sum64()), nil
}

// probe finds out, once, whether the kernel has tables that are owned and persist (Linux 6.9).
func (t *Table) probe() error {
	if t.plain || t.probed {
		return nil
	}
	l := t.layout(t.cfg.Families[0])
	l.table = &nftables.Table{Name: t.cfg.Name + probeSuffix, Family: l.table.Family}
	b := batch{name: l.table.Name}
	b.addTable(l.family, flagOwner|flagPersist)
	switch err := b.Commit(t.socket); {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		t.plain = true
		return nil
	case err != nil:
		return err
	}
	t.probed = true
	return t.remove(&l)
}

// own creates the table if there is none, owned by the socket, or takes over one whose owner
// has ended. On a kernel without such tables it is a plain one.
func (t *Table) own(l *layout) error {
	b := batch{name: l.table.Name}
	b.addTable(l.family, t.flags())
	return t.commit(l, &b)
}

// replace creates a table without anything in it, in the place of one that may be there. It is
// owned all the time.
func (t *Table) replace(l *layout) error {
	b := batch{name: l.table.Name}
	b.addTable(l.family, 0) // deleting one that is not there would fail
	b.deleteTable(l.family)
	b.addTable(l.family, t.flags())
	err := b.Commit(t.socket)
	if errors.Is(err, unix.EPERM) { // tables were read before, so that no right is missing
		return ErrOwned
	}
	return err
}

// commit commits a batch of one message about the table itself.
func (t *Table) commit(l *layout, b *batch) error {
	err := b.Commit(t.socket)
	if errors.Is(err, unix.EPERM) && t.readable(l) {
		return ErrOwned
	}
	return err
}

// flags returns those of the tables.
func (t *Table) flags() uint32 {
	if t.plain {
		return 0
	}
	return flagOwner | flagPersist
}

// readable reports whether the process may use nftables at all.
func (t *Table) readable(l *layout) bool {
	if t.limit() != nil {
		return false
	}
	_, err := t.conn.ListTableOfFamily(l.table.Name, l.table.Family)
	return err == nil
}

// create creates the table without elements, in the place of one that is there.
func (t *Table) create(l *layout) error {
	marker, err := l.marker()
	if err != nil {
		return err
	}
	if err := t.replace(l); err != nil {
		return err
	}
	var sets []*nftables.Set
	for _, name := range append(l.setNames(), setAffinity) {
		set := l.family.newSet(l.table, name)
		if err := t.conn.AddSet(set, nil); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
		sets = append(sets, set)
	}
	t.addChains(l, append(l.static(), chain{name: marker}), sets)
	if err := t.flush(); err != nil {
		return err
	}
	t.verified[l.family] = !t.plain
	return nil
}

// addChains adds chains to the next flush. Their rules find the sets of the same transaction by
// number, others by name.
func (t *Table) addChains(l *layout, all []chain, sets []*nftables.Set) {
	for _, c := range all {
		made := &nftables.Chain{Name: c.name, Table: l.table}
		if c.base != nil {
			made.Type, made.Hooknum, made.Priority = c.base.Type, c.base.Hooknum, c.base.Priority
		}
		t.conn.AddChain(made)
		for _, r := range c.rules {
			t.conn.AddRule(&nftables.Rule{Table: l.table, Chain: made, Exprs: withIDs(r, sets)})
		}
	}
}

func withIDs(rule []expr.Any, sets []*nftables.Set) []expr.Any {
	for _, e := range rule {
		for _, s := range sets {
			switch e := e.(type) {
			case *expr.Lookup:
				if e.SetName == s.Name {
					e.SetID = s.ID
				}
			case *expr.Dynset:
				if e.SetName == s.Name {
					e.SetID = s.ID
				}
			}
		}
	}
	return rule
}

// ensure creates the chains of affinity and of choices by hash that entries need and that are not
// there.
func (t *Table) ensure(f *family, entries ...*entry) error {
	for _, e := range entries {
		k := e.chains()
		if k == plainChains {
			continue
		}
		for _, n := range e.sizes() {
			all := f.lateChains(k, n)
			all = slices.DeleteFunc(all, func(c chain) bool {
				_, ok := f.chains[c.name]
				return ok
			})
			t.addChains(&f.layout, all, nil)
			for _, c := range all {
				f.chains[c.name] = struct{}{}
			}
		}
	}
	return t.flush()
}

// prune removes the chains of session affinity and of choices by hash that no entry of a family uses any more.
func (t *Table) prune(f *family) error {
	used := make(map[sized]struct{})
	for _, e := range f.entries {
		for _, n := range e.sizes() {
			used[sized{e.chains(), n}] = struct{}{}
		}
	}
	unused := make(map[sized]struct{})
	for name := range f.chains {
		s, ok := parseChain(name)
		if _, stays := used[s]; ok && s.chains != plainChains && !stays {
			unused[s] = struct{}{}
		}
	}
	for s := range unused {
		for _, c := range slices.Backward(f.lateChains(s.chains, s.size)) { // those that name others first
			if _, ok := f.chains[c.name]; ok {
				t.conn.DelChain(&nftables.Chain{Name: c.name, Table: f.table})
				delete(f.chains, c.name)
			}
		}
	}
	f.kept = len(f.chains)
	return t.flush()
}

// remove deletes the table of a family, if there is one.
func (t *Table) remove(l *layout) error {
	b := batch{name: l.table.Name}
	b.deleteTable(l.family)
	err := t.commit(l, &b)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// flush sends what was added to the connection as one transaction.
func (t *Table) flush() error {
	if err := t.limit(); err != nil {
		return err
	}
	if err := t.conn.Flush(); err != nil {
		return nfnetlink.ErrnoOf(err)
	}
	return nil
}
