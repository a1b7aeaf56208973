package nft

import (
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/nfnetlink"
)

// batch is one transaction on a table.
type batch struct {
	nfnetlink.Batch
	table string
	sets  uint32 // how many it creates
}

// operation adds or deletes elements.
type operation uint16

const (
	deletion operation = unix.NFT_MSG_DELSETELEM
	addition operation = unix.NFT_MSG_NEWSETELEM
)

// maxElements is how many elements are in one message: the length of their attribute has 16 bits.
const maxElements = 400

// message adds a message about an object of the table, whose name is attribute 1 of all kinds of objects.
func (b *batch) message(kind uint16, flags netlink.HeaderFlags, attributes func(buf []byte) []byte) {
	b.Begin(unix.NFPROTO_INET, kind, netlink.Request|flags)
	b.Buf = attributes(nfnetlink.AppendString(b.Buf, unix.NFTA_TABLE_NAME, b.table))
	b.End()
}

// newTable adds the creation of the table with flags, or the change of its flags.
func (b *batch) newTable(flags uint32) {
	b.message(unix.NFT_MSG_NEWTABLE, netlink.Create, func(buf []byte) []byte {
		if flags == 0 {
			return buf
		}
		return nfnetlink.AppendUint32(buf, unix.NFTA_TABLE_FLAGS, flags)
	})
}

func (b *batch) deleteTable() {
	b.message(unix.NFT_MSG_DELTABLE, 0, func(buf []byte) []byte { return buf })
}

// newSet adds the creation of a set.
func (b *batch) newSet(name string, s shape) {
	const bigEndian = 2 // nftables, enum byteorder
	b.sets++
	b.message(unix.NFT_MSG_NEWSET, netlink.Create, func(buf []byte) []byte {
		buf = nfnetlink.AppendString(buf, unix.NFTA_SET_NAME, name)
		buf = nfnetlink.AppendUint32(buf, unix.NFTA_SET_ID, b.sets)
		buf = nfnetlink.AppendUint32(buf, unix.NFTA_SET_FLAGS, s.flags)
		buf = nfnetlink.AppendUint32(buf, unix.NFTA_SET_KEY_TYPE, s.keyType)
		buf = nfnetlink.AppendUint32(buf, unix.NFTA_SET_KEY_LEN, s.keySize)
		data := userdata.AppendUint32(nil, userdata.NFTNL_UDATA_SET_KEYBYTEORDER, bigEndian)
		if s.dataSize > 0 {
			buf = nfnetlink.AppendUint32(buf, unix.NFTA_SET_DATA_TYPE, s.dataType)
			buf = nfnetlink.AppendUint32(buf, unix.NFTA_SET_DATA_LEN, s.dataSize)
			data = userdata.AppendUint32(data, userdata.NFTNL_UDATA_SET_DATABYTEORDER, bigEndian)
		}
		return nfnetlink.AppendAttribute(buf, unix.NFTA_SET_USERDATA, string(data))
	})
}

// newChain adds the creation of a chain with its rules.
func (b *batch) newChain(c *chain) error {
	b.message(unix.NFT_MSG_NEWCHAIN, netlink.Create, func(buf []byte) []byte {
		buf = nfnetlink.AppendString(buf, unix.NFTA_CHAIN_NAME, c.name)
		if c.base != (baseChain{}) {
			var hook int
			buf, hook = nfnetlink.OpenNested(buf, unix.NFTA_CHAIN_HOOK)
			buf = nfnetlink.AppendUint32(buf, unix.NFTA_HOOK_HOOKNUM, c.base.hook)
			buf = nfnetlink.AppendUint32(buf, unix.NFTA_HOOK_PRIORITY, uint32(c.base.priority))
			nfnetlink.CloseNested(buf, hook)
			buf = nfnetlink.AppendString(buf, unix.NFTA_CHAIN_TYPE, c.base.kind)
		}
		return buf
	})
	for _, r := range c.rules {
		expressions, err := marshal(r)
		if err != nil {
			return err
		}
		b.message(unix.NFT_MSG_NEWRULE, netlink.Create|netlink.Append, func(buf []byte) []byte {
			buf = nfnetlink.AppendString(buf, unix.NFTA_RULE_CHAIN, c.name)
			buf, list := nfnetlink.OpenNested(buf, unix.NFTA_RULE_EXPRESSIONS)
			for _, e := range expressions {
				buf = nfnetlink.AppendAttribute(buf, unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, string(e))
			}
			nfnetlink.CloseNested(buf, list)
			return buf
		})
	}
	return nil
}

// marshal returns the expressions of a rule as the kernel reads them.
func marshal(rule []expr.Any) (all [][]byte, err error) {
	for _, e := range rule {
		data, err := expr.Marshal(unix.NFPROTO_INET, e)
		if err != nil {
			return nil, err
		}
		all = append(all, data)
	}
	return all, nil
}

// edit adds or deletes elements; those of a set follow one another.
func (b *batch) edit(op operation, elements []element) {
	var flags netlink.HeaderFlags
	if op == addition {
		flags = netlink.Create
	}
	for len(elements) > 0 {
		n := 1
		for n < len(elements) && n < maxElements && elements[n].set == elements[0].set {
			n++
		}
		b.message(uint16(op), flags, func(buf []byte) []byte {
			buf = nfnetlink.AppendString(buf, unix.NFTA_SET_ELEM_LIST_SET, elements[0].set)
			buf, list := nfnetlink.OpenNested(buf, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
			for i := range elements[:n] {
				buf = elements[i].append(buf, op)
			}
			nfnetlink.CloseNested(buf, list)
			return buf
		})
		elements = elements[n:]
	}
}

// intervalEnd is NFT_SET_ELEM_INTERVAL_END.
const intervalEnd = 1

// append appends the attribute of an element (linux/netfilter/nf_tables.h, enum nft_set_elem_attributes). A deletion
// needs the key only.
func (e *element) append(buf []byte, op operation) []byte {
	buf, item := nfnetlink.OpenNested(buf, unix.NFTA_LIST_ELEM)
	if e.isEnd {
		buf = nfnetlink.AppendUint32(buf, unix.NFTA_SET_ELEM_FLAGS, intervalEnd)
	}
	buf = nfnetlink.AppendValue(buf, unix.NFTA_SET_ELEM_KEY, e.key)
	if op == addition && e.data != "" {
		buf = nfnetlink.AppendValue(buf, unix.NFTA_SET_ELEM_DATA, e.data)
	}
	nfnetlink.CloseNested(buf, item)
	return buf
}
