// Package events writes Events, from which owners of objects learn of problems: kubectl
// describe and kubectl events show them (events.k8s.io/v1; KEP-383).
//
// An Event is one request. The recorder of client-go would also count repetitions, for which it
// keeps what it wrote and needs the right to patch; a problem is reported here when it begins.
package events

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/kube/object"
)

// Event is a problem of an object, or what happened to it.
type Event struct {
	Object cluster.Ref
	// Type is Warning, which it is if it is empty, or Normal.
	Type string
	// Node is where the problem is; empty if it is everywhere.
	Node string
	// Reason and Action are words in UpperCamelCase: why the Event exists, and what failed.
	Reason, Action string
	// Note describes it for people; what is longer than 1,024 octets is cut off.
	Note string
	// Once: if there is an equal Event already no other one is written. Events exist for an hour, by default.
	Once bool
}

// Limits of the API.
const (
	maxNote     = 1024
	maxInstance = 128
	maxName     = 253
)

// Writer writes Events in the name of a controller.
type Writer struct {
	controller string
	client     func() (rest.Interface, error)
}

// New returns a Writer for the controller, such as portolan.dev/proxy. It makes a client when it
// is used for the first time.
func New(controller string, client api.ClientConfig) *Writer {
	return &Writer{
		controller: controller,
		client:     sync.OnceValues(func() (rest.Interface, error) { return api.NewRESTClient(client) }),
	}
}

// Warn writes an Event. It needs the rights to create Events and to list
// objects of the kind: kubectl describe shows an Event with the object's UID only.
func (w *Writer) Warn(ctx context.Context, e Event) error {
	err := w.write(ctx, &e)
	if err == nil || e.Once && apierrors.IsAlreadyExists(err) {
		return nil
	}
	return fmt.Errorf("event %s of %s: %w", e.Reason, e.Object, err)
}

func (w *Writer) write(ctx context.Context, e *Event) error {
	client, err := w.client()
	if err != nil {
		return err
	}
	body, err := json.Marshal(w.event(e, uid(ctx, client, e.Object), time.Now()))
	if err != nil {
		return err
	}
	version := eventsv1.SchemeGroupVersion
	return client.Post().AbsPath("apis", version.Group, version.Version, "namespaces", e.namespace(), "events").
		Body(body).MaxRetries(0).Do(ctx).Error()
}

// namespace returns that of the Event: of the object, or for objects of the cluster "default", as the API has it.
func (e *Event) namespace() string {
	if e.Object.Key.Namespace == "" {
		return metav1.NamespaceDefault
	}
	return e.Object.Key.Namespace
}

// event returns what is written.
func (w *Writer) event(e *Event, of types.UID, now time.Time) *eventsv1.Event {
	kind := object.Of(e.Object.Kind)
	version, name := kind.Group.WithKind(kind.Model.String()).ToAPIVersionAndKind()
	return &eventsv1.Event{
		TypeMeta:            metav1.TypeMeta{APIVersion: eventsv1.SchemeGroupVersion.String(), Kind: "Event"},
		ObjectMeta:          metav1.ObjectMeta{Namespace: e.namespace(), Name: w.name(e, of, now)},
		EventTime:           metav1.NewMicroTime(now),
		Type:                cmp.Or(e.Type, corev1.EventTypeWarning),
		ReportingController: w.controller,
		ReportingInstance:   w.instance(e),
		Reason:              e.Reason,
		Action:              e.Action,
		Note:                strings.ToValidUTF8(e.Note[:min(len(e.Note), maxNote)], ""),
		Regarding: corev1.ObjectReference{
			APIVersion: version, Kind: name, Namespace: e.Object.Key.Namespace, Name: e.Object.Key.Name, UID: of,
		},
	}
}

// instance returns the reporting instance, which the API requires.
func (w *Writer) instance(e *Event) string {
	if e.Node == "" {
		return w.controller
	}
	return e.Node[:min(len(e.Node), maxInstance)]
}

// name returns the name of an Event. That of one that exists once follows from what it says.
func (w *Writer) name(e *Event, of types.UID, now time.Time) string {
	suffix := fmt.Sprintf(".%x", now.UnixNano())
	if e.Once {
		h := fnv.New64a()
		fmt.Fprintf(h, "%q", []string{w.controller, e.Object.Kind.String(), string(of), e.Node, e.Reason, e.Action, e.Note})
		suffix = fmt.Sprintf(".%x", h.Sum64())
	}
	name := e.Object.Key.Name
	return strings.TrimRight(name[:min(len(name), maxName-len(suffix))], ".-") + suffix
}

// uid returns the UID of an object; empty if it cannot be read.
func uid(ctx context.Context, client rest.Interface, of cluster.Ref) types.UID {
	text, err := client.Get().AbsPath(object.Of(of.Kind).Path(cluster.Key{Namespace: of.Key.Namespace})...).
		Param("fieldSelector", fields.OneTermEqualSelector(metav1.ObjectNameField, of.Key.Name).String()).
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").
		MaxRetries(0).Do(ctx).Raw()
	var list metav1.PartialObjectMetadataList
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil || len(list.Items) != 1 {
		return ""
	}
	return list.Items[0].UID
}
