package world

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/config/configtest"
	"portolan.dev/portolan/internal/kube/source"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
	"portolan.dev/portolan/test/program"
)

// Upstream is the address of the DNS server outside, and NodeResolvConf the resolv.conf of nodes.
var Upstream = netip.MustParseAddr("203.0.113.53")

// NodeResolvConf is the file of the kubelets' setting resolvConf.
const NodeResolvConf = "nameserver 203.0.113.53\n"

// OutsideName is the name with which servers outside answer.
const OutsideName = "outside"

// Options are those of New.
type Options struct {
	// Manifests is a directory. It has at least one Node.
	Manifests string
	// Settings are sections of the configuration file of all programs.
	Settings string
	// Names are the names that the upstream DNS has, without the last dot.
	Names map[string][]netip.Addr
	// Servers are outside; they answer as Pods do, with the name outside.
	Servers []netip.AddrPort
	// Certificate returns the certificate of a Pod's server at a port, which then speaks TLS only; nil, or a nil
	// function, is a server without TLS.
	Certificate func(pod cluster.Key, port uint16) *tls.Certificate
}

// World is a cluster that runs.
type World struct {
	// Config is the configuration file of all programs, and Settings what it has.
	Config   string
	Settings config.Config
	// Program is the file of portolan.
	Program string

	t       *testing.T
	options Options
	store   *cluster.Store
	router  *namespace.Network
	outside *Client
	nodes   map[string]*Client
	pods    map[cluster.Key]*Client
	byAddr  map[netip.Addr]*Client
	agents  []*agent
}

// New makes a World that lasts until the test ends, and returns when all programs are ready. Without root or nft it
// skips the test, unless the environment variable CI is set.
func New(t *testing.T, o Options) *World {
	t.Helper()
	if n, err := namespace.New(); err == nil {
		n.Close()
	} else if os.Getenv("CI") == "" {
		t.Skipf("network namespaces need root: %v", err)
	}
	if _, err := exec.LookPath("nft"); err != nil && os.Getenv("CI") == "" {
		t.Skipf("nodes need nft: %v", err)
	}
	file, err := program.Build(t.Context(), program.Options{})
	must(t, err)
	w := &World{
		Program: file, t: t, options: o, store: cluster.NewStore(), nodes: make(map[string]*Client),
		pods: make(map[cluster.Key]*Client), byAddr: make(map[netip.Addr]*Client),
	}
	w.read()
	w.connect()
	w.serve()
	w.run()
	return w
}

// read reads the manifests, and writes the configuration.
func (w *World) read() {
	t := w.t
	t.Helper()
	w.Config = filepath.Join(t.TempDir(), "portolan.yaml")
	text := configtest.Merge(
		fmt.Sprintf("manifests: %q\ndns: {forward: {routes: [{upstreams: [%s]}]}}\n", w.options.Manifests, Upstream),
		w.options.Settings,
	)
	must(t, os.WriteFile(w.Config, []byte(text), 0o600))
	var err error
	w.Settings, err = config.Read(w.Config)
	must(t, err)
	s, err := source.New(source.Config{
		Settings: w.Settings, Scope: source.Whole, Store: w.store, Log: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	_, err = s.Load(context.WithoutCancel(t.Context()))
	must(t, err)
}

// Gateways of the devices of routers, nodes' and Pods' ends of links.
var (
	routerGateways = gateways("169.254.2.1/32", "fe80::2/64")
	nodeGateways   = gateways("169.254.1.1/32", "fe80::1/64")
)

func gateways(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// outsideAddrs are those of the namespace outside before it has others.
var outsideAddrs = []netip.Addr{Upstream, netip.MustParseAddr("2001:db8:53::53")}

// connect makes the namespaces.
func (w *World) connect() {
	t := w.t
	t.Helper()
	w.router = namespacetest.New(t)
	namespacetest.Do(t, w.router, func() {
		forward(t)
		w.outside = &Client{Network: namespacetest.AttachRouted(t, namespacetest.Routed{
			Device: "outside", Gateways: routerGateways, Addrs: outsideAddrs,
		}), Name: OutsideName, Addrs: outsideAddrs, marks: make(map[string]int)}
		must(t, namespace.IP(
			"route add default via "+outsideAddrs[0].String()+" dev outside onlink",
			"route add default via "+outsideAddrs[1].String()+" dev outside onlink",
		))
	})
	w.store.View(func(v *cluster.View) {
		for i, n := range slices.SortedFunc(v.Nodes(), func(a, b *cluster.Node) int { return cmp.Compare(a.Name, b.Name) }) {
			w.addNode(n, i+1)
		}
		i := 0
		for _, p := range slices.SortedFunc(v.Pods(), func(a, b *cluster.Pod) int { return a.Compare(b.Key) }) {
			if n := w.nodes[p.Node]; n != nil && len(p.IPs) > 0 && !p.Finished {
				i++
				w.addPod(v, n, p, fmt.Sprintf("pod%d", i))
			}
		}
	})
	for _, at := range w.options.Servers {
		w.own(at.Addr())
	}
}

// forward has the caller's namespace forward packets, from wherever they come, and tell of each that it refuses:
// usually a client is told once a second (ip-sysctl, icmp_ratelimit).
func forward(t *testing.T) {
	t.Helper()
	for name, value := range map[string]string{
		"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1", "net/ipv4/conf/all/rp_filter": "0",
		"net/ipv4/conf/default/rp_filter": "0", "net/ipv4/icmp_ratelimit": "0", "net/ipv6/icmp/ratelimit": "0",
	} {
		namespacetest.SetSysctl(t, name, value)
	}
}

// addNode makes the i-th node, and a way to it from outside for clients that are to arrive there.
func (w *World) addNode(n *cluster.Node, i int) {
	t := w.t
	t.Helper()
	node, device := &Client{Name: n.Name, Node: n.Name, Addrs: n.InternalIPs}, fmt.Sprintf("node%d", i)
	node.resolve = NodeResolvConf
	namespacetest.Do(t, w.router, func() {
		node.Network = namespacetest.AttachRouted(t, namespacetest.Routed{
			Device: device, Gateways: routerGateways, Addrs: n.InternalIPs,
		})
		for _, p := range n.PodCIDRs {
			for _, via := range n.InternalIPs {
				if via.Is4() == p.Addr().Is4() {
					must(t, namespace.IP(fmt.Sprintf("route replace %s via %s dev %s onlink", p, via, device)))
				}
			}
		}
	})
	namespacetest.Do(t, node.Network, func() {
		forward(t)
		namespacetest.SetSysctl(t, "net/ipv4/conf/all/rp_filter", "1") // as strict as hosts are
	})
	w.nodes[n.Name] = node
	for _, a := range n.InternalIPs {
		w.byAddr[a] = node
	}
	w.entry(n, i)
}

// entry links outside to the router once more: what comes that way goes to a node.
func (w *World) entry(n *cluster.Node, i int) {
	t := w.t
	t.Helper()
	table, entry := 100+i, fmt.Sprintf("entry%d", i)
	var toRouter, toNode []string
	var byDevice, byMark []*netlink.Rule
	for _, a := range n.InternalIPs {
		family, gateway := netlink.FAMILY_V4, "169.254.3.1"
		if a.Is6() {
			family, gateway = netlink.FAMILY_V6, "fe80::3"
		}
		toNode = append(toNode, fmt.Sprintf("route replace default via %s dev node%d table %d onlink", a, i, table))
		toRouter = append(toRouter, fmt.Sprintf("route replace default via %s dev %s table %d onlink", gateway, entry, table))
		in, out := netlink.NewRule(), netlink.NewRule()
		in.Family, in.IifName, in.Table = family, entry, table
		out.Family, out.Mark, out.Table = family, uint32(table), table
		byDevice, byMark = append(byDevice, in), append(byMark, out)
	}
	namespacetest.Do(t, w.router, func() {
		must(t, namespace.IP(fmt.Sprintf("link add %s type veth peer name %[1]s netns %s", entry, w.outside.Network.Path()),
			"link set "+entry+" up", "addr add 169.254.3.1/32 dev "+entry, "addr add fe80::3/64 nodad dev "+entry))
		must(t, namespace.IP(toNode...))
		addRules(t, byDevice)
	})
	namespacetest.Do(t, w.outside.Network, func() {
		must(t, namespace.IP("link set "+entry+" up"))
		must(t, namespace.IP(toRouter...))
		addRules(t, byMark)
	})
	w.outside.marks[n.Name] = table
}

func addRules(t *testing.T, rules []*netlink.Rule) {
	t.Helper()
	for _, r := range rules {
		must(t, netlink.RuleAdd(r))
	}
}

// addPod makes a Pod.
func (w *World) addPod(v *cluster.View, node *Client, p *cluster.Pod, device string) {
	t := w.t
	t.Helper()
	pod := &Client{Name: p.String(), Node: p.Node, Addrs: p.IPs, resolve: w.resolvConf(v, p), hosts: w.hosts(p)}
	w.pods[p.Key] = pod
	for _, a := range p.IPs {
		w.byAddr[a] = pod
	}
	if p.Spec != nil && p.Spec.HostNetwork {
		pod.Network = node.Network
		return
	}
	namespacetest.Do(t, node.Network, func() {
		pod.Network = namespacetest.AttachRouted(t, namespacetest.Routed{
			Device: device, Gateways: nodeGateways, Addrs: p.IPs, Sources: node.Addrs,
		})
	})
}

// resolvConf returns the resolv.conf of a Pod, as the kubelet makes it.
func (w *World) resolvConf(v *cluster.View, p *cluster.Pod) string {
	subject, node := dnsconfig.SubjectOfPod(p), dnsconfig.NodeSettings{ClusterDomain: w.domain(), Hostname: p.Node}
	own, _ := dnsconfig.ParseNode(NodeResolvConf)
	node.ResolvConf = &own
	if s := v.Service(w.dnsService()); s != nil {
		node.ClusterDNS = s.ClusterIPs
	}
	return dnsconfig.Resolve(subject.Settings(), node).Config.String()
}

// hosts returns the names that the kubelet writes into the /etc/hosts of a Pod: its own (pkg/kubelet/kubelet_pods.go,
// managedHostsFileContent).
func (w *World) hosts(p *cluster.Pod) (names []string) {
	subject := dnsconfig.SubjectOfPod(p)
	if subject.Spec.HostNetwork {
		return nil
	}
	name, err := dnsconfig.HostnameOf(subject.Settings(), dnsconfig.NodeSettings{ClusterDomain: w.domain()})
	must(w.t, err)
	return []string{name.FQDN, name.Kernel}
}

// domain is the cluster domain.
func (w *World) domain() string {
	if len(w.Settings.DNS.Zones) == 0 {
		return "cluster.local"
	}
	return strings.TrimSuffix(w.Settings.DNS.Zones[0], ".")
}

// dnsService is the Service of the cluster DNS.
func (w *World) dnsService() cluster.Key { return keyOf(w.Settings.DNS.NameServer.Service) }

func keyOf(text string) cluster.Key {
	namespace, name, _ := strings.Cut(text, "/")
	return cluster.Key{Namespace: namespace, Name: name}
}

// own gives outside another address.
func (w *World) own(addr netip.Addr) {
	if slices.Contains(w.outside.Addrs, addr) {
		return
	}
	w.outside.Addrs = append(w.outside.Addrs, addr)
	must(w.t, w.outside.Network.Do(func() error {
		return namespace.IP(fmt.Sprintf("addr replace %s dev eth0 nodad", netip.PrefixFrom(addr, addr.BitLen())))
	}))
}

// Pod returns a Pod, which must run on a Node.
func (w *World) Pod(namespace, name string) *Client {
	w.t.Helper()
	p := w.pods[cluster.Key{Namespace: namespace, Name: name}]
	if p == nil {
		w.t.Fatalf("the manifests have no Pod %s/%s that runs on a Node", namespace, name)
	}
	return p
}

// Node returns a program on a node.
func (w *World) Node(name string) *Client {
	w.t.Helper()
	n := w.nodes[name]
	if n == nil {
		w.t.Fatalf("the manifests have no Node %s", name)
	}
	return n
}

// Outside returns a client with an address outside the cluster, whose packets arrive at a node. It is not to be called
// by several at once.
func (w *World) Outside(addr netip.Addr, node string) *Client {
	w.t.Helper()
	w.own(addr)
	w.Node(node)
	c := *w.outside
	c.Name, c.Node, c.Addrs, c.mark = addr.String(), node, []netip.Addr{addr}, w.outside.marks[node]
	return &c
}

// View calls read with the model of the manifests.
func (w *World) View(read func(*cluster.View)) { w.store.View(read) }

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
