package admission_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/e2e/controlplane"
	"portolan.dev/portolan/test/e2e/controlplane/controlplanetest"
	"portolan.dev/portolan/test/e2e/manifests"
	"portolan.dev/portolan/test/program"
)

const (
	// repository is the directory of Portolan's own module.
	repository    = "../../.."
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
	file       string        // of the program
	timeout    time.Duration // for which a webhook is waited; as it is shipped if 0
	proxy      *connectProxy
	kubeconfig string
	replicas   []*replica
	client     *kubernetes.Clientset // whose warnings are kept
	warned     warnings
}

// TestWebhook: what becomes of Pods, Deployments and Services that are applied
// while the webhook is there, is not there, and changes its certificates. To change
// these takes a while, in which the rest is tried on another control plane.
func TestWebhook(t *testing.T) {
	t.Parallel()
	file, err := program.Build(t.Context(), program.Options{Flags: []string{"-race"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("renewals", func(t *testing.T) {
		t.Parallel()
		// Thousands of Pods are to be changed on a machine that has other work.
		w := &webhooks{t: t, file: file, timeout: await.Answer}
		w.begin()
		testRenewals(t, w)
	})
	t.Run("objects", func(t *testing.T) {
		t.Parallel()
		w := &webhooks{t: t, file: file}
		w.begin()
		testObjects(t, w)
	})
}

func testObjects(t *testing.T, w *webhooks) {
	for name, test := range map[string]func(*testing.T, *webhooks){
		"Pods":        testMutatedPods,
		"the page":    testWebhookPage,
		"Deployments": testMutatedDeployment,
		"rules":       testRulesWarn,
		"metrics":     testWebhookMetrics,
	} {
		t.Run(name, func(t *testing.T) { test(t, w) })
	}
	t.Run("repairs", func(t *testing.T) { testRepairs(t, w) })
	t.Run("silence", func(t *testing.T) { testSilence(t, w) })
	t.Run("death", func(t *testing.T) { testDeath(t, w) })
	t.Run("denials", func(t *testing.T) { testRulesDeny(t, w) })
}

// begin starts the control plane and two replicas, and waits until they are asked.
func (w *webhooks) begin() {
	w.t.Helper()
	w.proxy = newConnectProxy(w.t)
	w.ControlPlane = controlplanetest.Start(w.t, controlplane.Options{
		ControllerManager: true,
		APIServerFlags:    []string{"--egress-selector-config-file=" + w.proxy.config(w.t)},
	})
	cfg := w.RESTConfig()
	cfg.WarningHandlerWithContext = &w.warned
	var err error
	if w.client, err = kubernetes.NewForConfig(cfg); err != nil {
		w.t.Fatal(err)
	}
	w.install(slices.Collect(maps.Keys(hookResources))...)
	w.makeKubeconfig()
	w.makeNamespaces()
	w.start("")
	w.start("")
	w.awaitChange()
}

func (w *webhooks) makeNamespaces() {
	w.t.Helper()
	for name, labels := range map[string]map[string]string{"shop": {policyKey: autopath}, "plain": nil} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		if _, err := w.Client().CoreV1().Namespaces().Create(w.t.Context(), ns, metav1.CreateOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
	// The controllers make the accounts that Pods have.
	for _, ns := range []string{"shop", "plain", hookNamespace} {
		await.NoError(w.t, func() error {
			_, err := w.Client().CoreV1().ServiceAccounts(ns).Get(w.t.Context(), "default", metav1.GetOptions{})
			return err
		})
	}
}

// hookResources are the kinds that are put to the API server; the others make Pods,
// or protect them.
var hookResources = map[string]schema.GroupVersionResource{
	"ServiceAccount":                 corev1.SchemeGroupVersion.WithResource("serviceaccounts"),
	"Secret":                         corev1.SchemeGroupVersion.WithResource("secrets"),
	"Service":                        corev1.SchemeGroupVersion.WithResource("services"),
	"ClusterRole":                    rbacv1.SchemeGroupVersion.WithResource("clusterroles"),
	"ClusterRoleBinding":             rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"),
	"Role":                           rbacv1.SchemeGroupVersion.WithResource("roles"),
	"RoleBinding":                    rbacv1.SchemeGroupVersion.WithResource("rolebindings"),
	"MutatingWebhookConfiguration":   admissionv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations"),
	"ValidatingWebhookConfiguration": admissionv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations"),
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
	all, err := manifests.Read(files)
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
		if err := w.setTimeout(o); err != nil {
			w.t.Fatal(err)
		}
		to := dynamic.ResourceInterface(client.Resource(resource))
		switch o.GetKind() {
		case "ServiceAccount", "Secret", "Service", "Role", "RoleBinding":
			to = client.Resource(resource).Namespace(hookNamespace)
		}
		// The API server makes the Namespace soon after its start.
		await.NoError(w.t, func() error {
			_, err := to.Create(w.t.Context(), o, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
			return err
		})
		put++
	}
	if put != len(kinds) {
		w.t.Fatalf("%d objects were installed, want one each of %q", put, kinds)
	}
}

// setTimeout sets how long the webhooks of a registration are waited for.
func (w *webhooks) setTimeout(o manifests.Object) error {
	hooks, ok, err := unstructured.NestedSlice(o.Object, "webhooks")
	if w.timeout == 0 || !ok || err != nil {
		return err
	}
	for _, hook := range hooks {
		hook.(map[string]any)["timeoutSeconds"] = int64(w.timeout.Seconds())
	}
	return unstructured.SetNestedSlice(o.Object, hooks, "webhooks")
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
