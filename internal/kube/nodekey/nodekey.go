// Package nodekey writes the public key of a node's end of encrypted tunnels to its Node, in an annotation that the
// agents of other nodes read.
package nodekey

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/kube/object"
)

// Writer writes to one Node. It needs the right to patch it.
type Writer struct {
	node   string
	client func() (kubernetes.Interface, error)
}

// New returns a Writer. It makes a client when it is used for the first time.
func New(cfg api.ClientConfig, node string) *Writer {
	return &Writer{node: node, client: sync.OnceValues(func() (kubernetes.Interface, error) { return api.NewClient(cfg) })}
}

// Publish writes a key in base64.
func (w *Writer) Publish(ctx context.Context, key string) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{object.WireGuardKey: key}},
	})
	if err != nil {
		return err
	}
	client, err := w.client()
	if err == nil {
		_, err = client.CoreV1().Nodes().Patch(ctx, w.node, types.MergePatchType, body, metav1.PatchOptions{})
	}
	if err != nil {
		return fmt.Errorf("annotation %s of node %s: %w", object.WireGuardKey, w.node, err)
	}
	return nil
}
