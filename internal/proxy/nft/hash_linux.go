package nft

import (
	"github.com/google/nftables/expr"

	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/support/nfnetlink"
)

// lateChains returns the chains for n endpoints that are made when they are needed.
func (l *layout) lateChains(k chains, n int) []chain {
	if k.hashed() {
		return l.hashChains(k, n)
	}
	return l.affinityChains(k, n)
}

// hashChains returns the chains that choose by hash from a table of the given size.
func (l *layout) hashChains(k chains, size int) []chain {
	return []chain{
		{name: k.name(prefixEndpoints, size), rules: l.hash(k, size, 0)},
		{name: k.name(prefixLocal, size), rules: l.hash(k, size, localSlot)},
		l.masquerade(k, size), l.externalLocal(k, size),
	}
}

// hash returns the rules that choose from a table, see frontend.Draws.
//
//	dnat ip to ip daddr . meta l4proto . th dport . jhash CLIENT mod SIZE seed SEED map @hashed
//
// where CLIENT is ip saddr or ip saddr . th sport. Slots begin at first.
func (l *layout) hash(k chains, size, first int) (rules [][]expr.Any) {
	for _, d := range frontend.Draws(size) {
		client := []expr.Any{
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: l.saddrOffset(), Len: l.length()},
		}
		hash := &expr.Hash{
			SourceRegister: 1, DestRegister: nfnetlink.Register(l.words() + 2), Length: l.length(),
			Modulus: d.Below, Seed: d.Seed, Offset: d.First + uint32(first), Type: expr.HashTypeJenkins,
		}
		if k == connectionHashChains {
			hash.Length += 4 // the port fills a register
			client = append(client, &expr.Payload{
				DestRegister: nfnetlink.Register(l.words()), Base: expr.PayloadBaseTransportHeader, Len: 2,
			})
		}
		rules = append(rules, concat(client, []expr.Any{hash}, l.destination(), []expr.Any{find(setHashed), l.dnat()}))
	}
	return append(rules, []expr.Any{goTo(chainRefuse)})
}
