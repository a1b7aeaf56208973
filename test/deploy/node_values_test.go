package deploy

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"portolan.dev/portolan/internal/config"
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

// TestNodeRules: agents in both modes have the keys of the servers that they share, and no
// others; every key of the section dns is decided on.
func TestNodeRules(t *testing.T) {
	const always, secondary, own = "always", "secondary", "own"
	shared := map[string]string{
		"zones": always, "multicluster": always, "external": always, "localZones": always, "forward": always, "cache": always,
		"autopath": always, "access": always, "rateLimit": always, "rewrite": always, "suppress": always, "block": always,
		"hosts": always, "serviceCIDRs": secondary, "podCIDRs": secondary,
		"listen": own, "ttl": own, "pods": own, "endpointPodNames": own, "nameServer": own, "views": own, "udpSize": own,
		"udpSteering": own, "identity": own, "cookies": own, "tcp": own, "tls": own, "https": own, "transfer": own,
		"queryLog": own, "dnstap": own,
	}
	values := valuesOf(t, "config: {dns: {"+dnsOfServers+"}}")
	given := values["config"].(map[string]any)["dns"].(map[string]any)
	for _, k := range config.Keys() {
		name, ok := strings.CutPrefix(k.Path, "dns.")
		if !ok || strings.Contains(name, ".") {
			continue
		}
		if shared[name] == "" {
			t.Errorf("it is not decided whether agents have %s of the servers", k.Path)
		}
		if shared[name] != own && given[name] == nil {
			t.Errorf("the values do not have %s", k.Path)
		}
	}
	for _, mode := range []string{"cache", "secondary"} {
		values["node"] = map[string]any{"enabled": true, "config": map[string]any{"mode": mode}}
		text := configText(t, objects{"": rendered(t, values)["ConfigMap/portolan-node"]})
		readConfig(t, text)
		agent := valuesOf(t, text)["dns"].(map[string]any)
		for name, of := range shared {
			switch has := of == always || of == mode; {
			case name == "transfer": // the key that transfers are signed with
			case !has && agent[name] != nil:
				t.Errorf("mode %s: agents have dns.%s of the servers", mode, name)
			case has && !cmp.Equal(given[name], agent[name]):
				t.Errorf("mode %s, dns.%s (-server +agent):\n%s", mode, name, cmp.Diff(given[name], agent[name]))
			}
		}
	}
}

// dnsOfServers are values of the chart below config.dns.
const dnsOfServers = `zones: [cluster.local], multicluster: clusterset.local, external: {zones: [out.example]},
localZones: [{zone: corp.example, file: /absent}], forward: {routes: [{upstreams: [192.0.2.53]}]}, cache: {size: 1Mi},
autopath: {maxPaths: 3}, access: [{action: refuse, clients: [192.0.2.0/24]}], rateLimit: {perSecond: 9},
rewrite: [{from: old.example, to: shop.svc.cluster.local}], suppress: [{types: [AAAA]}], block: {names: [ads.example]},
hosts: {lines: [192.0.2.1 printer.example]}, serviceCIDRs: [10.96.0.0/12], podCIDRs: [10.244.0.0/16],
views: [{clients: [203.0.113.0/24], zones: [out.example]}], ttl: 7, queryLog: {oneIn: 5}`

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
