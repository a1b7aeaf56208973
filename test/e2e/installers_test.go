package e2e

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"portolan.dev/portolan/test/e2e/kubeadm"
)

// installed is what an installer puts into a cluster for CoreDNS.
type installed struct {
	account    *corev1.ServiceAccount
	role       *rbacv1.ClusterRole
	binding    *rbacv1.ClusterRoleBinding
	config     *corev1.ConfigMap
	deployment *appsv1.Deployment
}

// parseInstalled decodes manifests, one document after another.
func parseInstalled(t *testing.T, text string) *installed {
	t.Helper()
	i := new(installed)
	for document := range strings.SplitSeq(text, "\n---\n") {
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(document), nil, nil)
		if err != nil {
			t.Fatalf("%v in:\n%s", err, document)
		}
		switch o := o.(type) {
		case *corev1.ServiceAccount:
			i.account = o
		case *rbacv1.ClusterRole:
			i.role = o
		case *rbacv1.ClusterRoleBinding:
			i.binding = o
		case *corev1.ConfigMap:
			i.config = o
		case *appsv1.Deployment:
			i.deployment = o
		}
	}
	if i.account == nil || i.role == nil || i.binding == nil || i.config == nil || i.deployment == nil {
		t.Fatalf("not all that CoreDNS needs is in:\n%s", text)
	}
	return i
}

// byKubeadm is what kubeadm installs.
func byKubeadm(t *testing.T) *installed {
	t.Helper()
	text, err := kubeadm.CoreDNS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return parseInstalled(t, text)
}

// byK3s is what k3s installs, with the file of hosts that it keeps itself.
func byK3s(t *testing.T) *installed {
	t.Helper()
	text, err := os.ReadFile("testdata/k3s-coredns.yaml")
	if err != nil {
		t.Fatal(err)
	}
	i := parseInstalled(t, strings.ReplaceAll(string(text), "%{CLUSTER_DOMAIN}%", "cluster.local"))
	i.config.Data["NodeHosts"] = "192.0.2.1 node-1\n"
	return i
}

// install gives the account its rights, until the test ends. The API server
// takes the Deployment, too, and nobody does anything about it.
func (i *installed) install(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	ctx, none := t.Context(), metav1.CreateOptions{}
	accounts, deployments := client.CoreV1().ServiceAccounts(i.account.Namespace), client.AppsV1().Deployments(i.deployment.Namespace)
	roles, bindings := client.RbacV1().ClusterRoles(), client.RbacV1().ClusterRoleBindings()
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		for _, err := range []error{
			deployments.Delete(ctx, i.deployment.Name, metav1.DeleteOptions{}), bindings.Delete(ctx, i.binding.Name, metav1.DeleteOptions{}),
			roles.Delete(ctx, i.role.Name, metav1.DeleteOptions{}), accounts.Delete(ctx, i.account.Name, metav1.DeleteOptions{}),
		} {
			if err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		}
	})
	_, err1 := accounts.Create(ctx, i.account, none)
	_, err2 := roles.Create(ctx, i.role, none)
	_, err3 := bindings.Create(ctx, i.binding, none)
	_, err4 := deployments.Create(ctx, i.deployment, none)
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// container is the only one of the Deployment.
func (i *installed) container(t *testing.T) *corev1.Container {
	t.Helper()
	containers := i.deployment.Spec.Template.Spec.Containers
	if len(containers) != 1 {
		t.Fatalf("%d containers, want one", len(containers))
	}
	return &containers[0]
}

// port is the number of a probe's port.
func portOf(c *corev1.Container, probe *corev1.Probe) string {
	port := probe.HTTPGet.Port
	for _, p := range c.Ports {
		if p.Name == port.String() {
			return strconv.Itoa(int(p.ContainerPort))
		}
	}
	return port.String()
}
