package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	toolscache "k8s.io/client-go/tools/cache"

	"portolan.dev/portolan/test/e2e/controlplane"
	"portolan.dev/portolan/test/e2e/controlplane/controlplanetest"
	"portolan.dev/portolan/test/e2e/kubeadm"
)

// order is a documented order of commands.
type order struct {
	claim string
	// takeOver begins with CoreDNS alone and ends with Portolan alone behind the
	// Service kube-dns; goBack is the way back.
	takeOver, goBack []string
}

const (
	awaitPortolan = "kubectl -n kube-system rollout status deployment portolan"
	awaitCoreDNS  = "kubectl -n kube-system rollout status deployment coredns"
	stopCoreDNS   = "kubectl -n kube-system scale deployment coredns --replicas 0"
	startCoreDNS  = "kubectl -n kube-system scale deployment coredns --replicas 2"
)

// orders are those of docs/from-coredns.md and docs/operate.md.
var orders = []order{
	{
		"kubectl apply, next to CoreDNS first",
		[]string{"kubectl apply -k deploy/kustomize/beside", awaitPortolan, "kubectl apply -k deploy/kustomize/base", awaitPortolan, stopCoreDNS},
		[]string{startCoreDNS, awaitCoreDNS, "kubectl apply -k deploy/kustomize/beside", awaitPortolan, "kubectl delete -k deploy/kustomize/beside"},
	},
	{
		"kubectl apply, at once",
		[]string{"kubectl apply -k deploy/kustomize/base", awaitPortolan, stopCoreDNS},
		[]string{startCoreDNS, awaitCoreDNS, "kubectl delete -k deploy/kustomize/base"},
	},
	{
		"kubectl apply --server-side, next to CoreDNS first",
		[]string{
			"kubectl apply --server-side -k deploy/kustomize/beside", awaitPortolan,
			"kubectl apply --server-side -k deploy/kustomize/base", awaitPortolan, stopCoreDNS,
		},
		[]string{
			startCoreDNS, awaitCoreDNS, "kubectl apply --server-side -k deploy/kustomize/beside", awaitPortolan,
			"kubectl delete -k deploy/kustomize/beside",
		},
	},
	{
		"kubectl apply --server-side, at once",
		[]string{"kubectl apply --server-side -k deploy/kustomize/base", awaitPortolan, stopCoreDNS},
		[]string{startCoreDNS, awaitCoreDNS, "kubectl delete -k deploy/kustomize/base"},
	},
	{
		"helm, next to CoreDNS first",
		[]string{
			"helm install portolan deploy/helm/portolan --namespace kube-system --values deploy/helm/portolan/values-beside.yaml", awaitPortolan,
			"helm upgrade portolan deploy/helm/portolan --namespace kube-system --reset-then-reuse-values --set clusterDNS.enabled=true", awaitPortolan,
			stopCoreDNS,
		},
		[]string{
			startCoreDNS, awaitCoreDNS,
			"helm upgrade portolan deploy/helm/portolan --namespace kube-system --reset-then-reuse-values --set clusterDNS.enabled=false", awaitPortolan,
			"helm uninstall portolan --namespace kube-system",
		},
	},
	{
		"helm, at once",
		[]string{"helm install portolan deploy/helm/portolan --namespace kube-system", awaitPortolan, stopCoreDNS},
		[]string{startCoreDNS, awaitCoreDNS, "helm uninstall portolan --namespace kube-system"},
	},
}

// TestTakeover: in a cluster that kubeadm made, Portolan takes over the Service
// kube-dns from CoreDNS and gives it back in every documented order, with the commands
// that the documentation shows, and a client that resolves all the time loses no
// lookup. The log has the transcript.
func TestTakeover(t *testing.T) { //nolint:tparallel // the subtests are steps in one cluster
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a control plane, which is built first where it never was")
	}
	image := buildImage(t)
	control := controlplanetest.Start(t, controlplane.Options{ControllerManager: true})
	c := newCluster(t, control, newKubelet(t, control, image))
	before := c.service(t)
	for _, o := range orders {
		t.Run(o.claim, func(t *testing.T) {
			for _, command := range o.takeOver {
				c.run(t, command)
			}
			c.serve(t, "portolan")
			c.wantSelected(t)
			for _, command := range o.goBack {
				c.run(t, command)
			}
			c.serve(t, "coredns")
			c.wantNothing(t)
			c.wantService(t, before)
		})
	}
	t.Run("an installer puts CoreDNS back", func(t *testing.T) { c.testInstaller(t, before) })
	t.Run("an autoscaler sets the number of servers from now on", c.testAutoscaler)
	t.Run("the Service is made again by mistake", func(t *testing.T) { c.testServiceAgain(t, before) })
}

// testInstaller: an installer that starts CoreDNS again, and writes its Service again,
// costs no lookup.
func (c *cluster) testInstaller(t *testing.T, before *corev1.Service) {
	t.Helper()
	for _, command := range []string{"kubectl apply -k deploy/kustomize/base", awaitPortolan, stopCoreDNS} {
		c.run(t, command)
	}
	c.serve(t, "portolan")
	c.run(t, "kubectl replace -f "+c.manifests)
	c.run(t, awaitCoreDNS)
	c.awaitServers(t, "coredns", "portolan")
	c.run(t, "kubectl delete -k deploy/kustomize/base")
	c.serve(t, "coredns")
	c.wantNothing(t)
	c.wantService(t, before)
}

// testAutoscaler: an upgrade of the chart that leaves the number of servers to an
// autoscaler does not change it.
func (c *cluster) testAutoscaler(t *testing.T) {
	t.Helper()
	const upgrade = "helm upgrade portolan deploy/helm/portolan --namespace kube-system --reset-then-reuse-values --set "
	c.run(t, "helm install portolan deploy/helm/portolan --namespace kube-system")
	for i, value := range []string{"autoscaling.enabled=true", "autoscaling.enabled=false,replicas=null"} {
		scaled := int32(3 + i)
		c.run(t, fmt.Sprintf("kubectl -n kube-system scale deployment portolan --replicas %d", scaled))
		c.run(t, upgrade+value)
		d, err := c.Client().AppsV1().Deployments(metav1.NamespaceSystem).Get(t.Context(), "portolan", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := *d.Spec.Replicas; got != scaled {
			t.Errorf("after helm upgrade with %s: %d replicas, want %d as before", value, got, scaled)
		}
	}
	c.run(t, "helm uninstall portolan --namespace kube-system")
	c.serve(t, "coredns")
	c.wantNothing(t)
}

// testServiceAgain: where there is a Service kube-dns, applying another one changes
// nothing that matters, and helm refuses before it installs anything.
func (c *cluster) testServiceAgain(t *testing.T, before *corev1.Service) {
	t.Helper()
	c.run(t, "kubectl apply -k deploy/kustomize/kube-dns")
	c.run(t, "kubectl apply --server-side -k deploy/kustomize/kube-dns")
	const install = "helm install portolan deploy/helm/portolan --namespace kube-system --set clusterDNS.createService=true"
	if out, err := c.command(t, install).CombinedOutput(); err == nil || !bytes.Contains(out, []byte("exists and cannot be imported")) {
		t.Errorf("%s: %v\n%s", install, err, out)
	}
	c.serve(t, "coredns")
	c.wantNothing(t)
	c.wantService(t, before)
}

// cluster is what kubeadm leaves behind, with a node and a client on it.
type cluster struct {
	*controlplane.ControlPlane
	*lookups
	kubelet *kubelet
	tools   map[string]string // by command
	env     []string
	began   time.Time
	// manifests is the file of what kubeadm installs.
	manifests string
}

func newCluster(t *testing.T, control *controlplane.ControlPlane, k *kubelet) *cluster {
	t.Helper()
	home := t.TempDir()
	c := &cluster{
		ControlPlane: control, kubelet: k,
		tools: map[string]string{"kubectl": tool(t, "kubectl"), "helm": tool(t, "helm")},
		env:   append(os.Environ(), "KUBECONFIG="+control.Kubeconfig(), "HOME="+home, "XDG_CACHE_HOME="+home, "KUBECACHEDIR="+home),
		began: time.Now(),
	}
	ctx, cancel := context.WithCancel(t.Context())
	factory := informers.NewSharedInformerFactoryWithOptions(control.Client(), 0, informers.WithNamespace(metav1.NamespaceSystem))
	c.lookups = &lookups{
		kubelet:  k,
		services: factory.Core().V1().Services().Lister(), slices: factory.Discovery().V1().EndpointSlices().Lister(),
	}
	pods := toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { k.observe(t, o.(*corev1.Pod)) },
		UpdateFunc: func(_, o any) { k.observe(t, o.(*corev1.Pod)) },
	}
	if _, err := factory.Core().V1().Pods().Informer().AddEventHandler(pods); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	ended := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-ended
		factory.Shutdown()
		k.close()
	})
	c.installCoreDNS(t)
	go func() {
		defer close(ended)
		c.lookups.run(ctx)
	}()
	c.awaitServers(t, "coredns")
	c.since() // before the first endpoints were there
	c.failures()
	return c
}

// tool returns the file of a command that go.mod has as a tool.
func tool(t *testing.T, name string) string {
	t.Helper()
	file, err := exec.CommandContext(t.Context(), "go", "tool", "-n", name).Output()
	if err != nil {
		t.Fatalf("go tool -n %s: %v", name, err)
	}
	return strings.TrimSpace(string(file))
}

// installCoreDNS does what kubeadm does.
func (c *cluster) installCoreDNS(t *testing.T) {
	t.Helper()
	manifests, err := kubeadm.CoreDNS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.manifests = filepath.Join(t.TempDir(), "coredns.yaml")
	if err := os.WriteFile(c.manifests, []byte(manifests), 0o600); err != nil {
		t.Fatal(err)
	}
	awaitNothing(t, func() string { // the API server makes kube-system
		_, err := c.Client().CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		return ""
	})
	for _, command := range []string{"kubectl create -f " + c.manifests, awaitCoreDNS} {
		if out, err := c.command(t, command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
}

// command is a line of the documentation, run in the root of the repository.
func (c *cluster) command(t *testing.T, line string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	words := strings.Fields(line)
	cmd := exec.CommandContext(ctx, c.tools[words[0]], words[1:]...)
	cmd.Dir, cmd.Env = "../..", c.env
	return cmd
}

// run runs a command and reports what it cost.
func (c *cluster) run(t *testing.T, line string) {
	t.Helper()
	cmd := c.command(t, line)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", line, err, &said)
	}
	c.log(t, "$ "+line)
}

// serve waits until a Deployment alone has endpoints, and has answered a while.
func (c *cluster) serve(t *testing.T, who string) {
	t.Helper()
	const enough = 500
	c.awaitServers(t, who)
	c.log(t, "# the endpoints are those of "+who+" alone")
	c.awaitAnswers(t, who, enough)
	c.log(t, "# "+who+" serves")
}

// log writes a line of the transcript; a lost lookup fails the test.
func (c *cluster) log(t *testing.T, line string) {
	t.Helper()
	counted := c.since()
	t.Logf("%5.1f s  %s\n         %s", time.Since(c.began).Seconds(), line, counted)
	if counted.lost > 0 {
		t.Errorf("%s: %d of %d lookups lost, such as:\n%s", line, counted.lost, counted.sent, strings.Join(c.failures(), "\n"))
	}
}

func (c *cluster) service(t *testing.T) *corev1.Service {
	t.Helper()
	s, err := c.Client().CoreV1().Services(metav1.NamespaceSystem).Get(t.Context(), "kube-dns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wantService: the Service kube-dns is as it was.
func (c *cluster) wantService(t *testing.T, before *corev1.Service) {
	t.Helper()
	if diff := cmp.Diff(before.Spec, c.service(t).Spec); diff != "" {
		t.Errorf("the Service kube-dns (-before +after):\n%s", diff)
	}
}

// wantSelected: the Pods behind the Service kube-dns have the label that NetworkPolicies
// of clients select the cluster DNS by. No Deployment but that of CoreDNS has it: kubeadm
// upgrade fails if it finds two.
func (c *cluster) wantSelected(t *testing.T) {
	t.Helper()
	label := metav1.ListOptions{LabelSelector: "k8s-app=kube-dns"}
	pods, err := c.Client().CoreV1().Pods(metav1.NamespaceSystem).List(t.Context(), label)
	if err != nil {
		t.Fatal(err)
	}
	running := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	if len(running) != 2 || deploymentOf(&running[0]) != "portolan" || deploymentOf(&running[1]) != "portolan" {
		t.Errorf("%d Pods with the label %s, want the two of Portolan", len(running), label.LabelSelector)
	}
	deployments, err := c.Client().AppsV1().Deployments(metav1.NamespaceSystem).List(t.Context(), label)
	if err != nil {
		t.Fatal(err)
	}
	if len(deployments.Items) != 1 || deployments.Items[0].Name != "coredns" {
		t.Errorf("%d Deployments with the label %s, want that of CoreDNS", len(deployments.Items), label.LabelSelector)
	}
}

// wantNothing: nothing of Portolan is left.
func (c *cluster) wantNothing(t *testing.T) {
	t.Helper()
	kinds := "deployments,services,configmaps,serviceaccounts,poddisruptionbudgets,networkpolicies,clusterroles,clusterrolebindings"
	awaitNothing(t, func() string {
		out, err := c.command(t, "kubectl -n kube-system get -o name "+kinds).Output()
		if err != nil {
			return err.Error()
		}
		if bytes.Contains(out, []byte("portolan")) {
			return fmt.Sprintf("left behind:\n%s", out)
		}
		return ""
	})
}

// TestTakeoverIsDocumented: the commands of TestTakeover are those of the documentation.
func TestTakeoverIsDocumented(t *testing.T) {
	t.Parallel()
	pages := readFile(t, "../../docs/from-coredns.md") + readFile(t, "../../docs/operate.md")
	commands := strings.NewReplacer(" \\\n ", "", " &&\n", "\n").Replace(pages)
	for _, o := range orders {
		for _, command := range slices.Concat(o.takeOver, o.goBack) {
			if !strings.Contains(commands, "\n"+shown(command)+"\n") {
				t.Errorf("%s: no page shows\n%s", o.claim, shown(command))
			}
		}
	}
	if !strings.Contains(pages, "`kubectl apply --server-side`") {
		t.Error("no page says that kubectl apply --server-side works as well")
	}
}

// shown returns a command of TestTakeover as the documentation shows it: the reader's
// image has a registry, which an overlay or a value of the chart sets.
func shown(command string) string {
	if strings.HasPrefix(command, "helm install ") {
		return command + " --set image.repository=registry.example.com/portolan"
	}
	return strings.NewReplacer(
		" --server-side", "", "deploy/kustomize/base", "../overlay", "deploy/kustomize/beside", "../overlay",
	).Replace(command)
}

// TestNothingStopsUnlessReady: a block of commands, pasted whole, stops or removes a
// server only if the other one is ready.
func TestNothingStopsUnlessReady(t *testing.T) {
	t.Parallel()
	_, notes, err := renderChart(t, loaded(t), "kube-system", nil, clusterOf("v1.36.0"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"NOTES.txt":       notes,
		"from-coredns.md": readFile(t, "../../docs/from-coredns.md"),
		"operate.md":      readFile(t, "../../docs/operate.md"),
	} {
		text, _, _ = strings.Cut(text, "\n```text\n$ ") // from here on a transcript
		lines := strings.Split(text, "\n")
		waits := 0
		for i, line := range lines {
			if !strings.Contains(line, " rollout status ") {
				continue
			}
			waits++
			if isCommand(lines[i+1]) && !strings.HasSuffix(line, " &&") {
				t.Errorf("%s: %q follows although this may fail: %q", name, lines[i+1], line)
			}
			if isCommand(lines[i-1]) && !strings.HasSuffix(lines[i-1], " &&") {
				t.Errorf("%s: %q follows although this may fail: %q", name, line, lines[i-1])
			}
		}
		if waits == 0 {
			t.Errorf("%s waits for no server", name)
		}
	}
}

// isCommand reports whether a line of a page is a command, or the end of one.
func isCommand(line string) bool { return line != "" && !strings.HasPrefix(line, "```") }

// TestOverlayIsDocumented: the overlay that operate.md shows keeps the reader's image and
// config.yaml, next to CoreDNS and as the cluster DNS.
func TestOverlayIsDocumented(t *testing.T) {
	t.Parallel()
	_, shown, _ := strings.Cut(readFile(t, "../../docs/operate.md"), "```yaml\nresources: ")
	shown, _, found := strings.Cut(shown, "```")
	if !found {
		t.Fatal("operate.md shows no overlay")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for variant, label := range map[string]string{"beside": "", "base": "kube-dns"} {
		dir := t.TempDir()
		if err := errors.Join(
			os.Symlink(root, filepath.Join(dir, "portolan")),
			os.Mkdir(filepath.Join(dir, "overlay"), 0o700),
			os.WriteFile(filepath.Join(dir, "overlay", "config.yaml"), []byte("lameduck: 11s\n"), 0o600),
			os.WriteFile(filepath.Join(dir, "overlay", "kustomization.yaml"),
				[]byte("resources: "+strings.Replace(shown, "beside", variant, 1)), 0o600),
		); err != nil {
			t.Fatal(err)
		}
		all := kustomizedIn(t, filepath.Join(dir, "overlay"))
		template := as[appsv1.Deployment](t, all, "Deployment").Spec.Template
		if image := onlyContainer(t, template.Spec).Image; image != "registry.example.com/portolan:v0.1.0" {
			t.Errorf("%s: image %s", variant, image)
		}
		if got := template.Labels["k8s-app"]; got != label {
			t.Errorf("%s: label k8s-app: %q, want %q", variant, got, label)
		}
		if diff := cmp.Diff(
			map[string]string{"config.yaml": "lameduck: 11s\n"}, as[corev1.ConfigMap](t, all, "ConfigMap").Data,
		); diff != "" {
			t.Errorf("%s: ConfigMap (-want +got):\n%s", variant, diff)
		}
		if want := kustomized(t, variant); len(all) != len(want) || all["ConfigMap/portolan"] == nil {
			t.Errorf("%s: %d objects, want the %d of deploy/kustomize/%[1]s with their names", variant, len(all), len(want))
		}
	}
}
