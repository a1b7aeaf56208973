package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/pod/suite"
)

// judged are objects of a cluster of two nodes, for ways that are easy to judge wrongly.
const judged = `
{apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {podCIDRs: [10.244.1.0/24]}, status: {addresses: [{type: InternalIP, address: 192.0.2.1}], conditions: [{type: Ready, status: "True"}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: n2}, spec: {podCIDRs: [10.244.2.0/24]}, status: {addresses: [{type: InternalIP, address: 192.0.2.2}], conditions: [{type: Ready, status: "True"}]}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: a, name: client, labels: {app: client}}, spec: {nodeName: n1, containers: [{name: m}]}, status: {phase: Running, podIPs: [{ip: 10.244.1.10}]}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: a, name: free, labels: {app: free}}, spec: {nodeName: n1, containers: [{name: m}]}, status: {phase: Running, podIPs: [{ip: 10.244.1.11}]}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: a, name: web-0, labels: {app: web}}, spec: {nodeName: n2, containers: [{name: m}]}, status: {phase: Running, podIPs: [{ip: 10.244.2.20}], conditions: [{type: Ready, status: "True"}]}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: a, name: corp, labels: {app: corp}}, spec: {nodeName: n2, containers: [{name: m}]}, status: {phase: Running, podIPs: [{ip: 10.244.2.21}]}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: a, name: nat, labels: {app: nat}}, spec: {nodeName: n2, containers: [{name: m}]}, status: {phase: Running, podIPs: [{ip: 10.244.2.22}]}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: a, name: closed, labels: {app: closed}}, spec: {nodeName: n2, containers: [{name: m}]}, status: {phase: Running, podIPs: [{ip: 10.244.2.23}]}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: a, name: zz-running, labels: {app: free}}, spec: {nodeName: n2, containers: [{name: m}]}, status: {phase: Running, podIPs: [{ip: 10.244.2.30}]}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: a, name: done-0}, spec: {nodeName: n2, containers: [{name: m}]}, status: {phase: Succeeded, podIPs: [{ip: 10.244.2.30}]}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: a, name: done-1}, spec: {nodeName: n2, containers: [{name: m}]}, status: {phase: Succeeded, podIPs: [{ip: 10.244.2.30}]}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: a, name: worker}, spec: {selector: {matchLabels: {app: worker}}, template: {metadata: {labels: {app: worker}}, spec: {containers: [{name: m}]}}}}
---
{apiVersion: v1, kind: Service, metadata: {namespace: a, name: web}, spec: {type: NodePort, clusterIP: 10.96.0.20, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}}
---
{apiVersion: v1, kind: Service, metadata: {namespace: a, name: local}, spec: {clusterIP: 10.96.0.21, internalTrafficPolicy: Local, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}}
---
{apiVersion: v1, kind: Service, metadata: {namespace: a, name: aaa}, spec: {clusterIP: None, selector: {app: web}, ports: [{port: 7070}]}}
---
{apiVersion: v1, kind: Service, metadata: {namespace: a, name: bare}, spec: {clusterIP: None, selector: {app: web}, ports: [{port: 9090}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {namespace: a, name: web-1, labels: {kubernetes.io/service-name: web}}, addressType: IPv4, ports: [{port: 8080}], endpoints: [{addresses: [10.244.2.20], nodeName: n2, targetRef: {kind: Pod, namespace: a, name: web-0}}]}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {namespace: a, name: local-1, labels: {kubernetes.io/service-name: local}}, addressType: IPv4, ports: [{port: 8080}], endpoints: [{addresses: [10.244.2.20], nodeName: n2, targetRef: {kind: Pod, namespace: a, name: web-0}}]}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {namespace: a, name: aaa-1, labels: {kubernetes.io/service-name: aaa}}, addressType: IPv4, ports: [{port: 7070}], endpoints: [{addresses: [10.244.2.20], nodeName: n2, targetRef: {kind: Pod, namespace: a, name: web-0}}]}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {namespace: a, name: bare-1, labels: {kubernetes.io/service-name: bare}}, addressType: IPv4, ports: [{port: 9090}], endpoints: [{addresses: [10.244.2.20], nodeName: n2, targetRef: {kind: Pod, namespace: a, name: web-0}}]}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: a, name: client}, spec: {podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: web}}}]}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: a, name: corp}, spec: {podSelector: {matchLabels: {app: corp}}, policyTypes: [Ingress], ingress: [{from: [{ipBlock: {cidr: 203.0.113.0/24}}]}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: a, name: web}, spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress], ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0}}]}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: a, name: nat}, spec: {podSelector: {matchLabels: {app: nat}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8]}}]}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: a, name: closed}, spec: {podSelector: {matchLabels: {app: closed}}, policyTypes: [Ingress, Egress], egress: [{}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: a, name: closed-too}, spec: {podSelector: {matchLabels: {app: closed}}, policyTypes: [Ingress]}}
`

// worldOf returns the world of a cluster with a change.
func worldOf(t *testing.T, c config.Config, manifests string, change func(*cluster.Tx)) *world {
	t.Helper()
	c.Manifests = filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(c.Manifests, []byte(manifests), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, c)
	w.store.Update(change)
	return w
}

// judge returns what clients see, by the ways that a suite names.
func judge(t *testing.T, w *world, tests string) (results []suite.Result, err error) {
	t.Helper()
	s, err := suite.Read("suite.yaml", []byte("tests:\n- "+tests+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	return w.Test(t.Context(), s, NodeSettings{})
}

// TestJudged: what clients get where it is easily judged by something else than their packets.
func TestJudged(t *testing.T) {
	t.Parallel()
	for claim, test := range map[string]struct{ tests, why string }{
		// The client's node does not translate addresses of other nodes, so its policies see those.
		"the node port of another node":  {"{from: a/client, to: '192.0.2.2:30080', expect: dropped, by: NetworkPolicy a/client}", ""},
		"the node port of its own node":  {"{from: a/client, to: '192.0.2.1:30080', expect: connects}", ""},
		"loopback":                       {"{from: a/client, to: ['127.0.0.1:8080', '[::1]:8080', 'localhost:8080'], expect: connects}", ""},
		"the port of a headless Service": {"{from: a/free, to: ['bare:9090', 'aaa:7070'], expect: connects}", ""},
		"a port that it lacks":           {"{from: a/free, to: 'bare:9191', expect: refused}", ""},
		// Its other Services count, as a program may listen at their ports.
		"a port of another Service of its Pods": {"{from: a/free, to: 'bare:8080', expect: connects}", ""},
		"an address that Pods had that ended":   {"{from: a/free, to: '10.244.2.30:80', expect: connects}", ""},
		// Addresses of Pods are in the ranges of nodes.
		"a workload and a block of other addresses":   {"{from: a/deployment/worker, to: 'a/corp:80', expect: dropped}", ""},
		"a workload and a block of all addresses":     {"{from: [a/deployment/worker, outside/n2], to: 'a/web-0:80', expect: connects}", ""},
		"a block that excepts those of a workload":    {"{from: a/nat, to: 'a/deployment/worker:80', expect: dropped}", ""},
		"a client outside, and a block of some":       {"{from: outside/n2, to: 'a/corp:80', expect: dropped}", "NetworkPolicy a/corp allows some addresses, and the client's is not known"},
		"a workload on a node that is not known":      {"{from: a/deployment/worker, to: 'local:80', expect: dropped}", "internalTrafficPolicy is Local, and the node of the connection is not known"},
		"what allows the other direction":             {"{from: a/closed, to: 'a/closed:80', expect: dropped}", "each client is its own target"},
		"each of the policies that allow nothing":     {"{from: a/free, to: 'a/closed:80', expect: dropped, by: NetworkPolicy a/closed-too}", ""},
		"a policy that allows the other direction":    {"{from: a/client, to: 'a/closed:80', expect: dropped, by: NetworkPolicy a/closed}", ""},
		"a rule that allows only the other direction": {"{from: a/client, to: 'a/web-0:80', expect: connects, by: 'NetworkPolicy a/client spec.egress[0]'}", ""},
	} {
		checkJudged(t, claim, judged, test.tests, test.why)
	}
}

// TestJudgedWithoutRanges: where manifests do not say which addresses Pods get, blocks of some addresses decide nothing.
func TestJudgedWithoutRanges(t *testing.T) {
	t.Parallel()
	var without []string
	for o := range strings.SplitSeq(judged, "\n---\n") {
		if !strings.Contains(o, "kind: Node,") {
			without = append(without, o)
		}
	}
	for claim, test := range map[string]struct{ tests, why string }{
		"a client":          {"{from: a/deployment/worker, to: 'a/corp:80', expect: dropped}", "NetworkPolicy a/corp allows some addresses, and the client's is not known"},
		"a target":          {"{from: a/nat, to: 'a/deployment/worker:80', expect: dropped}", "NetworkPolicy a/nat allows some addresses, and that of deployment a/worker is not known"},
		"all addresses":     {"{from: a/deployment/worker, to: 'a/web-0:80', expect: connects}", ""},
		"one denies anyway": {"{from: a/deployment/worker, to: 'a/closed:80', expect: dropped}", ""},
	} {
		checkJudged(t, claim, strings.Join(without, "\n---\n"), test.tests, test.why)
	}
}

// checkJudged judges one test of a suite: it passes if why is empty, and is otherwise said to fail for that.
func checkJudged(t *testing.T, claim, manifests, tests, why string) {
	t.Helper()
	checkJudgedOf(t, config.Default(), claim, manifests, tests, why)
}

func checkJudgedOf(t *testing.T, c config.Config, claim, manifests, tests, why string) {
	t.Helper()
	results, err := judge(t, worldOf(t, c, manifests, func(*cluster.Tx) {}), tests)
	var all []string
	if err != nil {
		all = append(all, err.Error())
	}
	for i := range results {
		if results[i].Why != "" {
			all = append(all, results[i].Why)
		}
	}
	if len(all)+len(results) == 0 {
		all = append(all, "nothing was judged")
	}
	said := strings.Join(all, "; ")
	if (said == "") != (why == "") || !strings.Contains(said, why) {
		t.Errorf("%s: %s: %q, want %q", claim, tests, said, why)
	}
}

// TestJudgedUnread: where policies may not be read, nothing is said of connections that they may deny.
func TestJudgedUnread(t *testing.T) {
	t.Parallel()
	for _, kind := range []cluster.Kind{cluster.KindNetworkPolicy, cluster.KindClusterNetworkPolicy} {
		w := worldOf(t, config.Default(), judged, func(tx *cluster.Tx) { tx.SetFreshness(cluster.Loading, kind) })
		results, err := judge(t, w, "{from: a/free, to: ['a/corp:80', 'web:80', '10.96.0.20:80'], expect: connects}")
		const want = "what policies decide is not known, since these could not be read: "
		if err == nil || !strings.Contains(err.Error(), want+strings.ToLower(kind.Plural())) || len(results) > 0 {
			t.Errorf("without %s: %d results, %v, want that nothing can be judged", kind.Plural(), len(results), err)
		}
	}
}
