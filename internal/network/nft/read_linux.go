package nft

import (
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/nfnetlink"
)

// reader reads a table.
type reader struct {
	socket *netlink.Conn
	table  string
}

// Flags of tables, see nfnetlink.Batch and linux/netfilter/nf_tables.h.
const (
	flagDormant = 1 << 0
	flagOwner   = 1 << 1
	flagPersist = 1 << 2
)

// accept is NF_ACCEPT of linux/netfilter.h.
const accept = 1

// flags reports whether there is a table, and its flags.
func (r *reader) flags() (exists bool, flags uint32, err error) {
	err = r.dump(unix.NFT_MSG_GETTABLE, []uint16{unix.NFTA_TABLE_FLAGS}, func(parts [][]byte) error {
		exists, flags = true, nfnetlink.Uint32(parts[0])
		return nil
	})
	return exists, flags, err
}

// isIntact reports whether the table has the sets, chains and rules of the layout, and no others.
func (r *reader) isIntact(layout []chain) (bool, error) {
	sets, err := r.sets()
	if err != nil {
		return false, fmt.Errorf("sets: %w", err)
	}
	for _, f := range families {
		for _, name := range setNames {
			if sets[name+f.suffix] != f.shapeOf(name) {
				return false, nil
			}
		}
	}
	bases, err := r.chains()
	if err != nil {
		return false, fmt.Errorf("chains: %w", err)
	}
	rules, err := r.rules()
	if err != nil {
		return false, fmt.Errorf("rules: %w", err)
	}
	if len(bases) != len(layout) || len(sets) != len(families)*len(setNames) {
		return false, nil
	}
	for _, c := range layout {
		if base, ok := bases[c.name]; !ok || base != c.base || len(rules[c.name]) != len(c.rules) {
			return false, nil
		}
		for i, rule := range c.rules {
			wanted, err := marshal(rule)
			if err != nil {
				return false, err
			}
			if same, err := nfnetlink.IsRule(rules[c.name][i], wanted); err != nil || !same {
				return false, err
			}
		}
	}
	return true, nil
}

func (r *reader) sets() (map[string]shape, error) {
	all := make(map[string]shape)
	kinds := []uint16{
		unix.NFTA_SET_NAME, unix.NFTA_SET_FLAGS, unix.NFTA_SET_KEY_TYPE, unix.NFTA_SET_KEY_LEN, unix.NFTA_SET_DATA_TYPE,
		unix.NFTA_SET_DATA_LEN,
	}
	err := r.dump(unix.NFT_MSG_GETSET, kinds, func(parts [][]byte) error {
		all[nfnetlink.Text(parts[0])] = shape{
			nfnetlink.Uint32(parts[1]), nfnetlink.Uint32(parts[2]), nfnetlink.Uint32(parts[3]), nfnetlink.Uint32(parts[4]),
			nfnetlink.Uint32(parts[5]),
		}
		return nil
	})
	return all, err
}

func (r *reader) chains() (map[string]baseChain, error) {
	all := make(map[string]baseChain)
	kinds := []uint16{unix.NFTA_CHAIN_NAME, unix.NFTA_CHAIN_TYPE, unix.NFTA_CHAIN_HOOK, unix.NFTA_CHAIN_POLICY}
	err := r.dump(unix.NFT_MSG_GETCHAIN, kinds, func(parts [][]byte) error {
		var base baseChain
		if parts[2] != nil {
			hook, err := nfnetlink.Attributes(parts[2], unix.NFTA_HOOK_HOOKNUM, unix.NFTA_HOOK_PRIORITY)
			if err != nil {
				return err
			}
			base = baseChain{nfnetlink.Text(parts[1]), nfnetlink.Uint32(hook[0]), int32(nfnetlink.Uint32(hook[1]))}
			if nfnetlink.Uint32(parts[3]) != accept {
				base.kind += ", not accept"
			}
		}
		all[nfnetlink.Text(parts[0])] = base
		return nil
	})
	return all, err
}

// rules returns the expressions of each rule, by chain.
func (r *reader) rules() (map[string][][]byte, error) {
	all := make(map[string][][]byte)
	kinds := []uint16{unix.NFTA_RULE_CHAIN, unix.NFTA_RULE_EXPRESSIONS}
	err := r.dump(unix.NFT_MSG_GETRULE, kinds, func(parts [][]byte) error {
		name := nfnetlink.Text(parts[0])
		all[name] = append(all[name], parts[1])
		return nil
	})
	return all, err
}

// dump calls use with attributes of the given kinds of each table with the name, or of each of its chains, sets or
// rules.
func (r *reader) dump(what uint16, kinds []uint16, use func([][]byte) error) error {
	const table = 1 // the attribute with the table's name, of all kinds of objects
	request := nfnetlink.Request{Family: unix.NFPROTO_INET, What: what}
	if what != unix.NFT_MSG_GETTABLE {
		request.Selection = nfnetlink.AppendString(nil, table, r.table)
	}
	all, err := nfnetlink.List(r.socket, request)
	if err != nil {
		return err
	}
	for _, data := range all {
		parts, err := nfnetlink.Attributes(data, append([]uint16{table}, kinds...)...)
		if err != nil {
			return err
		}
		if nfnetlink.Text(parts[0]) != r.table {
			continue // the kernel selects chains by family only
		}
		if err := use(parts[1:]); err != nil {
			return err
		}
	}
	return nil
}

// elements reads the elements of all sets.
func (r *reader) elements() (map[element]bool, error) {
	all := make(map[element]bool)
	for _, f := range families {
		for _, name := range setNames {
			if err := r.elementsOf(name+f.suffix, all); err != nil {
				return nil, fmt.Errorf("set %s%s: %w", name, f.suffix, err)
			}
		}
	}
	return all, nil
}

func (r *reader) elementsOf(set string, all map[element]bool) error {
	request := nfnetlink.Request{Family: unix.NFPROTO_INET, What: unix.NFT_MSG_GETSETELEM}
	request.Selection = nfnetlink.AppendString(nil, unix.NFTA_SET_ELEM_LIST_TABLE, r.table)
	request.Selection = nfnetlink.AppendString(request.Selection, unix.NFTA_SET_ELEM_LIST_SET, set)
	var found []element
	err := nfnetlink.Each(r.socket, request, func() { found = nil }, func(message []byte) error {
		return nfnetlink.EachElement(message, func(data []byte) error {
			e, err := parse(data)
			e.set = set
			found = append(found, e)
			return err
		})
	})
	for _, e := range found {
		all[e] = true
	}
	return err
}

// has reports whether a set has an element, with its data. It reads that element only.
func (r *reader) has(e element) (has bool, err error) {
	key := nfnetlink.Key{Family: unix.NFPROTO_INET, Table: r.table, Set: e.set, Value: e.key}
	_, err = nfnetlink.Find(r.socket, key, func(data []byte) error {
		found, err := parse(data)
		has = err == nil && found.key == e.key && found.data == e.data
		return err
	})
	return has, err
}

// parse returns an element of the kernel without its set.
func parse(data []byte) (e element, err error) {
	parts, err := nfnetlink.Attributes(data, unix.NFTA_SET_ELEM_KEY, unix.NFTA_SET_ELEM_DATA, unix.NFTA_SET_ELEM_FLAGS)
	if err != nil {
		return e, err
	}
	e.isEnd = nfnetlink.Uint32(parts[2])&intervalEnd != 0
	for i, into := range []*string{&e.key, &e.data} {
		value, err := nfnetlink.Attributes(parts[i], unix.NFTA_DATA_VALUE)
		if err != nil {
			return e, err
		}
		*into = string(value[0])
	}
	return e, nil
}
