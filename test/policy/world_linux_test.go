package policy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/test/namespace/namespacetest"
	"portolan.dev/portolan/test/policy/policytest"
)

// patience bounds the wait for what must happen.
const patience = 30 * time.Second

const shop = "shop"

// world is a node with an agent.
type world struct{ *policytest.Agent }

// pod is a Pod of the node.
type pod = policytest.Pod

// onNode runs the test in the namespaces of a node with an agent; it returns nil outside of them.
func onNode(t *testing.T) *world {
	t.Helper()
	agent := policytest.OnNode(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}, theNode("10.244.1.0/24"))
	if agent == nil {
		return nil
	}
	return &world{agent}
}

// prepare is onNode for an agent with these parts and further sections of its configuration. The test
// starts it.
func prepare(t *testing.T, parts, sections string) *world {
	t.Helper()
	agent := policytest.Prepare(
		t, parts, sections, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}, theNode("10.244.1.0/24"),
	)
	if agent == nil {
		return nil
	}
	return &world{agent}
}

// theNode is the Node with these ranges.
func theNode(podCIDRs ...string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: policytest.Node}, Spec: corev1.NodeSpec{PodCIDRs: podCIDRs},
	}
}

// newPod has the API server have a Pod that is scheduled to the node.
func (w *world) newPod(name string, labels map[string]string, addrs ...netip.Addr) *pod {
	return w.NewPod(object(name, labels), addrs...)
}

// launch has a Pod run that need not be watched while it starts.
func (w *world) launch(t *testing.T, name string, labels map[string]string, addr string, more ...netip.Addr) *pod {
	t.Helper()
	return w.Launch(t, object(name, labels), append([]netip.Addr{netip.MustParseAddr(addr)}, more...)...)
}

// object is a Pod of the namespace shop.
func object(name string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name, Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "image"}}},
	}
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
	return p.Network.Do(func() error {
		conn, err := net.DialTimeout("tcp", to.String(), once)
		if err == nil {
			conn.Close()
		}
		return err
	})
}

// connect connects from a Pod, however busy the machine is. It is an error if a packet had to be sent again for that.
func connect(p *pod, to netip.AddrPort) error {
	return p.Network.Do(func() error {
		conn, err := net.DialTimeout("tcp", to.String(), patience)
		if err != nil {
			return err
		}
		defer conn.Close()
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			return err
		}
		var info *unix.TCPInfo
		ctrlErr := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
		if err = errors.Join(ctrlErr, err); err == nil && info.Total_retrans > 0 {
			err = fmt.Errorf("%d packets were lost", info.Total_retrans)
		}
		return err
	})
}

// listenUDP returns a socket of a Pod.
func listenUDP(t *testing.T, p *pod, port int) *net.UDPConn {
	t.Helper()
	var conn *net.UDPConn
	namespacetest.Do(t, p.Network, func() {
		var err error
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{Port: port})
		must(t, err)
	})
	t.Cleanup(func() { conn.Close() })
	return conn
}

// number returns how often a test does something: the number in an environment variable, or else as often as
// usual.
func number(t *testing.T, variable string, usual int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
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
