package object_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
)

// TestExperimental has fields of the experimental channel of a rule.
func TestExperimental(t *testing.T) {
	t.Parallel()
	service := cluster.BackendRef{
		ObjectRef: cluster.ObjectRef{Kind: "Service", Namespace: "auth", Name: "check"}, Port: 80,
	}
	type fields struct {
		Retry    *cluster.RouteRetry
		Session  *cluster.RouteSession
		External *cluster.ExternalAuth
	}
	for rule, want := range map[string]fields{
		`"retry":{}`: {Retry: &cluster.RouteRetry{}},
		`"retry":{"codes":[500,503],"attempts":3,"backoff":"100ms"}`: {Retry: &cluster.RouteRetry{
			Codes: []int{500, 503}, Attempts: 3, Backoff: cluster.Timeout{Set: true, Limit: 100 * time.Millisecond},
		}},
		`"sessionPersistence":{}`: {Session: &cluster.RouteSession{}},
		`"sessionPersistence":{"type":"Header","sessionName":"X-Name"}`: {Session: &cluster.RouteSession{Header: true, Name: "X-Name"}},
		`"sessionPersistence":{"absoluteTimeout":"1h","cookieConfig":{"lifetimeType":"Permanent"}}`: {
			Session: &cluster.RouteSession{Absolute: cluster.Timeout{Set: true, Limit: time.Hour}, Permanent: true},
		},
		`"filters":[{"type":"ExternalAuth","externalAuth":{"protocol":"HTTP","backendRef":{"namespace":"auth","name":"check","port":80},
			"http":{"path":"/check","allowedHeaders":["X-A"],"allowedResponseHeaders":["X-B"]},"forwardBody":{"maxSize":10}}}]`: {
			External: &cluster.ExternalAuth{
				Backend: service, Path: "/check", RequestHeaders: []string{"X-A"}, ResponseHeaders: []string{"X-B"}, MaxBody: 10,
			},
		},
		`"filters":[{"type":"ExternalAuth","externalAuth":{"protocol":"GRPC","backendRef":{"namespace":"auth","name":"check","port":80},
			"grpc":{"allowedHeaders":["X-A"]}}}]`: {
			External: &cluster.ExternalAuth{GRPC: true, Backend: service, RequestHeaders: []string{"X-A"}},
		},
	} {
		r, errs := route(t, `"rules":[{`+rule+`}]`)
		of := r.Spec.Rules[0]
		got := fields{Retry: of.Retry, Session: of.Session}
		if len(of.Filters) > 0 {
			got.External = of.Filters[0].External
		}
		if d := cmp.Diff(want, got); d != "" || len(errs) > 0 || len(of.Unknown) > 0 {
			t.Errorf("%s: errors %v, unknown %v (-want +got)\n%s", rule, errs, of.Unknown, d)
		}
	}
}

// TestExperimentalUnknown has values that spoil their rule alone.
func TestExperimentalUnknown(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]string{
		`"retry":{"codes":[200]}`:                                                                       "retry.codes[0]=200",
		`"retry":{"attempts":0}`:                                                                        "retry.attempts=0",
		`"sessionPersistence":{"type":"Later"}`:                                                         "sessionPersistence.type=Later",
		`"sessionPersistence":{"sessionName":"a b"}`:                                                    "sessionPersistence.sessionName=a b",
		`"sessionPersistence":{"cookieConfig":{"lifetimeType":"Later"}}`:                                "sessionPersistence.cookieConfig.lifetimeType=Later",
		`"sessionPersistence":{"cookieConfig":{"lifetimeType":"Permanent"}}`:                            "sessionPersistence.cookieConfig.lifetimeType=Permanent",
		`"filters":[{"type":"ExternalAuth","externalAuth":{"protocol":"Later"}}]`:                       "filters[0].externalAuth.protocol=Later",
		`"filters":[{"type":"ExternalAuth","externalAuth":{"protocol":"HTTP","http":{"path":"/a?b"}}}]`: "filters[0].externalAuth.http.path=/a?b",
		`"filters":[{"type":"ExternalAuth","externalAuth":{"protocol":"GRPC","grpc":{"allowedHeaders":["a b"]}}}]`: "filters[0]." +
			"externalAuth.grpc.allowedHeaders[0]=a b",
	} {
		r, errs := route(t, `"rules":[{`+rule+`}]`)
		var got []string
		for _, u := range r.Spec.Rules[0].Unknown {
			got = append(got, fmt.Sprintf("%s=%s", u.Field, u.Value))
		}
		if len(errs) > 0 || fmt.Sprint(got) != "[spec.rules[0]."+want+"]" {
			t.Errorf("%s: errors %v, unknown %q, want %q", rule, errs, got, want)
		}
	}
}
