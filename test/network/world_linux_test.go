package network

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/network/plan"
	"portolan.dev/portolan/test/child"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// patience bounds the wait for what must happen.
const patience = 20 * time.Second

// world is three nodes and the router between them, which is the namespace of the test.
type world struct {
	t     *testing.T
	nodes []*node
}

// node is a node with one Pod.
type node struct {
	name   string
	ns     *namespace.Network
	object *cluster.Node
	config plan.Config
	pod    *namespace.Network
	// addrs are the node's addresses, and pods those of its Pod, of each family.
	addrs, pods []netip.Addr
	log         *child.Log
	process     *process // nil while the agent does not run
}

// subnets are the router's addresses on both links.
var subnets = map[string][]netip.Prefix{
	"near": prefixes("192.0.2.254/24", "2001:db8::fe/64"),
	"far":  prefixes("198.51.100.254/24", "2001:db8:1::fe/64"),
}

// newWorld makes the world, and starts the agents; nil outside of its namespaces.
func newWorld(t *testing.T, change ...func(*plan.Config)) *world {
	t.Helper()
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return nil
	}
	w := &world{t: t}
	for _, name := range []string{"near", "far"} {
		must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}))
		namespacetest.SetUp(t, name, subnets[name]...)
	}
	w.nodes = []*node{
		w.newNode(1, "near", "192.0.2.1/24", "2001:db8::1/64"),
		w.newNode(2, "near", "192.0.2.2/24", "2001:db8::2/64"),
		w.newNode(3, "far", "198.51.100.3/24", "2001:db8:1::3/64"),
	}
	for _, n := range w.nodes {
		for _, f := range change {
			f(&n.config)
		}
		if n.config.Encryption == plan.WireGuard {
			n.growUplink(t)
		}
		n.start(t)
		n.object.WireGuardKey = n.tell(t, command{Put: w.objects()}).Key
	}
	w.publish()
	for _, n := range w.nodes {
		n.serve(t)
	}
	serve(t) // at the router, which is outside of the cluster
	return w
}

// objects are the Nodes of all nodes.
func (w *world) objects() (all []*cluster.Node) {
	for _, n := range w.nodes {
		all = append(all, n.object)
	}
	return all
}

// newNode makes a node on a link, with a Pod.
func (w *world) newNode(i int, link string, addrs ...string) *node {
	t := w.t
	t.Helper()
	n := &node{name: fmt.Sprintf("node-%d", i), ns: namespacetest.New(t), log: new(child.Log)}
	n.config = plan.Config{Node: n.name, Encapsulation: plan.CrossSubnet, VNI: 80, Port: 4789}
	n.object = &cluster.Node{
		Name: n.name, Created: int64(i), PodCIDRs: prefixes(fmt.Sprintf("10.244.%d.0/24", i), fmt.Sprintf("fd00:244:%d::/64", i)),
	}
	must(t, netlink.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: n.name}, PeerName: "eth0", PeerNamespace: netlink.NsFd(n.ns.Fd()),
	}))
	namespacetest.SetUp(t, n.name)
	bridge, err := netlink.LinkByName(link)
	must(t, err)
	port, err := netlink.LinkByName(n.name)
	must(t, err)
	must(t, netlink.LinkSetMaster(port, bridge))
	for _, p := range prefixes(addrs...) {
		n.addrs = append(n.addrs, p.Addr())
	}
	n.object.InternalIPs = n.addrs
	for _, p := range n.object.PodCIDRs {
		n.pods = append(n.pods, p.Addr().Next().Next())
	}
	namespacetest.Do(t, n.ns, func() {
		namespacetest.SetSysctl(t, "net/ipv4/conf/all/rp_filter", "1") // as strict as hosts are
		namespacetest.SetUp(t, "eth0", prefixes(addrs...)...)
		n.addGateways(t, link)
		n.pod = namespacetest.AttachPod(t, "pod", n.pods...)
	})
	n.addPodRoutes(t)
	namespacetest.Do(t, n.pod, func() {
		eth0, err := netlink.LinkByName("eth0")
		must(t, err)
		must(t, netlink.LinkSetMTU(eth0, podMTU))
	})
	t.Cleanup(func() {
		n.kill()
		if t.Failed() {
			t.Logf("%s:\n%s\n%s", n.name, n.log, n.show())
		}
	})
	return n
}

// podMTU is that of an uplink of 1500 octets less those of VXLAN.
const podMTU = 1450

func (n *node) addGateways(t *testing.T, link string) {
	t.Helper()
	for _, p := range subnets[link] {
		must(t, netlink.RouteReplace(&netlink.Route{Gw: p.Addr().AsSlice()}))
	}
}

// addPodRoutes adds routes to the Pod as package link does.
func (n *node) addPodRoutes(t *testing.T) {
	t.Helper()
	for f, pod := range n.pods {
		n.run(t, fmt.Sprintf("route replace %s dev pod scope link src %s", pod, n.addrs[f]))
	}
}

// addGatewaysIn is addGateways in the node's namespace.
func (n *node) addGatewaysIn(t *testing.T, link string) {
	t.Helper()
	namespacetest.Do(t, n.ns, func() { n.addGateways(t, link) })
}

// show returns what a kernel has.
func (n *node) show() string {
	var all strings.Builder
	for _, command := range []string{
		"link", "addr", "route show table all proto 80", "-6 route show table all proto 80", "rule", "-6 rule", "neigh show nud permanent",
		"route", "-6 route",
	} {
		fmt.Fprintf(&all, "ip %s\n%s\n", command, n.ip(command))
	}
	return all.String()
}

// ip returns what a command of ip(8) prints in the node's namespace.
func (n *node) ip(command string) string {
	var out []byte
	_ = n.ns.Do(func() error {
		out, _ = exec.Command("ip", strings.Fields(command)...).CombinedOutput()
		return nil
	})
	return string(out)
}

// run runs commands of ip(8) in the node's namespace.
func (n *node) run(t *testing.T, commands ...string) {
	t.Helper()
	must(t, n.ns.Do(func() error { return namespace.IP(commands...) }))
}

// serve answers at the node and at its Pod.
func (n *node) serve(t *testing.T) {
	t.Helper()
	for _, ns := range []*namespace.Network{n.ns, n.pod} {
		namespacetest.Do(t, ns, func() { serve(t) })
	}
}

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, s := range texts {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// until waits for a condition.
func until(tb testing.TB, what string, is func() error) {
	tb.Helper()
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		err := is()
		if err == nil {
			return
		}
		if time.Since(begin) > patience {
			tb.Fatalf("not in %v: %s: %v", patience, what, err)
		}
	}
}
