package nft

import (
	"encoding/binary"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/nfnetlink"
)

// maxElements is how many elements are in one message: the length of their attribute has 16
// bits, and an element takes up to 100 octets.
const maxElements = 400

// operation adds or deletes elements.
type operation uint16

const (
	deletion operation = unix.NFT_MSG_DELSETELEM
	addition operation = unix.NFT_MSG_NEWSETELEM
)

// batch is one transaction.
type batch struct {
	nfnetlink.Batch
	name     string // of the tables
	elements int
}

// reset empties the batch and keeps its memory.
func (b *batch) reset() {
	b.Reset()
	b.elements = 0
}

// edit adds a change of elements to the batch.
func (b *batch) edit(f Family, op operation, elements []element) {
	for len(elements) > 0 {
		n := 1
		for n < len(elements) && n < maxElements && elements[n].set == elements[0].set {
			n++
		}
		b.editSet(f, op, elements[:n])
		b.elements += n
		elements = elements[n:]
	}
}

// editSet adds a message that adds or deletes elements of one set.
func (b *batch) editSet(f Family, op operation, elements []element) {
	flags := netlink.Request
	if op == addition {
		flags |= netlink.Create
	}
	b.Begin(f.nfproto(), uint16(op), flags)
	b.Buf = nfnetlink.AppendString(b.Buf, unix.NFTA_SET_ELEM_LIST_TABLE, b.name)
	b.Buf = nfnetlink.AppendString(b.Buf, unix.NFTA_SET_ELEM_LIST_SET, string(elements[0].set))
	buf, list := nfnetlink.OpenNested(b.Buf, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for i := range elements {
		buf = elements[i].append(buf, op)
	}
	nfnetlink.CloseNested(buf, list)
	b.Buf = buf
	b.End()
}

// replace adds the removal of all elements of a set, of which there are about n, and the addition of
// others.
func (b *batch) replace(f Family, set setName, n int, by []element) {
	b.Begin(f.nfproto(), uint16(deletion), netlink.Request)
	b.Buf = nfnetlink.AppendString(b.Buf, unix.NFTA_SET_ELEM_LIST_TABLE, b.name)
	b.Buf = nfnetlink.AppendString(b.Buf, unix.NFTA_SET_ELEM_LIST_SET, string(set))
	b.End()
	b.elements += max(n, 1)
	b.edit(f, addition, by)
}

// addTable adds the creation of a table with flags, or the change of its flags. Without flags, one
// that is there stays as it is.
func (b *batch) addTable(f Family, flags uint32) {
	b.Begin(f.nfproto(), unix.NFT_MSG_NEWTABLE, netlink.Request|netlink.Create)
	b.Buf = nfnetlink.AppendString(b.Buf, unix.NFTA_TABLE_NAME, b.name)
	if flags != 0 {
		b.Buf = nfnetlink.AppendAttribute(b.Buf, unix.NFTA_TABLE_FLAGS, string(binary.BigEndian.AppendUint32(nil, flags)))
	}
	b.End()
}

// deleteTable adds the deletion of the table.
func (b *batch) deleteTable(f Family) {
	b.remove(f, unix.NFT_MSG_DELTABLE, nfnetlink.AppendString(nil, unix.NFTA_TABLE_NAME, b.name))
}

// remove adds the removal of an object with attributes.
func (b *batch) remove(f Family, kind uint16, attributes ...[]byte) {
	b.Begin(f.nfproto(), kind, netlink.Request)
	b.Buf = append(b.Buf, slices.Concat(attributes...)...)
	b.End()
}

// append appends the attribute of an element (linux/netfilter/nf_tables.h, enum
// nft_set_elem_attributes). A deletion needs no data.
func (e *element) append(buf []byte, op operation) []byte {
	buf, item := nfnetlink.OpenNested(buf, unix.NFTA_LIST_ELEM)
	if e.isEnd {
		buf = nfnetlink.AppendAttribute(buf, unix.NFTA_SET_ELEM_FLAGS, "\x00\x00\x00\x01") // NFT_SET_ELEM_INTERVAL_END
	}
	buf = nfnetlink.AppendValue(buf, unix.NFTA_SET_ELEM_KEY, e.key)
	if e.end != "" {
		const keyEnd = 10 // NFTA_SET_ELEM_KEY_END
		buf = nfnetlink.AppendValue(buf, keyEnd, e.end)
	}
	switch {
	case op == deletion:
	case e.data != "":
		buf = nfnetlink.AppendValue(buf, unix.NFTA_SET_ELEM_DATA, e.data)
	case e.verdict == dropVerdict:
		buf = nfnetlink.AppendVerdict(buf, unix.NFTA_SET_ELEM_DATA, 0, "") // NF_DROP
	case e.verdict != "":
		buf = nfnetlink.AppendVerdict(buf, unix.NFTA_SET_ELEM_DATA, unix.NFT_GOTO, e.verdict)
	}
	nfnetlink.CloseNested(buf, item)
	return buf
}
