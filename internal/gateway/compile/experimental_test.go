package compile

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// compiledRule compiles the rule of a route, with the Service auth/check that a grant allows.
func compiledRule(cfg Config, rule cluster.RouteRule) (made *rules) {
	rule.Matches = []cluster.RouteMatch{{Path: cluster.PathMatch{Type: cluster.PathPathPrefix, Value: "/"}}}
	r := &cluster.Route{
		Kind: cluster.KindHTTPRoute, Key: cluster.Key{Namespace: "shop", Name: "web"},
		Spec: &cluster.RouteSpec{Rules: []cluster.RouteRule{rule}},
	}
	store := newStore(&cluster.Service{
		Key: cluster.Key{Namespace: "shop", Name: "check"}, Ports: []cluster.Port{{Number: 80, Protocol: cluster.TCP}},
	})
	store.View(func(v *cluster.View) { made = cfg.compileRules(v, r) })
	return made
}

// external returns a filter ExternalAuth with a Service of a namespace.
func external(of cluster.ExternalAuth, namespace string) []cluster.Filter {
	of.Backend = cluster.BackendRef{
		ObjectRef: cluster.ObjectRef{Kind: "Service", Namespace: namespace, Name: "check"}, Port: 80,
	}
	return []cluster.Filter{{Type: cluster.ExternalAuthFilter, External: &of}}
}

func TestExperimental(t *testing.T) {
	t.Parallel()
	service := table.Upstream{Namespace: "shop", Service: "check", Port: 80}
	spoken := service
	spoken.Protocol = table.H2C
	key := table.PersistenceKey("uid", "httproute shop/web", "0", "")
	for claim, test := range map[string]struct {
		rule  cluster.RouteRule
		want  table.Rule
		notes string
	}{
		"retry":             {cluster.RouteRule{Retry: &cluster.RouteRetry{Codes: []int{500}, Attempts: 3}}, table.Rule{Retry: &table.Retry{Codes: []int{500}, Attempts: 3}}, ""},
		"retry by defaults": {cluster.RouteRule{Retry: &cluster.RouteRetry{}}, table.Rule{Retry: &table.Retry{Attempts: 2}}, ""},
		"more attempts than there may be": {
			cluster.RouteRule{Retry: &cluster.RouteRetry{Attempts: 99}}, table.Rule{Retry: &table.Retry{Attempts: 10}},
			"rule 0: retry.attempts is 99, of which 10 are made",
		},
		"a cookie": {
			cluster.RouteRule{Session: &cluster.RouteSession{
				Name: "session", UID: "uid", Absolute: cluster.Timeout{Set: true, Limit: time.Hour}, Permanent: true,
			}},
			table.Rule{Persistence: &table.Persistence{Name: "session", Key: key, Absolute: time.Hour, MaxAge: time.Hour}}, "",
		},
		"a header": {
			cluster.RouteRule{Session: &cluster.RouteSession{Name: "x-session", Header: true, UID: "uid"}},
			table.Rule{Persistence: &table.Persistence{Name: "X-Session", Header: true, Key: key}}, "",
		},
		"another service, over HTTP": {
			cluster.RouteRule{Filters: external(cluster.ExternalAuth{
				Path: "/a/../check/", RequestHeaders: []string{"x-a"}, ResponseHeaders: []string{"x-b"}, MaxBody: 10,
			}, "shop")},
			table.Rule{Guard: &table.Guard{External: &table.ExternalAuth{
				Upstream: service, Path: "/check", RequestHeaders: []string{"X-A"}, ResponseHeaders: []string{"X-B"}, MaxBody: 10,
			}}}, "",
		},
		"another service, over gRPC": {
			cluster.RouteRule{Filters: external(cluster.ExternalAuth{GRPC: true}, "shop")},
			table.Rule{Guard: &table.Guard{External: &table.ExternalAuth{Kind: table.AuthGRPC, Upstream: spoken}}}, "",
		},
		"a service that is not allowed": {
			cluster.RouteRule{Filters: external(cluster.ExternalAuth{}, "auth")},
			table.Rule{Guard: &table.Guard{External: &table.ExternalAuth{
				Reason: "no ReferenceGrant in namespace auth allows HTTPRoutes of namespace shop to refer to Service check",
			}}}, "",
		},
	} {
		made := compiledRule(Config{Experimental: true}, test.rule)
		if len(made.routes) != 1 {
			t.Errorf("%s: dropped %v", claim, made.dropped)
			continue
		}
		got := made.routes[0].Rule
		test.want.Object = got.Object
		if d := cmp.Diff(&test.want, got); d != "" || strings.Join(made.notes, "; ") != test.notes {
			t.Errorf("%s: notes %q (-want +got)\n%s", claim, made.notes, d)
		}
	}
}

// TestWithoutExperimental has no effect of fields without the setting, and no rule with a filter that would be skipped.
func TestWithoutExperimental(t *testing.T) {
	t.Parallel()
	made := compiledRule(Config{}, cluster.RouteRule{Retry: &cluster.RouteRetry{}, Session: &cluster.RouteSession{}})
	const notes = "rule 0: retry has no effect without gateway.experimental; " +
		"rule 0: sessionPersistence has no effect without gateway.experimental"
	if rule := made.routes[0].Rule; rule.Retry != nil || rule.Persistence != nil || strings.Join(made.notes, "; ") != notes {
		t.Errorf("%+v, %+v, %q", rule.Retry, rule.Persistence, made.notes)
	}
	made = compiledRule(Config{}, cluster.RouteRule{Filters: external(cluster.ExternalAuth{}, "shop")})
	if len(made.routes) != 0 || len(made.dropped) != 1 || made.dropped[0].reason != "UnsupportedValue" {
		t.Errorf("the filter ExternalAuth makes the rules %v, and drops %v", made.routes, made.dropped)
	}
	made = compiledRule(Config{Experimental: true}, cluster.RouteRule{Backends: []cluster.RouteBackend{
		{Filters: external(cluster.ExternalAuth{}, "shop")},
	}})
	if len(made.routes) != 0 || len(made.dropped) != 1 {
		t.Errorf("the filter ExternalAuth of a backend makes the rules %v, and drops %v", made.routes, made.dropped)
	}
}

// TestOwnSessions has rules without a name of their session have different ones, which tell no key.
func TestOwnSessions(t *testing.T) {
	t.Parallel()
	one := compiledRule(Config{Experimental: true}, cluster.RouteRule{Session: new(cluster.RouteSession)})
	two := compiledRule(Config{Experimental: true}, cluster.RouteRule{Name: "two", Session: new(cluster.RouteSession)})
	a, b := one.routes[0].Rule.Persistence, two.routes[0].Rule.Persistence
	if a.Name == b.Name || a.Key == b.Key || !strings.HasPrefix(a.Name, "portolan-session-") {
		t.Errorf("the sessions of two rules are %+v and %+v", a, b)
	}
}
