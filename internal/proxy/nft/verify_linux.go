package nft

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
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
		return 0, errnoOf(err)
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
			hook, err := attributes(parts[2], unix.NFTA_HOOK_HOOKNUM, unix.NFTA_HOOK_PRIORITY)
			if err != nil {
				return err
			}
			base = baseChain{text(parts[1]), bigEndian(hook[0]), bigEndian(hook[1]), bigEndian(parts[3])}
		}
		all[text(parts[0])] = base
		return nil
	})
	return all, err
}

// bigEndian returns a number of the kernel; 0 if there is none.
func bigEndian(data []byte) uint32 {
	if len(data) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(data)
}

// setKind is what a set is declared as: its flags and the lengths of keys and data in octets.
type setKind struct{ flags, key, data uint32 }

// hasSets reports whether a table has all sets, declared as they should be.
func (t *Table) hasSets(l *layout) (bool, error) {
	there := make(map[setName]setKind)
	kinds := []uint16{unix.NFTA_SET_NAME, unix.NFTA_SET_FLAGS, unix.NFTA_SET_KEY_LEN, unix.NFTA_SET_DATA_LEN}
	err := t.dump(l, unix.NFT_MSG_GETSET, kinds, func(parts [][]byte) error {
		there[setName(text(parts[0]))] = setKind{bigEndian(parts[1]), bigEndian(parts[2]), bigEndian(parts[3])}
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
		name := text(parts[0])
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
			if same, err := l.isRule(rules[i], rule); err != nil || !same {
				return false, err
			}
		}
	}
	return true, nil
}

// isRule reports whether a rule of the kernel has the expressions of another.
func (l *layout) isRule(there []byte, wanted []expr.Any) (bool, error) {
	list, err := netlink.NewAttributeDecoder(there)
	if err != nil {
		return false, err
	}
	for _, e := range wanted {
		if !list.Next() {
			return false, list.Err()
		}
		data, err := expr.Marshal(l.family.nfproto(), e)
		if err != nil {
			return false, err
		}
		if same, err := hasExpression(list.Bytes(), data); err != nil || !same {
			return false, err
		}
	}
	return !list.Next(), list.Err()
}

// hasExpression reports whether an expression of the kernel is another one.
func hasExpression(there, wanted []byte) (bool, error) {
	name, err := attributes(wanted, unix.NFTA_EXPR_NAME)
	if err != nil {
		return false, err
	}
	// A set is named by a number in the transaction that creates it, and by its name later. To the
	// flags of NAT the kernel adds what follows from the other attributes.
	var but uint16
	switch text(name[0]) {
	case "lookup":
		but = unix.NFTA_LOOKUP_SET_ID
	case "dynset":
		but = unix.NFTA_DYNSET_SET_ID
	case "nat":
		but = unix.NFTA_NAT_FLAGS
	}
	parts, err := attributes(wanted, unix.NFTA_EXPR_DATA)
	if err != nil {
		return false, err
	}
	found, err := attributes(there, unix.NFTA_EXPR_NAME, unix.NFTA_EXPR_DATA)
	if err != nil || !bytes.Equal(found[0], name[0]) {
		return false, err
	}
	return hasAttributes(found[1], parts[0], but)
}

// hasAttributes reports whether attributes of the kernel include others, except those of one kind.
// The kernel adds ones with its defaults.
func hasAttributes(there, wanted []byte, but uint16) (bool, error) {
	ad, err := netlink.NewAttributeDecoder(wanted)
	if err != nil {
		return false, err
	}
	for ad.Next() {
		if ad.Type() == but && but != 0 {
			continue
		}
		found, err := attributes(there, ad.Type())
		if err != nil {
			return false, err
		}
		same := bytes.Equal(found[0], ad.Bytes())
		if found[0] == nil { // it may leave out what is not set
			same = len(bytes.Trim(ad.Bytes(), "\x00")) == 0
		}
		if ad.TypeFlags()&unix.NLA_F_NESTED != 0 {
			same, err = hasAttributes(found[0], ad.Bytes(), 0)
		}
		if err != nil || !same {
			return false, err
		}
	}
	return true, ad.Err()
}

// dump calls use with attributes of the given kinds for each chain, set or rule of a table.
func (t *Table) dump(l *layout, what uint16, kinds []uint16, use func([][]byte) error) error {
	const table = 1 // the attribute with the table's name, of all kinds of objects
	all, err := t.list(l.family, what, appendString(nil, table, l.table.Name))
	if err != nil {
		return err
	}
	for _, data := range all {
		parts, err := attributes(data, append([]uint16{table}, kinds...)...)
		if err != nil {
			return err
		}
		if text(parts[0]) != l.table.Name {
			continue // the kernel selects chains by family only
		}
		if err := use(parts[1:]); err != nil {
			return err
		}
	}
	return nil
}
