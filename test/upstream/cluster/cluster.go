//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"portolan.dev/portolan/test/e2e/controlplane"
	"portolan.dev/portolan/test/e2e/process"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/upstream/cri"
	"portolan.dev/portolan/test/upstream/node"
)

// ClusterCIDRs are the ranges of Pod addresses of all nodes.
const ClusterCIDRs = "10.244.0.0/16,fd00:10:244::/56"

// bridge is the network of the nodes.
const bridge = "cluster"

var (
	hostAddresses = []netip.Addr{netip.MustParseAddr("10.0.0.254"), netip.MustParseAddr("fd00:10::254")}
	dnsAddress    = netip.MustParseAddr("10.96.0.10")
)

// Proxy is a service proxy.
type Proxy string

// The service proxies.
const (
	KubeProxy Proxy = "kube-proxy" // in nftables mode
	Portolan  Proxy = "portolan"
	// PortolanPolicies is Portolan's with policies in the same agent. Its CNI plugin is called for each Pod.
	PortolanPolicies Proxy = "portolan-policies"
	// PortolanNetwork is the whole network of the cluster by Portolan's manifests: names, Services, Pods, policies, and
	// addresses of load balancers. It begins with nodes that are not ready.
	PortolanNetwork Proxy = "portolan-network"
)

// Config describes a cluster.
type Config struct {
	Programs *Programs
	Proxy    Proxy
	Nodes    int // named node-1 and so on, in zones-1 to zone-3 in turn
	// Prepare, unless it is nil, is called before there are nodes, with a client's configuration: it installs
	// what agents look for when they start.
	Prepare func(context.Context, *rest.Config) error
}

// Cluster is a running cluster.
type Cluster struct {
	*controlplane.ControlPlane
	config    Config
	dir       string // of the nodes
	scheduler process.Process
	dns       process.Process
	nodes     []*node.Node
}

// Start starts a cluster and waits until all nodes are ready and the DNS server answers, half a
// minute.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	c := &Cluster{config: config}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("cluster: %w", err), c.Close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) (err error) {
	if c.dir, err = os.MkdirTemp("", "cluster-"); err != nil {
		return err
	}
	if err := makeNetwork(); err != nil {
		return err
	}
	c.ControlPlane, err = controlplane.Start(ctx, controlplane.Options{
		Address:           hostAddresses[0],
		ControllerManager: true,
		ControllerFlags:   []string{"--controllers=*"},
		APIServerFlags: []string{
			"--kubelet-preferred-address-types=InternalIP", "--allow-privileged=true",
		},
	})
	if err != nil {
		return err
	}
	if c.config.Prepare != nil {
		if err := c.config.Prepare(ctx, c.RESTConfig()); err != nil {
			return err
		}
	}
	if err := c.startScheduler(); err != nil {
		return err
	}
	if c.config.Proxy == PortolanNetwork {
		return c.startNetwork(ctx)
	}
	if err := c.startDNS(ctx); err != nil {
		return err
	}
	if err := c.startNodes(ctx); err != nil {
		return err
	}
	return c.awaitNodes(ctx)
}

func (c *Cluster) startNodes(ctx context.Context) error {
	for i := range c.config.Nodes {
		if err := c.startNode(ctx, i+1); err != nil {
			return err
		}
	}
	return nil
}

// makeNetwork makes the bridge, with an address of this machine.
func makeNetwork() error {
	commands := []string{"link set lo up", "link add " + bridge + " type bridge", "link set " + bridge + " up"}
	for _, addr := range hostAddresses {
		commands = append(commands, "address add "+prefix(addr).String()+" dev "+bridge+" "+nodad(addr))
	}
	if err := namespace.IP(commands...); err != nil {
		return err
	}
	// Packets between nodes are forwarded by address, and no firewall of a bridge sees them.
	for name, value := range map[string]string{
		"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1", "ipv4/conf/all/send_redirects": "0",
		"ipv4/conf/" + bridge + "/send_redirects": "0",
	} {
		if err := os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0); err != nil {
			return err
		}
	}
	for _, name := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"} {
		err := os.WriteFile(filepath.Join("/proc/sys/net/bridge", name), []byte("0"), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// prefix is the network of the nodes, with an address in it.
func prefix(addr netip.Addr) netip.Prefix {
	if addr.Is4() {
		return netip.PrefixFrom(addr, 24)
	}
	return netip.PrefixFrom(addr, 64)
}

func nodad(addr netip.Addr) string {
	if addr.Is4() {
		return ""
	}
	return "nodad"
}

func (c *Cluster) startScheduler() error {
	c.scheduler = process.Process{
		Path: c.config.Programs.Scheduler, Log: filepath.Join(c.dir, "scheduler.log"),
		Args: []string{
			"--kubeconfig=" + c.Kubeconfig(), "--leader-elect=false", "--bind-address=127.0.0.1",
		},
	}
	return c.scheduler.Start()
}

// startDNS runs the DNS server beside the control plane, behind the Service that Pods ask.
func (c *Cluster) startDNS(ctx context.Context) error {
	listen := netip.AddrPortFrom(hostAddresses[0], 53)
	c.dns = process.Process{
		Path: c.config.Programs.Portolan, Log: filepath.Join(c.dir, "dns.log"),
		Args: []string{"serve", "--kubeconfig", c.Kubeconfig(), "--listen", listen.String(), "--admin", ""},
	}
	if err := c.dns.Start(); err != nil {
		return err
	}
	const name = "kube-dns"
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		ClusterIP: dnsAddress.String(), Ports: []corev1.ServicePort{
			{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(53)},
			{Name: "dns-tcp", Port: 53, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(53)},
		},
	}}
	always := func(error) bool { return ctx.Err() == nil }
	// There is a range of addresses a moment after the API server is ready.
	if err := retry.OnError(retry.DefaultBackoff, always, func() error {
		_, err := c.Client().CoreV1().Services(metav1.NamespaceSystem).Create(ctx, service, metav1.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{
			{Name: new("dns"), Port: new(int32(53)), Protocol: new(corev1.ProtocolUDP)},
			{Name: new("dns-tcp"), Port: new(int32(53)), Protocol: new(corev1.ProtocolTCP)},
		},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{hostAddresses[0].String()}}},
	}
	_, err := c.Client().DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).Create(ctx, slice, metav1.CreateOptions{})
	return err
}

// zones is how many zones the nodes are in, with the labels of cloud providers.
const zones = 3

// startNode creates a Node and starts what it describes. The addresses follow from its number.
func (c *Cluster) startNode(ctx context.Context, number int) error {
	name := "node-" + strconv.Itoa(number)
	addresses := []netip.Addr{
		netip.AddrFrom4([4]byte{10, 0, 0, byte(number)}), netip.MustParseAddr(fmt.Sprintf("fd00:10::%x", number)),
	}
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelHostname: name, corev1.LabelTopologyRegion: "region-1",
		corev1.LabelTopologyZone: "zone-" + strconv.Itoa((number-1)%zones+1),
	}}}
	config := node.Config{
		Name: name, Dir: filepath.Join(c.dir, name), Kubeconfig: c.Kubeconfig(), Gateways: hostAddresses,
		ClusterDNS: dnsAddress, Images: c.config.Programs.Images, Kubelet: c.config.Programs.Kubelet,
	}
	for _, addr := range addresses {
		config.Addresses = append(config.Addresses, prefix(addr))
	}
	if c.config.Proxy == PortolanNetwork {
		config.ClusterDNS = agentAddress
	} else {
		config.PodCIDRs = podCIDRs(number)
		setPodCIDRs(object, config.PodCIDRs)
		if err := addRoutes(config.PodCIDRs, addresses); err != nil {
			return err
		}
	}
	if _, err := c.Client().CoreV1().Nodes().Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := errors.Join(os.Mkdir(config.Dir, 0o755), c.addProxy(&config)); err != nil {
		return err
	}
	n, err := node.Start(config, bridge)
	if err == nil {
		c.nodes = append(c.nodes, n)
	}
	return err
}

// podCIDRs are the ranges of a node whose Pods have their network from the runtime.
func podCIDRs(number int) []netip.Prefix {
	return []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(number), 0}), 24),
		netip.MustParsePrefix(fmt.Sprintf("fd00:10:244:%x::/64", number)),
	}
}

func setPodCIDRs(n *corev1.Node, cidrs []netip.Prefix) {
	for _, cidr := range cidrs {
		n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, cidr.String())
	}
	n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
}

// addRoutes has this machine reach Pods of a node, as the control plane does.
func addRoutes(cidrs []netip.Prefix, addresses []netip.Addr) error {
	var routes []string
	for i, cidr := range cidrs {
		routes = append(routes, "route add "+cidr.String()+" via "+addresses[i].String()+" dev "+bridge)
	}
	return namespace.IP(routes...)
}

// admin is the address of the pages of a node's service proxy, which is kube-proxy's.
const admin = "127.0.0.1:10249"

// addProxy gives a node the command of its service proxy, and what policies need. The node's directory exists.
func (c *Cluster) addProxy(n *node.Config) error {
	portolan := c.config.Programs.Portolan
	switch c.config.Proxy {
	case Portolan:
		n.Proxy = []string{
			portolan, "proxy", "--kubeconfig", c.Kubeconfig(), "--node-name", n.Name,
			"--cluster-cidr", ClusterCIDRs, "--admin", admin,
		}
	case PortolanPolicies:
		file, socket := filepath.Join(n.Dir, "agent.yaml"), filepath.Join(n.Dir, "cni.sock")
		n.Plugin = &cri.Plugin{Program: portolan, Configuration: map[string]any{"socket": socket}}
		// The name of the Node is the host name.
		n.Proxy = []string{portolan, "node", "--parts", "proxy,policy", "--kubeconfig", c.Kubeconfig(), "--config", file}
		return os.WriteFile(file, fmt.Appendf(nil,
			"proxy: {detectLocal: {clusterCIDRs: ['%s']}}\npolicy: {cni: {socket: %s}}\nadmin: {listen: '%s'}\n",
			strings.ReplaceAll(ClusterCIDRs, ",", "', '"), socket, admin,
		), 0o600)
	case PortolanNetwork: // a Pod
	default:
		n.Proxy = []string{
			c.config.Programs.KubeProxy, "--proxy-mode=nftables", "--kubeconfig=" + c.Kubeconfig(),
			"--hostname-override=" + n.Name, "--cluster-cidr=" + ClusterCIDRs,
			"--conntrack-max-per-core=0", // it is of the machine
		}
	}
	return nil
}

// awaitNodes waits until all nodes are ready.
func (c *Cluster) awaitNodes(ctx context.Context) error {
	const patience = 3 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		nodes, err := c.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err == nil {
			ready := 0
			for _, n := range nodes.Items {
				if isReady(&n) {
					ready++
				}
			}
			if ready == c.config.Nodes {
				return nil
			}
			err = fmt.Errorf("%d of %d nodes are ready", ready, c.config.Nodes)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-tick.C:
		}
	}
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// Dir is the directory with the logs of all nodes, until Close.
func (c *Cluster) Dir() string { return c.dir }

// Close ends the cluster and removes its files.
func (c *Cluster) Close() error {
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, n.Close())
	}
	c.dns.Stop(0)
	c.scheduler.Stop(0)
	if c.ControlPlane != nil {
		errs = append(errs, c.ControlPlane.Close())
	}
	_ = namespace.IP("link delete " + bridge) // it may not have been made
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}
