package compile

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// TestRoutePolicyGuard: rules demand all that a policy says, with limits for all of its rules together, and what their
// own filter demands.
func TestRoutePolicyGuard(t *testing.T) {
	t.Parallel()
	some := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	other := []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")}
	route := &cluster.Route{
		Kind: cluster.KindHTTPRoute, Key: cluster.Key{Namespace: "shop", Name: "web"},
		Spec: &cluster.RouteSpec{Rules: []cluster.RouteRule{
			{Matches: []cluster.RouteMatch{{Path: cluster.PathMatch{Type: cluster.PathExact, Value: "/"}}}},
			{
				Matches: []cluster.RouteMatch{{Path: cluster.PathMatch{Type: cluster.PathExact, Value: "/a"}}},
				Filters: external(cluster.ExternalAuth{}, "shop"),
			},
		}},
	}
	policy := &cluster.RoutePolicy{
		Key:     cluster.Key{Namespace: "shop", Name: "p"},
		Targets: []cluster.PolicyTarget{{ObjectRef: routeTarget(route.Ref())}},
		Allow:   some, Deny: other, MaxBody: 5,
		Limits: []cluster.RequestLimit{
			{Requests: 1, Per: time.Second, Burst: 3, Except: some}, {Requests: 2, Per: time.Minute},
		},
		Concurrent: &cluster.ConcurrencyLimit{Max: 4, Except: other},
		Passwords:  &cluster.Passwords{Secret: cluster.ObjectRef{Kind: "Secret", Namespace: "shop", Name: "users"}, Realm: "Shop"},
	}
	const hash = "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g="
	store := newStore(
		policy, route,
		&cluster.Service{Key: cluster.Key{Namespace: "shop", Name: "check"}, Ports: []cluster.Port{{Number: 80, Protocol: cluster.TCP}}},
		&cluster.Secret{Key: cluster.Key{Namespace: "shop", Name: "users"}, Data: map[string]cluster.Confidential{
			"auth": []byte("ann:" + hash),
		}},
	)
	cfg := Config{Experimental: true}
	var made *rules
	store.View(func(v *cluster.View) { made = cfg.compileRules(v, route) })
	want := table.Guard{
		Allow: some, Deny: other, MaxBody: 5,
		Limits: []table.RateLimit{
			{Key: "routepolicy shop/p 0", Requests: 1, Per: time.Second, Burst: 3, Exempt: some},
			{Key: "routepolicy shop/p 1", Requests: 2, Per: time.Minute},
		},
		Concurrent: &table.Concurrency{Key: "routepolicy shop/p", Max: 4, Exempt: other},
		BasicAuth:  &table.BasicAuth{Realm: "Shop", Users: map[string]string{"ann": hash}},
	}
	if d := cmp.Diff(&want, made.routes[0].Rule.Guard, byValue); d != "" {
		t.Errorf("rule 0 (-want +got)\n%s", d)
	}
	want.External = &table.ExternalAuth{Upstream: table.Upstream{Namespace: "shop", Service: "check", Port: 80}}
	if d := cmp.Diff(&want, made.routes[1].Rule.Guard, byValue); d != "" {
		t.Errorf("rule 1 (-want +got)\n%s", d)
	}
}

// TestPasswordsOfMap has each key of a Secret be one user, whatever its value is.
func TestPasswordsOfMap(t *testing.T) {
	t.Parallel()
	const hash = "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g="
	store := newStore(&cluster.Secret{Key: cluster.Key{Namespace: "shop", Name: "users"}, Data: map[string]cluster.Confidential{
		"ann": []byte(hash + "\n"), "bob": []byte(hash + "\neve:" + hash), "joe": []byte("none"),
	}})
	of := &cluster.Passwords{Secret: cluster.ObjectRef{Kind: "Secret", Namespace: "shop", Name: "users"}, Map: true}
	store.View(func(v *cluster.View) {
		made, problems, why := passwords(v, of)
		if why != "" || len(problems) != 2 || len(made.Users) != 1 || made.Users["ann"] != hash {
			t.Errorf("passwords(%+v) = %+v, %q, %q; want the user ann, and problems of bob and joe", of, made, problems, why)
		}
	})
}
