package podnetwork

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// policies are Pods of the node: those named web admit packets of their node alone, and the client admits all.
var policies = `
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: shop}
spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: shop, uid: client}
spec: {nodeName: n1, containers: [{name: c, image: i}]}
` + webPods()

func webPods() string {
	const count = 1000
	var all strings.Builder
	for i := range count {
		fmt.Fprintf(&all, `---
apiVersion: v1
kind: Pod
metadata: {name: web-%[1]d, namespace: shop, uid: web-%[1]d, labels: {app: web}}
spec: {nodeName: n1, containers: [{name: c, image: i}]}
`, i)
	}
	return all.String()
}

// newPolicedNode is newNode with policies in the same agent.
func newPolicedNode(t *testing.T, objects string) *node {
	t.Helper()
	n := newNode(t, objects)
	if n != nil {
		n.parts = "network,policy"
	}
	return n
}

// startClient starts the Pod that isolates tries to connect from, where there are policies.
func (n *node) startClient(list *libcni.NetworkConfigList) {
	n.Helper()
	if n.parts == "network" {
		return
	}
	n.client = pod{name: "client", ns: namespacetest.New(n), hostPort: 19999}
	addrs, err := n.add(list, n.client)
	must(n, err)
	must(n, n.client.reaches(addrs))
}

// serves returns an error unless the node can connect to a Pod, and with policies no other Pod.
func (n *node) serves(p pod, addrs []netip.Addr) error {
	var errs []error
	for _, addr := range addrs {
		l, err := p.listen(addr)
		if err != nil {
			return err
		}
		errs = append(errs, connect(l.Addr(), await.Answer), n.isolates(l.Addr()))
		l.Close()
	}
	return errors.Join(errs...)
}

// isolates returns an error if there are policies and the client can connect to an address of a Pod named web.
func (n *node) isolates(addr net.Addr) error {
	if n.client.ns == nil {
		return nil
	}
	const enough = 100 * time.Millisecond // a packet that passes takes some microseconds
	if n.client.ns.Do(func() error { return connect(addr, enough) }) == nil {
		return fmt.Errorf("another Pod can connect to %s", addr)
	}
	return nil
}
