package app

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v3"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/pod/suite"
)

// packetsObjects are added to base.yaml: what random clusters had when packets and verdicts differed.
const packetsObjects = `
apiVersion: v1
kind: Pod
metadata: {namespace: tools, name: own, labels: {app: own}}
spec:
  nodeName: n1
  hostname: own
  subdomain: own
  containers: [{name: main, image: registry.example/own:1, ports: [{name: admin, containerPort: 9000}]}]
status:
  phase: Running
  podIP: 10.244.1.80
  podIPs: [{ip: 10.244.1.80}, {ip: "fd00:10:244:1::80"}]
  conditions: [{type: Ready, status: "True"}]
---
apiVersion: v1
kind: Service
metadata: {namespace: tools, name: own}
spec: {clusterIP: None, selector: {app: own}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: tools, name: own-4, labels: {kubernetes.io/service-name: own}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.244.1.80], hostname: own, nodeName: n1, conditions: {ready: true}, targetRef: {kind: Pod, namespace: tools, name: own}}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: tools, name: own}
spec:
  podSelector: {matchLabels: {app: own}}
  policyTypes: [Ingress, Egress]
  ingress: [{from: [{ipBlock: {cidr: 10.244.2.22/32}}, {ipBlock: {cidr: "2001:db8::/32"}}]}]
  egress: [{to: [{ipBlock: {cidr: "::/0"}}, {ipBlock: {cidr: 192.0.2.200/32}}]}]
---
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: closed}
spec:
  tier: Admin
  priority: 1
  subject: {pods: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: tools}}, podSelector: {matchLabels: {app: own}}}}
  egress: [{action: Deny, to: [{namespaces: {matchLabels: {kubernetes.io/metadata.name: tools}}}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {namespace: shop, name: short}
spec:
  parentRefs: [{namespace: infra, name: public, sectionName: any}]
  hostnames: [short.example]
  rules:
    - backendRefs: [{name: web, port: 80, weight: 0}, {name: absent, port: 80, weight: 1}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {namespace: tools, name: closed}
spec:
  parentRefs: [{namespace: infra, name: public, sectionName: any}]
  hostnames: [closed.example]
  rules:
    - matches: [{path: {value: /soon}}]
      timeouts: {request: 2s}
      backendRefs: [{name: own, port: 80}]
    - backendRefs: [{name: own, port: 80}]
`

// TestVerdictsOfPackets has assertions that packets were observed to agree with, and verdicts once did not.
func TestVerdictsOfPackets(t *testing.T) {
	t.Parallel()
	base := baseObjects(t)
	for _, o := range base {
		if nameOf(o) == "Gateway infra/public" {
			spec := o["spec"].(map[string]any)
			spec["listeners"] = append(spec["listeners"].([]any), map[string]any{
				"name": "any", "port": 80, "protocol": "HTTP", "hostname": "*.example",
				"allowedRoutes": map[string]any{"namespaces": map[string]any{"from": "All"}},
			})
		}
	}
	var text bytes.Buffer
	enc := yaml.NewEncoder(&text)
	for _, o := range base {
		if err := enc.Encode(o); err != nil {
			t.Fatal(err)
		}
	}
	text.WriteString("---" + packetsObjects)
	c := config.Default()
	c.Gateway.Publish.Service = "infra/portolan-gateway"
	c.Manifests = filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(c.Manifests, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, c)
	for claim, test := range map[string]string{
		"a port of a headless Service that only a container has":       "{from: tools/debug, to: own.tools:9000, expect: connects}",
		"a port of a headless Service that nobody has is refused":      "{from: tools/debug, to: own.tools:81, expect: refused}",
		"a port of a headless Service that nobody has, with UDP":       "{from: tools/debug, to: 'own.tools:81/udp', expect: refused}",
		"policies drop before the port refuses":                        "{from: shop/client, to: own.tools:81, expect: dropped}",
		"policies do not judge what does not leave a Pod":              "{from: tools/own, to: '10.244.1.80:9000', expect: connects}",
		"the Pod's own name is in its /etc/hosts":                      "{from: tools/own, to: own.own.tools.svc.cluster.local, expect: {resolves: [10.244.1.80, 'fd00:10:244:1::80']}}",
		"a block of the other family does not let queries through":     "{from: tools/own, to: web.shop, expect: unresolved}",
		"a host of routes is not taken for a Service":                  "{from: tools/debug, to: 'http://short.example/', expect: {status: 500}}",
		"an address outside, of a client that no policy selects":       "{from: tools/debug, to: '192.0.2.200:443', expect: connects}",
		"an address outside that a policy allows":                      "{from: tools/own, to: '192.0.2.200:443', expect: connects}",
		"an address outside that a policy denies":                      "{from: tools/own, to: '192.0.2.201:443', expect: dropped}",
		"a client outside, by its address and the node that has it":    "{from: 203.0.113.9/n2, to: '192.0.2.20:80', expect: connects}",
		"a node sends from its address of the family":                  "{from: node/n2, to: '[fd00:10:244:1::80]:9000', expect: connects}",
		"a policy does not allow its other address":                    "{from: node/n2, to: '10.244.1.80:9000', expect: dropped}",
		"policies keep the gateway from the backend":                   "{from: tools/debug, to: 'http://closed.example/', expect: {status: 502}}",
		"policies keep it from the backend of a rule with a timeout":   "{from: tools/debug, to: 'http://closed.example/soon', expect: {status: 504}}",
		"another one, which source ranges do not have":                 "{from: 192.0.2.77/n1, to: '192.0.2.20:80', expect: dropped}",
		"a backend of weight 0 gets no request, and the others answer": "{from: 192.0.2.77/n1, to: 'http://short.example/', expect: {status: 500}}",
	} {
		s, err := suite.Read("f", fmt.Appendf(nil, "tests: [%s]", test))
		if err != nil {
			t.Fatal(err)
		}
		results, err := w.Test(t.Context(), s, NodeSettings{})
		if err != nil || len(results) != 1 || !results[0].Passed() {
			t.Errorf("%s: Test(%s) = %v", claim, test, err)
			for i := range results {
				t.Error(results[i].Sentence())
			}
		}
	}
}
