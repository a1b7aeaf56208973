package compile

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// trafficWorld is a Gateway, and a route to the Service web, with policies of Services.
func trafficWorld(policies ...cluster.Object) *cluster.Store {
	return newStore(append([]cluster.Object{
		&cluster.GatewayClass{Name: "ours", Controller: testConfig.GatewayController}, &cluster.Namespace{Name: "shop"},
		&cluster.Frontend{Kind: cluster.KindGateway, Key: cluster.Key{Namespace: "shop", Name: "gw"}, Gateway: &cluster.GatewaySpec{
			Class: "ours", Listeners: []cluster.Listener{{
				Name: "http", Port: 80, Protocol: cluster.HTTPProtocol, Namespaces: cluster.AllowedNamespaces{From: cluster.FromSame},
			}},
		}},
		&cluster.Service{Key: cluster.Key{Namespace: "shop", Name: "web"}, Ports: []cluster.Port{{Number: 80, Protocol: cluster.TCP}}},
		&cluster.Route{
			Kind: cluster.KindHTTPRoute, Key: cluster.Key{Namespace: "shop", Name: "web"},
			Spec: &cluster.RouteSpec{
				Parents: []cluster.ParentRef{gatewayRef(cluster.Key{Namespace: "shop", Name: "gw"})},
				Rules: []cluster.RouteRule{{
					Matches: []cluster.RouteMatch{{Path: cluster.PathMatch{Type: cluster.PathPathPrefix, Value: "/"}}},
					Backends: []cluster.RouteBackend{{Weight: 1, BackendRef: cluster.BackendRef{
						ObjectRef: targetOf(cluster.Key{Namespace: "shop", Name: "web"}), Port: 80,
					}}},
				}},
			},
		},
	}, policies...)...)
}

// traffic is an XBackendTrafficPolicy of Services; the age is in seconds.
func traffic(name string, age int64, retries *cluster.RetryConstraint, services ...string) *cluster.BackendTrafficPolicy {
	p := &cluster.BackendTrafficPolicy{Key: cluster.Key{Namespace: "shop", Name: name}, Retries: retries}
	p.Created = age
	for _, service := range services {
		p.Targets = append(p.Targets, cluster.PolicyTarget{ObjectRef: targetOf(cluster.Key{Namespace: "shop", Name: service})})
	}
	return p
}

func TestTrafficPolicy(t *testing.T) {
	t.Parallel()
	limits := &cluster.RetryConstraint{Percent: 30, Interval: time.Minute, Least: 5, Per: time.Second}
	budget := &table.RetryBudget{Percent: 30, Interval: time.Minute, Least: 5, Per: time.Second}
	both, session, bucket := traffic("p", 1, limits, "web"), traffic("p", 1, nil, "web"), traffic("p", 1, limits, "web", "b")
	both.Session, session.Session = true, true
	bucket.Targets[1].Kind = "Bucket"
	ok := yes(accepted, accepted, "")
	for claim, test := range map[string]struct {
		experimental bool
		policies     []cluster.Object
		want         *table.RetryBudget
		says         map[string]cluster.Condition // of each policy, at the Gateway
	}{
		"one of the Service": {true, []cluster.Object{traffic("p", 1, limits, "web")}, budget, map[string]cluster.Condition{"p": ok}},
		"one of another":     {true, []cluster.Object{traffic("p", 1, limits, "api")}, nil, map[string]cluster.Condition{}},
		"one without limits": {true, []cluster.Object{traffic("p", 1, nil, "web")}, nil, map[string]cluster.Condition{"p": ok}},
		"without the setting": {false, []cluster.Object{traffic("p", 1, limits, "web")}, nil, map[string]cluster.Condition{
			"p": no(accepted, "Invalid", "XBackendTrafficPolicies have no effect without gateway.experimental"),
		}},
		"an older one": {
			true, []cluster.Object{traffic("a", 2, nil, "web"), traffic("p", 1, limits, "web")}, budget,
			map[string]cluster.Condition{
				"a": no(accepted, conflicted, "XBackendTrafficPolicy shop/p, which is older, has the same target"), "p": ok,
			},
		},
		"one with sessions, too": {true, []cluster.Object{both}, budget, map[string]cluster.Condition{
			"p": yes(accepted, accepted, "sessionPersistence is not supported"),
		}},
		"one with sessions alone": {true, []cluster.Object{session}, nil, map[string]cluster.Condition{
			"p": no(accepted, "Invalid", "sessionPersistence is not supported"),
		}},
		"one of another kind, too": {true, []cluster.Object{bucket}, budget, map[string]cluster.Condition{
			"p": no(accepted, "Invalid", "Bucket b is not a Service"),
		}},
	} {
		cfg := testConfig
		cfg.Experimental = test.experimental
		c := NewCompiler(cfg)
		trafficWorld(test.policies...).View(func(v *cluster.View) { c.Apply(v, &cluster.Changes{Everything: true}) })
		rule := c.routes[cluster.Ref{Kind: cluster.KindHTTPRoute, Key: cluster.Key{Namespace: "shop", Name: "web"}}].routes[0].Rule
		if d := cmp.Diff(test.want, rule.Backends[0].Retries); d != "" {
			t.Errorf("%s: the budget (-want +got)\n%s", claim, d)
		}
		says := make(map[string]cluster.Condition)
		for key, verdicts := range c.Verdicts().TrafficPolicies {
			for _, of := range verdicts {
				says[key.Name] = of.Conditions[0]
			}
		}
		if d := cmp.Diff(test.says, says); d != "" {
			t.Errorf("%s: conditions (-want +got)\n%s", claim, d)
		}
	}
}
