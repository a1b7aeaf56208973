package nft

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/nfnetlink"
)

// Remove removes the tables with a name from the kernel, and those that a process left that was
// killed while it replaced them. It returns what it removed. Its error wraps ErrOwned if a process
// has them, which it can only tell where tables can be owned.
func Remove(name string) (removed []string, err error) {
	t := New(Config{Name: name})
	defer t.Close()
	if err := t.open(); err != nil {
		return nil, err
	}
	for _, of := range []Family{IPv4, IPv6} {
		names, err := t.tables(
			of,
			func(found string) bool { return found == name || isBridge(found, name) || found == name+probeSuffix },
		)
		if err != nil {
			return removed, tableError(name, err)
		}
		for _, found := range names {
			if err := t.removeTable(of, found); err != nil {
				return removed, tableError(found, err)
			}
			removed = append(removed, fmt.Sprintf("table %s %s", of, found))
		}
	}
	return removed, nil
}

// isBridge reports whether a table serves while those with another name are replaced. There may be
// a bridge of a bridge.
func isBridge(name, of string) bool {
	rest, ok := strings.CutPrefix(name, of+bridgeSuffix)
	return ok && strings.ReplaceAll(rest, bridgeSuffix, "") == ""
}

// removeBridges removes the tables that serve while those with a name are replaced, also those that
// a process left that was killed.
func (t *Table) removeBridges(f Family, of string) error {
	names, err := t.tables(f, func(name string) bool { return isBridge(name, of) })
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := t.retire(f, name); err != nil {
			return err
		}
	}
	return nil
}

// retire removes a table that may serve. If it were deleted at once, a packet that is in its rules just
// then would find its maps empty, but not its sets, and be refused. Therefore the table loses its hooks
// first, and is deleted when no packet is in it any more.
func (t *Table) retire(f Family, name string) error {
	l := t.layout(f)
	l.table = &nftables.Table{Name: name, Family: l.table.Family}
	b := batch{name: name}
	b.addTable(f, t.flags()|flagDormant)
	if err := t.commit(&l, &b); err != nil && !errors.Is(err, unix.EOPNOTSUPP) { // it was made with other flags
		return err
	}
	awaitPackets()
	return t.remove(&l)
}

// awaitPackets returns when all packets that are being processed are done (membarrier(2)): they are
// readers of RCU.
func awaitPackets() {
	const global = 1                                          // MEMBARRIER_CMD_GLOBAL
	_, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0) // refused where CPUs run without ticks
}

// tables returns the names of the tables of a family that meet a condition, in order.
func (t *Table) tables(f Family, condition func(name string) bool) (names []string, err error) {
	all, err := t.list(f, unix.NFT_MSG_GETTABLE, nil)
	if err != nil {
		return nil, err
	}
	for _, data := range all {
		parts, err := nfnetlink.Attributes(data, unix.NFTA_TABLE_NAME)
		if err != nil {
			return nil, err
		}
		if name := nfnetlink.Text(parts[0]); condition(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

func (t *Table) removeTable(f Family, name string) error {
	l := t.layout(f)
	l.table = &nftables.Table{Name: name, Family: l.table.Family}
	return t.remove(&l)
}
