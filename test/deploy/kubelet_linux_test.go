package deploy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"

	"portolan.dev/portolan/test/e2e/container"
	"portolan.dev/portolan/test/e2e/controlplane"
	"portolan.dev/portolan/test/e2e/process"
)

// nodeName is the node that the kubelet is of. All Pods run there.
const nodeName = "node-1"

// kubelet runs Pods as scheduler, kubelet and container runtime do: it binds them to
// its node, gives each an address and a network, mounts its volumes and its account's
// token, runs its container with the arguments, the user and the capabilities that it
// asks for, reports what its readiness probe says, and ends it in the order of Pod
// termination (preStop, SIGTERM, the grace period).
//
// It pulls no images: all containers are of the image of Portolan, which poses as
// CoreDNS where it gets CoreDNS' arguments. It probes sooner than a kubelet, has one
// container per Pod, and knows neither liveness probes nor limits.
type kubelet struct {
	control *controlplane.ControlPlane
	image   *container.Image
	dir     string // for volumes and logs

	mu      sync.Mutex
	pods    map[types.UID]*localPod
	running sync.WaitGroup
}

// localPod is a Pod that the kubelet runs.
type localPod struct {
	*corev1.Pod
	address string
	network *container.Network
	deleted chan struct{} // closed when the Pod is to end, after grace is set
	grace   time.Duration
	ending  bool
	process *process.Process
}

// newKubelet makes the node. The kubelet runs what observe gets, until the test ends.
func newKubelet(t *testing.T, control *controlplane.ControlPlane, image *container.Image) *kubelet {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	if _, err := control.Client().CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return &kubelet{control: control, image: image, dir: t.TempDir(), pods: make(map[types.UID]*localPod)}
}

// observe runs a new Pod, and ends one that is deleted.
func (k *kubelet) observe(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.pods[pod.UID]
	if p == nil && pod.DeletionTimestamp == nil {
		p = &localPod{Pod: pod, address: fmt.Sprintf("10.244.0.%d", len(k.pods)+1), deleted: make(chan struct{})}
		k.pods[pod.UID] = p
		k.running.Go(func() {
			if err := k.run(t.Context(), p); err != nil && t.Context().Err() == nil {
				t.Errorf("Pod %s: %v", pod.Name, err)
			}
		})
	}
	if p != nil && pod.DeletionTimestamp != nil && !p.ending {
		p.ending, p.grace = true, time.Duration(*pod.DeletionGracePeriodSeconds)*time.Second
		close(p.deleted)
	}
}

// at returns the Pod with an address.
func (k *kubelet) at(address string) *localPod {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		if p.address == address {
			return p
		}
	}
	return nil
}

// run runs a Pod from its start to its end.
func (k *kubelet) run(ctx context.Context, p *localPod) error {
	pods := k.control.Client().CoreV1().Pods(p.Namespace)
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: nodeName},
	}
	if err := pods.Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
		return err
	}
	network, stop, err := k.connect()
	if err != nil {
		return err
	}
	defer stop()
	k.mu.Lock()
	p.network = network
	k.mu.Unlock()
	if p.process, err = k.start(ctx, p); err != nil {
		return err
	}
	defer p.process.Stop(0)
	for ready, first := false, true; ; first = false {
		if now := p.probe(ctx); now != ready || first {
			ready = now
			if err := k.report(ctx, p, ready); err != nil {
				return err
			}
		}
		select {
		case <-p.deleted:
			return k.terminate(ctx, p)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		if !p.process.Running() {
			return fmt.Errorf("the container ended: %s", p.process.LastLogged())
		}
	}
}

// connect makes a network in which the Service of the API server is reached until stop
// is called.
func (k *kubelet) connect() (network *container.Network, stop func(), err error) {
	address := k.control.ServiceAddress().String()
	if network, err = container.NewNetwork(address); err != nil {
		return nil, nil, err
	}
	api, err := network.Listen(net.JoinHostPort(address, "443"))
	if err != nil {
		network.Close()
		return nil, nil, err
	}
	var running sync.WaitGroup
	running.Go(func() { k.control.Forward(api) })
	return network, func() {
		api.Close()
		running.Wait()
	}, nil
}

// close waits until no Pod runs and closes their networks, which clients may still use
// when a Pod has ended.
func (k *kubelet) close() {
	k.running.Wait()
	for _, p := range k.pods {
		if p.network != nil {
			p.network.Close()
		}
	}
}

// start starts the container of a Pod.
func (k *kubelet) start(ctx context.Context, p *localPod) (*process.Process, error) {
	c := p.Spec.Containers[0]
	var granted []string
	for _, name := range c.SecurityContext.Capabilities.Add {
		granted = append(granted, string(name))
	}
	mounts, err := k.mounts(ctx, p)
	if err != nil {
		return nil, err
	}
	env := []string{"PATH=/", "KUBERNETES_SERVICE_HOST=" + k.control.ServiceAddress().String(), "KUBERNETES_SERVICE_PORT=443"}
	for _, e := range c.Env {
		if e.ValueFrom == nil || e.ValueFrom.FieldRef == nil || e.ValueFrom.FieldRef.FieldPath != "spec.nodeName" {
			return nil, fmt.Errorf("env: %v is of no kind that this kubelet knows", e)
		}
		env = append(env, e.Name+"="+nodeName)
	}
	made, err := container.Config{
		Root:            k.image.Root,
		Mounts:          mounts,
		Args:            append([]string{k.image.Entrypoint}, c.Args...),
		Env:             env,
		User:            k.image.User,
		Capabilities:    granted,
		NoNewPrivileges: !*c.SecurityContext.AllowPrivilegeEscalation,
		Network:         p.network,
	}.Process()
	if err != nil {
		return nil, err
	}
	made.Log = filepath.Join(k.dir, p.Name+".log")
	return made, made.Start()
}

// mounts makes the directories of the Pod's volumes, and the node's resolv.conf: no
// resolver answers there.
func (k *kubelet) mounts(ctx context.Context, p *localPod) ([]container.Mount, error) {
	resolv := filepath.Join(k.dir, p.Name+".resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver "+container.NodeAddress+"\n"), 0o644); err != nil {
		return nil, err
	}
	mounts := []container.Mount{{Source: resolv, Target: "/etc/resolv.conf"}}
	for _, m := range p.Spec.Containers[0].VolumeMounts {
		at := slices.IndexFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		dir := filepath.Join(k.dir, p.Name+"."+m.Name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
		files, err := k.files(ctx, p, p.Spec.Volumes[at])
		if err != nil {
			return nil, err
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				return nil, err
			}
		}
		if !m.ReadOnly {
			if err := os.Chmod(dir, 0o777); err != nil {
				return nil, err
			}
		}
		mounts = append(mounts, container.Mount{Source: dir, Target: m.MountPath, Writable: !m.ReadOnly})
	}
	return mounts, nil
}

// files returns what is in a volume.
func (k *kubelet) files(ctx context.Context, p *localPod, v corev1.Volume) (map[string]string, error) {
	client := k.control.Client().CoreV1()
	switch {
	case v.EmptyDir != nil:
		return nil, nil
	case v.ConfigMap != nil:
		m, err := client.ConfigMaps(p.Namespace).Get(ctx, v.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return m.Data, nil
	case v.Projected != nil: // the account, which the API server adds to Pods
		token, err := client.ServiceAccounts(p.Namespace).
			CreateToken(ctx, p.Spec.ServiceAccountName, new(authenticationv1.TokenRequest), metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		authority := string(k.control.RESTConfig().CAData)
		return map[string]string{"token": token.Status.Token, "ca.crt": authority, "namespace": p.Namespace}, nil
	}
	return nil, fmt.Errorf("volume %s is of no kind that this kubelet knows", v.Name)
}

// probe reports whether the readiness probe succeeds.
func (p *localPod) probe(ctx context.Context) bool {
	c := p.Spec.Containers[0]
	client := http.Client{
		Timeout:   time.Second,
		Transport: &http.Transport{DialContext: p.network.Dial, DisableKeepAlives: true},
	}
	get := c.ReadinessProbe.HTTPGet
	url := "http://" + net.JoinHostPort(container.PodAddress, portNumber(c, get.Port)) + get.Path
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// portNumber is the number of a port that may be given by its name.
func portNumber(c corev1.Container, port intstr.IntOrString) string {
	for _, p := range c.Ports {
		if p.Name == port.String() {
			return strconv.Itoa(int(p.ContainerPort))
		}
	}
	return port.String()
}

// report writes the Pod's status.
func (k *kubelet) report(ctx context.Context, p *localPod, ready bool) error {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	pods := k.control.Client().CoreV1().Pods(p.Namespace)
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		pod, err := pods.Get(ctx, p.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pod.Status.Phase = corev1.PodRunning
		pod.Status.PodIP, pod.Status.PodIPs = p.address, []corev1.PodIP{{IP: p.address}}
		pod.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now()},
			{Type: corev1.ContainersReady, Status: status, LastTransitionTime: metav1.Now()},
		}
		_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		return err
	})
}

// terminate ends the container and removes the Pod.
func (k *kubelet) terminate(ctx context.Context, p *localPod) error {
	grace := p.grace
	if hook := p.Spec.Containers[0].Lifecycle; hook != nil && hook.PreStop != nil {
		if hook.PreStop.Sleep == nil {
			return fmt.Errorf("preStop: %v is of no kind that this kubelet knows", hook.PreStop)
		}
		pause := time.Duration(hook.PreStop.Sleep.Seconds) * time.Second
		grace -= pause
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	p.process.Stop(grace)
	now := metav1.NewDeleteOptions(0)
	now.Preconditions = metav1.NewUIDPreconditions(string(p.UID))
	return k.control.Client().CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, *now)
}
