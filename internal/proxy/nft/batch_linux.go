package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// maxElements is how many elements are in one message: the length of their attribute has 16
// bits, and an element takes up to 100 octets.
const maxElements = 400

// answerWithin is the longest wait for the kernel.
const answerWithin = 10 * time.Second

// operation adds or deletes elements.
type operation uint16

const (
	deletion operation = unix.NFT_MSG_DELSETELEM
	addition operation = unix.NFT_MSG_NEWSETELEM
)

// batch is one transaction of elements.
type batch struct {
	name     string // of the tables
	messages []netlink.Message
	elements int
}

// edit adds a change of elements to the batch.
func (b *batch) edit(f Family, op operation, elements []element) {
	for len(elements) > 0 {
		n := 1
		for n < len(elements) && n < maxElements && elements[n].set == elements[0].set {
			n++
		}
		b.messages = append(b.messages, b.message(f, op, elements[:n]))
		b.elements += n
		elements = elements[n:]
	}
}

// replace adds the removal of all elements of a set, of which there are about n, and the addition of
// others.
func (b *batch) replace(f Family, set setName, n int, by []element) {
	data := appendString([]byte{f.nfproto(), unix.NFNETLINK_V0, 0, 0}, unix.NFTA_SET_ELEM_LIST_TABLE, b.name)
	b.messages = append(b.messages, netlink.Message{
		Header: netlink.Header{
			Type:  netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | uint16(deletion)),
			Flags: netlink.Request,
		},
		Data: appendString(data, unix.NFTA_SET_ELEM_LIST_SET, string(set)),
	})
	b.elements += max(n, 1)
	b.edit(f, addition, by)
}

// addTable adds the creation of a table with flags, or the change of its flags.
func (b *batch) addTable(f Family, flags uint32) {
	data := appendString([]byte{f.nfproto(), unix.NFNETLINK_V0, 0, 0}, unix.NFTA_TABLE_NAME, b.name)
	data = appendAttribute(data, unix.NFTA_TABLE_FLAGS, string(binary.BigEndian.AppendUint32(nil, flags)))
	b.messages = append(b.messages, netlink.Message{
		Header: netlink.Header{
			Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWTABLE, Flags: netlink.Request | netlink.Create,
		},
		Data: data,
	})
}

// message returns the message that adds or deletes elements of one set.
func (b *batch) message(f Family, op operation, elements []element) netlink.Message {
	buf := append(make([]byte, 0, 64+len(elements)*104), f.nfproto(), unix.NFNETLINK_V0, 0, 0)
	buf = appendString(buf, unix.NFTA_SET_ELEM_LIST_TABLE, b.name)
	buf = appendString(buf, unix.NFTA_SET_ELEM_LIST_SET, string(elements[0].set))
	buf, list := openNested(buf, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for i := range elements {
		buf = elements[i].append(buf, op)
	}
	closeNested(buf, list)
	flags := netlink.Request
	if op == addition {
		flags |= netlink.Create
	}
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | uint16(op)), Flags: flags},
		Data:   buf,
	}
}

// append appends the attribute of an element (linux/netfilter/nf_tables.h, enum
// nft_set_elem_attributes). A deletion needs no data.
func (e *element) append(buf []byte, op operation) []byte {
	buf, item := openNested(buf, unix.NFTA_LIST_ELEM)
	if e.isEnd {
		buf = appendAttribute(buf, unix.NFTA_SET_ELEM_FLAGS, "\x00\x00\x00\x01") // NFT_SET_ELEM_INTERVAL_END
	}
	buf = appendValue(buf, unix.NFTA_SET_ELEM_KEY, e.key)
	if e.end != "" {
		const keyEnd = 10 // NFTA_SET_ELEM_KEY_END
		buf = appendValue(buf, keyEnd, e.end)
	}
	switch {
	case op == deletion:
	case e.data != "":
		buf = appendValue(buf, unix.NFTA_SET_ELEM_DATA, e.data)
	case e.verdict != "":
		buf = appendVerdict(buf, e.verdict)
	}
	closeNested(buf, item)
	return buf
}

func appendVerdict(buf []byte, verdict string) []byte {
	buf, data := openNested(buf, unix.NFTA_SET_ELEM_DATA)
	buf, inner := openNested(buf, unix.NFTA_DATA_VERDICT)
	code := int32(unix.NFT_GOTO)
	if verdict == dropVerdict {
		code = 0 // NF_DROP
	}
	buf = appendAttribute(buf, unix.NFTA_VERDICT_CODE, string(binary.BigEndian.AppendUint32(nil, uint32(code))))
	if verdict != dropVerdict {
		buf = appendString(buf, unix.NFTA_VERDICT_CHAIN, verdict)
	}
	closeNested(buf, inner)
	closeNested(buf, data)
	return buf
}

// appendValue appends an attribute with a value in it.
func appendValue(buf []byte, kind uint16, value string) []byte {
	buf, outer := openNested(buf, kind)
	buf = appendAttribute(buf, unix.NFTA_DATA_VALUE, value)
	closeNested(buf, outer)
	return buf
}

func appendString(buf []byte, kind uint16, s string) []byte {
	return appendAttribute(buf, kind, s+"\x00")
}

// appendAttribute appends a netlink attribute (linux/netlink.h, struct nlattr).
func appendAttribute(buf []byte, kind uint16, value string) []byte {
	buf = binary.NativeEndian.AppendUint16(buf, uint16(unix.SizeofNlAttr+len(value)))
	buf = binary.NativeEndian.AppendUint16(buf, kind)
	buf = append(buf, value...)
	for len(buf)%unix.NLA_ALIGNTO != 0 {
		buf = append(buf, 0)
	}
	return buf
}

// openNested begins an attribute that has others in it, and closeNested ends it.
func openNested(buf []byte, kind uint16) (_ []byte, at int) {
	at = len(buf)
	buf = binary.NativeEndian.AppendUint16(buf, 0)
	return binary.NativeEndian.AppendUint16(buf, kind|unix.NLA_F_NESTED), at
}

func closeNested(buf []byte, at int) { binary.NativeEndian.PutUint16(buf[at:], uint16(len(buf)-at)) }

// commit sends the batch as one transaction. After an error the socket may have more
// answers and must be closed.
func (b *batch) commit(socket *netlink.Conn) error {
	if len(b.messages) == 0 {
		return nil
	}
	subsystem := []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}
	all := make([]netlink.Message, 0, len(b.messages)+2)
	all = append(all, netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_MSG_BATCH_BEGIN, Flags: netlink.Request}, Data: subsystem,
	})
	all = append(all, b.messages...)
	// The kernel answers in order, so that the acknowledgement of the last message is the
	// only answer if there is no error.
	all[len(all)-1].Header.Flags |= netlink.Acknowledge
	all = append(all, netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_MSG_BATCH_END, Flags: netlink.Request}, Data: subsystem,
	})
	if err := socket.SetDeadline(time.Now().Add(answerWithin)); err != nil {
		return err
	}
	if _, err := socket.SendMessages(all); err != nil {
		return errnoOf(err)
	}
	if _, err := socket.Receive(); err != nil {
		return errnoOf(err)
	}
	return nil
}

// errnoOf returns the kernel's error without the operation, which says nothing.
func errnoOf(err error) error {
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return errno
	}
	return fmt.Errorf("netlink: %w", err)
}
