// Package device finds the device of the node behind which a Pod is, by which alone its packets come.
package device

import (
	"fmt"
	"net/netip"
)

// Of returns the index of the Pod's device among those of the node with some names, given the Pod's
// addresses: one end of a veth pair that no bridge has as a port, and to which the routes of all addresses
// lead without a gateway. It returns 0 if there is none, and on other systems than Linux. Names that are
// not those of a Pod's device do no harm: some network plugins report devices of the Pod as if they were the
// node's.
func Of(names []string, addrs []netip.Addr) (index uint32, err error) {
	for _, name := range names {
		index, err := veth(name)
		for i := 0; err == nil && index != 0 && i < len(addrs); i++ {
			var at uint32
			if at, err = directRoute(addrs[i]); at != index {
				index = 0
			}
		}
		if err != nil {
			return 0, fmt.Errorf("device %s: %w", name, err)
		}
		if index != 0 {
			return index, nil
		}
	}
	return 0, nil
}
