package nft

import (
	"encoding/binary"
	"errors"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/nfnetlink"
)

// Flags of tables, NFT_TABLE_F_DORMANT, _OWNER and _PERSIST of linux/netfilter/nf_tables.h. The
// chains of a dormant table meet no packets. Only the socket that owns a table can change it;
// others, such as "nft flush ruleset", leave it alone. If it persists it stays when the socket is
// closed, and another can own it then.
const (
	flagDormant = 1 << 0
	flagOwner   = 1 << 1
	flagPersist = 1 << 2
)

// inspect returns in which condition the table is, and its chains. A table that anybody changed,
// but for elements of its sets, is outdated. Afterwards the socket owns it, if it can be owned.
func (t *Table) inspect(l *layout) (condition, map[string]struct{}, error) {
	flags, err := t.tableFlags(l)
	if errors.Is(err, unix.ENOENT) {
		return absent, nil, nil
	}
	if err != nil {
		return absent, nil, err
	}
	otherKind := flags&flagDormant != 0 || t.plain != (flags&flagPersist == 0)
	switch err := t.own(l); {
	case otherKind && !errors.Is(err, ErrOwned):
		return outdated, nil, nil
	case err != nil:
		return absent, nil, err
	}
	there, err := t.chains(l)
	if err != nil {
		return absent, nil, err
	}
	if intact, err := t.verify(l, there); err != nil || !intact {
		return outdated, nil, err
	}
	names := make(map[string]struct{})
	for name := range there {
		names[name] = struct{}{}
	}
	return current, names, nil
}

// verify reports whether a table is as the layout has it, given its chains. It looks once at a
// table that the socket owns.
func (t *Table) verify(l *layout, there map[string]baseChain) (bool, error) {
	if t.verified[l.family] {
		return true, nil
	}
	wanted, err := l.wanted(there)
	if err != nil || !hasChains(there, wanted) {
		return false, err
	}
	if intact, err := t.hasSets(l); err != nil || !intact {
		return false, err
	}
	intact, err := t.hasRules(l, wanted)
	if err == nil && intact {
		t.verified[l.family] = !t.plain
	}
	return intact, err
}

// hasChains reports whether all wanted chains are there, with their hooks. Other chains may only be
// ones that no packet meets.
func hasChains(there map[string]baseChain, wanted []chain) bool {
	names := make(map[string]struct{})
	for _, c := range wanted {
		names[c.name] = struct{}{}
		if was, ok := there[c.name]; !ok || was != baseOf(c) {
			return false
		}
	}
	for name, base := range there {
		if _, ok := names[name]; !ok && base != (baseChain{}) {
			return false
		}
	}
	return true
}

// wanted returns the chains that a table should have, given those that are there: the ones from the
// start and, of affinity and of choices by hash, those that were added.
func (l *layout) wanted(there map[string]baseChain) ([]chain, error) {
	marker, err := l.marker()
	if err != nil {
		return nil, err
	}
	all := append(l.static(), chain{name: marker})
	made := make(map[sized]struct{})
	for name := range there {
		if s, ok := parseChain(name); ok && s.chains != plainChains {
			made[s] = struct{}{}
		}
	}
	for s := range made {
		for _, c := range l.lateChains(s.chains, s.size) {
			if _, ok := there[c.name]; ok {
				all = append(all, c)
			}
		}
	}
	return all, nil
}

// tableFlags returns the flags of a table.
func (t *Table) tableFlags(l *layout) (uint32, error) {
	if err := t.limit(); err != nil {
		return 0, err
	}
	table, err := t.conn.ListTableOfFamily(l.table.Name, l.table.Family)
	if err != nil {
		return 0, nfnetlink.ErrnoOf(err)
	}
	// The library reads a number of the kernel in the order of the machine.
	return binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, table.Flags)), nil
}

// baseChain is what makes a chain a base chain; zero is another chain.
type baseChain struct {
	kind           string
	hook, priority uint32
	policy         uint32
}

// baseOf returns what a chain of the layout should have.
func baseOf(c chain) baseChain {
	if c.base == nil {
		return baseChain{}
	}
	return baseChain{
		kind: string(
			c.base.Type,
		),
		hook:     uint32(*c.base.Hooknum),
		priority: uint32(*c.base.Priority),
		policy:   uint32(nftables.ChainPolicyAccept),
	}
}

// chains returns the chains of a table.
func (t *Table) chains(l *layout) (map[string]baseChain, error) {
	all := make(map[string]baseChain)
	kinds := []uint16{unix.NFTA_CHAIN_NAME, unix.NFTA_CHAIN_TYPE, unix.NFTA_CHAIN_HOOK, unix.NFTA_CHAIN_POLICY}
	err := t.dump(l, unix.NFT_MSG_GETCHAIN, kinds, func(parts [][]byte) error {
		var base baseChain
		if parts[2] != nil {
			hook, err := nfnetlink.Attributes(parts[2], unix.NFTA_HOOK_HOOKNUM, unix.NFTA_HOOK_PRIORITY)
			if err != nil {
				return err
			}
			base = baseChain{
				nfnetlink.Text(parts[1]),
				nfnetlink.Uint32(hook[0]),
				nfnetlink.Uint32(hook[1]),
				nfnetlink.Uint32(parts[3]),
			}
		}
		all[nfnetlink.Text(parts[0])] = base
		return nil
	})
	return all, err
}

// setKind is what a set is declared as: its flags and the lengths of keys and data in octets.
type setKind struct{ flags, key, data uint32 }

// hasSets reports whether a table has all sets, declared as they should be.
func (t *Table) hasSets(l *layout) (bool, error) {
	there := make(map[setName]setKind)
	kinds := []uint16{unix.NFTA_SET_NAME, unix.NFTA_SET_FLAGS, unix.NFTA_SET_KEY_LEN, unix.NFTA_SET_DATA_LEN}
	err := t.dump(l, unix.NFT_MSG_GETSET, kinds, func(parts [][]byte) error {
		there[setName(nfnetlink.Text(parts[0]))] = setKind{
			nfnetlink.Uint32(parts[1]),
			nfnetlink.Uint32(parts[2]),
			nfnetlink.Uint32(parts[3]),
		}
		return nil
	})
	for _, name := range append(l.setNames(), setAffinity) {
		if there[name] != kindOf(l.family.newSet(l.table, name)) {
			return false, err
		}
	}
	return true, err
}

// kindOf returns what a set should be declared as.
func kindOf(s *nftables.Set) setKind {
	k := setKind{key: s.KeyType.Bytes}
	for flag, has := range map[uint32]bool{
		unix.NFT_SET_INTERVAL: s.Interval, unix.NFT_SET_MAP: s.IsMap, unix.NFT_SET_TIMEOUT: s.HasTimeout,
		unix.NFT_SET_EVAL: s.Dynamic, setConcat: s.Concatenation,
	} {
		if has {
			k.flags |= flag
		}
	}
	switch {
	case s.IsMap && s.DataType == nftables.TypeVerdict:
		k.data = 16 // sizeof(struct nft_verdict)
	case s.IsMap:
		k.data = s.DataType.Bytes
	}
	return k
}

// setConcat is NFT_SET_CONCAT of linux/netfilter/nf_tables.h.
const setConcat = 0x80

// hasRules reports whether chains have the rules that they should have, and no others.
func (t *Table) hasRules(l *layout, wanted []chain) (bool, error) {
	there := make(map[string][][]byte) // the expressions of each rule, by chain
	kinds := []uint16{unix.NFTA_RULE_CHAIN, unix.NFTA_RULE_EXPRESSIONS}
	err := t.dump(l, unix.NFT_MSG_GETRULE, kinds, func(parts [][]byte) error {
		name := nfnetlink.Text(parts[0])
		there[name] = append(there[name], parts[1])
		return nil
	})
	if err != nil {
		return false, err
	}
	for _, c := range wanted {
		rules := there[c.name]
		if len(rules) != len(c.rules) {
			return false, nil
		}
		for i, rule := range c.rules {
			data, err := l.marshal(rule)
			if err != nil {
				return false, err
			}
			if same, err := nfnetlink.IsRule(rules[i], data); err != nil || !same {
				return false, err
			}
		}
	}
	return true, nil
}

// marshal returns the expressions of a rule.
func (l *layout) marshal(rule []expr.Any) (all [][]byte, err error) {
	for _, e := range rule {
		data, err := expr.Marshal(l.family.nfproto(), e)
		if err != nil {
			return nil, err
		}
		all = append(all, data)
	}
	return all, nil
}

// dump calls use with attributes of the given kinds for each chain, set or rule of a table.
func (t *Table) dump(l *layout, what uint16, kinds []uint16, use func([][]byte) error) error {
	const table = 1 // the attribute with the table's name, of all kinds of objects
	all, err := t.list(l.family, what, nfnetlink.AppendString(nil, table, l.table.Name))
	if err != nil {
		return err
	}
	for _, data := range all {
		parts, err := nfnetlink.Attributes(data, append([]uint16{table}, kinds...)...)
		if err != nil {
			return err
		}
		if nfnetlink.Text(parts[0]) != l.table.Name {
			continue // the kernel selects chains by family only
		}
		if err := use(parts[1:]); err != nil {
			return err
		}
	}
	return nil
}
