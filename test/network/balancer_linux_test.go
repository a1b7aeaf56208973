package network

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/network/announce"
	"portolan.dev/portolan/internal/network/announce/plan"
	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/nft"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// asAnnouncer is the environment variable with the name of the node of which this process announces the addresses of
// load balancers.
const asAnnouncer = "PORTOLAN_TEST_ANNOUNCER"

// The addresses of a load balancer, in each family, and its port.
var balancerAddrs = []netip.Addr{netip.MustParseAddr("192.0.2.100"), netip.MustParseAddr("2001:db8::100")}

const balancerPort = 80

var announcers = []string{"a", "b", "c"}

// addressesOf returns the addresses of a node of announcers, and those of its Pod.
func addressesOf(i int) (node, pod []netip.Addr) {
	at := func(format string) netip.Addr { return netip.MustParseAddr(fmt.Sprintf(format, i+1)) }
	return []netip.Addr{at("192.0.2.%d"), at("2001:db8::%d")}, []netip.Addr{at("10.244.%d.2"), at("fd00:244:%d::2")}
}

// runAnnouncer announces the addresses until SIGTERM. It reads commands from its standard input: "cordon NODE" and
// "return NODE".
func runAnnouncer(name string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	store := cluster.NewStore()
	put := func(tx *cluster.Tx, i int, cordoned bool) {
		addrs, _ := addressesOf(i)
		tx.Put(&cluster.Node{Name: announcers[i], Ready: true, Addresses: addrs, InternalIPs: addrs, Cordoned: cordoned})
	}
	store.Update(func(tx *cluster.Tx) {
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
		for i := range announcers {
			put(tx, i, false)
		}
		s := &cluster.Service{Key: cluster.Key{Name: "web"}, Spec: &cluster.ServiceSpec{Type: cluster.LoadBalancer}}
		for _, a := range balancerAddrs {
			s.Spec.Ingress = append(s.Spec.Ingress, cluster.IngressIP{Addr: a})
		}
		tx.Put(s)
	})
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			command, node, _ := strings.Cut(lines.Text(), " ")
			for i, name := range announcers {
				if name == node {
					store.Update(func(tx *cluster.Tx) { put(tx, i, command == "cordon") })
				}
			}
		}
		stop()
	}()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	return announce.New(announce.Config{Node: name, Store: store, Log: log}).Run(ctx)
}

// balancerNode is a node that announces, with the endpoint of the load balancer that is its Pod.
type balancerNode struct {
	name string
	ns   *namespace.Network
	mac  net.HardwareAddr
	cmd  *exec.Cmd
	in   io.WriteCloser
}

// balancerWorld is three nodes and a client on one link, which is in the namespace of the test.
type balancerWorld struct {
	t      *testing.T
	nodes  map[string]*balancerNode
	client *namespace.Network
}

// newBalancerWorld makes the world with an externalTrafficPolicy; nil outside of its namespaces.
func newBalancerWorld(t *testing.T, policy frontend.Policy) *balancerWorld {
	t.Helper()
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return nil
	}
	must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "switch"}}))
	namespacetest.SetUp(t, "switch")
	w := &balancerWorld{t: t, nodes: make(map[string]*balancerNode)}
	for i := range announcers {
		w.addNode(i, policy)
	}
	for _, n := range w.nodes {
		until(t, "node "+n.name+" announces", n.announces)
	}
	w.client = attachToSwitch(t, "client", prefixes("192.0.2.9/24", "2001:db8::9/64"))
	return w
}

// announces reports by an error that the agent of a node has no sockets on the link yet (packet(7)).
func (n *balancerNode) announces() error {
	return n.ns.Do(func() error {
		sockets, err := os.ReadFile("/proc/thread-self/net/packet")
		if err == nil && strings.Count(string(sockets), "\n") < 2 { // a line is the heading
			err = errors.New("no sockets")
		}
		return err
	})
}

// attachToSwitch makes a namespace on the link.
func attachToSwitch(t *testing.T, name string, addrs []netip.Prefix) *namespace.Network {
	t.Helper()
	ns := namespacetest.Attach(t, name, nil, addrs...)
	port, err := netlink.LinkByName(name)
	must(t, err)
	bridge, err := netlink.LinkByName("switch")
	must(t, err)
	must(t, netlink.LinkSetMaster(port, bridge))
	return ns
}

func (w *balancerWorld) addNode(i int, policy frontend.Policy) {
	t := w.t
	t.Helper()
	addrs, pods := addressesOf(i)
	n := &balancerNode{name: announcers[i]}
	n.ns = attachToSwitch(t, n.name, []netip.Prefix{netip.PrefixFrom(addrs[0], 24), netip.PrefixFrom(addrs[1], 64)})
	w.nodes[n.name] = n
	namespacetest.Do(t, n.ns, func() {
		namespacetest.SetSysctl(t, "net/ipv4/ip_forward", "1")
		namespacetest.SetSysctl(t, "net/ipv6/conf/all/forwarding", "1")
		namespacetest.SetSysctl(t, "net/ipv4/conf/all/rp_filter", "1") // as strict as hosts are
		eth0, err := net.InterfaceByName("eth0")
		must(t, err)
		n.mac = eth0.HardwareAddr
		pod := namespacetest.AttachPod(t, "pod", pods...)
		namespacetest.Do(t, pod, func() { echo(t) })
		for o := range announcers {
			if o == i {
				continue
			}
			via, to := addressesOf(o)
			for f := range to {
				must(t, netlink.RouteAdd(&netlink.Route{
					Dst: &net.IPNet{IP: to[f].AsSlice(), Mask: net.CIDRMask(to[f].BitLen(), to[f].BitLen())}, Gw: via[f].AsSlice(),
				}))
			}
		}
		table := nft.New(nft.Config{
			Families: []nft.Family{nft.IPv4, nft.IPv6}, Pods: frontend.Pods{CIDRs: prefixes("10.244.0.0/16", "fd00:244::/32")},
		})
		t.Cleanup(func() { table.Close() })
		_, err = table.Sync(frontends(i, policy))
		must(t, err)
	})
	n.start(t)
	t.Cleanup(func() { n.end(syscall.SIGKILL) })
}

// frontends are the load balancer's at a node.
func frontends(i int, policy frontend.Policy) *frontend.State {
	s := new(frontend.State)
	for f, a := range balancerAddrs {
		front := &frontend.Frontend{
			Address: frontend.Address{Addr: a, Protocol: frontend.TCP, Port: balancerPort}, Policy: policy,
		}
		for o := range announcers {
			_, pods := addressesOf(o)
			to := netip.AddrPortFrom(pods[f], port)
			front.Endpoints = append(front.Endpoints, to)
			if o == i && policy == frontend.ExternalLocal {
				front.Local = append(front.Local, to)
			}
		}
		s.Frontends = append(s.Frontends, front)
	}
	return s
}

// echo sends back what it receives, in the namespace of the caller's thread.
func echo(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				c.Close()
			}()
		}
	}()
}

func (n *balancerNode) start(t *testing.T) {
	t.Helper()
	n.cmd = exec.Command(os.Args[0])
	n.cmd.Env = append(os.Environ(), asAnnouncer+"="+n.name)
	n.cmd.Stderr = os.Stderr
	in, err := n.cmd.StdinPipe()
	must(t, err)
	n.in = in
	namespacetest.Do(t, n.ns, func() { must(t, n.cmd.Start()) })
}

// end ends the announcer.
func (n *balancerNode) end(by os.Signal) {
	_ = n.cmd.Process.Signal(by)
	_ = n.cmd.Wait()
}

// command has all announcers do something.
func (w *balancerWorld) command(line string) {
	w.t.Helper()
	for _, n := range w.nodes {
		_, err := io.WriteString(n.in, line+"\n")
		must(w.t, err)
	}
}

// ranked returns the nodes in the order of the candidates of an address.
func (w *balancerWorld) ranked(a netip.Addr) (first, second *balancerNode) {
	score := func(n *balancerNode) uint64 { return plan.Score(a, plan.IDOf(n.name)) }
	for _, n := range w.nodes {
		switch {
		case first == nil || score(n) > score(first):
			first, second = n, first
		case second == nil || score(n) > score(second):
			second = n
		}
	}
	return first, second
}

// untilAt waits until the client knows that an address is at a node.
func (w *balancerWorld) untilAt(a netip.Addr, n *balancerNode) {
	w.t.Helper()
	until(w.t, fmt.Sprintf("%s is at node %s", a, n.name), func() error {
		return w.client.Do(func() error {
			if c, err := net.DialTimeout("tcp", netip.AddrPortFrom(a, balancerPort).String(), once); err == nil {
				c.Close()
			}
			all, err := netlink.NeighList(0, map[bool]int{true: netlink.FAMILY_V4, false: netlink.FAMILY_V6}[a.Is4()])
			if err != nil {
				return err
			}
			for _, neighbor := range all {
				if neighbor.IP.Equal(a.AsSlice()) && neighbor.HardwareAddr.String() == n.mac.String() {
					return nil
				}
			}
			return errors.New("another MAC")
		})
	})
}

// connect opens connections of the client.
func (w *balancerWorld) connect(a netip.Addr, n int) (all []net.Conn) {
	w.t.Helper()
	namespacetest.Do(w.t, w.client, func() {
		for range n {
			c, err := net.DialTimeout("tcp", netip.AddrPortFrom(a, balancerPort).String(), once)
			must(w.t, err)
			w.t.Cleanup(func() { c.Close() })
			all = append(all, c)
		}
	})
	if got := alive(all); got != n {
		w.t.Fatalf("%d of %d new connections to %s work", got, n, a)
	}
	return all
}

// alive returns how many connections work.
func alive(all []net.Conn) (n int) {
	_ = forEach(all, func(c net.Conn) error { return c.SetDeadline(time.Now().Add(once)) })
	_ = forEach(all, func(c net.Conn) error {
		_, err := c.Write([]byte("x"))
		return err
	})
	_ = forEach(all, func(c net.Conn) error {
		got, err := c.Read(make([]byte, 1))
		if err == nil && got == 1 {
			n++
		}
		return err
	})
	return n
}

func forEach(all []net.Conn, do func(net.Conn) error) (err error) {
	for _, c := range all {
		err = errors.Join(err, do(c))
	}
	return err
}
