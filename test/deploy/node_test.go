package deploy

import (
	"encoding/base64"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Names of the agent's objects.
const (
	agentName      = "portolan-node"
	agentServers   = "portolan-servers"
	agentProbes    = "unix:/run/portolan/probes"
	agentConfigDir = "/etc/portolan"
)

// nodeVariants are the ways of deploying the agent that we ship.
func nodeVariants(t *testing.T) map[string]objects {
	t.Helper()
	return map[string]objects{
		"kustomize/node": kustomized(t, "node"), "helm, cache": agents(t, "{config: {mode: cache}}"),
		"kustomize/secondary": without(kustomized(t, "secondary"), kustomized(t, "base")), "helm, secondary": agents(t, "{existingSecret: portolan-transfer}"),
	}
}

// isSecondary reports whether agents of such a variant keep the zones.
func isSecondary(variant string) bool { return strings.HasSuffix(variant, "secondary") }

// without is all but the objects that others have, too.
func without(all, others objects) objects {
	for key := range others {
		delete(all, key)
	}
	return all
}

// agents is what the chart renders for the agents, with these values below node, and
// without what it renders for the server.
func agents(t *testing.T, node string) objects {
	t.Helper()
	return without(rendered(t, withAgents(t, node)), rendered(t, nil))
}

// withAgents are the chart's values for agents, with these below node.
func withAgents(t *testing.T, node string) map[string]any {
	t.Helper()
	values := valuesOf(t, "node: "+node)
	values["node"].(map[string]any)["enabled"] = true
	return values
}

// serviceOf is the Service of that name.
func serviceOf(t *testing.T, all objects, name string) corev1.Service {
	t.Helper()
	return as[corev1.Service](t, objects{name: all["Service/"+name]}, "Service")
}

// TestNodeDisabled: nobody gets agents who has not asked for them, and who has gets
// the same server, unless the agents have its zones.
func TestNodeDisabled(t *testing.T) {
	plain, with := rendered(t, nil), rendered(t, withAgents(t, "{config: {mode: cache}}"))
	for key, o := range plain {
		if strings.HasPrefix(o.name(), agentName) || o.name() == agentServers {
			t.Errorf("%s is rendered", key)
		}
		if diff := cmp.Diff(o, with[key]); diff != "" {
			t.Errorf("%s without and with agents (-without +with):\n%s", key, diff)
		}
	}
}

// TestNodeReusedValues: an upgrade with the values of a chart that had no agent gives
// what one with this chart's does.
func TestNodeReusedValues(t *testing.T) {
	for _, given := range []string{"{}", "node: {enabled: true}", "node: {enabled: true, config: {addresses: ['fd00::a']}}"} {
		c := loaded(t)
		delete(c.Values, "node")
		reused, _, err := renderChart(t, c, "kube-system", valuesOf(t, given), clusterOf("v1.36.0"))
		if err != nil {
			t.Errorf("--reuse-values with %s: %v", given, err)
			continue
		}
		given := rendered(t, valuesOf(t, given))
		for _, all := range []objects{given, reused} {
			if secret := all["Secret/portolan-transfer"]; secret != nil {
				secret["data"] = nil // by chance
			}
		}
		if diff := cmp.Diff(given, reused); diff != "" {
			t.Errorf("with %s (-values of this chart +reused):\n%s", given, diff)
		}
	}
}

// TestNodeChartIsKustomization: both ways give the same objects.
func TestNodeChartIsKustomization(t *testing.T) {
	all := nodeVariants(t)
	all["kustomize, with servers"] = kustomized(t, "secondary")
	all["helm, with servers"] = rendered(t, withAgents(t, "{existingSecret: portolan-transfer}"))
	for kustomize, helm := range map[string]string{
		"kustomize/node": "helm, cache", "kustomize/secondary": "helm, secondary", "kustomize, with servers": "helm, with servers",
	} {
		if diff := cmp.Diff(comparableOf(t, all[kustomize]), comparableOf(t, all[helm])); diff != "" {
			t.Errorf("objects (-%s +%s):\n%s", kustomize, helm, diff)
		}
	}
}

// TestNodeKinds: nothing is rendered that nobody asked for; of rights there are none.
func TestNodeKinds(t *testing.T) {
	for name, all := range nodeVariants(t) {
		want := []string{"ConfigMap/portolan-node", "DaemonSet/portolan-node", "Service/portolan-node", "Service/portolan-servers", "ServiceAccount/portolan-node"}
		if isSecondary(name) {
			want = slices.Insert(want, 4, "Service/portolan-transfer")
		}
		var got []string
		for key, o := range all {
			got = append(got, key)
			if ns := o["metadata"].(map[string]any)["namespace"]; ns != "kube-system" {
				t.Errorf("%s: %s is in namespace %v, want kube-system", name, key, ns)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: objects (-want +got):\n%s", name, diff)
		}
	}
}

// TestNodeHardened: the agent has the node's network and two capabilities, and
// nothing else that a Pod may lack.
func TestNodeHardened(t *testing.T) {
	no, yes, root := false, true, int64(0)
	directory := corev1.HostPathDirectoryOrCreate
	wantContainer := &corev1.SecurityContext{
		RunAsUser: &root, AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN", "NET_BIND_SERVICE"}},
	}
	for name, all := range nodeVariants(t) {
		t.Run(name, func(t *testing.T) {
			pod := as[appsv1.DaemonSet](t, all, "DaemonSet").Spec.Template.Spec
			c := onlyContainer(t, pod)
			wantPaths := []corev1.HostPathVolumeSource{{Path: "/dev/net", Type: &directory}}
			if isSecondary(name) {
				wantPaths = append(wantPaths, corev1.HostPathVolumeSource{Path: "/var/lib/portolan-node", Type: &directory})
			}
			var paths []corev1.HostPathVolumeSource
			for _, v := range pod.Volumes {
				if v.HostPath != nil {
					paths = append(paths, *v.HostPath)
				}
			}
			for what, diff := range map[string]string{
				"the Pod's securityContext":       cmp.Diff(&corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}, pod.SecurityContext),
				"the container's securityContext": cmp.Diff(wantContainer, c.SecurityContext),
				"what it has of the node's files": cmp.Diff(wantPaths, paths),
				"the account's token":             cmp.Diff(&no, as[corev1.ServiceAccount](t, all, "ServiceAccount").AutomountServiceAccountToken),
				"the Pod's token":                 cmp.Diff(&no, pod.AutomountServiceAccountToken),
			} {
				if diff != "" {
					t.Errorf("%s (-want +got):\n%s", what, diff)
				}
			}
			if !pod.HostNetwork || pod.HostPID || pod.HostIPC || pod.ServiceAccountName != agentName {
				t.Errorf("hostNetwork %v, hostPID %v, hostIPC %v, account %s", pod.HostNetwork, pod.HostPID, pod.HostIPC, pod.ServiceAccountName)
			}
			if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
				t.Errorf("resources = %v", c.Resources)
			}
		})
	}
}

// TestNodeUpgrade: an agent can stand beside the one that it replaces. With ports the
// scheduler would not put two on a node, since in the node's network they are host
// ports (defaults of PodSpec in Kubernetes); and an address and port that both have
// does not tell which of them answers a probe.
func TestNodeUpgrade(t *testing.T) {
	for name, all := range nodeVariants(t) {
		t.Run(name, func(t *testing.T) {
			pod, cfg := standsBeside(t, all), readConfig(t, configText(t, all))
			if !slices.Equal(cfg.Admin.Probes, []string{agentProbes}) {
				t.Errorf("admin.probes = %v", cfg.Admin.Probes)
			}
			if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; time.Duration(cfg.Lameduck) >= grace {
				t.Errorf("lameduck %s, grace %s", time.Duration(cfg.Lameduck), grace)
			}
		})
	}
}

// standsBeside checks that a Pod of the DaemonSet can run beside the one that it replaces, and returns its spec.
func standsBeside(t *testing.T, all objects) corev1.PodSpec {
	t.Helper()
	d := as[appsv1.DaemonSet](t, all, "DaemonSet")
	pod := d.Spec.Template.Spec
	c := onlyContainer(t, pod)
	if r := d.Spec.UpdateStrategy.RollingUpdate; *r.MaxUnavailable != intstr.FromInt32(0) || *r.MaxSurge != intstr.FromInt32(1) || d.Spec.MinReadySeconds == 0 {
		t.Errorf("rollingUpdate = %v, minReadySeconds = %d", r, d.Spec.MinReadySeconds)
	}
	if len(c.Ports) > 0 {
		t.Errorf("ports = %v, which are host ports: two Pods would not be scheduled on one node", c.Ports)
	}
	for what, probe := range map[string]*corev1.Probe{"live": c.LivenessProbe, "ready": c.ReadinessProbe} {
		if probe.Exec == nil || !slices.Equal(probe.Exec.Command, []string{"/portolan", "probe", what, agentProbes}) {
			t.Errorf("probe: %v", probe)
		}
	}
	if v := volumeAt(t, pod, path.Dir(strings.TrimPrefix(agentProbes, "unix:"))); v.EmptyDir == nil {
		t.Errorf("the probes' socket is in %v, want one of the Pod's own", v)
	}
	return pod
}

// TestNodeEverywhere: each node has an agent before it has other Pods.
func TestNodeEverywhere(t *testing.T) {
	for name, all := range nodeVariants(t) {
		pod := as[appsv1.DaemonSet](t, all, "DaemonSet").Spec.Template.Spec
		if diff := cmp.Diff([]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, pod.Tolerations); diff != "" {
			t.Errorf("%s: tolerations (-want +got):\n%s", name, diff)
		}
		if pod.PriorityClassName != "system-node-critical" || pod.DNSPolicy != corev1.DNSDefault {
			t.Errorf("%s: priorityClassName %s, dnsPolicy %s", name, pod.PriorityClassName, pod.DNSPolicy)
		}
	}
}

// TestNodeFits: selectors, ports, files and the configuration agree, and the agent
// asks the servers by an address that is none of its own.
func TestNodeFits(t *testing.T) {
	for name, all := range nodeVariants(t) {
		t.Run(name, func(t *testing.T) {
			d := as[appsv1.DaemonSet](t, all, "DaemonSet")
			pod := d.Spec.Template.Spec
			c := onlyContainer(t, pod)
			want := []string{"node", "--config", agentConfigDir + "/config.yaml", "--server", "$(PORTOLAN_SERVERS_SERVICE_HOST)"}
			if diff := cmp.Diff(want, c.Args); diff != "" {
				t.Errorf("args (-want +got):\n%s", diff)
			}
			if links := pod.EnableServiceLinks; links == nil || !*links {
				t.Error("the address of the Service is no variable")
			}
			if v := volumeAt(t, pod, agentConfigDir); v.ConfigMap == nil || v.ConfigMap.Name != agentName {
				t.Errorf("volume of the configuration: %v", v)
			}
			own := serviceOf(t, all, agentName)
			for who, selector := range map[string]*metav1.LabelSelector{"DaemonSet": d.Spec.Selector, "Service": {MatchLabels: own.Spec.Selector}} {
				if s, err := metav1.LabelSelectorAsSelector(selector); err != nil || s.Empty() || !s.Matches(labels.Set(d.Spec.Template.Labels)) {
					t.Errorf("selector of %s: %v does not select %v", who, selector, d.Spec.Template.Labels)
				}
			}
			if port := own.Annotations["prometheus.io/port"]; own.Spec.ClusterIP != corev1.ClusterIPNone || port != "9154" || own.Spec.Ports[0].Port != 9154 {
				t.Errorf("Service %s: %q, %v", own.Name, port, own.Spec)
			}
			cfg := readConfig(t, configText(t, all))
			if cfg.Admin.Listen != "0.0.0.0:9154" {
				t.Errorf("admin.listen = %s", cfg.Admin.Listen)
			}
			base := kustomized(t, "base")
			servers := serviceOf(t, all, agentServers)
			selects(t, agentServers, &metav1.LabelSelector{MatchLabels: servers.Spec.Selector}, base)
			if diff := cmp.Diff(serviceOf(t, base, "portolan").Spec.Ports[:2], servers.Spec.Ports); diff != "" {
				t.Errorf("ports of %s (-portolan +got):\n%s", agentServers, diff)
			}
		})
	}
}

// TestNodeConfig: the agent accepts every config.yaml that we ship.
func TestNodeConfig(t *testing.T) {
	for name, all := range nodeVariants(t) {
		cfg := readConfig(t, configText(t, all))
		cfg.Node.Servers = []string{"10.96.0.11"}
		if err := cfg.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if want := map[bool]string{false: "cache", true: "secondary"}[isSecondary(name)]; cfg.Node.Mode != want {
			t.Errorf("%s: mode %s", name, cfg.Node.Mode)
		}
	}
}

// TestNodeTransfers: servers and agents have one key, servers find the agents and
// agents the servers, and what an agent keeps outlives it.
func TestNodeTransfers(t *testing.T) {
	for name, all := range map[string]objects{
		"kustomize": kustomized(t, "secondary"),
		"helm":      rendered(t, withAgents(t, "{}")),
		"helm, another namespace": func() objects {
			all, err := renderIn(t, "dns", valuesOf(t, "{node: {enabled: true, existingSecret: mine, notify: '[::]:5353'}, config: {dns: {zones: [a.example], podCIDRs: [10.244.0.0/16]}}}"))
			if err != nil {
				t.Fatal(err)
			}
			return all
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			d := as[appsv1.Deployment](t, all, "Deployment")
			agent := as[appsv1.DaemonSet](t, all, "DaemonSet").Spec.Template.Spec
			server := readConfig(t, configText(t, objects{"": all["ConfigMap/portolan"]}))
			cfg := readConfig(t, configText(t, objects{"": all["ConfigMap/portolan-node"]}))
			if err := server.Validate(); err != nil {
				t.Error(err)
			}
			if server.DNS.TCP.MaxConnections != 5000 {
				t.Errorf("%d connections, fewer than a large cluster has agents", server.DNS.TCP.MaxConnections)
			}
			if diff := cmp.Diff(server.DNS.Transfer.Keys, cfg.DNS.Transfer.Keys); diff != "" || len(cfg.DNS.Transfer.Keys) != 1 {
				t.Fatalf("keys (-server +agent):\n%s", diff)
			}
			key := cfg.DNS.Transfer.Keys[0]
			if cfg.Node.Key != key.Name || len(server.DNS.Transfer.Allow) != 1 || server.DNS.Transfer.Allow[0].Key != key.Name {
				t.Errorf("the key %s: of agents %s, of those who may have zones %v", key.Name, cfg.Node.Key, server.DNS.Transfer.Allow)
			}
			for who, pod := range map[string]corev1.PodSpec{"server": d.Spec.Template.Spec, "agent": agent} {
				v := volumeAt(t, pod, path.Dir(key.SecretFile))
				if v.Secret == nil || v.Secret.SecretName != map[bool]string{false: "portolan-transfer", true: "mine"}[name == "helm, another namespace"] {
					t.Errorf("volume of the key of the %s: %v", who, v)
				}
			}
			if v := volumeAt(t, agent, path.Dir(cfg.Node.File)); v.HostPath == nil {
				t.Errorf("volume of %s: %v", cfg.Node.File, v)
			}
			own := serviceOf(t, all, agentName)
			i := slices.IndexFunc(own.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == "dns" })
			if server.DNS.Transfer.NotifyService != own.Namespace+"/"+own.Name || i < 0 || !strings.HasSuffix(cfg.Node.Notify, fmt.Sprintf(":%d", own.Spec.Ports[i].Port)) {
				t.Errorf("servers tell %s of changes, agents listen at %s, the Service is %v", server.DNS.Transfer.NotifyService, cfg.Node.Notify, own.Spec)
			}
			servers := serviceOf(t, all, "portolan-transfer")
			want := fmt.Sprintf("portolan-transfer.%s.svc.%s:53", servers.Namespace, server.DNS.Zones[0])
			if diff := cmp.Diff([]string{want}, cfg.Node.Primaries); diff != "" || servers.Spec.ClusterIP != corev1.ClusterIPNone {
				t.Errorf("primaries (-want +got):\n%s", diff)
			}
			selects(t, servers.Name, &metav1.LabelSelector{MatchLabels: servers.Spec.Selector}, all)
			if diff := cmp.Diff(server.DNS.PodCIDRs, cfg.DNS.PodCIDRs); diff != "" {
				t.Errorf("podCIDRs (-server +agent):\n%s", diff)
			}
		})
	}
	secret := as[corev1.Secret](t, rendered(t, withAgents(t, "{}")), "Secret")
	if octets, err := base64.StdEncoding.DecodeString(string(secret.Data["key"])); err != nil || len(octets) != 32 || secret.Name != "portolan-transfer" {
		t.Errorf("the key that the chart makes: %d octets, %v", len(octets), err)
	}
	given := rendered(t, valuesOf(t, "{node: {enabled: true}, config: {dns: {tcp: {maxConnections: 9}, transfer: {allow: [{clients: [192.0.2.0/24]}], notifyService: a/b, maxTransfers: 7}}}}"))
	cfg := readConfig(t, configText(t, objects{"": given["ConfigMap/portolan"]}))
	if cfg.DNS.TCP.MaxConnections != 9 {
		t.Errorf("tcp that is given, too: %+v", cfg.DNS.TCP)
	}
	server := cfg.DNS.Transfer
	if len(server.Allow) != 2 || server.NotifyService != "a/b" || server.MaxTransfers != 7 {
		t.Errorf("transfer that is given, too: %+v", server)
	}
}
