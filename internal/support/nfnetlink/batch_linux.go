package nfnetlink

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// AnswerWithin is the longest wait for the kernel.
const AnswerWithin = 10 * time.Second

// Batch is one transaction, in the octets that the kernel reads. The zero value is empty.
type Batch struct {
	// Buf has the messages so far, and one before them that begins the batch. Attributes of the last
	// message are appended to it between Begin and End.
	Buf  []byte
	last int // where the last message begins
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() { *b = Batch{Buf: b.Buf[:0]} }

// Begin begins a message of nftables (linux/netlink.h, struct nlmsghdr; nfnetlink.h, struct
// nfgenmsg) of a kind, such as NFT_MSG_NEWRULE, and End ends it.
func (b *Batch) Begin(family uint8, kind uint16, flags netlink.HeaderFlags) {
	if len(b.Buf) == 0 {
		b.bracket(unix.NFNL_MSG_BATCH_BEGIN)
	}
	b.header(unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags)
	b.Buf = append(b.Buf, family, unix.NFNETLINK_V0, 0, 0)
}

// End ends the message that Begin began.
func (b *Batch) End() { binary.NativeEndian.PutUint32(b.Buf[b.last:], uint32(len(b.Buf)-b.last)) }

// bracket adds the message that begins or ends a batch.
func (b *Batch) bracket(kind uint16) {
	b.header(kind, netlink.Request)
	b.Buf = append(b.Buf, unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES)
	b.End()
}

// header adds a message's header, without its length; the kernel sets the sender.
func (b *Batch) header(kind uint16, flags netlink.HeaderFlags) {
	b.last = len(b.Buf)
	b.Buf = append(b.Buf, 0, 0, 0, 0)
	b.Buf = binary.NativeEndian.AppendUint16(b.Buf, kind)
	b.Buf = binary.NativeEndian.AppendUint16(b.Buf, uint16(flags))
	b.Buf = append(b.Buf, 0, 0, 0, 0, 0, 0, 0, 0)
}

// acknowledge has the kernel answer the last message.
func (b *Batch) acknowledge() {
	const flags = 6 // the offset
	at := b.Buf[b.last+flags:]
	binary.NativeEndian.PutUint16(at, binary.NativeEndian.Uint16(at)|uint16(netlink.Acknowledge))
}

// Commit sends the batch as one transaction. After an error the socket may have more
// answers and must be closed.
func (b *Batch) Commit(socket *netlink.Conn) error {
	if len(b.Buf) == 0 {
		return nil
	}
	// The kernel answers in order, so that the acknowledgement of the last message is the
	// only answer if there is no error.
	b.acknowledge()
	b.bracket(unix.NFNL_MSG_BATCH_END)
	if err := socket.SetDeadline(time.Now().Add(AnswerWithin)); err != nil {
		return err
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	err = retried(raw.Write, func(fd int) error { return unix.Sendto(fd, b.Buf, 0, &unix.SockaddrNetlink{}) })
	if err != nil {
		return ErrnoOf(err)
	}
	// The kernel has done everything by now, however long that took.
	if err := socket.SetDeadline(time.Now().Add(AnswerWithin)); err != nil {
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
		return ErrnoOf(err)
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

// ErrnoOf returns the kernel's error without the operation, which says nothing.
func ErrnoOf(err error) error {
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return errno
	}
	return fmt.Errorf("netlink: %w", err)
}

// PortOf returns the port ID of a socket, which its messages carry (netlink(7)).
func PortOf(socket *netlink.Conn) (port uint32, err error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	control := raw.Control(func(fd uintptr) {
		var addr unix.Sockaddr
		addr, err = unix.Getsockname(int(fd))
		if own, ok := addr.(*unix.SockaddrNetlink); ok {
			port = own.Pid
		}
	})
	return port, errors.Join(control, err)
}
