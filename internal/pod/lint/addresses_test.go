package lint_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// node returns a Node; more is further status or metadata in flow style.
func node(name, labels, status string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Node, metadata: {name: %s, labels: {%s}}, status: {%s}}", name, labels, status)
}

const readyNode = `conditions: [{type: Ready, status: "True"}]`

// TestAddresses checks which Services share addresses with other Services and with nodes, and which
// nodes lack endpoints.
func TestAddresses(t *testing.T) {
	t.Parallel()
	web := service("web", "clusterIP: 10.96.0.7, internalTrafficPolicy: Local, "+http) + "\n---\n" +
		endpoints("web", "{addresses: [10.244.0.7], nodeName: n1}")
	edge := func(spec string) string {
		return service("edge", "clusterIP: 10.96.0.8, type: LoadBalancer, externalTrafficPolicy: Local, "+spec+http) + "\n---\n" +
			endpoints("edge", "{addresses: [10.244.0.7], nodeName: n1}, {addresses: [10.244.0.8], nodeName: n2, conditions: {ready: false}}")
	}
	balanced := func(name, ip, ingress string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s, namespace: orders}, "+
			"spec: {clusterIP: %s, type: LoadBalancer, %s}, status: {loadBalancer: {ingress: [%s]}}}", name, ip, http, ingress)
	}
	var many []string
	for i := range 9 {
		many = append(many, node(fmt.Sprint("n", i+1), "", readyNode))
	}
	for claim, c := range map[string]struct {
		manifests []string
		want      []string // prefixes of the findings about addresses
	}{
		"each node has an endpoint": {manifests: []string{web, node("n1", "", readyNode)}},
		"nodes that do not count": {manifests: []string{
			web, node("n1", "", readyNode), node("n2", "", ""), node("n3", "node-role.kubernetes.io/control-plane: ''", readyNode),
		}},
		"nodes whose status is not known": {
			manifests: []string{web, node("n1", "", ""), node("n2", "", "")},
			want:      []string{"warning: service orders/web: service-local-policy-nodes: no ready endpoint is on node n2: connections of Pods there"},
		},
		"many nodes": {
			manifests: append(slices.Clone(many), web),
			want:      []string{"warning: service orders/web: service-local-policy-nodes: no ready endpoint is on nodes n2, n3, n4, n5, n6 and 3 more:"},
		},
		"no endpoint at all": {manifests: []string{service("web", "clusterIP: 10.96.0.7, internalTrafficPolicy: Local, "+http), node("n1", "", readyNode)}},
		"a load balancer that checks nodes": {
			manifests: []string{edge("healthCheckNodePort: 30001, "), node("n1", "", readyNode), node("n2", "", readyNode)},
			want:      []string{"note: service orders/edge: service-local-policy-nodes: no ready endpoint is on node n2: connections from outside"},
		},
		"a load balancer that does not": {
			manifests: []string{edge(""), node("n1", "", readyNode), node("n2", "", readyNode)},
			want:      []string{"warning: service orders/edge: service-local-policy-nodes: no ready endpoint is on node n2: connections from outside"},
		},
		"two load balancers with one address": {
			manifests: []string{balanced("a", "10.96.0.8", "{ip: 203.0.113.1}"), balanced("b", "10.96.0.9", "{ip: 203.0.113.1}")},
			want: []string{
				"warning: service orders/a: external-ip-shared: service orders/b has the load balancer's address 203.0.113.1 and port 80/TCP, too",
				"warning: service orders/b: external-ip-shared: service orders/a has the load balancer's address 203.0.113.1 and port 80/TCP, too",
			},
		},
		"two load balancers that end connections": {
			manifests: []string{
				balanced("a", "10.96.0.8", "{ip: 203.0.113.1, ipMode: Proxy}"), balanced("b", "10.96.0.9", "{ip: 203.0.113.1, ipMode: Proxy}"),
			},
		},
		"a load balancer's address that is a cluster IP": {
			manifests: []string{balanced("a", "10.96.0.8", "{ip: 10.96.0.9}"), service("b", "clusterIP: 10.96.0.9, ports: [{name: dns, port: 53}]")},
			want: []string{"warning: service orders/a: external-ip-is-cluster-ip: the load balancer's address 10.96.0.9 is the cluster IP of " +
				"service orders/b: clients in the cluster"},
		},
		"a load balancer's address that is a node's": {
			manifests: []string{balanced("a", "10.96.0.8", "{ip: 192.0.2.1}"), node("n1", "", "addresses: [{type: InternalIP, address: 192.0.2.1}]")},
		},
		"a cluster IP that is a node's": {
			manifests: []string{service("b", "clusterIP: 192.0.2.1, "+http), node("n1", "", "addresses: [{type: InternalIP, address: 192.0.2.1}]")},
			want:      []string{"error: service orders/b: external-ip-of-node: 192.0.2.1 is an address of node n1"},
		},
	} {
		path := filepath.Join(t.TempDir(), "f.yaml")
		if err := os.WriteFile(path, []byte(strings.Join(c.manifests, "\n---\n")), 0o644); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, line := range lines(all(load(t, path), usualNode())) {
			if strings.Contains(line, ": external-ip-") || strings.Contains(line, ": service-local-policy-nodes: ") {
				got = append(got, line)
			}
		}
		same := slices.EqualFunc(got, c.want, strings.HasPrefix)
		if !same {
			t.Errorf("%s: %q\nwant %q", claim, got, c.want)
		}
	}
}
