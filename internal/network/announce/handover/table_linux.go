package handover

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/nfnetlink"
)

const (
	mapName, chainName = "former", "prerouting"
	// priority is after that of connection tracking, -200, and before that of NAT, -100 (nftables, "priority").
	priority = -150
	// flagOwner is NFT_TABLE_F_OWNER, and flagMap NFT_SET_MAP (linux/netfilter/nf_tables.h).
	flagOwner, flagMap = 0x2, 0x8
)

// family is a family of addresses.
type family struct {
	nfproto uint8
	size    uint32 // of an address in octets
	// destination and hops are where the address and the number of hops that are left are in a packet (RFC 791,
	// section 3.1; RFC 8200, section 3).
	destination, hops uint32
	magic             uint32 // the number of the type of addresses in nft
}

var (
	ipv4     = &family{nfproto: unix.NFPROTO_IPV4, size: 4, destination: 16, hops: 8, magic: 7}
	ipv6     = &family{nfproto: unix.NFPROTO_IPV6, size: 16, destination: 24, hops: 7, magic: 8}
	families = []*family{ipv4, ipv6}
)

func familyOf(a netip.Addr) *family {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

// Table is the nodes that have connections of addresses of this node. It is not safe for concurrent use.
type Table struct {
	name   string
	socket *netlink.Conn // nil without former nodes
	former map[netip.Addr]netip.Addr
}

// New returns a Table, and changes nothing. Two processes of a node have tables with different names.
func New() *Table { return &Table{name: fmt.Sprintf("portolan-handover-%08x", rand.Uint32())} }

// Close removes all former nodes.
func (t *Table) Close() {
	if t.socket != nil {
		_ = t.socket.Close() // the tables go with it
		t.socket, t.former = nil, nil
	}
}

// Set replaces the former nodes, by address of a load balancer: their addresses, on a link of this node. It is one
// transaction. After an error there are none.
func (t *Table) Set(former map[netip.Addr]netip.Addr) error {
	if len(former) == 0 {
		t.Close()
		return nil
	}
	b := new(batch)
	if t.socket == nil {
		socket, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
		if err != nil {
			return fmt.Errorf("nftables table %s: netlink: %w", t.name, err)
		}
		t.socket = socket
		for _, f := range families {
			if err := b.create(t.name, f); err != nil {
				t.Close()
				return err
			}
		}
	}
	for a, was := range t.former {
		if former[a] != was {
			b.element(t.name, unix.NFT_MSG_DELSETELEM, a, was)
		}
	}
	for a, is := range former {
		if t.former[a] != is {
			b.element(t.name, unix.NFT_MSG_NEWSETELEM, a, is)
		}
	}
	if err := b.Commit(t.socket); err != nil {
		t.Close()
		return fmt.Errorf("nftables table %s: %w", t.name, err)
	}
	t.former = maps.Clone(former)
	return nil
}

// batch is one transaction.
type batch struct{ nfnetlink.Batch }

// message adds a message about an object of a table, whose name is attribute 1 of all kinds of objects.
func (b *batch) message(
	table string, f *family, kind uint16, flags netlink.HeaderFlags, attributes func([]byte) []byte,
) {
	b.Begin(f.nfproto, kind, netlink.Request|flags)
	b.Buf = attributes(nfnetlink.AppendString(b.Buf, unix.NFTA_TABLE_NAME, table))
	b.End()
}

// create adds the creation of the table of a family, its map and its chain.
func (b *batch) create(table string, f *family) error {
	b.message(table, f, unix.NFT_MSG_NEWTABLE, netlink.Create, func(buf []byte) []byte {
		return nfnetlink.AppendUint32(buf, unix.NFTA_TABLE_FLAGS, flagOwner)
	})
	b.message(table, f, unix.NFT_MSG_NEWSET, netlink.Create, func(buf []byte) []byte {
		buf = nfnetlink.AppendString(buf, unix.NFTA_SET_NAME, mapName)
		buf = nfnetlink.AppendUint32(buf, unix.NFTA_SET_ID, f.magic)
		buf = nfnetlink.AppendUint32(buf, unix.NFTA_SET_FLAGS, flagMap)
		buf = nfnetlink.AppendUint32(buf, unix.NFTA_SET_KEY_TYPE, f.magic)
		buf = nfnetlink.AppendUint32(buf, unix.NFTA_SET_KEY_LEN, f.size)
		buf = nfnetlink.AppendUint32(buf, unix.NFTA_SET_DATA_TYPE, f.magic)
		return nfnetlink.AppendUint32(buf, unix.NFTA_SET_DATA_LEN, f.size)
	})
	b.message(table, f, unix.NFT_MSG_NEWCHAIN, netlink.Create, func(buf []byte) []byte {
		before := int32(priority)
		buf = nfnetlink.AppendString(buf, unix.NFTA_CHAIN_NAME, chainName)
		buf, hook := nfnetlink.OpenNested(buf, unix.NFTA_CHAIN_HOOK)
		buf = nfnetlink.AppendUint32(buf, unix.NFTA_HOOK_HOOKNUM, unix.NF_INET_PRE_ROUTING)
		buf = nfnetlink.AppendUint32(buf, unix.NFTA_HOOK_PRIORITY, uint32(before))
		nfnetlink.CloseNested(buf, hook)
		return nfnetlink.AppendString(buf, unix.NFTA_CHAIN_TYPE, "filter")
	})
	for _, r := range f.rules() {
		if err := b.rule(table, f, r); err != nil {
			return err
		}
	}
	return nil
}

// rule adds the addition of a rule to the chain.
func (b *batch) rule(table string, f *family, rule []expr.Any) error {
	var list [][]byte
	for _, e := range rule {
		data, err := expr.Marshal(f.nfproto, e)
		if err != nil {
			return fmt.Errorf("nftables table %s: %w", table, err)
		}
		list = append(list, data)
	}
	b.message(table, f, unix.NFT_MSG_NEWRULE, netlink.Create|netlink.Append, func(buf []byte) []byte {
		buf = nfnetlink.AppendString(buf, unix.NFTA_RULE_CHAIN, chainName)
		buf, nest := nfnetlink.OpenNested(buf, unix.NFTA_RULE_EXPRESSIONS)
		for _, data := range list {
			buf = nfnetlink.AppendAttribute(buf, unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, string(data))
		}
		nfnetlink.CloseNested(buf, nest)
		return buf
	})
	return nil
}

// rules send segments of connections that began at a former node there.
func (f *family) rules() [][]expr.Any {
	const fin, syn, rst = 0x01, 0x02, 0x04 // RFC 9293, section 3.1
	return [][]expr.Any{
		f.rule(expr.CtStateBitNEW, syn, expr.CmpOpEq),
		f.rule(expr.CtStateBitINVALID, fin|rst, expr.CmpOpNeq),
	}
}

// rule returns the rule for segments in a state some flags of which are 0 (CmpOpEq) or not (CmpOpNeq). Almost all
// packets are of connections that are known, so that the state is first.
func (f *family) rule(state uint32, flags byte, are expr.CmpOp) []expr.Any {
	const flagsAt = 13 // RFC 9293, section 3.1
	native := func(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: native(state), Xor: native(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: native(0)},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: flagsAt, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{flags}, Xor: []byte{0}},
		&expr.Cmp{Op: are, Register: 1, Data: []byte{0}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: f.hops, Len: 1},
		&expr.Cmp{Op: expr.CmpOpGt, Register: 1, Data: []byte{1}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: f.destination, Len: f.size},
		&expr.Lookup{SourceRegister: 1, DestRegister: 1, IsDestRegSet: true, SetName: mapName},
		&expr.Dup{RegAddr: 1},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}
}

// element adds the addition or the deletion of an element.
func (b *batch) element(table string, kind uint16, a, former netip.Addr) {
	b.message(table, familyOf(a), kind, netlink.Create, func(buf []byte) []byte {
		buf = nfnetlink.AppendString(buf, unix.NFTA_SET_ELEM_LIST_SET, mapName)
		buf, list := nfnetlink.OpenNested(buf, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		buf, item := nfnetlink.OpenNested(buf, unix.NFTA_LIST_ELEM)
		buf = nfnetlink.AppendValue(buf, unix.NFTA_SET_ELEM_KEY, string(a.AsSlice()))
		if kind == unix.NFT_MSG_NEWSETELEM {
			buf = nfnetlink.AppendValue(buf, unix.NFTA_SET_ELEM_DATA, string(former.AsSlice()))
		}
		nfnetlink.CloseNested(buf, item)
		nfnetlink.CloseNested(buf, list)
		return buf
	})
}
