package nft

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/nfnetlink"
)

// newSet returns the declaration of a set.
func (f Family) newSet(t *nftables.Table, name setName) *nftables.Set {
	addr := nftables.TypeIPAddr
	if f == IPv6 {
		addr = nftables.TypeIP6Addr
	}
	destination := []nftables.SetDatatype{addr, nftables.TypeInetProto, nftables.TypeInetService}
	s := &nftables.Set{
		Table:         t,
		Name:          string(name),
		KeyType:       nftables.MustConcatSetType(destination...),
		Concatenation: true,
	}
	switch name {
	case setServices, setAdmitted, setLocal:
		s.IsMap, s.DataType = true, nftables.TypeVerdict
	case setEndpoints, setHashed:
		s.KeyType = nftables.MustConcatSetType(append(destination, nftables.TypeMark)...)
		s.IsMap, s.DataType = true, nftables.MustConcatSetType(addr, nftables.TypeInetService)
	case setSourceRanges:
		s.KeyType, s.Interval = nftables.MustConcatSetType(append(destination, addr)...), true
	case setConnections:
		s.Counter = true
	case setHairpin:
		s.KeyType = nftables.MustConcatSetType(addr, addr)
	case setAffinityGroups:
		s.IsMap, s.DataType = true, nftables.TypeMark
	case setAffinityChoices:
		s.KeyType = nftables.MustConcatSetType(append(destination, nftables.TypeMark)...)
		s.IsMap, s.DataType = true, nftables.TypeMark
	case setAffinityEndpoints:
		s.KeyType = nftables.MustConcatSetType(append(destination, nftables.TypeMark)...)
		s.IsMap, s.DataType = true, nftables.MustConcatSetType(addr, nftables.TypeInetService)
	case setAffinity:
		s.KeyType = nftables.MustConcatSetType(addr, nftables.TypeMark)
		s.IsMap, s.DataType = true, nftables.TypeMark
		s.Dynamic, s.HasTimeout, s.Size = true, true, maxClients
	case setServiceCIDRs:
		s.KeyType, s.Concatenation, s.Interval = addr, false, true
	default:
		s.KeyType, s.Concatenation = addr, false
	}
	return s
}

// chain is a chain with its rules.
type chain struct {
	name  string
	base  *nftables.Chain // the hook of a base chain, else nil
	rules [][]expr.Any
}

// layout makes the chains of a family.
type layout struct {
	Config
	family Family
	table  *nftables.Table
}

// static returns the chains that are there from the start, targets before those that name them.
func (l *layout) static() []chain {
	all := []chain{{name: chainRefuse, rules: l.refuse()}}
	for _, n := range sizes {
		all = append(
			all,
			chain{name: plainChains.name(prefixEndpoints, n), rules: l.pick(n, 0)},
			chain{name: plainChains.name(prefixLocal, n), rules: l.pick(n, localSlot)},
		)
	}
	for _, n := range sizes {
		all = append(all, l.masquerade(plainChains, n), l.externalLocal(plainChains, n))
	}
	first := [][]expr.Any{{jump(chainServices)}}
	return append(
		all,
		chain{name: chainLimited, rules: l.limited()},
		chain{name: chainAgain, rules: [][]expr.Any{l.dispatch(setServices)}},
		chain{name: chainServices, rules: l.services()},
		chain{name: "prerouting", base: l.nat(nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest), rules: first},
		chain{name: "output", base: l.nat(nftables.ChainHookOutput, nftables.ChainPriorityNATDest), rules: first},
		chain{
			name: "postrouting", base: l.nat(nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource),
			rules: l.postrouting(),
		},
	)
}

func (l *layout) nat(hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
	return &nftables.Chain{Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: priority}
}

// services is where all packets begin.
//
//	ip saddr != POD ip daddr @cluster-ips meta mark set meta mark or MARK
//	ip daddr . meta l4proto . th dport @connections    # counts, with Counters
//	ip daddr . meta l4proto . th dport vmap @services
//	ip daddr @addresses jump again
//	ip daddr @cluster-ips goto refuse
func (l *layout) services() (rules [][]expr.Any) {
	switch masquerade := append(l.daddr(), lookup(setClusterIPs)); {
	case l.MasqueradeAll:
		rules = append(rules, append(masquerade, l.mark()...))
	default:
		if other := l.notFromPods(); other != nil {
			rules = append(rules, append(append(other, masquerade...), l.mark()...))
		}
	}
	if l.Counters {
		rules = append(rules, append(l.destination(), lookup(setConnections)))
	}
	return append(
		rules,
		l.dispatch(setServices),
		append(l.daddr(), lookup(setAddresses), jump(chainAgain)),
		append(l.daddr(), lookup(setClusterIPs), goTo(chainRefuse)),
	)
}

// pick returns the rules that choose one of n endpoints whose slots begin at first.
//
//	dnat ip to ip daddr . meta l4proto . th dport . numgen random mod N map @endpoints
func (l *layout) pick(n int, first uint32) (rules [][]expr.Any) {
	draw := func(below int) []expr.Any {
		words := l.words()
		return append(
			l.destination(),
			&expr.Numgen{
				Register: nfnetlink.Register(words + 2),
				Type:     unix.NFT_NG_RANDOM,
				Modulus:  uint32(below),
				Offset:   first,
			},
			find(setEndpoints),
			l.dnat(),
		)
	}
	for _, below := range draws(n) {
		rules = append(rules, draw(below))
	}
	return append(rules, []expr.Any{goTo(chainRefuse)})
}

// externalLocal returns the rules for externalTrafficPolicy Local with n endpoints in all, in
// the names of k.
//
//	ip saddr POD goto endpoints-N
//	fib saddr type local goto masquerade-N
//	ip daddr . meta l4proto . th dport vmap @local    # twice
//	drop
func (l *layout) externalLocal(k chains, n int) chain {
	var rules [][]expr.Any
	for _, pods := range l.fromPods() {
		rules = append(rules, append(pods, goTo(k.name(prefixEndpoints, n))))
	}
	rules = append(
		rules,
		fromNode(goTo(k.name(prefixMasquerade, n))),
		l.dispatch(setLocal), l.dispatch(setLocal), []expr.Any{drop()},
	)
	return chain{name: k.name(prefixExternalLocal, n), rules: rules}
}

// masquerade returns the chain that marks packets for n endpoints.
func (l *layout) masquerade(k chains, n int) chain {
	return chain{
		name:  k.name(prefixMasquerade, n),
		rules: [][]expr.Any{l.mark(), {goTo(k.name(prefixEndpoints, n))}},
	}
}

// limited returns the rules for destinations that only some sources may reach.
//
//	ip daddr . meta l4proto . th dport . ip saddr != @source-ranges drop
//	ip daddr . meta l4proto . th dport vmap @admitted    # twice
//	goto refuse
func (l *layout) limited() [][]expr.Any {
	source := &expr.Payload{
		DestRegister: nfnetlink.Register(
			l.words() + 2,
		),
		Base:   expr.PayloadBaseNetworkHeader,
		Offset: l.saddrOffset(),
		Len:    l.length(),
	}
	refused := &expr.Lookup{SourceRegister: 1, SetName: string(setSourceRanges), Invert: true}
	return [][]expr.Any{
		append(l.destination(), source, refused, drop()),
		l.dispatch(setAdmitted), l.dispatch(setAdmitted), {goTo(chainRefuse)},
	}
}

// refuse returns the rules that reject a connection. A reset is not subject to the kernel's
// limit of ICMP messages, which would have clients wait.
//
//	meta l4proto tcp reject with tcp reset
//	reject
func (l *layout) refuse() [][]expr.Any {
	const portUnreachable4, portUnreachable6 = 3, 4 // RFC 792; RFC 4443, section 3.1
	code := uint8(portUnreachable4)
	if l.family == IPv6 {
		code = portUnreachable6
	}
	return [][]expr.Any{
		{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
			&expr.Reject{Type: unix.NFT_REJECT_TCP_RST},
		},
		{&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: code}},
	}
}

// postrouting returns the rules that masquerade, and those that drop what no proxy of the node
// gave an endpoint.
//
//	ct status dnat meta priority set none
//	ip daddr @service-cidrs drop
//	meta mark and MARK == MARK meta mark set meta mark xor MARK masquerade fully-random
//	ct status dnat ip saddr . ip daddr @hairpin masquerade fully-random
func (l *layout) postrouting() [][]expr.Any {
	mask, zero := native(l.Mark), native(0)
	masquerade := &expr.Masq{FullyRandom: true}
	return [][]expr.Any{
		l.clearPriority(),
		append(l.daddr(), lookup(setServiceCIDRs), drop()),
		{
			&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: mask, Xor: zero},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: mask},
			&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: native(^uint32(0)), Xor: mask},
			&expr.Meta{Key: expr.MetaKeyMARK, Register: 1, SourceRegister: true},
			masquerade,
		},
		append(
			translated(),
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: l.saddrOffset(), Len: l.length()},
			&expr.Payload{
				DestRegister: nfnetlink.Register(
					l.words(),
				),
				Base:   expr.PayloadBaseNetworkHeader,
				Offset: l.daddrOffset(),
				Len:    l.length(),
			},
			lookup(setHairpin),
			masquerade,
		),
	}
}

// mark marks a packet to be masqueraded.
func (l *layout) mark() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: native(^l.Mark), Xor: native(l.Mark)},
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1, SourceRegister: true},
	}
}

// dispatch goes where a verdict map has the destination go.
func (l *layout) dispatch(by setName) []expr.Any {
	return append(
		l.destination(),
		&expr.Lookup{SourceRegister: 1, DestRegister: 0, IsDestRegSet: true, SetName: string(by)},
	)
}

// destination loads ip daddr . meta l4proto . th dport into the registers from 1 on.
func (l *layout) destination() []expr.Any {
	return append(
		l.daddr(),
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: nfnetlink.Register(l.words())},
		dport(nfnetlink.Register(l.words()+1)),
	)
}

// dport loads the destination port (RFC 768; RFC 9293, section 3.1).
func dport(into uint32) expr.Any {
	return &expr.Payload{DestRegister: into, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}
}

// daddr loads the destination into the registers from 1 on.
func (l *layout) daddr() []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: l.daddrOffset(), Len: l.length()},
	}
}

// fromPods returns conditions, one of which packets from Pods on the node meet.
func (l *layout) fromPods() (conditions [][]expr.Any) {
	for _, cidr := range l.Pods.CIDRs {
		if FamilyOf(cidr.Addr()) == l.family {
			conditions = append(conditions, l.saddr(cidr, expr.CmpOpEq))
		}
	}
	if name, size := l.podInterface(); name != nil {
		conditions = append(conditions, iif(name[:size], expr.CmpOpEq))
	}
	return conditions
}

// notFromPods returns the condition that no packet from Pods on the node meets; nil if Pods
// are not recognized.
func (l *layout) notFromPods() (condition []expr.Any) {
	for _, cidr := range l.Pods.CIDRs {
		if FamilyOf(cidr.Addr()) == l.family {
			condition = append(condition, l.saddr(cidr, expr.CmpOpNeq)...)
		}
	}
	if name, size := l.podInterface(); name != nil {
		condition = append(condition, iif(name[:size], expr.CmpOpNeq)...)
	}
	return condition
}

// podInterface returns the name of an interface with zeros behind it, and how much of that
// is compared.
func (l *layout) podInterface() (name []byte, size int) {
	name = make([]byte, unix.IFNAMSIZ)
	switch {
	case l.Pods.Interface != "":
		copy(name, l.Pods.Interface)
		return name, len(name)
	case l.Pods.InterfacePrefix != "":
		return name, copy(name, l.Pods.InterfacePrefix)
	}
	return nil, 0
}

func iif(name []byte, op expr.CmpOp) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: op, Register: 1, Data: name},
	}
}

// saddr compares the source with a prefix.
func (l *layout) saddr(prefix netip.Prefix, op expr.CmpOp) []expr.Any {
	mask := make([]byte, l.length())
	for i := range prefix.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: l.saddrOffset(), Len: l.length()},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: l.length(), Mask: mask, Xor: make([]byte, l.length())},
		&expr.Cmp{Op: op, Register: 1, Data: prefix.Masked().Addr().AsSlice()},
	}
}

// fromNode is a verdict on packets whose source is an address of the node.
func fromNode(then expr.Any) []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: 1, ResultADDRTYPE: true, FlagSADDR: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: native(unix.RTN_LOCAL)},
		then,
	}
}

// lookup looks for the registers from 1 on in a set.
func lookup(in setName) expr.Any { return &expr.Lookup{SourceRegister: 1, SetName: string(in)} }

// find loads what a map has for the registers from 1 on into them.
func find(in setName) expr.Any {
	return &expr.Lookup{SourceRegister: 1, DestRegister: 1, IsDestRegSet: true, SetName: string(in)}
}

// dnat changes the destination to the address and the port in the registers from 1 on.
func (l *layout) dnat() expr.Any {
	port := nfnetlink.Register(l.words())
	return &expr.NAT{
		Type: expr.NATTypeDestNAT, Family: l.nfproto(), RegAddrMin: 1, RegAddrMax: 1,
		RegProtoMin: port, RegProtoMax: port, Specified: true,
	}
}

func jump(to string) expr.Any { return &expr.Verdict{Kind: expr.VerdictJump, Chain: to} }
func goTo(to string) expr.Any { return &expr.Verdict{Kind: expr.VerdictGoto, Chain: to} }
func drop() expr.Any          { return &expr.Verdict{Kind: expr.VerdictDrop} }

func native(n uint32) []byte { return binaryutil.NativeEndian.PutUint32(n) }

// words is how many registers of 32 bits an address takes.
func (l *layout) words() uint32 { return l.length() / 4 }

func (l *layout) length() uint32 { return uint32(l.family.length()) }

// Offsets of addresses, see RFC 791, section 3.1, and RFC 8200, section 3.
func (l *layout) saddrOffset() uint32 {
	if l.family == IPv4 {
		return 12
	}
	return 8
}

func (l *layout) daddrOffset() uint32 { return l.saddrOffset() + l.length() }

func (l *layout) nfproto() uint32 { return uint32(l.family.nfproto()) }

func (f Family) nfproto() uint8 {
	if f == IPv4 {
		return unix.NFPROTO_IPV4
	}
	return unix.NFPROTO_IPV6
}
