package takeover

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/child"
	"portolan.dev/portolan/test/e2e/controlplane"
	"portolan.dev/portolan/test/e2e/controlplane/controlplanetest"
	"portolan.dev/portolan/test/e2e/nodens"
	"portolan.dev/portolan/test/program"
)

const nodeName = "node-1"

// endpoints are the addresses of the Pod that serves.
var endpoints = []string{"10.244.0.2", "10.244.0.3"}

// TestTakeover replaces kube-proxy by the service proxy, and back, as docs/proxy.md says. No
// connection fails, and those that are open go on.
func TestTakeover(t *testing.T) {
	control := controlplanetest.Start(t, controlplane.Options{})
	createObjects(t, control)
	portolan, err := program.Build(t.Context(), program.Options{})
	if err != nil {
		t.Fatal(err)
	}
	server, pod := newPod(t, "server", endpoints...), newPod(t, "client", "10.244.0.9")
	if err := server.Do(func() error { return serve(t.Context()) }); err != nil {
		t.Fatal(err)
	}
	kubeProxy := []string{
		control.KubeProxy(), "--proxy-mode=nftables", "--kubeconfig=" + control.Kubeconfig(), "--hostname-override=" + nodeName,
		"--cluster-cidr=10.244.0.0/16", "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0",
		"--conntrack-tcp-timeout-close-wait=0",
	}
	proxy := []string{ // with the one capability that its DaemonSet has
		"setpriv", "--no-new-privs", "--bounding-set=-all,+net_admin", "--inh-caps=-all,+net_admin",
		portolan, "proxy", "--kubeconfig", control.Kubeconfig(), "--node-name", nodeName,
		"--cluster-cidr", "10.244.0.0/16", "--admin", "", "--replace-kube-proxy",
	}

	old := start(t, kubeProxy)
	await.NoError(t, func() error {
		_, err := anew(nil)
		return err
	})
	awaitUDP(t)
	all := clients(pod)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	for _, c := range all {
		running.Go(func() {
			if err := c.run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	more := func(stage string) {
		t.Helper()
		awaitMore(t, all)
		t.Logf("%s: tables %q", stage, tables(t))
	}
	more("kube-proxy")
	old.stop(t)
	more("kube-proxy has ended")
	taken := start(t, proxy)
	awaitTables(t, "ip portolan-proxy", "ip6 portolan-proxy")
	more("portolan")
	taken.stop(t)
	more("portolan has ended")
	back := start(t, kubeProxy)
	await.NoError(t, func() error { // its rules are complete
		out, err := exec.Command("nft", "list", "map", "ip", "kube-proxy", "service-ips").CombinedOutput()
		if n := strings.Count(string(out), serviceIP); err == nil && n != 2 {
			err = fmt.Errorf("%d ports of the Service", n)
		}
		return err
	})
	if out, err := exec.Command(portolan, "cleanup").CombinedOutput(); err != nil ||
		string(out) != "removed table ip portolan-proxy\nremoved table ip6 portolan-proxy\n" {
		t.Errorf("portolan cleanup: %v\n%s", err, out)
	}
	awaitTables(t, "ip kube-proxy", "ip6 kube-proxy")
	more("kube-proxy again")
	back.stop(t)
	stop()
	running.Wait()
	for _, c := range all {
		sent, failed := c.figures()
		t.Logf("%s: %d of %d requests failed", c.name, len(failed), sent)
		if len(failed) > 0 {
			t.Errorf("%s: the first failure: %v", c.name, failed[0])
		}
	}
}

// awaitUDP waits until the flow of a client has an answer.
func awaitUDP(t *testing.T) {
	t.Helper()
	await.NoError(t, func() error {
		conn, err := net.Dial("udp", net.JoinHostPort(serviceIP, udpPort))
		if err != nil {
			return err
		}
		defer conn.Close()
		return echo(conn)
	})
}

// awaitMore waits until every client has sent some more requests.
func awaitMore(t *testing.T, all []*client) {
	t.Helper()
	const some = 100
	for _, c := range all {
		before, _ := c.figures()
		await.NoError(t, func() error {
			if now, _ := c.figures(); now < before+some {
				return fmt.Errorf("%s: %d requests, want %d", c.name, now, before+some)
			}
			return nil
		})
	}
}

// tables lists the nftables tables.
func tables(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("nft", "list", "tables").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(string(out)) {
		all = append(all, strings.TrimPrefix(strings.TrimSpace(line), "table "))
	}
	return all
}

// awaitTables waits until there are these tables alone.
func awaitTables(t *testing.T, want ...string) {
	t.Helper()
	await.NoError(t, func() error {
		if has := tables(t); strings.Join(has, ", ") != strings.Join(want, ", ") {
			return fmt.Errorf("tables %q, want %q", has, want)
		}
		return nil
	})
}

// running is a process on the node.
type running struct {
	cmd   *exec.Cmd
	ended <-chan struct{}
}

func start(t *testing.T, args []string) *running {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p := &running{cmd: exec.Command(args[0], args[1:]...)}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if p.ended, err = child.Start(p.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.ended
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(args[0]), text[max(0, len(text)-4000):])
		}
	})
	return p
}

// stop ends the process as a kubelet does.
func (p *running) stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-p.ended // kube-proxy ends by the signal
}

// createObjects creates the Node, and a Service with its endpoints.
func createObjects(t *testing.T, control *controlplane.ControlPlane) {
	t.Helper()
	ctx, client := t.Context(), control.Client()
	node, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodens.NodeIP}}
	if _, err := client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
		ClusterIP: serviceIP, Ports: []corev1.ServicePort{
			{Name: "tcp", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8080)},
			{Name: "udp", Port: 81, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(8080)},
		},
	}}
	await.NoError(t, func() error { // there is a range of addresses a moment later
		_, err := client.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, service, metav1.CreateOptions{})
		return err
	})
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{
			{Name: new("tcp"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)},
			{Name: new("udp"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolUDP)},
		},
	}
	for _, a := range endpoints {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, NodeName: new(nodeName)})
	}
	if _, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
