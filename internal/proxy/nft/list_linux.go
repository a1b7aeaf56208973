package nft

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// maxMessage is how much the kernel sends at once, at most (net/netlink/af_netlink.c,
	// netlink_recvmsg), if the receiver has had a buffer for it before. The kernel counts to where it
	// was for each message, so that the time to list a set grows with the square of its elements, and
	// with messages of a page it is longer: 13 s of processor time instead of 3.5 s for
	// 260,000 elements.
	maxMessage = 1 << 15
	// headerSize is that of struct nfgenmsg, before the attributes of a message.
	headerSize = 4
	// maxReads is how often a list is read until nobody changes nftables meanwhile. Any program's
	// change interrupts it.
	maxReads = 20
)

var (
	// errInterrupted is returned if a list changed while it was read, each time.
	errInterrupted = errors.New("changed while it was read")
	errMalformed   = errors.New("a message is malformed")
)

// list returns the attributes of all objects of a kind in a family that have the given attributes.
func (t *Table) list(f Family, what uint16, selection []byte) (all [][]byte, err error) {
	err = t.each(f, what, selection, func() { all = nil }, func(data []byte) error {
		all = append(all, bytes.Clone(data))
		return nil
	})
	return all, err
}

// each calls use with the attributes of each message of a list, which are overwritten afterwards.
// It calls begin before, and again if nftables changes while it reads. After an error the socket may
// have more messages and must be closed.
func (t *Table) each(f Family, what uint16, selection []byte, begin func(), use func(data []byte) error) error {
	for range maxReads {
		if err := t.socket.SetDeadline(time.Now().Add(listedWithin)); err != nil {
			return err
		}
		request, err := t.socket.Send(netlink.Message{
			Header: netlink.Header{
				Type:  netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | what),
				Flags: netlink.Request | netlink.Dump,
			},
			Data: append([]byte{f.nfproto(), unix.NFNETLINK_V0, 0, 0}, selection...),
		})
		if err != nil {
			return errnoOf(err)
		}
		begin()
		r := &listing{socket: t.socket, sequence: request.Header.Sequence, use: use}
		if err := r.read(); err != nil {
			return err
		}
		if !r.interrupted {
			return nil
		}
	}
	return errInterrupted
}

// listing is the kernel's answer to a request for a list (linux/netlink.h; RFC 3549, section 2.3).
type listing struct {
	socket      *netlink.Conn
	sequence    uint32 // of the request
	use         func(data []byte) error
	interrupted bool // what is listed changed meanwhile
	ended       bool
}

// read reads the answer to its end.
func (l *listing) read() error {
	raw, err := l.socket.SyscallConn()
	if err != nil {
		return err
	}
	buf := make([]byte, maxMessage)
	for !l.ended {
		var n int
		err := retried(raw.Read, func(fd int) error {
			n, _, err = unix.Recvfrom(fd, buf, 0)
			return err
		})
		if err != nil {
			return errnoOf(err)
		}
		for rest := buf[:n]; len(rest) > 0; {
			if rest, err = l.message(rest); err != nil {
				return err
			}
		}
	}
	return nil
}

// message reads the first message of buf, and returns those behind it.
func (l *listing) message(buf []byte) (rest []byte, err error) {
	if len(buf) < unix.SizeofNlMsghdr {
		return nil, errMalformed
	}
	length := int(binary.NativeEndian.Uint32(buf))
	kind, flags := binary.NativeEndian.Uint16(buf[4:]), binary.NativeEndian.Uint16(buf[6:])
	if length < unix.SizeofNlMsghdr || length > len(buf) || binary.NativeEndian.Uint32(buf[8:]) != l.sequence {
		return nil, errMalformed
	}
	data := buf[unix.SizeofNlMsghdr:length]
	l.interrupted = l.interrupted || flags&unix.NLM_F_DUMP_INTR != 0
	switch kind {
	case unix.NLMSG_ERROR, unix.NLMSG_DONE:
		l.ended = true
		if len(data) >= 4 {
			if errno := int32(binary.NativeEndian.Uint32(data)); errno < 0 {
				return nil, unix.Errno(-errno)
			}
		}
	default:
		if len(data) < headerSize {
			return nil, fmt.Errorf("%w: %d octets of kind %d", errMalformed, len(data), kind)
		}
		if err := l.use(data[headerSize:]); err != nil {
			return nil, err
		}
	}
	aligned := (length + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1)
	return buf[min(aligned, len(buf)):], nil
}
