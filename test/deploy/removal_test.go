package deploy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/kube/daemonset"
	policy "portolan.dev/portolan/internal/policy/settings"
	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/e2e/controlplane"
)

// TestPolicyRemoval: with its account and the rights that we ship, an agent that ends tells the removal of its
// DaemonSet, or of policies, from an upgrade. Real API servers refuse it in several ways when all objects are
// deleted at once.
func TestPolicyRemoval(t *testing.T) { //nolint:tparallel // the subtests change the same objects
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a control plane, which is built first where it never was")
	}
	control := startControlPlane(t.Context(), t)
	client := control.Client()
	const ns = metav1.NamespaceSystem
	remove := metav1.DeleteOptions{}
	background := metav1.DeletePropagationBackground
	remove.PropagationPolicy = &background
	for _, test := range []struct {
		claim string
		does  func(context.Context) error
		want  bool
		err   error
	}{
		{"the Pod ends", func(context.Context) error { return nil }, false, nil},
		{"an upgrade", func(ctx context.Context) error {
			return updateAgents(ctx, client, func(d *appsv1.DaemonSet) { d.Spec.Template.Spec.Containers[0].Image = "portolan:v9" })
		}, false, nil},
		{"policies are taken out", func(ctx context.Context) error {
			return updateAgents(ctx, client, func(d *appsv1.DaemonSet) { delete(d.Spec.Template.Annotations, policy.Annotation) })
		}, true, nil},
		{"the DaemonSet is deleted", func(ctx context.Context) error {
			return client.AppsV1().DaemonSets(ns).Delete(ctx, agentName, remove)
		}, true, nil},
		{"the binding is deleted", func(ctx context.Context) error {
			return client.RbacV1().RoleBindings(ns).Delete(ctx, agentName, remove)
		}, false, fs.ErrPermission},
		{"the account is deleted", func(ctx context.Context) error {
			return client.CoreV1().ServiceAccounts(ns).Delete(ctx, agentName, remove)
		}, false, fs.ErrPermission},
	} {
		t.Run(test.claim, func(t *testing.T) {
			own := agentsDaemonSet(t, control)
			own.Find(t.Context())
			if err := test.does(t.Context()); err != nil {
				t.Fatal(err)
			}
			await.NoError(t, func() error { // the API server knows of a deleted account or binding a little later
				if got, err := own.Removed(t.Context()); got != test.want || !errors.Is(err, test.err) {
					return fmt.Errorf("Removed() = %v, %w, want %v, %w", got, err, test.want, test.err)
				}
				return nil
			})
		})
	}
}

// updateAgents changes the agents' DaemonSet.
func updateAgents(ctx context.Context, client kubernetes.Interface, change func(*appsv1.DaemonSet)) error {
	d, err := client.AppsV1().DaemonSets(metav1.NamespaceSystem).Get(ctx, agentName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	change(d)
	_, err = client.AppsV1().DaemonSets(d.Namespace).Update(ctx, d, metav1.UpdateOptions{})
	return err
}

// agentsDaemonSet makes the DaemonSet of agents with policies, its account and its rights as the chart has them,
// where they are missing or differ, and returns what an agent of that account knows of its DaemonSet.
func agentsDaemonSet(t *testing.T, control *controlplane.ControlPlane) *daemonset.DaemonSet {
	t.Helper()
	ctx, client := t.Context(), control.Client()
	const ns = metav1.NamespaceSystem
	all := policyAgents(t, "{}")
	account := as[corev1.ServiceAccount](t, all, "ServiceAccount")
	role, binding := as[rbacv1.Role](t, all, "Role"), as[rbacv1.RoleBinding](t, all, "RoleBinding")
	d := as[appsv1.DaemonSet](t, all, "DaemonSet")
	_ = client.AppsV1().DaemonSets(ns).Delete(ctx, d.Name, metav1.DeleteOptions{})
	_ = client.RbacV1().RoleBindings(ns).Delete(ctx, binding.Name, metav1.DeleteOptions{})
	_ = client.RbacV1().Roles(ns).Delete(ctx, role.Name, metav1.DeleteOptions{})
	_ = client.CoreV1().ServiceAccounts(ns).Delete(ctx, account.Name, metav1.DeleteOptions{})
	create := metav1.CreateOptions{}
	for _, creates := range []func() error{
		func() error { _, err := client.CoreV1().ServiceAccounts(ns).Create(ctx, &account, create); return err },
		func() error { _, err := client.RbacV1().Roles(ns).Create(ctx, &role, create); return err },
		func() error { _, err := client.RbacV1().RoleBindings(ns).Create(ctx, &binding, create); return err },
		func() error { _, err := client.AppsV1().DaemonSets(ns).Create(ctx, &d, create); return err },
	} {
		await.NoError(t, creates) // the namespace is made soon after the API server starts
	}
	token, err := client.CoreV1().ServiceAccounts(ns).CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{}, create)
	if err != nil {
		t.Fatal(err)
	}
	return daemonset.New(daemonset.Config{
		Client: api.ClientConfig{Kubeconfig: kubeconfigOf(t, control, token.Status.Token)},
		Name:   agentName, Annotation: policy.Annotation, Log: slog.New(slog.DiscardHandler),
	})
}

// kubeconfigOf writes a kubeconfig with a token of an account in kube-system.
func kubeconfigOf(t *testing.T, control *controlplane.ControlPlane, token string) string {
	t.Helper()
	rest := control.RESTConfig()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{
		Server: rest.Host, CertificateAuthority: rest.CAFile, CertificateAuthorityData: rest.CAData,
	}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u", Namespace: metav1.NamespaceSystem}
	c.CurrentContext = "x"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
