package nfnetlink

import (
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Key is the key of an element of a set, in the octets of the kernel.
type Key struct {
	Family     uint8
	Table, Set string
	Value      string
}

// Find calls use with the attributes of the element with a key, or, in a set of intervals, of the beginning
// of the interval that has it. It reports whether there is one: false, too, if there is no such set. It
// reads this element only.
func Find(socket *netlink.Conn, k Key, use func(data []byte) error) (found bool, err error) {
	data := []byte{k.Family, unix.NFNETLINK_V0, 0, 0}
	data = AppendString(data, unix.NFTA_SET_ELEM_LIST_TABLE, k.Table)
	data = AppendString(data, unix.NFTA_SET_ELEM_LIST_SET, k.Set)
	data, list := OpenNested(data, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	data, item := OpenNested(data, unix.NFTA_LIST_ELEM)
	data = AppendValue(data, unix.NFTA_SET_ELEM_KEY, k.Value)
	CloseNested(data, item)
	CloseNested(data, list)
	answer, err := get(socket, unix.NFT_MSG_GETSETELEM, data)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	err = EachElement(answer, func(data []byte) error {
		found = true
		return use(data)
	})
	if err != nil {
		return false, fmt.Errorf("set %s: %w", k.Set, err)
	}
	return found, nil
}

// Generation returns the number of the last transaction with any table in the network namespace.
func Generation(socket *netlink.Conn) (uint32, error) {
	answer, err := get(socket, unix.NFT_MSG_GETGEN, []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0})
	if err != nil {
		return 0, err
	}
	parts, err := Attributes(answer, unix.NFTA_GEN_ID)
	if err != nil {
		return 0, err
	}
	return Uint32(parts[0]), nil
}

// get returns the attributes of the answer to a request for one thing, such as NFT_MSG_GETGEN.
func get(socket *netlink.Conn, what uint16, data []byte) ([]byte, error) {
	if err := socket.SetDeadline(time.Now().Add(AnswerWithin)); err != nil {
		return nil, err
	}
	answers, err := socket.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | what), Flags: netlink.Request},
		Data:   data,
	})
	if err != nil {
		return nil, ErrnoOf(err)
	}
	if len(answers) != 1 || len(answers[0].Data) < HeaderSize {
		return nil, fmt.Errorf("%w: %d answers to a request of kind %d", ErrMalformed, len(answers), what)
	}
	return answers[0].Data[HeaderSize:], nil
}
