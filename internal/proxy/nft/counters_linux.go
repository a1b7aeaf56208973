package nft

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/support/nfnetlink"
)

// Connections returns how many connections there were to each destination, whatever became of
// them, since it is in the tables. They have counters if Config.Counters was set.
func Connections(cfg Config) (map[frontend.Address]uint64, error) {
	t := New(cfg)
	if err := t.open(); err != nil {
		return nil, err
	}
	defer t.Close()
	counts := make(map[frontend.Address]uint64)
	for _, f := range cfg.Families {
		// Those that were read before a change of nftables are read again.
		err := t.eachElement(f, setConnections, func() {}, func(data []byte) error { return parseCounter(data, f, counts) })
		if err != nil {
			return nil, tableError(t.cfg.Name, err)
		}
	}
	return counts, nil
}

// parseCounter adds the counter of an element to counts.
func parseCounter(data []byte, f Family, counts map[frontend.Address]uint64) error {
	parts, err := nfnetlink.Attributes(data, unix.NFTA_SET_ELEM_KEY, unix.NFTA_SET_ELEM_EXPR)
	if err != nil {
		return err
	}
	key, err := nfnetlink.Attributes(parts[0], unix.NFTA_DATA_VALUE)
	if err != nil {
		return err
	}
	expression, err := nfnetlink.Attributes(parts[1], unix.NFTA_EXPR_DATA)
	if err != nil {
		return err
	}
	packets, err := nfnetlink.Attributes(expression[0], unix.NFTA_COUNTER_PACKETS)
	if at, ok := parseDestination(f, string(key[0])); ok && err == nil && len(packets[0]) == 8 {
		counts[at] = binary.BigEndian.Uint64(packets[0])
	}
	return err
}

// parseDestination reads what destination returns.
func parseDestination(f Family, key string) (at frontend.Address, ok bool) {
	size := f.length()
	if len(key) != size+8 {
		return at, false
	}
	at.Addr, ok = netip.AddrFromSlice([]byte(key[:size]))
	at.Protocol = frontend.Protocol(key[size])
	at.Port = binary.BigEndian.Uint16([]byte(key[size+4:]))
	return at, ok
}
