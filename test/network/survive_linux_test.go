package network

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/test/namespace"
)

// programmed is what the kernel has of the agent's, for comparisons.
func (n *node) programmed() string {
	var all strings.Builder
	for _, command := range []string{
		"route show table all proto 80", "-6 route show table all proto 80", "rule", "-6 rule", "neigh show nud permanent",
	} {
		lines := slices.Sorted(strings.SplitSeq(n.ip(command), "\n"))
		fmt.Fprintln(&all, command, strings.Join(lines, "\n"))
	}
	return all.String()
}

// TestRepairs: what others remove or replace comes back, without a message from the cluster.
func TestRepairs(t *testing.T) {
	w := newWorld(t)
	if w == nil {
		return
	}
	n, far := w.nodes[0], w.nodes[2]
	before := n.programmed()
	for _, damage := range []string{
		"link del portolan-vxlan",
		"link set portolan-vxlan down",
		"link set portolan-vxlan mtu 1300",
		"link set portolan-vxlan address 02:00:00:00:00:01",
		"route del 10.244.2.0/24",
		"route del fd00:244:3::/64",
		"route del 198.51.100.3 table 80",
		"route flush table main proto 80 dev portolan-vxlan",
		"route flush type unreachable",
		"route del unreachable fd00:244:1::/64",
		"route add unreachable 10.244.77.0/24 proto 80",
		"rule del from 10.244.1.0/24 lookup 80",
		"neigh del 198.51.100.3 dev portolan-vxlan",
		"addr flush dev portolan-vxlan",
		"route add 10.99.0.0/16 via 192.0.2.2 proto 80",
	} {
		w.restart(n) // one agent repairs the same slower and slower
		n.run(t, damage)
		until(t, damage, func() error {
			link := n.ip("-d link show portolan-vxlan")
			for _, want := range []string{",UP", "mtu 1450", "id 80 local 192.0.2.1 ", "dstport 4789", "nolearning"} {
				if !strings.Contains(link, want) {
					return fmt.Errorf("the device lacks %q:\n%s", want, link)
				}
			}
			if after := n.programmed(); after != before {
				return fmt.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
			return w.reaches(n, far)
		})
	}
	// A route of another program stays, and ours comes back when that is gone.
	w.restart(n)
	n.run(t, "route replace 10.244.3.0/24 via 192.0.2.254", "route del 10.244.3.0/24 via 192.0.2.254")
	until(t, "the route", func() error { return w.reaches(n, far) })
	for _, wrong := range []string{
		"id 81 local 192.0.2.1 dstport 4789", "id 80 local 192.0.2.1 dstport 4790", "id 80 dstport 4789",
	} {
		n.kill()
		n.run(t, "link del portolan-vxlan", "link add portolan-vxlan type vxlan "+wrong)
		w.restart(n)
		until(t, wrong, func() error { return w.reaches(n, far) })
	}
}

// restart has another agent take over from that of a node.
func (w *world) restart(n *node) {
	w.t.Helper()
	n.kill()
	n.start(w.t)
	n.tell(w.t, command{Put: w.objects()})
}

// TestNodeChanges: a new, changed or deleted Node shows in routes at once.
func TestNodeChanges(t *testing.T) {
	w := newWorld(t)
	if w == nil {
		return
	}
	n := w.nodes[0]
	const others = 5000
	var all command
	for i := range others {
		all.Put = append(all.Put, manyNode(i))
	}
	t.Logf("%d Nodes at once: %v", others, n.tell(t, all).Took)
	var times []time.Duration
	for i := range 100 {
		changed := manyNode(i)
		changed.PodCIDRs = prefixes(fmt.Sprintf("10.245.%d.0/24", i))
		for step, c := range []command{{Put: []*cluster.Node{changed}}, {Delete: []string{changed.Name}}, {Put: []*cluster.Node{manyNode(i)}}} {
			times = append(times, n.tell(t, c).Took)
			is := n.ip(fmt.Sprintf("route show proto 80 10.245.%d.0/24", i))
			if want := step == 0; (is != "") != want {
				t.Fatalf("step %d of Node %d: the route to its new range is %q", step, i, is)
			}
			was := n.ip("route show proto 80 " + manyNode(i).PodCIDRs[0].String())
			if want := step == 2; (was != "") != want {
				t.Fatalf("step %d of Node %d: the route to its old range is %q", step, i, was)
			}
		}
	}
	slices.Sort(times)
	p50, worst := times[len(times)/2], times[len(times)-1]
	t.Logf("a change of one among %d: p50 %v, at most %v", others, p50, worst)
	if p50 > 50*time.Millisecond {
		t.Errorf("half of the changes took %v or more, want at most 50 ms", p50)
	}
}

// manyNode is one of many Nodes behind the router.
func manyNode(i int) *cluster.Node {
	return &cluster.Node{
		Name: fmt.Sprintf("many-%d", i), InternalIPs: []netip.Addr{netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})},
		PodCIDRs: []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24),
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 1: 1, 6: byte(i >> 8), 7: byte(i)}), 64),
		},
	}
}

// TestAnotherAddress: a Node that is deleted and made again with other addresses, on the other link, and with another
// range is reached there.
func TestAnotherAddress(t *testing.T) {
	w := newWorld(t)
	if w == nil {
		return
	}
	moved := w.nodes[2]
	for _, n := range w.nodes[:2] {
		n.tell(t, command{Delete: []string{moved.name}})
		if routes := n.ip("route show 10.244.3.0/24") + n.ip("-6 route show fd00:244:3::/64"); routes != "" {
			t.Errorf("%s has routes to a Node that is gone: %s", n.name, routes)
		}
	}
	object := *moved.object
	object.InternalIPs = []netip.Addr{netip.MustParseAddr("198.51.100.33"), netip.MustParseAddr("2001:db8:1::33")}
	object.PodCIDRs = prefixes("10.244.33.0/24", "fd00:244:33::/64")
	moved.object = &object
	// With an address, the kernel removes routes from it.
	moved.run(t, "addr flush dev eth0 scope global", "addr add 198.51.100.33/24 dev eth0", "addr add 2001:db8:1::33/64 dev eth0 nodad")
	moved.addGatewaysIn(t, "far")
	var pods []netip.Addr
	for _, p := range object.PodCIDRs {
		pods = append(pods, p.Addr().Next().Next())
	}
	must(t, moved.pod.Do(func() error {
		for f, addr := range pods {
			err := namespace.IP(
				fmt.Sprintf("addr add %s/%d dev eth0 nodad", addr, addr.BitLen()),
				fmt.Sprintf("addr del %s/%d dev eth0", moved.pods[f], addr.BitLen()), // the last one takes routes with it
			)
			if err != nil {
				return err
			}
		}
		return nil
	}))
	moved.addrs, moved.pods = object.InternalIPs, pods
	moved.addPodRoutes(t)
	for _, n := range w.nodes {
		n.tell(t, command{Put: []*cluster.Node{moved.object}})
	}
	until(t, "reaching it", func() error { return errors.Join(w.reaches(w.nodes[0], moved), w.reaches(moved, w.nodes[1])) })
	w.checkAll()
}

// TestUplink: the uplink goes down and up, changes its MTU, and loses its address for a while.
func TestUplink(t *testing.T) {
	w := newWorld(t)
	if w == nil {
		return
	}
	n := w.nodes[0]
	reached := func() error {
		return errors.Join(w.reaches(n, w.nodes[1]), w.reaches(n, w.nodes[2]), w.reaches(w.nodes[2], n))
	}
	restore := func() {
		n.run(t, "addr replace 2001:db8::1/64 dev eth0 nodad") // the kernel removes it with the link
		n.addGatewaysIn(t, "near")
		n.addPodRoutes(t)
	}
	n.run(t, "link set eth0 down")
	until(t, "no routes by a link that is down", func() error {
		if routes := n.ip("route show proto 80 dev eth0"); routes != "" {
			return errors.New(routes)
		}
		return nil
	})
	n.run(t, "link set eth0 up")
	restore()
	until(t, "routes after the link is up again", reached)
	n.run(t, "link set eth0 mtu 1400")
	until(t, "the MTU of the tunnel", func() error {
		if link := n.ip("link show portolan-vxlan"); !strings.Contains(link, "mtu 1350") {
			return errors.New(link)
		}
		return reached()
	})
	until(t, "the MTU of Pods", func() error {
		a, err := n.try(t, command{})
		if err == nil && a.Local.MTU != 1350 {
			err = fmt.Errorf("it is %d after the uplink's is 1400, want 1350", a.Local.MTU)
		}
		return err
	})
	n.run(t, "link set eth0 mtu 1500", "addr del 192.0.2.1/24 dev eth0")
	until(t, "no tunnel from an address that the host does not have", func() error {
		a, err := n.try(t, command{})
		if err == nil && len(a.Local.Sources) != 1 {
			err = fmt.Errorf("the sources are %v", a.Local.Sources)
		}
		return err
	})
	n.run(t, "addr add 192.0.2.1/24 dev eth0")
	restore()
	until(t, "routes after the address is there again", reached)
	w.checkAll()
}

// TestKilled: an agent that is killed at any time while it programs 1,000 Nodes leaves nothing that the next one does
// not put right, and what it left serves meanwhile.
func TestKilled(t *testing.T) {
	w := newWorld(t)
	if w == nil {
		return
	}
	n := w.nodes[0]
	all := command{Put: w.objects()}
	for i := range 1000 {
		all.Put = append(all.Put, manyNode(i))
	}
	n.tell(t, all)
	want := n.programmed()
	for i := range 12 {
		n.kill()
		if i == 0 {
			must(t, w.reaches(n, w.nodes[2])) // without an agent
		}
		switch i % 3 {
		case 0:
			n.ip("link del portolan-vxlan") // there may be none
		case 1:
			n.ip("route flush table main proto 80 dev portolan-vxlan")
			n.ip("route flush table 80")
		}
		n.start(t)
		must(t, n.process.enc.Encode(all))
		time.Sleep(time.Duration(i) * 10 * time.Millisecond) // a whole sync takes some 100 ms
	}
	n.kill()
	n.start(t)
	n.tell(t, all)
	if got := n.programmed(); got != want {
		t.Errorf("the kernel has %d octets, want %d", len(got), len(want))
	}
	w.checkAll()
}
