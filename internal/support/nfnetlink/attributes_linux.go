package nfnetlink

import (
	"encoding/binary"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// AppendString appends an attribute with a string, which ends with a zero.
func AppendString(buf []byte, kind uint16, s string) []byte {
	return AppendAttribute(buf, kind, s+"\x00")
}

// AppendUint32 appends an attribute with a number in network order.
func AppendUint32(buf []byte, kind uint16, n uint32) []byte {
	return AppendAttribute(buf, kind, string(binary.BigEndian.AppendUint32(nil, n)))
}

// AppendAttribute appends a netlink attribute (linux/netlink.h, struct nlattr).
func AppendAttribute(buf []byte, kind uint16, value string) []byte {
	buf = binary.NativeEndian.AppendUint16(buf, uint16(unix.SizeofNlAttr+len(value)))
	buf = binary.NativeEndian.AppendUint16(buf, kind)
	buf = append(buf, value...)
	for len(buf)%unix.NLA_ALIGNTO != 0 {
		buf = append(buf, 0)
	}
	return buf
}

// AppendValue appends an attribute with a value in it (NFTA_DATA_VALUE).
func AppendValue(buf []byte, kind uint16, value string) []byte {
	buf, outer := OpenNested(buf, kind)
	buf = AppendAttribute(buf, unix.NFTA_DATA_VALUE, value)
	CloseNested(buf, outer)
	return buf
}

// AppendVerdict appends an attribute with a verdict in it: its code, such as NFT_GOTO, and the chain
// where it goes, if it goes to one.
func AppendVerdict(buf []byte, kind uint16, code int32, chain string) []byte {
	buf, data := OpenNested(buf, kind)
	buf, inner := OpenNested(buf, unix.NFTA_DATA_VERDICT)
	buf = AppendUint32(buf, unix.NFTA_VERDICT_CODE, uint32(code))
	if chain != "" {
		buf = AppendString(buf, unix.NFTA_VERDICT_CHAIN, chain)
	}
	CloseNested(buf, inner)
	CloseNested(buf, data)
	return buf
}

// OpenNested begins an attribute that has others in it, and CloseNested ends it.
func OpenNested(buf []byte, kind uint16) (_ []byte, at int) {
	at = len(buf)
	buf = binary.NativeEndian.AppendUint16(buf, 0)
	return binary.NativeEndian.AppendUint16(buf, kind|unix.NLA_F_NESTED), at
}

// CloseNested ends the attribute that OpenNested began at an offset.
func CloseNested(buf []byte, at int) { binary.NativeEndian.PutUint16(buf[at:], uint16(len(buf)-at)) }

// Attributes returns the attributes of the given kinds; nil for those that are not there.
func Attributes(data []byte, kinds ...uint16) ([][]byte, error) {
	found := make([][]byte, len(kinds))
	ad, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return nil, err
	}
	for ad.Next() {
		if i := slices.Index(kinds, ad.Type()); i >= 0 {
			found[i] = ad.Bytes()
		}
	}
	return found, ad.Err()
}

// Text returns a string of the kernel without its zero.
func Text(data []byte) string {
	if len(data) == 0 {
		return ""
	}
	return string(data[:len(data)-1])
}

// Uint32 returns a number of the kernel in network order; 0 if there is none.
func Uint32(data []byte) uint32 {
	if len(data) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(data)
}

// EachElement calls use with the attributes of each element of a message of a list of elements.
func EachElement(message []byte, use func(data []byte) error) error {
	list, err := Attributes(message, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	if err != nil {
		return err
	}
	ad, err := netlink.NewAttributeDecoder(list[0])
	if err != nil {
		return err
	}
	for ad.Next() {
		if err := use(ad.Bytes()); err != nil {
			return err
		}
	}
	return ad.Err()
}

// Register returns the number of the register that is words of 32 bits behind the first. The first
// four have a number of 128 bits, too, which nft uses for the first: 1.
func Register(words uint32) uint32 {
	if words%4 == 0 {
		return 1 + words/4
	}
	return unix.NFT_REG32_00 + words
}

// AppendUint64 appends an attribute with a number in network order.
func AppendUint64(buf []byte, kind uint16, n uint64) []byte {
	return AppendAttribute(buf, kind, string(binary.BigEndian.AppendUint64(nil, n)))
}

// Uint64 returns a number of the kernel in network order; 0 if there is none.
func Uint64(data []byte) uint64 {
	if len(data) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(data)
}
