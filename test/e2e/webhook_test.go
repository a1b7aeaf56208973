package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"portolan.dev/portolan/test/e2e/controlplane"
	"portolan.dev/portolan/test/e2e/process"
)

const (
	hookName      = "portolan-webhook"
	hookNamespace = metav1.NamespaceSystem
	hookDir       = repository + "/deploy/kustomize/webhook"
	hookPage      = repository + "/docs/webhook.md"
	policyKey     = "portolan.dev/dns-policy"
	autopath      = "ClusterFirstWithAutopath"
)

// webhooks is a cluster with the webhook as it is shipped, but for its Pods,
// which are processes. The API server reaches their Service through a proxy, as
// one does that is not in the Pods' network.
type webhooks struct {
	*controlplane.ControlPlane
	t          *testing.T
	proxy      *connectProxy
	kubeconfig string
	replicas   []*replica
	client     *kubernetes.Clientset // whose warnings are kept
	warned     warnings
}

// TestWebhook: what becomes of Pods, Deployments and Services that are applied
// while the webhook is there, is not there, and changes its certificates.
func TestWebhook(t *testing.T) {
	w := newWebhooks(t)
	w.start("")
	w.start("")
	w.awaitChange()
	for name, test := range map[string]func(*testing.T, *webhooks){
		"Pods":        testMutatedPods,
		"the page":    testWebhookPage,
		"Deployments": testMutatedDeployment,
		"rules":       testRulesWarn,
		"metrics":     testWebhookMetrics,
	} {
		t.Run(name, func(t *testing.T) { test(t, w) })
	}
	t.Run("renewals", func(t *testing.T) { testRenewals(t, w) })
	t.Run("repairs", func(t *testing.T) { testRepairs(t, w) })
	t.Run("silence", func(t *testing.T) { testSilence(t, w) })
	t.Run("death", func(t *testing.T) { testDeath(t, w) })
	t.Run("denials", func(t *testing.T) { testRulesDeny(t, w) })
}

func newWebhooks(t *testing.T) *webhooks {
	t.Helper()
	w := &webhooks{t: t}
	w.proxy = newConnectProxy(t)
	c, err := controlplane.Start(t.Context(), controlplane.Options{
		ControllerManager: true,
		APIServerFlags:    []string{"--egress-selector-config-file=" + w.proxy.config(t)},
	})
	if err != nil {
		skipWithoutPrograms(t, err)
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	w.ControlPlane = c
	cfg := c.RESTConfig()
	cfg.WarningHandlerWithContext = &w.warned
	if w.client, err = kubernetes.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	w.install(slices.Collect(maps.Keys(hookResources))...)
	w.makeKubeconfig()
	for name, labels := range map[string]map[string]string{"shop": {policyKey: autopath}, "plain": nil} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		if _, err := c.Client().CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// The controllers make the accounts that Pods have.
	for _, ns := range []string{"shop", "plain", hookNamespace} {
		poll(t, patience, func() error {
			_, err := c.Client().CoreV1().ServiceAccounts(ns).Get(t.Context(), "default", metav1.GetOptions{})
			return err
		})
	}
	return w
}

// hookResources are the kinds that are put to the API server; the others make Pods,
// or protect them.
var hookResources = map[string]schema.GroupVersionResource{
	"ServiceAccount":                 core("serviceaccounts"),
	"Secret":                         core("secrets"),
	"Service":                        core("services"),
	"ClusterRole":                    rbac("clusterroles"),
	"ClusterRoleBinding":             rbac("clusterrolebindings"),
	"Role":                           rbac("roles"),
	"RoleBinding":                    rbac("rolebindings"),
	"MutatingWebhookConfiguration":   {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"},
	"ValidatingWebhookConfiguration": {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"},
}

func rbac(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: resource}
}

// install puts what deploy/kustomize/webhook holds of these kinds to the API
// server.
func (w *webhooks) install(kinds ...string) {
	w.t.Helper()
	files := make(map[string][]byte)
	names, err := filepath.Glob(hookDir + "/*.yaml")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, name := range names {
		switch filepath.Base(name) {
		case "kustomization.yaml", "config.yaml":
			continue
		}
		if files[name], err = os.ReadFile(name); err != nil {
			w.t.Fatal(err)
		}
	}
	all, err := readManifests(files)
	if err != nil {
		w.t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(w.RESTConfig())
	if err != nil {
		w.t.Fatal(err)
	}
	put := 0
	for _, o := range all {
		resource, ok := hookResources[o.GetKind()]
		if !ok || !slices.Contains(kinds, o.GetKind()) {
			continue
		}
		to := dynamic.ResourceInterface(client.Resource(resource))
		switch o.GetKind() {
		case "ServiceAccount", "Secret", "Service", "Role", "RoleBinding":
			to = client.Resource(resource).Namespace(hookNamespace)
		}
		// The API server makes the Namespace soon after its start.
		poll(w.t, patience, func() error {
			_, err := to.Create(w.t.Context(), o, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
			return err
		})
		put++
	}
	if put != len(kinds) {
		w.t.Fatalf("%d objects were installed, want one each of %q", put, kinds)
	}
}

// makeKubeconfig makes one for the webhook's account, with its rights.
func (w *webhooks) makeKubeconfig() {
	w.t.Helper()
	token, err := w.Client().CoreV1().ServiceAccounts(hookNamespace).
		CreateToken(w.t.Context(), hookName, new(authenticationv1.TokenRequest), metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://" + w.Address(), CertificateAuthorityData: w.RESTConfig().CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	w.kubeconfig = filepath.Join(w.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, w.kubeconfig); err != nil {
		w.t.Fatal(err)
	}
}

// replica is one Pod of the webhook.
type replica struct {
	process.Process
	addr, admin string
}

// start starts a replica with the configuration that is shipped, and with more
// keys of webhook, and waits until it is ready.
func (w *webhooks) start(more string) *replica {
	w.t.Helper()
	file, err := binary()
	if err != nil {
		w.t.Fatal(err)
	}
	shipped, err := os.ReadFile(hookDir + "/config.yaml")
	if err != nil {
		w.t.Fatal(err)
	}
	dir := w.t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, append(shipped, more...), 0o600); err != nil {
		w.t.Fatal(err)
	}
	r := new(replica)
	r.Path, r.Log = file, filepath.Join(dir, "log")
	r.Args = []string{"webhook", "--config", config, "--kubeconfig", w.kubeconfig, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}
	if err := r.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		killed := !r.Running()
		r.Stop(patience)
		if code := r.State().ExitCode(); !killed && code != 0 || strings.Contains(r.Logged(), "DATA RACE") {
			w.t.Errorf("portolan webhook: %s, want exit status 0 and no data race", r.State())
		}
		if strings.Contains(r.Logged(), "forbidden") {
			w.t.Errorf("a right is missing")
		}
		if w.t.Failed() {
			w.t.Logf("log of a webhook:\n%s", r.LastLogged())
		}
	})
	started := regexp.MustCompile(`"msg":"webhook serving","listen":"([^"]+)".*"admin":"([^"]+)"`)
	poll(w.t, patience, func() error {
		match := started.FindStringSubmatch(r.Logged())
		if match == nil {
			return errors.New("it does not say where it listens")
		}
		r.addr, r.admin = match[1], match[2]
		return nil
	})
	poll(w.t, patience, func() error {
		if status, body := r.get("/readyz"); status != http.StatusOK {
			return fmt.Errorf("/readyz: %d %s", status, body)
		}
		return nil
	})
	w.replicas = append(w.replicas, r)
	w.balance()
	return r
}

func (r *replica) get(path string) (status int, body string) {
	client := http.Client{Timeout: answersWithin}
	defer client.CloseIdleConnections()
	response, err := client.Get("http://" + r.admin + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// balance has the Service lead to the replicas that run.
func (w *webhooks) balance() {
	var to []string
	for _, r := range w.replicas {
		if r.Running() {
			to = append(to, r.addr)
		}
	}
	w.proxy.lead(to)
}

// newPod is a Pod of a container, and nothing else.
func newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main"}}},
	}
}

// try gives what would become of a Pod; it is not kept.
func (w *webhooks) try(namespace string, pod *corev1.Pod) (*corev1.Pod, error) {
	return w.client.CoreV1().Pods(namespace).Create(w.t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// changed tells whether a Pod of the Namespace shop would be changed.
func (w *webhooks) changed() error {
	pod, err := w.try("shop", newPod("probe"))
	if err != nil {
		return err
	}
	if pod.Spec.DNSPolicy != corev1.DNSNone {
		return fmt.Errorf("dnsPolicy is %s, want None; the webhook said %q", pod.Spec.DNSPolicy, w.warned.take())
	}
	return nil
}

func (w *webhooks) awaitChange() {
	w.t.Helper()
	poll(w.t, patience, w.changed)
}

// dnsOf is a Pod's DNS in one line.
func dnsOf(s *corev1.PodSpec) string {
	text := string(s.DNSPolicy)
	if c := s.DNSConfig; c != nil {
		text += fmt.Sprint(" ", c.Nameservers, c.Searches)
		for _, o := range c.Options {
			text += " " + o.Name
			if o.Value != nil {
				text += ":" + *o.Value
			}
		}
	}
	return text
}

const changedDNS = "None [10.96.0.10] [search.%s.cluster.local.ap.k8s.io] ndots:5"

// testMutatedPods: which Pods are changed, and to what.
func testMutatedPods(t *testing.T, w *webhooks) {
	for claim, tt := range map[string]struct {
		namespace string
		edit      func(*corev1.Pod)
		want      string
		warning   string
	}{
		"in a Namespace with the label": {"shop", func(*corev1.Pod) {}, fmt.Sprintf(changedDNS, "shop"), ""},
		"in one without":                {"plain", func(*corev1.Pod) {}, "ClusterFirst", ""},
		"with the annotation":           {"plain", annotated(autopath), fmt.Sprintf(changedDNS, "plain"), ""},
		"with a small c":                {"plain", annotated("clusterFirstWithAutopath"), fmt.Sprintf(changedDNS, "plain"), ""},
		"that is off":                   {"shop", annotated("off"), "ClusterFirst", ""},
		"with a typo":                   {"plain", annotated("Autopath"), "ClusterFirst", `"Autopath" is not ClusterFirstWithAutopath or off`},
		"with the KEP's policy":         {"plain", func(p *corev1.Pod) { p.Spec.DNSPolicy = "clusterFirstWithAutopath" }, fmt.Sprintf(changedDNS, "plain"), ""},
		"with Default":                  {"shop", func(p *corev1.Pod) { p.Spec.DNSPolicy = corev1.DNSDefault }, "Default", ""},
		"in the node's network":         {"shop", func(p *corev1.Pod) { p.Spec.HostNetwork = true }, "ClusterFirst", "pod-host-network-policy: "},
		"of the cluster itself":         {hookNamespace, annotated(autopath), "ClusterFirst", ""},
		"with a DNS of its own": {"shop", func(p *corev1.Pod) {
			p.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.1"}, Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: new("2")}}}
		}, "None [10.96.0.10 192.0.2.1] [search.shop.cluster.local.ap.k8s.io] ndots:2", ""},
	} {
		pod := newPod("p")
		tt.edit(pod)
		w.warned.take()
		made, err := w.try(tt.namespace, pod)
		if err != nil {
			t.Errorf("%s: %v", claim, err)
			continue
		}
		said := w.warned.take()
		if got := dnsOf(&made.Spec); got != tt.want {
			t.Errorf("a Pod %s: DNS is %s, want %s; warnings %q", claim, got, tt.want, said)
		}
		if tt.warning == "" && len(said) > 0 || tt.warning != "" && !strings.Contains(strings.Join(said, "\n"), tt.warning) {
			t.Errorf("a Pod %s: warnings %q, want %q", claim, said, tt.warning)
		}
	}
	settings := fmt.Appendf(nil, `{"metadata": {"annotations": {"portolan.dev/ndots": "1", "portolan.dev/nameservers": "169.254.20.10,fd00::10"}}}`)
	if _, err := w.client.CoreV1().Namespaces().Patch(t.Context(), "plain", types.MergePatchType, settings, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := newPod("p")
	annotated(autopath)(pod)
	poll(t, patience, func() error { // a Namespace is kept for a few seconds
		made, err := w.try("plain", pod)
		if err != nil {
			return err
		}
		if got, want := dnsOf(&made.Spec), "None [169.254.20.10 fd00::10] [search.plain.cluster.local.ap.k8s.io] ndots:1"; got != want {
			return fmt.Errorf("with annotations of the Namespace: %s, want %s", got, want)
		}
		return nil
	})
}

func annotated(policy string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{policyKey: policy} }
}

// testWebhookPage: the Pod that docs/webhook.md shows becomes what it shows.
func testWebhookPage(t *testing.T, w *webhooks) {
	page, err := os.ReadFile(hookPage)
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) != 2 {
		t.Fatalf("%d blocks of YAML in webhook.md, want a Pod before and after", len(blocks))
	}
	var before, after corev1.Pod
	for i, into := range []*corev1.Pod{&before, &after} {
		if err := yaml.UnmarshalStrict(blocks[i][1], into); err != nil {
			t.Fatal(err)
		}
	}
	made, err := w.try(before.Namespace, &before)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := dnsOf(&made.Spec), dnsOf(&after.Spec); got != want {
		t.Errorf("the Pod of webhook.md has %s, want %s", got, want)
	}
}

// testMutatedDeployment: the Pods that controllers make of a template come to be
// as the template's annotation wants.
func testMutatedDeployment(t *testing.T, w *webhooks) {
	ctx := t.Context()
	labels := map[string]string{"app": "web"}
	pod := newPod("")
	annotated(autopath)(pod)
	pod.Labels = labels
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec},
		},
	}
	if _, err := w.client.AppsV1().Deployments("shop").Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(t, patience, func() error {
		list, err := w.client.CoreV1().Pods("shop").List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return fmt.Errorf("%d Pods, want 1", len(list.Items))
		}
		if got, want := dnsOf(&list.Items[0].Spec), fmt.Sprintf(changedDNS, "shop"); got != want {
			return fmt.Errorf("DNS of the Deployment's Pod is %s, want %s", got, want)
		}
		return nil
	})
}

// longName has an FQDN of more than 64 characters in a subdomain.
const longName = "a-name-that-is-as-long-as-people-make-them"

// trouble are objects that rules find something in.
func (w *webhooks) trouble() map[string]func() error {
	ctx, dry := w.t.Context(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	pod := newPod(longName)
	pod.Spec.SetHostnameAsFQDN, pod.Spec.Subdomain = new(true), "sub"
	many := newPod("p")
	many.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}}
	labels := map[string]string{"app": "x"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: newPod("").Spec}
	template.Spec.SetHostnameAsFQDN = new(true)
	return map[string]func() error{
		"pod-fqdn-too-long: spec.setHostnameAsFQDN: failed to construct FQDN": func() error {
			_, err := w.client.CoreV1().Pods("plain").Create(ctx, pod, dry)
			return err
		},
		"pod-dns-limit: spec.dnsConfig.nameservers: 1 nameserver is left out": func() error {
			_, err := w.client.CoreV1().Pods("plain").Create(ctx, many, dry)
			return err
		},
		"pod-fqdn-too-long: spec.template.spec.setHostnameAsFQDN: failed to construct FQDN": func() error {
			_, err := w.client.AppsV1().StatefulSets("plain").Create(ctx, &appsv1.StatefulSet{
				ObjectMeta: metav1.ObjectMeta{Name: longName},
				Spec:       appsv1.StatefulSetSpec{ServiceName: "sub", Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
			}, dry)
			return err
		},
		"externalname-address: spec.externalName: 192.0.2.1 is an address": func() error {
			_, err := w.client.CoreV1().Services("plain").Create(ctx, &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: "s"},
				Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "192.0.2.1"},
			}, dry)
			return err
		},
		"namespace-named-svc: metadata.name: Pods that ask for SERVICE.NAMESPACE.svc": func() error {
			_, err := w.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "svc"}}, dry)
			return err
		},
	}
}

// testRulesWarn: what rules find is a warning to whoever applies an object, in
// the words of the page.
func testRulesWarn(t *testing.T, w *webhooks) {
	page, err := os.ReadFile(hookPage)
	if err != nil {
		t.Fatal(err)
	}
	for want, apply := range w.trouble() {
		w.warned.take()
		if err := apply(); err != nil {
			t.Errorf("%s: %v", want, err)
		}
		said := w.warned.take()
		if !slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("warnings %q, want %s", said, want)
		}
		if strings.HasPrefix(want, "externalname") && !bytes.Contains(page, []byte(strings.Join(said, "\n"))) {
			t.Errorf("webhook.md lacks %q", said)
		}
	}
}

// testRulesDeny: where the configuration says so, it is denied.
func testRulesDeny(t *testing.T, w *webhooks) {
	for _, r := range w.replicas {
		r.Stop(patience)
	}
	w.start("  deny: [externalname-address, pod-fqdn-too-long, namespace-named-svc]\n  ignore: [pod-dns-limit]\n")
	w.awaitChange()
	for want, apply := range w.trouble() {
		w.warned.take()
		err := apply()
		if strings.HasPrefix(want, "pod-dns-limit") {
			if said := w.warned.take(); err != nil || len(said) > 0 {
				t.Errorf("ignored: %v, warnings %q, want none", err, said)
			}
			continue
		}
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "denied the request: "+want) {
			t.Errorf("%v, want it denied: %s", err, want)
		}
	}
}

// testWebhookMetrics: /metrics has what docs/operate.md has, and nothing else.
func testWebhookMetrics(t *testing.T, w *webhooks) {
	page, err := os.ReadFile(repository + "/docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"portolan_build_info"}
	for _, m := range regexp.MustCompile("\n\\| `(portolan_webhook_[a-z_]+)` \\|").FindAllSubmatch(page, -1) {
		want = append(want, string(m[1]))
	}
	told := make(map[string]bool)
	var first string
	for _, r := range w.replicas {
		_, body := r.get("/metrics")
		first += body
		for _, m := range regexp.MustCompile(`(?m)^# TYPE (portolan_\w+) `).FindAllStringSubmatch(body, -1) {
			told[m[1]] = true
		}
	}
	var got []string
	for name := range told {
		got = append(got, name)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("metrics %q, want those of operate.md, %q", got, want)
	}
	if !strings.Contains(first, `portolan_webhook_reviews_total{operation="CREATE",resource="pods",result="changed",webhook="mutate"}`) {
		t.Errorf("no replica tells of a Pod that it has changed:\n%s", first)
	}
}

// testRenewals: while Pods are created all the time, certificates and their
// authorities are made anew, since the Secret is emptied, and each Pod is changed.
func testRenewals(t *testing.T, w *webhooks) {
	bundles := map[string]bool{w.bundle(): true}
	pods := 0
	for range 2 {
		before := w.served()
		w.emptySecret()
		for began, renewed := time.Now(), false; !renewed; {
			if time.Since(began) > 2*patience {
				t.Fatalf("%s after the Secret was emptied the certificates are %q, before they were %q", 2*patience, w.served(), before)
			}
			for range 25 {
				if err := w.changed(); err != nil {
					t.Errorf("Pod %d, after %s: %v", pods, time.Since(began), err)
				}
				pods++
				time.Sleep(20 * time.Millisecond) // other processes want a processor, too
			}
			bundles[w.bundle()] = true
			renewed = !slices.ContainsFunc(w.served(), func(serial string) bool { return slices.Contains(before, serial) })
		}
	}
	t.Logf("%d Pods were created while there were %d CA bundles", pods, len(bundles))
	if len(bundles) < 3 {
		t.Errorf("%d CA bundles in two renewals, want 3 or more", len(bundles))
	}
	if t.Failed() {
		t.Logf("log of the API server's proxy:\n%s", w.proxy.logged())
	}
}

// emptySecret takes the certificates from the Secret.
func (w *webhooks) emptySecret() {
	w.t.Helper()
	secrets := w.Client().CoreV1().Secrets(hookNamespace)
	s, err := secrets.Get(w.t.Context(), hookName, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	s.Data = nil
	if _, err := secrets.Update(w.t.Context(), s, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// served are the serial numbers of the certificates that replicas serve.
func (w *webhooks) served() (serials []string) {
	w.t.Helper()
	for _, r := range w.replicas {
		if !r.Running() {
			continue
		}
		conn, err := tls.Dial("tcp", r.addr, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			w.t.Fatal(err)
		}
		serials = append(serials, conn.ConnectionState().PeerCertificates[0].SerialNumber.String())
		conn.Close()
	}
	return serials
}

// bundle is the CA bundle that the API server trusts.
func (w *webhooks) bundle() string {
	w.t.Helper()
	c, err := w.Client().AdmissionregistrationV1().MutatingWebhookConfigurations().Get(w.t.Context(), hookName, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, hook := range c.Webhooks {
		if !bytes.Equal(hook.ClientConfig.CABundle, c.Webhooks[0].ClientConfig.CABundle) {
			w.t.Error("the webhooks' CA bundles differ")
		}
	}
	return string(c.Webhooks[0].ClientConfig.CABundle)
}

// testRepairs: a CA bundle that is emptied is set again, a Secret that is deleted
// and installed again is filled, and Pods are changed all that time, but for when
// the bundle is empty.
func testRepairs(t *testing.T, w *webhooks) {
	ctx := t.Context()
	empty, err := json.Marshal([]map[string]any{{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}})
	if err != nil {
		t.Fatal(err)
	}
	registered := w.Client().AdmissionregistrationV1().MutatingWebhookConfigurations()
	if _, err := registered.Patch(ctx, hookName, types.JSONPatchType, empty, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.try("shop", newPod("probe")); err != nil {
		t.Errorf("a Pod while the CA bundle is empty: %v", err)
	}
	poll(t, patience, func() error {
		c, err := registered.Get(ctx, hookName, metav1.GetOptions{})
		if err == nil && len(c.Webhooks[0].ClientConfig.CABundle) == 0 {
			err = errors.New("the CA bundle is empty")
		}
		return err
	})
	w.awaitChange()
	secrets := w.Client().CoreV1().Secrets(hookNamespace)
	if err := secrets.Delete(ctx, hookName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.changed(); err != nil {
		t.Errorf("without a Secret: %v", err)
	}
	w.install("Secret")
	poll(t, patience, func() error {
		if err := w.changed(); err != nil {
			t.Errorf("after the Secret was deleted: %v", err)
		}
		s, err := secrets.Get(ctx, hookName, metav1.GetOptions{})
		if err == nil && len(s.Data) == 0 {
			err = errors.New("the Secret is empty")
		}
		return err
	})
	w.awaitChange()
}

// testSilence: replicas that do not say a word hold up a Pod for the two
// timeoutSeconds, to change it and to check it, and it is created.
func testSilence(t *testing.T, w *webhooks) {
	for _, r := range w.replicas {
		r.Signal(syscall.SIGSTOP)
	}
	const timeout = 2 * time.Second // as registrations.yaml has it
	began := time.Now()
	_, err := w.client.CoreV1().Pods("shop").Create(t.Context(), newPod("unheard"), metav1.CreateOptions{})
	if took := time.Since(began); err != nil || took < timeout || took > 2*timeout+answersWithin/2 {
		t.Errorf("a Pod while the webhook is silent: %v after %s, want it created after %s", err, took, 2*timeout)
	}
	for _, r := range w.replicas {
		r.Signal(syscall.SIGCONT)
	}
	w.awaitChange()
}

// testDeath: while one replica is there Pods are changed; without any they are
// still created.
func testDeath(t *testing.T, w *webhooks) {
	w.replicas[0].Stop(0)
	w.balance()
	w.awaitChange()
	w.replicas[1].Stop(0)
	w.balance()
	for i := range 5 {
		began := time.Now()
		pod, err := w.client.CoreV1().Pods("shop").Create(t.Context(), newPod(fmt.Sprintf("alone-%d", i)), metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("a Pod without a webhook: %v", err)
		}
		if pod.Spec.DNSPolicy != corev1.DNSClusterFirst {
			t.Errorf("a Pod without a webhook has dnsPolicy %s", pod.Spec.DNSPolicy)
		}
		if took := time.Since(began); took > answersWithin {
			t.Errorf("a Pod without a webhook was created after %s", took)
		}
	}
	w.start("")
	w.start("")
	w.awaitChange()
}

// warnings keeps what the API server says beside its answers.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, code int, _, text string) {
	const warning = 299 // RFC 7234, section 5.5.7
	if code != warning || text == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

// take gives what was said since it was last called.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.all
	w.all = nil
	return all
}

// connectProxy stands between the API server and the cluster's Services: it
// takes the place of a proxy like konnectivity's, and of the Service's.
type connectProxy struct {
	path string // of its socket

	mu   sync.Mutex
	to   []string
	next int
	log  []string
}

func newConnectProxy(t *testing.T) *connectProxy {
	t.Helper()
	dir, err := os.MkdirTemp("", "portolan-") // short, because the path of a socket may have 108 octets
	if err != nil {
		t.Fatal(err)
	}
	p := &connectProxy{path: filepath.Join(dir, "proxy.sock")}
	l, err := net.Listen("unix", p.path)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go p.carry(conn) // ends with the API server
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return p
}

// config writes the API server's file that has it use the proxy.
func (p *connectProxy) config(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "egress.yaml")
	text := fmt.Sprintf(`apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
  - name: cluster
    connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: %q}}}
`, p.path)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// lead sets where connections go, one after the other.
func (p *connectProxy) lead(to []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
}

func (p *connectProxy) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.log, "\n")
}

// target is where the next connection goes, "" if there is nothing.
func (p *connectProxy) target(asked string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	target := ""
	if len(p.to) > 0 {
		p.next++
		target = p.to[p.next%len(p.to)]
	}
	p.log = append(p.log, fmt.Sprintf("%s %s → %s", time.Now().Format(time.RFC3339Nano), asked, target))
	return target
}

func (p *connectProxy) carry(client net.Conn) {
	defer client.Close()
	from := bufio.NewReader(client)
	request, err := http.ReadRequest(from)
	if err != nil || request.Method != http.MethodConnect {
		return
	}
	server, err := net.Dial("tcp", p.target(request.Host+" "+request.URL.Host))
	if err != nil {
		fmt.Fprint(client, "HTTP/1.1 502 Bad Gateway\r\n\r\n")
		return
	}
	defer server.Close()
	fmt.Fprint(client, "HTTP/1.1 200 OK\r\n\r\n")
	l := &link{client: client, server: server}
	go func() {
		l.copy(server, from)
		l.close()
	}()
	l.copy(client, server)
}
