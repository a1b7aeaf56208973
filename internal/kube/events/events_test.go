package events_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/kube/apitest"
	"portolan.dev/portolan/internal/kube/events"
)

// web is an Event of a Service, on a node.
var web = events.Event{
	Object: cluster.Ref{Kind: cluster.KindService, Key: cluster.Key{Namespace: "shop", Name: "web"}},
	Node:   strings.Repeat("n", 200), Reason: "FailedToListen", Action: "Listen", Note: "the port is taken",
}

// writer returns a Writer for a server.
func writer(t *testing.T, server *apitest.Server) *events.Writer {
	t.Helper()
	return events.New("portolan.dev/proxy", api.ClientConfig{Kubeconfig: server.Kubeconfig(t), QPS: 1000, Burst: 1000})
}

// written returns the Events that a server has.
func written(server *apitest.Server) (all []*eventsv1.Event) {
	for _, o := range server.Objects() {
		if e, ok := o.(*eventsv1.Event); ok {
			all = append(all, e)
		}
	}
	return all
}

// TestWarn checks the Event that is written, of objects of several kinds, which exist or not.
func TestWarn(t *testing.T) {
	t.Parallel()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "7"}}
	class := &gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "8"}}
	long, everywhere, ofClass := web, web, web
	long.Note, everywhere.Node = strings.Repeat("a", 2000), ""
	ofClass.Object = cluster.Ref{Kind: cluster.KindGatewayClass, Key: cluster.Key{Name: "web"}}
	for claim, test := range map[string]struct {
		object    metav1.Object
		event     events.Event
		namespace string
		instance  string
		regarding corev1.ObjectReference
	}{
		"the Service exists": {
			service, web, "shop", strings.Repeat("n", 128),
			corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: "shop", Name: "web", UID: "7"},
		},
		"the Service is gone": {
			nil, web, "shop", strings.Repeat("n", 128),
			corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: "shop", Name: "web"},
		},
		"a long note is cut": {
			nil, long, "shop", strings.Repeat("n", 128),
			corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: "shop", Name: "web"},
		},
		"on no node": {
			nil, everywhere, "shop", "portolan.dev/proxy",
			corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: "shop", Name: "web"},
		},
		"an object of the cluster": {
			class, ofClass, "default", strings.Repeat("n", 128),
			corev1.ObjectReference{APIVersion: "gateway.networking.k8s.io/v1", Kind: "GatewayClass", Name: "web", UID: "8"},
		},
	} {
		server := apitest.New(t)
		if test.object != nil {
			server.Put(test.object)
		}
		if err := writer(t, server).Warn(t.Context(), test.event); err != nil {
			t.Errorf("%s: Warn: %v", claim, err)
		}
		all := written(server)
		if len(all) != 1 {
			t.Fatalf("%s: Events %v, want one", claim, all)
		}
		got := *all[0]
		if age := time.Since(got.EventTime.Time); age < 0 || age > time.Minute || !strings.HasPrefix(got.Name, "web.") {
			t.Errorf("%s: name %s, age %s", claim, got.Name, age)
		}
		if got.Namespace != test.namespace {
			t.Errorf("%s: namespace %s, want %s", claim, got.Namespace, test.namespace)
		}
		got.TypeMeta, got.ObjectMeta, got.EventTime = metav1.TypeMeta{}, metav1.ObjectMeta{}, metav1.MicroTime{}
		want := eventsv1.Event{
			Type: "Warning", Reason: "FailedToListen", Action: "Listen",
			Note:                test.event.Note[:min(len(test.event.Note), 1024)],
			ReportingController: "portolan.dev/proxy", ReportingInstance: test.instance, Regarding: test.regarding,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: Event (-want +got):\n%s", claim, diff)
		}
	}
}

// TestOnce: of equal Events that are to exist once only the first is written, also by another process.
func TestOnce(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	once, other := web, web
	once.Once, other.Once = true, true
	once.Object.Key.Name = strings.Repeat("w", 253)
	other.Object, other.Note = once.Object, "the port is taken by another process"
	for _, e := range []events.Event{once, once, other, once} {
		if err := writer(t, server).Warn(t.Context(), e); err != nil {
			t.Error(err)
		}
	}
	if n := len(written(server)); n != 2 {
		t.Errorf("%d Events, want 2", n)
	}
	for range 2 {
		if err := writer(t, server).Warn(t.Context(), web); err != nil {
			t.Error(err)
		}
	}
	all := written(server)
	if len(all) != 4 {
		t.Errorf("%d Events, want 4", len(all))
	}
	for _, e := range all {
		if len(e.Name) > 253 {
			t.Errorf("name of %d characters", len(e.Name))
		}
	}
}

// TestRefused: without the right to create Events, or a client, Warn returns why.
func TestRefused(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	server.Misbehave(apitest.Fault{Status: http.StatusForbidden, Resource: "events"})
	if err := writer(t, server).Warn(t.Context(), web); !apierrors.IsForbidden(err) ||
		!strings.HasPrefix(err.Error(), "event FailedToListen of service shop/web: ") {
		t.Errorf("Warn = %v, want that it is forbidden", err)
	}
	none := events.New("portolan.dev/proxy", api.ClientConfig{})
	if err := none.Warn(t.Context(), web); !errors.Is(err, api.ErrNoCluster) {
		t.Errorf("Warn = %v, want %v", err, api.ErrNoCluster)
	}
}
