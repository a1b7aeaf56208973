package device_test

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"portolan.dev/portolan/internal/policy/cni/device"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

func TestOf(t *testing.T) {
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	addrs := func(all ...string) (list []netip.Addr) {
		for _, text := range all {
			list = append(list, netip.MustParseAddr(text))
		}
		return list
	}
	index := func(name string) uint32 {
		link, err := netlink.LinkByName(name)
		must(err)
		return uint32(link.Attrs().Index)
	}
	namespacetest.AttachPod(t, "pod-a", addrs("10.244.1.1", "fd00::1")...)
	namespacetest.AttachPod(t, "pod-b", addrs("10.244.1.2")...)
	must(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}}))
	namespacetest.SetUp(t, "cni0", netip.MustParsePrefix("10.244.2.1/24"))
	namespacetest.AttachPod(t, "port", addrs("10.244.3.3")...)
	port, err := netlink.LinkByName("port")
	must(err)
	bridge, err := netlink.LinkByName("cni0")
	must(err)
	must(netlink.LinkSetMaster(port, bridge))
	// The uplink of a node that is a container is a veth, too.
	namespacetest.Attach(t, "uplink", []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}, netip.MustParsePrefix("192.0.2.7/24"))
	must(netlink.RouteAdd(&netlink.Route{Gw: addrs("192.0.2.7")[0].AsSlice()}))
	for claim, test := range map[string]struct {
		names []string
		addrs []netip.Addr
		want  uint32
	}{
		"a veth to which all routes lead":     {[]string{"pod-a"}, addrs("10.244.1.1", "fd00::1"), index("pod-a")},
		"after others":                        {[]string{"cni0", "absent", "pod-b", "pod-a"}, addrs("10.244.1.1"), index("pod-a")},
		"nothing is reported":                 {nil, addrs("10.244.1.1"), 0},
		"a device that is not there":          {[]string{"absent"}, addrs("10.244.1.1"), 0},
		"another Pod's":                       {[]string{"pod-b"}, addrs("10.244.1.1"), 0},
		"one of two routes leads to it":       {[]string{"pod-a"}, addrs("10.244.1.1", "10.244.1.2"), 0},
		"a bridge":                            {[]string{"cni0"}, addrs("10.244.2.7"), 0},
		"a port of a bridge":                  {[]string{"port"}, addrs("10.244.3.3"), 0},
		"the uplink, by the route to all":     {[]string{"uplink"}, addrs("10.244.9.9"), 0},
		"the uplink, by the route to a link":  {[]string{"uplink"}, addrs("192.0.2.9"), 0},
		"an address without a route, of IPv6": {[]string{"pod-a"}, addrs("fd00:9::9"), 0},
		"the device lo and an address of its": {[]string{"lo"}, addrs("127.0.0.1"), 0},
	} {
		got, err := device.Of(test.names, test.addrs)
		if got != test.want || err != nil {
			t.Errorf("%s: Of(%v, %v) = %d, %v, want %d", claim, test.names, test.addrs, got, err, test.want)
		}
	}
}
