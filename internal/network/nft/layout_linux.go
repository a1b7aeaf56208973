package nft

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/nfnetlink"
)

// chain is a chain with its rules.
type chain struct {
	name  string
	base  baseChain
	rules [][]expr.Any
}

// baseChain is what makes a chain a base chain; zero is another chain.
type baseChain struct {
	kind     string
	hook     uint32
	priority int32
}

// Priorities (nftables, "priority"): those of NAT are one after the service proxy's.
const (
	priorityRaw         = -300
	priorityDestination = -100 + 1
	prioritySource      = 100 + 1
)

const chainPorts = "host-ports"

// podDevices begins the names of the node's ends of Pods' links.
const podDevices = "ptl"

// layout returns the chains, targets before those that name them.
func (c *Config) layout() []chain {
	jump := [][]expr.Any{{&expr.Verdict{Kind: expr.VerdictJump, Chain: chainPorts}}}
	return []chain{
		{
			name: "guard", base: baseChain{"filter", unix.NF_INET_LOCAL_IN, priorityRaw},
			rules: slices.Concat(c.tunnels(), discovery(), answers(), outside()),
		},
		{name: chainPorts, rules: append(translations(ipv4), translations(ipv6)...)},
		{
			name: "prerouting", base: baseChain{"nat", unix.NF_INET_PRE_ROUTING, priorityDestination},
			rules: append(outside(), jump...),
		},
		{name: "output", base: baseChain{"nat", unix.NF_INET_LOCAL_OUT, priorityDestination}, rules: jump},
		{name: "postrouting", base: baseChain{"nat", unix.NF_INET_POST_ROUTING, prioritySource}, rules: c.postrouting()},
	}
}

// tunnels returns the rules that drop what others than nodes put into a tunnel.
func (c *Config) tunnels() (rules [][]expr.Any) {
	if c.TunnelPort == 0 {
		return nil
	}
	for _, f := range families {
		rules = append(rules, append(
			f.is(),
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_UDP}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint16(nil, c.TunnelPort)},
			f.load(f.source, 1), &expr.Lookup{SourceRegister: 1, SetName: setNodes + f.suffix, Invert: true},
			&expr.Verdict{Kind: expr.VerdictDrop},
		))
	}
	return rules
}

// discovery returns the rule that drops Neighbor Discovery (RFC 4861, section 4) from Pods: both ends of their links
// have permanent neighbors.
func discovery() [][]expr.Any {
	const solicitRouter, redirect = 133, 137 // the first and the last type
	return [][]expr.Any{{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte(podDevices)},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_ICMPV6}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1},
		&expr.Cmp{Op: expr.CmpOpGte, Register: 1, Data: []byte{solicitRouter}},
		&expr.Cmp{Op: expr.CmpOpLte, Register: 1, Data: []byte{redirect}},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}}
}

var loopback = netip.MustParsePrefix("127.0.0.0/8")

// outside returns the rules that drop packets to and from 127.0.0.0/8 that come from outside.
func outside() [][]expr.Any {
	drop := &expr.Verdict{Kind: expr.VerdictDrop}
	return [][]expr.Any{
		append(fromOutside(ipv4.source+ipv4.size), drop), append(fromOutside(ipv4.source), drop),
	}
}

// answers returns the rule that accepts packets to 127.0.0.0/8 of connections whose destination was changed.
func answers() [][]expr.Any {
	rule := append(fromOutside(ipv4.source+ipv4.size), translated()...)
	return [][]expr.Any{append(rule, &expr.Verdict{Kind: expr.VerdictAccept})}
}

// fromOutside is the condition that a packet has an address of 127.0.0.0/8 and comes from another device than lo. The
// address comes first: almost no packet has one.
func fromOutside(offset uint32) []expr.Any {
	const loopbackDevice = 1 // LOOPBACK_IFINDEX of net/net_namespace.h
	return append(
		append(ipv4.is(), ipv4.compare(offset, loopback, expr.CmpOpEq)...),
		&expr.Meta{Key: expr.MetaKeyIIF, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: native(loopbackDevice)},
	)
}

// translations returns the rules that translate destinations of a family: ports at one address first.
func translations(f *family) [][]expr.Any {
	words := f.size / 4
	at := append(f.is(), f.load(f.source+f.size, 1))
	at = append(at, destination(words)...)
	at = append(at, f.translate(setAddresses)...)
	all := append(f.is(), &expr.Fib{Register: 1, ResultADDRTYPE: true, FlagDADDR: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: native(unix.RTN_LOCAL)})
	if f == ipv6 {
		all = append(all, f.compare(f.source+f.size, netip.PrefixFrom(netip.IPv6Loopback(), 128), expr.CmpOpNeq)...)
	}
	all = append(all, destination(0)...)
	all = append(all, f.translate(setPorts)...)
	return [][]expr.Any{at, all}
}

// destination loads the protocol and the destination port into registers behind some words.
func destination(words uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: nfnetlink.Register(words)},
		&expr.Payload{
			DestRegister: nfnetlink.Register(words + 1), Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2,
		},
	}
}

// translate changes the destination to what a map has for the registers from 1 on.
func (f *family) translate(set string) []expr.Any {
	to := nfnetlink.Register(f.size / 4)
	return []expr.Any{
		&expr.Lookup{SourceRegister: 1, DestRegister: 1, IsDestRegSet: true, SetName: set + f.suffix},
		&expr.NAT{
			Type: expr.NATTypeDestNAT, Family: uint32(f.nfproto), RegAddrMin: 1, RegAddrMax: 1, RegProtoMin: to, RegProtoMax: to,
			Specified: true,
		},
	}
}

// postrouting returns the rules that masquerade.
func (c *Config) postrouting() (rules [][]expr.Any) {
	masquerade := &expr.Masq{FullyRandom: true}
	for _, f := range families {
		hairpin := append(f.is(), translated()...)
		hairpin = append(
			hairpin, f.load(f.source, 1), f.load(f.source+f.size, nfnetlink.Register(f.size/4)),
			&expr.Lookup{SourceRegister: 1, SetName: setHairpin + f.suffix}, masquerade,
		)
		rules = append(rules, hairpin)
	}
	local := append(ipv4.is(), translated()...)
	local = append(local, ipv4.compare(ipv4.source, loopback, expr.CmpOpEq)...)
	rules = append(rules, append(local, masquerade))
	if c.KeepSource {
		return rules
	}
	for _, f := range families {
		rule := append(
			f.is(), f.load(f.source, 1), &expr.Lookup{SourceRegister: 1, SetName: setPods + f.suffix},
			f.load(f.source+f.size, 1), &expr.Lookup{SourceRegister: 1, SetName: setCluster + f.suffix, Invert: true},
		)
		for _, p := range unrouted[f] {
			rule = append(rule, f.compare(f.source+f.size, p, expr.CmpOpNeq)...)
		}
		rules = append(rules, append(rule, masquerade))
	}
	return rules
}

// unrouted are destinations that stay on a link: multicast and link-local ones.
var unrouted = map[*family][]netip.Prefix{
	ipv4: {netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("169.254.0.0/16")},
	ipv6: {netip.MustParsePrefix("ff00::/8"), netip.MustParsePrefix("fe80::/10")},
}

// is is the condition that a packet is of a family.
func (f *family) is() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{f.nfproto}},
	}
}

// load loads an address.
func (f *family) load(offset, register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.size}
}

// compare compares an address with a prefix.
func (f *family) compare(offset uint32, p netip.Prefix, op expr.CmpOp) []expr.Any {
	mask := make([]byte, f.size)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return []expr.Any{
		f.load(offset, 1),
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: f.size, Mask: mask, Xor: make([]byte, f.size)},
		&expr.Cmp{Op: op, Register: 1, Data: p.Addr().AsSlice()},
	}
}

// translated is the condition that the destination was changed: ct status dnat.
func translated() []expr.Any {
	const dnat = 1 << 5 // IPS_DST_NAT of linux/netfilter/nf_conntrack_common.h
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: native(dnat), Xor: native(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: native(0)},
	}
}

func native(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }
