// Package gatewaystatus writes the statuses of Ingresses and of the objects of Gateway API, and reads which version
// of Gateway API a cluster has (Kubernetes, "API concepts", "Resource versions"; RFC 7386).
//
// A status is written with two requests: the object is read, and a merge patch changes the fields of its
// subresource status that are ours. The patch has the resourceVersion that was read, so that the API refuses it if
// anybody wrote the object in between: the parents of a route's status are one value, with the entries of all
// controllers. A PUT would send the object back as this program knows it, and remove from the entries of others
// what a later version of the API has.
package gatewaystatus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/status"
	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/kube/events"
	"portolan.dev/portolan/internal/kube/object"
)

// Writer implements status.Writer.
type Writer struct {
	controller string
	client     func() (rest.Interface, error)
	events     *events.Writer
}

// Limits of the requests: a status needs two. One that hangs delays another one by the timeout, and does not keep a
// leader from renewing its Lease.
const (
	requests = 200 // per second
	timeout  = 5 * time.Second
)

// New returns a Writer for the controller of GatewayClasses, with limits of its own. It makes a client when it is used
// for the first time.
func New(controller string, client api.ClientConfig) *Writer {
	client.QPS, client.Burst, client.Timeout = requests, requests, timeout
	return &Writer{controller: controller, client: lazily(client), events: events.New(controller, client)}
}

func lazily(client api.ClientConfig) func() (rest.Interface, error) {
	return sync.OnceValues(func() (rest.Interface, error) { return api.NewRESTClient(client) })
}

// attempts is how often a status is written that somebody else writes at the same time.
const attempts = 5

// Update implements status.Writer. It needs the rights to get objects of the kind, and to patch their status.
func (w *Writer) Update(
	ctx context.Context, of cluster.Ref, change func(cluster.Object) cluster.Object,
) (wrote bool, err error) {
	client, err := w.client()
	if err != nil {
		return false, fmt.Errorf("status of %s: %w: %w", of, status.ErrUnavailable, err)
	}
	for range attempts {
		if wrote, err = w.try(ctx, client, of, change); !apierrors.IsConflict(err) {
			break
		}
	}
	if err != nil {
		return false, fmt.Errorf("status of %s: %w", of, classify(ctx, err, of))
	}
	return wrote, nil
}

func (w *Writer) try(
	ctx context.Context, client rest.Interface, of cluster.Ref, change func(cluster.Object) cluster.Object,
) (wrote bool, err error) {
	kind := object.Of(of.Kind)
	path := kind.Path(of.Key)
	text, err := raw(client.Get().AbsPath(path...).MaxRetries(0).Do(ctx))
	if err != nil {
		return false, err
	}
	was := kind.New()
	if err := json.Unmarshal(text, was); err != nil {
		return false, err
	}
	model, _ := kind.Decode(was)
	if model == nil { // invalid now; the model will lose it
		return false, nil
	}
	is := change(model)
	if is == nil {
		return false, nil
	}
	fields, err := w.fields(was, text, is)
	if err != nil {
		return false, err
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]string{"resourceVersion": was.GetResourceVersion()}, "status": fields,
	})
	if err != nil {
		return false, err
	}
	err = client.Patch(types.MergePatchType).AbsPath(append(path, "status")...).Body(body).MaxRetries(0).Do(ctx).Error()
	return err == nil, err
}

// raw returns a response, or the error that it says; that of Result.Raw is of the status code alone.
func raw(r rest.Result) ([]byte, error) {
	if err := r.Error(); err != nil {
		return nil, err
	}
	return r.Raw()
}

// Warn implements status.Writer.
func (w *Writer) Warn(ctx context.Context, of status.Warning) error {
	err := w.events.Warn(ctx, events.Event{
		Object: of.Object, Reason: of.Reason, Action: of.Action, Note: of.Note, Once: true,
	})
	if err != nil && unavailable(err) {
		return fmt.Errorf("%w: %w", status.ErrUnavailable, err)
	}
	return err
}

// classify wraps what a failure is of.
func classify(ctx context.Context, err error, of cluster.Ref) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case apierrors.IsNotFound(err) && names(err, of.Key.Name):
		return fmt.Errorf("%w: %w", status.ErrGone, err)
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err):
		return fmt.Errorf("%w: %w", status.ErrKind, err)
	case unavailable(err):
		return fmt.Errorf("%w: %w", status.ErrUnavailable, err)
	}
	return err
}

// names reports whether an error is about an object of the name, not about a resource that does not exist.
func names(err error, name string) bool {
	reply, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && reply.ErrStatus.Details != nil && reply.ErrStatus.Details.Name == name
}

// unavailable reports whether a failure is none of a single object: the API gave no answer, or one that asks to come
// back later.
func unavailable(err error) bool {
	reply, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		_, ok = errors.AsType[net.Error](err) // also a *url.Error
		return ok
	}
	switch reply.ErrStatus.Code {
	case http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		return true
	}
	return false
}
