package nft

import (
	"bytes"
	"fmt"
	"time"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/nfnetlink"
)

// kernel is what the kernel has of a table, without elements.
type kernel struct {
	exists bool
	flags  uint32 // of the table, NFT_TABLE_F_*
	sets   map[string]shape
	chains map[string]baseChain
	// rules are the expressions of each rule, by chain.
	rules map[string][][]byte
}

// reader reads a table.
type reader struct {
	socket *netlink.Conn
	table  string
	chain  string // whose rules are read; empty: those of all
	// beside has the transactions that do not matter for what is read; nil: all do.
	beside *resolved
}

// each is nfnetlink.Each, but for transactions that do not matter.
func (r *reader) each(request nfnetlink.Request, begin func(), use func(data []byte) error) error {
	if r.beside == nil {
		return nfnetlink.Each(r.socket, request, begin, use)
	}
	others := func() (uint32, error) { return r.beside.others(r.socket) }
	return nfnetlink.EachUnless(r.socket, request, begin, use, others)
}

// read reads the table without elements.
func (r *reader) read() (k kernel, err error) {
	k = kernel{
		sets: make(map[string]shape), chains: make(map[string]baseChain), rules: make(map[string][][]byte),
	}
	if k.exists, k.flags, err = r.tableFlags(); err != nil || !k.exists {
		return k, err
	}
	if err := r.readSets(&k); err != nil {
		return k, fmt.Errorf("sets: %w", err)
	}
	if err := r.readChains(&k); err != nil {
		return k, fmt.Errorf("chains: %w", err)
	}
	kinds := []uint16{unix.NFTA_RULE_CHAIN, unix.NFTA_RULE_EXPRESSIONS}
	err = r.dump(unix.NFT_MSG_GETRULE, kinds, func(parts [][]byte) error {
		name := nfnetlink.Text(parts[0])
		k.rules[name] = append(k.rules[name], parts[1])
		return nil
	})
	if err != nil {
		return k, fmt.Errorf("rules: %w", err)
	}
	return k, nil
}

// tableFlags reports whether there is a table, and its flags.
func (r *reader) tableFlags() (exists bool, flags uint32, err error) {
	err = r.dump(unix.NFT_MSG_GETTABLE, []uint16{unix.NFTA_TABLE_FLAGS}, func(parts [][]byte) error {
		exists, flags = true, nfnetlink.Uint32(parts[0])
		return nil
	})
	return exists, flags, err
}

func (r *reader) readSets(k *kernel) error {
	kinds := []uint16{
		unix.NFTA_SET_NAME, unix.NFTA_SET_FLAGS, unix.NFTA_SET_KEY_TYPE, unix.NFTA_SET_KEY_LEN, unix.NFTA_SET_DATA_TYPE,
		unix.NFTA_SET_DESC,
	}
	return r.dump(unix.NFT_MSG_GETSET, kinds, func(parts [][]byte) error {
		description, err := nfnetlink.Attributes(parts[5], unix.NFTA_SET_DESC_SIZE)
		if err != nil {
			return err
		}
		k.sets[nfnetlink.Text(parts[0])] = shape{
			flags: nfnetlink.Uint32(parts[1]), keyType: nfnetlink.Uint32(parts[2]), keySize: nfnetlink.Uint32(parts[3]),
			isMap: parts[4] != nil, most: nfnetlink.Uint32(description[0]),
		}
		return nil
	})
}

func (r *reader) readChains(k *kernel) error {
	kinds := []uint16{unix.NFTA_CHAIN_NAME, unix.NFTA_CHAIN_TYPE, unix.NFTA_CHAIN_HOOK, unix.NFTA_CHAIN_POLICY}
	return r.dump(unix.NFT_MSG_GETCHAIN, kinds, func(parts [][]byte) error {
		var base baseChain
		if parts[2] != nil {
			hook, err := nfnetlink.Attributes(parts[2], unix.NFTA_HOOK_HOOKNUM, unix.NFTA_HOOK_PRIORITY)
			if err != nil {
				return err
			}
			base = baseChain{
				nfnetlink.Text(parts[1]), nfnetlink.Uint32(hook[0]), nfnetlink.Uint32(hook[1]), nfnetlink.Uint32(parts[3]),
			}
		}
		k.chains[nfnetlink.Text(parts[0])] = base
		return nil
	})
}

// dump calls use with attributes of the given kinds of each table with the name, or of each of its
// chains, sets or rules.
func (r *reader) dump(what uint16, kinds []uint16, use func([][]byte) error) error {
	const table = 1 // the attribute with the table's name, of all kinds of objects
	request := nfnetlink.Request{Family: unix.NFPROTO_INET, What: what}
	if what != unix.NFT_MSG_GETTABLE {
		request.Selection = nfnetlink.AppendString(nil, table, r.table)
	}
	if what == unix.NFT_MSG_GETRULE && r.chain != "" {
		request.Selection = nfnetlink.AppendString(request.Selection, unix.NFTA_RULE_CHAIN, r.chain)
	}
	var all [][]byte
	err := r.each(request, func() { all = nil }, func(data []byte) error {
		all = append(all, bytes.Clone(data))
		return nil
	})
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

// elements reads the elements of a set by ID.
func (r *reader) elements(set string) (all map[string]element, err error) {
	request := nfnetlink.Request{Family: unix.NFPROTO_INET, What: unix.NFT_MSG_GETSETELEM}
	request.Selection = nfnetlink.AppendString(nil, unix.NFTA_SET_ELEM_LIST_TABLE, r.table)
	request.Selection = nfnetlink.AppendString(request.Selection, unix.NFTA_SET_ELEM_LIST_SET, set)
	begin := func() { all = make(map[string]element) }
	err = r.each(request, begin, func(message []byte) error {
		return nfnetlink.EachElement(message, func(data []byte) error {
			e, err := parseElement(data)
			all[e.id()] = e
			return err
		})
	})
	return all, err
}

func parseElement(data []byte) (e element, err error) {
	parts, err := nfnetlink.Attributes(data, unix.NFTA_SET_ELEM_KEY, unix.NFTA_SET_ELEM_DATA,
		unix.NFTA_SET_ELEM_FLAGS, unix.NFTA_SET_ELEM_TIMEOUT, unix.NFTA_SET_ELEM_EXPIRATION)
	if err != nil {
		return e, err
	}
	key, err := nfnetlink.Attributes(parts[0], unix.NFTA_DATA_VALUE)
	if err != nil {
		return e, err
	}
	e.key, e.isEnd = string(key[0]), nfnetlink.Uint32(parts[2])&intervalEnd != 0
	e.timeout = time.Duration(nfnetlink.Uint64(parts[3])) * time.Millisecond
	e.expires = time.Duration(nfnetlink.Uint64(parts[4])) * time.Millisecond
	if parts[1] != nil {
		e.verdict, err = parseVerdict(parts[1])
	}
	return e, err
}

// parseVerdict returns the verdict of an element of a map; a text that none of the table's has for
// those that it never adds.
func parseVerdict(data []byte) (string, error) {
	switch v, err := verdictOf(data); {
	case err != nil:
		return "", err
	case v.Kind == expr.VerdictAccept:
		return acceptAll, nil
	case v.Kind == expr.VerdictReturn:
		return returnAll, nil
	case v.Kind == expr.VerdictGoto:
		return v.Chain, nil
	default:
		return fmt.Sprintf("verdict %d %s", v.Kind, v.Chain), nil
	}
}

// verdictOf returns the verdict of an element of a map, or of a rule.
func verdictOf(data []byte) (v expr.Verdict, err error) {
	outer, err := nfnetlink.Attributes(data, unix.NFTA_DATA_VERDICT)
	if err != nil {
		return v, err
	}
	parts, err := nfnetlink.Attributes(outer[0], unix.NFTA_VERDICT_CODE, unix.NFTA_VERDICT_CHAIN)
	if err != nil {
		return v, err
	}
	return expr.Verdict{
		Kind: expr.VerdictKind(int32(nfnetlink.Uint32(parts[0]))), Chain: nfnetlink.Text(parts[1]),
	}, nil
}
