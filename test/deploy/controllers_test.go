package deploy

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// aController is a controller of the chart, beside that of slices.
type aController struct {
	command, section string
	config           string // that it needs, below the section's config
	rules            []rbacv1.PolicyRule
	hostNetwork      bool
}

var someControllers = []aController{
	{
		command: "nodes", section: "nodes", config: "nodes: {clusterCIDRs: [10.244.0.0/16]}", hostNetwork: true,
		rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch", "patch"}},
			{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"servicecidrs"}, Verbs: []string{"list", "watch"}},
			{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create"}},
		},
	},
	{
		command: "loadbalancer", section: "loadBalancer", config: "loadBalancer: {pools: [{name: public, ranges: [192.0.2.0/28], automatic: true}]}",
		rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"services", "namespaces"}, Verbs: []string{"list", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"services/status"}, Verbs: []string{"patch"}},
			{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create"}},
		},
	},
}

func (c aController) name() string { return "portolan-" + c.command }

// values enable the controller, with more values of its section.
func (c aController) values(more string) string {
	return "controller: {" + c.section + ": {enabled: true, config: {" + c.config + "}" + more + "}}"
}

// of returns the controller's objects.
func (c aController) of(t *testing.T, values string) objects {
	t.Helper()
	all := rendered(t, valuesOf(t, values))
	for key, o := range all {
		if o.name() != c.name() {
			delete(all, key)
		}
	}
	return all
}

// variants are the controller's objects from the chart and from kustomize.
func (c aController) variants(t *testing.T) map[string]objects {
	t.Helper()
	return map[string]objects{"kustomize": kustomized(t, "controller-"+c.command), "helm": c.of(t, c.values(""))}
}

// TestControllersDisabled: nobody gets a controller who has not asked for one, and who has gets the same server.
func TestControllersDisabled(t *testing.T) {
	t.Parallel()
	for _, c := range someControllers {
		of := optional{name: c.name(), section: "controller", enabled: c.values("")}
		of.test(t, c.values(", replicas: 1"))
	}
}

// TestControllersRefused: settings that cannot be are refused before anything is there.
func TestControllersRefused(t *testing.T) {
	t.Parallel()
	for _, c := range someControllers {
		for claim, config := range map[string]string{
			"two without an election": "leaderElection: {enabled: false}", "a Lease of one's own": "leaderElection: {name: a}",
		} {
			values := "controller: {" + c.section + ": {enabled: true, config: {" + config + "}}}"
			if _, err := renderIn(t, "kube-system", valuesOf(t, values)); err == nil {
				t.Errorf("%s: %s: no error", c.command, claim)
			}
		}
	}
}

// TestControllersHardened: every field that takes a privilege away is there, and a controller has no right but those
// that it needs; the end-to-end tests run with these.
func TestControllersHardened(t *testing.T) {
	t.Parallel()
	yes, no, id := true, false, int64(65532)
	wantPod := &corev1.PodSecurityContext{
		RunAsNonRoot: &yes, RunAsUser: &id, RunAsGroup: &id,
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	wantContainer := &corev1.SecurityContext{
		AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	for _, of := range someControllers {
		for name, all := range of.variants(t) {
			wantOwn := []rbacv1.PolicyRule{
				{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
				{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{of.name()}, Verbs: []string{"get", "update"}},
			}
			subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Name: of.name(), Namespace: "kube-system"}}
			kinds := []string{"ClusterRole", "ClusterRoleBinding", "ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Role", "RoleBinding", "ServiceAccount"}
			if of.hostNetwork { // to which no NetworkPolicy applies
				kinds = slices.DeleteFunc(kinds, func(kind string) bool { return kind == "NetworkPolicy" })
			}
			var got []string
			for _, o := range all {
				got = append(got, o["kind"].(string))
			}
			slices.Sort(got)
			pod := as[appsv1.Deployment](t, all, "Deployment").Spec.Template.Spec
			c := onlyContainer(t, pod)
			for what, diff := range map[string]string{
				"kinds":                           cmp.Diff(kinds, got),
				"the Pod's securityContext":       cmp.Diff(wantPod, pod.SecurityContext),
				"the container's securityContext": cmp.Diff(wantContainer, c.SecurityContext),
				"cluster-wide rules":              cmp.Diff(of.rules, as[rbacv1.ClusterRole](t, all, "ClusterRole").Rules),
				"rules of its own namespace":      cmp.Diff(wantOwn, as[rbacv1.Role](t, all, "Role").Rules),
				"who has them in the cluster":     cmp.Diff(subjects, as[rbacv1.ClusterRoleBinding](t, all, "ClusterRoleBinding").Subjects),
				"who has them in the namespace":   cmp.Diff(subjects, as[rbacv1.RoleBinding](t, all, "RoleBinding").Subjects),
				"arguments":                       cmp.Diff([]string{"controller", of.command, "--config", "/etc/portolan/config.yaml"}, c.Args),
			} {
				if diff != "" {
					t.Errorf("%s, %s: %s (-want +got):\n%s", of.command, name, what, diff)
				}
			}
			if pod.HostNetwork != of.hostNetwork || pod.ServiceAccountName != of.name() || c.Resources.Limits.Memory().IsZero() {
				t.Errorf("%s, %s: host network: %t, account %s, resources %v", of.command, name, pod.HostNetwork, pod.ServiceAccountName, c.Resources)
			}
		}
	}
}

// TestControllersFit: the Lease that a controller may write is the one that it is told of, its settings are valid, and
// what selects its Pods does.
func TestControllersFit(t *testing.T) {
	t.Parallel()
	for _, c := range someControllers {
		for name, all := range c.variants(t) {
			cfg := readConfig(t, as[corev1.ConfigMap](t, all, "ConfigMap").Data["config.yaml"])
			if e := cfg.Controller.LeaderElection; !e.Enabled || e.Namespace != "kube-system" || e.Name != c.name() {
				t.Errorf("%s, %s: election %+v", c.command, name, e)
			}
			compiled, err := cfg.Compile()
			if err != nil || len(compiled.Controller.Nodes)+len(compiled.Controller.LoadBalancer.Pools) == 0 {
				t.Errorf("%s, %s: settings %+v, %v", c.command, name, cfg.Controller, err)
			}
			d := as[appsv1.Deployment](t, all, "Deployment")
			own := d.Spec.Template.Labels
			for what, selector := range map[string]map[string]string{
				"the Deployment":          d.Spec.Selector.MatchLabels,
				"the PodDisruptionBudget": as[policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget").Spec.Selector.MatchLabels,
			} {
				if len(selector) == 0 || !cmp.Equal(selector, own) {
					t.Errorf("%s, %s: %s selects %v, Pods have %v", c.command, name, what, selector, own)
				}
			}
			port := d.Spec.Template.Spec.Containers[0].Ports[0].ContainerPort
			if admin := compiled.Admin.Listen; int32(admin.Port()) != port || c.hostNetwork && !tolerates(d.Spec.Template.Spec, corev1.Taint{Key: corev1.TaintNodeNotReady}) {
				t.Errorf("%s, %s: port %d, metrics at %s, tolerations %v", c.command, name, port, admin, d.Spec.Template.Spec.Tolerations)
			}
		}
	}
}

// TestControllersAreKustomizations: both ways give the same objects.
func TestControllersAreKustomizations(t *testing.T) {
	t.Parallel()
	for _, c := range someControllers {
		all := c.variants(t)
		if diff := cmp.Diff(comparableOf(t, all["kustomize"]), comparableOf(t, all["helm"])); diff != "" {
			t.Errorf("%s (-kustomize +helm):\n%s", c.command, diff)
		}
	}
}

// TestNodesAPI: the controller of Nodes reaches the API server where a service proxy would, if that is told.
func TestNodesAPI(t *testing.T) {
	t.Parallel()
	c := someControllers[0]
	all := c.of(t, "{"+c.values("")+", proxy: {"+apiHost+"}}")
	env := onlyContainer(t, as[appsv1.Deployment](t, all, "Deployment").Spec.Template.Spec).Env
	if !slices.Contains(env, corev1.EnvVar{Name: "KUBERNETES_SERVICE_HOST", Value: "10.0.0.1"}) {
		t.Errorf("environment %v, want the address of the API server", env)
	}
}
