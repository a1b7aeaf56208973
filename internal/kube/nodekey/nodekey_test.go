package nodekey

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/kube/object"
)

const (
	key     = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA="
	another = "AgIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA="
)

// TestPublish: the Node has the key, and everything else that it had.
func TestPublish(t *testing.T) {
	t.Parallel()
	for claim, has := range map[string]map[string]string{
		"no annotations": nil, "others": {"a": "b"}, "another key": {object.WireGuardKey: another},
	} {
		client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Annotations: maps.Clone(has)}})
		w := &Writer{node: "node-1", client: func() (kubernetes.Interface, error) { return client, nil }}
		if err := w.Publish(t.Context(), key); err != nil {
			t.Fatalf("%s: Publish: %v", claim, err)
		}
		n, err := client.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{object.WireGuardKey: key}
		if _, ok := has["a"]; ok {
			want["a"] = "b"
		}
		if !maps.Equal(n.Annotations, want) {
			t.Errorf("%s: after Publish the Node has the annotations %v, want %v", claim, n.Annotations, want)
		}
		if model, _ := object.Node(n); model.WireGuardKey == [32]byte{} {
			t.Errorf("%s: the model has no key", claim)
		}
	}
}

// TestPublishFails: an error names the annotation and the Node.
func TestPublishFails(t *testing.T) {
	t.Parallel()
	const want = "annotation network.portolan.dev/wireguard-public-key of node node-1: "
	absent := &Writer{node: "node-1", client: func() (kubernetes.Interface, error) { return fake.NewClientset(), nil }}
	for claim, w := range map[string]*Writer{
		"no such Node": absent, "no kubeconfig": New(api.ClientConfig{Kubeconfig: "/nonexistent"}, "node-1"),
	} {
		if err := w.Publish(t.Context(), key); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: Publish: %v, want %q", claim, err, want)
		}
	}
}
