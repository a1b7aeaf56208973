package nft_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/nft"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// The addresses of the test network: a node with the Pods that serve, a Pod that is a client
// only, and a network outside.
//
//	servers 10.244.1.0/24 ──┬── node 10.244.1.1, 10.244.2.1, 192.0.2.1 ── outside 192.0.2.0/24
//	client 10.244.2.0/24 ───┘
var (
	podCIDRs  = prefixes("10.244.0.0/16", "fd00:244::/32")
	serverNet = network{
		"servers", prefixes("10.244.1.1/24", "fd00:244:1::1/64"),
		prefixes(
			"10.244.1.11/24", "10.244.1.12/24", "10.244.1.13/24",
			"fd00:244:1::11/64", "fd00:244:1::12/64", "fd00:244:1::13/64",
		),
	}
	clientNet = network{
		"client", prefixes("10.244.2.1/24", "fd00:244:2::1/64"), prefixes("10.244.2.7/24", "fd00:244:2::7/64"),
	}
	outerNet  = network{"outside", prefixes("192.0.2.1/24", "2001:db8::1/64"), prefixes("192.0.2.7/24", "2001:db8::7/64")}
	podClient = addrs("10.244.2.7", "fd00:244:2::7")
	outClient = addrs("192.0.2.7", "2001:db8::7")
	// inner are the node's addresses in the network of the servers, those of masqueraded clients.
	inner = addrs("10.244.1.1", "fd00:244:1::1")
)

// families are the indexes of addresses above.
var families = map[string]int{"IPv4": 0, "IPv6": 1}

// endpoint returns endpoint i, from 1 on, of a family.
func endpoint(family, i int) netip.AddrPort {
	text := [2]string{"10.244.1.1%d", "fd00:244:1::1%d"}[family]
	return netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf(text, i)), serverPort)
}

// endpoints returns the first n endpoints.
func endpoints(family, n int) (all []netip.AddrPort) {
	for i := range n {
		all = append(all, endpoint(family, i+1))
	}
	return all
}

// vip returns virtual address i of a family.
func vip(family, i int) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf([2]string{"10.96.0.%d", "fd00:96::%d"}[family], i))
}

const serverPort = 8080

// network is a veth pair between the node and a namespace.
type network struct {
	name        string
	node, peers []netip.Prefix
}

// world is a node with its networks.
type world struct {
	t                     *testing.T
	servers, pod, outside *namespace.Network
}

// onNode runs the test in new network namespaces; outside of them it returns nil.
func onNode(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return nil
	}
	w := &world{t: t}
	// The sysctls of the namespace are in a mount of its own.
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must(t, unix.Mount("sysfs", "/sys", "sysfs", 0, ""))
	w.servers, w.pod, w.outside = connect(t, serverNet), connect(t, clientNet), connect(t, outerNet)
	for _, gateway := range outClient { // the node has a default route, as nodes do
		must(t, netlink.RouteAdd(&netlink.Route{Gw: gateway.AsSlice()}))
	}
	return w
}

// connect adds a network and waits until its addresses and those of the node know each other: the
// first packets of IPv6 may be lost.
func connect(t *testing.T, n network) *namespace.Network {
	t.Helper()
	ns := namespacetest.Attach(t, n.name, n.node, n.peers...)
	// A packet may go back through the interface that it arrived at.
	namespacetest.SetSysctl(t, "net/ipv4/conf/"+n.name+"/send_redirects", "0")
	namespacetest.Do(t, ns, func() {
		for _, gateway := range n.node {
			for _, peer := range n.peers {
				if peer.Addr().Is4() != gateway.Addr().Is4() {
					continue
				}
				to := netip.AddrPortFrom(gateway.Addr(), 9) // nobody listens there
				for begin := time.Now(); dial(peer.Addr(), to).err != "refused"; {
					if time.Since(begin) > 20*time.Second {
						t.Errorf("%s does not reach %s", peer.Addr(), gateway.Addr())
						return
					}
				}
			}
		}
	})
	return ns
}

// serve answers connections and datagrams to every endpoint with the addresses of server and
// client.
func (w *world) serve() {
	w.t.Helper()
	namespacetest.Do(w.t, w.servers, func() {
		l, err := net.Listen("tcp", fmt.Sprintf("[::]:%d", serverPort))
		must(w.t, err)
		w.t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					fmt.Fprintf(c, "%s %s", c.LocalAddr(), c.RemoteAddr())
					c.Close()
				}()
			}
		}()
	})
}

// answer is what a client learned.
type answer struct {
	server, client netip.AddrPort
	err            string // refused, timeout, or other
}

func (a answer) String() string {
	if a.err != "" {
		return a.err
	}
	return fmt.Sprintf("%s saw %s", a.server, a.client)
}

// patience is how long a client waits. On an idle machine, an answer takes less than a
// millisecond.
const patience = 5 * time.Second

// dial opens a TCP connection from a source in a namespace, see dial.
func (w *world) dial(from *namespace.Network, source netip.Addr, to netip.AddrPort) (a answer) {
	w.t.Helper()
	namespacetest.Do(w.t, from, func() { a = dial(source, to) })
	return a
}

// dialWithin is dial that waits for a shorter time.
func (w *world) dialWithin(wait time.Duration, from *namespace.Network, source netip.Addr, to netip.AddrPort) (a answer) {
	w.t.Helper()
	namespacetest.Do(w.t, from, func() { a = dialWithin(wait, source, to) })
	return a
}

// dialFrom is dial from a port of the source.
func (w *world) dialFrom(from *namespace.Network, source, to netip.AddrPort) (a answer) {
	w.t.Helper()
	namespacetest.Do(w.t, from, func() { a = dialFrom(patience, source, to) })
	return a
}

// dial opens a TCP connection from a source, any if it is not valid, and reads the answer.
func dial(source netip.Addr, to netip.AddrPort) answer { return dialWithin(patience, source, to) }

func dialWithin(patience time.Duration, source netip.Addr, to netip.AddrPort) (a answer) {
	return dialFrom(patience, netip.AddrPortFrom(source, 0), to)
}

// dialFrom is dialWithin from a port of the source; 0 is any.
func dialFrom(patience time.Duration, source, to netip.AddrPort) (a answer) {
	d := net.Dialer{Timeout: patience}
	if source.Addr().IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(source)
	}
	c, err := d.Dial("tcp", to.String())
	if err != nil {
		a.err = describe(err)
		return a
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	var buf bytes.Buffer
	if _, err := buf.ReadFrom(c); err != nil {
		a.err = describe(err)
		return a
	}
	server, client, _ := strings.Cut(buf.String(), " ")
	a.server, a.client = unmapped(server), unmapped(client)
	return a
}

func unmapped(text string) netip.AddrPort {
	p, _ := netip.ParseAddrPort(text)
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

func describe(err error) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, os.ErrDeadlineExceeded) || os.IsTimeout(err):
		return "timeout"
	}
	return err.Error()
}

// table returns a Table of the node.
func (w *world) table(change func(*nft.Config)) *nft.Table {
	cfg := nft.Config{Families: []nft.Family{nft.IPv4, nft.IPv6}, Pods: frontend.Pods{CIDRs: podCIDRs}}
	if change != nil {
		change(&cfg)
	}
	table := nft.New(cfg)
	w.t.Cleanup(func() { table.Close() })
	return table
}

// sync brings frontends into the kernel.
func (w *world) sync(table *nft.Table, s *frontend.State) int {
	w.t.Helper()
	n, err := table.Sync(s)
	must(w.t, err)
	return n
}

// list runs nft list and returns its output.
func (w *world) list() string {
	w.t.Helper()
	out, err := exec.Command("nft", "list", "ruleset").CombinedOutput()
	if err != nil {
		w.t.Fatalf("nft list ruleset: %v\n%s", err, out)
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

// localRoute is a route that makes all addresses of a range the namespace's own.
func localRoute(link int, cidr netip.Prefix) *netlink.Route {
	return &netlink.Route{
		LinkIndex: link, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST,
		Dst: &net.IPNet{IP: cidr.Masked().Addr().AsSlice(), Mask: net.CIDRMask(cidr.Bits(), cidr.Addr().BitLen())},
	}
}

// routeTo adds a route to a range of addresses.
func routeTo(link int, cidr netip.Prefix, gateway netip.Addr) error {
	return netlink.RouteAdd(&netlink.Route{
		LinkIndex: link, Gw: gateway.AsSlice(),
		Dst: &net.IPNet{IP: cidr.Addr().AsSlice(), Mask: net.CIDRMask(cidr.Bits(), cidr.Addr().BitLen())},
	})
}
