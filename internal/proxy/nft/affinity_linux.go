package nft

import (
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/nfnetlink"
)

// Session affinity gives the endpoints of a group numbers that are not used again soon, and
// remembers the number for each client. Nothing is deleted when an endpoint goes: its number
// is found no more, and its clients choose again.
//
// The priority of a packet is the variable of these rules, since the syntax of nft has no way to
// look up what a lookup returned. Its lower half is the group, and so is a number's. Packets
// that are forwarded get their priority from the routing table afterwards; those of the node's
// own processes lose SO_PRIORITY for the first packet of a connection.

// maxClients is how many clients are remembered in a family. Further ones have no affinity.
const maxClients = 1 << 17

// affinityChains returns the chains for n endpoints and clients that are remembered for k
// seconds.
func (l *layout) affinityChains(k chains, n int) []chain {
	all := []chain{
		{name: k.name(prefixEndpoints, n), rules: l.enter(k.name(prefixKnown, n))},
		{name: k.name(prefixLocal, n), rules: l.enter(k.name(prefixKnownLocal, n))},
		l.masquerade(k, n), l.externalLocal(k, n),
	}
	timeout := time.Duration(k) * time.Second
	return append([]chain{
		{name: k.name(prefixKnown, n), rules: l.remembered(timeout, n, 0)},
		{name: k.name(prefixKnownLocal, n), rules: l.remembered(timeout, n, localSlot)},
	}, all...)
}

// The prefixes of chains that packets enter with their group as priority.
const (
	prefixKnown      = "group-"
	prefixKnownLocal = "group-local-"
)

// enter returns the rules that set the priority to the group.
//
//	meta priority set ip daddr . meta l4proto . th dport map @affinity-groups goto KNOWN    # twice
//	goto refuse
func (l *layout) enter(known string) [][]expr.Any {
	rule := func() []expr.Any {
		return append(l.destination(), find(setAffinityGroups), setPriority(), goTo(known))
	}
	return [][]expr.Any{rule(), rule(), {goTo(chainRefuse)}}
}

// remembered returns the rules that choose the endpoint of a client.
//
//	meta priority set ip saddr . GROUP map @affinity
//	  update @affinity { ip saddr . GROUP timeout T : meta priority }
//	  dnat ip to DESTINATION . meta priority map @affinity-endpoints
//	delete @affinity { ip saddr . GROUP : meta priority }
//	meta priority set DESTINATION . numgen random mod N map @affinity-choices
//	  update @affinity { ip saddr . GROUP timeout T : meta priority }
//	  meta priority set ip saddr . GROUP map @affinity
//	  dnat ip to DESTINATION . meta priority map @affinity-endpoints
//
// where GROUP is meta priority and 0xffff, and DESTINATION ip daddr . meta l4proto . th dport.
// The last rules do without memory: it is full.
func (l *layout) remembered(timeout time.Duration, n int, first uint32) [][]expr.Any {
	recall := func() []expr.Any { return append(l.client(), find(setAffinity), setPriority()) }
	remember := func(op uint32) []expr.Any {
		d := &expr.Dynset{
			SrcRegKey: 1, SrcRegData: nfnetlink.Register(l.words() + 1), SetName: string(setAffinity), Operation: op,
		}
		if op == unix.NFT_DYNSET_OP_UPDATE {
			d.Timeout = timeout
		}
		return append(l.client(), &expr.Meta{Key: expr.MetaKeyPRIORITY, Register: nfnetlink.Register(l.words() + 1)}, d)
	}
	translate := func() []expr.Any {
		remembered := &expr.Meta{Key: expr.MetaKeyPRIORITY, Register: nfnetlink.Register(l.words() + 2)}
		return append(l.destination(), remembered, find(setAffinityEndpoints), l.dnat())
	}
	draw := func(below int) []expr.Any {
		return append(
			l.destination(),
			&expr.Numgen{
				Register: nfnetlink.Register(l.words() + 2),
				Type:     unix.NFT_NG_RANDOM,
				Modulus:  uint32(below),
				Offset:   first,
			},
			find(setAffinityChoices),
			setPriority(),
		)
	}
	const opDelete = 2 // NFT_DYNSET_OP_DELETE
	rules := [][]expr.Any{
		concat(recall(), remember(unix.NFT_DYNSET_OP_UPDATE), translate()),
		remember(opDelete),
	}
	for _, below := range draws(n) {
		rules = append(rules, concat(draw(below), remember(unix.NFT_DYNSET_OP_UPDATE), recall(), translate()))
	}
	for _, below := range draws(n) {
		rules = append(rules, concat(draw(below), translate()))
	}
	return append(rules, []expr.Any{goTo(chainRefuse)})
}

// client loads ip saddr . GROUP into the registers from 1 on.
func (l *layout) client() []expr.Any {
	group := nfnetlink.Register(l.words())
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: l.saddrOffset(), Len: l.length()},
		&expr.Meta{Key: expr.MetaKeyPRIORITY, Register: group},
		&expr.Bitwise{SourceRegister: group, DestRegister: group, Len: 4, Mask: native(groupMask), Xor: native(0)},
	}
}

// setPriority sets the packet's priority to register 1.
func setPriority() expr.Any {
	return &expr.Meta{Key: expr.MetaKeyPRIORITY, Register: 1, SourceRegister: true}
}

// clearPriority returns the rule that removes what the rules above set.
func (l *layout) clearPriority() []expr.Any {
	return append(translated(), &expr.Immediate{Register: 1, Data: native(0)}, setPriority())
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

func concat(parts ...[]expr.Any) (all []expr.Any) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}
