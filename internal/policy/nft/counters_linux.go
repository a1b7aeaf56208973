package nft

import (
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/nfnetlink"
)

// Counters returns the counts of all rules that log, by event, direction, chain and reason, in no
// order; with names of chains of the Ruleset, those of the rules of these alone. The counts of a
// chain go with it.
func (t *Table) Counters(chains ...string) (all []Counter, err error) {
	socket, err := dial()
	if err != nil {
		return nil, tableError(t.cfg.Name, err)
	}
	defer socket.Close()
	names := []string{""} // the whole table
	if len(chains) > 0 {
		names = t.kernelChains(chains)
	}
	for _, name := range names {
		r := &reader{socket: socket, table: t.cfg.Name, chain: name}
		counters, err := r.counters()
		if err != nil {
			return nil, tableError(t.cfg.Name, err)
		}
		all = append(all, counters...)
	}
	return all, nil
}

// kernelChains returns what the kernel has for these chains of the Ruleset, as far as that is known.
func (t *Table) kernelChains(chains []string) (names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.have == nil {
		return nil
	}
	for _, name := range chains {
		names = append(names, t.have.chains[name]...)
	}
	return names
}

// counters reads the counts of rules that log.
func (r *reader) counters() (all []Counter, err error) {
	var logged Prefix // of the rule before
	err = r.dump(unix.NFT_MSG_GETRULE, []uint16{unix.NFTA_RULE_EXPRESSIONS}, func(parts [][]byte) error {
		return eachExpression(parts[0], func(name string, data []byte) error {
			switch name {
			case "log":
				prefix, err := nfnetlink.Attributes(data, unix.NFTA_LOG_PREFIX)
				logged, _ = ParsePrefix(nfnetlink.Text(prefix[0]))
				return err
			case "counter":
				n, err := nfnetlink.Attributes(data, unix.NFTA_COUNTER_PACKETS, unix.NFTA_COUNTER_BYTES)
				if logged != (Prefix{}) {
					all = append(all, Counter{logged, nfnetlink.Uint64(n[0]), nfnetlink.Uint64(n[1])})
				}
				logged = Prefix{}
				return err
			}
			return nil
		})
	})
	return all, err
}

// eachExpression calls use with the name and the attributes of each expression of a rule.
func eachExpression(rule []byte, use func(name string, data []byte) error) error {
	list, err := netlink.NewAttributeDecoder(rule)
	if err != nil {
		return err
	}
	for list.Next() {
		parts, err := nfnetlink.Attributes(list.Bytes(), unix.NFTA_EXPR_NAME, unix.NFTA_EXPR_DATA)
		if err != nil {
			return err
		}
		if err := use(nfnetlink.Text(parts[0]), parts[1]); err != nil {
			return err
		}
	}
	return list.Err()
}
