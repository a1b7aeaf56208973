package deploy

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"portolan.dev/portolan/test/e2e/controlplane"
)

// TestDryRun gives all objects to a real API server, which checks them as if it
// would keep them: none may be refused, have a field that the API has not, be
// deprecated, or fall short of the Pod Security Standard "restricted", but for what
// the agent on a node is there for.
func TestDryRun(t *testing.T) { //nolint:tparallel // the subtests take moments
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a control plane, which is built first where it never was")
	}
	ctx := t.Context()
	control := startControlPlane(ctx, t)
	warnRestricted(ctx, t, control)
	monitoring := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "monitoring"}} // where dashboards are
	if _, err := control.Client().CoreV1().Namespaces().Create(ctx, monitoring, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	all := variants(t)
	all["helm, dual-stack"] = rendered(t, valuesOf(t, `clusterDNS: {createService: true, ips: [10.96.0.10, "fd00:10:96::a"]}`))
	all["helm, no rules and no tokens"] = rendered(t, valuesOf(t, "{networkPolicy: {metricsFrom: [], egress: []}, tolerations: [], nodeSelector: {kubernetes.io/os: null}}"))
	all["kustomize/kube-dns"] = kustomized(t, "kube-dns")
	all["kustomize/gateway-crds"] = kustomized(t, "gateway-crds")
	maps.Copy(all, webhookVariants(t))
	maps.Copy(all, gatewaysBehindService(t))
	for claim, tt := range matrix {
		made := rendered(t, valuesOf(t, tt.values))
		delete(made, "ServiceMonitor/portolan") // of a kind that the API server has not
		delete(made, "PrometheusRule/portolan")
		delete(made, "DaemonSet/portolan-node") // see nodeVariants
		if claim != externalAddresses {         // which the API server warns of
			all["helm, "+claim] = made
		}
	}
	all["helm, controller of slices"] = slicesOf(t, "{enabled: true}")
	onHost := proxyVariants(t)
	maps.Copy(onHost, wholeVariants(t))
	for name, made := range networkVariants(t) {
		onHost[name+", network"] = made
	}
	for _, c := range someControllers {
		for name, made := range c.variants(t) {
			if name += ", controller of " + c.command; c.hostNetwork {
				onHost[name] = made
			} else {
				all[name] = made
			}
		}
	}
	for name, all := range all {
		t.Run(name, func(t *testing.T) {
			var said warnings
			client := newApplier(t, control.RESTConfig(), &said)
			for key, o := range all {
				if err := client.dryRun(ctx, o); err != nil {
					t.Errorf("%s: %v", key, err)
				}
			}
			for _, warning := range said.all {
				t.Errorf("the API server warns: %s", warning)
			}
		})
	}
	for name, all := range onHost {
		t.Run(name+", on the host", func(t *testing.T) {
			client := newApplier(t, control.RESTConfig(), new(warnings)) // of hostNetwork and NET_ADMIN
			for key, o := range all {
				if err := client.dryRun(ctx, o); err != nil {
					t.Errorf("%s: %v", key, err)
				}
			}
		})
	}
	agents := nodeVariants(t)
	for name, all := range policyVariants(t) {
		agents[name+", policies"] = all
	}
	onNodes := gatewaysOnNodes(t)
	maps.Copy(agents, onNodes)
	for name, all := range agents {
		t.Run(name, func(t *testing.T) {
			needs := agentNeeds
			if onNodes[name] != nil {
				needs = gatewayNeeds
			}
			var said warnings
			client := newApplier(t, control.RESTConfig(), &said)
			for key, o := range all {
				if err := client.dryRun(ctx, o); err != nil {
					t.Errorf("%s: %v", key, err)
				}
			}
			var short []string
			for _, warning := range said.all {
				rest, is := strings.CutPrefix(warning, `would violate PodSecurity "restricted:latest": `)
				if !is {
					t.Errorf("the API server warns: %s", warning)
				}
				for part := range strings.SplitSeq(rest, "), ") {
					what, _, _ := strings.Cut(part, " (")
					short = append(short, what)
				}
			}
			if diff := cmp.Diff(needs, short); diff != "" {
				t.Errorf("where the Pod falls short of restricted (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("a wrong field is refused", func(t *testing.T) {
		client := newApplier(t, control.RESTConfig(), new(warnings))
		o := kustomized(t, "base")["Deployment/portolan"]
		o["spec"].(map[string]any)["replica"] = 2
		if err := client.dryRun(ctx, o); err == nil {
			t.Error("a Deployment with the field spec.replica is accepted: fields are not checked")
		}
	})
}

// agentNeeds are what a Pod lacks by the standard, and the agent needs: the node's
// network and NET_ADMIN in it, /dev/net/tun, and root, since a capability of another
// user's is in effect only for a moment.
var agentNeeds = []string{"host namespaces", "unrestricted capabilities", "restricted volume types", "runAsNonRoot != true", "runAsUser=0"}

// gatewayNeeds are what a gateway on a node needs: the node's network, a directory that it shares with the gateway
// that replaces it, and root, to whom the kubelet gives that directory.
var gatewayNeeds = []string{"host namespaces", "restricted volume types", "runAsNonRoot != true", "runAsUser=0"}

func startControlPlane(ctx context.Context, t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	control, err := controlplane.Start(ctx, controlplane.Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := control.Close(); err != nil {
			t.Error(err)
		}
	})
	return control
}

// warnRestricted makes the API server warn of whatever in kube-system falls
// short of the standard. It makes that namespace itself, soon after it starts.
func warnRestricted(ctx context.Context, t *testing.T, control *controlplane.ControlPlane) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata": {"labels": {%q: "restricted"}}}`, "pod-security.kubernetes.io/warn")
	var err error
	for began := time.Now(); time.Since(began) < 30*time.Second; {
		_, err = control.Client().CoreV1().Namespaces().
			Patch(ctx, metav1.NamespaceSystem, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err == nil {
			return
		}
	}
	t.Fatal(err)
}

// applier applies objects.
type applier struct {
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

func newApplier(t *testing.T, cfg *rest.Config, said *warnings) *applier {
	t.Helper()
	cfg = rest.CopyConfig(cfg)
	cfg.WarningHandlerWithContext = said
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	found, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &applier{client, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))}
}

// dryRun applies an object without keeping it.
func (a *applier) dryRun(ctx context.Context, o object) error {
	return a.patch(ctx, o, []string{metav1.DryRunAll})
}

// apply applies an object.
func (a *applier) apply(ctx context.Context, o object) error { return a.patch(ctx, o, nil) }

func (a *applier) patch(ctx context.Context, o object, dryRun []string) error {
	resource, err := a.resource(o)
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(o)
	if err != nil {
		return err
	}
	force := true
	_, err = resource.Patch(ctx, o.name(), types.ApplyPatchType, text, metav1.PatchOptions{
		DryRun:          dryRun,
		FieldValidation: metav1.FieldValidationStrict,
		FieldManager:    "portolan-test",
		Force:           &force,
	})
	return err
}

// resource returns the client of an object's kind in its namespace.
func (a *applier) resource(o object) (dynamic.ResourceInterface, error) {
	u := &unstructured.Unstructured{Object: o}
	gvk := schema.FromAPIVersionAndKind(u.GetAPIVersion(), u.GetKind())
	mapping, err := a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	return a.dynamic.Resource(mapping.Resource).Namespace(u.GetNamespace()), nil
}

// warnings keeps what the API server says beside its answers.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, code int, _, text string) {
	const warning = 299 // the code of a warning that stays true (RFC 7234, section 5.5)
	if code != warning || text == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}
