package app

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dns/settings"
	"portolan.dev/portolan/internal/pod/lint"
)

// TestFindings checks that findings have the position of their objects, that each
// problem is reported once, and that mirrored legacy Endpoints have the position of
// their Service.
func TestFindings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "all.yaml")
	text := `apiVersion: v1
kind: Service
metadata: {name: a, namespace: orders}
spec:
  clusterIP: 10.96.0.7
  ports: [{name: http, port: 80}]
---
apiVersion: v1
kind: Service
metadata: {name: b, namespace: orders}
spec:
  clusterIP: 10.96.0.7
  ports: [{name: http, port: 80}]
---
apiVersion: v1
kind: Endpoints
metadata: {name: a, namespace: orders}
subsets: [{addresses: [{ip: 192.0.2.7}], ports: [{name: web, port: 80}]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: b-1, namespace: orders, labels: {kubernetes.io/service-name: b}}
addressType: IPv4
ports: [{name: http, port: 80}]
endpoints: [{addresses: [192.0.2.7]}]
---
apiVersion: v1
kind: Namespace
metadata: {name: Orders}
`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	c := config.Default()
	c.Manifests = file
	d := newWorld(t, c)
	var got []string
	for _, f := range d.Findings(d.loaded, NodeSettings{}, func(string) bool { return true }) {
		got = append(got, fmt.Sprintf("%s:%d %s %s", strings.TrimPrefix(f.File, file), f.Line, f.Object, f.Rule))
	}
	want := []string{
		":1 endpointslice orders/a-mirror-0-ipv4 endpointslice-port-mismatch",
		":4 service orders/a cluster-ip-shared",
		":11 service orders/b cluster-ip-shared",
		":29 namespace Orders manifest-rejected",
	}
	if !slices.Equal(got, want) {
		t.Errorf("Findings = %q, want %q", got, want)
	}
	// An object that no file declares has the position of an object of its namespace.
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml": "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: orders\n",
		"b.yaml": "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  namespace: dev\nspec:\n  externalName: example.com\n  type: ExternalName\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	found := findings(t, dir)
	if len(found) != 1 || found[0].Object != "namespace dev" || found[0].File != filepath.Join(dir, "b.yaml") || found[0].Line != 5 {
		t.Errorf("Findings = %+v, want one of namespace dev at the Service in it", found)
	}
	if only := d.Findings(d.loaded, NodeSettings{}, func(rule string) bool { return rule == "manifest-rejected" }); len(only) != 1 {
		t.Errorf("Findings of one rule = %+v, want one", only)
	}
}

// findings returns all findings in manifests.
func findings(t *testing.T, path string) []Found {
	t.Helper()
	c := config.Default()
	c.Manifests = path
	d := newWorld(t, c)
	return d.Findings(d.loaded, NodeSettings{}, func(string) bool { return true })
}

// TestOwnManifests checks that the manifests in this repository have no errors. Charts,
// settings and templates are beside them.
func TestOwnManifests(t *testing.T) {
	found := findings(t, "../../../deploy")
	for _, f := range found {
		if f.Severity == lint.Error {
			t.Errorf("%s:%d: %s %s", f.File, f.Line, f.Message, f.Rule)
		}
	}
	if len(found) == 0 {
		t.Error("nothing is found, want at least that templates have to be rendered")
	}
}

// TestIgnoredRules checks that the annotation of an object or of its Pod template
// disables rules.
func TestIgnoredRules(t *testing.T) {
	const text = `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: shop, annotations: {portolan.dev/ignore-rules: "pod-ndots-low,namespace-is-tld"}}}
- {apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop, annotations: {portolan.dev/ignore-rules: "service-port-unnamed, service-selects-no-pod"}}, spec: {ports: [{port: 80}], selector: {app: x}}}
- {apiVersion: v1, kind: Service, metadata: {name: db, namespace: shop, annotations: {portolan.dev/ignore-rules: service-port}}, spec: {ports: [{port: 80}], selector: {app: web}}}
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: web, namespace: shop}
  spec: {template: {metadata: {labels: {app: web}, annotations: {portolan.dev/ignore-rules: pod-policy-default}}, spec: {dnsPolicy: Default}}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly, namespace: shop}
spec: {jobTemplate: {spec: {template: {metadata: {annotations: {portolan.dev/ignore-rules: pod-policy-default}}, spec: {dnsPolicy: Default}}}}}
`
	file := filepath.Join(t.TempDir(), "all.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range findings(t, file) {
		got = append(got, f.Object+" "+f.Rule)
	}
	if want := []string{"service shop/db service-port-unnamed"}; !slices.Equal(got, want) {
		t.Errorf("Findings = %q, want %q", got, want)
	}
}

// TestNamesOfServedDomains checks that names in domains which the server answers for or
// forwards are not taken for misspelled ones of the cluster.
func TestNamesOfServedDomains(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pod.yaml")
	text := `{apiVersion: v1, kind: Pod, metadata: {name: client}, spec: {containers: [{name: main, args: [web.shop.svc.cluster.lcal]}]}}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for claim, test := range map[string]struct {
		set  func(*settings.DNS)
		want int
	}{
		"a misspelled domain": {func(*settings.DNS) {}, 1},
		"a route": {func(d *settings.DNS) {
			d.Forward.Routes = []settings.Route{{Suffix: "Cluster.lcal.", Upstreams: []string{"192.0.2.1"}}}
		}, 0},
		"a route for all names": {func(d *settings.DNS) {
			d.Forward.Routes = []settings.Route{{Suffix: ".", Upstreams: []string{"192.0.2.1"}}}
		}, 1},
		"a local zone":          {func(d *settings.DNS) { d.LocalZones = []settings.LocalZone{{Zone: "lcal", Records: "@ A 192.0.2.1"}} }, 0},
		"the multicluster zone": {func(d *settings.DNS) { d.Multicluster = "cluster.lcal" }, 0},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			c := config.Default()
			c.Manifests = file
			test.set(&c.DNS)
			d := newWorld(t, c)
			only := func(rule string) bool { return rule == lint.PodNameMissingService }
			if got := d.Findings(d.loaded, NodeSettings{}, only); len(got) != test.want {
				t.Errorf("Findings = %+v, want %d", got, test.want)
			}
		})
	}
}
