package e2e

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/test/e2e/manifests"
)

// refusedExamples are the rules whose examples this API server does not take;
// the rules are for manifests that never met one, and for templates.
var refusedExamples = []string{
	lint.ServicePortNames, lint.ClusterIPShared, lint.ServiceSourceRangesUnused,
	lint.EndpointAddressForbidden, lint.PodDNSRefused, lint.PodPolicyUnknown,
}

// noGatewayAPI is why examples with Gateways and RoutePolicies can't be shown here.
const noGatewayAPI = "the API server has no CustomResourceDefinitions of the Gateway API, nor that of RoutePolicy"

// notForClusters are the rules whose examples can't be shown here, and why.
var notForClusters = map[string]string{
	lint.PodNoClusterDNS:        "it is about a kubelet's settings",
	lint.PodNoClusterDomain:     "it is about a kubelet's settings",
	lint.GatewayClassUnserved:   noGatewayAPI,
	lint.ListenerConflict:       noGatewayAPI,
	lint.ListenerSetNotAllowed:  noGatewayAPI,
	lint.RouteNotAccepted:       noGatewayAPI,
	lint.RouteBackendMissing:    noGatewayAPI,
	lint.RoutePolicyNotAccepted: noGatewayAPI,
	lint.ReferenceGrantMissing:  noGatewayAPI,
	lint.RouteShadowed:          noGatewayAPI,
	lint.RouteNeverMatches:      noGatewayAPI,
	lint.PathTrailingSlash:      noGatewayAPI,
	lint.RedirectLoop:           noGatewayAPI,
	lint.TLSAuthorityMissing:    noGatewayAPI,
}

// moreResources are of the kinds that examples of rules have beside resources.
var moreResources = map[string]schema.GroupVersionResource{
	"Deployment":    {Group: "apps", Version: "v1", Resource: "deployments"},
	"StatefulSet":   {Group: "apps", Version: "v1", Resource: "statefulsets"},
	"NetworkPolicy": {Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	"Ingress":       {Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"},
	"IngressClass":  {Group: "networking.k8s.io", Version: "v1", Resource: "ingressclasses"},
	"Secret":        {Version: "v1", Resource: "secrets"},
}

// TestCheckExamples puts each rule's example to a real API server, which refuses
// those that are said to be refused; of the others the same is found in the
// cluster as in the manifests.
func TestCheckExamples(t *testing.T) {
	a := newApplier(t)
	for _, rule := range lint.Rules() {
		if notForClusters[rule.ID] != "" {
			continue
		}
		t.Run(rule.ID, func(t *testing.T) {
			archive, err := txtar.ParseFile(filepath.Join("../../internal/pod/lint/examples", rule.ID+".txtar"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { a.clearAll(t) })
			refused := a.createAll(t, archive.Files[0])
			if refused != slices.Contains(refusedExamples, rule.ID) {
				t.Fatalf("refused: %t, want the other", refused)
			}
			if refused {
				return
			}
			args := []string{"check", "--rule", rule.ID, "-o", "json", "--kubeconfig", a.Kubeconfig()}
			if _, addrs, ok := strings.Cut(strings.TrimSpace(string(archive.Comment)), "cluster-dns: "); ok {
				for addr := range strings.FieldsSeq(addrs) {
					args = append(args, "--cluster-dns", addr)
				}
			}
			stdout, _ := runPortolan(t, args...)
			var found []struct{ Rule, Object, File string }
			if err := json.Unmarshal([]byte(stdout), &found); err != nil || len(found) == 0 || found[0].Rule != rule.ID || found[0].File != "" {
				t.Errorf("portolan %s: %v, %s; want findings of the rule, without a file", strings.Join(args, " "), err, stdout)
			}
		})
	}
}

// createAll creates the objects of a file, and reports whether one of them is
// refused.
func (a *applier) createAll(t *testing.T, f txtar.File) (refused bool) {
	t.Helper()
	all, err := manifests.Read(map[string][]byte{f.Name: f.Data})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		if err := a.ensureNamespace(t.Context(), o.GetNamespace()); err != nil {
			t.Fatal(err)
		}
		complete(o)
		made, err := a.anyKind(o).Create(t.Context(), o, metav1.CreateOptions{})
		switch {
		case apierrors.IsInvalid(err):
			t.Log(err)
			return true
		case err != nil:
			t.Fatal(err)
		}
		if o.GetKind() == "Namespace" {
			if err := a.awaitNamespace(t.Context(), o.GetName()); err != nil {
				t.Fatal(err)
			}
		}
		if status, ok := o.Object["status"]; ok {
			made.Object["status"] = status
			if _, err := a.anyKind(o).UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return false
}

// anyKind is where the objects of that one's kind are.
func (a *applier) anyKind(o object) dynamic.ResourceInterface {
	if r, ok := moreResources[o.GetKind()]; ok {
		return a.dynamic.Resource(r).Namespace(o.GetNamespace())
	}
	return a.objects(o)
}

// clearAll deletes what was created.
func (a *applier) clearAll(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	for _, r := range moreResources {
		list, err := a.dynamic.Resource(r).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if err := a.anyKind(&list.Items[i]).Delete(ctx, list.Items[i].GetName(), metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
	}
	if err := a.clear(ctx); err != nil {
		t.Fatal(err)
	}
}
