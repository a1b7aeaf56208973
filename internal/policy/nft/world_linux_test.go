package nft_test

import (
	"errors"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/policy/nft"
	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// The addresses of the test network, of each family: a node that has an address of the range of its
// Pods, as a bridge has, its Pods, and a host outside.
//
//	a 10.244.1.11 ──┐
//	b 10.244.1.12 ──┼── node 10.244.1.1, 192.0.2.1 ── outside 192.0.2.7, 192.0.2.8
//	c 10.244.1.13 ──┘
var (
	ranges      = prefixes("10.244.1.0/24", "fd00:244:1::/64")
	podA        = addrs("10.244.1.11", "fd00:244:1::11")
	podB        = addrs("10.244.1.12", "fd00:244:1::12")
	podC        = addrs("10.244.1.13", "fd00:244:1::13")
	nodeOutside = addrs("192.0.2.1", "2001:db8::1")
	nodeInside  = addrs("10.244.1.1", "fd00:244:1::1")
	outside     = addrs("192.0.2.7", "2001:db8::7")
	outside2    = addrs("192.0.2.8", "2001:db8::8")
)

// families are the indexes of addresses above.
var families = map[string]int{"IPv4": 0, "IPv6": 1}

// world is a node with its Pods.
type world struct {
	t *testing.T
	// hosts are the namespaces by address; nil is the node.
	hosts map[netip.Addr]*namespace.Network
	// devices are those of the node that Pods are behind, by address.
	devices map[netip.Addr]uint32
}

// onNode runs the test in new network namespaces; outside of them it returns nil.
func onNode(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return nil
	}
	w := &world{t: t, hosts: make(map[netip.Addr]*namespace.Network), devices: make(map[netip.Addr]uint32)}
	// The sysctls of the namespace are in a mount of its own.
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must(t, unix.Mount("sysfs", "/sys", "sysfs", 0, ""))
	for _, name := range []string{"all", "default"} { // sources of tests are any
		namespacetest.SetSysctl(t, "net/ipv4/conf/"+name+"/rp_filter", "0")
	}
	namespacetest.Attach(t, "bridge", prefixes("10.244.1.1/24", "fd00:244:1::1/64"),
		prefixes("10.244.1.250/24", "fd00:244:1::250/64")...)
	for device, pod := range map[string][2]netip.Addr{"pod-a": podA, "pod-b": podB, "pod-c": podC} {
		ns := namespacetest.AttachPod(t, device, pod[:]...)
		link, err := netlink.LinkByName(device)
		must(t, err)
		for _, a := range pod {
			w.hosts[a], w.devices[a] = ns, uint32(link.Attrs().Index)
		}
	}
	ns := namespacetest.Attach(t, "uplink", prefixes("192.0.2.1/24", "2001:db8::1/64"),
		prefixes("192.0.2.7/24", "192.0.2.8/24", "2001:db8::7/64", "2001:db8::8/64")...)
	for i := range 2 {
		must(t, netlink.RouteAdd(&netlink.Route{Gw: outside[i].AsSlice()}))
		w.hosts[outside[i]], w.hosts[outside2[i]] = ns, ns
		w.hosts[nodeInside[i]], w.hosts[nodeOutside[i]] = nil, nil
	}
	return w
}

// table returns a Table of the node.
func (w *world) table() *nft.Table {
	w.t.Helper()
	table, err := nft.New(nft.Config{LogGroup: 5})
	must(w.t, err)
	w.t.Cleanup(func() { table.Close() })
	return table
}

// command runs nft.
func (w *world) command(args ...string) string {
	w.t.Helper()
	out, err := exec.CommandContext(w.t.Context(), "nft", args...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("nft %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func addrs(ipv4, ipv6 string) [2]netip.Addr {
	return [2]netip.Addr{netip.MustParseAddr(ipv4), netip.MustParseAddr(ipv6)}
}

func prefixes(all ...string) (list []netip.Prefix) {
	for _, text := range all {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// hosts returns elements of a set of kind Hosts.
func hosts(all ...netip.Addr) (list []ruleset.Element) {
	for _, a := range all {
		list = append(list, ruleset.Element{Prefix: ruleset.Whole(a)})
	}
	return list
}

func isUnknownSet(err error) bool { return errors.Is(err, nft.ErrUnknownSet) }
