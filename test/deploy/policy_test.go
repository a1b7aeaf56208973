package deploy

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	model "portolan.dev/portolan/internal/cluster"
	kinds "portolan.dev/portolan/internal/kube/object"
	policy "portolan.dev/portolan/internal/policy/settings"
)

// policyValues are the chart's values for agents that enforce policies, with these below node.
func policyValues(t *testing.T, node string) map[string]any {
	t.Helper()
	values := withAgents(t, node)
	values["node"].(map[string]any)["parts"] = []any{"dns", "policy"}
	return values
}

// policyAgents is what the chart renders for agents that enforce policies, with these values.
func policyAgents(t *testing.T, more string) objects {
	t.Helper()
	values := policyValues(t, "{config: {mode: cache}}")
	maps.Copy(values, valuesOf(t, more))
	return without(rendered(t, values), rendered(t, nil))
}

// policyVariants are the ways of deploying agents that enforce policies.
func policyVariants(t *testing.T) map[string]objects {
	t.Helper()
	return map[string]objects{
		"kustomize/node-policy": kustomized(t, "node-policy"),
		"helm, cache":           policyAgents(t, "{}"),
		"helm, secondary":       without(rendered(t, policyValues(t, "{}")), rendered(t, nil)),
	}
}

// readOnly is what may be done with what policies are made of.
var readOnly = []string{"list", "watch"}

// policyRules are the rights with which policies are read.
var policyRules = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"pods", "namespaces", "nodes", "services"}, Verbs: readOnly},
	{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"networkpolicies"}, Verbs: readOnly},
	{APIGroups: []string{"policy.networking.k8s.io"}, Resources: []string{"clusternetworkpolicies"}, Verbs: readOnly},
}

// policyKinds are the kinds that policies are made of.
var policyKinds = []model.Kind{
	model.KindNetworkPolicy, model.KindClusterNetworkPolicy, model.KindPod, model.KindNamespace,
	model.KindNode, model.KindService,
}

// TestPolicyRulesAreOfItsKinds: the rights are those to read the kinds that policies are made of.
func TestPolicyRulesAreOfItsKinds(t *testing.T) {
	t.Parallel()
	var want, got []string
	for _, k := range kinds.Kinds {
		if slices.Contains(policyKinds, k.Model) {
			want = append(want, k.Resource+"."+k.Group.Group)
		}
	}
	for _, rule := range policyRules {
		for _, resource := range rule.Resources {
			got = append(got, resource+"."+rule.APIGroups[0])
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources (-kinds +rights):\n%s", diff)
	}
}

// TestPolicyHardened: agents that enforce policies have the capabilities of all agents, rights to read what
// policies are made of and whether their DaemonSet is there, and of the node's files what the CNI plugin needs.
func TestPolicyHardened(t *testing.T) {
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Name: agentName, Namespace: "kube-system"}}
	own := []rbacv1.PolicyRule{
		{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, ResourceNames: []string{agentName}, Verbs: []string{"get"}},
	}
	for name, all := range policyVariants(t) {
		t.Run(name, func(t *testing.T) {
			d := as[appsv1.DaemonSet](t, all, "DaemonSet")
			pod := d.Spec.Template.Spec
			c := onlyContainer(t, pod)
			paths := []string{"/dev/net", "/etc/cni/net.d", "/opt/cni/bin", "/run/portolan"}
			if isSecondary(name) {
				paths = append(paths, "/var/lib/portolan-node")
			}
			yes, no, root := true, false, int64(0)
			for what, diff := range map[string]string{
				"rules":                      cmp.Diff(policyRules, as[rbacv1.ClusterRole](t, all, "ClusterRole").Rules),
				"who has them":               cmp.Diff(subjects, as[rbacv1.ClusterRoleBinding](t, all, "ClusterRoleBinding").Subjects),
				"rules of its own namespace": cmp.Diff(own, as[rbacv1.Role](t, all, "Role").Rules),
				"who has those":              cmp.Diff(subjects, as[rbacv1.RoleBinding](t, all, "RoleBinding").Subjects),
				"the token":                  cmp.Diff(&yes, pod.AutomountServiceAccountToken),
				"environment":                cmp.Diff([]string{"NODE_NAME"}, namesOfEnv(c)),
				"files of the node":          cmp.Diff(paths, hostPaths(pod)),
				"the container's securityContext": cmp.Diff(&corev1.SecurityContext{
					RunAsUser: &root, AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN", "NET_BIND_SERVICE"}},
				}, c.SecurityContext),
			} {
				if diff != "" {
					t.Errorf("%s (-want +got):\n%s", what, diff)
				}
			}
			if !pod.HostNetwork || pod.HostPID || pod.HostIPC || c.Resources.Limits.Memory().String() != "512Mi" {
				t.Errorf("hostNetwork %v, hostPID %v, hostIPC %v, resources %v", pod.HostNetwork, pod.HostPID, pod.HostIPC, c.Resources)
			}
		})
	}
}

func namesOfEnv(c corev1.Container) (names []string) {
	for _, e := range c.Env {
		names = append(names, e.Name)
	}
	return names
}

// hostPaths are the node's directories that a Pod has, in order.
func hostPaths(pod corev1.PodSpec) (paths []string) {
	for _, v := range pod.Volumes {
		if v.HostPath != nil {
			paths = append(paths, v.HostPath.Path)
		}
	}
	slices.Sort(paths)
	return paths
}

// TestPolicyFits: the configuration says where the volumes are, with the same paths in the container and on the
// node, where the runtime looks for the plugin and the plugin for the socket; the probes' socket is the Pod's own,
// since two agents share the directory of the other during an upgrade; and the DaemonSet is the one that agents
// look for when they end.
func TestPolicyFits(t *testing.T) {
	all := policyVariants(t)
	all["helm, other paths"] = policyAgents(t, "policy: {cni: {binDir: /usr/libexec/cni, confDir: /etc/cni.d}, config: {cni: {socket: /run/dns/policy.sock}}}")
	for name, all := range all {
		t.Run(name, func(t *testing.T) {
			cfg := readConfig(t, configText(t, all))
			cfg.Node.Servers = []string{"10.96.0.11"}
			if err := cfg.Validate(); err != nil {
				t.Fatal(err)
			}
			d := as[appsv1.DaemonSet](t, all, "DaemonSet")
			pod := d.Spec.Template.Spec
			if !slices.Equal(cfg.Node.Parts, []string{"dns", "policy"}) || !cfg.Policy.CNI.Install || cfg.Policy.DaemonSet != d.Name {
				t.Errorf("config.yaml: parts %q, policy %+v", cfg.Node.Parts, cfg.Policy)
			}
			if _, ok := d.Spec.Template.Annotations[policy.Annotation]; !ok {
				t.Errorf("annotations %v: agents that end would remove the plugin", d.Spec.Template.Annotations)
			}
			for _, dir := range []string{path.Dir(cfg.Policy.CNI.Socket), cfg.Policy.CNI.BinDir, cfg.Policy.CNI.ConfDir} {
				if v := volumeAt(t, pod, dir); v.HostPath == nil || v.HostPath.Path != dir || *v.HostPath.Type != corev1.HostPathDirectoryOrCreate {
					t.Errorf("volume at %s: %v, want that of the node", dir, v)
				}
			}
			probes, _ := strings.CutPrefix(cfg.Admin.Probes[0], "unix:")
			if v := volumeAt(t, pod, path.Dir(probes)); v.EmptyDir == nil {
				t.Errorf("the probes' socket is in %v, want one of the Pod's own", v)
			}
			c := onlyContainer(t, pod)
			for what, probe := range map[string]*corev1.Probe{"live": c.LivenessProbe, "ready": c.ReadinessProbe} {
				if probe.Exec == nil || !slices.Equal(probe.Exec.Command, []string{"/portolan", "probe", what, cfg.Admin.Probes[0]}) {
					t.Errorf("probe: %v", probe)
				}
			}
			if r := d.Spec.UpdateStrategy.RollingUpdate; r.MaxUnavailable.IntValue() != 0 || r.MaxSurge.IntValue() != 1 {
				t.Errorf("rollingUpdate %v: there is always an agent for Pods that start", r)
			}
		})
	}
}

// TestPolicyChartIsKustomization: both ways give the same objects.
func TestPolicyChartIsKustomization(t *testing.T) {
	all := policyVariants(t)
	kustomize, helm := comparableOf(t, all["kustomize/node-policy"]), comparableOf(t, all["helm, cache"])
	if diff := cmp.Diff(kustomize, helm); diff != "" {
		t.Errorf("objects (-kustomize +helm):\n%s", diff)
	}
}

// TestPolicyOfOthers: values of policies change nothing for those who have not asked for them, and an upgrade with
// the values of a chart that had none gives what one with this chart's does.
func TestPolicyOfOthers(t *testing.T) {
	of := optional{name: "none", section: "policy", enabled: "policy: {cni: {install: false}, config: {existing: keep}, memoryLimit: 1Gi}"}
	of.test(t, "node: {enabled: true, existingSecret: mine, parts: [dns, policy]}")
	if diff := cmp.Diff(agents(t, "{existingSecret: mine}"), func() objects {
		values := withAgents(t, "{existingSecret: mine}")
		maps.Copy(values, valuesOf(t, of.enabled))
		return without(rendered(t, values), rendered(t, nil))
	}()); diff != "" {
		t.Errorf("agents without the part policy (-without +with values of it):\n%s", diff)
	}
}

// allParts are the ways of deploying agents with all parts.
func allParts(t *testing.T) map[string]objects {
	t.Helper()
	helm := func(node string) objects {
		values := partsValues(t, node)
		values["node"].(map[string]any)["parts"] = []any{"dns", "proxy", "policy"}
		return without(rendered(t, values), rendered(t, nil))
	}
	return map[string]objects{
		"kustomize/node-all": kustomized(t, "node-all"),
		"helm, cache":        helm("{config: {mode: cache}}"),
		"helm, secondary":    helm("{}"),
	}
}

// TestPolicyWithProxy: agents with all parts have the rights of both, and reach the API server itself.
func TestPolicyWithProxy(t *testing.T) {
	proxy := as[rbacv1.ClusterRole](t, proxyOf(t, "{enabled: true, "+apiHost+"}"), "ClusterRole").Rules
	for name, all := range allParts(t) {
		t.Run(name, func(t *testing.T) { wantAllParts(t, all, slices.Concat(proxy, policyRules)) })
	}
	// With a proxy in Pods of its own, which has the address, it is used as well.
	beside := policyAgents(t, "proxy: {enabled: true, "+apiHost+"}")
	for key, o := range beside {
		if o.name() == proxyName {
			delete(beside, key)
		}
	}
	c := onlyContainer(t, as[appsv1.DaemonSet](t, beside, "DaemonSet").Spec.Template.Spec)
	if !slices.Contains(c.Env, corev1.EnvVar{Name: "KUBERNETES_SERVICE_HOST", Value: "10.0.0.1"}) {
		t.Errorf("environment %v beside a DaemonSet of the proxy", c.Env)
	}
}

// wantAllParts checks objects of agents with all parts.
func wantAllParts(t *testing.T, all objects, rules []rbacv1.PolicyRule) {
	t.Helper()
	if diff := cmp.Diff(rules, as[rbacv1.ClusterRole](t, all, "ClusterRole").Rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	c := onlyContainer(t, as[appsv1.DaemonSet](t, all, "DaemonSet").Spec.Template.Spec)
	if diff := cmp.Diff([]string{"NODE_NAME", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"}, namesOfEnv(c)); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	cfg := readConfig(t, configText(t, all))
	if !slices.Equal(cfg.Node.Parts, []string{"dns", "proxy", "policy"}) || !cfg.Proxy.ReplaceKubeProxy || !cfg.Policy.CNI.Install {
		t.Errorf("config.yaml: %+v, %+v, %+v", cfg.Node.Parts, cfg.Proxy, cfg.Policy)
	}
}

// TestAllPartsChartIsKustomization: both ways give the same objects, but for the way in which the
// API server's address is given.
func TestAllPartsChartIsKustomization(t *testing.T) {
	all := allParts(t)
	withoutAddress(all)
	kustomize, helm := comparableOf(t, all["kustomize/node-all"]), comparableOf(t, all["helm, cache"])
	if diff := cmp.Diff(kustomize, helm); diff != "" {
		t.Errorf("objects (-kustomize +helm):\n%s", diff)
	}
}

// TestPolicyValues: a value has the effect that its name says, and what cannot be is refused.
func TestPolicyValues(t *testing.T) {
	all := policyAgents(t, "policy: {config: {existing: keep, log: {rate: 3}}, cni: {install: false}, memoryLimit: 1Gi}")
	cfg := readConfig(t, configText(t, all))
	pod := as[appsv1.DaemonSet](t, all, "DaemonSet").Spec.Template.Spec
	if cfg.Policy.Existing != "keep" || cfg.Policy.Log.Rate != 3 || cfg.Policy.CNI.Install || cfg.Policy.DaemonSet != agentName {
		t.Errorf("config.yaml: %+v", cfg.Policy)
	}
	if diff := cmp.Diff([]string{"/dev/net", "/run/portolan"}, hostPaths(pod)); diff != "" {
		t.Errorf("files of the node with a plugin that others install (-want +got):\n%s", diff)
	}
	c := onlyContainer(t, pod)
	if limit := c.Resources.Limits.Memory().String(); limit != "1Gi" {
		t.Errorf("memory limit %s", limit)
	}
	off := policyAgents(t, "policy: {config: {cni: {socket: ''}}, cni: {install: false}}")
	if diff := cmp.Diff([]string{"/dev/net"}, hostPaths(as[appsv1.DaemonSet](t, off, "DaemonSet").Spec.Template.Spec)); diff != "" {
		t.Errorf("files of the node without a plugin (-want +got):\n%s", diff)
	}
	for claim, c := range map[string]struct{ values, says string }{
		"an unknown value":               {"policy: {enabled: true}", "enabled"},
		"a relative directory":           {"policy: {cni: {binDir: bin}}", "binDir"},
		"the plugin in the file":         {"policy: {config: {cni: {install: true}}}", "config"},
		"the DaemonSet in the file":      {"policy: {config: {daemonSet: mine}}", "config"},
		"a socket in the root directory": {"policy: {config: {cni: {socket: /cni.sock}}}", "socket"},
		"a plugin without socket":        {"policy: {config: {cni: {socket: ''}}}", "no Pod would start"},
		"the Pods of some Namespaces":    {"config: {kubernetes: {namespaces: [kube-system]}}", "policies need the Pods of all Namespaces"},
	} {
		values := policyValues(t, "{}")
		maps.Copy(values, valuesOf(t, c.values))
		if _, err := render(t, values); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want an error with %q", claim, err, c.says)
		}
	}
}

// TestPolicyRestart: settings of policies replace the agents' Pods.
func TestPolicyRestart(t *testing.T) {
	template := func(more string) corev1.PodTemplateSpec {
		return as[appsv1.DaemonSet](t, policyAgents(t, more), "DaemonSet").Spec.Template
	}
	if cmp.Equal(template("{}"), template("policy: {config: {existing: keep}}")) {
		t.Error("another setting of policies does not replace Pods")
	}
}

// TestPolicyNotes: what helm says at the end names what becomes of Pods that start.
func TestPolicyNotes(t *testing.T) {
	for more, want := range map[string]string{
		"{}":                              "none starts",
		"policy: {cni: {install: false}}": "portolan cni install",
	} {
		values := policyValues(t, "{}")
		maps.Copy(values, valuesOf(t, more))
		_, notes, err := renderChart(t, loaded(t), "kube-system", values, clusterOf("v1.36.0"))
		if err != nil || !strings.Contains(notes, want) {
			t.Errorf("with %s: %v, want %q in\n%s", more, err, want, notes)
		}
	}
}
