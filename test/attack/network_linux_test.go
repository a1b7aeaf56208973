package attack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/test/namespace"
)

// networkMemoryLimit is that of agents with the part network in the shipped manifests (deploy/kustomize/node-network),
// in octets.
const networkMemoryLimit = 512 << 20

// networkNode is an agent that makes the network of a node, under attack by those who reach its socket.
type networkNode struct {
	*server
	dir, socket string
}

// networkCluster is the manifest of the own Node.
const networkCluster = `apiVersion: v1
kind: Node
metadata: {name: node-1, creationTimestamp: '2020-01-01T00:00:00Z'}
spec: {podCIDR: 10.244.0.0/16, podCIDRs: [10.244.0.0/16, 'fd00:10:244::/64']}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}, {type: InternalIP, address: '2001:db8::1'}]}
`

// newNetworkNode returns a node with an uplink.
func newNetworkNode(t *testing.T, cluster string) *networkNode {
	t.Helper()
	if err := namespace.IP(
		"link add up0 type veth peer name up1", "link set up0 up", "link set up1 up",
		"address add 192.0.2.1/24 dev up0", "address add 2001:db8::1/64 dev up0 nodad",
	); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = namespace.IP("link delete up0") })
	n := &networkNode{dir: t.TempDir()}
	n.socket = filepath.Join(n.dir, "run", "cni.sock")
	if err := os.WriteFile(filepath.Join(n.dir, "cluster.yaml"), []byte(cluster), 0o600); err != nil {
		t.Fatal(err)
	}
	return n
}

// startNetwork starts an agent with the shipped memory limit on a new node.
func startNetwork(t *testing.T, cluster string) *networkNode {
	t.Helper()
	n := newNetworkNode(t, cluster)
	n.start(t)
	return n
}

// start starts the node's agent, until the test ends.
func (n *networkNode) start(t *testing.T) {
	t.Helper()
	n.server = launch(t, networkMemoryLimit, "node", fmt.Sprintf(`manifests: %s
node: {parts: [network]}
proxy: {nodeName: node-1}
network: {cni: {install: false, socket: %s}}
`, filepath.Join(n.dir, "cluster.yaml"), n.socket))
	if why := awaitServices(n.ended); why != "" {
		n.fatal(why)
	}
}

// fatal ends the test with the end of the agent's log.
func (n *networkNode) fatal(why string) {
	n.t.Helper()
	text, _ := os.ReadFile(n.log)
	n.t.Fatalf("%s; log:\n%s", why, text[max(0, len(text)-4000):])
}

// pod is a new sandbox with the request to connect it.
func (n *networkNode) pod(t *testing.T, id string) attach.Request {
	t.Helper()
	ns, err := namespace.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return attach.Request{Verb: attach.Add, Sandbox: attach.Sandbox{
		ID:      attach.ID{ContainerID: id, Interface: "eth0"},
		Network: "portolan", NetNS: ns.Path(), Namespace: "shop", Name: id,
	}}
}

// call calls the agent with the time that the plugin has.
func (n *networkNode) call(r attach.Request) (*attach.Result, error) {
	return attach.CallForResult(time.Now().Add(15*time.Second), n.socket, r)
}

// mustServe fails the test unless a Pod gets its network and gives it back, in the bounds of memory.
func (n *networkNode) mustServe(t *testing.T, when string) {
	t.Helper()
	if n.hasEnded() {
		n.fatal(when + ": the agent has ended")
	}
	r := n.pod(t, "good")
	begin := time.Now()
	_, err := n.call(r)
	took := time.Since(begin)
	if err == nil {
		r.Verb = attach.Release
		_, err = n.call(r)
	}
	if err != nil {
		n.fatal(fmt.Sprintf("%s: a Pod has no network: %v", when, err))
	}
	t.Logf("%s: ADD took %s; %d MiB resident, %d goroutines, %d files, peak of the group %d MiB",
		when, took, n.resident()>>20, n.goroutines(), n.openFiles(), peak(n.group)>>20)
}

// raw sends text as a request, and returns the reply.
func (n *networkNode) raw(text string) (reply string, err error) {
	conn, err := net.Dial("unix", n.socket)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	_, _ = io.WriteString(conn, text) // the agent may refuse before it has read all
	out, err := io.ReadAll(conn)
	return string(out), err
}

// addRequest returns the text of a request for a Pod's network that is changed.
func addRequest(t *testing.T, change func(*attach.Request)) string {
	t.Helper()
	r := attach.Request{Version: 1, Verb: attach.Add, Sandbox: attach.Sandbox{
		ID: attach.ID{ContainerID: "bad", Interface: "eth0"}, Network: "portolan", NetNS: "/proc/self/ns/net",
	}}
	change(&r)
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Texts of requests that are almost as long as possible, and take much more room when they are parsed.
var (
	emptyPorts = `{"version":1,"verb":"add","containerID":"bad","ifname":"eth0","ports":[{}` +
		strings.Repeat(",{}", 300_000) + "]}"
	emptyAttachments = `{"version":1,"verb":"collect","network":"x","valid":[{}` + strings.Repeat(",{}", 300_000) + "]}"
)

// TestNetworkSocket: each request that no plugin sends is refused at once, and says why.
func TestNetworkSocket(t *testing.T) {
	n := startNetwork(t, networkCluster)
	n.mustServe(t, "before")
	fifo, link := filepath.Join(n.dir, "fifo"), filepath.Join(n.dir, "link")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o600), os.Symlink("/proc/self/ns/net", link)); err != nil {
		t.Fatal(err)
	}
	at := func(path string) string {
		return addRequest(t, func(r *attach.Request) { r.NetNS = path })
	}
	device := func(name string) string {
		return addRequest(t, func(r *attach.Request) { r.Interface = name })
	}
	container := func(id string) string {
		return addRequest(t, func(r *attach.Request) { r.ContainerID = id })
	}
	for claim, test := range map[string]struct{ request, want string }{
		"malformed":        {"{{{{", "invalid character"},
		"a list":           {"[]", "cannot unmarshal array"},
		"deep":             {strings.Repeat("[", 1<<19), "max depth"},
		"deep in a field":  {`{"version":1,"ports":` + strings.Repeat("[", 1<<19), "max depth"},
		"too long":         {`{"name":"` + strings.Repeat("x", 2<<20) + `"}`, "longer than 1048576 octets"},
		"many ports":       {emptyPorts, "4096 at most"},
		"a long name":      {addRequest(t, func(r *attach.Request) { r.Name = strings.Repeat("x", 1<<19) }), "253 at most"},
		"a FIFO":           {at(fifo), "no network namespace"},
		"a file":           {at("/etc/passwd"), "no network namespace"},
		"a directory":      {at("/"), "no network namespace"},
		"another kind":     {at("/proc/self/ns/mnt"), "no network namespace"},
		"endless":          {at("/dev/zero"), "no network namespace"},
		"no path":          {at(""), "no network namespace"},
		"its own":          {at("/proc/self/ns/net"), "is the network namespace of the node"},
		"a link to it":     {at(link), "is the network namespace of the node"},
		"ID with dots":     {container("../../x"), "container ID"},
		"ID with NUL":      {container("a\x00b"), "container ID"},
		"long ID":          {container(strings.Repeat("a", 10<<10)), "container ID"},
		"device ../x":      {device("../x"), "name of a device"},
		"device all":       {device("all"), "name of a device"},
		"device eth%d":     {device("eth%d"), "name of a device"},
		"device with NUL":  {device("a\x00b"), "name of a device"},
		"negative port":    {`{"version":1,"ports":[{"hostPort":-1}]}`, "cannot unmarshal number -1"},
		"negative rate":    {`{"version":1,"bandwidth":{"ingressRate":-1}}`, "cannot unmarshal number -1"},
		"foreign protocol": {`{"version":1,"verb":"add","containerID":"x","ifname":"eth0","ports":[{"hostPort":1,"containerPort":1,"protocol":"x"}]}`, "not tcp, udp or sctp"},
	} {
		begin := time.Now()
		reply, err := n.raw(test.request)
		if took := time.Since(begin); !strings.Contains(reply, test.want) || took > patience {
			t.Errorf("%s: reply %.300q, %v after %s, want %q", claim, reply, err, took, test.want)
		}
	}
	n.mustServe(t, "after")
}

// patience bounds the wait for what takes milliseconds on an idle machine.
const patience = 10 * time.Second

// TestManyRequests: as many requests as there are clients, of the kinds that take most time and room, leave the agent
// within its memory, and it serves Pods afterwards.
func TestManyRequests(t *testing.T) {
	n := startNetwork(t, networkCluster)
	fifo := filepath.Join(n.dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for claim, text := range map[string]string{
		"slow":             "{",
		"many ports":       emptyPorts,
		"many attachments": emptyAttachments,
		"a FIFO":           addRequest(t, func(r *attach.Request) { r.NetNS = fifo }),
		"a long name":      addRequest(t, func(r *attach.Request) { r.Name = strings.Repeat("x", 1<<19) }),
	} {
		const clients = 1000
		var all sync.WaitGroup
		var refused atomic.Int32
		for range clients {
			all.Go(func() {
				if reply, _ := n.raw(text); reply != "" {
					refused.Add(1)
				}
			})
		}
		all.Wait()
		if refused.Load() != clients {
			t.Errorf("%s: %d replies to %d clients", claim, refused.Load(), clients)
		}
		n.mustServe(t, fmt.Sprintf("%d at once: %s", clients, claim))
	}
}

// TestManyPorts: a Pod gets as many ports of the node as a request can have, in the time that the plugin waits, and
// gives them back.
func TestManyPorts(t *testing.T) {
	n := startNetwork(t, networkCluster)
	r := n.pod(t, "ports")
	for i := range 4096 {
		r.Ports = append(r.Ports, attach.Port{HostPort: uint16(1000 + i), ContainerPort: 80})
	}
	begin := time.Now()
	if _, err := n.call(r); err != nil {
		n.fatal(err.Error())
	}
	t.Logf("ADD with 4,096 ports took %s", time.Since(begin))
	again := n.pod(t, "again")
	again.Ports = r.Ports[:1]
	if _, err := n.call(again); err == nil || !strings.Contains(err.Error(), "hostPort TCP 1000 is that of shop/ports") {
		t.Errorf("ADD of a port that is taken = %v", err)
	}
	r.Verb = attach.Release
	if _, err := n.call(r); err != nil {
		n.fatal(err.Error())
	}
	if _, err := n.call(again); err != nil {
		t.Errorf("ADD of a port that is free again = %v", err)
	}
}
