package nft

import (
	"fmt"

	"github.com/google/nftables"
)

// Remove removes the tables with a name from the kernel, and those that served while they were
// replaced. It returns what it removed. Its error wraps ErrOwned if a process has them.
func Remove(name string) (removed []string, err error) {
	t := New(Config{Name: name})
	defer t.Close()
	if err := t.open(); err != nil {
		return nil, err
	}
	for _, of := range []Family{IPv4, IPv6} {
		for _, name := range []string{name, name + bridgeSuffix} {
			l := t.layout(of)
			l.table = &nftables.Table{Name: name, Family: l.table.Family}
			there, err := t.exists(of, name)
			if err == nil && there {
				err = t.remove(&l)
			}
			if err != nil {
				return removed, tableError(name, err)
			}
			if there {
				removed = append(removed, fmt.Sprintf("table %s %s", of, name))
			}
		}
	}
	return removed, nil
}
