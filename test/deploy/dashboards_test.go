package deploy

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"portolan.dev/portolan/build/dashboard"
)

// dashboardMaps are the ConfigMaps of objects with the label by which Grafana's sidecar finds dashboards.
func dashboardMaps(t *testing.T, all objects) map[string]corev1.ConfigMap {
	t.Helper()
	found := make(map[string]corev1.ConfigMap)
	for key, o := range all {
		if o["kind"] != "ConfigMap" {
			continue
		}
		if m := as[corev1.ConfigMap](t, objects{key: o}, "ConfigMap"); m.Labels["grafana_dashboard"] == "1" {
			found[m.Name] = m
		}
	}
	return found
}

// wantDashboards checks that the chart has a ConfigMap for each dashboard, where and how the values say.
func wantDashboards(t *testing.T, all objects) {
	t.Helper()
	wantMaps(t, dashboardMaps(t, all))
	for name, m := range dashboardMaps(t, all) {
		if m.Namespace != "monitoring" || m.Annotations["grafana_folder"] != "DNS" {
			t.Errorf("%s: namespace %q, annotations %v", name, m.Namespace, m.Annotations)
		}
	}
}

// wantMaps checks that the ConfigMaps have the files of all dashboards.
func wantMaps(t *testing.T, found map[string]corev1.ConfigMap) {
	t.Helper()
	var names []string
	for _, d := range dashboard.All() {
		name := "portolan-dashboard-" + d.Name
		names = append(names, name)
		want, err := d.JSON()
		if err != nil {
			t.Fatal(err)
		}
		if got := found[name].Data["portolan-"+d.Name+".json"]; strings.TrimSpace(got) != strings.TrimSpace(string(want)) {
			t.Errorf("ConfigMap %s is missing, or not the dashboard", name)
		}
	}
	if len(found) != len(names) {
		t.Errorf("ConfigMaps %v, want %v", slices.Sorted(maps.Keys(found)), names)
	}
}

// TestDashboards checks the ConfigMaps that kustomize makes, and that the chart makes none unless told.
func TestDashboards(t *testing.T) {
	t.Parallel()
	wantMaps(t, dashboardMaps(t, kustomizedIn(t, filepath.Join(deployDir, "grafana"))))
	if found := dashboardMaps(t, rendered(t, nil)); len(found) > 0 {
		t.Errorf("dashboards without dashboards.enabled: %v", slices.Sorted(maps.Keys(found)))
	}
}
