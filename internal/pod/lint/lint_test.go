package lint_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/lint"
)

// texts has manifests in flow style, one per element.
type texts []string

func service(name, spec string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s, namespace: orders}, spec: {%s}}", name, spec)
}

func deployment(name, labels, spec string) string {
	return fmt.Sprintf("{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s, namespace: orders}, spec: {selector: {matchLabels: {%s}}, template: {metadata: {labels: {%s}}, spec: {%s}}}}", name, labels, labels, spec)
}

func pod(name, labels, rest string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: orders, labels: {%s}}, %s}", name, labels, rest)
}

func endpoints(service, list string) string {
	return fmt.Sprintf("{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: %s-x, namespace: orders, labels: {kubernetes.io/service-name: %s}}, addressType: IPv4, ports: [{name: http, port: 80}], endpoints: [%s]}", service, service, list)
}

func networkPolicy(namespace, spec string) string {
	return fmt.Sprintf("{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: p, namespace: %s}, spec: {%s}}", namespace, spec)
}

func clusterNetworkPolicy(name, spec string) string {
	return fmt.Sprintf("{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: %s}, spec: {priority: 5, subject: {namespaces: {}}, %s}}", name, spec)
}

func ingress(spec string) string {
	return fmt.Sprintf("{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: shop, namespace: orders}, spec: {%s}}", spec)
}

// mentioning returns a Pod with a text in its arguments.
func mentioning(text string) string {
	return pod("client", "app: client", "spec: {containers: [{name: main, args: ['"+text+"']}]}")
}

const http = "ports: [{name: http, port: 80}]"

// lines returns severity, object, rule, message and cure of each finding.
func lines(found []lint.Finding) (all []string) {
	for _, f := range found {
		all = append(all, fmt.Sprintf("%s: %s: %s: %s; %s", f.Severity, f.Object, f.Rule, f.Message, f.Fix))
	}
	return all
}

func TestFindings(t *testing.T) {
	t.Parallel()
	unready := func(more string) string {
		return service("web", "clusterIP: None, selector: {app: web}, "+http) + "\n---\n" + endpoints("web", "{addresses: [10.244.0.7], conditions: {ready: false"+more+"}, targetRef: {kind: Pod, name: web-1}}")
	}
	condition := func(list string) string {
		return pod("web-1", "app: web", "spec: {containers: []}, status: {conditions: ["+list+"]}")
	}
	tests := map[string]struct {
		manifests texts
		want      []string // prefixes of the lines
	}{
		"a selector of another namespace's Pods": {texts{service("web", "selector: {app: web}, "+http), strings.ReplaceAll(deployment("web", "app: web", ""), "orders", "billing")},
			[]string{"error: service orders/web: service-selects-no-pod: it selects no Pod, but would select deployment billing/web in namespace billing"}},
		"a selector of a label that a StatefulSet's Pods get": {texts{service("web", "clusterIP: 10.96.0.7, selector: {app: web, statefulset.kubernetes.io/pod-name: web-0}, "+http),
			strings.ReplaceAll(deployment("web", "app: web", ""), "kind: Deployment", "kind: StatefulSet")}, []string{"warning: statefulset orders/web: statefulset-no-service"}},
		"a selector of a label that a Job's Pods get": {texts{service("web", "clusterIP: 10.96.0.7, selector: {batch.kubernetes.io/job-name: web}, "+http),
			strings.ReplaceAll(strings.ReplaceAll(deployment("web", "app: web", ""), "kind: Deployment", "kind: Job"), "apps/v1", "batch/v1")}, nil},
		"a node's cache beside the cluster's DNS": {texts{pod("client", "app: web", `spec: {dnsPolicy: None, dnsConfig: {nameservers: [169.254.20.10, 10.96.0.10], searches: [orders.svc.cluster.local]}, containers: []}`)}, nil},
		"a selector that wants one label more": {texts{service("web", "selector: {app: web, tier: front}, "+http), deployment("web", "app: web", "")},
			[]string{"warning: service orders/web: service-selects-no-pod: it selects no Pod: deployment orders/web has all labels of the selector but tier=front"}},
		"a selector with one label of another value": {texts{service("web", "selector: {app: web, tier: front}, "+http), deployment("web", "app: web, tier: back", "")},
			[]string{"warning: service orders/web: service-selects-no-pod: it selects no Pod: deployment orders/web has tier=back, and the selector has front"}},
		"a selector with another label of that value": {texts{service("web", "selector: {app.kubernetes.io/name: web}, "+http), deployment("web", "app: web", "")},
			[]string{"error: service orders/web: service-selects-no-pod: it selects no Pod: deployment orders/web has app=web, and the selector has app.kubernetes.io/name=web"}},
		"a selector like nothing": {texts{service("web", "selector: {app: web}, "+http), deployment("db", "app: db", "")},
			[]string{"warning: service orders/web: service-selects-no-pod: it selects no Pod: nothing will answer at its cluster IP"}},
		"a selector like nothing, at an address": {texts{service("web", "clusterIP: 10.96.0.7, selector: {app: web}, "+http), deployment("db", "app: db", "")},
			[]string{"warning: service orders/web: service-selects-no-pod: it selects no Pod: its name resolves, but nothing answers at its address"}},
		"a namespace without Pods": {texts{service("web", "clusterIP: None, selector: {app: web}, "+http)},
			[]string{"warning: service orders/web: service-selects-no-pod: it selects no Pod, and no Pod or workload of namespace orders is known: its name does not exist"}},
		"endpoints of Pods that are not there": {texts{service("web", "selector: {app: web}, "+http), endpoints("web", "{addresses: [10.244.0.7]}")}, nil},
		"a Pod that ended is selected no more": {texts{service("web", "selector: {app: web}, "+http), pod("web-1", "app: web", "spec: {containers: []}, status: {phase: Succeeded}")},
			[]string{"warning: service orders/web: service-selects-no-pod: it selects no Pod that runs: pod orders/web-1 has finished: "}},

		"not ready, and nobody knows why": {texts{unready("")},
			[]string{"warning: service orders/web: service-no-ready-endpoint: it has 1 endpoint, which is not ready: its name does not exist"}},
		"not ready, terminating": {texts{unready(", terminating: true")},
			[]string{"warning: service orders/web: service-no-ready-endpoint: it has 1 endpoint, which is not ready (10.244.0.7 is terminating): its"}},
		"not ready, by a gate": {texts{unready(""), condition(`{type: Ready, status: "False"}, {type: example.com/gate, status: "False", reason: Wait}`)},
			[]string{"warning: service orders/web: service-no-ready-endpoint: it has 1 endpoint, which is not ready (pod orders/web-1, whose condition example.com/gate is False, Wait): its"}},
		"not ready, being deleted": {texts{unready(""), strings.Replace(pod("web-1", "app: web", "spec: {containers: []}"), "name: web-1", "deletionTimestamp: '2026-01-01T00:00:00Z', name: web-1", 1)},
			[]string{"warning: service orders/web: service-no-ready-endpoint: it has 1 endpoint, which is not ready (pod orders/web-1, which is terminating): its"}},
		"not scheduled": {texts{unready(""), condition(`{type: Ready, status: "False"}, {type: PodScheduled, status: "False", reason: Unschedulable, message: no room}`)},
			[]string{"warning: service orders/web: service-no-ready-endpoint: it has 1 endpoint, which is not ready (pod orders/web-1, whose condition PodScheduled is False, Unschedulable: no room): its"}},
		"no endpoint yet": {texts{service("web", "clusterIP: None, selector: {app: web}, "+http), endpoints("web", ""), condition(`{type: PodScheduled, status: "False"}`)},
			[]string{"warning: service orders/web: service-no-ready-endpoint: it has no endpoint, though it selects pod orders/web-1, whose condition PodScheduled is False: its name does not exist"}},
		"ready, without a port of the target's name": {texts{service("web", "clusterIP: 10.96.0.7, selector: {app: web}, ports: [{name: http, port: 80, targetPort: main}]"), endpoints("web", ""),
			pod("web-1", "app: web", `spec: {containers: [{name: a, ports: [{name: http, containerPort: 8080}]}]}, status: {conditions: [{type: Ready, status: "True"}]}`)},
			[]string{"error: service orders/web: service-target-port-missing: no container of pod orders/web-1 has a port named main; they have http"}},
		"not ready, without a port of the target's name": {texts{service("web", "clusterIP: 10.96.0.7, selector: {app: web}, ports: [{name: http, port: 80, targetPort: main}]"), endpoints("web", ""),
			pod("web-1", "app: web", `spec: {containers: [{name: a, ports: [{name: http, containerPort: 8080}]}]}, status: {conditions: [{type: Ready, status: "False"}]}`)},
			[]string{"warning: service orders/web: service-no-ready-endpoint: it has no endpoint, though it selects pod orders/web-1, whose condition Ready is False",
				"error: service orders/web: service-target-port-missing: no container of pod orders/web-1 has a port named main"}},
		"no endpoint, and only one of two targets is missing": {texts{service("web", "clusterIP: 10.96.0.7, selector: {app: web}, ports: [{name: a, port: 80, targetPort: main}, {name: b, port: 81, targetPort: http}]"), endpoints("web", ""),
			pod("web-1", "app: web", "spec: {containers: [{name: a, ports: [{name: http, containerPort: 8080}]}]}")},
			[]string{"warning: service orders/web: service-no-ready-endpoint: it has no endpoint, though it selects pod orders/web-1",
				"error: service orders/web: service-target-port-missing: "}},
		"not ready, and published": {texts{strings.Replace(unready(""), "clusterIP", "publishNotReadyAddresses: true, clusterIP", 1)}, nil},
		"one of two is ready":      {texts{service("web", "selector: {app: web}, "+http), endpoints("web", "{addresses: [10.244.0.7]}, {addresses: [10.244.0.8], conditions: {ready: false}}")}, nil},

		"the API server keeps its own Service":  {texts{strings.ReplaceAll(service("kubernetes", "ports: [{name: https, port: 443}]"), "orders", "default")}, nil},
		"a target of the other protocol":        {texts{service("web", "selector: {app: web}, ports: [{name: dns, protocol: UDP, port: 53, targetPort: dns}]"), deployment("web", "app: web", "containers: [{name: a, ports: [{name: dns, containerPort: 53}]}]")}, []string{"error: service orders/web: service-target-port-missing: no container of deployment orders/web has a port named dns: the port of that name has protocol TCP, not UDP"}},
		"a target of one of several containers": {texts{service("web", "selector: {app: web}, ports: [{name: http, port: 80, targetPort: http}]"), deployment("web", "app: web", "containers: [{name: a}, {name: b, ports: [{name: http, containerPort: 8080}]}]")}, nil},
		"Pods that list no port":                {texts{service("web", "selector: {app: web}, "+http), deployment("web", "app: web", "containers: [{name: a}]")}, nil},
		"a named target of a headless Service":  {texts{service("web", "clusterIP: None, selector: {app: web}, ports: [{name: http, port: 80, targetPort: http}]"), deployment("web", "app: web", "containers: [{name: a, ports: [{name: http, containerPort: 8080}]}]")}, []string{"warning: service orders/web: headless-port-translated: "}},
		"two ports of one name":                 {texts{service("web", "selector: {app: web}, ports: [{name: a, port: 80}, {name: a, port: 81}]"), deployment("web", "app: web", "")}, []string{"error: service orders/web: service-port-names: spec.ports[0] has the name a, too"}},
		"one hostname in both families":         {texts{service("web", "clusterIP: None, "+http), endpoints("web", "{addresses: [10.244.0.7], hostname: a}"), strings.NewReplacer("IPv4", "IPv6", "web-x", "web-y", "10.244.0.7", "'fd00::7'").Replace(endpoints("web", "{addresses: [10.244.0.7], hostname: a}"))}, nil},

		"an external name in capitals, with a dot":                        {texts{service("web", "type: ExternalName, externalName: web.billing.svc.cluster.local."), strings.ReplaceAll(service("web", "type: ExternalName, externalName: www.example.com"), "orders", "billing")}, nil},
		"an external name in no Namespace":                                {texts{service("web", "type: ExternalName, externalName: web.billing.svc.cluster.local")}, []string{"warning: service orders/web: externalname-missing-service: namespace billing does not exist, so web.billing.svc.cluster.local does not resolve"}},
		"an external name beside svc":                                     {texts{service("web", "type: ExternalName, externalName: web.billing.cluster.local")}, []string{"error: service orders/web: externalname-missing-service: web.billing.cluster.local is in the cluster domain, and is not the name of a Service"}},
		"an external name of a Pod":                                       {texts{service("web", "type: ExternalName, externalName: 10-0-0-1.orders.pod.cluster.local")}, nil},
		"an external name of an endpoint":                                 {texts{service("web", "type: ExternalName, externalName: a.db.orders.svc.cluster.local"), service("db", http), endpoints("db", "{addresses: [192.0.2.7], hostname: a}")}, nil},
		"an external name of a neighbor":                                  {texts{service("web", "type: ExternalName, externalName: db"), service("db", http), endpoints("db", "{addresses: [192.0.2.7]}")}, []string{"error: service orders/web: externalname-unqualified: db is not fully qualified"}},
		"an external name of one label":                                   {texts{service("web", "type: ExternalName, externalName: printer")}, []string{"error: service orders/web: externalname-unqualified: printer has a single label"}},
		"an external name that looks like a Service in no such Namespace": {texts{service("web", "type: ExternalName, externalName: db.billing")}, nil},
		"an external name that leads into a circle": {texts{service("a", "type: ExternalName, externalName: b.orders.svc.cluster.local"), service("b", "type: ExternalName, externalName: b.orders.svc.cluster.local")}, []string{
			"error: service orders/a: externalname-loop: ExternalName Services form a loop: orders/a → orders/b → orders/b",
			"error: service orders/b: externalname-loop: ExternalName Services form a loop: orders/b → orders/b"}},
		"an IPv6 address for an external name": {texts{service("web", "type: ExternalName, externalName: '2001:db8::1'")}, []string{"error: service orders/web: externalname-address: "}},

		"an Ingress of a Service in other manifests": {texts{ingress("defaultBackend: {service: {name: api, port: {number: 80}}}")}, nil},
		"an Ingress of no Service beside others": {texts{service("web", "type: ExternalName, externalName: www.example.com"), ingress("defaultBackend: {service: {name: api, port: {number: 80}}}")},
			[]string{"warning: ingress orders/shop: ingress-backend-missing: Service orders/api does not exist: requests for it fail"}},
		"an Ingress of ports": {texts{service("db", http), endpoints("db", "{addresses: [192.0.2.7]}"), ingress("rules: [{http: {paths: [{pathType: Prefix, path: /, backend: {service: {name: db, port: {name: http}}}}, {pathType: Prefix, path: /a, backend: {service: {name: db, port: {number: 80}}}}]}}, {host: b.example.com}, {http: {paths: [{pathType: Prefix, path: /, backend: {service: {name: db, port: {name: web}}}}]}}]")},
			[]string{"error: ingress orders/shop: ingress-backend-missing: Service orders/db has no port web: requests for it fail; its ports are http 80; write", "warning: ingress orders/shop: route-shadowed: an earlier rule of it has the same match for any host: the rule never serves it; "}},
		"an Ingress of an alias, an action and a resource": {texts{service("web", "type: ExternalName, externalName: www.example.com"), ingress("defaultBackend: {resource: {kind: Bucket, name: b}}, rules: [{http: {paths: [{pathType: Prefix, path: /, backend: {service: {name: web, port: {number: 443}}}}, {pathType: Prefix, path: /a, backend: {service: {name: redirect, port: {name: use-annotation}}}}]}}]")}, nil},

		"a name in a misspelled cluster domain":       {texts{mentioning("web.shop.svc.cluster.lcal")}, []string{"warning: pod orders/client: pod-name-missing-service: web.shop.svc.cluster.lcal ends in cluster.lcal, and the cluster domain is cluster.local; write web.shop.svc.cluster.local"}},
		"a name in a domain with two letters swapped": {texts{mentioning("web.shop.svc.clutser.local")}, []string{"warning: pod orders/client: pod-name-missing-service: web.shop.svc.clutser.local ends in clutser.local"}},
		"a name in a neighbor's domain":               {texts{mentioning("web.shop.svc.cluster2.local web.shop.svc.clusterb.local web.shop.svc.bcluster.local web.shop.svc.cluster-b.local")}, nil},
		"a name in a domain that the DNS forwards":    {texts{mentioning("web.shop.svc.clster.local web.shop.svc.east.clstr.local")}, nil},

		"what a template is blamed for is not told of its Pods": {texts{deployment("web", "app: web", "hostNetwork: true"), pod("web-5d4cf56db6-2xkqp", "app: web", "spec: {hostNetwork: true, containers: []}")},
			[]string{"warning: deployment orders/web: pod-host-network-policy: "}},
		"what only the Pod is blamed for is": {texts{deployment("web", "app: web", ""), pod("web-5d4cf56db6-2xkqp", "app: web", "spec: {hostNetwork: true, containers: []}")},
			[]string{"warning: pod orders/web-5d4cf56db6-2xkqp: pod-host-network-policy: "}},
		"another's Pod is": {texts{deployment("web", "app: web", "hostNetwork: true"), pod("web-x", "app: db", "spec: {hostNetwork: true, containers: []}")},
			[]string{"warning: pod orders/web-x: pod-host-network-policy: ", "warning: deployment orders/web: pod-host-network-policy: "}},
		"a Pod that ended is not judged":               {texts{pod("web-1", "app: web", "spec: {hostNetwork: true, containers: []}, status: {phase: Failed}")}, nil},
		"an unknown policy is refused, and that is it": {texts{pod("web-1", "app: web", "spec: {dnsPolicy: Cluster, containers: []}")}, []string{"error: pod orders/web-1: pod-dns-refused: Unsupported value"}},
		"two Pods of one name": {texts{service("s", "clusterIP: None, selector: {app: web}, "+http), pod("a", "app: web", "spec: {hostname: h, subdomain: s, containers: []}"), pod("b", "app: web", "spec: {hostname: h, subdomain: s, containers: []}")},
			[]string{"warning: pod orders/a: pod-hostname-shared: pod orders/b has the same hostname h: ", "warning: pod orders/b: pod-hostname-shared: pod orders/a has the same hostname h: "}},
		"a long name of a Deployment is cut by nobody": {texts{deployment(strings.Repeat("a", 60), "app: web", "")}, nil},
		"a subdomain in the node's network":            {texts{pod("web-1", "app: web", "spec: {hostNetwork: true, dnsPolicy: ClusterFirstWithHostNet, subdomain: s, containers: []}")}, nil},

		"ingress at the DNS": {texts{deployment("web", "app: web", ""), networkPolicy("kube-system", "podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {}}]}]")},
			[]string{"error: networkpolicy kube-system/p: network-policy-blocks-dns: no rule of it lets deployment orders/web reach the cluster DNS at UDP port 53 (the nearest rule, spec.ingress[0], allows other Pods or addresses): no name resolves; allow ingress from namespace orders to"}},
		"Pods of many workloads": {texts{deployment("a", "app: a", ""), deployment("b", "app: b", ""), deployment("c", "app: c", ""), deployment("d", "app: d", ""), pod("d-5d4cf56db6-2xkqp", "app: d", "spec: {containers: []}"), networkPolicy("orders", "podSelector: {}, policyTypes: [Egress]")},
			[]string{"error: networkpolicy orders/p: network-policy-blocks-dns: no rule of it lets 4 Pods and workloads (deployment orders/a, deployment orders/b, deployment orders/c and 1 more) reach the cluster DNS at UDP port 53: no name resolves; allow egress to"}},
		"several policies": {texts{deployment("web", "app: web", ""), networkPolicy("orders", "podSelector: {}, policyTypes: [Egress]"),
			strings.Replace(networkPolicy("orders", "podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: 5432}]}]"), "name: p", "name: db", 1)},
			[]string{"error: networkpolicy orders/p: network-policy-blocks-dns: no rule of it or of the other policies that apply lets deployment orders/web reach the cluster DNS at UDP port 53"}},
		"several policies, one of which nearly allows": {texts{deployment("web", "app: web", ""), networkPolicy("orders", "podSelector: {}, policyTypes: [Egress]"),
			strings.Replace(networkPolicy("orders", "podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {}}], ports: [{port: 443}]}]"), "name: p", "name: web", 1)},
			[]string{"error: networkpolicy orders/web: network-policy-blocks-dns: no rule of it or of the other policies that apply lets deployment orders/web reach the cluster DNS at UDP port 53 (the nearest rule, spec.egress[0], allows other ports): no name resolves"}},
		"OpenShift's DNS": {texts{deployment("web", "app: web", ""), networkPolicy("orders", "podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: openshift-dns}}, podSelector: {matchLabels: {dns.operator.openshift.io/daemonset-dns: default}}}], ports: [{port: 5353, protocol: UDP}, {port: 5353}]}]")},
			[]string{"warning: networkpolicy orders/p: network-policy-blocks-dns: no rule of it lets deployment orders/web reach the cluster DNS at UDP port 53, unless spec.egress[0] is meant for it: no name resolves"}},
		"all ports of neighbors": {texts{deployment("web", "app: web", ""), networkPolicy("orders", "podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}]}]")},
			[]string{"error: networkpolicy orders/p: network-policy-blocks-dns: "}},
		"another DNS than the Service": {texts{deployment("web", "app: web", ""), strings.NewReplacer("orders", "kube-system", "web", "kube-dns").Replace(service("web", "clusterIP: 172.30.0.10, selector: {app: dns}, ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53}]")), strings.ReplaceAll(deployment("dns", "app: dns", ""), "orders", "kube-system"),
			networkPolicy("orders", "podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: dns}}}], ports: [{port: 53, protocol: UDP}, {port: 53}]}]")},
			[]string{"warning: networkpolicy orders/p: network-policy-blocks-dns: "}},
		"a Pod that does not ask the cluster's DNS": {texts{deployment("web", "app: web", "dnsPolicy: None, dnsConfig: {nameservers: [192.0.2.7]}"), networkPolicy("orders", "podSelector: {}, policyTypes: [Egress]")},
			[]string{"note: deployment orders/web: pod-policy-none-elsewhere: with None the Pod uses only 192.0.2.7, "}},
		"DNS by another label, which may be right": {texts{deployment("web", "app: web", ""), networkPolicy("orders", "podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {}, podSelector: {matchLabels: {app: coredns}}}], ports: [{port: 53, protocol: UDP}, {port: 53}]}]")},
			[]string{"warning: networkpolicy orders/p: network-policy-blocks-dns: "}},
		"what a StatefulSet is blamed for is not told of its Pods": {texts{strings.NewReplacer("Deployment", "StatefulSet", "spec: {selector", "spec: {serviceName: s, selector").Replace(deployment("web", "app: web", "")), pod("web-0", "app: web", "spec: {hostname: web-0, subdomain: s, containers: []}")},
			[]string{"error: statefulset orders/web: statefulset-service-missing: "}},
		"a StatefulSet whose Service has another name": {texts{service("db-headless", "clusterIP: None, selector: {app: db}, "+http), strings.NewReplacer("Deployment", "StatefulSet", "spec: {selector", "spec: {serviceName: db, selector").Replace(deployment("db", "app: db", ""))},
			[]string{"error: statefulset orders/db: statefulset-service-missing: service orders/db does not exist, and db-headless selects the Pods: names such as db-0.db do not resolve; set serviceName to db-headless, or create"}},
		"a StatefulSet whose Service is an alias": {texts{service("db", "type: ExternalName, externalName: db.example.com"), strings.NewReplacer("Deployment", "StatefulSet", "spec: {selector", "spec: {serviceName: db, selector").Replace(deployment("db", "app: db", ""))},
			[]string{"error: statefulset orders/db: statefulset-service-missing: service orders/db is of type ExternalName and has no endpoints: names such as db-0.db do not resolve; create"}},
		"a ClusterNetworkPolicy that denies DNS": {texts{deployment("web", "app: web", ""), clusterNetworkPolicy("guard", "tier: Admin, egress: [{action: Accept, to: [{namespaces: {matchLabels: {team: a}}}]}, {action: Deny, to: [{networks: [0.0.0.0/0]}, {namespaces: {}}]}]")},
			[]string{"error: deployment orders/web: network-policy-blocks-dns: spec.egress[1] of clusternetworkpolicy guard denies the cluster DNS at UDP port 53: no name resolves; have a rule before it that accepts UDP and TCP port 53 of the Pods of"}},
		"a ClusterNetworkPolicy that denies DNS over TCP": {texts{deployment("web", "app: web", ""), clusterNetworkPolicy("guard", "tier: Admin, egress: [{action: Deny, to: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 53}}}]}]")},
			[]string{"warning: deployment orders/web: network-policy-dns-over-tcp: spec.egress[0] of clusternetworkpolicy guard denies the cluster DNS at TCP port 53: "}},
		"a ClusterNetworkPolicy of the DNS Pods": {texts{deployment("web", "app: web", ""), clusterNetworkPolicy("guard", "tier: Baseline, ingress: [{action: Deny, from: [{namespaces: {matchLabels: {kubernetes.io/metadata.name: orders}}}]}]")},
			[]string{"error: deployment orders/web: network-policy-blocks-dns: spec.ingress[0] of clusternetworkpolicy guard denies the cluster DNS at UDP port 53: no name resolves"}},
		"a ClusterNetworkPolicy that accepts DNS before a NetworkPolicy": {texts{deployment("web", "app: web", ""), networkPolicy("orders", "podSelector: {}, policyTypes: [Egress]"), clusterNetworkPolicy("dns", "tier: Admin, egress: [{action: Accept, to: [{namespaces: {matchLabels: {kubernetes.io/metadata.name: kube-system}}}]}]")}, nil},
		"a Baseline policy that a NetworkPolicy hides":                   {texts{deployment("web", "app: web", ""), networkPolicy("orders", "podSelector: {}, policyTypes: [Egress], egress: [{}]"), clusterNetworkPolicy("base", "tier: Baseline, egress: [{action: Deny, to: [{namespaces: {}}]}]")}, nil},
		"a ClusterNetworkPolicy in audit mode":                           {texts{deployment("web", "app: web", ""), strings.Replace(clusterNetworkPolicy("guard", "tier: Admin, egress: [{action: Deny, to: [{namespaces: {}}]}]"), "name: guard", "name: guard, annotations: {portolan.dev/policy-audit: 'true'}", 1)}, nil},
		"a policy in audit mode":                                         {texts{deployment("web", "app: web", ""), strings.Replace(networkPolicy("orders", "podSelector: {}, policyTypes: [Egress]"), "name: p", "name: p, annotations: {portolan.dev/policy-audit: 'true'}", 1)}, nil},
		"a policy in audit mode beside one that is not": {texts{deployment("web", "app: web", ""), strings.Replace(networkPolicy("orders", "podSelector: {}, policyTypes: [Egress]"), "name: p", "name: a, annotations: {portolan.dev/policy-audit: 'true'}", 1), networkPolicy("orders", "podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 192.0.2.0/24}}], ports: [{port: 1}]}]")},
			[]string{"error: networkpolicy orders/p: network-policy-blocks-dns: no rule of it or of the other policies that apply lets deployment orders/web reach"}},
		"a policy for other Pods": {texts{deployment("web", "app: web", ""), networkPolicy("orders", "podSelector: {matchLabels: {app: db}}, policyTypes: [Egress]")}, nil},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "manifests.yaml")
			if err := os.WriteFile(path, []byte(strings.Join(test.manifests, "\n---\n")), 0o644); err != nil {
				t.Fatal(err)
			}
			got := lines(all(load(t, path), usualNode()))
			if !slices.EqualFunc(got, test.want, strings.HasPrefix) {
				t.Errorf("CheckAll:\n%s\nwant lines that begin\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

// TestNotLoaded verifies that rules do not apply while kinds that they need are not
// loaded.
func TestNotLoaded(t *testing.T) {
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		tx.Put(&cluster.Service{Key: cluster.Key{Namespace: "orders", Name: "web"}, Selector: map[string]string{"app": "web"}})
		tx.Put(&cluster.Service{Key: cluster.Key{Namespace: "orders", Name: "bare"}})
		tx.Put(&cluster.Service{Key: cluster.Key{Namespace: "orders", Name: "alias"}, ExternalName: "x.billing.svc.cluster.local"})
		tx.Put(&cluster.EndpointSlice{Key: cluster.Key{Namespace: "orders", Name: "x"}, Service: "x"})
		tx.Put(&cluster.Pod{Key: cluster.Key{Namespace: "orders", Name: "p"}, Spec: &cluster.PodSpec{Hostname: "p", Subdomain: "gone"}})
		tx.Put(&cluster.NetworkPolicy{Key: cluster.Key{Namespace: "orders", Name: "deny"}, Egress: true})
		tx.Put(&cluster.Frontend{Kind: cluster.KindIngress, Key: cluster.Key{Namespace: "orders", Name: "shop"}, Backends: []cluster.Backend{{Service: "bare", Number: 80}}})
	})
	if got := lines(all(store, usualNode())); len(got) > 0 {
		t.Errorf("nothing loaded: CheckAll = %q, want nothing", got)
	}
	store.Update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Live, cluster.Kinds()...) })
	if got := all(store, usualNode()); len(got) < 5 {
		t.Errorf("all loaded: CheckAll = %q, want more", lines(got))
	}
}

// TestOne verifies that the methods for one object return the same findings as
// CheckAll.
func TestOne(t *testing.T) {
	store := load(t, "../../../examples/shop")
	store.View(func(v *cluster.View) {
		c := newCluster(v, usualNode())
		every := c.CheckAll()
		of := func(k cluster.Kind, key cluster.Key) []lint.Finding {
			return slices.DeleteFunc(slices.Clone(every), func(f lint.Finding) bool { return f.Object != lint.Object{Kind: k, Key: key} })
		}
		for s := range v.Services() {
			if got, want := lines(c.CheckService(s)), lines(of(cluster.KindService, s.Key)); !slices.Equal(got, want) {
				t.Errorf("CheckService(%s) = %q, CheckAll has %q", s.Key, got, want)
			}
		}
		for _, s := range dnsconfig.Subjects(v) {
			if got, want := lines(c.CheckSubject(&s)), lines(of(s.Kind, s.Key)); len(want) > 0 && !slices.Equal(got, want) {
				t.Errorf("CheckSubject(%s) = %q, CheckAll has %q", &s, got, want)
			}
		}
	})
}

// TestBlocked verifies that CheckSubject reports the policies that keep a Pod from the
// cluster DNS.
func TestBlocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manifests.yaml")
	if err := os.WriteFile(path, []byte(deployment("web", "app: web", "")+"\n---\n"+networkPolicy("orders", "podSelector: {}, policyTypes: [Egress]")), 0o644); err != nil {
		t.Fatal(err)
	}
	load(t, path).View(func(v *cluster.View) {
		c := newCluster(v, usualNode())
		got := lines(c.CheckSubject(&dnsconfig.Subjects(v)[0]))
		const want = "error: deployment orders/web: network-policy-blocks-dns: no rule of networkpolicy orders/p allows egress to the cluster DNS at UDP port 53: no name resolves; "
		if len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("CheckSubject = %q, want %s", got, want)
		}
	})
}

// TestShop verifies that examples/shop has no errors.
func TestShop(t *testing.T) {
	for _, f := range all(load(t, "../../../examples/shop"), usualNode()) {
		if f.Severity == lint.Error {
			t.Errorf("examples/shop: %s", lines([]lint.Finding{f})[0])
		}
	}
}

func TestRules(t *testing.T) {
	seen := make(map[string]bool)
	for _, r := range lint.Rules() {
		if seen[r.ID] || r.Title == "" || r.Description == "" || r.Cure == "" || r.Source == "" {
			t.Errorf("rule %+v: want a unique ID, a title, a description, a cure and a source", r)
		}
		seen[r.ID] = true
	}
}

func TestParseSeverity(t *testing.T) {
	for _, s := range []lint.Severity{lint.Note, lint.Warning, lint.Error} {
		if got, err := lint.ParseSeverity(s.String()); err != nil || got != s {
			t.Errorf("ParseSeverity(%q) = %v, %v", s.String(), got, err)
		}
	}
	if _, err := lint.ParseSeverity("fatal"); err == nil {
		t.Error(`ParseSeverity("fatal"): no error`)
	}
}

// TestAdmission verifies that rules with Admission find the problem of their example in
// the object alone, in an empty model.
func TestAdmission(t *testing.T) {
	empty := cluster.NewStore()
	for _, r := range lint.Rules() {
		if !r.Admission {
			continue
		}
		e := readExample(t, r.ID)
		path := filepath.Join(t.TempDir(), before)
		if err := os.WriteFile(path, []byte(e.before), 0o644); err != nil {
			t.Fatal(err)
		}
		var got []lint.Finding
		load(t, path).View(func(full *cluster.View) {
			empty.View(func(none *cluster.View) {
				c := newCluster(none, settings(t, e.comment))
				for s := range full.Services() {
					got = append(got, c.CheckService(s)...)
				}
				for s := range full.EndpointSlices() {
					got = append(got, c.CheckEndpointSlice(s)...)
				}
				for n := range full.Namespaces() {
					got = append(got, c.CheckNamespace(n)...)
				}
				for _, s := range dnsconfig.Subjects(full) {
					got = append(got, c.CheckSubject(&s)...)
				}
			})
		})
		if !slices.ContainsFunc(got, func(f lint.Finding) bool { return f.Rule == r.ID }) {
			t.Errorf("%s: alone, its object gives %q", r.ID, lines(got))
		}
	}
}
