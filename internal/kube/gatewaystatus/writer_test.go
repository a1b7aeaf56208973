package gatewaystatus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/status"
	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/kube/apitest"
	"portolan.dev/portolan/internal/kube/gatewaystatus"
	"portolan.dev/portolan/internal/kube/object"
)

const controller = "portolan.dev/gateway"

// client configures clients of a server.
func client(t *testing.T, url string) api.ClientConfig {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	apitest.WriteKubeconfig(t, path, url)
	return api.ClientConfig{Kubeconfig: path, QPS: 1e6, Burst: 1e6, Timeout: 5 * time.Second}
}

func ref(k cluster.Kind, name string) cluster.Ref {
	return cluster.Ref{Kind: k, Key: cluster.Key{Namespace: "a", Name: name}}
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "a", Name: name, Generation: 3, UID: "u"}
}

// conditions are some that an object is to have.
var conditions = []cluster.StatusCondition{
	{
		Condition:  cluster.Condition{Type: "Accepted", Status: "True", Reason: "Accepted", Message: "m"},
		Generation: 3, Changed: 1_700_000_000,
	},
	{Condition: cluster.Condition{Type: "Programmed", Status: "False", Reason: "Pending"}, Generation: 3, Changed: 1},
}

var listeners = []cluster.ListenerStatus{
	{
		Name: "x", AttachedRoutes: 7, Conditions: conditions,
		SupportedKinds: []cluster.GroupKind{{Group: gatewayv1.GroupName, Kind: "HTTPRoute"}},
	},
	{Name: "y", Conditions: conditions},
}

// TestRoundTrip: the status that is written is that which is read then, of each kind, also one without anything.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	class := gatewayv1.ObjectName("ours")
	objects := map[cluster.Ref]metav1.Object{
		{Kind: cluster.KindGatewayClass, Key: cluster.Key{Name: "c"}}: &gatewayv1.GatewayClass{
			ObjectMeta: metav1.ObjectMeta{Name: "c", Generation: 3}, Spec: gatewayv1.GatewayClassSpec{ControllerName: controller},
		},
		ref(cluster.KindGateway, "g"): &gatewayv1.Gateway{
			ObjectMeta: meta("g"), Spec: gatewayv1.GatewaySpec{GatewayClassName: class},
		},
		ref(cluster.KindListenerSet, "s"): &gatewayv1.ListenerSet{
			ObjectMeta: meta("s"), Spec: gatewayv1.ListenerSetSpec{ParentRef: gatewayv1.ParentGatewayReference{Name: "g"}},
		},
		ref(cluster.KindHTTPRoute, "r"): &gatewayv1.HTTPRoute{
			ObjectMeta: meta("r"), Spec: gatewayv1.HTTPRouteSpec{CommonRouteSpec: gatewayv1.CommonRouteSpec{
				ParentRefs: []gatewayv1.ParentReference{{Name: "g"}, {Name: "g", SectionName: new(gatewayv1.SectionName("x"))}},
			}},
		},
		ref(cluster.KindBackendTLSPolicy, "p"):     &gatewayv1.BackendTLSPolicy{ObjectMeta: meta("p")},
		ref(cluster.KindBackendTrafficPolicy, "p"): &gatewayx.XBackendTrafficPolicy{ObjectMeta: meta("p")},
		ref(cluster.KindRoutePolicy, "p"):          &object.APIRoutePolicy{ObjectMeta: meta("p")},
		ref(cluster.KindIngress, "i"):              &networkingv1.Ingress{ObjectMeta: meta("i")},
	}
	server := apitest.New(t)
	w := gatewaystatus.New(controller, client(t, server.URL()))
	for of, o := range objects {
		server.Put(o)
		for _, claim := range []string{"a status", "an empty one"} {
			var want cluster.Object
			wrote, err := w.Update(t.Context(), of, func(was cluster.Object) cluster.Object {
				want = withStatus(was, claim == "a status")
				return want
			})
			if err != nil || !wrote {
				t.Fatalf("%v: Update = %t, %v", of, wrote, err)
			}
			wrote, err = w.Update(t.Context(), of, func(is cluster.Object) cluster.Object {
				if diff := cmp.Diff(want, is); diff != "" {
					t.Errorf("%v, %s (-written +read):\n%s", of, claim, diff)
				}
				return nil
			})
			if err != nil || wrote {
				t.Errorf("%v: Update without a change = %t, %v", of, wrote, err)
			}
		}
		after := object.Of(of.Kind).New()
		if !server.Get(of.Key.Namespace, of.Key.Name, after) || after.GetGeneration() != 3 {
			t.Errorf("%v: generation %d, want 3", of, after.GetGeneration())
		}
	}
	for _, write := range server.Writes() {
		if !strings.HasPrefix(write, "PATCH ") || !strings.HasSuffix(write, "/status") {
			t.Errorf("written: %s, want patches of statuses alone", write)
		}
	}
}

// withStatus returns an object with a status, or with an empty one.
func withStatus(o cluster.Object, full bool) cluster.Object {
	conditions, listeners := conditions, listeners
	if !full {
		conditions, listeners = nil, nil
	}
	switch o := o.(type) {
	case *cluster.GatewayClass:
		made := *o
		made.Conditions, made.Features = conditions, nil
		if full {
			made.Features = []string{"Gateway", "HTTPRoute"}
		}
		return &made
	case *cluster.ListenerSet:
		made := *o
		made.Conditions, made.ListenerStatuses = conditions, listeners
		return &made
	case *cluster.Route:
		made, spec := *o, *o.Spec
		spec.Statuses, made.Gateways = nil, nil
		for _, p := range spec.Parents {
			if full {
				spec.Statuses = append(spec.Statuses, cluster.ParentStatus{Parent: p, Controller: controller, Conditions: conditions})
				made.Gateways = []cluster.Key{{Namespace: "a", Name: "g"}}
			}
		}
		made.Spec = &spec
		return &made
	case *cluster.BackendTLSPolicy:
		made := *o
		made.Ancestors = ancestors(full)
		return &made
	case *cluster.BackendTrafficPolicy:
		made := *o
		made.Ancestors = ancestors(full)
		return &made
	case *cluster.RoutePolicy:
		made := *o
		made.Ancestors = ancestors(full)
		return &made
	case *cluster.Frontend:
		made := *o
		made.Addresses, made.Targets = nil, nil
		if o.Gateway != nil {
			spec := *o.Gateway
			spec.Status = cluster.GatewayStatus{Conditions: conditions, Listeners: listeners}
			if full {
				spec.Status.Addresses, spec.Status.AttachedListenerSets = []cluster.GatewayAddress{{Type: "Hostname", Value: "x.test"}}, 2
				made.Targets = []string{"x.test"}
			}
			made.Gateway = &spec
			return &made
		}
		spec := *o.Ingress
		spec.LoadBalancer = nil
		if full {
			spec.LoadBalancer, made.Targets = []cluster.LoadBalancerIngress{{Hostname: "x.test"}}, []string{"x.test"}
		}
		made.Ingress = &spec
		return &made
	}
	panic(fmt.Sprintf("%T", o))
}

// ancestors are those of the status of a policy, or none.
func ancestors(full bool) []cluster.ParentStatus {
	if !full {
		return nil
	}
	return []cluster.ParentStatus{
		{Controller: controller, Conditions: conditions, Parent: cluster.ParentRef{ObjectRef: cluster.ObjectRef{
			Group: gatewayv1.GroupName, Kind: "Gateway", Namespace: "b", Name: "g",
		}}},
		{Controller: controller, Conditions: conditions, Parent: cluster.ParentRef{ObjectRef: cluster.ObjectRef{
			Group: gatewayv1.GroupName, Kind: "HTTPRoute", Namespace: "a", Name: "none",
		}}},
	}
}

// accept returns a function for Update that has a route accepted by a controller at all its parents.
func accept(by string) func(cluster.Object) cluster.Object {
	return func(o cluster.Object) cluster.Object {
		r := o.(*cluster.Route)
		spec, made := *r.Spec, *r
		spec.Statuses = slices.DeleteFunc(slices.Clone(spec.Statuses), func(s cluster.ParentStatus) bool { return s.Controller == by })
		for _, p := range spec.Parents {
			spec.Statuses = append(spec.Statuses, cluster.ParentStatus{Parent: p, Controller: by, Conditions: conditions})
		}
		made.Spec = &spec
		return &made
	}
}

// TestTwoControllers: controllers that write the status of a route at the same time each have their entry in the end.
func TestTwoControllers(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	for i := range 20 {
		name := fmt.Sprint("r", i)
		server.Put(&gatewayv1.HTTPRoute{ObjectMeta: meta(name), Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "g"}}},
		}})
		var writers sync.WaitGroup
		for _, by := range []string{"example.com/a", "example.com/b", controller} {
			w := gatewaystatus.New(by, client(t, server.URL()))
			writers.Go(func() {
				if _, err := w.Update(t.Context(), ref(cluster.KindHTTPRoute, name), accept(by)); err != nil {
					t.Errorf("%s: %v", by, err)
				}
			})
		}
		writers.Wait()
		var got gatewayv1.HTTPRoute
		server.Get("a", name, &got)
		if len(got.Status.Parents) != 3 {
			t.Errorf("%d entries, want 3: %+v", len(got.Status.Parents), got.Status.Parents)
		}
	}
}

// TestOthersAsTheyAre: what a later version of the API has in entries of others is still there, and parentRefs are as in
// the spec.
func TestOthersAsTheyAre(t *testing.T) {
	t.Parallel()
	const theirs = `{"parentRef":{"name":"g","new":1},"controllerName":"example.com/other","future":{"x":[1,2]},"conditions":[]}`
	object := `{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute",
		"metadata":{"namespace":"a","name":"r","resourceVersion":"77","generation":3},
		"spec":{"parentRefs":[{"group":"gateway.networking.k8s.io","kind":"Gateway","namespace":"a","name":"g"},{"name":"h"}]},
		"status":{"parents":[` + theirs + `]}}`
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPatch {
			body, _ = io.ReadAll(r.Body)
		}
		fmt.Fprint(w, object)
	}))
	defer server.Close()
	w := gatewaystatus.New(controller, client(t, server.URL))
	if _, err := w.Update(t.Context(), ref(cluster.KindHTTPRoute, "r"), accept(controller)); err != nil {
		t.Fatal(err)
	}
	var patch struct {
		Metadata map[string]string
		Status   struct{ Parents []json.RawMessage }
	}
	if err := json.Unmarshal(body, &patch); err != nil || len(patch.Status.Parents) != 3 {
		t.Fatalf("patch %s, %v", body, err)
	}
	if diff := cmp.Diff(map[string]string{"resourceVersion": "77"}, patch.Metadata); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	for i, want := range []string{
		theirs, `{"parentRef":{"group":"gateway.networking.k8s.io","kind":"Gateway","namespace":"a","name":"g"},`,
		`{"parentRef":{"name":"h"},"controllerName":"portolan.dev/gateway",`,
	} {
		if got := string(patch.Status.Parents[i]); !strings.HasPrefix(got, want) {
			t.Errorf("entry %d: %s, want %s", i, got, want)
		}
	}
}

// TestErrors checks what a failure is of.
func TestErrors(t *testing.T) {
	t.Parallel()
	forbidden := func(method string) apitest.Fault {
		return apitest.Fault{Refuse: func(m, _ string) int {
			if m == method {
				return http.StatusForbidden
			}
			return 0
		}}
	}
	for claim, tt := range map[string]struct {
		name  string
		fault apitest.Fault
		do    func(*apitest.Server)
		want  error // nil: of one object
	}{
		"no such route":         {"none", apitest.Fault{}, nil, status.ErrGone},
		"no such resource":      {"r", apitest.Fault{}, func(s *apitest.Server) { s.Uninstall("httproutes") }, status.ErrKind},
		"no right to get":       {"r", forbidden(http.MethodGet), nil, status.ErrKind},
		"no right to patch":     {"r", forbidden(http.MethodPatch), nil, status.ErrKind},
		"too many requests":     {"r", apitest.Fault{Status: http.StatusTooManyRequests}, nil, status.ErrUnavailable},
		"unauthorized":          {"r", apitest.Fault{Status: http.StatusUnauthorized}, nil, status.ErrUnavailable},
		"an internal error":     {"r", apitest.Fault{Status: http.StatusInternalServerError}, nil, nil},
		"connections hang up":   {"r", apitest.Fault{HangUp: true}, nil, status.ErrUnavailable},
		"the server is stopped": {"r", apitest.Fault{}, (*apitest.Server).Stop, status.ErrUnavailable},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			server := apitest.New(t)
			server.Put(&gatewayv1.HTTPRoute{ObjectMeta: meta("r"), Spec: gatewayv1.HTTPRouteSpec{
				CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "g"}}},
			}})
			w := gatewaystatus.New(controller, client(t, server.URL()))
			server.Misbehave(tt.fault)
			if tt.do != nil {
				tt.do(server)
			}
			wrote, err := w.Update(t.Context(), ref(cluster.KindHTTPRoute, tt.name), accept(controller))
			if wrote || err == nil || !strings.HasPrefix(err.Error(), "status of httproute a/"+tt.name+": ") {
				t.Fatalf("Update = %t, %v", wrote, err)
			}
			for _, of := range []error{status.ErrGone, status.ErrKind, status.ErrUnavailable} {
				if errors.Is(err, of) != errors.Is(of, tt.want) {
					t.Errorf("%v: it is %q: %t", err, of, errors.Is(err, of))
				}
			}
		})
	}
}

// TestConflicts: somebody who writes an object all the time does not keep a writer for ever.
func TestConflicts(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	route := &gatewayv1.HTTPRoute{ObjectMeta: meta("r"), Spec: gatewayv1.HTTPRouteSpec{
		CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "g"}}},
	}}
	server.Put(route)
	w := gatewaystatus.New(controller, client(t, server.URL()))
	tries := 0
	_, err := w.Update(t.Context(), ref(cluster.KindHTTPRoute, "r"), func(o cluster.Object) cluster.Object {
		tries++
		server.Put(route)
		return accept(controller)(o)
	})
	if err == nil || tries != 5 || errors.Is(err, status.ErrUnavailable) || errors.Is(err, status.ErrKind) {
		t.Errorf("Update = %v after %d tries, want a conflict of one object after 5", err, tries)
	}
}

// TestCanceled: a writer that is to stop stops, and says so.
func TestCanceled(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	w := gatewaystatus.New(controller, client(t, server.URL()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Update(ctx, ref(cluster.KindHTTPRoute, "r"), accept(controller)); !errors.Is(err, context.Canceled) {
		t.Errorf("Update = %v, want %v", err, context.Canceled)
	}
}

// TestWarn: an Event is written once, and a failure says whether the API is away.
func TestWarn(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	w := gatewaystatus.New(controller, client(t, server.URL()))
	warning := status.Warning{Object: ref(cluster.KindGateway, "g"), Reason: "HostnameConflict", Action: "Serve", Note: "n"}
	for range 2 {
		if err := w.Warn(t.Context(), warning); err != nil {
			t.Error(err)
		}
	}
	var events []string
	for _, o := range server.Objects() {
		if e, ok := o.(*eventsv1.Event); ok {
			events = append(events, e.Regarding.Kind+" "+e.Regarding.Name+" "+e.Reason+" "+e.ReportingController)
		}
	}
	if want := []string{"Gateway g HostnameConflict portolan.dev/gateway"}; !slices.Equal(events, want) {
		t.Errorf("Events %q, want %q", events, want)
	}
	warning.Note = "other"
	server.Misbehave(apitest.Fault{Status: http.StatusForbidden})
	if err := w.Warn(t.Context(), warning); err == nil || errors.Is(err, status.ErrUnavailable) {
		t.Errorf("Warn = %v, want that it is forbidden", err)
	}
	server.Stop()
	if err := w.Warn(t.Context(), warning); !errors.Is(err, status.ErrUnavailable) {
		t.Errorf("Warn = %v, want %v", err, status.ErrUnavailable)
	}
}
