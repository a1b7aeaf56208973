package hostnet

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Remove removes what an agent with the prefix left that was killed, on a kernel that does not
// remove it with the process: a table without an owner, and a persistent device. It returns what
// it removed. It leaves TUN devices and owned tables, which a running agent has.
func Remove(prefix string) (removed []string, err error) {
	name, err := removeTable(prefix)
	if err != nil {
		return nil, err
	}
	removed = append(removed, name...)
	link, err := linkByName(prefix)
	if err != nil || link == nil || link.Attrs().Alias == "" || link.Type() == "tun" {
		return removed, err
	}
	if err := netlink.LinkDel(link); err != nil {
		return removed, fmt.Errorf("removing device %s: %w", prefix, err)
	}
	return append(removed, "device "+prefix), nil
}

func removeTable(prefix string) (removed []string, err error) {
	t := newTable(Config{Prefix: prefix}, "")
	defer func() { err = joinErrors(err, t.close()) }()
	if err := t.open(); err != nil {
		return nil, err
	}
	t.name = prefix
	switch _, err := t.conn.ListTableOfFamily(prefix, nftables.TableFamilyINet); {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("table inet %s: %w", prefix, err)
	}
	t.conn.DelTable(t.inet())
	if err := t.flush(); err != nil {
		return nil, err
	}
	return []string{"table inet " + prefix}, nil
}
