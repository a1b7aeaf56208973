package prometheus

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/internal/kube/apitest"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// troubles are hosts whose processes are in the states that alerts report. Each is an instance in Prometheus.
type troubles struct {
	t     *testing.T
	m     *monitor
	hosts map[string]*host // by instance
	each  []func(i int)    // what keeps the troubles up, called each second
	mute  *host            // of a gateway that starts when no other one leads
}

// host makes a host whose process has this instance, and this port for its admin address.
func (x *troubles) host(instance, port string) *host {
	h := newHost(x.t)
	x.hosts[instance] = h
	x.m.watch(instance, target{in: h, admin: "127.0.0.1:" + port})
	return h
}

// start starts a process of a host with a configuration.
func (x *troubles) start(h *host, config string, args ...string) *process {
	x.t.Helper()
	return h.start(append(args, "--config", h.settingsOf(args[0], config))...)
}

// repeat calls f each second while the troubles last.
func (x *troubles) repeat(f func(i int)) { x.each = append(x.each, f) }

// keep runs what keeps the troubles up, until done.
func (x *troubles) keep(done <-chan struct{}) {
	for _, f := range x.each {
		go func() {
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for i := 0; ; i++ {
				f(i)
				select {
				case <-done:
					return
				case <-tick.C:
				}
			}
		}()
	}
}

const serverOfAPI = "kubernetes: {kubeconfig: KUBECONFIG}\ndns: {listen: ['127.0.0.1:53']}\n"

// servers starts servers in trouble.
func (x *troubles) servers() {
	loading := x.host("loading", "9153")
	apitest.WriteKubeconfig(x.t, loading.path("kubeconfig"), "http://127.0.0.1:1")
	x.start(loading, serverOfAPI, "serve")
	x.repeat(func(int) { loading.query("@127.0.0.1 web.shop.svc.cluster.local") })

	stale := x.host("stale", "9153")
	api := newAPI(x.t)
	stale.connect(api)
	x.start(stale, serverOfAPI, "serve").awaitLog("msg=serving")
	stale.awaitReady("127.0.0.1:9153")
	api.Stop()

	slow := x.host("slow", "9153")
	slow.startUpstream()
	slow.file("manifests/empty.yaml", "")
	const routes = "tcp: {maxConnections: 2}, " +
		"forward: {routes: [{upstreams: [127.0.0.53]}, {suffix: dead.example, upstreams: [127.0.0.99]}]}"
	x.start(slow, "manifests: DIR/manifests\ndns: {listen: ['127.0.0.1:53'], "+routes+"}\n", "serve")
	x.repeat(func(i int) {
		for j := range 3 {
			slow.query(fmt.Sprintf("@127.0.0.1 n%d-%d.slow.example", i, j))
		}
		slow.query(fmt.Sprintf("@127.0.0.1 n%d.dead.example", i))
		slow.hold("127.0.0.1:53", connections)
	})

	refused := x.host("refused", "9153")
	refused.file("manifests/empty.yaml", "")
	const good = "manifests: DIR/manifests\ndns: {listen: ['127.0.0.1:53']}\n"
	x.start(refused, good, "serve").awaitLog("msg=serving")
	refused.settingsOf("serve", strings.Replace(good, "listen", "lisen", 1))
	x.late()
}

// late starts a server and a gateway that hear of changes of endpoints after 5 s. The server cannot save its snapshot.
func (x *troubles) late() {
	const delay = 5 * time.Second
	h := x.host("late", "9153")
	x.hosts["late-gateway"] = h
	x.m.watch("late-gateway", target{in: h, admin: "127.0.0.1:9156"})
	api := newAPI(x.t)
	const more = 30
	for i := range more {
		api.Put(&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("more-", i)},
			Spec:       corev1.ServiceSpec{ClusterIP: fmt.Sprintf("10.96.1.%d", i+1), Ports: []corev1.ServicePort{{Port: 80}}},
		})
	}
	api.Put(&corev1.Service{ // whose address is none
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "odd"},
		Spec:       corev1.ServiceSpec{ClusterIP: "odd", Ports: []corev1.ServicePort{{Port: 80}}},
	})
	h.connect(api)
	api.Misbehave(refusing("leases"))
	h.file("snapshots/other", "")
	x.start(h, serverOfAPI+"snapshot: {file: DIR/snapshots/file}\n", "serve").awaitLog("msg=serving")
	x.start(h, gatewayConfig, "gateway").awaitLog("requests are served")
	h.awaitReady("127.0.0.1:9153")
	if err := os.RemoveAll(h.path("snapshots")); err != nil {
		x.t.Fatal(err)
	}
	h.file("snapshots", "") // no directory any more
	x.repeat(func(i int) {
		at := fmt.Sprintf("192.0.2.%d", 10+i%100)
		before := time.Now().Add(-delay)
		api.Put(endpointsSince("peers", at, 8080, before), endpointsSince("web", at, 8080, before))
	})
}

// refusing is the fault of an API server that refuses writes whose path has a word.
func refusing(word string) apitest.Fault {
	return apitest.Fault{Refuse: func(method, path string) int {
		if method != "GET" && strings.Contains(path, word) {
			return 403
		}
		return 0
	}}
}

// agentOfAPI is the configuration of an agent without the part dns.
const agentOfAPI = "kubernetes: {kubeconfig: KUBECONFIG}\nadmin: {listen: '127.0.0.1:9154'}\nproxy: {nodeName: n1}\n"

const plugin = "socket: DIR/cni.sock, binDir: DIR/bin, confDir: DIR/net.d"

// agent starts an agent with these parts, and returns its host and API server.
func (x *troubles) agent(instance, parts, sections string) (*host, *apitest.Server) {
	h, api := x.host(instance, "9154"), newAPI(x.t)
	h.connect(api)
	h.file("net.d/README", "")
	h.file("taken", "")
	x.start(h, agentOfAPI+sections, "node", "--parts", parts)
	return h, api
}

// agents starts node agents in trouble.
func (x *troubles) agents() {
	x.meddled()
	full, _ := x.agent("full", "network", "network: {cni: {"+plugin+"}}\n")
	full.awaitReady("127.0.0.1:9154")
	const pods = 16
	for i := range pods {
		full.cni("ADD", fmt.Sprint("pod-", i), namespacetest.New(x.t).Path())
	}
	last := namespacetest.New(x.t)
	x.repeat(func(i int) { full.cni("ADD", fmt.Sprint("more-", i), last.Path()) })

	x.agent("uninstalled", "network", "network: {cni: {"+strings.Replace(plugin, "net.d", "taken/net.d", 1)+"}}\n")
	x.agent("unchained", "policy", "policy: {cni: {install: true, "+plugin+"}}\n")

	taken := x.host("taken", "9154") // another network has the number of the agent's tunnels
	api := newAPI(x.t)
	far := node("n2", 0)
	far.Status.Addresses[0].Address = "198.51.100.2"
	api.Put(far)
	taken.connect(api)
	taken.must("ip link add other type vxlan id 80 dstport 4789 dev uplink")
	x.start(taken, agentOfAPI+"network: {cni: {"+plugin+"}}\n", "node", "--parts", "network")

	strange, _ := x.agent("strange", "network,policy", "network: {cni: {"+plugin+"}}\npolicy: {cni: {socket: ''}}\n")
	stranger := namespacetest.New(x.t)
	x.repeat(func(i int) { strange.cni("ADD", fmt.Sprint("stranger-", i), stranger.Path()) })

	_, api = x.agent("keyless", "network", "network: {encryption: wireguard, cni: {"+plugin+"}}\n")
	api.Put(node("n2", 0))

	crowded := x.host("crowded", "9154")
	crowded.connect(newAPI(x.t))
	crowded.environment = []string{"GOMEMLIMIT=2KiB", "GOGC=100"}
	x.start(crowded, agentOfAPI, "node", "--parts", "proxy")
	x.unheard()
	x.replicas()
}

// node returns another Node, with one of two ranges.
func node(name string, i int) *corev1.Node {
	cidr := fmt.Sprintf("10.244.2.%d/28", 16*i)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDR: cidr, PodCIDRs: []string{cidr}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.2"}}},
	}
}

// meddled starts agents whose addresses and rules others remove.
func (x *troubles) meddled() {
	h, _ := x.agent("meddled", "policy", "policy: {cni: {socket: ''}}\n")
	x.repeat(func(int) { _, _ = h.shell("nft flush table inet portolan-policy") })

	dns := x.host("flushed", "9154")
	const config = "admin: {listen: '127.0.0.1:9154'}\n" +
		"node: {mode: cache, servers: ['192.0.2.77'], addresses: [ADDRESS]}\n"
	x.start(dns, strings.Replace(config, "ADDRESS", "169.254.20.10", 1), "node")
	x.repeat(func(int) { _, _ = dns.shell("ip -4 address flush dev portolan0") })

	without := x.host("without-ipv6", "9154")
	x.start(without, strings.Replace(config, "ADDRESS", "'fd00::a'", 1), "node").awaitLog("msg=serving")
	without.must("sysctl -qw net.ipv6.conf.portolan0.disable_ipv6=1")
}

// replicas starts agents with copies of zones, which are not current.
func (x *troubles) replicas() {
	loading := x.host("replica-loading", "9154")
	const config = "admin: {listen: '127.0.0.1:9154'}\nnode: {servers: ['192.0.2.77'], addresses: [169.254.20.10]}\n"
	x.start(loading, config, "node")

	h := x.host("replica-stale", "9154")
	h.file("manifests/empty.yaml", "")
	h.file("zones/other", "")
	server := x.start(h, "manifests: DIR/manifests\nadmin: {listen: ''}\ndns: {listen: ['192.0.2.1:53'], "+
		"transfer: {allow: [{clients: [0.0.0.0/0]}]}}\n", "serve")
	server.awaitLog("msg=serving")
	x.start(h, "admin: {listen: '127.0.0.1:9154'}\nnode: {servers: ['192.0.2.1'], addresses: [169.254.20.10], "+
		"file: DIR/zones/file, check: 1s, stale: 2s}\n", "node").awaitLog("zone is followed")
	if err := os.RemoveAll(h.path("zones")); err != nil {
		x.t.Fatal(err)
	}
	h.file("zones", "")
	const serves = 8
	x.repeat(func(i int) {
		switch {
		case i == serves:
			server.stop(syscall.SIGTERM)
		case i < serves:
			h.file("manifests/new.yaml", fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: new-%d}\n", i))
		}
	})
}

// connections are more than the servers and gateways in trouble have room for.
const connections = 6

// hold opens connections, and closes them.
func (h *host) hold(addr string, connections int) {
	var held []net.Conn
	for range connections {
		if c, err := h.dial(h.t.Context(), "tcp", addr); err == nil {
			held = append(held, c)
		}
	}
	for _, c := range held {
		c.Close()
	}
}

// unheard starts an agent that has an address of a load balancer, which no node is to announce, and no router.
func (x *troubles) unheard() {
	_, api := x.agent("unheard", "network", "network: {cni: {"+plugin+"}, "+
		"announce: {enabled: true, nodeSelector: uplink=yes, "+
		"bgp: {asn: 64512, peers: [{address: 192.0.2.254, asn: 64500}]}}}\n")
	class := "portolan.dev/lb"
	api.Put(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "edge"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: &class, ClusterIP: "10.96.0.82",
			Ports: []corev1.ServicePort{{Port: 80}},
		},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{
			Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.200"}},
		}},
	})
}

// gateways starts gateways in trouble.
func (x *troubles) gateways() {
	h := x.host("gateway", "9153")
	const day = 24 * time.Hour
	h.file("manifests/world.yaml", readFile(x.t, "testdata/gateway.yaml"))
	h.file("manifests/secret.yaml", secretText(certificate(x.t, day)))
	h.do(func() error { // another process has a port of the gateway
		l, err := net.Listen("tcp", "192.0.2.1:443")
		if err == nil {
			x.t.Cleanup(func() { l.Close() })
		}
		return err
	})
	const config = "gateway: {listen: [192.0.2.1], portOffset: 0, limits: {connections: 4}}\n"
	x.start(h, "manifests: DIR/manifests\n"+config, "gateway").awaitLog("requests are served")
	x.repeat(func(int) {
		_, _ = h.shell("curl -s --max-time 2 -H 'Host: shop.example' http://192.0.2.1/gone")
		h.hold("192.0.2.1:80", connections)
	})

	x.mute = x.host("status", "9153")
	api := newAPI(x.t)
	api.Misbehave(refusing("/status"))
	x.mute.connect(api)
}

// lead starts a gateway that leads, and may not write statuses.
func (x *troubles) lead() {
	x.start(x.mute, strings.Replace(gatewayConfig, "9156", "9153", 1), "gateway")
}

// controllers starts controllers that have too few addresses.
func (x *troubles) controllers() {
	ranges := x.host("ranges", "9157")
	api := newAPI(x.t)
	api.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n9"}})
	ranges.connect(api)
	x.start(ranges, "kubernetes: {kubeconfig: KUBECONFIG}\nadmin: {listen: '127.0.0.1:9157'}\n"+
		"controller: {nodes: {clusterCIDRs: [10.244.1.0/28], maskIPv4: 28}}\n", "controller", "nodes")

	pools := x.host("pools", "9153")
	api = newAPI(x.t)
	class := "portolan.dev/lb"
	api.Put(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "second"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: &class, ClusterIP: "10.96.0.90",
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Ports: []corev1.ServicePort{{Port: 80}},
		},
	})
	pools.connect(api)
	x.start(pools, "kubernetes: {kubeconfig: KUBECONFIG}\ncontroller: {loadBalancer: {pools: [{name: edge, "+
		"ranges: [198.51.100.7/32], automatic: true}]}}\n", "controller", "loadbalancer")
}
