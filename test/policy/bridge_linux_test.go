package policy

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"portolan.dev/portolan/test/namespace/namespacetest"
)

// TestBridge has Pods at one bridge, as the plugin bridge makes it. Without br_netfilter the packets between
// them pass by the policies, of which the agent warns once for each family; with it, policies hold.
func TestBridge(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	settings := map[string]string{"IPv4": "net/bridge/bridge-nf-call-iptables", "IPv6": "net/bridge/bridge-nf-call-ip6tables"}
	gateways := []netip.Prefix{netip.MustParsePrefix("10.244.1.1/24"), netip.MustParsePrefix("fd00:1::1/64")}
	must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}}))
	namespacetest.SetUp(t, "cni0", gateways...)
	for _, s := range settings {
		namespacetest.SetSysctl(t, s, "0")
	}
	w.API.Put(theNode("10.244.1.0/24", "fd00:1::/64"), onlyFrom("db", "web"))
	db := w.bridged(t, "db", gateways, "10.244.1.3", "fd00:1::3")
	serve(t, db)
	web := w.bridged(t, "web", gateways, "10.244.1.4", "fd00:1::4")
	other := w.bridged(t, "other", gateways, "10.244.1.5", "fd00:1::5")
	for i, family := range []string{"IPv4", "IPv6"} {
		to := netip.AddrPortFrom(db.Addrs[i], port)
		if err := dial(other, to); err != nil {
			t.Errorf("%s without br_netfilter: %v, want the packets to pass by", family, err)
		}
		name := strings.ReplaceAll(settings[family], "/", ".")
		if n := strings.Count(w.Log(), name+"=1"); n != 1 {
			t.Errorf("%s: %d warnings with %s=1, want 1", family, n, name)
		}
		namespacetest.SetSysctl(t, settings[family], "1")
		if err := dial(web, to); err != nil {
			t.Errorf("%s: an allowed connection: %v", family, err)
		}
		if err := dial(other, to); !timedOut(err) {
			t.Errorf("%s: a forbidden connection: %v, want a timeout", family, err)
		}
	}
}

// bridged has a Pod run whose link is a port of the bridge.
func (w *world) bridged(t *testing.T, name string, gateways []netip.Prefix, addrs ...string) *pod {
	t.Helper()
	var own []netip.Addr
	var prefixes []netip.Prefix
	for i, text := range addrs {
		own = append(own, netip.MustParseAddr(text))
		prefixes = append(prefixes, netip.PrefixFrom(own[i], gateways[i].Bits()))
	}
	p := w.newPod(name, app(name), own...)
	p.Network = namespacetest.Attach(t, "veth-"+name, nil, prefixes...)
	port, err := netlink.LinkByName("veth-" + name)
	must(t, err)
	master, err := netlink.LinkByName("cni0")
	must(t, err)
	must(t, netlink.LinkSetMaster(port, master))
	w.Add(t, p)
	w.Run(p)
	return p
}
