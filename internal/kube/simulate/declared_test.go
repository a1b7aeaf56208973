package simulate_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDeclarationReplacesSimulatedValue checks that a declared value replaces the
// simulated one even if both are equal, as in the output of "portolan get", and that it
// counts as declared afterwards.
func TestDeclarationReplacesSimulatedValue(t *testing.T) {
	ready := "conditions: [{type: Ready, status: 'True'}]"
	readyNode := func(name string) string {
		return strings.Replace(node(name), "---", "status: {"+ready+"}\n---", 1)
	}
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{port: 80}]}\n---\n"
	const slice = `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-k8z47
  labels: {kubernetes.io/service-name: web, endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io}
addressType: IPv4
ports: [{name: "", protocol: TCP, port: 80}]
endpoints: [{addresses: [10.9.9.9], conditions: {ready: true, serving: true, terminating: false}, targetRef: {kind: Pod, name: x}}]
`
	for claim, steps := range map[string][]map[string]string{
		"a Pod's Node": {
			{"nodes.yaml": node("a"), "pod.yaml": pod("x", "x", "status: {podIP: 10.9.9.9}\n")},
			{"nodes.yaml": node("a"), "pod.yaml": pod("x", "x", "spec: {nodeName: a}\nstatus: {podIP: 10.9.9.9, "+ready+"}\n")},
			{"nodes.yaml": node("b"), "pod.yaml": pod("x", "x", "spec: {nodeName: a}\nstatus: {podIP: 10.9.9.9, "+ready+"}\n")},
		},
		"the Node of a Pod, for a DaemonSet": {
			{"pod.yaml": pod("x", "x", "spec: {nodeName: a}\n"), "agent.yaml": workload("DaemonSet", "agent", "")},
			{"pod.yaml": pod("x", "x", "spec: {nodeName: a}\n"), "agent.yaml": workload("DaemonSet", "agent", ""), "nodes.yaml": readyNode("a")},
		},
		"the Node of a deleted Pod": {
			{"pod.yaml": pod("x", "x", "spec: {nodeName: a}\n")},
			{"pod.yaml": pod("x", "x", "spec: {nodeName: a}\n"), "nodes.yaml": readyNode("a")},
			{"nodes.yaml": readyNode("a")},
		},
		"an EndpointSlice": {
			{"web.yaml": service, "pod.yaml": pod("x", "web", "status: {podIP: 10.9.9.9}\n")},
			{"web.yaml": service, "pod.yaml": pod("x", "web", "status: {podIP: 10.9.9.9}\n"), "slice.yaml": slice},
			{"web.yaml": service, "pod.yaml": pod("x", "web", "status: {podIP: 10.9.9.10}\n"), "slice.yaml": slice},
		},
	} {
		w := newWorld(t, settings(), nil)
		for _, files := range steps {
			w.load(files)
		}
		fresh := newWorld(t, settings(), nil)
		fresh.load(steps[len(steps)-1])
		if diff := cmp.Diff(fresh.dump(), w.dump()); diff != "" {
			t.Errorf("%s: after the previous steps, compared with a fresh load (-want +got)\n%s", claim, diff)
		}
	}
}

// TestWorkloadsWithTheSameName checks that workloads of different kinds with one name
// have their own Pods.
func TestWorkloadsWithTheSameName(t *testing.T) {
	w := newWorld(t, settings(), nil)
	w.load(map[string]string{"a.yaml": workload("DaemonSet", "load", "") + workload("Job", "load", "parallelism: 2")})
	kinds := make(map[string]int)
	for _, p := range w.pods() {
		kinds[p.Owner.Kind.String()]++
	}
	if diff := cmp.Diff(map[string]int{"DaemonSet": 1, "Job": 2}, kinds); diff != "" {
		t.Errorf("Pods by kind of owner (-want +got)\n%s", diff)
	}
}
