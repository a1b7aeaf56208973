// Package events writes Events, from which owners of Services learn of problems: kubectl
// describe and kubectl events show them (events.k8s.io/v1; KEP-383).
//
// An Event is one request. The recorder of client-go would also count repetitions, for which it
// keeps what it wrote and needs the right to patch; a problem is reported here when it begins.
package events

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/api"
)

// Event is a problem of a Service, on a node.
type Event struct {
	Service cluster.Key
	Node    string
	// Reason and Action are words in UpperCamelCase: why the Event exists, and what failed.
	Reason, Action string
	// Note describes it for people; what is longer than 1,024 octets is cut off.
	Note string
}

// Limits of the API.
const (
	maxNote     = 1024
	maxInstance = 128
)

// Writer writes Events in the name of a controller.
type Writer struct {
	controller string
	client     func() (kubernetes.Interface, error)
}

// New returns a Writer for the controller, such as portolan.dev/proxy. It makes a client when it
// is used for the first time.
func New(controller string, client api.ClientConfig) *Writer {
	return &Writer{
		controller: controller,
		client:     sync.OnceValues(func() (kubernetes.Interface, error) { return api.NewClient(client) }),
	}
}

// Warn writes an Event of type Warning. It needs the rights to create Events and to list
// Services: kubectl describe shows an Event with the Service's UID only.
func (w *Writer) Warn(ctx context.Context, e Event) error {
	client, err := w.client()
	if err != nil {
		return fmt.Errorf("event %s of service %s: %w", e.Reason, e.Service, err)
	}
	now := time.Now()
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.Service.Namespace,
			Name:      fmt.Sprintf("%s.%x", e.Service.Name, now.UnixNano()),
		},
		EventTime:           metav1.NewMicroTime(now),
		Type:                corev1.EventTypeWarning,
		ReportingController: w.controller,
		ReportingInstance:   e.Node[:min(len(e.Node), maxInstance)],
		Reason:              e.Reason,
		Action:              e.Action,
		Note:                strings.ToValidUTF8(e.Note[:min(len(e.Note), maxNote)], ""),
		Regarding: corev1.ObjectReference{
			APIVersion: "v1",
			Kind:       "Service",
			Namespace:  e.Service.Namespace,
			Name:       e.Service.Name,
			UID:        uid(ctx, client, e.Service),
		},
	}
	if _, err := client.EventsV1().Events(e.Service.Namespace).Create(ctx, event, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("event %s of service %s: %w", e.Reason, e.Service, err)
	}
	return nil
}

// uid returns the UID of a Service; empty if it cannot be read.
func uid(ctx context.Context, client kubernetes.Interface, service cluster.Key) types.UID {
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", service.Name).String()}
	list, err := client.CoreV1().Services(service.Namespace).List(ctx, options)
	if err != nil || len(list.Items) != 1 {
		return ""
	}
	return list.Items[0].UID
}
