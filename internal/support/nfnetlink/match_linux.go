package nfnetlink

import (
	"bytes"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// IsRule reports whether the expressions of a rule of the kernel (NFTA_RULE_EXPRESSIONS) are equal to wanted, as
// expr.Marshal encodes them. Counts do not matter.
func IsRule(there []byte, wanted [][]byte) (bool, error) {
	list, err := netlink.NewAttributeDecoder(there)
	if err != nil {
		return false, err
	}
	for _, e := range wanted {
		if !list.Next() {
			return false, list.Err()
		}
		if same, err := hasExpression(list.Bytes(), e); err != nil || !same {
			return false, err
		}
	}
	return !list.Next(), list.Err()
}

// hasExpression reports whether an expression of the kernel is another one.
func hasExpression(there, wanted []byte) (bool, error) {
	name, err := Attributes(wanted, unix.NFTA_EXPR_NAME)
	if err != nil {
		return false, err
	}
	// A set is named by a number in the transaction that creates it, and by its name later. To the
	// flags of NAT the kernel adds what follows from the other attributes.
	var but uint16
	switch Text(name[0]) {
	case "lookup":
		but = unix.NFTA_LOOKUP_SET_ID
	case "dynset":
		but = unix.NFTA_DYNSET_SET_ID
	case "nat":
		but = unix.NFTA_NAT_FLAGS
	case "counter":
		found, err := Attributes(there, unix.NFTA_EXPR_NAME)
		return err == nil && bytes.Equal(found[0], name[0]), err
	}
	parts, err := Attributes(wanted, unix.NFTA_EXPR_DATA)
	if err != nil {
		return false, err
	}
	found, err := Attributes(there, unix.NFTA_EXPR_NAME, unix.NFTA_EXPR_DATA)
	if err != nil || !bytes.Equal(found[0], name[0]) {
		return false, err
	}
	return hasAttributes(found[1], parts[0], but)
}

// hasAttributes reports whether attributes of the kernel include others, except those of one kind.
// The kernel adds ones with its defaults.
func hasAttributes(there, wanted []byte, but uint16) (bool, error) {
	ad, err := netlink.NewAttributeDecoder(wanted)
	if err != nil {
		return false, err
	}
	for ad.Next() {
		if ad.Type() == but && but != 0 {
			continue
		}
		found, err := Attributes(there, ad.Type())
		if err != nil {
			return false, err
		}
		same := bytes.Equal(found[0], ad.Bytes())
		if found[0] == nil { // it may leave out what is not set
			same = len(bytes.Trim(ad.Bytes(), "\x00")) == 0
		}
		if ad.TypeFlags()&unix.NLA_F_NESTED != 0 {
			same, err = hasAttributes(found[0], ad.Bytes(), 0)
		}
		if err != nil || !same {
			return false, err
		}
	}
	return true, ad.Err()
}
