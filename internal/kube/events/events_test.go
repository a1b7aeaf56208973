package events

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/api"
)

var web = Event{
	Service: cluster.Key{Namespace: "shop", Name: "web"}, Node: strings.Repeat("n", 200),
	Reason: "FailedToListen", Action: "Listen", Note: "the port is taken",
}

// writer returns a Writer with a client.
func writer(client kubernetes.Interface, err error) *Writer {
	w := New("portolan.dev/proxy", api.ClientConfig{})
	w.client = func() (kubernetes.Interface, error) { return client, err }
	return w
}

// TestWarn checks the Event that is written, with and without the Service.
func TestWarn(t *testing.T) {
	t.Parallel()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "7"}}
	for claim, test := range map[string]struct {
		objects []runtime.Object
		note    string
		want    string // the UID
	}{
		"the Service is there": {[]runtime.Object{service}, web.Note, "7"},
		"the Service is gone":  {nil, web.Note, ""},
		"a long note is cut":   {nil, strings.Repeat("a", 2000), ""},
	} {
		client := fake.NewClientset(test.objects...)
		e := web
		e.Note = test.note
		if err := writer(client, nil).Warn(t.Context(), e); err != nil {
			t.Errorf("%s: Warn: %v", claim, err)
		}
		list, err := client.EventsV1().Events("shop").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("%s: Events %v, %v, want one", claim, list, err)
		}
		got := list.Items[0]
		if age := time.Since(got.EventTime.Time); age < 0 || age > time.Minute || !strings.HasPrefix(got.Name, "web.") {
			t.Errorf("%s: name %s, age %s", claim, got.Name, age)
		}
		got.TypeMeta, got.ObjectMeta, got.EventTime = metav1.TypeMeta{}, metav1.ObjectMeta{}, metav1.MicroTime{}
		want := eventsv1.Event{
			Type: "Warning", Reason: "FailedToListen", Action: "Listen", Note: test.note[:min(len(test.note), 1024)],
			ReportingController: "portolan.dev/proxy", ReportingInstance: strings.Repeat("n", 128),
		}
		want.Regarding.APIVersion, want.Regarding.Kind, want.Regarding.Namespace = "v1", "Service", "shop"
		want.Regarding.Name, want.Regarding.UID = "web", service.UID[:len(test.want)]
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: Event (-want +got):\n%s", claim, diff)
		}
	}
}

// TestRefused: without the right to create Events, or a client, Warn returns why.
func TestRefused(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	refusal := apierrors.NewForbidden(eventsv1.Resource("events"), "web.1", errors.New("no rule"))
	client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refusal })
	if err := writer(client, nil).Warn(t.Context(), web); !apierrors.IsForbidden(err) ||
		!strings.HasPrefix(err.Error(), "event FailedToListen of service shop/web: ") {
		t.Errorf("Warn = %v, want that it is forbidden", err)
	}
	none := errors.New("no cluster")
	if err := writer(nil, none).Warn(t.Context(), web); !errors.Is(err, none) {
		t.Errorf("Warn = %v, want %v", err, none)
	}
}
