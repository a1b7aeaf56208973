package deploy

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestNodeValues: a value has the effect that its name says.
func TestNodeValues(t *testing.T) {
	all := agents(t, `{config: {addresses: [169.254.20.10, 10.96.0.10], servers: [10.96.0.11]}, serversClusterIPs: [10.96.0.11, "fd00:10:96::b"], admin: "[::]:9353", maxSurge: 10%,
priorityClassName: "", nodeSelector: {a: b}, tolerations: [], resources: {limits: {memory: 1Gi}}}`)
	cfg := readConfig(t, configText(t, all))
	if !slices.Equal(cfg.Node.Addresses, []string{"169.254.20.10", "10.96.0.10"}) || cfg.Admin.Listen != "[::]:9353" {
		t.Errorf("config.yaml: %+v, admin %v", cfg.Node, cfg.Admin)
	}
	d := as[appsv1.DaemonSet](t, all, "DaemonSet")
	pod := d.Spec.Template.Spec
	if c := onlyContainer(t, pod); slices.Contains(c.Args, "--server") || c.Resources.Limits.Memory().String() != "1Gi" {
		t.Errorf("args %v, resources %v", c.Args, c.Resources)
	}
	if *d.Spec.UpdateStrategy.RollingUpdate.MaxSurge != intstr.FromString("10%") || pod.PriorityClassName != "" || pod.NodeSelector["a"] != "b" || len(pod.Tolerations) > 0 {
		t.Errorf("the DaemonSet: %v", d.Spec)
	}
	servers := serviceOf(t, all, agentServers)
	if diff := cmp.Diff([]string{"10.96.0.11", "fd00:10:96::b"}, servers.Spec.ClusterIPs); diff != "" || servers.Spec.ClusterIP != "10.96.0.11" {
		t.Errorf("clusterIPs (-want +got):\n%s", diff)
	}
	if port := serviceOf(t, all, agentName).Annotations["prometheus.io/port"]; port != "9353" {
		t.Errorf("prometheus.io/port = %s", port)
	}
	for _, taken := range []string{
		"{node: {enabled: true}, config: {kubernetes: {namespaces: [shop, kube-system]}}}",
		"{node: {enabled: true, config: {mode: cache}}, config: {kubernetes: {namespaces: [shop]}}}",
		"{node: {enabled: true, config: {primaries: [10.0.0.2]}}, config: {kubernetes: {namespaces: [shop]}}}",
	} {
		if _, err := render(t, valuesOf(t, taken)); err != nil {
			t.Errorf("helm template with %s: %v", taken, err)
		}
	}
	for _, refused := range []string{
		"node: {enable: true}",
		"node: {enabled: true, config: {mode: proxy}}",
		"node: {enabled: true, config: {notify: '0.0.0.0:5353'}}", // the Service would not know
		"node: {enabled: true, stateDir: here}",
		"node: {enabled: true, notify: 9155}",
		"node: {enabled: true, config: {addresses: []}}", // it would listen on loopback alone
		"node: {enabled: true, admin: 9154}",
		"node: {enabled: true, maxSurge: 0}",
		"node: {enabled: true, serversClusterIPs: [a, b, c]}",
		"node: {enabled: true, resources: {limits: null}}",
		"{node: {enabled: true}, config: {kubernetes: {namespaces: [shop]}}}", // agents would not find the servers
	} {
		if _, err := render(t, valuesOf(t, refused)); err == nil {
			t.Errorf("helm template with %s: no error", refused)
		}
	}
}

// TestNodeRules: agents in both modes have the rules of the servers.
func TestNodeRules(t *testing.T) {
	for mode, all := range map[string]objects{
		"cache": rendered(t, valuesOf(t, "{node: {enabled: true, config: {mode: cache}}, "+rulesOfServers+"}")), "secondary": rendered(t, valuesOf(t, "{node: {enabled: true}, "+rulesOfServers+"}")),
	} {
		server := readConfig(t, configText(t, objects{"": all["ConfigMap/portolan"]}))
		agent := readConfig(t, configText(t, objects{"": all["ConfigMap/portolan-node"]}))
		if len(server.DNS.Access) != 1 || server.DNS.RateLimit.PerSecond != 9 || len(server.DNS.Rewrite) != 1 || len(server.DNS.Block.Names) != 1 || len(server.DNS.Hosts.Lines) != 1 {
			t.Fatalf("rules of servers: %+v", server)
		}
		for what, diff := range map[string]string{
			"access": cmp.Diff(server.DNS.Access, agent.DNS.Access), "rateLimit": cmp.Diff(server.DNS.RateLimit, agent.DNS.RateLimit), "rewrite": cmp.Diff(server.DNS.Rewrite, agent.DNS.Rewrite),
			"block": cmp.Diff(server.DNS.Block, agent.DNS.Block), "hosts": cmp.Diff(server.DNS.Hosts, agent.DNS.Hosts),
		} {
			if diff != "" {
				t.Errorf("mode %s, %s (-server +agent):\n%s", mode, what, diff)
			}
		}
	}
}

// rulesOfServers are values of the chart with one rule of each kind.
const rulesOfServers = `config: {dns: {access: [{action: refuse, clients: [192.0.2.0/24]}], rateLimit: {perSecond: 9},
rewrite: [{from: old.example, to: shop.svc.cluster.local}], block: {names: [ads.example]}, hosts: {lines: [192.0.2.1 printer.example]}}}`

// TestNodeNotes: what helm says at the end names what it can't look at, and only then.
func TestNodeNotes(t *testing.T) {
	for values, want := range map[string]string{
		"{node: {enabled: true}, config: {kubernetes: {serviceSelector: a=b}}}":                                 "serviceSelector",
		"{node: {enabled: true, config: {mode: cache}}, config: {dns: {autopath: {clients: [10.244.0.0/16]}}}}": "autopath.clients",
		"{node: {enabled: true, config: {mode: cache}}, config: {kubernetes: {serviceSelector: a=b}}}":          "",
		"{node: {enabled: true}, config: {dns: {autopath: {clients: [10.244.0.0/16]}}}}":                        "",
		"{config: {kubernetes: {serviceSelector: a=b}, dns: {autopath: {clients: [10.244.0.0/16]}}}}":           "",
	} {
		_, notes, err := renderChart(t, loaded(t), "kube-system", valuesOf(t, values), clusterOf("v1.36.0"))
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"serviceSelector", "autopath.clients"} {
			if got := strings.Contains(notes, key); got != (key == want) {
				t.Errorf("with %s: %s is named: %t\n%s", values, key, got, notes)
			}
		}
	}
}

// TestNodeRestart: Pods are replaced for keys that need a restart, and only then.
func TestNodeRestart(t *testing.T) {
	pods := func(values string) corev1.PodTemplateSpec {
		all := rendered(t, valuesOf(t, "{node: {enabled: true}, config: "+values+"}"))
		return as[appsv1.DaemonSet](t, all, "DaemonSet").Spec.Template
	}
	before := pods("{}")
	for values, restart := range map[string]bool{"{dns: {cache: {size: 1Mi}}}": false, "{log: {format: text}}": true, "{log: {level: debug}}": false, "{dns: {block: {names: [ads.example]}}}": false} {
		if changed := !cmp.Equal(before, pods(values)); changed != restart {
			t.Errorf("config %s replaces Pods: %v, want %v", values, changed, restart)
		}
	}
	own := func(node string) corev1.PodTemplateSpec {
		return as[appsv1.DaemonSet](t, agents(t, node), "DaemonSet").Spec.Template
	}
	if cmp.Equal(own("{}"), own("{config: {addresses: ['fd00::a']}}")) {
		t.Error("other addresses do not replace Pods")
	}
}
