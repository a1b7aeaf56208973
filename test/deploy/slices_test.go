package deploy

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// slicesName is what all objects of the controller of slices are called.
const slicesName = "portolan-slices"

// slicesOf is what the chart renders for the controller, with these values below
// controller.slices.
func slicesOf(t *testing.T, values string) objects {
	t.Helper()
	all := rendered(t, valuesOf(t, "controller: {slices: "+values+"}"))
	for key, o := range all {
		if o.name() != slicesName {
			delete(all, key)
		}
	}
	return all
}

// TestSlicesDisabled: nobody gets a controller who has not asked for one, and who
// has gets the same server; with values of a chart that had none, too.
func TestSlicesDisabled(t *testing.T) {
	of := optional{name: slicesName, section: "controller", enabled: "controller: {slices: {enabled: true}}"}
	of.test(t, "controller: {slices: {enabled: true, config: {concurrentSyncs: 9}}}")
}

// TestSlicesRefused: settings that can't be are refused before anything is there.
func TestSlicesRefused(t *testing.T) {
	for claim, values := range map[string]string{
		"two without an election": "{enabled: true, config: {leaderElection: {enabled: false}}}",
		"a Lease of one's own":    "{enabled: true, config: {leaderElection: {name: a}}}",
		"an unknown value":        "{enabled: true, replica: 1}",
	} {
		if _, err := renderIn(t, "kube-system", valuesOf(t, "controller: {slices: "+values+"}")); err == nil {
			t.Errorf("%s: no error", claim)
		}
	}
	slicesOf(t, "{enabled: true, replicas: 1, config: {leaderElection: {enabled: false}}}") // which fails if it can't be
}

// TestSlicesHardened: every field that takes a privilege away is there, and it has
// no right but those that it needs; the end-to-end tests run with these.
func TestSlicesHardened(t *testing.T) {
	yes, no, id := true, false, int64(65532)
	wantPod := &corev1.PodSecurityContext{
		RunAsNonRoot: &yes, RunAsUser: &id, RunAsGroup: &id,
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	wantContainer := &corev1.SecurityContext{
		AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	wantCluster := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services", "pods", "nodes"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch", "create", "update", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"services/finalizers"}, Verbs: []string{"update"}},
	}
	wantOwn := []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{slicesName}, Verbs: []string{"get", "update"}},
	}
	wantSubjects := []rbacv1.Subject{{Kind: "ServiceAccount", Name: slicesName, Namespace: "kube-system"}}
	all := slicesOf(t, "{enabled: true}")
	var kinds []string
	for _, o := range all {
		kinds = append(kinds, o["kind"].(string))
	}
	slices.Sort(kinds)
	pod := as[appsv1.Deployment](t, all, "Deployment").Spec.Template.Spec
	c := onlyContainer(t, pod)
	for what, diff := range map[string]string{
		"kinds": cmp.Diff([]string{
			"ClusterRole", "ClusterRoleBinding", "ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Role", "RoleBinding", "ServiceAccount",
		}, kinds),
		"the Pod's securityContext":       cmp.Diff(wantPod, pod.SecurityContext),
		"the container's securityContext": cmp.Diff(wantContainer, c.SecurityContext),
		"cluster-wide rules":              cmp.Diff(wantCluster, as[rbacv1.ClusterRole](t, all, "ClusterRole").Rules),
		"rules of its own namespace":      cmp.Diff(wantOwn, as[rbacv1.Role](t, all, "Role").Rules),
		"who has them in the cluster":     cmp.Diff(wantSubjects, as[rbacv1.ClusterRoleBinding](t, all, "ClusterRoleBinding").Subjects),
		"who has them in the namespace":   cmp.Diff(wantSubjects, as[rbacv1.RoleBinding](t, all, "RoleBinding").Subjects),
		"the account's token":             cmp.Diff(&no, as[corev1.ServiceAccount](t, all, "ServiceAccount").AutomountServiceAccountToken),
		"arguments":                       cmp.Diff([]string{"controller", "slices", "--config", "/etc/portolan/config.yaml"}, c.Args),
	} {
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	if pod.HostNetwork || pod.ServiceAccountName != slicesName || c.Resources.Limits.Memory().IsZero() {
		t.Errorf("host network: %t, account %s, resources %v", pod.HostNetwork, pod.ServiceAccountName, c.Resources)
	}
}

// TestSlicesFits: the Lease that it may write is the one that it is told of, and
// what selects its Pods does.
func TestSlicesFits(t *testing.T) {
	all := slicesOf(t, "{enabled: true, config: {maxEndpointsPerSlice: 500}}")
	cfg := readConfig(t, as[corev1.ConfigMap](t, all, "ConfigMap").Data["config.yaml"])
	if e := cfg.Controller.LeaderElection; !e.Enabled || e.Namespace != "kube-system" || e.Name != slicesName || cfg.Controller.MaxEndpointsPerSlice != 500 {
		t.Errorf("config %+v", cfg.Controller)
	}
	d := as[appsv1.Deployment](t, all, "Deployment")
	own := d.Spec.Template.Labels
	for what, selector := range map[string]map[string]string{
		"the Deployment":          d.Spec.Selector.MatchLabels,
		"the PodDisruptionBudget": as[policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget").Spec.Selector.MatchLabels,
		"the NetworkPolicy":       as[networkingv1.NetworkPolicy](t, all, "NetworkPolicy").Spec.PodSelector.MatchLabels,
	} {
		if len(selector) == 0 || !cmp.Equal(selector, own) {
			t.Errorf("%s selects %v, Pods have %v", what, selector, own)
		}
	}
	if *d.Spec.Replicas != 2 {
		t.Errorf("%d replicas, want one that leads and one that takes over", *d.Spec.Replicas)
	}
}
