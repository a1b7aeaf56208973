package deploy

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
)

// TestPageRights: with admin.page: cluster the chart grants what deploy/kustomize/page does, to read what the page shows,
// and nothing else.
func TestPageRights(t *testing.T) {
	t.Parallel()
	without := as[rbacv1.ClusterRole](t, rendered(t, valuesOf(t, "")), "ClusterRole").Rules
	with := as[rbacv1.ClusterRole](t, rendered(t, valuesOf(t, "config: {admin: {page: cluster}}")), "ClusterRole").Rules
	alone := as[rbacv1.ClusterRole](t, kustomized(t, "page"), "ClusterRole").Rules
	if diff := cmp.Diff(slices.Concat(without, alone), with); diff != "" {
		t.Errorf("rules of the chart with admin.page: cluster (-without it and kustomize +got):\n%s", diff)
	}
	for _, rule := range alone {
		if !slices.Equal(rule.Verbs, []string{"list", "watch"}) || slices.Contains(rule.Resources, "secrets") {
			t.Errorf("rule %v: want list and watch alone, and no Secrets", rule)
		}
	}
}
