package kubeproxy

import (
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/kube/events"
	"portolan.dev/portolan/test/e2e/controlplane"
	"portolan.dev/portolan/test/e2e/controlplane/controlplanetest"
)

// rules returns the rights that the kustomize base gives to the service proxy.
func rules(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/kustomize/proxy/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n---\n")
	var role rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict([]byte(first), &role); err != nil {
		t.Fatal(err)
	}
	return role.Rules
}

// TestEvent: the API server takes the Event of a health check port with the rights that deploy/
// gives, kubectl describe finds it, and without the right there is an error that says so.
func TestEvent(t *testing.T) {
	control := controlplanetest.Start(t, controlplane.Options{})
	client := control.Client().CoreV1()
	service, err := client.Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	event := events.Event{
		Object: cluster.Ref{Kind: cluster.KindService, Key: cluster.Key{Namespace: "default", Name: "web"}}, Node: "node-1",
		Reason: "FailedToStartServiceHealthcheck", Action: "Listen", Note: "the port is taken",
	}
	for claim, test := range map[string]struct {
		rules []rbacv1.PolicyRule
		want  string // the error
	}{
		"the shipped rights": {rules(t), ""},
		"no rights":          {nil, `events.events.k8s.io is forbidden: User "`},
	} {
		user, err := control.NewUser(t.Context(), "proxy", test.rules...)
		if err != nil {
			t.Fatal(err)
		}
		writer := events.New("portolan.dev/proxy", api.ClientConfig{Kubeconfig: user.Kubeconfig, QPS: 5, Burst: 10})
		err = writer.Warn(t.Context(), event)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: Warn = %v, want %q", claim, err, test.want)
		}
	}
	found, err := client.Events("default").SearchWithContext(t.Context(), scheme.Scheme, service) // as kubectl describe
	if err != nil {
		t.Fatal(err)
	}
	// On a busy machine the API server has Events of its own, of the address's allocation.
	written := slices.DeleteFunc(found.Items, func(e corev1.Event) bool { return e.ReportingController != "portolan.dev/proxy" })
	if len(written) != 1 {
		t.Fatalf("Events of the Service: %+v, want one of the service proxy", written)
	}
	got := written[0]
	if got.Reason != event.Reason || got.Message != event.Note || got.Type != "Warning" || got.ReportingInstance != "node-1" {
		t.Errorf("the Event is %+v", got)
	}
}
