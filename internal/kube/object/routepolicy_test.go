package object

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	strictjson "sigs.k8s.io/json"

	"portolan.dev/portolan/internal/cluster"
)

// routePolicy decodes the spec of a RoutePolicy.
func routePolicy(t *testing.T, spec string) (*cluster.RoutePolicy, string) {
	t.Helper()
	text := []byte(`{"metadata": {"name": "p", "namespace": "shop", "generation": 2}, "spec": ` + spec + `}`)
	k := Of(cluster.KindRoutePolicy)
	api := k.New()
	if err := strictjson.UnmarshalCaseSensitivePreserveInts(text, api); err != nil {
		api = k.Salvage(text)
	}
	made, errs := k.Decode(api)
	if len(errs) == 0 {
		return made.(*cluster.RoutePolicy), ""
	}
	return made.(*cluster.RoutePolicy), errs[0].Error()
}

func TestRoutePolicy(t *testing.T) {
	t.Parallel()
	got, bad := routePolicy(t, `{
		"targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "web", "sectionName": "a"}],
		"allow": ["192.0.2.7/24", "2001:db8::1"], "deny": ["192.0.2.66"],
		"rateLimits": [{"requests": 10, "per": "1m", "burst": 50, "except": ["198.51.100.0/24"]}, {"requests": 1, "per": "1s"}],
		"concurrentRequests": {"max": 20, "except": ["::/0"]}, "maxBodySize": "8Mi",
		"basicAuth": {"secretRef": {"name": "users"}, "format": "Map", "realm": "Shop"}}`)
	want := &cluster.RoutePolicy{
		Key: cluster.Key{Namespace: "shop", Name: "p"}, Meta: cluster.Meta{Generation: 2},
		Targets: []cluster.PolicyTarget{{Section: "a", ObjectRef: cluster.ObjectRef{
			Group: "gateway.networking.k8s.io", Kind: "HTTPRoute", Namespace: "shop", Name: "web",
		}}},
		Allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::1/128")},
		Deny:  []netip.Prefix{netip.MustParsePrefix("192.0.2.66/32")},
		Limits: []cluster.RequestLimit{
			{Requests: 10, Per: time.Minute, Burst: 50, Except: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}},
			{Requests: 1, Per: time.Second},
		},
		Concurrent: &cluster.ConcurrencyLimit{Max: 20, Except: []netip.Prefix{netip.MustParsePrefix("::/0")}},
		MaxBody:    8 << 20,
		Passwords: &cluster.Passwords{
			Secret: cluster.ObjectRef{Kind: "Secret", Namespace: "shop", Name: "users"}, Map: true, Realm: "Shop",
		},
	}
	samePrefix := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	if d := cmp.Diff(want, got, samePrefix); d != "" || bad != "" {
		t.Errorf("RoutePolicy: %s (-want +got)\n%s", bad, d)
	}
}

// TestRoutePolicyInvalid: what cannot be obeyed, or not be read at all, makes the policy invalid, with its targets.
func TestRoutePolicyInvalid(t *testing.T) {
	t.Parallel()
	for claim, test := range map[string]struct{ spec, want string }{
		"no address":               {`"allow": ["a"]`, "spec.allow[0]: "},
		"a zone":                   {`"deny": ["fe80::1%eth0"]`, "spec.deny[0]: "},
		"an IPv4-mapped address":   {`"deny": ["::ffff:192.0.2.1"]`, "spec.deny[0]: "},
		"no requests":              {`"rateLimits": [{"per": "1s"}]`, "spec.rateLimits[0].requests: "},
		"no period":                {`"rateLimits": [{"requests": 1}]`, "spec.rateLimits[0].per: "},
		"a short period":           {`"rateLimits": [{"requests": 1, "per": "10ms"}]`, "spec.rateLimits[0].per: "},
		"a long period":            {`"rateLimits": [{"requests": 1, "per": "2h"}]`, "spec.rateLimits[0].per: "},
		"a burst of none":          {`"rateLimits": [{"requests": 1, "per": "1s", "burst": 0}]`, "spec.rateLimits[0].burst: "},
		"an exception of none":     {`"rateLimits": [{"requests": 1, "per": "1s", "except": [""]}]`, "spec.rateLimits[0].except[0]: "},
		"none at once":             {`"concurrentRequests": {}`, "spec.concurrentRequests.max: "},
		"more than can be counted": {`"concurrentRequests": {"max": 4294967297}`, "spec.concurrentRequests.max: "},
		"a body of a half":         {`"maxBodySize": "500m"`, "spec.maxBodySize: "},
		"no body":                  {`"maxBodySize": 0`, "spec.maxBodySize: "},
		"no Secret":                {`"basicAuth": {}`, "spec.basicAuth.secretRef.name: "},
		"another format":           {`"basicAuth": {"secretRef": {"name": "a"}, "format": "CSV"}`, "spec.basicAuth.format: "},
		"a realm of two lines":     {`"basicAuth": {"secretRef": {"name": "a"}, "realm": "a\nb"}`, "spec.basicAuth.realm: "},

		"a range of another type":        {`"allow": "10.0.0.0/8"`, "spec.allow[0]: "},
		"a denied range of another type": {`"deny": [5]`, "spec.deny[0]: "},
		"limits of another type":         {`"rateLimits": {}`, "spec.rateLimits[0].requests: "},
		"concurrency of another type":    {`"concurrentRequests": 5`, "spec.concurrentRequests.max: "},
		"a size of another type":         {`"maxBodySize": "large"`, "spec.maxBodySize: "},
		"passwords of another type":      {`"basicAuth": "users"`, "spec.basicAuth.secretRef.name: "},
	} {
		const target = `"targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "web"}]`
		got, bad := routePolicy(t, "{"+target+", "+test.spec+"}")
		if !strings.HasPrefix(bad, test.want) || got.Invalid != bad || len(got.Targets) != 1 || got.Targets[0].Name != "web" {
			t.Errorf("%s: %q, and the policy is %+v; want %s", claim, bad, got, test.want)
		}
	}
	if got, _ := routePolicy(t, `{"targetRefs": [5, {"name": "web"}], "maxBodySize": 1}`); len(got.Targets) != 2 || got.Targets[1].Name != "web" {
		t.Errorf("a target of another type leaves %+v", got.Targets)
	}
}
