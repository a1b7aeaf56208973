package deploy

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// partsValues are the chart's values for agents that are the service proxy, too, with these
// below node.
func partsValues(t *testing.T, node string) map[string]any {
	t.Helper()
	values := withAgents(t, node)
	values["node"].(map[string]any)["parts"] = []any{"dns", "proxy"}
	maps.Copy(values, valuesOf(t, "proxy: {"+apiHost+"}"))
	return values
}

// partsVariants are the ways of deploying agents that are the service proxy, too.
func partsVariants(t *testing.T) map[string]objects {
	t.Helper()
	server := rendered(t, nil)
	return map[string]objects{
		"kustomize/node-proxy": kustomized(t, "node-proxy"),
		"helm, cache":          without(rendered(t, partsValues(t, "{config: {mode: cache}}")), server),
		"helm, secondary":      without(rendered(t, partsValues(t, "{}")), server),
	}
}

// TestPartsInOneDaemonSet: agents that are the service proxy, too, are one DaemonSet with the
// rights of both and no more, and read one file.
func TestPartsInOneDaemonSet(t *testing.T) {
	proxy := as[rbacv1.ClusterRole](t, proxyOf(t, "{enabled: true, "+apiHost+"}"), "ClusterRole").Rules
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Name: agentName, Namespace: "kube-system"}}
	for name, all := range partsVariants(t) {
		t.Run(name, func(t *testing.T) {
			for key, o := range all {
				if o.name() == proxyName {
					t.Errorf("%s is rendered", key)
				}
			}
			d := as[appsv1.DaemonSet](t, all, "DaemonSet")
			pod := d.Spec.Template.Spec
			c := onlyContainer(t, pod)
			var environment []string
			for _, e := range c.Env {
				environment = append(environment, e.Name)
			}
			yes := true
			for what, diff := range map[string]string{
				"rules":        cmp.Diff(proxy, as[rbacv1.ClusterRole](t, all, "ClusterRole").Rules),
				"who has them": cmp.Diff(subjects, as[rbacv1.ClusterRoleBinding](t, all, "ClusterRoleBinding").Subjects),
				"the token":    cmp.Diff(&yes, pod.AutomountServiceAccountToken),
				"environment":  cmp.Diff([]string{"NODE_NAME", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"}, environment),
				"capabilities": cmp.Diff(&corev1.Capabilities{
					Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN", "NET_BIND_SERVICE"},
				}, c.SecurityContext.Capabilities),
			} {
				if diff != "" {
					t.Errorf("%s (-want +got):\n%s", what, diff)
				}
			}
			if surge := d.Spec.UpdateStrategy.RollingUpdate.MaxSurge; surge.IntValue() != 1 {
				t.Errorf("maxSurge %s: a new agent starts beside the old one", surge)
			}
			cfg := readConfig(t, configText(t, all))
			compiled, err := cfg.Compile()
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(cfg.Node.Parts, []string{"dns", "proxy"}) || !compiled.Proxy.ReplaceKubeProxy || !compiled.Proxy.PodCIDRs {
				t.Errorf("config.yaml: parts %q, proxy %+v", cfg.Node.Parts, compiled.Proxy)
			}
			if !slices.Equal(c.LivenessProbe.Exec.Command, []string{"/portolan", "probe", "live", agentProbes}) {
				t.Errorf("liveness probe %v", c.LivenessProbe)
			}
		})
	}
}

// TestPartsChartIsKustomization: both ways give the same objects, but for the way in which the
// API server's address is given.
func TestPartsChartIsKustomization(t *testing.T) {
	all := partsVariants(t)
	withoutAddress(all)
	kustomize, helm := comparableOf(t, all["kustomize/node-proxy"]), comparableOf(t, all["helm, cache"])
	if diff := cmp.Diff(kustomize, helm); diff != "" {
		t.Errorf("objects (-kustomize +helm):\n%s", diff)
	}
}

// withoutAddress takes the API server's address, and what follows, out of the environment of agents.
func withoutAddress(all map[string]objects) {
	for _, objects := range all {
		pod := objects["DaemonSet/"+agentName]["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
		container := pod["containers"].([]any)[0].(map[string]any)
		container["env"] = container["env"].([]any)[:1]
	}
}

// TestPartsValues: settings of the proxy replace the agents' Pods, and values that can't be are
// refused.
func TestPartsValues(t *testing.T) {
	template := func(proxy string) corev1.PodTemplateSpec {
		values := partsValues(t, "{}")
		values["proxy"] = valuesOf(t, "proxy: {"+apiHost+", config: "+proxy+"}")["proxy"]
		return as[appsv1.DaemonSet](t, without(rendered(t, values), rendered(t, nil)), "DaemonSet").Spec.Template
	}
	if cmp.Equal(template("{}"), template("{masqueradeAll: true}")) {
		t.Error("another setting of the proxy does not replace Pods")
	}
	parts := "node: {enabled: true, parts: [dns, proxy]}"
	for claim, c := range map[string]struct{ values, says string }{
		"no address of the API server": {"{" + parts + "}", "proxy.api.host is empty"},
		"two proxies on a node":        {"{" + parts + ", proxy: {enabled: true, " + apiHost + "}}", "a node has one service proxy"},
		"agents without DNS":           {"node: {enabled: true, parts: [proxy]}", "parts"},
		"an unknown part":              {"node: {enabled: true, parts: [dns, gateway]}", "parts"},
		"parts in the file":            {"node: {enabled: true, config: {parts: [dns, proxy]}}", "config"},
	} {
		if _, err := render(t, valuesOf(t, c.values)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want an error with %q", claim, err, c.says)
		}
	}
}
