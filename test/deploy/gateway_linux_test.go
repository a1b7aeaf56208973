package deploy

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	diffs "github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"portolan.dev/portolan/internal/support/testcert"
	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/e2e/container"
	"portolan.dev/portolan/test/e2e/controlplane"
	"portolan.dev/portolan/test/e2e/controlplane/controlplanetest"
	"portolan.dev/portolan/test/e2e/process"
)

// edge is what the gateway serves: at the address of the Pod's node a program answers, which is the endpoint of the
// Service web.
const edge = `
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {ports: [{name: http, port: 80}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 3000, protocol: TCP}]
endpoints: [{addresses: [192.0.2.1], conditions: {ready: true}}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: shop}
spec:
  ingressClassName: portolan
  tls: [{hosts: [ingress.example], secretName: web}]
  rules:
    - host: ingress.example
      http:
        paths:
          - {path: /, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}}
          - {path: /gone, pathType: Prefix, backend: {service: {name: gone, port: {number: 80}}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: public, namespace: shop}
spec: {gatewayClassName: portolan, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: shop}
spec:
  parentRefs: [{name: public}]
  hostnames: [route.example]
  rules: [{backendRefs: [{name: web, port: 80}]}]
`

// edgeAddress is that of the load balancer.
const edgeAddress = "192.0.2.80"

// TestGatewayServes runs a Pod of the chart's Deployment, with its account and no rights but the chart's, against a
// real API server: it serves an Ingress, also over TLS, and an HTTPRoute when the cluster has the kind, writes
// their statuses and an Event, and ends as it is told.
func TestGatewayServes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a control plane, which is built first where it never was")
	}
	image := buildImage(t)
	control := controlplanetest.Start(t, controlplane.Options{ControllerManager: true}) // Pods get tokens of their accounts
	all := gatewayWith(t, "{gateway: {enabled: true, gatewayClass: {create: true}, "+
		"config: {tracing: {endpoint: 'http://192.0.2.1:4318/v1/traces'}}}, config: {lameduck: 1s}}")
	template := gatewayPods(t, all)
	delete(all, "Deployment/"+gatewayName) // of whose Pods the test runs one
	client := newApplier(t, control.RESTConfig(), new(warnings))
	manifests, later := objects{}, gatewayDefinitions(t)
	manifests.read(t, edge)
	maps.Copy(manifests, all)
	for key, o := range manifests {
		if strings.HasPrefix(o["apiVersion"].(string), "gateway.networking.k8s.io/") {
			later[key] = o
			delete(manifests, key)
		}
	}
	client.install(t, manifests)
	publishGateway(t, control)
	createCertificate(t, control)

	k := newKubelet(t, control, image)
	t.Cleanup(k.close)
	pod := k.runPod(t, template)
	serveWeb(t, pod.network)
	g := gatewayAt{pod.network}
	for _, url := range []string{"http://ingress.example/", "https://ingress.example/"} {
		await.NoError(t, func() error { return g.get(url, http.StatusOK, "web /") })
	}
	await.NoError(t, func() error { return g.get("http://gateway:9153/readyz", http.StatusOK, "ok") })
	client.install(t, later)
	await.NoError(t, func() error { return g.get("http://route.example/", http.StatusOK, "web /") })
	await.NoError(t, func() error { return g.get("http://ingress.example/gone", http.StatusServiceUnavailable, "") })
	await.NoError(t, func() error { return g.get("http://nowhere.example/", http.StatusNotFound, "") })
	for kind, want := range map[string]map[string]string{
		"GatewayClass/portolan": {"Accepted": "True", "SupportedVersion": "True"},
		"Gateway/public":        {"Accepted": "True", "Programmed": "True"},
	} {
		await.NoError(t, func() error { return client.conditions(t.Context(), later[kind], want) })
	}
	await.NoError(t, func() error { return wantEdgeAddress(t.Context(), control) })
	await.NoError(t, func() error { return client.routeAccepted(t.Context(), later["HTTPRoute/web"]) })
	await.NoError(t, func() error { return wantEvent(t.Context(), control) })
	g.raw(t, "nonsense\r\n\r\n") // is refused, which a metric counts
	await.NoError(t, func() error { return g.metrics(documentedGatewayMetrics(t)) })

	k.endPod(t, pod)
	if log := pod.process.Logged(); strings.Contains(log, "forbidden") || !strings.Contains(log, `"msg":"stopped"`) {
		t.Errorf("a right is missing, or it did not end as it was told:\n%s", log)
	}
}

// gatewayDefinitions returns the CustomResourceDefinitions of Gateway API that Portolan is tested with.
func gatewayDefinitions(t *testing.T) objects {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "config/crd/standard/gateway.*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("definitions in %s: %v, %v", dir, files, err)
	}
	all := objects{}
	for _, file := range files {
		all.read(t, readFile(t, file))
	}
	for key, o := range all {
		if o["kind"] != "CustomResourceDefinition" { // a policy about upgrades
			delete(all, key)
		}
	}
	return all
}

// install applies objects, Namespaces first. What is missing may be there a little later, such as a kind that has
// just been defined.
func (a *applier) install(t *testing.T, all objects) {
	t.Helper()
	keys := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		isNamespace := func(key string) int { return -strings.Count(key, "Namespace/") }
		return cmp.Or(isNamespace(a)-isNamespace(b), strings.Compare(a, b))
	})
	for _, key := range keys {
		await.NoError(t, func() error {
			a.mapper.Reset()
			if err := a.apply(t.Context(), all[key]); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			return nil
		})
	}
}

// publishGateway gives the gateway's Service an address, as a load balancer's controller does.
func publishGateway(t *testing.T, control *controlplane.ControlPlane) {
	t.Helper()
	services := control.Client().CoreV1().Services(metav1.NamespaceSystem)
	await.NoError(t, func() error {
		s, err := services.Get(t.Context(), gatewayName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: edgeAddress}}
		_, err = services.UpdateStatus(t.Context(), s, metav1.UpdateOptions{})
		return err
	})
}

// createCertificate makes the Secret with the certificate of the Ingress.
func createCertificate(t *testing.T, control *controlplane.ControlPlane) {
	t.Helper()
	made, err := testcert.New("ingress.example", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	certificate, key := made.PEM()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key},
	}
	if _, err := control.Client().CoreV1().Secrets("shop").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// runPod creates a Pod of a template in kube-system and runs it; it returns when the container was started.
func (k *kubelet) runPod(t *testing.T, template corev1.PodTemplateSpec) *localPod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Name = "pod"
	var made *corev1.Pod
	await.NoError(t, func() (err error) { // the account is not known to all of the API server at once
		made, err = k.control.Client().CoreV1().Pods(metav1.NamespaceSystem).Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	})
	k.observe(t, made)
	var running *localPod
	await.NoError(t, func() error {
		k.mu.Lock()
		defer k.mu.Unlock()
		if running = k.pods[made.UID]; running.network == nil {
			return errors.New("the Pod has no network")
		}
		return nil
	})
	return running
}

// endPod deletes a Pod and waits until it has ended.
func (k *kubelet) endPod(t *testing.T, p *localPod) {
	t.Helper()
	pods := k.control.Client().CoreV1().Pods(p.Namespace)
	if err := pods.Delete(t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ending, err := pods.Get(t.Context(), p.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	k.observe(t, ending)
	k.running.Wait()
}

// serveWeb serves HTTP at the endpoint of edge until the test ends.
func serveWeb(t *testing.T, network *container.Network) {
	t.Helper()
	l, err := network.Listen(net.JoinHostPort(container.NodeAddress, "3000"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "web ", r.URL.Path) }),
	}
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		server.Close()
		running.Wait()
	})
}

// gatewayAt is a client of the gateway of a Pod, with a connection for each request.
type gatewayAt struct{ network *container.Network }

// servicePorts are the ports of a Pod of the Deployment by those of the Service, and that of metrics.
var servicePorts = map[string]string{"80": "8080", "443": "8443", "9153": "9153"}

func (g gatewayAt) fetch(url string, ports map[string]string) (status int, body string, err error) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // self-signed
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return g.network.Dial(ctx, network, net.JoinHostPort(container.PodAddress, ports[port]))
		},
	}}
	response, err := client.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// get returns an error unless the response to a request has this status and begins so.
func (g gatewayAt) get(url string, status int, begins string) error {
	got, body, err := g.fetch(url, servicePorts)
	if err != nil {
		return err
	}
	if got != status || !strings.HasPrefix(body, begins) {
		return fmt.Errorf("GET %s: %d %q, want %d %q", url, got, body, status, begins)
	}
	return nil
}

// raw sends what is no request.
func (g gatewayAt) raw(t *testing.T, text string) {
	t.Helper()
	conn, err := g.network.Dial(t.Context(), "tcp", net.JoinHostPort(container.PodAddress, servicePorts["80"]))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, conn)
}

// metrics returns an error unless the gateway has the metrics of the documentation, and no others of its own.
func (g gatewayAt) metrics(want []string) error {
	_, body, err := g.fetch("http://gateway:9153/metrics", servicePorts)
	if err != nil {
		return err
	}
	var got []string
	for _, m := range metricType.FindAllStringSubmatch(body, -1) {
		if strings.HasPrefix(m[1], "portolan_gateway_") {
			got = append(got, m[1])
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := diffs.Diff(want, got); diff != "" {
		return fmt.Errorf("metrics (-gateway.md +/metrics):\n%s", diff)
	}
	return nil
}

// conditions returns an error unless an object has the conditions.
func (a *applier) conditions(ctx context.Context, o object, want map[string]string) error {
	u, err := a.get(ctx, o)
	if err != nil {
		return err
	}
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	got := map[string]string{}
	for _, c := range all {
		condition := c.(map[string]any)
		if kind := condition["type"].(string); want[kind] != "" {
			got[kind] = condition["status"].(string)
		}
	}
	if diff := diffs.Diff(want, got); diff != "" {
		return fmt.Errorf("conditions of %s (-want +got):\n%s%v", o.key(), diff, all)
	}
	return nil
}

// routeAccepted returns an error unless the first parent of a route accepts it.
func (a *applier) routeAccepted(ctx context.Context, route object) error {
	u, err := a.get(ctx, route)
	if err != nil {
		return err
	}
	parents, _, _ := unstructured.NestedSlice(u.Object, "status", "parents")
	if len(parents) != 1 || !strings.Contains(fmt.Sprint(parents[0]), "status:True type:Accepted") {
		return fmt.Errorf("parents of the route: %v", parents)
	}
	return nil
}

// get reads an object.
func (a *applier) get(ctx context.Context, o object) (*unstructured.Unstructured, error) {
	resource, err := a.resource(o)
	if err != nil {
		return nil, err
	}
	return resource.Get(ctx, o.name(), metav1.GetOptions{})
}

// wantEdgeAddress returns an error unless the Ingress has the address of the gateway's Service.
func wantEdgeAddress(ctx context.Context, control *controlplane.ControlPlane) error {
	ingress, err := control.Client().NetworkingV1().Ingresses("shop").Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if all := ingress.Status.LoadBalancer.Ingress; len(all) != 1 || all[0].IP != edgeAddress {
		return fmt.Errorf("addresses of the Ingress: %v, want %s", all, edgeAddress)
	}
	return nil
}

// wantEvent returns an error unless there is an Event of the path whose Service is missing.
func wantEvent(ctx context.Context, control *controlplane.ControlPlane) error {
	all, err := control.Client().EventsV1().Events("shop").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, e := range all.Items {
		if e.Regarding.Kind == "Ingress" && e.Regarding.Name == "web" && strings.Contains(e.Note, "gone") {
			return nil
		}
	}
	return fmt.Errorf("no Event of the Ingress in %d", len(all.Items))
}

// TestGatewayHandsOver runs two processes of a gateway on a host, as Pods of the chart's DaemonSet and as instances of
// the systemd unit, the second of which replaces the first: ports are never closed.
func TestGatewayHandsOver(t *testing.T) {
	t.Parallel()
	image := buildImage(t)
	t.Run("DaemonSet", func(t *testing.T) {
		t.Parallel()
		all := gatewayWith(t, "{gateway: {enabled: true, kind: DaemonSet}, config: {lameduck: 1s}}")
		pod := as[appsv1.DaemonSet](t, all, "DaemonSet").Spec.Template.Spec
		c := onlyContainer(t, pod)
		var granted []string
		for _, capability := range c.SecurityContext.Capabilities.Add {
			granted = append(granted, string(capability))
		}
		probe := c.ReadinessProbe.Exec.Command
		newGatewayHost(t, image, gatewayProcess{
			user: int(*c.SecurityContext.RunAsUser), capabilities: granted, args: c.Args, config: configText(t, all),
			handover: gatewaySettings(t, all).Handover, probes: probe[len(probe)-1],
			grace: seconds(int32(*pod.TerminationGracePeriodSeconds)),
		}).testReplace(t)
	})
	t.Run("systemd", func(t *testing.T) {
		t.Parallel()
		unit, text := readUnit(t, "portolan-gateway@.service"), readFile(t, filepath.Join(deployDir, "systemd", "gateway.yaml"))
		cfg := readConfig(t, text)
		args := strings.Fields(unit["ExecStart"])
		const dynamicUser = 61184 // the first of systemd's
		newGatewayHost(t, image, gatewayProcess{
			user: dynamicUser, capabilities: []string{strings.TrimPrefix(unit["AmbientCapabilities"], "CAP_")},
			args:   args[1:slices.Index(args, "--kubeconfig")],
			config: text, handover: cfg.Gateway.Handover, probes: cfg.Admin.Probes[0],
			grace: unitSeconds(t, unit["TimeoutStopSec"]),
		}).testReplace(t)
	})
}

// gatewayProcess is how a host runs a gateway.
type gatewayProcess struct {
	user             int
	capabilities     []string
	args             []string
	config           string // at the path that follows --config
	handover, probes string // the sockets
	grace            time.Duration
}

// gatewayHost is a host that runs gateways, which read manifests.
type gatewayHost struct {
	gatewayProcess
	image   *container.Image
	network *container.Network
	dir     string
}

// newGatewayHost makes a host, with the endpoint of edge on its network.
func newGatewayHost(t *testing.T, image *container.Image, p gatewayProcess) gatewayHost {
	t.Helper()
	network, err := container.NewNetwork()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { network.Close() })
	serveWeb(t, network)
	h := gatewayHost{gatewayProcess: p, image: image, network: network, dir: t.TempDir()}
	// Users must be able to search the directories above.
	if err := errors.Join(os.Chmod(filepath.Dir(h.dir), 0o755), os.Chmod(h.dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"config/" + filepath.Base(h.configFile()): p.config, "shop/shop.yaml": edge} {
		file := filepath.Join(h.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	h.ownDir(t, "handover")
	return h
}

func (h gatewayHost) configFile() string { return h.args[slices.Index(h.args, "--config")+1] }

// ownDir makes a directory that the gateway alone can use.
func (h gatewayHost) ownDir(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(h.dir, name)
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, h.user, h.user)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// testReplace replaces a gateway while clients connect.
func (h gatewayHost) testReplace(t *testing.T) {
	t.Helper()
	first := h.start(t, "first")
	g := gatewayAt{h.network}
	var ended atomic.Bool
	var served atomic.Int64
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			for !ended.Load() {
				status, body, err := g.fetch("http://ingress.example/", map[string]string{"80": "80"})
				if err != nil || status != http.StatusOK {
					t.Errorf("request %d: %d %q %v", served.Load(), status, body, err)
					return
				}
				served.Add(1)
			}
		})
	}
	second := h.start(t, "second")
	first.Stop(h.grace)
	before := served.Load()
	await.NoError(t, func() error {
		if served.Load() < before+clients+1 { // the second alone serves
			return errors.New("no request was served since")
		}
		return nil
	})
	ended.Store(true)
	running.Wait()
	if log := second.Logged(); !strings.Contains(log, "ports of the process before are taken over") {
		t.Errorf("the second says:\n%s", log)
	}
	if state := first.State(); state.ExitCode() != 0 {
		t.Errorf("the first ended with %v and says:\n%s", state, first.Logged())
	}
}

// start starts a gateway, and returns when it is ready.
func (h gatewayHost) start(t *testing.T, name string) *process.Process {
	t.Helper()
	own := h.ownDir(t, name)
	probes := strings.TrimPrefix(h.probes, "unix:")
	p, err := container.Config{
		Root: h.image.Root, Env: []string{"NODE_NAME=" + nodeName}, Network: h.network,
		Args: slices.Concat([]string{h.image.Entrypoint}, h.args, []string{"--manifests", "/shop"}),
		User: h.user, Capabilities: h.capabilities, NoNewPrivileges: true,
		Mounts: []container.Mount{
			{Source: filepath.Join(h.dir, "shop"), Target: "/shop"},
			{Source: filepath.Join(h.dir, "config"), Target: filepath.Dir(h.configFile())},
			{Source: filepath.Join(h.dir, "handover"), Target: filepath.Dir(h.handover), Writable: true},
			{Source: own, Target: filepath.Dir(probes), Writable: true},
		},
	}.Process()
	if err != nil {
		t.Fatal(err)
	}
	p.Log = filepath.Join(h.dir, name+".log")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(0) })
	program := filepath.Join(h.image.Root, h.image.Entrypoint)
	at := "unix:" + filepath.Join(own, filepath.Base(probes)) // where the host has it
	await.NoError(t, func() error {
		if out, err := exec.CommandContext(t.Context(), program, "probe", "ready", at).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s: %s", err, out, p.LastLogged())
		}
		return nil
	})
	return p
}
