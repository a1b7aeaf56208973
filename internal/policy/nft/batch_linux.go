package nft

import (
	"time"

	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
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

// batch is one transaction on a table.
type batch struct {
	nfnetlink.Batch
	table string
	sets  uint32 // how many it creates
}

// message adds a message about an object of the table; attributes appends the object's, less the
// table's name, which all kinds of objects have in attribute 1.
func (b *batch) message(kind uint16, flags netlink.HeaderFlags, attributes func(buf []byte) []byte) {
	b.Begin(unix.NFPROTO_INET, kind, netlink.Request|flags)
	b.Buf = attributes(nfnetlink.AppendString(b.Buf, unix.NFTA_TABLE_NAME, b.table))
	b.End()
}

// newTable adds the creation of the table, unless it is there.
func (b *batch) newTable() {
	b.message(unix.NFT_MSG_NEWTABLE, netlink.Create, func(buf []byte) []byte {
		return appendComment(buf, tableUserdata, userdata.TypeComment, "network policies of the Pods of this node")
	})
}

func (b *batch) deleteTable() {
	b.message(unix.NFT_MSG_DELTABLE, 0, func(buf []byte) []byte { return buf })
}

// Attributes that the library golang.org/x/sys lacks (linux/netfilter/nf_tables.h).
const (
	tableUserdata = 6  // NFTA_TABLE_USERDATA
	chainUserdata = 12 // NFTA_CHAIN_USERDATA
)

// appendComment appends an attribute with a comment that nft shows; none if it is empty.
func appendComment(buf []byte, kind uint16, as userdata.Type, comment string) []byte {
	if comment == "" {
		return buf
	}
	return nfnetlink.AppendAttribute(buf, kind, string(userdata.AppendString(nil, as, comment)))
}

// newSet adds the creation of a set.
func (b *batch) newSet(name string, s shape, comment string) {
	const verdict, hostEndian, bigEndian = 0xffffff00, 1, 2 // NFT_DATA_VERDICT; nftables, enum byteorder
	order := uint32(bigEndian)
	if s.keyType == typeDevice {
		order = hostEndian
	}
	b.sets++
	b.message(unix.NFT_MSG_NEWSET, netlink.Create, func(buf []byte) []byte {
		buf = nfnetlink.AppendString(buf, unix.NFTA_SET_NAME, name)
		buf = nfnetlink.AppendUint32(buf, unix.NFTA_SET_ID, b.sets)
		buf = nfnetlink.AppendUint32(buf, unix.NFTA_SET_FLAGS, s.flags)
		buf = nfnetlink.AppendUint32(buf, unix.NFTA_SET_KEY_TYPE, s.keyType)
		buf = nfnetlink.AppendUint32(buf, unix.NFTA_SET_KEY_LEN, s.keySize)
		if s.isMap {
			buf = nfnetlink.AppendUint32(buf, unix.NFTA_SET_DATA_TYPE, verdict)
		}
		if s.most > 0 {
			var description int
			buf, description = nfnetlink.OpenNested(buf, unix.NFTA_SET_DESC)
			buf = nfnetlink.AppendUint32(buf, unix.NFTA_SET_DESC_SIZE, s.most)
			nfnetlink.CloseNested(buf, description)
		}
		data := userdata.AppendUint32(nil, userdata.NFTNL_UDATA_SET_KEYBYTEORDER, order)
		if comment != "" {
			data = userdata.AppendString(data, userdata.NFTNL_UDATA_SET_COMMENT, comment)
		}
		return nfnetlink.AppendAttribute(buf, unix.NFTA_SET_USERDATA, string(data))
	})
}

func (b *batch) deleteSet(name string) {
	b.message(unix.NFT_MSG_DELSET, 0, func(buf []byte) []byte {
		return nfnetlink.AppendString(buf, unix.NFTA_SET_NAME, name)
	})
}

// newChain adds the creation of a chain without its rules.
func (b *batch) newChain(c *chain) {
	b.message(unix.NFT_MSG_NEWCHAIN, netlink.Create, func(buf []byte) []byte {
		buf = nfnetlink.AppendString(buf, unix.NFTA_CHAIN_NAME, c.name)
		if c.base != (baseChain{}) {
			var hook int
			buf, hook = nfnetlink.OpenNested(buf, unix.NFTA_CHAIN_HOOK)
			buf = nfnetlink.AppendUint32(buf, unix.NFTA_HOOK_HOOKNUM, c.base.hook)
			buf = nfnetlink.AppendUint32(buf, unix.NFTA_HOOK_PRIORITY, c.base.priority)
			nfnetlink.CloseNested(buf, hook)
			buf = nfnetlink.AppendString(buf, unix.NFTA_CHAIN_TYPE, c.base.kind)
			buf = nfnetlink.AppendUint32(buf, unix.NFTA_CHAIN_POLICY, c.base.policy)
		}
		return appendComment(buf, chainUserdata, userdata.TypeComment, c.comment)
	})
}

// flushChain adds the removal of all rules of a chain.
func (b *batch) flushChain(name string) {
	b.message(unix.NFT_MSG_DELRULE, 0, func(buf []byte) []byte {
		return nfnetlink.AppendString(buf, unix.NFTA_RULE_CHAIN, name)
	})
}

func (b *batch) deleteChain(name string) {
	b.message(unix.NFT_MSG_DELCHAIN, 0, func(buf []byte) []byte {
		return nfnetlink.AppendString(buf, unix.NFTA_CHAIN_NAME, name)
	})
}

// newRules adds the rules of a chain.
func (b *batch) newRules(c *chain) error {
	for _, r := range c.rules {
		expressions, err := r.marshal()
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
			return appendComment(buf, unix.NFTA_RULE_USERDATA, userdata.TypeComment, r.comment)
		})
	}
	return nil
}

// marshal returns the expressions of a rule as the kernel reads them.
func (r *rule) marshal() (all [][]byte, err error) {
	for _, e := range r.expressions {
		data, err := expr.Marshal(unix.NFPROTO_INET, e)
		if err != nil {
			return nil, err
		}
		all = append(all, data)
	}
	return all, nil
}

// edit adds or deletes elements of a set.
func (b *batch) edit(op operation, set string, elements []element) {
	var flags netlink.HeaderFlags
	if op == addition {
		flags = netlink.Create
	}
	for len(elements) > 0 {
		n := min(len(elements), maxElements)
		b.message(uint16(op), flags, func(buf []byte) []byte {
			buf = nfnetlink.AppendString(buf, unix.NFTA_SET_ELEM_LIST_SET, set)
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

// append appends the attribute of an element (linux/netfilter/nf_tables.h, enum
// nft_set_elem_attributes). A deletion needs the key only.
func (e *element) append(buf []byte, op operation) []byte {
	buf, item := nfnetlink.OpenNested(buf, unix.NFTA_LIST_ELEM)
	if e.isEnd {
		buf = nfnetlink.AppendUint32(buf, unix.NFTA_SET_ELEM_FLAGS, intervalEnd)
	}
	buf = nfnetlink.AppendValue(buf, unix.NFTA_SET_ELEM_KEY, e.key)
	switch {
	case op == deletion:
	case e.verdict == acceptAll:
		buf = nfnetlink.AppendVerdict(buf, unix.NFTA_SET_ELEM_DATA, accept, "")
	case e.verdict == returnAll:
		buf = nfnetlink.AppendVerdict(buf, unix.NFTA_SET_ELEM_DATA, unix.NFT_RETURN, "")
	case e.verdict != "":
		buf = nfnetlink.AppendVerdict(buf, unix.NFTA_SET_ELEM_DATA, unix.NFT_GOTO, e.verdict)
	case e.timeout > 0:
		buf = appendMilliseconds(buf, unix.NFTA_SET_ELEM_TIMEOUT, e.timeout)
		// Without it, the kernel leaves an element that it has with the same timeout alone.
		buf = appendMilliseconds(buf, unix.NFTA_SET_ELEM_EXPIRATION, e.expires)
	}
	nfnetlink.CloseNested(buf, item)
	return buf
}

// Numbers of the kernel: NFT_SET_ELEM_INTERVAL_END, NF_ACCEPT.
const (
	intervalEnd = 1
	accept      = 1
)

func appendMilliseconds(buf []byte, kind uint16, d time.Duration) []byte {
	n := max(uint64(d/time.Millisecond), 1)
	return nfnetlink.AppendUint64(buf, kind, n)
}
