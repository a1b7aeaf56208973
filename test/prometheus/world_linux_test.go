package prometheus

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"portolan.dev/portolan/internal/kube/apitest"
	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// world is a cluster of one Node on one host: a server, an agent with all parts, a gateway, the webhook and the
// controllers, each with an admin port of its own, and two Pods.
type world struct {
	*host
	api    *apitest.Server
	client *host              // the Pod client
	guest  *namespace.Network // of a Pod that comes and goes
}

// serverConfig and the others are the configurations of the processes of a world.
const (
	serverConfig = `kubernetes: {kubeconfig: KUBECONFIG}
snapshot: {file: DIR/snapshot}
admin: {listen: '127.0.0.1:9153', coreDNSMetrics: true}
dns:
  listen: ['192.0.2.1:53']
  multicluster: ''
  forward: {routes: [{upstreams: ['127.0.0.53']}]}
  transfer: {allow: [{clients: [0.0.0.0/0]}], notify: ['192.0.2.1:9155']}
  autopath: {suffix: ap.k8s.io}
`
	nodeConfig = `kubernetes: {kubeconfig: KUBECONFIG}
admin: {listen: '127.0.0.1:9154', coreDNSMetrics: true}
dns: {forward: {routes: [{upstreams: ['127.0.0.53']}]}}
node:
  parts: [dns, proxy, network, policy]
  addresses: [169.254.20.10]
  servers: ['192.0.2.1']
  notify: '192.0.2.1:9155'
  file: DIR/zones
proxy: {nodeName: n1, counters: true, detectLocal: {mode: NodeCIDR}}
network: {cni: {socket: DIR/cni.sock, binDir: DIR/bin, confDir: DIR/net.d}, announce: {enabled: true}}
policy: {cni: {socket: ''}}
`
	gatewayConfig = `kubernetes: {kubeconfig: KUBECONFIG}
admin: {listen: '127.0.0.1:9156'}
gateway: {listen: [192.0.2.1], portOffset: 0, publish: {addresses: [192.0.2.1]}, accessLog: json}
`
	webhookConfig = `kubernetes: {kubeconfig: KUBECONFIG}
admin: {listen: '127.0.0.1:9158'}
webhook: {listen: '127.0.0.1:8443', clusterDNS: [10.96.0.10]}
`
	controllerConfig = `kubernetes: {kubeconfig: KUBECONFIG}
controller:
  nodes: {clusterCIDRs: [10.244.0.0/16], maskIPv4: 28}
  loadBalancer: {pools: [{name: edge, ranges: [198.51.100.0/28], automatic: true}]}
`
)

// settingsOf writes a configuration of the host, in which KUBECONFIG and DIR are its own, and returns the file.
func (h *host) settingsOf(name, text string) string {
	h.t.Helper()
	return h.file(name+".yaml", strings.NewReplacer("KUBECONFIG", h.path("kubeconfig"), "DIR", h.dir).Replace(text))
}

// startWorld starts all of it.
func startWorld(t *testing.T) *world {
	t.Helper()
	w := &world{host: newHost(t), api: newAPI(t), guest: namespacetest.New(t)}
	w.connect(w.api)
	w.startUpstream()
	server := w.start("serve", "--config", w.settingsOf("server", serverConfig))
	server.awaitLog("msg=serving")
	agent := w.start("node", "--config", w.settingsOf("node", nodeConfig))
	agent.awaitLog("the node can start Pods")
	w.startPods()
	gateway := w.start("gateway", "--config", w.settingsOf("gateway", gatewayConfig))
	gateway.awaitLog("requests are served")
	w.start("webhook", "--config", w.settingsOf("webhook", webhookConfig))
	file := w.settingsOf("controller", controllerConfig)
	for name, admin := range map[string]string{"nodes": "9157", "loadbalancer": "9159", "slices": "9160"} {
		w.start("controller", name, "--config", file, "--admin", "127.0.0.1:"+admin)
	}
	return w
}

// watch has all processes scraped.
func (w *world) watch(m *monitor) {
	for instance, port := range map[string]string{
		"server": "9153", "agent": "9154", "gateway": "9156", "nodes": "9157", "webhook": "9158", "loadbalancer": "9159",
		"slices": "9160",
	} {
		m.watch(instance, target{in: w.host, admin: "127.0.0.1:" + port})
	}
}

// startUpstream starts a DNS server for names outside the cluster at 127.0.0.53, which answers each name with the
// address 203.0.113.7, and names of slow.example later than a server should.
func (h *host) startUpstream() {
	h.t.Helper()
	var c net.PacketConn
	h.do(func() (err error) {
		c, err = net.ListenPacket("udp", "127.0.0.53:53")
		return err
	})
	h.t.Cleanup(func() { c.Close() })
	const largest = 4096
	go func() {
		for {
			query := make([]byte, largest)
			n, from, err := c.ReadFrom(query)
			if err != nil {
				return
			}
			go func() {
				if strings.Contains(strings.ToLower(string(query[:n])), "\x04slow\x07example") {
					time.Sleep(slowness)
				}
				_, _ = c.WriteTo(answer(query[:n]), from) // the test may be over
			}()
		}
	}()
}

// slowness is how late the upstream answers names of slow.example.
const slowness = 200 * time.Millisecond

// answer returns the response to a query for one name: an address for A, and nothing for other types.
func answer(query []byte) []byte {
	const header, response = 12, 0x8180
	end := header
	for end < len(query) && query[end] != 0 {
		end += int(query[end]) + 1
	}
	end += 5 // the root, type and class
	if end > len(query) {
		return nil
	}
	reply := append([]byte{}, query[:end]...)
	if strings.Contains(strings.ToLower(string(query)), "\x06broken\x07example") {
		binary.BigEndian.PutUint16(reply[2:], response|2) // SERVFAIL
		clear(reply[6:header])
		return reply
	}
	binary.BigEndian.PutUint16(reply[2:], response)
	clear(reply[6:header])
	if kind := binary.BigEndian.Uint16(query[end-4:]); kind == 1 {
		reply[7] = 1
		reply = append(reply, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 2, 0, 4, 203, 0, 113, 7)
	}
	return reply
}

// startPods connects the Pods web, which serves HTTP at port 8080, and client.
func (w *world) startPods() {
	w.t.Helper()
	pods := make(map[string]*host)
	for _, name := range []string{"web", "client"} { // in the order of their addresses
		pod := &host{t: w.t, net: namespacetest.New(w.t), dir: w.dir}
		if got := w.cni("ADD", name, pod.net.Path()); got.Code != 0 {
			w.t.Fatalf("the Pod %s gets no network: %+v", name, got)
		}
		pods[name] = pod
	}
	w.client = pods["client"]
	var l net.Listener
	pods["web"].do(func() (err error) {
		l, err = net.Listen("tcp", ":8080")
		return err
	})
	server := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/broken") {
			rw.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprintln(rw, "web")
	}), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	w.t.Cleanup(func() { server.Close() })
}

// result is what the CNI plugin says.
type result struct {
	Code uint
	Msg  string
}

// cni calls the plugin as a container runtime does.
func (h *host) cni(command, container, netns string) (r result) {
	h.t.Helper()
	cmd := exec.CommandContext(h.t.Context(), "portolan", "cni")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(
		`{"cniVersion": "1.1.0", "name": "portolan", "type": "portolan", "socket": %q}`, h.path("cni.sock"),
	))
	cmd.Env = append(
		os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+container, "CNI_NETNS="+netns, "CNI_IFNAME=eth0",
		"CNI_PATH="+h.path("bin"), "CNI_ARGS=K8S_POD_NAMESPACE=shop;K8S_POD_NAME="+container,
	)
	var out []byte
	h.do(func() error {
		out, _ = cmd.Output() // the error is in the output
		return nil
	})
	if len(out) > 0 {
		if err := json.Unmarshal(out, &r); err != nil {
			h.t.Fatalf("%s: %v:\n%s", command, err, out)
		}
	}
	return r
}

// traffic uses everything of the world until stop is called: queries, connections and requests, some of which fail,
// and changes of endpoints and Pods.
func (w *world) traffic() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var all sync.WaitGroup
	for _, use := range []func(context.Context, int){w.lookUp, w.connectOnce, w.request, w.change} {
		all.Go(func() {
			const pause = 100 * time.Millisecond
			tick := time.NewTicker(pause)
			defer tick.Stop()
			for i := 0; ; i++ {
				use(ctx, i)
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// lookUp asks the server and the agent for names that exist, and for some that do not.
func (w *world) lookUp(ctx context.Context, i int) {
	for _, addr := range []string{"192.0.2.1:53", "169.254.20.10:53"} {
		for network, in := range map[string]*host{"udp": w.host, "tcp": w.client} {
			if addr[0] == '1' && addr[1] == '9' && in == w.client {
				continue // the server has no route to Pods before they have connected
			}
			r := in.resolver(network, addr)
			if c, err := in.dial(ctx, "udp", addr); err == nil {
				_, _ = c.Write([]byte("no query")) // which is dropped
				c.Close()
			}
			for _, name := range []string{
				"web.shop.svc.cluster.local.", "none.shop.svc.cluster.local.", "www.example.", "broken.example.",
				fmt.Sprintf("n%d.example.", i), "web.search.shop.cluster.local.ap.k8s.io.",
			} {
				_, _ = r.LookupHost(ctx, name) // some fail
			}
		}
	}
}

// resolver asks one server from the host.
func (h *host) resolver(network, server string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return h.dial(ctx, network, server)
	}}
}

// connectOnce connects to a cluster IP, and from the Pod client to web, which its policy denies.
func (w *world) connectOnce(ctx context.Context, _ int) {
	if c, err := w.dial(ctx, "tcp", "10.96.0.80:80"); err == nil {
		c.Close()
	}
	const soon = 50 * time.Millisecond
	short, stop := context.WithTimeout(ctx, soon)
	defer stop()
	if c, err := w.client.dial(short, "tcp", "10.244.1.1:8080"); err == nil {
		c.Close()
	}
}

// request asks the gateway for pages, some of which are not there.
func (w *world) request(ctx context.Context, _ int) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: w.dial}}
	for _, page := range []struct{ host, path string }{
		{"shop.example", "/"}, {"shop.example", "/broken"}, {"shop.example", "/gone"}, {"other.example", "/"},
	} {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://192.0.2.1"+page.path, nil)
		if err != nil {
			return
		}
		r.Host = page.host
		if response, err := client.Do(r); err == nil {
			response.Body.Close()
		}
	}
	if c, err := w.dial(ctx, "tcp", "192.0.2.1:80"); err == nil { // a request that no server can read
		_, _ = c.Write([]byte("GET / HTTP/9.9\r\n\r\n"))
		c.Close()
	}
}

// change changes endpoints, policies and Nodes, and has a Pod come and go.
func (w *world) change(ctx context.Context, i int) {
	w.api.Put(
		endpoints("web", "10.244.1.1", 8080), endpoints("peers", fmt.Sprintf("10.244.1.%d", 1+i%2), 8080),
		endpoints("gone", fmt.Sprintf("192.0.2.%d", 98+i%2), 1),
		policyFor(fmt.Sprintf("10.%d.0.0/16", i%2)),
		&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n2"},
			Spec:       corev1.NodeSpec{PodCIDR: "10.244.2.0/28", PodCIDRs: []string{fmt.Sprintf("10.244.2.%d/28", 16*(i%2))}},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.2"}}},
		},
	)
	const every = 10
	if i%every == 0 && ctx.Err() == nil {
		w.api.Put(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "guest", UID: types.UID(strconv.Itoa(i))},
			Spec:       corev1.PodSpec{NodeName: "n1"},
		})
		w.cni("ADD", "guest", w.guest.Path())
		w.cni("DEL", "guest", w.guest.Path())
	}
}

// policyFor returns a policy that lets Pods of the shop send to a range.
func policyFor(cidr string) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "out"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress: []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{
				{IPBlock: &networkingv1.IPBlock{CIDR: cidr}},
			}}},
		},
	}
}

// query runs a DNS query in the host and returns what dig prints.
func (h *host) query(args string) string {
	out, _ := h.shell("dig +time=2 +tries=1 " + args)
	return out
}

// awaitReady waits until a process says at its admin address that it is ready.
func (h *host) awaitReady(admin string) {
	h.t.Helper()
	await.NoError(h.t, func() error {
		out, err := h.shell("curl -sf " + admin + "/readyz")
		if err != nil {
			return fmt.Errorf("%s/readyz: %w: %s", admin, err, out)
		}
		return nil
	})
}
