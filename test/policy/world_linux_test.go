package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"portolan.dev/portolan/internal/kube/apitest"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
	"portolan.dev/portolan/test/program"
)

// patience bounds the wait for what must happen.
const patience = 30 * time.Second

// binary is the environment variable with the program, which is built outside of the namespaces.
const binary = "PORTOLAN_TEST_BINARY"

const node, shop = "node-1", "shop"

// world is a node with an agent.
type world struct {
	api                   *apitest.Server
	program               string
	dir                   string
	kubeconfig, config    string
	socket                string
	mu                    sync.Mutex
	agent                 *exec.Cmd
	ended                 chan struct{} // closed when it has
	log                   *bytes.Buffer
	number                int // of the next Pod
	attempts, unreachable int // of ADD
}

// onNode runs the test in the namespaces of a node with an agent; it returns nil outside of them.
func onNode(t *testing.T) *world {
	t.Helper()
	if os.Getenv(binary) == "" {
		file, err := program.Build(t.Context(), program.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv(binary, file)
	}
	if !namespacetest.OnNode(t) {
		return nil
	}
	w := &world{api: apitest.New(t), program: os.Getenv(binary), dir: t.TempDir(), log: new(bytes.Buffer)}
	w.kubeconfig, w.socket = w.api.Kubeconfig(t), filepath.Join(w.dir, "cni.sock")
	w.config = filepath.Join(w.dir, "portolan.yaml")
	text := fmt.Sprintf("{policy: {cni: {socket: %s}}, admin: {listen: '127.0.0.1:9153'}}", w.socket)
	must(t, os.WriteFile(w.config, []byte(text), 0o600))
	w.api.Put(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}},
		theNode("10.244.1.0/24"),
	)
	w.start(t)
	t.Cleanup(func() {
		w.stop()
		if t.Failed() {
			t.Logf("the agent:\n%s", w.log)
		}
	})
	return w
}

// theNode is the Node with these ranges.
func theNode(podCIDRs ...string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: corev1.NodeSpec{PodCIDRs: podCIDRs}}
}

// start starts the agent and waits until it admits Pods.
func (w *world) start(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	cmd := exec.Command(w.program, "node", "--parts", "policy", "--kubeconfig", w.kubeconfig, "--config", w.config)
	cmd.Env = append(os.Environ(), "NODE_NAME="+node)
	cmd.Stdout, cmd.Stderr = w.log, w.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	w.agent, w.ended = cmd, make(chan struct{})
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the agent is killed when the thread that started it ends
		defer runtime.UnlockOSThread()
		defer close(w.ended)
		started <- cmd.Start()
		_ = cmd.Wait() // it is killed
	}()
	must(t, <-started)
	until(t, "the agent admits Pods", func() bool { return w.call(t, "STATUS", &pod{}) == nil })
}

// stop kills the agent.
func (w *world) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.agent != nil {
		_ = w.agent.Process.Kill()
		<-w.ended
		w.agent = nil
	}
}

// pod is a Pod of the node.
type pod struct {
	*corev1.Pod
	addr    netip.Addr
	more    []netip.Addr
	network *namespace.Network
	device  string
	id      string
}

func (p *pod) addrs() []netip.Addr { return append([]netip.Addr{p.addr}, p.more...) }

// newPod has the API server have a Pod that is scheduled to the node.
func (w *world) newPod(name string, labels map[string]string, addr netip.Addr) *pod {
	w.mu.Lock()
	w.number++
	number := strconv.Itoa(w.number)
	w.mu.Unlock()
	p := &pod{addr: addr, device: "pod" + number, id: "c" + number}
	p.Pod = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name, UID: types.UID("u-" + number), Labels: labels},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "image"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	w.api.Put(p.Pod)
	return p
}

// attach makes the Pod's network, as a plugin before ours in the chain does.
func (w *world) attach(t *testing.T, p *pod) {
	t.Helper()
	p.network = namespacetest.AttachPod(t, p.device, p.addrs()...)
}

// add calls the plugin, as a container runtime does until it has no error, and returns how long the
// last call took.
func (w *world) add(t *testing.T, p *pod) (took time.Duration) {
	t.Helper()
	until(t, "ADD of "+p.Name, func() bool {
		begin := time.Now()
		err := w.call(t, "ADD", p)
		took = time.Since(begin)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.attempts++
		if err != nil {
			w.unreachable++
			time.Sleep(10 * time.Millisecond)
		}
		return err == nil
	})
	return took
}

// run has the Pod's status have its addresses.
func (w *world) run(p *pod) {
	running := p.DeepCopy()
	running.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: p.addr.String()}
	for _, a := range p.addrs() {
		running.Status.PodIPs = append(running.Status.PodIPs, corev1.PodIP{IP: a.String()})
	}
	p.Pod = running
	w.api.Put(running)
}

// launch has a Pod run that need not be watched while it starts.
func (w *world) launch(t *testing.T, name string, labels map[string]string, addr string, more ...netip.Addr) *pod {
	t.Helper()
	p := w.newPod(name, labels, netip.MustParseAddr(addr))
	p.more = more
	w.attach(t, p)
	w.add(t, p)
	w.run(p)
	return p
}

// remove ends a Pod.
func (w *world) remove(t *testing.T, p *pod) {
	t.Helper()
	must(t, w.call(t, "DEL", p))
	link, err := netlink.LinkByName(p.device)
	must(t, err)
	must(t, netlink.LinkDel(link))
	w.api.Delete(p.Pod)
}

// call calls the plugin as a container runtime does.
func (w *world) call(t *testing.T, command string, p *pod) error {
	t.Helper()
	conf := map[string]any{"cniVersion": "1.1.0", "name": "pods", "type": "portolan", "socket": w.socket}
	environment := []string{"CNI_COMMAND=" + command, "CNI_PATH=" + filepath.Dir(w.program)}
	if command != "STATUS" {
		var ips []any
		for _, a := range p.addrs() {
			ips = append(ips, map[string]any{"address": netip.PrefixFrom(a, a.BitLen()).String(), "interface": 0})
		}
		conf["prevResult"] = map[string]any{
			"cniVersion": "1.1.0", "ips": ips,
			"interfaces": []any{map[string]any{"name": "eth0", "sandbox": p.network.Path()}},
		}
		environment = append(
			environment, "CNI_CONTAINERID="+p.id, "CNI_IFNAME=eth0", "CNI_NETNS="+p.network.Path(),
			fmt.Sprintf("CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s", p.Namespace, p.Name, p.UID),
		)
	}
	text, err := json.Marshal(conf)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.program)
	cmd.Env, cmd.Stdin = environment, bytes.NewReader(text)
	out, err := cmd.Output()
	if err != nil {
		return errors.New(strings.TrimSpace(string(out)))
	}
	return nil
}

// policy is a NetworkPolicy of the namespace shop.
func policy(name string, spec networkingv1.NetworkPolicySpec) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name}, Spec: spec}
}

// app is the label of Pods, and a selector of those with it.
func app(name string) map[string]string { return map[string]string{"app": name} }

func ofApp(name string) metav1.LabelSelector { return metav1.LabelSelector{MatchLabels: app(name)} }

func peer(name string) []networkingv1.NetworkPolicyPeer {
	of := ofApp(name)
	return []networkingv1.NetworkPolicyPeer{{PodSelector: &of}}
}

// dial connects from a Pod within a time in which a first packet that is dropped is not sent again.
func dial(p *pod, to netip.AddrPort) error {
	const once = 900 * time.Millisecond // RFC 6298: the first timeout is 1 s
	return p.network.Do(func() error {
		conn, err := net.DialTimeout("tcp", to.String(), once)
		if err == nil {
			conn.Close()
		}
		return err
	})
}

// listenUDP returns a socket of a Pod.
func listenUDP(t *testing.T, p *pod, port int) *net.UDPConn {
	t.Helper()
	var conn *net.UDPConn
	namespacetest.Do(t, p.network, func() {
		var err error
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{Port: port})
		must(t, err)
	})
	t.Cleanup(func() { conn.Close() })
	return conn
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// until waits for a condition.
func until(tb testing.TB, what string, is func() bool) {
	tb.Helper()
	for begin := time.Now(); !is(); time.Sleep(time.Millisecond) {
		if time.Since(begin) > patience {
			tb.Fatalf("not in %v: %s", patience, what)
		}
	}
}
