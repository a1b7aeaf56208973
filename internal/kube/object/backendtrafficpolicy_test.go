package object

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	gatewayx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	"portolan.dev/portolan/internal/cluster"
)

// trafficPolicy decodes an XBackendTrafficPolicy of the Service web with further fields of its spec.
func trafficPolicy(t *testing.T, fields string) (*cluster.BackendTrafficPolicy, string) {
	t.Helper()
	var api gatewayx.XBackendTrafficPolicy
	text := `{"metadata": {"name": "p", "namespace": "shop", "generation": 2}, "spec": {
		"targetRefs": [{"group": "", "kind": "Service", "name": "web"}]` + fields + `}}`
	if err := json.Unmarshal([]byte(text), &api); err != nil {
		t.Fatal(err)
	}
	made, errs := BackendTrafficPolicy(&api)
	if len(errs) > 0 {
		return made, errs[0].Error()
	}
	return made, ""
}

func TestBackendTrafficPolicy(t *testing.T) {
	t.Parallel()
	limits := func(percent uint32, interval time.Duration, least uint32, per time.Duration) *cluster.RetryConstraint {
		return &cluster.RetryConstraint{Percent: percent, Interval: interval, Least: least, Per: per}
	}
	for fields, want := range map[string]cluster.BackendTrafficPolicy{
		``:                          {},
		`,"sessionPersistence": {}`: {Session: true},
		`,"retryConstraint": {}`:    {Retries: limits(20, 10*time.Second, 10, time.Second)},
		`,"retryConstraint": {"budget": {"percent": 0}, "minRetryRate": {"count": 1}}`: {
			Retries: limits(0, 10*time.Second, 1, time.Second),
		},
		`,"retryConstraint": {"budget": {"interval": "1h"}, "minRetryRate": {"interval": "1ms"}}`: {
			Retries: limits(20, time.Hour, 10, time.Millisecond),
		},
	} {
		want.Key, want.Generation = cluster.Key{Namespace: "shop", Name: "p"}, 2
		want.Targets = []cluster.PolicyTarget{{ObjectRef: cluster.ObjectRef{Kind: "Service", Namespace: "shop", Name: "web"}}}
		got, bad := trafficPolicy(t, fields)
		if d := cmp.Diff(&want, got); d != "" || bad != "" {
			t.Errorf("a policy with %q: %s (-want +got)\n%s", fields, bad, d)
		}
	}
	for fields, want := range map[string]string{
		`"budget": {"percent": -1}`:             "spec.retryConstraint.budget.percent: ",
		`"budget": {"percent": 101}`:            "spec.retryConstraint.budget.percent: ",
		`"budget": {"interval": "999ms"}`:       "spec.retryConstraint.budget.interval: ",
		`"budget": {"interval": "a while"}`:     "spec.retryConstraint.budget.interval: ",
		`"minRetryRate": {"count": 0}`:          "spec.retryConstraint.minRetryRate.count: ",
		`"minRetryRate": {"interval": "0s"}`:    "spec.retryConstraint.minRetryRate.interval: ",
		`"minRetryRate": {"interval": "1h1ms"}`: "spec.retryConstraint.minRetryRate.interval: ",
	} {
		if _, bad := trafficPolicy(t, `,"retryConstraint": {`+fields+`}`); !strings.HasPrefix(bad, want) {
			t.Errorf("a policy with %q: %q, want %q", fields, bad, want)
		}
	}
}
