package nft

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/support/nfnetlink"
)

// chain is a chain of the table.
type chain struct {
	name    string
	base    baseChain
	comment string
	rules   []rule
}

// baseChain is what makes a chain a base chain; zero is another chain.
type baseChain struct {
	kind           string
	hook, priority uint32
	policy         uint32
}

// rule is a rule of a chain.
type rule struct {
	expressions []expr.Any
	comment     string
}

// renderer makes the chains of a table.
type renderer struct {
	Config
	// kind returns the kind of a set.
	kind func(set string) (ruleset.Kind, bool)
	// families are those of the node's Pods.
	families []*family
}

// baseChains returns the chains where packets begin, after those that they name.
func (r *renderer) baseChains() []chain {
	const accept = 1 // NF_ACCEPT
	on := func(hook uint32, priority int32) baseChain {
		return baseChain{kind: "filter", hook: hook, priority: uint32(priority), policy: accept}
	}
	send := rule{expressions: []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: chainEgress}}}
	get := rule{expressions: []expr.Any{goTo(chainIngress)}}
	// The node may have an address of the range of its Pods, with which it talks to itself.
	self := rule{expressions: append(loopback(), accepted())}
	return []chain{
		r.unknown(ruleset.Egress),
		r.unknown(ruleset.Ingress),
		r.source(),
		r.link(),
		{name: chainEgress, comment: "what Pods of this node send", rules: r.dispatch(ruleset.Egress)},
		{name: chainIngress, comment: "what Pods of this node get", rules: r.dispatch(ruleset.Ingress)},
		{
			name: chainForward, base: on(unix.NF_INET_FORWARD, -1), comment: "what Pods of this node send and get",
			rules: slices.Concat(r.flows(), []rule{send, get}),
		},
		{
			name: chainInput, base: on(unix.NF_INET_LOCAL_IN, -1), comment: "what Pods of this node send to it",
			rules: slices.Concat([]rule{self}, r.flows(), []rule{send}),
		},
	}
}

// flows returns the rules with which base chains begin. Neighbor discovery is types 133 to 137, which no
// node forwards: their hop limit is 255 (RFC 4861, sections 4 and 7.1).
//
//	iif @pod-devices jump source
//	ct state established,related accept
//	ip6 hoplimit 255 icmpv6 type 133-137 accept
//	ip saddr . ip daddr . meta l4proto . th sport . th dport @cut-4 drop
func (r *renderer) flows() []rule {
	const established, related = 1 << 1, 1 << 2
	const routerSolicitation, redirect, hopLimit = 133, 137, 7 // the last one is an offset
	rules := []rule{
		{expressions: append(ofPod(false), &expr.Verdict{Kind: expr.VerdictJump, Chain: chainSource})},
		{expressions: []expr.Any{
			&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: native(established | related), Xor: native(0)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: native(0)},
			accepted(),
		}},
		{expressions: append(
			protocol(unix.IPPROTO_ICMPV6),
			&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.NFPROTO_IPV6}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: hopLimit, Len: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{255}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1},
			&expr.Range{Op: expr.CmpOpEq, Register: 1, FromData: []byte{routerSolicitation}, ToData: []byte{redirect}},
			accepted(),
		)},
	}
	return append(rules, r.cutFlows()...)
}

// dispatch returns the rules that lead packets of a direction to the chains of their Pods.
//
//	ip saddr vmap @egress-4
//	ip saddr @ranges-4 goto unknown-out
func (r *renderer) dispatch(d ruleset.Direction) []rule {
	rules := r.verdicts(d)
	for _, f := range r.families {
		look := &expr.Lookup{SourceRegister: 1, SetName: setRanges + f.suffix}
		rules = append(rules, rule{expressions: append(f.peerOf(opposite(d)), look, goTo(unknownChain(d)))})
	}
	if d == ruleset.Egress {
		rules = append(rules, rule{expressions: append(ofLink(), goTo(chainLink))})
	}
	return rules
}

// source returns the chain for what comes by the device of a Pod. Addresses of the link are judged in another
// chain, and without an address a Pod sends what gets it one (RFC 4862, section 5.4.2).
//
//	iif . ip saddr @sources-4 return
//	ip6 saddr fe80::/10 return
//	ip6 saddr :: meta l4proto ipv6-icmp return
func (r *renderer) source() chain {
	c := chain{name: chainSource, comment: "by the device of a Pod, only its addresses"}
	pass := func(condition []expr.Any) {
		c.rules = append(c.rules, rule{expressions: append(condition, &expr.Verdict{Kind: expr.VerdictReturn})})
	}
	for _, f := range r.families {
		pass(append(f.is(),
			&expr.Meta{Key: expr.MetaKeyIIF, Register: 1}, f.address(ruleset.Ingress, 1),
			&expr.Lookup{SourceRegister: 1, SetName: setSources + f.suffix}))
	}
	pass(ofLink())
	noAddress := &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: make([]byte, ipv6.size)}
	pass(slices.Concat(ipv6.peerOf(ruleset.Ingress), []expr.Any{noAddress}, protocol(unix.IPPROTO_ICMPV6)))
	p := Prefix{Event: Forged, Direction: ruleset.Egress, Chain: chainSource, Reason: ruleset.ReasonForged}
	c.rules = append(c.rules, r.logged(p)...)
	return c
}

// link returns the chain for packets with an address of the link as their source. Reports of listeners to
// multicast (RFC 3810, section 5) pass. As in unknown, Pods are looked up again.
//
//	icmpv6 type 130-132 return
//	icmpv6 type 143 return
//	iif vmap @links
//	iif vmap @links
//	iif != @pod-devices return
func (r *renderer) link() chain {
	const query, done, report = 130, 132, 143
	reports := func(from, to byte) rule {
		return rule{expressions: append(
			protocol(unix.IPPROTO_ICMPV6),
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1},
			&expr.Range{Op: expr.CmpOpEq, Register: 1, FromData: []byte{from}, ToData: []byte{to}},
			&expr.Verdict{Kind: expr.VerdictReturn},
		)}
	}
	look := rule{expressions: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIF, Register: 1},
		&expr.Lookup{SourceRegister: 1, IsDestRegSet: true, SetName: setLinks},
	}}
	other := rule{expressions: append(ofPod(true), &expr.Verdict{Kind: expr.VerdictReturn})}
	p := Prefix{Event: Unknown, Direction: ruleset.Egress, Chain: chainLink, Reason: ruleset.ReasonNoPod}
	return chain{
		name: chainLink, comment: "addresses of the link of a Pod",
		rules: append([]rule{reports(query, done), reports(report, report), look, look, other}, r.logged(p)...),
	}
}

// ofPod is met by packets that come by the device of a Pod, or, inverted, by those that do not.
func ofPod(inverted bool) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIF, Register: 1},
		&expr.Lookup{SourceRegister: 1, SetName: setDevices, Invert: inverted},
	}
}

// ofLink is met by packets from fe80::/10.
func ofLink() []expr.Any {
	octets := func(first, second byte) []byte { return append([]byte{first, second}, make([]byte, ipv6.size-2)...) }
	return append(
		ipv6.peerOf(ruleset.Ingress),
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: ipv6.size, Mask: octets(0xff, 0xc0), Xor: octets(0, 0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: octets(0xfe, 0x80)},
	)
}

// verdicts returns the rules that look up the address of a Pod.
func (r *renderer) verdicts(d ruleset.Direction) (rules []rule) {
	set := setEgress
	if d == ruleset.Ingress {
		set = setIngress
	}
	for _, f := range r.families {
		look := &expr.Lookup{SourceRegister: 1, IsDestRegSet: true, SetName: set + f.suffix}
		rules = append(rules, rule{expressions: append(f.peerOf(opposite(d)), look)})
	}
	return rules
}

// unknown returns the chain for packets of addresses that no Pod has. It looks again: a packet that
// looked while a Pod got another chain may have found neither.
func (r *renderer) unknown(d ruleset.Direction) chain {
	p := Prefix{Event: Unknown, Direction: d, Chain: unknownChain(d), Reason: ruleset.ReasonNoPod}
	return chain{
		name: unknownChain(d), comment: "addresses for Pods of this node that no Pod has",
		rules: append(r.verdicts(d), r.logged(p)...),
	}
}

// chain returns a chain of a Ruleset, after those that it names: a rule that logs on a condition does
// so in a chain of its own, to have one limit and one counter.
func (r *renderer) chain(name string, c *ruleset.Chain) (all []chain, err error) {
	made := chain{name: name, comment: c.Comment}
	for i := range c.Rules {
		from := &c.Rules[i]
		matches, err := r.matches(c.Direction, from)
		if err != nil {
			return nil, fmt.Errorf("chain %s: %w", name, err)
		}
		then := passed(c.Direction)
		switch from.Action {
		case ruleset.Accept:
		case ruleset.Goto:
			then = goTo(from.Chain)
		case ruleset.Deny, ruleset.Report:
			p := Prefix{Event: Denied, Direction: c.Direction, Chain: name, Reason: from.Reason}
			if from.Action == ruleset.Report {
				p.Event = Audited
			}
			rules := r.logged(p)
			if len(matches[0]) == 0 {
				made.rules = append(made.rules, rules...)
				continue
			}
			one := chain{name: name + "." + strconv.Itoa(i), rules: rules}
			all = append(all, one)
			then = goTo(one.name)
			if from.Action == ruleset.Report {
				then = &expr.Verdict{Kind: expr.VerdictJump, Chain: one.name}
			}
		}
		for _, m := range matches {
			made.rules = append(made.rules, rule{expressions: append(m, then), comment: from.Reason})
		}
	}
	return append(all, made), nil
}

// logged returns the rules that log and count packets, and drop those that are not audited only.
//
//	limit rate 10/second burst 10 packets log prefix "…" snaplen 128 group 1
//	counter drop
func (r *renderer) logged(p Prefix) []rule {
	const snapshot = 128 // octets: the headers
	count := []expr.Any{&expr.Counter{}}
	if p.Event != Audited {
		count = append(count, &expr.Verdict{Kind: expr.VerdictDrop})
	}
	return []rule{
		{expressions: []expr.Any{
			&expr.Limit{Type: expr.LimitTypePkts, Rate: uint64(r.LogRate), Unit: expr.LimitTimeSecond, Burst: r.LogRate},
			&expr.Log{
				Key:   1<<unix.NFTA_LOG_GROUP | 1<<unix.NFTA_LOG_PREFIX | 1<<unix.NFTA_LOG_SNAPLEN,
				Group: r.LogGroup, Data: []byte(p.String()), Snaplen: snapshot,
			},
		}},
		{expressions: count},
	}
}

// matches returns conditions of which a packet that a rule matches meets one. One without expressions
// is met by all. What is cheap comes first.
func (r *renderer) matches(d ruleset.Direction, from *ruleset.Rule) ([][]expr.Any, error) {
	all := [][]expr.Any{nil}
	if from.Where == ruleset.ToNode {
		all[0] = toNode()
	}
	if len(from.Ports) > 0 {
		var next [][]expr.Any
		for _, p := range from.Ports {
			next = append(next, join(all[0], ports(p)))
		}
		all = next
	}
	if from.Peers == "" && from.Where != ruleset.ToSelf {
		return all, nil
	}
	kind, ok := r.kind(from.Peers)
	if !ok && from.Peers != "" {
		return nil, fmt.Errorf("there is no set %s", from.Peers)
	}
	var next [][]expr.Any
	for _, m := range all {
		for _, f := range r.families {
			condition := f.is()
			if from.Where == ruleset.ToSelf {
				condition = join(condition, f.toSelf())
			}
			if from.Peers != "" {
				condition = join(condition, f.peerIn(d, kind, from.Peers))
			}
			next = append(next, join(m, condition))
		}
	}
	return next, nil
}

// join returns both in a slice of its own.
func join(a, b []expr.Any) []expr.Any {
	return append(append(make([]expr.Any, 0, len(a)+len(b)+1), a...), b...)
}

// ports compares the destination port.
func ports(p ruleset.Ports) []expr.Any {
	is := protocol(byte(p.Protocol))
	if p.First == 0 && p.Last == 1<<16-1 {
		return is
	}
	is = append(is, destinationPort(1))
	first, last := binary.BigEndian.AppendUint16(nil, p.First), binary.BigEndian.AppendUint16(nil, p.Last)
	if p.First == p.Last {
		return append(is, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: first})
	}
	return append(is, &expr.Range{Op: expr.CmpOpEq, Register: 1, FromData: first, ToData: last})
}

// destinationPort loads it (RFC 768; RFC 9293, section 3.1; RFC 9260, section 3.1).
func destinationPort(into uint32) expr.Any {
	return &expr.Payload{DestRegister: into, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}
}

// protocol compares the transport protocol.
func protocol(p byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{p}},
	}
}

// toNode is met by packets that leave through no device: those to the node.
func toNode() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIF, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: native(0)},
	}
}

// loopback is met by packets that the node sends itself.
func loopback() []expr.Any {
	const index = 1 // of the device lo in each network namespace
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIF, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: native(index)},
	}
}

// is compares the family of a packet.
func (f *family) is() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{f.nfproto}},
	}
}

// peerOf loads the address of the peer in a direction, if the packet is of the family.
func (f *family) peerOf(d ruleset.Direction) []expr.Any {
	return append(f.is(), f.address(d, 0))
}

// address loads the address of the peer in a direction, so many words of 32 bits behind the first
// register.
func (f *family) address(d ruleset.Direction, words uint32) expr.Any {
	offset := f.source
	if d == ruleset.Egress {
		offset += f.size
	}
	return &expr.Payload{
		DestRegister: nfnetlink.Register(words), Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.size,
	}
}

// toSelf is met by packets of a Pod to its own address.
func (f *family) toSelf() []expr.Any {
	return []expr.Any{
		f.address(ruleset.Ingress, 0), f.address(ruleset.Egress, f.size/4),
		&expr.Lookup{SourceRegister: 1, SetName: setSelf + f.suffix},
	}
}

// peerIn is met by packets whose peer in a direction is in a set.
func (f *family) peerIn(d ruleset.Direction, k ruleset.Kind, set string) []expr.Any {
	look := &expr.Lookup{SourceRegister: 1, SetName: set + f.suffix}
	if k != ruleset.HostPorts {
		return []expr.Any{f.address(d, 0), look}
	}
	words := f.size / 4
	return []expr.Any{
		f.address(ruleset.Egress, 0),
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: nfnetlink.Register(words)},
		destinationPort(nfnetlink.Register(words + 1)),
		look,
	}
}

func accepted() expr.Any { return &expr.Verdict{Kind: expr.VerdictAccept} }

// passed ends the chains of a direction: those of ingress come after those of egress.
func passed(d ruleset.Direction) expr.Any {
	if d == ruleset.Egress {
		return &expr.Verdict{Kind: expr.VerdictReturn}
	}
	return accepted()
}

func goTo(to string) expr.Any { return &expr.Verdict{Kind: expr.VerdictGoto, Chain: to} }

// opposite returns the direction of which a Pod's own address is the peer.
func opposite(d ruleset.Direction) ruleset.Direction {
	if d == ruleset.Ingress {
		return ruleset.Egress
	}
	return ruleset.Ingress
}

func native(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }
