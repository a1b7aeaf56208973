// Package device finds the device of the node behind which a Pod is, by which alone its packets come.
package device

import (
	"errors"
	"fmt"
	"net/netip"
)

// Of returns the index of the Pod's device among those of the node with some names, given the Pod's
// addresses: one end of a veth pair that no bridge has as a port, and to which the routes lead that each
// address has of its own. It returns 0 if there is none, and on other systems than Linux; an error only then.
// Names that are not those of a Pod's device do no harm: some network plugins report devices of the Pod as if
// they were the node's.
func Of(names []string, addrs []netip.Addr) (index uint32, err error) {
	var errs []error
	for _, name := range names {
		index, err := veth(name)
		for i := 0; err == nil && index != 0 && i < len(addrs); i++ {
			var at uint32
			if at, err = ownRoute(addrs[i]); at != index {
				index = 0
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("device %s: %w", name, err))
		} else if index != 0 {
			return index, nil
		}
	}
	return 0, errors.Join(errs...)
}
