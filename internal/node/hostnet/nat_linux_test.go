package hostnet_test

import (
	"net/netip"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// leadTo adds NAT rules as kube-proxy does for a Service: queries for one address are
// redirected to another, from the node and from Pods.
func leadTo(t *testing.T, from, to netip.Addr) {
	t.Helper()
	family, at, length := nftables.TableFamilyIPv4, uint32(16), uint32(4)
	if from.Is6() {
		family, at, length = nftables.TableFamilyIPv6, 24, 16
	}
	conn := rules(t)
	table := conn.AddTable(&nftables.Table{Name: "kube-proxy", Family: family})
	for name, hook := range map[string]*nftables.ChainHook{"prerouting": nftables.ChainHookPrerouting, "output": nftables.ChainHookOutput} {
		chain := conn.AddChain(&nftables.Chain{Name: name, Table: table, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: nftables.ChainPriorityNATDest})
		for _, protocol := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
			conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
				&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: at, Len: length},
				&expr.Cmp{Register: 1, Data: from.AsSlice()},
				&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
				&expr.Cmp{Register: 1, Data: []byte{protocol}},
				&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
				&expr.Cmp{Register: 1, Data: binaryutil.BigEndian.PutUint16(port)},
				&expr.Immediate{Register: 1, Data: to.AsSlice()},
				&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(family), RegAddrMin: 1},
			}})
		}
	}
	must(t, conn.Flush())
}
