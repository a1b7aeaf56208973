package link_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/network/link"
	"portolan.dev/portolan/internal/network/route"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// TestPackets: two Pods and the node reach each other, with no address changed, and nobody asks who has one.
func TestPackets(t *testing.T) {
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return
	}
	newNode(t)
	nsA, a := newPod(t, 1)
	nsB, b := newPod(t, 2)
	sniffers := map[string]func() (int, int){"the node": sniff(t, nil), "a Pod": sniff(t, nsA), "the other Pod": sniff(t, nsB)}
	for _, pod := range []link.Pod{a, b} {
		must(t, create(config, pod))
		must(t, link.Up(config, pod))
	}
	for _, ns := range []*namespace.Network{nil, nsA, nsB} {
		echo(t, ns)
	}
	for _, family := range []int{0, 1} {
		node := []netip.Addr{config.Source4, config.Source6}[family]
		for claim, test := range map[string]struct {
			from       *namespace.Network
			source, to netip.Addr
		}{
			"Pod to Pod":           {nsA, a.Addresses[family], b.Addresses[family]},
			"Pod to Pod, back":     {nsB, b.Addresses[family], a.Addresses[family]},
			"Pod to node":          {nsA, a.Addresses[family], node},
			"node to Pod":          {nil, node, b.Addresses[family]},
			"Pod to its own":       {nsA, a.Addresses[family], a.Addresses[family]},
			"node to the other":    {nil, node, a.Addresses[family]},
			"the other to the one": {nsB, b.Addresses[family], node},
		} {
			for _, protocol := range []string{"tcp", "udp", "icmp"} {
				must(t, test.from.Do(func() error {
					source, err := talk(protocol, test.to)
					if err != nil {
						t.Errorf("%s by %s, %s to %s: %v", claim, protocol, test.source, test.to, err)
					} else if protocol == "udp" && netip.MustParseAddrPort(source).Addr() != test.source {
						t.Errorf("%s to %s comes from %s, want %s", claim, test.to, source, test.source)
					}
					return nil
				}))
			}
		}
	}
	for name, count := range sniffers {
		if all, discovery := count(); all == 0 || discovery > 0 {
			t.Errorf("%s: %d of %d packets are ARP or neighbor discovery, want none of some", name, discovery, all)
		}
	}
	if value, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + a.Host + "/accept_ra"); err != nil || string(value) != "0\n" {
		t.Errorf("accept_ra of the host's end is %q, %v", value, err)
	}
	must(t, nsA.Do(func() error { // with a link-local one the kernel looks for routers, a second later
		device, err := netlink.LinkByName("eth0")
		must(t, err)
		addrs, err := netlink.AddrList(device, netlink.FAMILY_ALL)
		if must(t, err); len(addrs) != 2 {
			t.Errorf("the Pod's end has the addresses %v, want one of each family", addrs)
		}
		return nil
	}))
}

// TestDown: no packet passes before Up, and all do after it, as often as it is called.
func TestDown(t *testing.T) {
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return
	}
	newNode(t)
	ns, pod := newPod(t, 1)
	seen, inside := sniff(t, nil), sniff(t, ns)
	must(t, create(config, pod))
	echo(t, ns)
	echo(t, nil)
	for _, addr := range pod.Addresses {
		if _, err := talk("udp", addr); !errors.Is(err, syscall.ENETUNREACH) && !errors.Is(err, syscall.EHOSTUNREACH) {
			t.Errorf("node to %s before Up: %v", addr, err)
		}
	}
	must(t, ns.Do(func() error {
		for _, addr := range []netip.Addr{config.Source4, config.Source6} {
			if _, err := talk("udp", addr); err == nil {
				t.Errorf("Pod to %s before Up passes", addr)
			}
		}
		return nil
	}))
	for _, count := range []func() (int, int){seen, inside} {
		if all, _ := count(); all > 0 {
			t.Errorf("%d packets passed before Up", all)
		}
	}
	for range 2 {
		must(t, link.Up(config, pod))
		for _, addr := range pod.Addresses {
			if _, err := talk("udp", addr); err != nil {
				t.Errorf("node to %s after Up: %v", addr, err)
			}
		}
		must(t, link.Check(config, pod))
	}
	changed := config
	changed.Source4 = netip.MustParseAddr("192.0.2.9")
	if err := link.Up(changed, pod); err == nil || !strings.Contains(err.Error(), "192.0.2.9") {
		t.Errorf("Up with a source that the node has not = %v", err)
	}
	namespacetest.SetUp(t, "lo", netip.PrefixFrom(changed.Source4, 32))
	must(t, link.Up(changed, pod))
	must(t, link.Check(changed, pod))
	device, err := netlink.LinkByName(pod.Host)
	must(t, err)
	if device.Attrs().Alias != pod.Alias || device.Attrs().MTU != mtu {
		t.Errorf("the host's end has the alias %q and the MTU %d", device.Attrs().Alias, device.Attrs().MTU)
	}
	if addrs, err := netlink.AddrList(device, netlink.FAMILY_ALL); err != nil || len(addrs) > 0 {
		t.Errorf("the host's end has the addresses %v, %v", addrs, err)
	}
}

// TestCreateErrors: what is wrong with the Pod's namespace is said, and nothing is left.
func TestCreateErrors(t *testing.T) {
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return
	}
	newNode(t)
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	fifo := filepath.Join(t.TempDir(), "fifo")
	must(t, unix.Mkfifo(fifo, 0o600))
	for claim, test := range map[string]struct {
		change func(ns *namespace.Network, pod *link.Pod)
		is     error
		text   string
	}{
		"the namespace is gone":   {func(_ *namespace.Network, p *link.Pod) { p.NetNS = "/run/netns/none" }, fs.ErrNotExist, "/run/netns/none"},
		"a file":                  {func(_ *namespace.Network, p *link.Pod) { p.NetNS = file }, nil, file + " is no network namespace"},
		"a FIFO without a writer": {func(_ *namespace.Network, p *link.Pod) { p.NetNS = fifo }, nil, fifo + " is no network namespace"},
		"the node's namespace":    {func(_ *namespace.Network, p *link.Pod) { p.NetNS = "/proc/thread-self/ns/net" }, nil, "of the node"},
		"another namespace":       {func(_ *namespace.Network, p *link.Pod) { p.NetNS = "/proc/self/ns/mnt" }, nil, "is no network namespace"},
		"the name is taken":       {func(ns *namespace.Network, _ *link.Pod) { ip(t, ns, "link add eth0 type ifb") }, link.ErrInterfaceExists, "eth0"},
		"IPv6 is disabled":        {func(ns *namespace.Network, _ *link.Pod) { sysctl(t, ns, "net/ipv6/conf/default/disable_ipv6", "1") }, link.ErrNoIPv6, "eth0"},
		"IPv6 is off on the node": {func(*namespace.Network, *link.Pod) { sysctl(t, nil, "net/ipv6/conf/default/disable_ipv6", "1") }, link.ErrNoIPv6, "of the node"},
		"no address":              {func(_ *namespace.Network, p *link.Pod) { p.Addresses = nil }, nil, "no address"},
		"the host's end of none":  {func(_ *namespace.Network, p *link.Pod) { p.Host = "uplink" }, nil, `"uplink"`},
		"an address twice":        {func(_ *namespace.Network, p *link.Pod) { p.Addresses = append(p.Addresses, p.Addresses[0]) }, unix.EEXIST, "10.0.0.1"},
	} {
		ns, pod := newPod(t, 1)
		test.change(ns, &pod)
		err := create(config, pod)
		sysctl(t, nil, "net/ipv6/conf/default/disable_ipv6", "0")
		if err == nil || test.is != nil && !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: Create = %v, want %v with %q", claim, err, test.is, test.text)
		}
		if left, err := link.List(); err != nil || len(left) > 0 {
			t.Errorf("%s: %v, %v are left", claim, left, err)
		}
	}
	ns, pod := newPod(t, 1)
	small := config
	small.MTU = 1200
	if err := create(small, pod); err == nil || !strings.Contains(err.Error(), "1200") {
		t.Errorf("Create with an MTU that is too small for IPv6 = %v", err)
	}
	sysctl(t, ns, "net/ipv6/conf/default/disable_ipv6", "1")
	pod.Addresses = pod.Addresses[:1]
	must(t, create(config, pod))
	must(t, link.Up(config, pod))
	must(t, link.Check(config, pod))
	echo(t, ns)
	if _, err := talk("udp", pod.Addresses[0]); err != nil {
		t.Errorf("a Pod without IPv6: %v", err)
	}
}

func ip(tb testing.TB, ns *namespace.Network, commands ...string) {
	tb.Helper()
	must(tb, ns.Do(func() error { return namespace.IP(commands...) }))
}

func sysctl(tb testing.TB, ns *namespace.Network, name, value string) {
	tb.Helper()
	must(tb, ns.Do(func() error { return os.WriteFile("/proc/sys/"+name, []byte(value), 0) }))
}

// TestReplace: a link that an attempt left that died is replaced, in whichever namespace it is.
func TestReplace(t *testing.T) {
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return
	}
	newNode(t)
	_, pod := newPod(t, 1)
	_, other := newPod(t, 1)
	pod.Egress.Rate, other.Egress.Rate = 1e6, 2e6
	for _, p := range []link.Pod{pod, other, other} {
		must(t, create(config, p))
		must(t, link.Up(config, p))
		must(t, link.Check(config, p))
	}
	if err := link.Check(config, pod); err == nil {
		t.Error("the first namespace has its device still")
	}
}

// TestDelete: Delete, and Prune of a link that is gone, remove what there is of it, also after the namespace ended, and
// List finds the links that are there.
func TestDelete(t *testing.T) {
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return
	}
	newNode(t)
	const nothingBefore = "nothing before"
	for claim, end := range map[string]func(pod link.Pod, endProcess func()){
		nothingBefore: func(link.Pod, func()) {},
		"the namespace ended": func(pod link.Pod, endProcess func()) {
			endProcess()
			wait(t, gone(pod.Host))
		},
		"the Pod's end removed": func(pod link.Pod, _ func()) {
			must(t, namespace.Do(pod.NetNS, func() error { return namespace.IP("link del eth0") }))
		},
	} {
		_, pod := newPod(t, 1)
		var endProcess func()
		pod.NetNS, endProcess = processNamespace(t)
		pod.Egress.Rate = 1e6
		must(t, create(config, pod))
		must(t, link.Up(config, pod))
		end(pod, endProcess)
		if all, err := link.List(); err != nil || slices.Contains(all, pod.Host) != (claim == nothingBefore) {
			t.Errorf("%s: List = %v, %v", claim, all, err)
		}
		remove := func() error { return link.Delete(pod.Host) }
		if claim != nothingBefore {
			remove = link.Prune
		}
		for range 2 {
			if err := remove(); err != nil {
				t.Errorf("%s: %v", claim, err)
			}
		}
		if all, err := link.List(); err != nil || len(all) > 0 {
			t.Errorf("%s: after Delete List = %v, %v", claim, all, err)
		}
		wantNothing(t)
	}
	if err := link.Delete("uplink"); err == nil {
		t.Error("Delete(uplink) = nil")
	}
}

// processNamespace returns the path of a network namespace that ends with a process, and what ends that. A namespace
// that this process makes can be that of its first thread, which the runtime of Go never ends.
func processNamespace(t *testing.T) (path string, end func()) {
	t.Helper()
	cmd := exec.Command("cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	input, err := cmd.StdinPipe() // its end, as that of this process, ends the other one
	must(t, err)
	must(t, cmd.Start())
	end = sync.OnceFunc(func() {
		must(t, input.Close())
		must(t, cmd.Wait())
	})
	t.Cleanup(end)
	return fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid), end
}

// gone reports whether a device is gone.
func gone(name string) func() bool {
	return func() bool {
		_, err := netlink.LinkByName(name)
		_, absent := errors.AsType[netlink.LinkNotFoundError](err)
		return absent
	}
}

// wait waits for a condition. The kernel ends namespaces one after the other, those of other tests, too.
func wait(tb testing.TB, until func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(time.Minute); !until(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatal("it never happened")
		}
	}
}

// wantNothing checks that the node has neither devices nor routes of Pods.
func wantNothing(tb testing.TB) {
	tb.Helper()
	devices, err := netlink.LinkList()
	must(tb, err)
	for _, d := range devices {
		if name := d.Attrs().Name; strings.HasPrefix(name, "pt") {
			tb.Errorf("device %s is left", name)
		}
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: route.Protocol}, netlink.RT_FILTER_PROTOCOL)
	must(tb, err)
	if len(routes) > 0 {
		tb.Errorf("the routes %v are left", routes)
	}
}

// TestParallel: links that are made and removed at once leave nothing.
func TestParallel(t *testing.T) {
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return
	}
	newNode(t)
	var all sync.WaitGroup
	for n := range 200 {
		_, pod := newPod(t, n+1)
		if n%10 == 0 {
			pod.Egress.Rate, pod.Ingress.Rate = 1e6, 1e6
		}
		all.Go(func() {
			for _, step := range []func() error{
				func() error { return create(config, pod) },
				func() error { return link.Up(config, pod) },
				func() error { return link.Check(config, pod) },
				func() error { return link.Delete(pod.Host) },
			} {
				if err := step(); err != nil {
					t.Errorf("Pod %d: %v", n, err)
				}
			}
		})
	}
	all.Wait()
	wantNothing(t)
}

// TestCheck: Check names what was removed.
func TestCheck(t *testing.T) {
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return
	}
	newNode(t)
	const host, inPod = 0, 1
	for claim, test := range map[string]struct {
		where   int
		command string
		want    string
	}{
		"the host's end":           {host, "link del HOST", "device HOST"},
		"down":                     {host, "link set HOST down", "device HOST is down"},
		"its MAC address":          {host, "link set HOST address 02:00:00:00:00:01", "device HOST has the MAC address 02:00:00:00:00:01, not ee:ee:ee:ee:ee:ee"},
		"a route":                  {host, "route del 10.0.0.1", "there is no route to 10.0.0.1 by device HOST"},
		"a route of IPv6":          {host, "route del fd00::1", "there is no route to fd00::1 by device HOST"},
		"the source of a route":    {host, "route replace 10.0.0.1 dev HOST scope link", "the route to 10.0.0.1 by device HOST has the source"},
		"a neighbor":               {host, "neigh del 10.0.0.1 dev HOST", "device HOST has no permanent neighbor 10.0.0.1 with 0a:58:0a:00:00:01"},
		"a neighbor of IPv6":       {host, "neigh del fd00::1 dev HOST", "device HOST has no permanent neighbor fd00::1 with 0a:58:0a:00:00:01"},
		"the device of a limit":    {host, "link del SHAPE", "device SHAPE, which limits what the Pod sends"},
		"the Pod's end, renamed":   {inPod, "link set eth0 name eth1", "in NETNS: device eth0"},
		"an address":               {inPod, "addr del 10.0.0.1/32 dev eth0", "device eth0 has no address 10.0.0.1/32"},
		"an address of IPv6":       {inPod, "addr del fd00::1/128 dev eth0", "device eth0 has no address fd00::1/128"},
		"the gateway's neighbor":   {inPod, "neigh del 169.254.1.1 dev eth0", "device eth0 has no permanent neighbor 169.254.1.1 with ee:ee:ee:ee:ee:ee"},
		"the default route":        {inPod, "route del default", "there is no default route via 169.254.1.1 by device eth0"},
		"that of IPv6":             {inPod, "route del ::/0", "there is no default route via fe80::1 by device eth0"},
		"the gateway's of IPv6":    {inPod, "neigh del fe80::1 dev eth0", "device eth0 has no permanent neighbor fe80::1 with"},
		"nothing but what is said": {inPod, "link set lo down", ""},
	} {
		ns, pod := newPod(t, 1)
		pod.Ingress.Rate, pod.Egress.Rate = 1e6, 1e6
		must(t, create(config, pod))
		must(t, link.Up(config, pod))
		must(t, link.Check(config, pod))
		names := strings.NewReplacer("HOST", pod.Host, "SHAPE", "pti"+pod.Host[3:], "NETNS", pod.NetNS)
		ip(t, []*namespace.Network{nil, ns}[test.where], names.Replace(test.command))
		err := link.Check(config, pod)
		if want := names.Replace(test.want); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: after ip %s Check = %v, want %q", claim, names.Replace(test.command), err, want)
		}
		must(t, link.Delete(pod.Host))
	}
}

// TestCheckLimits: Check names the limit that somebody removed or changed, on each side.
func TestCheckLimits(t *testing.T) {
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return
	}
	newNode(t)
	slower := func(tbf *netlink.Tbf) { tbf.Rate /= 2 }
	shorter := func(tbf *netlink.Tbf) { tbf.Buffer /= 2 }
	const limits = " is limited to %s, not to 1000000 bits per second with a burst of 65536 octets"
	for claim, test := range map[string]struct {
		change func(host, shape netlink.Link)
		want   string
	}{
		"no limit of what it receives": {
			func(host, _ netlink.Link) { must(t, netlink.QdiscDel(tbfOf(t, host))) },
			"device HOST is not limited to 1000000 bits per second",
		},
		"another rate":  {func(host, _ netlink.Link) { change(t, host, slower) }, "device HOST" + fmt.Sprintf(limits, "500000 bits per second with a burst of 32768 octets")},
		"another burst": {func(host, _ netlink.Link) { change(t, host, shorter) }, "device HOST" + fmt.Sprintf(limits, "1000000 bits per second with a burst of 32768 octets")},
		"no limit of what it sends": {
			func(_, shape netlink.Link) { must(t, netlink.QdiscDel(tbfOf(t, shape))) },
			"device SHAPE is not limited to 1000000 bits per second",
		},
		"another burst of what it sends": {func(_, shape netlink.Link) { change(t, shape, shorter) }, "device SHAPE" + fmt.Sprintf(limits, "1000000 bits per second with a burst of 32768 octets")},
		"no device":                      {func(_, shape netlink.Link) { must(t, netlink.LinkDel(shape)) }, "device SHAPE, which limits what the Pod sends"},
		"down":                           {func(_, shape netlink.Link) { must(t, netlink.LinkSetDown(shape)) }, "device SHAPE, which limits what the Pod sends, is down"},
		"not redirected": {
			func(host, _ netlink.Link) {
				must(t, netlink.QdiscDel(&netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
					LinkIndex: host.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS,
				}}))
			},
			"what device HOST receives is not redirected to SHAPE",
		},
	} {
		_, pod := newPod(t, 1)
		pod.Ingress.Rate, pod.Egress.Rate = 1e6, 1e6
		must(t, create(config, pod))
		must(t, link.Up(config, pod))
		must(t, link.Check(config, pod))
		host, err := netlink.LinkByName(pod.Host)
		must(t, err)
		shape, err := netlink.LinkByName("pti" + pod.Host[3:])
		must(t, err)
		test.change(host, shape)
		want := strings.NewReplacer("HOST", pod.Host, "SHAPE", shape.Attrs().Name).Replace(test.want)
		if err := link.Check(config, pod); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Check = %v, want %q", claim, err, want)
		}
		must(t, link.Delete(pod.Host))
	}
}

// tbfOf returns the limit of a device.
func tbfOf(tb testing.TB, device netlink.Link) *netlink.Tbf {
	tb.Helper()
	queues, err := netlink.QdiscList(device)
	must(tb, err)
	for _, q := range queues {
		if tbf, ok := q.(*netlink.Tbf); ok {
			return tbf
		}
	}
	tb.Fatalf("device %s has no limit", device.Attrs().Name)
	return nil
}

// change changes the limit of a device.
func change(tb testing.TB, device netlink.Link, by func(*netlink.Tbf)) {
	tb.Helper()
	tbf := tbfOf(tb, device)
	by(tbf)
	must(tb, netlink.QdiscReplace(tbf))
}

// TestBandwidth: the kernel has the limits, and packets pass through them.
func TestBandwidth(t *testing.T) {
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return
	}
	newNode(t)
	ns, pod := newPod(t, 1)
	pod.Ingress = link.Bandwidth{Rate: 80e6, Burst: 8 * 1e6}
	pod.Egress = link.Bandwidth{Rate: 48e9, Burst: 1<<32 - 1} // more than 32 bits of octets, and what containerd passes
	must(t, create(config, pod))
	must(t, link.Up(config, pod))
	must(t, link.Check(config, pod))
	echo(t, ns)
	for _, addr := range pod.Addresses {
		for _, protocol := range []string{"tcp", "udp", "icmp"} {
			if _, err := talk(protocol, addr); err != nil {
				t.Errorf("by %s to %s: %v", protocol, addr, err)
			}
		}
	}
	for name, want := range map[string]string{
		pod.Host: "rate 10000000 burst 100.0ms limit 1250000", "pti" + pod.Host[3:]: "rate 6000000000 burst 89.5ms limit 686870911",
	} {
		device, err := netlink.LinkByName(name)
		must(t, err)
		queues, err := netlink.QdiscList(device)
		must(t, err)
		got := "none"
		for _, q := range queues {
			if tbf, ok := q.(*netlink.Tbf); ok {
				got = fmt.Sprintf("rate %d burst %.1fms limit %d", tbf.Rate, float64(tbf.Buffer)*64/1e6, tbf.Limit)
			}
		}
		if got != want {
			t.Errorf("the limit of %s: %s, want %s", name, got, want)
		}
		if s := device.Attrs().Statistics; s.TxBytes < 1<<20 {
			t.Errorf("device %s sent %d octets, want a MiB", name, s.TxBytes)
		}
	}
	slow := pod
	slow.Egress.Rate, slow.Egress.Burst = 8e3, 1 // less than a packet
	must(t, create(config, slow))
	must(t, link.Up(config, slow))
	for _, addr := range pod.Addresses {
		if _, err := talk("udp", addr); err != nil {
			t.Errorf("with a burst that is smaller than a packet, to %s: %v", addr, err)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	if got := link.HostName("c1", "eth0"); len(got) != 15 || !strings.HasPrefix(got, "ptl") || got == link.HostName("c1", "eth1") {
		t.Errorf("HostName(c1, eth0) = %s", got)
	}
	for addr, want := range map[string]string{"10.1.2.3": "0a:58:0a:01:02:03", "fd00::a:b": "0a:58:00:0a:00:0b"} {
		if got := link.PodMAC([]netip.Addr{netip.MustParseAddr(addr)}); got.String() != want {
			t.Errorf("PodMAC(%s) = %s, want %s", addr, got, want)
		}
	}
	if mac := link.HostMAC(); !slices.Equal(mac, net.HardwareAddr{0xee, 0xee, 0xee, 0xee, 0xee, 0xee}) {
		t.Errorf("HostMAC() = %s", mac)
	}
}

// TestFamilies: a Pod with one family of addresses, and one with a second link, whose default routes stay.
func TestFamilies(t *testing.T) {
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return
	}
	newNode(t)
	for n := range 2 {
		ns, pod := newPod(t, n+1)
		pod.Addresses = pod.Addresses[n : n+1]
		second := pod
		second.Interface, second.Host = "net1", link.HostName("second", pod.Host)
		second.Addresses = []netip.Addr{pod.Addresses[0].Next().Next()}
		for _, p := range []link.Pod{pod, second} {
			must(t, create(config, p))
			must(t, link.Up(config, p))
		}
		must(t, link.Check(config, pod))
		echo(t, ns)
		if _, err := talk("udp", pod.Addresses[0]); err != nil {
			t.Errorf("node to %s: %v", pod.Addresses[0], err)
		}
		must(t, ns.Do(func() error {
			routes, err := netlink.RouteGet([]net.IP{config.Source4.AsSlice(), config.Source6.AsSlice()}[n])
			must(t, err)
			first, err := netlink.LinkByName("eth0")
			must(t, err)
			if len(routes) != 1 || routes[0].LinkIndex != first.Attrs().Index || !routes[0].Src.Equal(pod.Addresses[0].AsSlice()) {
				t.Errorf("with two links the route to the node is %v", routes)
			}
			return nil
		}))
	}
}
