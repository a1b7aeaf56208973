package nfnetlink

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
	// listedWithin is the longest wait for all elements of a set, or the like, see maxMessage.
	listedWithin = 10 * time.Minute
	// maxMessage is how much the kernel sends at once, at most (net/netlink/af_netlink.c,
	// netlink_recvmsg), if the receiver has had a buffer for it before. The kernel counts to where it
	// was for each message, so that the time to list a set grows with the square of its elements, and
	// with messages of a page it is longer: 13 s of processor time instead of 3.5 s for
	// 260,000 elements.
	maxMessage = 1 << 15
	// HeaderSize is that of struct nfgenmsg, before the attributes of a message.
	HeaderSize = 4
	// maxReads is how often a list is read until nobody changes nftables meanwhile. Any program's
	// change interrupts it.
	maxReads = 20
)

var (
	// ErrInterrupted is returned if a list changed while it was read, each time.
	ErrInterrupted = errors.New("changed while it was read")
	// ErrMalformed is returned if the kernel sends what this package cannot read.
	ErrMalformed = errors.New("a message is malformed")
)

// Request is a request for a list: what, such as NFT_MSG_GETRULE, in which family, and which attributes
// select it.
type Request struct {
	Family    uint8
	What      uint16
	Selection []byte
}

// List returns the attributes of all that is requested.
func List(socket *netlink.Conn, r Request) (all [][]byte, err error) {
	err = Each(socket, r, func() { all = nil }, func(data []byte) error {
		all = append(all, bytes.Clone(data))
		return nil
	})
	return all, err
}

// Each calls use with the attributes of each message of a list, which are overwritten afterwards.
// It calls begin before, and again if nftables changes while it reads. After an error the socket may
// have more messages and must be closed.
func Each(socket *netlink.Conn, r Request, begin func(), use func(data []byte) error) error {
	state := uint32(0)
	return EachUnless(socket, r, begin, use, func() (uint32, error) {
		state++
		return state, nil
	})
}

// EachUnless is Each that does not read again for changes that do not matter: those before and after which
// state returns the same number.
func EachUnless(
	socket *netlink.Conn, r Request, begin func(), use func(data []byte) error, state func() (uint32, error),
) error {
	for range maxReads {
		before, err := state()
		if err != nil {
			return err
		}
		begin()
		interrupted, err := once(socket, r, use)
		if err != nil || !interrupted {
			return err
		}
		if after, err := state(); err != nil || after == before {
			return err
		}
	}
	return ErrInterrupted
}

// once reads a list, and reports whether nftables changed meanwhile.
func once(socket *netlink.Conn, r Request, use func(data []byte) error) (interrupted bool, err error) {
	if err := socket.SetDeadline(time.Now().Add(listedWithin)); err != nil {
		return false, err
	}
	request, err := socket.Send(netlink.Message{
		Header: netlink.Header{
			Type:  netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | r.What),
			Flags: netlink.Request | netlink.Dump,
		},
		Data: append([]byte{r.Family, unix.NFNETLINK_V0, 0, 0}, r.Selection...),
	})
	if err != nil {
		return false, ErrnoOf(err)
	}
	l := &listing{socket: socket, sequence: request.Header.Sequence, use: use}
	err = l.read()
	return l.interrupted, err
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
			return ErrnoOf(err)
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
		return nil, ErrMalformed
	}
	length := int(binary.NativeEndian.Uint32(buf))
	kind, flags := binary.NativeEndian.Uint16(buf[4:]), binary.NativeEndian.Uint16(buf[6:])
	if length < unix.SizeofNlMsghdr || length > len(buf) || binary.NativeEndian.Uint32(buf[8:]) != l.sequence {
		return nil, ErrMalformed
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
		if len(data) < HeaderSize {
			return nil, fmt.Errorf("%w: %d octets of kind %d", ErrMalformed, len(data), kind)
		}
		if err := l.use(data[HeaderSize:]); err != nil {
			return nil, err
		}
	}
	aligned := (length + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1)
	return buf[min(aligned, len(buf)):], nil
}
