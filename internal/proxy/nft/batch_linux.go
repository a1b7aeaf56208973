package nft

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// maxElements is how many elements are in one message: the length of their attribute has 16
// bits, and an element takes up to 100 octets.
const maxElements = 400

const (
	// answerWithin is the longest wait for the kernel.
	answerWithin = 10 * time.Second
	// listedWithin is the longest wait for all elements of a set, or the like, see maxMessage.
	listedWithin = 10 * time.Minute
)

// operation adds or deletes elements.
type operation uint16

const (
	deletion operation = unix.NFT_MSG_DELSETELEM
	addition operation = unix.NFT_MSG_NEWSETELEM
)

// batch is one transaction, in the octets that the kernel reads.
type batch struct {
	name     string // of the tables
	buf      []byte // the messages so far, and one before them that begins the batch
	last     int    // where the last message begins
	elements int
}

// reset empties the batch and keeps its memory.
func (b *batch) reset() { *b = batch{name: b.name, buf: b.buf[:0]} }

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
	b.begin(f, uint16(op), flags)
	b.buf = appendString(b.buf, unix.NFTA_SET_ELEM_LIST_TABLE, b.name)
	b.buf = appendString(b.buf, unix.NFTA_SET_ELEM_LIST_SET, string(elements[0].set))
	buf, list := openNested(b.buf, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for i := range elements {
		buf = elements[i].append(buf, op)
	}
	closeNested(buf, list)
	b.buf = buf
	b.end()
}

// replace adds the removal of all elements of a set, of which there are about n, and the addition of
// others.
func (b *batch) replace(f Family, set setName, n int, by []element) {
	b.begin(f, uint16(deletion), netlink.Request)
	b.buf = appendString(b.buf, unix.NFTA_SET_ELEM_LIST_TABLE, b.name)
	b.buf = appendString(b.buf, unix.NFTA_SET_ELEM_LIST_SET, string(set))
	b.end()
	b.elements += max(n, 1)
	b.edit(f, addition, by)
}

// addTable adds the creation of a table with flags, or the change of its flags. Without flags, one
// that is there stays as it is.
func (b *batch) addTable(f Family, flags uint32) {
	b.begin(f, unix.NFT_MSG_NEWTABLE, netlink.Request|netlink.Create)
	b.buf = appendString(b.buf, unix.NFTA_TABLE_NAME, b.name)
	if flags != 0 {
		b.buf = appendAttribute(b.buf, unix.NFTA_TABLE_FLAGS, string(binary.BigEndian.AppendUint32(nil, flags)))
	}
	b.end()
}

// deleteTable adds the deletion of the table.
func (b *batch) deleteTable(f Family) {
	b.remove(f, unix.NFT_MSG_DELTABLE, appendString(nil, unix.NFTA_TABLE_NAME, b.name))
}

// remove adds the removal of an object with attributes.
func (b *batch) remove(f Family, kind uint16, attributes ...[]byte) {
	b.begin(f, kind, netlink.Request)
	b.buf = append(b.buf, slices.Concat(attributes...)...)
	b.end()
}

// begin begins a message of nftables (linux/netlink.h, struct nlmsghdr; nfnetlink.h, struct
// nfgenmsg), and end ends it.
func (b *batch) begin(f Family, kind uint16, flags netlink.HeaderFlags) {
	if len(b.buf) == 0 {
		b.bracket(unix.NFNL_MSG_BATCH_BEGIN)
	}
	b.header(unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags)
	b.buf = append(b.buf, f.nfproto(), unix.NFNETLINK_V0, 0, 0)
}

func (b *batch) end() { binary.NativeEndian.PutUint32(b.buf[b.last:], uint32(len(b.buf)-b.last)) }

// bracket adds the message that begins or ends a batch.
func (b *batch) bracket(kind uint16) {
	b.header(kind, netlink.Request)
	b.buf = append(b.buf, unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES)
	b.end()
}

// header adds a message's header, without its length; the kernel sets the sender.
func (b *batch) header(kind uint16, flags netlink.HeaderFlags) {
	b.last = len(b.buf)
	b.buf = append(b.buf, 0, 0, 0, 0)
	b.buf = binary.NativeEndian.AppendUint16(b.buf, kind)
	b.buf = binary.NativeEndian.AppendUint16(b.buf, uint16(flags))
	b.buf = append(b.buf, 0, 0, 0, 0, 0, 0, 0, 0)
}

// acknowledge has the kernel answer the last message.
func (b *batch) acknowledge() {
	const flags = 6 // the offset
	at := b.buf[b.last+flags:]
	binary.NativeEndian.PutUint16(at, binary.NativeEndian.Uint16(at)|uint16(netlink.Acknowledge))
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
	if len(b.buf) == 0 {
		return nil
	}
	// The kernel answers in order, so that the acknowledgement of the last message is the
	// only answer if there is no error.
	b.acknowledge()
	b.bracket(unix.NFNL_MSG_BATCH_END)
	if err := socket.SetDeadline(time.Now().Add(answerWithin)); err != nil {
		return err
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	err = retried(raw.Write, func(fd int) error { return unix.Sendto(fd, b.buf, 0, &unix.SockaddrNetlink{}) })
	if err != nil {
		return errnoOf(err)
	}
	// The kernel has done everything by now, however long that took.
	if err := socket.SetDeadline(time.Now().Add(answerWithin)); err != nil {
		return err
	}
	var answer [unix.SizeofNlMsghdr + 4]byte // the rest repeats what was sent
	var n int
	err = retried(raw.Read, func(fd int) error {
		n, _, err = unix.Recvfrom(fd, answer[:], 0)
		return err
	})
	switch errno := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); {
	case err != nil:
		return errnoOf(err)
	case n < len(answer):
		return fmt.Errorf("netlink: an answer of %d octets", n)
	case errno != 0:
		return unix.Errno(-errno)
	}
	return nil
}

// retried calls do when the socket is ready, until it neither has to wait nor is interrupted.
func retried(when func(func(fd uintptr) bool) error, do func(fd int) error) (err error) {
	ready := when(func(fd uintptr) bool {
		err = do(int(fd))
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	return cmp.Or(ready, err)
}

// errnoOf returns the kernel's error without the operation, which says nothing.
func errnoOf(err error) error {
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return errno
	}
	return fmt.Errorf("netlink: %w", err)
}
