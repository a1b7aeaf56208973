package rolling

import (
	"context"
	"flag"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/child"
	"portolan.dev/portolan/test/e2e/controlplane"
	"portolan.dev/portolan/test/e2e/controlplane/controlplanetest"
	"portolan.dev/portolan/test/e2e/nodens"
	"portolan.dev/portolan/test/program"
)

var (
	restarts = flag.Int("restarts", 1, "replace this many Pods, one after another")
	other    = flag.String("program", "", "the `FILE` of a portolan to run in place of the one that is built")
)

const (
	nodeName   = "node-1"
	dnsIP      = "10.96.0.10"
	repository = "../../.."
)

// kubeadmCorefile is what kubeadm configures CoreDNS with, without names outside the
// cluster.
const kubeadmCorefile = `.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    cache 30
    loop
    reload
    loadbalance
}
`

// TestRollingRestart replaces Pods, one after another, and finds no lookups lost but those
// that were on their way when kube-proxy deleted their conntrack entries.
func TestRollingRestart(t *testing.T) {
	control := controlplanetest.Start(t, controlplane.Options{ControllerManager: true})
	kubeconfig := prepareCluster(t, control)
	portolan := *other
	if portolan == "" {
		var err error
		if portolan, err = program.Build(t.Context(), program.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	corefile := filepath.Join(t.TempDir(), "Corefile")
	if err := os.WriteFile(corefile, []byte(kubeadmCorefile), 0o600); err != nil {
		t.Fatal(err)
	}
	shipped, grace := shippedProbe(t)
	for claim, k := range map[string]*kubelet{
		"as shipped": {
			probe: shipped, grace: grace,
			args: []string{
				portolan, "serve", "--config", repository + "/deploy/kustomize/base/config.yaml", "--kubeconfig", kubeconfig,
				"--snapshot", "",
			},
		},
		// The probe that kubeadm's Deployment has, at which kubelets fail a Pod within 20 to
		// 30 s; they kill it after 30. This one kills it after 40, so that what is tested
		// does not depend on the time of the first probe.
		"the Corefile and the probe of kubeadm": {
			probe: probe{"8181", "/ready", 10 * time.Second, time.Second, 3}, grace: 40 * time.Second,
			args: []string{portolan, "serve", "--corefile", corefile, "--kubeconfig", kubeconfig},
		},
	} {
		t.Run(claim, func(t *testing.T) {
			k.t, k.pods = t, control.Client().CoreV1().Pods(metav1.NamespaceSystem)
			k.roll(*restarts)
		})
	}
}

// proxyTime is how long kube-proxy takes to apply a change, at most.
const proxyTime = time.Second

// onTheirWay is how many lookups may be lost for each Pod that is replaced: those that are on
// their way at one moment, of some 2,300 a second that take 1 to 4 ms on a busy machine. A
// server that does not wait for kube-proxy lost about 60.
const onTheirWay = 10

// roll runs two Pods and replaces n of them, one after another, while clients look up.
func (k *kubelet) roll(n int) {
	k.t.Helper()
	pods := []*pod{k.run(), k.run()}
	await.NoError(k.t, func() error {
		conn, err := net.Dial("udp", dnsIP+":53")
		if err != nil {
			return err
		}
		defer conn.Close()
		return lookUp(conn)
	})
	ctx, stop := context.WithCancel(k.t.Context())
	defer stop()
	var running sync.WaitGroup
	c := new(clients)
	running.Go(func() { c.run(ctx) })
	seen := 0
	for range n {
		pods = append(pods, k.run())
		began := time.Now()
		took := k.end(pods[0])
		k.t.Logf("%s ended %s after SIGTERM; so far %d lookups, %d lost",
			pods[0].Name, took.Round(time.Millisecond), c.sent.Load(), len(c.losses()))
		for _, l := range c.losses()[seen:] {
			k.t.Logf("lost: sent %s after SIGTERM: %v", l.sent.Sub(began).Round(time.Millisecond), l.err)
			seen++
		}
		pods = pods[1:]
	}
	time.Sleep(relist + proxyTime) // in which lookups can be lost
	stop()
	running.Wait()
	for _, p := range pods {
		k.remove(p)
	}
	if lost := c.losses(); len(lost) > n*onTheirWay {
		k.t.Errorf("%d of %d lookups were lost, the first at %s: %v", len(lost), c.sent.Load(), lost[0].sent, lost[0].err)
	}
}

// prepareCluster creates the node, the Service and a kube-proxy. It returns a kubeconfig
// for Pods.
func prepareCluster(t *testing.T, control *controlplane.ControlPlane) (kubeconfig string) {
	t.Helper()
	ctx, client := t.Context(), control.Client()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	node, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodens.NodeIP}}
	if _, err := client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-dns"},
		Spec: corev1.ServiceSpec{
			ClusterIP: dnsIP, Selector: map[string]string{"k8s-app": "kube-dns"},
			Ports: []corev1.ServicePort{{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromString("dns")}},
		},
	}
	await.NoError(t, func() error { // there is a range of addresses a moment later
		_, err := client.CoreV1().Services(metav1.NamespaceSystem).Create(ctx, service, metav1.CreateOptions{})
		return err
	})
	await.NoError(t, func() error { // Pods need it
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	startKubeProxy(t, control)
	return kubeconfigForPods(t, control)
}

func startKubeProxy(t *testing.T, control *controlplane.ControlPlane) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "kube-proxy.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(control.KubeProxy(),
		"--proxy-mode=nftables", "--kubeconfig="+control.Kubeconfig(), "--hostname-override="+nodeName,
		"--cluster-cidr=10.244.0.0/16", "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0",
		"--conntrack-tcp-timeout-close-wait=0")
	cmd.Stdout, cmd.Stderr = log, log
	ended, err := child.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("kube-proxy said:\n%s", text[max(0, len(text)-4000):])
		}
	})
}

// kubeconfigForPods returns a kubeconfig with an address of the API server that Pods reach.
func kubeconfigForPods(t *testing.T, control *controlplane.ControlPlane) (file string) {
	t.Helper()
	l, err := net.Listen("tcp", nodens.NodeIP+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go control.Forward(l)
	config, err := clientcmd.LoadFromFile(control.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.TLSServerName = "https://"+l.Addr().String(), "127.0.0.1"
	}
	file = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// shippedProbe is the readiness probe and the grace period of the manifests.
func shippedProbe(t *testing.T) (probe, time.Duration) {
	t.Helper()
	text, err := os.ReadFile(repository + "/deploy/kustomize/base/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.Deployment
	if err := yaml.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	pod := d.Spec.Template.Spec
	r := pod.Containers[0].ReadinessProbe
	seconds := func(n int32) time.Duration { return time.Duration(n) * time.Second }
	const admin = "9153"
	return probe{admin, r.HTTPGet.Path, seconds(r.PeriodSeconds), seconds(r.TimeoutSeconds), int(r.FailureThreshold)},
		seconds(int32(*pod.TerminationGracePeriodSeconds))
}
