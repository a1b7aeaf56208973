package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/support/nfnetlink"
)

// kernel is what the kernel has of a family.
type kernel struct {
	// elements are by set and ID.
	elements map[setName]map[string]element
	// sources are the ranges of sources, by destination.
	sources map[string][]element
	// slots are the targets in slots, by destination.
	slots map[string]map[int]netip.AddrPort
	// numbers are those of the targets in slots, by destination.
	numbers map[string]map[candidate]uint32
	// remembered are the numbers of clients.
	remembered []uint32
}

// entry returns the endpoints at an address by their slots, and their numbers.
func (k *kernel) entry(at frontend.Address) (*entry, recalled) {
	key := destination(at)
	all := k.slots[key]
	had := recalled{numbers: k.numbers[key]}
	if id := k.elements[setAffinityGroups][key].data; len(id) == 4 {
		had.id = binary.NativeEndian.Uint32([]byte(id))
	}
	return &entry{slots: inOrder(all, 0), local: inOrder(all, localSlot)}, had
}

// inOrder lists the targets in the slots from first on.
func inOrder(all map[int]netip.AddrPort, first int) (list []netip.AddrPort) {
	for {
		to, ok := all[first+len(list)]
		if !ok {
			return list
		}
		list = append(list, to)
	}
}

// read reads the elements of a family.
func (t *Table) read(l *layout) (kernel, error) {
	k := kernel{
		elements: make(map[setName]map[string]element),
		sources:  make(map[string][]element),
		slots:    make(map[string]map[int]netip.AddrPort),
		numbers:  make(map[string]map[candidate]uint32),
	}
	for _, name := range l.setNames() {
		all, err := t.elements(l.family, name)
		if err != nil {
			return k, fmt.Errorf("set %s: %w", name, err)
		}
		k.elements[name] = all
	}
	clients, err := t.elements(l.family, setAffinity)
	if err != nil {
		return k, fmt.Errorf("set %s: %w", setAffinity, err)
	}
	for _, e := range clients {
		if len(e.data) == 4 {
			k.remembered = append(k.remembered, binary.NativeEndian.Uint32([]byte(e.data)))
		}
	}
	for key, e := range k.elements[setSourceRanges] {
		if size := l.family.length() + 8; len(key) > size { // see destination
			k.sources[key[:size]] = append(k.sources[key[:size]], e)
		}
	}
	for key, e := range k.elements[setEndpoints] {
		k.place(l.family, key, e.data)
	}
	for key, e := range k.elements[setAffinityChoices] {
		k.remember(l.family, key, e.data)
	}
	return k, nil
}

// remember records the number in the slot with a key.
func (k *kernel) remember(f Family, key, n string) {
	size := f.length() + 8 // see destination
	if len(key) != size+4 || len(n) != 4 {
		return
	}
	at, to := k.place(f, key, k.elements[setAffinityEndpoints][key[:size]+n].data)
	if at == "" {
		return
	}
	if k.numbers[at] == nil {
		k.numbers[at] = make(map[candidate]uint32)
	}
	local := binary.NativeEndian.Uint32([]byte(key[size:])) >= localSlot
	k.numbers[at][candidate{to, local}] = binary.NativeEndian.Uint32([]byte(n))
}

// place records the target in the slot with a key, and returns its destination. It ignores what
// it does not understand, which is not in any slot then.
func (k *kernel) place(f Family, key, data string) (at string, to netip.AddrPort) {
	size := f.length() + 8 // see destination
	to, ok := parseTarget(data)
	if !ok || len(key) != size+4 {
		return "", to
	}
	at = key[:size]
	if k.slots[at] == nil {
		k.slots[at] = make(map[int]netip.AddrPort)
	}
	k.slots[at][int(binary.NativeEndian.Uint32([]byte(key[size:])))] = to
	return at, to
}

// parseTarget reads the data addr . port.
func parseTarget(data string) (to netip.AddrPort, ok bool) {
	if len(data) != 4+4 && len(data) != 16+4 {
		return to, false
	}
	addr, ok := netip.AddrFromSlice([]byte(data[:len(data)-4]))
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16([]byte(data[len(data)-4:]))), ok
}

// elements reads the elements of a set.
func (t *Table) elements(f Family, name setName) (all map[string]element, err error) {
	begin := func() { all = make(map[string]element) }
	err = t.eachElement(f, name, begin, func(data []byte) error {
		e, err := parseElement(data)
		e.set = name
		all[e.id()] = e
		return err
	})
	return all, err
}

// eachElement calls use with the attributes of each element of a set. It begins again, and says so,
// if nftables changes meanwhile.
func (t *Table) eachElement(f Family, name setName, begin func(), use func(data []byte) error) error {
	selection := nfnetlink.AppendString(nil, unix.NFTA_SET_ELEM_LIST_TABLE, t.cfg.Name)
	selection = nfnetlink.AppendString(selection, unix.NFTA_SET_ELEM_LIST_SET, string(name))
	request := nfnetlink.Request{Family: f.nfproto(), What: unix.NFT_MSG_GETSETELEM, Selection: selection}
	return nfnetlink.Each(t.socket, request, begin, func(message []byte) error {
		return nfnetlink.EachElement(message, use)
	})
}

func parseElement(data []byte) (e element, err error) {
	const keyEnd = 10 // NFTA_SET_ELEM_KEY_END
	parts, err := nfnetlink.Attributes(
		data,
		unix.NFTA_SET_ELEM_KEY,
		keyEnd,
		unix.NFTA_SET_ELEM_DATA,
		unix.NFTA_SET_ELEM_FLAGS,
	)
	if err != nil {
		return e, err
	}
	e.isEnd = len(parts[3]) == 4 && parts[3][3]&1 != 0 // NFT_SET_ELEM_INTERVAL_END
	for i, into := range []*string{&e.key, &e.end, &e.data} {
		value, err := nfnetlink.Attributes(parts[i], unix.NFTA_DATA_VALUE, unix.NFTA_DATA_VERDICT)
		if err != nil {
			return e, err
		}
		*into = string(value[0])
		if value[1] == nil {
			continue
		}
		verdict, err := nfnetlink.Attributes(value[1], unix.NFTA_VERDICT_CODE, unix.NFTA_VERDICT_CHAIN)
		if err != nil {
			return e, err
		}
		e.verdict = dropVerdict
		if n := len(verdict[1]); n > 0 {
			e.verdict = string(verdict[1][:n-1])
		}
	}
	return e, nil
}

// list returns the attributes of all objects of a kind in a family that have the given attributes.
func (t *Table) list(f Family, what uint16, selection []byte) ([][]byte, error) {
	return nfnetlink.List(t.socket, nfnetlink.Request{Family: f.nfproto(), What: what, Selection: selection})
}
