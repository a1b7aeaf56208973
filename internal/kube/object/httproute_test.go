package object_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/object"
)

// route decodes an HTTPRoute shop/web with a spec.
func route(t *testing.T, spec string) (*cluster.Route, []string) {
	t.Helper()
	r := new(gatewayv1.HTTPRoute)
	text := `{"metadata":{"name":"web","namespace":"shop"},"spec":{` + spec + `}}`
	if err := json.Unmarshal([]byte(text), r); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	made, errs := object.HTTPRoute(r)
	var brief []string
	for _, err := range errs {
		brief = append(brief, err.Field+": "+err.Type.String())
	}
	return made, brief
}

// TestHTTPRouteDefaults checks that a route is as the API server completes it.
func TestHTTPRouteDefaults(t *testing.T) {
	t.Parallel()
	got, errs := route(t, `"parentRefs":[{"name":"front"}],"hostnames":["Shop.example"]`)
	want := &cluster.RouteSpec{
		Parents: []cluster.ParentRef{{ObjectRef: cluster.ObjectRef{
			Group: "gateway.networking.k8s.io", Kind: "Gateway", Namespace: "shop", Name: "front",
		}}},
		Rules: []cluster.RouteRule{{Matches: []cluster.RouteMatch{{Path: cluster.PathMatch{Type: cluster.PathPathPrefix, Value: "/"}}}}},
	}
	if d := cmp.Diff(want, got.Spec); d != "" || len(errs) > 0 || got.Hosts[0] != "shop.example" {
		t.Errorf("HTTPRoute: hosts %v, errors %v (-want +got)\n%s", got.Hosts, errs, d)
	}
}

func TestHTTPRouteRule(t *testing.T) {
	t.Parallel()
	got, errs := route(t, `"rules":[{"name":"main","matches":[{"path":{"type":"Exact","value":"/a"},"method":"GET",
		"headers":[{"name":"X","value":"1"},{"name":"Y","type":"RegularExpression","value":".*"}],"queryParams":[{"name":"q","value":"2"}]}],
		"timeouts":{"request":"1m30s","backendRequest":"0s"},
		"filters":[
			{"type":"RequestHeaderModifier","requestHeaderModifier":{"set":[{"name":"A","value":"b"}],"remove":["C"]}},
			{"type":"ResponseHeaderModifier","responseHeaderModifier":{"add":[{"name":"A","value":"b"}]}},
			{"type":"RequestRedirect","requestRedirect":{"scheme":"https","port":8443,"statusCode":308,"path":{"type":"ReplacePrefixMatch","replacePrefixMatch":""}}},
			{"type":"URLRewrite","urlRewrite":{"hostname":"x.example","path":{"type":"ReplaceFullPath","replaceFullPath":"/z"}}},
			{"type":"RequestMirror","requestMirror":{"backendRef":{"name":"copy","port":81},"percent":20}},
			{"type":"CORS","cors":{"allowOrigins":["*"],"allowCredentials":true,"allowMethods":["GET"],"allowHeaders":["X"],"exposeHeaders":["Y"]}},
			{"type":"ExtensionRef","extensionRef":{"group":"example.com","kind":"Limit","name":"l"}}],
		"backendRefs":[{"name":"web","port":80},{"name":"db","namespace":"data","port":81,"weight":0}]}]`)
	service := func(namespace, name string, port uint16) cluster.BackendRef {
		return cluster.BackendRef{ObjectRef: cluster.ObjectRef{Kind: "Service", Namespace: namespace, Name: name}, Port: port}
	}
	want := cluster.RouteRule{
		Name: "main",
		Matches: []cluster.RouteMatch{{
			Path: cluster.PathMatch{Type: cluster.PathExact, Value: "/a"}, Method: "GET",
			Headers: []cluster.ValueMatch{{Name: "X", Value: "1"}, {Name: "Y", Regex: true, Value: ".*"}},
			Query:   []cluster.ValueMatch{{Name: "q", Value: "2"}},
		}},
		Filters: []cluster.Filter{
			{Type: cluster.RequestHeaderModifier, Headers: &cluster.HeaderModifier{Set: []cluster.Header{{Name: "A", Value: "b"}}, Remove: []string{"C"}}},
			{Type: cluster.ResponseHeaderModifier, Headers: &cluster.HeaderModifier{Add: []cluster.Header{{Name: "A", Value: "b"}}}},
			{Type: cluster.RequestRedirect, Redirect: &cluster.Redirect{Scheme: "https", Port: 8443, Status: 308, Path: &cluster.PathModifier{Prefix: true}}},
			{Type: cluster.URLRewrite, Rewrite: &cluster.Rewrite{Hostname: "x.example", Path: &cluster.PathModifier{Value: "/z"}}},
			{Type: cluster.RequestMirror, Mirror: &cluster.Mirror{Backend: service("shop", "copy", 81), Numerator: 20, Denominator: 100}},
			{Type: cluster.CORSFilter, CORS: &cluster.CORS{
				Origins: []string{"*"}, Credentials: true, Methods: []string{"GET"}, Headers: []string{"X"}, Expose: []string{"Y"}, MaxAge: 5 * time.Second,
			}},
			{Type: cluster.ExtensionRef, Extension: &cluster.ObjectRef{Group: "example.com", Kind: "Limit", Namespace: "shop", Name: "l"}},
		},
		Backends:       []cluster.RouteBackend{{BackendRef: service("shop", "web", 80), Weight: 1}, {BackendRef: service("data", "db", 81)}},
		Request:        cluster.Timeout{Set: true, Limit: 90 * time.Second},
		BackendRequest: cluster.Timeout{Set: true},
	}
	if len(errs) > 0 {
		t.Fatalf("HTTPRoute: %v", errs)
	}
	if d := cmp.Diff(want, got.Spec.Rules[0]); d != "" {
		t.Errorf("HTTPRoute: (-want +got)\n%s", d)
	}
}

// TestHTTPRouteUnknown checks that values of later versions of the API, and headers that HTTP forbids,
// spoil their rule alone.
func TestHTTPRouteUnknown(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]string{
		`"matches":[{"path":{"type":"Glob","value":"*"}}]`:                                                                                                            "matches[0].path.type=Glob",
		`"matches":[{},{"method":"BREW"}]`:                                                                                                                            "matches[1].method=BREW",
		`"matches":[{"headers":[{"name":"X","type":"Glob","value":"1"}]}]`:                                                                                            "matches[0].headers[0].type=Glob",
		`"matches":[{"queryParams":[{"name":"X","type":"Glob","value":"1"}]}]`:                                                                                        "matches[0].queryParams[0].type=Glob",
		`"filters":[{"type":"Later"}]`:                                                                                                                                "filters[0].type=Later",
		`"filters":[{"type":"RequestRedirect","requestRedirect":{"statusCode":300}}]`:                                                                                 "filters[0].requestRedirect.statusCode=300",
		`"filters":[{"type":"RequestRedirect","requestRedirect":{"scheme":"gopher"}}]`:                                                                                "filters[0].requestRedirect.scheme=gopher",
		`"filters":[{"type":"URLRewrite","urlRewrite":{"path":{"type":"Regex"}}}]`:                                                                                    "filters[0].urlRewrite.path.type=Regex",
		`"filters":[{"type":"CORS","cors":{"allowMethods":["*","BREW"]}}]`:                                                                                            "filters[0].cors.allowMethods[1]=BREW",
		`"filters":[{"type":"RequestHeaderModifier","requestHeaderModifier":{"set":[{"name":"A","value":"b\r\nC: d"}]}}]`:                                             `filters[0].requestHeaderModifier.set[0].value="b\r\nC: d"`,
		`"filters":[{"type":"RequestHeaderModifier","requestHeaderModifier":{"add":[{"name":"A:","value":"b"}]}}]`:                                                    "filters[0].requestHeaderModifier.add[0].name=A:",
		`"backendRefs":[{"name":"a","port":1},{"name":"b","port":1,"filters":[{"type":"RequestMirror","requestMirror":{"backendRef":{"name":"c"}}},{"type":"New"}]}]`: "backendRefs[1].filters[1].type=New",
	} {
		got, errs := route(t, `"rules":[{},{`+rule+`}]`)
		if len(errs) > 0 || len(got.Spec.Rules[0].Unknown) > 0 {
			t.Errorf("%s: errors %v, and the other rule has %v", rule, errs, got.Spec.Rules[0].Unknown)
			continue
		}
		var found []string
		for _, u := range got.Spec.Rules[1].Unknown {
			found = append(found, fmt.Sprintf("%s=%s", strings.TrimPrefix(u.Field, "spec.rules[1]."), u.Value))
		}
		if len(found) != 1 || found[0] != want {
			t.Errorf("%s: unknown are %q, want %q", rule, found, want)
		}
	}
}

func TestHTTPRouteRefusals(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		`"parentRefs":[{"name":"front","port":0}]`:                                                                                  "spec.parentRefs[0].port: Invalid value",
		`"rules":[{"matches":[{"path":{"value":"a"}}]}]`:                                                                            "spec.rules[0].matches[0].path.value: Invalid value",
		`"rules":[{"matches":[{"path":{"value":"/a//b"}}]}]`:                                                                        "spec.rules[0].matches[0].path.value: Invalid value",
		`"rules":[{"matches":[{"path":{"type":"Exact","value":"/a/../b"}}]}]`:                                                       "spec.rules[0].matches[0].path.value: Invalid value",
		`"rules":[{"matches":[{"path":{"type":"Exact","value":"/a b"}}]}]`:                                                          "spec.rules[0].matches[0].path.value: Invalid value",
		`"rules":[{"timeouts":{"request":"1.5s"}}]`:                                                                                 "spec.rules[0].timeouts.request: Invalid value",
		`"rules":[{"timeouts":{"backendRequest":"1d"}}]`:                                                                            "spec.rules[0].timeouts.backendRequest: Invalid value",
		`"rules":[{"backendRefs":[{"name":"a","port":70000}]}]`:                                                                     "spec.rules[0].backendRefs[0].port: Invalid value",
		`"rules":[{"backendRefs":[{"name":"a","weight":-1}]}]`:                                                                      "spec.rules[0].backendRefs[0].weight: Invalid value",
		`"rules":[{"filters":[{"type":"CORS"}]}]`:                                                                                   "spec.rules[0].filters[0].cors: Required value",
		`"rules":[{"backendRefs":[{"name":"a","filters":[{"type":"CORS"}]}]}]`:                                                      "spec.rules[0].backendRefs[0].filters[0].cors: Required value",
		`"rules":[{"filters":[{"type":"URLRewrite","urlRewrite":{"path":{"type":"ReplaceFullPath"}}}]}]`:                            "spec.rules[0].filters[0].urlRewrite.path.replaceFullPath: Required value",
		`"rules":[{"filters":[{"type":"RequestMirror","requestMirror":{"backendRef":{"name":"a"},"fraction":{"numerator":101}}}]}]`: "spec.rules[0].filters[0].requestMirror.fraction: Invalid value",
	} {
		if _, errs := route(t, spec); len(errs) != 1 || errs[0] != want {
			t.Errorf("%s: errors %q, want %q", spec, errs, want)
		}
	}
}

// FuzzHTTPRoute checks that no route that is JSON of the type breaks the decoder.
func FuzzHTTPRoute(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"web"},"spec":{"parentRefs":[{"name":"a"}],"rules":[{"filters":[{"type":"CORS","cors":{}}]}]}}`))
	f.Add([]byte(`{"metadata":{"name":"web"},"spec":{"rules":[{"timeouts":{"request":"99999h99999h"},"matches":[{"path":{}}]}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := new(gatewayv1.HTTPRoute)
		if json.Unmarshal(text, r) != nil {
			return
		}
		made, errs := object.HTTPRoute(r)
		for i := range made.Spec.Rules {
			if len(errs) == 0 && len(made.Spec.Rules[i].Matches) == 0 {
				t.Errorf("rule %d of %s has no match", i, text)
			}
		}
		for _, err := range errs {
			if err.Field == "" {
				t.Errorf("error %v has no field", err)
			}
		}
	})
}
