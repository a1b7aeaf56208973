package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/pod/explain"
)

// nodeless are objects of a cluster whose Nodes are not read: a Pod and an endpoint are on nodes.
const nodeless = `
apiVersion: v1
kind: Pod
metadata: {namespace: shop, name: web-0}
spec: {nodeName: n1, containers: [{name: main, image: i}]}
status: {phase: Running, podIP: 10.244.1.7}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.244.2.8], nodeName: n2, conditions: {ready: true}}]
`

// TestNodeless: where no Node is read, a client may be on the nodes of Pods and of endpoints, and on one that is not
// named.
func TestNodeless(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Manifests = filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(c.Manifests, []byte(nodeless), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, c)
	for node, want := range map[string]string{
		"":   "10.244.1.7:8080/tcp from a node\n",
		"n1": "10.244.1.7:8080/tcp from node n1\n",
		"n2": "10.244.1.7:8080/tcp from node n2\n",
		"n3": `no Node is known, and no Pod or endpoint is on a node "n3"`,
	} {
		told, err := w.Tell(t.Context(), Asked{Target: "10.244.1.7:8080", From: "node", Node: node})
		var got string
		if err == nil {
			got, err = told.WriteText(explain.Style{})
		}
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("from node %q: %q, want %q", node, got, want)
		}
	}
}
