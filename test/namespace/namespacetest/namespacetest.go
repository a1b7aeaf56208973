//go:build linux

// Package namespacetest runs tests in a network namespace of their own, that of a node, and links
// others to it.
package namespacetest

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/test/namespace"
)

// inside is the environment variable that marks the process in the node's namespaces.
const inside = "PORTOLAN_TEST_NODE"

// OnNode runs the test again, in a process with a network and a mount namespace of its own, and
// reports whether this is that process. The namespace is that of a node: it forwards packets, its
// loopback device is up, and addresses of IPv6 that it gets are usable at once. Without root it
// skips the test, unless the environment variable CI is set.
func OnNode(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inside) != "" {
		prepareNode(t)
		return true
	}
	// The child is killed when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own := &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	try := exec.Command("true")
	try.SysProcAttr = own
	if err := try.Run(); err != nil && os.Getenv("CI") == "" {
		t.Skipf("network namespaces need root: %v", err)
	}
	timeout := 3 * time.Minute
	if deadline, ok := t.Deadline(); ok {
		timeout = time.Until(deadline)
	}
	cmd := exec.CommandContext(
		t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout="+timeout.String(), "-test.v",
	)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = own
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("in the namespaces: %v\n%s", err, out)
	} else {
		t.Logf("in the namespaces:\n%s", out)
	}
	return false
}

func prepareNode(tb testing.TB) {
	tb.Helper()
	SetSysctl(tb, "net/ipv4/ip_forward", "1")
	SetSysctl(tb, "net/ipv6/conf/all/forwarding", "1")
	useAtOnce(tb)
	SetUp(tb, "lo")
}

// useAtOnce disables duplicate address detection for IPv6 addresses, which takes seconds.
func useAtOnce(tb testing.TB) {
	tb.Helper()
	SetSysctl(tb, "net/ipv6/conf/all/accept_dad", "0")
	SetSysctl(tb, "net/ipv6/conf/default/accept_dad", "0")
}

// SetSysctl sets a sysctl, such as net/ipv4/ip_forward, of the caller's thread.
func SetSysctl(tb testing.TB, name, value string) {
	tb.Helper()
	must(tb, os.WriteFile("/proc/sys/"+name, []byte(value), 0))
}

// New makes a network namespace that lasts until the test ends. Its loopback device is up, and
// addresses of IPv6 that it gets are usable at once.
func New(tb testing.TB) *namespace.Network {
	tb.Helper()
	n, err := namespace.New()
	must(tb, err)
	tb.Cleanup(func() { n.Close() })
	Do(tb, n, func() {
		useAtOnce(tb)
		SetUp(tb, "lo")
	})
	return n
}

// Do runs a function in a namespace, see namespace.Network.Do.
func Do(tb testing.TB, n *namespace.Network, run func()) {
	tb.Helper()
	must(tb, n.Do(func() error {
		run()
		return nil
	}))
}

// Attach makes a namespace with these addresses on its device eth0, linked to a new device of the
// node. The addresses of that one are its gateways.
func Attach(tb testing.TB, device string, gateways []netip.Prefix, addrs ...netip.Prefix) *namespace.Network {
	tb.Helper()
	n := New(tb)
	must(tb, netlink.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: device}, PeerName: "eth0", PeerNamespace: netlink.NsFd(n.Fd()),
	}))
	SetUp(tb, device, gateways...)
	Do(tb, n, func() {
		SetUp(tb, "eth0", addrs...)
		for _, g := range gateways {
			must(tb, netlink.RouteAdd(&netlink.Route{Gw: g.Addr().AsSlice()}))
		}
	})
	return n
}

// Gateways of Pods that AttachPod links; a node has them on the devices of all of its Pods.
var podGateways = []netip.Prefix{netip.MustParsePrefix("169.254.1.1/32"), netip.MustParsePrefix("fe80::1/64")}

// AttachPod makes the namespace of a Pod with these addresses on its device eth0, linked to a new device
// of the node, which has routes to them, as network plugins without a bridge do.
func AttachPod(tb testing.TB, device string, addrs ...netip.Addr) *namespace.Network {
	tb.Helper()
	return AttachRouted(tb, Routed{Device: device, Gateways: podGateways, Addrs: addrs})
}

// Routed is a namespace that AttachRouted makes.
type Routed struct {
	// Device is the device of the caller's namespace, and Gateways are its addresses.
	Device   string
	Gateways []netip.Prefix
	// Addrs are those of the new namespace.
	Addrs []netip.Addr
	// Sources are addresses that the caller's namespace has otherwise, and sends from. If there are none, it
	// sends from the Gateways.
	Sources []netip.Addr
}

// AttachRouted makes a namespace that has its addresses on its device eth0, linked to a new device of the caller's
// namespace, which has routes to them.
func AttachRouted(tb testing.TB, r Routed) *namespace.Network {
	tb.Helper()
	n := New(tb)
	must(tb, netlink.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: r.Device}, PeerName: "eth0", PeerNamespace: netlink.NsFd(n.Fd()),
	}))
	SetUp(tb, r.Device)
	link, err := netlink.LinkByName(r.Device)
	must(tb, err)
	scope := netlink.SCOPE_UNIVERSE
	if len(r.Sources) > 0 {
		scope = netlink.SCOPE_LINK // so that it is no source
	}
	for _, g := range r.Gateways {
		ip := &net.IPNet{IP: g.Addr().AsSlice(), Mask: net.CIDRMask(g.Bits(), g.Addr().BitLen())}
		must(tb, netlink.AddrAdd(link, &netlink.Addr{IPNet: ip, Flags: unix.IFA_F_NODAD, Scope: int(scope)}))
	}
	Do(tb, n, func() { routeThrough(tb, &r) })
	awaitUp(tb, r.Device)
	Do(tb, n, func() { awaitUp(tb, "eth0") })
	for _, a := range r.Addrs {
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: host(a), Scope: netlink.SCOPE_LINK}
		for _, s := range r.Sources {
			if s.BitLen() == a.BitLen() {
				route.Src = s.AsSlice()
			}
		}
		must(tb, netlink.RouteAdd(route))
	}
	return n
}

// routeThrough gives the new namespace its addresses, and routes through its gateways.
func routeThrough(tb testing.TB, r *Routed) {
	tb.Helper()
	SetUp(tb, "eth0")
	own, err := netlink.LinkByName("eth0")
	must(tb, err)
	for _, a := range r.Addrs {
		must(tb, netlink.AddrAdd(own, &netlink.Addr{IPNet: host(a), Flags: unix.IFA_F_NODAD}))
	}
	for _, g := range r.Gateways {
		to := host(g.Addr())
		must(tb, netlink.RouteReplace(&netlink.Route{LinkIndex: own.Attrs().Index, Dst: to, Scope: netlink.SCOPE_LINK}))
		must(tb, netlink.RouteAdd(&netlink.Route{LinkIndex: own.Attrs().Index, Gw: to.IP}))
	}
}

// host returns the network that has an address only.
func host(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// SetUp adds addresses to a device and sets it up.
func SetUp(tb testing.TB, device string, addrs ...netip.Prefix) {
	tb.Helper()
	link, err := netlink.LinkByName(device)
	must(tb, err)
	must(tb, netlink.LinkSetUp(link))
	for _, a := range addrs {
		ip := &net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())}
		must(tb, netlink.AddrAdd(link, &netlink.Addr{IPNet: ip, Flags: unix.IFA_F_NODAD}))
	}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// SendFrames sends n Ethernet frames out of a device of a namespace. frame returns the i-th, given the device's MAC.
func SendFrames(
	ns *namespace.Network,
	device string,
	n uint32,
	frame func(mac net.HardwareAddr, i uint32) []byte,
) error {
	return ns.Do(func() error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		to := &unix.SockaddrLinklayer{Ifindex: link.Attrs().Index}
		for i := range n {
			if err := unix.Sendto(fd, frame(link.Attrs().HardwareAddr, i), 0, to); err != nil {
				return err
			}
		}
		return nil
	})
}

// awaitUp waits until a device sends what it is given: until then, the kernel drops it.
func awaitUp(tb testing.TB, device string) {
	tb.Helper()
	for range 5000 {
		link, err := netlink.LinkByName(device)
		must(tb, err)
		if link.Attrs().OperState == netlink.OperUp {
			return
		}
		time.Sleep(time.Millisecond)
	}
	tb.Fatalf("device %s is not up", device)
}
