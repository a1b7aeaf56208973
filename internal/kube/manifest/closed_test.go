package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
)

// policyText returns a manifest of a NetworkPolicy named web.
func policyText(spec string) string {
	return "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {namespace: shop, name: web}\n" + spec
}

// TestFailClosed checks that a policy that cannot be read whole stays in force and allows nothing where it
// is invalid, that its problem is reported, and that its last good version stays only if nothing of it can
// be read.
func TestFailClosed(t *testing.T) {
	t.Parallel()
	const good = "spec: {podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 80}]}]}\n"
	key := cluster.Key{Namespace: "shop", Name: "web"}
	web := cluster.Selector{Labels: map[string]string{"app": "web"}}
	isolated := &cluster.NetworkPolicy{Key: key, Ingress: true, Egress: true}
	port80 := []cluster.PolicyRule{{Ports: []cluster.PolicyPort{{Protocol: cluster.TCP, Number: 80, End: 80}}}}
	for claim, test := range map[string]struct {
		before, now string
		want        *cluster.NetworkPolicy // nil is none
		problem     string
	}{
		"a port that is none":                                 {"", policyText("spec: {podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 80}]}, {ports: [{port: 0}]}]}\n"), &cluster.NetworkPolicy{Key: key, Pods: web, Ingress: true, IngressRules: port80}, "must be between 1 and 65535"},
		"a rule of the wrong type":                            {"", policyText("spec: {podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 80}]}, {ports: [{port: []}]}]}\n"), &cluster.NetworkPolicy{Key: key, Pods: web, Ingress: true, IngressRules: port80}, "wrong type: array"},
		"a selector of the wrong type":                        {"", policyText("spec: {podSelector: {matchLabels: {app: 5}}, ingress: [{ports: [{port: 80}]}]}\n"), &cluster.NetworkPolicy{Key: key, Ingress: true, IngressRules: port80}, "wrong type: number"},
		"rules of the wrong type":                             {"", policyText("spec: {egress: all}\n"), isolated, "wrong type: string"},
		"a spec of the wrong type":                            {"", policyText("spec: 5\n"), isolated, "wrong type: number"},
		"labels of the wrong type":                            {"", strings.Replace(policyText(good), "name: web", "name: web, labels: {a: 5}", 1), &cluster.NetworkPolicy{Key: key, Pods: web, Ingress: true, IngressRules: port80}, "wrong type: number"},
		"a key that is given twice":                           {"", policyText(good + "spec: {}\n"), isolated, "already defined"},
		"a key that is given twice, with a last good version": {policyText(good), policyText(good + "spec: {}\n"), &cluster.NetworkPolicy{Key: key, Pods: web, Ingress: true, IngressRules: port80}, "already defined"},
		"an invalid version replaces the last good one":       {policyText(good), policyText("spec: {podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 0}]}]}\n"), &cluster.NetworkPolicy{Key: key, Pods: web, Ingress: true}, "must be between 1 and 65535"},
		"a name that is none":                                 {"", strings.Replace(policyText(good), "name: web", "name: 'We b'", 1), nil, "lowercase"},
		"a template":                                          {"", policyText("spec: {podSelector: {matchLabels: {app: {{ .Values.app }} }}}\n"), nil, "Helm"},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.source.cfg.AllKinds = true
			if test.before != "" {
				w.write("policy.yaml", test.before)
				w.load()
			}
			w.write("policy.yaml", test.now)
			report := w.load()
			if len(report.Problems) != 1 || !strings.Contains(report.Problems[0].Error(), test.problem) || report.Problems[0].Closed != (test.want != nil) {
				t.Errorf("problems are %v, want one with %q", report.Problems, test.problem)
			}
			w.store.View(func(v *cluster.View) {
				if d := cmp.Diff(test.want, cluster.NetworkPolicies.Get(v, key)); d != "" {
					t.Errorf("policy (-want +got)\n%s", d)
				}
			})
		})
	}
}
