package rolling

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"

	"portolan.dev/portolan/test/child"
	"portolan.dev/portolan/test/e2e/nodens"
	"portolan.dev/portolan/test/namespace"
)

// probe is a readiness probe over HTTP.
type probe struct {
	port, path       string
	period, timeout  time.Duration
	failureThreshold int
}

// pod is a Pod of the server and its container.
type pod struct {
	*corev1.Pod
	address string
	cmd     *exec.Cmd
	ended   <-chan struct{} // closed when the container has ended
	ready   atomic.Bool
}

// relist is how long a kubelet may take to notice that a container has ended: the interval
// of its Pod lifecycle event generator.
const relist = time.Second

// kubelet runs Pods.
type kubelet struct {
	t     *testing.T
	pods  typedv1.PodInterface
	probe probe
	grace time.Duration
	args  []string // of the container
	made  int
}

// run starts a Pod and returns when it is ready.
func (k *kubelet) run() *pod {
	k.t.Helper()
	k.made++
	p := &pod{address: fmt.Sprintf("10.244.0.%d", k.made)}
	made, err := k.pods.Create(k.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("portolan-%d", k.made), Labels: map[string]string{"k8s-app": "kube-dns"}},
		Spec: corev1.PodSpec{
			NodeName:                      nodeName,
			TerminationGracePeriodSeconds: new(int64(k.grace / time.Second)),
			Containers: []corev1.Container{{
				Name: "portolan", Image: "portolan",
				Ports: []corev1.ContainerPort{{Name: "dns", ContainerPort: 53, Protocol: corev1.ProtocolUDP}},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		k.t.Fatal(err)
	}
	p.Pod = made
	if err := k.start(p); err != nil {
		k.t.Fatal(err)
	}
	ready := make(chan struct{})
	go k.probeAll(p, ready)
	select {
	case <-ready:
	case <-p.ended:
		k.t.Fatalf("the container of %s ended", p.Name)
	case <-time.After(time.Minute):
		k.t.Fatalf("%s does not become ready", p.Name)
	}
	return p
}

// start starts the container in a network namespace that is linked to the node's.
func (k *kubelet) start(p *pod) error {
	log, err := os.Create(filepath.Join(k.t.TempDir(), p.Name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	// The shell waits until the network is there.
	p.cmd = exec.Command("sh", append([]string{"-c", `read -r _ && exec "$@"`, "sh"}, k.args...)...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	begin, err := p.cmd.StdinPipe()
	if err != nil {
		return err
	}
	if p.ended, err = child.Start(p.cmd); err != nil {
		return err
	}
	k.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.ended
		if text, err := os.ReadFile(log.Name()); err == nil && k.t.Failed() {
			k.t.Logf("%s said:\n%s", p.Name, text)
		}
	})
	link := fmt.Sprintf("pod%d", k.made)
	err = namespace.IP(
		fmt.Sprintf("link add %s type veth peer name eth0 netns %d", link, p.cmd.Process.Pid),
		"address add "+nodens.GatewayIP+"/32 dev "+link, "link set "+link+" up", "route add "+p.address+"/32 dev "+link,
	)
	if err != nil {
		return err
	}
	for _, line := range []string{
		"link set lo up", "address add " + p.address + "/32 dev eth0", "link set eth0 up",
		"route add " + nodens.GatewayIP + " dev eth0", "route add default via " + nodens.GatewayIP,
	} {
		in := fmt.Sprintf("nsenter --net=/proc/%d/ns/net ip %s", p.cmd.Process.Pid, line)
		if out, err := exec.Command("sh", "-c", in).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", in, err, out)
		}
	}
	_, err = begin.Write([]byte("\n"))
	return err
}

// probeAll probes the Pod until its container ends, and reports each change of readiness.
func (k *kubelet) probeAll(p *pod, ready chan struct{}) {
	tick := time.NewTicker(k.probe.period)
	defer tick.Stop()
	for failures := 0; ; {
		switch succeeds := k.try(p); {
		case succeeds && !p.ready.Load():
			failures = 0
			k.report(p, corev1.ConditionTrue)
			close(ready)
		case succeeds:
			failures = 0
		default:
			if failures++; failures == k.probe.failureThreshold && p.ready.Load() {
				k.report(p, corev1.ConditionFalse)
			}
		}
		select {
		case <-p.ended:
			return
		case <-tick.C:
		}
	}
}

func (k *kubelet) try(p *pod) bool {
	client := http.Client{Timeout: k.probe.timeout, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + net.JoinHostPort(p.address, k.probe.port) + k.probe.path)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// report writes the Pod's readiness.
func (k *kubelet) report(p *pod, status corev1.ConditionStatus) {
	ctx := context.WithoutCancel(k.t.Context())
	p.ready.Store(status == corev1.ConditionTrue)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now, err := k.pods.Get(ctx, p.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.Status.Phase, now.Status.PodIP = corev1.PodRunning, p.address
		now.Status.PodIPs = []corev1.PodIP{{IP: p.address}}
		now.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now()},
			{Type: corev1.ContainersReady, Status: status, LastTransitionTime: metav1.Now()},
		}
		_, err = k.pods.UpdateStatus(ctx, now, metav1.UpdateOptions{})
		return err
	})
	if err != nil && k.t.Context().Err() == nil {
		k.t.Errorf("status of %s: %v", p.Name, err)
	}
}

// end deletes the Pod: SIGTERM, SIGKILL after the grace period, and no Pod any more when
// the kubelet knows that its container has ended.
func (k *kubelet) end(p *pod) (took time.Duration) {
	k.t.Helper()
	if err := k.pods.Delete(k.t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
		k.t.Fatal(err)
	}
	began := time.Now()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // an error shows as the end
	select {
	case <-p.ended:
	case <-time.After(k.grace):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
	took = time.Since(began)
	time.Sleep(relist)
	if p.ready.Load() {
		k.report(p, corev1.ConditionFalse)
	}
	k.remove(p)
	return took
}

// remove deletes the Pod from the API.
func (k *kubelet) remove(p *pod) {
	k.t.Helper()
	if err := k.pods.Delete(k.t.Context(), p.Name, *metav1.NewDeleteOptions(0)); err != nil {
		k.t.Error(err)
	}
}
