package cyclonus

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mattfenwick/cyclonus/pkg/connectivity/probe"
	"github.com/mattfenwick/cyclonus/pkg/generator"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/policy/policytest"
)

// What cyclonus' test cases are about, see its "generate" command.
var (
	namespaces = []string{"x", "y", "z"}
	podNames   = []string{"a", "b", "c"}
	ports      = []int{80, 81}
	protocols  = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
)

// addrs are the last two bytes of the addresses of Pods. Blocks of test cases are the 256 addresses around
// that of z/c, and as an exception the 16 around it: some Pods are outside of both, some in both.
var addrs = map[cluster.Key][2]byte{
	{Namespace: "x", Name: "a"}: {1, 3}, {Namespace: "x", Name: "b"}: {1, 4}, {Namespace: "x", Name: "c"}: {2, 5},
	{Namespace: "y", Name: "a"}: {1, 6}, {Namespace: "y", Name: "b"}: {2, 7}, {Namespace: "y", Name: "c"}: {2, 34},
	{Namespace: "z", Name: "a"}: {2, 35}, {Namespace: "z", Name: "b"}: {2, 8}, {Namespace: "z", Name: "c"}: {2, 36},
	// Pods that test cases create:
	{Namespace: "x", Name: "d"}: {1, 9}, {Namespace: "y-2", Name: "a"}: {2, 37}, {Namespace: "y-2", Name: "b"}: {2, 9},
	{Namespace: "w", Name: "a"}: {2, 38},
	// Pods of the signal:
	signalServer: {3, 1}, signalClient: {3, 2},
}

// addrsOf returns the addresses of a Pod: of IPv4 and of IPv6.
func addrsOf(pod cluster.Key) []netip.Addr {
	last := addrs[pod]
	six := netip.MustParseAddr("fd00:244::").As16()
	six[14], six[15] = last[0], last[1]
	return []netip.Addr{netip.AddrFrom4([4]byte{10, 244, last[0], last[1]}), netip.AddrFrom16(six)}
}

// world is a node with an agent, and what cyclonus has in the cluster.
type world struct {
	agent *policytest.Agent
	pods  map[cluster.Key]*policytest.Pod

	// base is the state in which each test case begins, resources and policies the present one.
	base, resources *probe.Resources
	policies        []*networkingv1.NetworkPolicy

	step int // that is in the API server, from 1
}

// newWorld runs the test in the namespaces of a node with an agent and the Pods; it returns nil outside of
// them.
func newWorld(t *testing.T) *world {
	t.Helper()
	agent := policytest.OnNode(t, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: policytest.Node},
		Spec:       corev1.NodeSpec{PodCIDRs: []string{"10.244.0.0/16", "fd00:244::/112"}},
	}, signal())
	if agent == nil {
		return nil
	}
	w := &world{
		agent: agent, pods: make(map[cluster.Key]*policytest.Pod),
		base: &probe.Resources{Namespaces: make(map[string]map[string]string)},
	}
	for _, ns := range namespaces {
		w.base.Namespaces[ns] = named(ns, map[string]string{"ns": ns})
		for _, name := range podNames {
			w.base.Pods = append(w.base.Pods, probe.NewDefaultPod(ns, name, ports, protocols, false, "registry"))
		}
	}
	for ns, labels := range w.base.Namespaces {
		w.agent.API.Put(probe.KubeNamespace(ns, labels))
	}
	for _, p := range w.base.Pods {
		w.launch(t, p)
	}
	w.resources = w.base
	w.startSignal(t)
	return w
}

// named returns the labels of a Namespace with the one that the API server adds.
func named(ns string, labels map[string]string) map[string]string {
	labels = maps.Clone(labels)
	labels[corev1.LabelMetadataName] = ns
	return labels
}

// keyOf returns the key of a Pod as cyclonus writes it.
func keyOf(pod string) cluster.Key {
	ns, name, _ := strings.Cut(pod, "/")
	return cluster.Key{Namespace: ns, Name: name}
}

// launch starts a Pod with its servers.
func (w *world) launch(t *testing.T, p *probe.Pod) {
	t.Helper()
	key := cluster.Key{Namespace: p.Namespace, Name: p.Name}
	if _, ok := addrs[key]; !ok {
		t.Fatalf("there is no address for a Pod %s", key)
	}
	pod := w.agent.Launch(t, p.KubePod(), addrsOf(key)...)
	for _, port := range ports {
		serve(t, pod, port)
	}
	w.pods[key] = pod
}

// relabel puts a Pod with its labels of cyclonus.
func (w *world) relabel(p *probe.Pod) {
	pod := w.pods[cluster.Key{Namespace: p.Namespace, Name: p.Name}]
	pod.Pod = pod.DeepCopy()
	pod.Labels = p.Labels
	w.agent.API.Put(pod.Pod)
}

// remove ends a Pod.
func (w *world) remove(t *testing.T, key cluster.Key) {
	t.Helper()
	w.agent.Remove(t, w.pods[key])
	delete(w.pods, key)
}

// perform does what a step of a test case does.
func (w *world) perform(t *testing.T, actions []*generator.Action) {
	t.Helper()
	for _, a := range actions {
		must(t, w.act(t, a))
	}
}

// act performs an action on the resources, from which cyclonus' verdicts are computed, and on the cluster.
func (w *world) act(t *testing.T, action *generator.Action) (err error) {
	t.Helper()
	api := w.agent.API
	switch {
	case action.CreatePolicy != nil:
		w.policies = append(w.policies, action.CreatePolicy.Policy)
		api.Put(action.CreatePolicy.Policy)
	case action.UpdatePolicy != nil:
		p := action.UpdatePolicy.Policy
		w.policies = append(w.without(p.Namespace, p.Name), p)
		api.Put(p)
	case action.DeletePolicy != nil:
		a := action.DeletePolicy
		w.policies = w.without(a.Namespace, a.Name)
		api.Delete(&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name}})
	case action.CreateNamespace != nil:
		a := action.CreateNamespace
		labels := named(a.Namespace, a.Labels)
		w.resources, err = w.resources.CreateNamespace(a.Namespace, labels)
		api.Put(probe.KubeNamespace(a.Namespace, labels))
	case action.SetNamespaceLabels != nil:
		a := action.SetNamespaceLabels
		labels := named(a.Namespace, a.Labels)
		w.resources, err = w.resources.UpdateNamespaceLabels(a.Namespace, labels)
		api.Put(probe.KubeNamespace(a.Namespace, labels))
	case action.DeleteNamespace != nil:
		w.resources, err = w.resources.DeleteNamespace(action.DeleteNamespace.Namespace)
		w.endNamespace(t, action.DeleteNamespace.Namespace)
	case action.CreatePod != nil:
		a := action.CreatePod
		if w.resources, err = w.resources.CreatePod(a.Namespace, a.Pod, a.Labels); err == nil {
			w.launch(t, w.pod(t, a.Namespace, a.Pod))
		}
	case action.SetPodLabels != nil:
		a := action.SetPodLabels
		if w.resources, err = w.resources.SetPodLabels(a.Namespace, a.Pod, a.Labels); err == nil {
			w.relabel(w.pod(t, a.Namespace, a.Pod))
		}
	case action.DeletePod != nil:
		a := action.DeletePod
		w.resources, err = w.resources.DeletePod(a.Namespace, a.Pod)
		w.remove(t, cluster.Key{Namespace: a.Namespace, Name: a.Pod})
	default:
		t.Fatalf("an action that this test does not know: %+v", action)
	}
	return err
}

func (w *world) pod(t *testing.T, ns, name string) *probe.Pod {
	t.Helper()
	p, err := w.resources.GetPod(ns, name)
	must(t, err)
	return p
}

// without returns all policies but one.
func (w *world) without(ns, name string) (others []*networkingv1.NetworkPolicy) {
	for _, p := range w.policies {
		if p.Namespace != ns || p.Name != name {
			others = append(others, p)
		}
	}
	return others
}

func (w *world) endNamespace(t *testing.T, ns string) {
	t.Helper()
	for key := range maps.Clone(w.pods) {
		if key.Namespace == ns {
			w.remove(t, key)
		}
	}
	w.agent.API.Delete(probe.KubeNamespace(ns, nil))
}

// reset restores the state in which each test case begins. The next step waits for that.
func (w *world) reset(t *testing.T) {
	t.Helper()
	for _, p := range w.policies {
		w.agent.API.Delete(p)
	}
	for ns := range w.resources.Namespaces {
		if w.base.Namespaces[ns] == nil {
			w.endNamespace(t, ns)
		}
	}
	for _, p := range w.resources.Pods {
		if _, err := w.base.GetPod(p.Namespace, p.Name); err != nil && w.base.Namespaces[p.Namespace] != nil {
			w.remove(t, cluster.Key{Namespace: p.Namespace, Name: p.Name})
		}
	}
	for ns, labels := range w.base.Namespaces {
		w.agent.API.Put(probe.KubeNamespace(ns, labels))
	}
	for _, p := range w.base.Pods {
		w.relabel(p)
	}
	w.policies, w.resources = nil, w.base
}

// The signal is a connection that is allowed as soon as the kernel has a step. After the changes of the step
// come those of the signal: new labels of its Namespace and of its client, and a policy that lets Pods with
// these labels connect to the other one of two ports. Since a watch delivers the changes of a kind in order,
// all changes before are known when the connection is allowed.
var (
	signalServer = cluster.Key{Namespace: "signal", Name: "server"}
	signalClient = cluster.Key{Namespace: "signal", Name: "client"}
)

const (
	signalPort = 5000 // and the next one
	// sourcePort and the number of a step make the port that datagrams of a step come from. No port is used
	// twice: the kernel accepts packets of a flow that it knows.
	sourcePort = 20000
)

// signal is its policy.
func signal(rules ...networkingv1.NetworkPolicyIngressRule) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: signalServer.Namespace, Name: "signal"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: nameLabel(signalServer)}, Ingress: rules,
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		},
	}
}

func nameLabel(pod cluster.Key) map[string]string { return map[string]string{"name": pod.Name} }

func (w *world) startSignal(t *testing.T) {
	t.Helper()
	for _, key := range []cluster.Key{signalServer, signalClient} {
		w.pods[key] = w.agent.Launch(t, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: nameLabel(key)},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "image"}}},
		}, addrsOf(key)...)
	}
	for n := range 2 {
		serve(t, w.pods[signalServer], signalPort+n)
	}
}

// settle waits until the kernel has what the API server has.
func (w *world) settle(t *testing.T) {
	t.Helper()
	w.step++
	port, server := signalPort+w.step%2, w.pods[signalServer]
	label := map[string]string{"step": strconv.Itoa(w.step)}
	selector := &metav1.LabelSelector{MatchLabels: label}
	w.agent.API.Put(probe.KubeNamespace(signalClient.Namespace, label))
	client := w.pods[signalClient]
	client.Pod = client.DeepCopy()
	client.Labels = label
	w.agent.API.Put(client.Pod)
	w.agent.API.Put(signal(networkingv1.NetworkPolicyIngressRule{
		From:  []networkingv1.NetworkPolicyPeer{{NamespaceSelector: selector, PodSelector: selector}},
		Ports: []networkingv1.NetworkPolicyPort{{Protocol: new(corev1.ProtocolUDP), Port: new(intstr.FromInt32(int32(port)))}},
	}))
	var conn *net.UDPConn
	must(t, client.Network.Do(func() (err error) {
		from := net.UDPAddrFromAddrPort(netip.AddrPortFrom(client.Addr(), uint16(sourcePort+w.step)))
		conn, err = net.DialUDP("udp", from, net.UDPAddrFromAddrPort(netip.AddrPortFrom(server.Addr(), uint16(port))))
		return err
	}))
	defer conn.Close()
	await.NoError(t, func() error {
		if _, err := conn.Write([]byte("?")); err != nil {
			return err
		}
		must(t, conn.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
		_, err := conn.Read(make([]byte, 1))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return errors.New("the kernel does not have what the API server has")
		}
		return err
	})
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
