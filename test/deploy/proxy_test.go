package deploy

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"portolan.dev/portolan/internal/config"
)

// proxyName is what all objects of the service proxy are called.
const proxyName = "portolan-proxy"

// apiHost says to the chart where the API server is.
const apiHost = "api: {host: 10.0.0.1}"

// proxyOf is what the chart renders for the service proxy, with these values below proxy.
func proxyOf(t *testing.T, values string) objects {
	t.Helper()
	all := rendered(t, valuesOf(t, "proxy: "+values))
	for key, o := range all {
		if o.name() != proxyName {
			delete(all, key)
		}
	}
	return all
}

// proxyVariants are the ways of deploying the service proxy. The suffix of the ConfigMap's name,
// by which kustomize replaces Pods when it changes, is left out.
func proxyVariants(t *testing.T) map[string]objects {
	t.Helper()
	made := kustomized(t, "proxy")
	for key, o := range made {
		if strings.HasPrefix(key, "ConfigMap/") {
			delete(made, key)
			o["metadata"].(map[string]any)["name"] = proxyName
			made["ConfigMap/"+proxyName] = o
		}
	}
	return map[string]objects{"kustomize/proxy": made, "helm": proxyOf(t, "{enabled: true, "+apiHost+"}")}
}

// TestProxyDisabled: nobody gets a service proxy who has not asked for one, and who has gets the
// same server; with values of a chart that had none, too.
func TestProxyDisabled(t *testing.T) {
	of := optional{name: proxyName, section: "proxy", enabled: "proxy: {enabled: true, " + apiHost + "}"}
	of.test(t, "proxy: {enabled: true, api: {host: 10.0.0.1, port: 443}, config: {masqueradeAll: true}}")
}

// TestProxyRefused: settings that can't be are refused before anything is there.
func TestProxyRefused(t *testing.T) {
	for claim, c := range map[string]struct{ values, says string }{
		"no address of the API server": {"{enabled: true}", "proxy.api.host is empty"},
		"a port of letters":            {"{enabled: true, api: {host: a, port: https}}", "port"},
		"no address for the probes":    {"{enabled: true, " + apiHost + ", config: {healthz: ''}}", "healthz"},
		"an unknown value":             {"{enabled: true, " + apiHost + ", replicas: 1}", "replicas"},
	} {
		if _, err := renderIn(t, "kube-system", valuesOf(t, "proxy: "+c.values)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want an error with %q", claim, err, c.says)
		}
	}
}

// TestProxyHardened: the proxy has the node's network and one capability, and rights to read what
// it needs and no more.
func TestProxyHardened(t *testing.T) {
	yes, no, root := true, false, int64(0)
	wantContainer := &corev1.SecurityContext{
		RunAsUser: &root, AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN"}},
	}
	read := []string{"list", "watch"}
	wantRules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services", "nodes"}, Verbs: read},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: read},
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"servicecidrs"}, Verbs: read},
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create"}},
	}
	wantSubjects := []rbacv1.Subject{{Kind: "ServiceAccount", Name: proxyName, Namespace: "kube-system"}}
	for name, all := range proxyVariants(t) {
		t.Run(name, func(t *testing.T) {
			var kinds []string
			for _, o := range all {
				kinds = append(kinds, o["kind"].(string))
			}
			slices.Sort(kinds)
			pod := as[appsv1.DaemonSet](t, all, "DaemonSet").Spec.Template.Spec
			c := onlyContainer(t, pod)
			for what, diff := range map[string]string{
				"kinds":                           cmp.Diff([]string{"ClusterRole", "ClusterRoleBinding", "ConfigMap", "DaemonSet", "ServiceAccount"}, kinds),
				"the Pod's securityContext":       cmp.Diff(&corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}, pod.SecurityContext),
				"the container's securityContext": cmp.Diff(wantContainer, c.SecurityContext),
				"rules":                           cmp.Diff(wantRules, as[rbacv1.ClusterRole](t, all, "ClusterRole").Rules),
				"who has them":                    cmp.Diff(wantSubjects, as[rbacv1.ClusterRoleBinding](t, all, "ClusterRoleBinding").Subjects),
				"the account's token":             cmp.Diff(&no, as[corev1.ServiceAccount](t, all, "ServiceAccount").AutomountServiceAccountToken),
				"arguments":                       cmp.Diff([]string{"proxy", "--config", "/etc/portolan/config.yaml"}, c.Args),
				"tolerations":                     cmp.Diff([]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, pod.Tolerations),
			} {
				if diff != "" {
					t.Errorf("%s (-want +got):\n%s", what, diff)
				}
			}
			if !pod.HostNetwork || pod.HostPID || pod.HostIPC || pod.ServiceAccountName != proxyName || pod.PriorityClassName != "system-node-critical" {
				t.Errorf("hostNetwork %v, hostPID %v, hostIPC %v, account %s, priority class %s",
					pod.HostNetwork, pod.HostPID, pod.HostIPC, pod.ServiceAccountName, pod.PriorityClassName)
			}
			if slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil }) || len(c.Ports) > 0 {
				t.Errorf("volumes %v, ports %v", pod.Volumes, c.Ports)
			}
			if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
				t.Errorf("resources = %v", c.Resources)
			}
		})
	}
}

// TestProxyProbes: the probes are those that config.yaml has the proxy serve, and its environment
// names the Node and the API server.
func TestProxyProbes(t *testing.T) {
	all := proxyVariants(t)
	all["helm, another port"] = proxyOf(t, "{enabled: true, "+apiHost+", config: {healthz: '[::]:10266'}}")
	for name, all := range all {
		t.Run(name, func(t *testing.T) {
			settings, err := config.Parse("config.yaml", []byte(as[corev1.ConfigMap](t, all, "ConfigMap").Data["config.yaml"]))
			if err != nil {
				t.Fatal(err)
			}
			compiled, err := settings.Compile()
			if err != nil {
				t.Fatal(err)
			}
			if !compiled.Proxy.ReplaceKubeProxy || !compiled.Proxy.PodCIDRs {
				t.Errorf("settings %+v", compiled.Proxy)
			}
			c := onlyContainer(t, as[appsv1.DaemonSet](t, all, "DaemonSet").Spec.Template.Spec)
			port := intstr.FromInt32(int32(compiled.Proxy.Healthz.Port()))
			for path, probe := range map[string]*corev1.Probe{"/livez": c.LivenessProbe, "/healthz": c.ReadinessProbe} {
				if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != path || probe.HTTPGet.Port != port {
					t.Errorf("probe = %v, want %s at port %s", probe, path, port.String())
				}
			}
			var names []string
			for _, e := range c.Env {
				names = append(names, e.Name)
			}
			if diff := cmp.Diff([]string{"NODE_NAME", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"}, names); diff != "" {
				t.Errorf("environment (-want +got):\n%s", diff)
			}
		})
	}
}

// TestProxyChartIsKustomization: both ways give the same objects, but for the way in which the
// API server's address is given.
func TestProxyChartIsKustomization(t *testing.T) {
	all := proxyVariants(t)
	for _, objects := range all {
		pod := objects["DaemonSet/"+proxyName]["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
		container := pod["containers"].([]any)[0].(map[string]any)
		container["env"] = container["env"].([]any)[:1]
		config := pod["volumes"].([]any)[0].(map[string]any)["configMap"].(map[string]any)
		config["name"] = proxyName
	}
	kustomize, helm := comparableOf(t, all["kustomize/proxy"]), comparableOf(t, all["helm"])
	if diff := cmp.Diff(kustomize, helm); diff != "" {
		t.Errorf("objects (-kustomize +helm):\n%s", diff)
	}
}
