package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/e2e/controlplane"
)

// ownService is the one that the API server makes.
const ownService = "Service default/kubernetes"

// applier puts manifests to an API server, and takes them away again.
type applier struct {
	*controlplane.ControlPlane
	dynamic dynamic.Interface
}

// newApplier makes the API server take the ClusterIPs that scenarios have.
func newApplier(t *testing.T) *applier {
	t.Helper()
	c := controlPlane(t)
	cfg := c.RESTConfig()
	cfg.WarningHandler = rest.NoWarnings{}
	d, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for name, ranges := range map[string][]string{
		"e2e-1": {"10.96.0.0/12", "fd00:96::/64"},
		"e2e-2": {"fd00:10:96::/64"},
		"e2e-3": {"10.3.0.0/16", "fd00::/64"},
	} {
		_, err := c.Client().NetworkingV1().ServiceCIDRs().Create(t.Context(), &networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: ranges},
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	return &applier{c, d}
}

func (a *applier) objects(o object) dynamic.ResourceInterface {
	r := a.dynamic.Resource(resources[o.GetKind()].GroupVersionResource)
	if o.GetNamespace() == "" {
		return r
	}
	return r.Namespace(o.GetNamespace())
}

// apply creates all objects. Those in unacceptable are stored behind the API
// server's back, as objects are that were made under other rules; it is an
// error when the API server would take them.
func (a *applier) apply(ctx context.Context, all []object, unacceptable map[string]string) error {
	for _, o := range all {
		if _, ok := resources[o.GetKind()]; !ok {
			return fmt.Errorf("%s: no kind that is put to the API server", nameOf(o))
		}
		if o.GetNamespace() == "" && o.GetKind() != "Namespace" && o.GetKind() != "Node" {
			o.SetNamespace(metav1.NamespaceDefault)
		}
		if err := a.ensureNamespace(ctx, o.GetNamespace()); err != nil {
			return err
		}
		put := a.create
		if unacceptable[nameOf(o)] != "" {
			put = a.store
		}
		if err := put(ctx, o); err != nil {
			return fmt.Errorf("%s: %w", nameOf(o), err)
		}
	}
	return nil
}

func (a *applier) ensureNamespace(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	_, err := a.Client().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return a.awaitNamespace(ctx, name)
}

// awaitNamespace waits until objects can be created in a Namespace that was just
// made: for a moment the API server may take it for the one of that name that
// went before.
func (a *applier) awaitNamespace(ctx context.Context, name string) error {
	return wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, await.Patience, true, func(ctx context.Context) (done bool, err error) {
		probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
		_, err = a.Client().CoreV1().ConfigMaps(name).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return false, nil
		}
		return true, err
	})
}

func (a *applier) create(ctx context.Context, o object) error {
	complete(o)
	made, err := a.objects(o).Create(ctx, o, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) && o.GetKind() == "Namespace" {
		return nil
	}
	// The API server makes its own Service, and makes it again.
	if apierrors.IsAlreadyExists(err) && nameOf(o) == ownService {
		if err := a.delete(ctx, o); err != nil {
			return err
		}
		made, err = a.objects(o).Create(ctx, o, metav1.CreateOptions{})
	}
	if err != nil {
		return err
	}
	if o.GetKind() == "Namespace" {
		return a.awaitNamespace(ctx, o.GetName())
	}
	if status, ok := o.Object["status"]; ok {
		made.Object["status"] = status
		_, err := a.objects(o).UpdateStatus(ctx, made, metav1.UpdateOptions{})
		return err
	}
	return assigned(o, made)
}

// assigned is an error when the API server gave a Service an address that its
// manifest has not.
func assigned(given, made object) error {
	want, _, _ := unstructured.NestedString(given.Object, "spec", "clusterIP")
	got, _, _ := unstructured.NestedString(made.Object, "spec", "clusterIP")
	if got != want {
		return fmt.Errorf("the API server assigns the ClusterIP %s, and the manifest has %q", got, want)
	}
	return nil
}

// store writes an object into etcd.
func (a *applier) store(ctx context.Context, o object) error {
	made, err := a.objects(o).Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil && assigned(o, made) == nil {
		return errors.New("the API server would take it; take it off the table")
	}
	o.SetUID(uuid.NewUUID())
	o.SetCreationTimestamp(metav1.Now())
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = a.Etcd().Put(ctx, resources[o.GetKind()].stored+o.GetNamespace()+"/"+o.GetName(), string(data))
	return err
}

func (a *applier) delete(ctx context.Context, o object) error {
	err := a.objects(o).Delete(ctx, o.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// clear deletes all objects of the kinds that are read, but for the Namespaces
// that the API server makes.
func (a *applier) clear(ctx context.Context) error {
	for kind, r := range resources {
		if kind == "Namespace" {
			continue // when it is empty: nothing else would empty it
		}
		list, err := a.dynamic.Resource(r.GroupVersionResource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if err := a.delete(ctx, &list.Items[i]); err != nil {
				return err
			}
		}
	}
	return a.clearNamespaces(ctx)
}

// clearNamespaces does what the namespace controller does with empty ones.
func (a *applier) clearNamespaces(ctx context.Context) error {
	namespaces := a.Client().CoreV1().Namespaces()
	list, err := namespaces.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		ns := &list.Items[i]
		switch ns.Name {
		case metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease:
			continue
		}
		if err := namespaces.Delete(ctx, ns.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		ns.Spec.Finalizers = nil
		ns.ResourceVersion = ""
		if _, err := namespaces.Finalize(ctx, ns, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
