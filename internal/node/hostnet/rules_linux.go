package hostnet

import (
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

// The names of the sets.
const (
	protocols  = "protocols"
	addresses4 = "addresses4"
	addresses6 = "addresses6"
)

// end is the end of a packet that a rule matches.
type end int

const (
	source end = iota
	destination
)

// chains has the chains of the table, at priority raw, which is before connection tracking:
// queries of Pods, queries of this node, and responses. A response to this node keeps the
// notrack mark of the output hook when it arrives.
var chains = []struct {
	name string
	hook *nftables.ChainHook
	end  end // the end of a packet that has the address
}{
	{"prerouting", nftables.ChainHookPrerouting, destination},
	{"output", nftables.ChainHookOutput, destination},
	{"answers", nftables.ChainHookOutput, source},
}

// family has the offsets and the length of the addresses in packets of a family, in octets.
type family struct {
	protocol byte
	set      string
	at       map[end]uint32
	length   uint32
}

// families, see RFC 791, section 3.1, and RFC 8200, section 3.
var families = []family{
	{unix.NFPROTO_IPV4, addresses4, map[end]uint32{source: 12, destination: 16}, 4},
	{unix.NFPROTO_IPV6, addresses6, map[end]uint32{source: 8, destination: 24}, 16},
}

type filledSet struct {
	set      *nftables.Set
	elements []nftables.SetElement
}

func (t *table) sets() []filledSet {
	set := func(name string, of nftables.SetDatatype) *nftables.Set {
		return &nftables.Set{Table: t.inet(), Name: name, KeyType: of}
	}
	return []filledSet{
		{
			set(protocols, nftables.TypeInetProto),
			[]nftables.SetElement{{Key: []byte{unix.IPPROTO_TCP}}, {Key: []byte{unix.IPPROTO_UDP}}},
		},
		{set(addresses4, nftables.TypeIPAddr), elements(t.addrs, netip.Addr.Is4)},
		{set(addresses6, nftables.TypeIP6Addr), elements(t.addrs, netip.Addr.Is6)},
	}
}

func elements(addrs []netip.Addr, want func(netip.Addr) bool) (all []nftables.SetElement) {
	for _, a := range addrs {
		if want(a) {
			all = append(all, nftables.SetElement{Key: a.AsSlice()})
		}
	}
	return all
}

// fill adds the sets, chains and rules to the next t.conn.Flush.
func (t *table) fill() error {
	for _, s := range t.sets() {
		if err := t.conn.AddSet(s.set, s.elements); err != nil {
			return fmt.Errorf("set %s: %w", s.set.Name, err)
		}
	}
	accept := nftables.ChainPolicyAccept
	for _, c := range chains {
		chain := t.conn.AddChain(&nftables.Chain{
			Name: c.name, Table: t.inet(), Hooknum: c.hook, Policy: &accept,
			Type: nftables.ChainTypeFilter, Priority: nftables.ChainPriorityRaw,
		})
		for _, f := range families {
			t.conn.AddRule(&nftables.Rule{
				Table: t.inet(), Chain: chain, Exprs: t.rule(f, c.end),
				UserData: userdata.AppendString(nil, userdata.TypeComment, t.id),
			})
		}
	}
	return nil
}

// rule returns a rule; for IPv4 and the destination it is in nft's syntax: meta l4proto
// @protocols th dport 53 ip daddr @addresses4 counter notrack. The conditions that most
// packets do not match come first.
func (t *table) rule(f family, e end) []expr.Any {
	const register = 1
	ports := map[end]uint32{source: 0, destination: 2} // RFC 768; RFC 9293, section 3.1
	equal := func(data []byte) expr.Any {
		return &expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: data}
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register},
		&expr.Lookup{SourceRegister: register, SetName: protocols},
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: ports[e], Len: 2},
		equal(binaryutil.BigEndian.PutUint16(t.port)),
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: register},
		equal([]byte{f.protocol}),
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: f.at[e], Len: f.length},
		&expr.Lookup{SourceRegister: register, SetName: f.set},
		&expr.Counter{},
		&expr.Notrack{},
	}
}
