package gatewaystatus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"portolan.dev/portolan/internal/gateway/status"
	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/kube/object"
	"portolan.dev/portolan/internal/support/retry"
)

// versionAnnotation is the version of Gateway API that a CustomResourceDefinition is of (Gateway API, "Versioning").
const versionAnnotation = "gateway.networking.k8s.io/bundle-version"

// Definitions returns the names of the CustomResourceDefinitions that Bundles reads: those of the kinds that are read.
func Definitions() (names []string) {
	for i := range object.Kinds {
		if k := &object.Kinds[i]; k.Group.Group == gatewayv1.GroupName {
			names = append(names, k.Resource+"."+k.Group.Group)
		}
	}
	return names
}

// Bundles reads which version of Gateway API a cluster has. It needs the rights to list and watch
// CustomResourceDefinitions of the names Definitions, and requests their metadata alone.
type Bundles struct {
	client func() (rest.Interface, error)
	log    *slog.Logger

	mu       sync.Mutex
	versions map[string]string // of those that exist
	problems map[string]error  // of those that cannot be read
	known    map[string]bool   // also those that do not exist
	set      func(status.Bundle)
}

// NewBundles returns a Bundles. It connects when it follows.
func NewBundles(client api.ClientConfig, log *slog.Logger) *Bundles {
	client.Timeout = 0 // of watches
	return &Bundles{
		client: lazily(client), log: log,
		versions: make(map[string]string), problems: make(map[string]error), known: make(map[string]bool),
	}
}

// Follow calls set when it is known which version each definition has, or that it cannot be read, and when that
// changes, until ctx is done. It returns ctx's error.
func (b *Bundles) Follow(ctx context.Context, set func(status.Bundle)) error {
	client, err := b.client()
	if err != nil {
		return fmt.Errorf("version of Gateway API: %w", err)
	}
	b.set = set
	var group sync.WaitGroup
	for _, name := range Definitions() {
		group.Go(func() { b.follow(ctx, client, name) })
	}
	group.Wait()
	return ctx.Err()
}

// follow follows a definition until ctx is done.
func (b *Bundles) follow(ctx context.Context, client rest.Interface, name string) {
	var backoff retry.Backoff
	for ctx.Err() == nil {
		version, err := b.list(ctx, client, name)
		if err == nil {
			backoff = retry.Backoff{}
			err = b.watch(ctx, client, name, version)
		}
		switch {
		case apierrors.IsForbidden(err):
			b.fail(name, fmt.Errorf("%w; allow list and watch of the resourceName %s", err, name))
		case err != nil && ctx.Err() == nil:
			b.log.Debug("a CustomResourceDefinition is not read", "name", name, "err", err)
		}
		timer := time.NewTimer(backoff.Next())
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// request returns a request for the metadata of a definition.
func request(client rest.Interface, name string) *rest.Request {
	return client.Get().AbsPath("apis", "apiextensions.k8s.io", "v1", "customresourcedefinitions").
		Param("fieldSelector", fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()).MaxRetries(0)
}

// partial is the form of objects of which the API sends the metadata alone (Kubernetes, "API concepts").
func partial(kind string) string { return "application/json;as=" + kind + ";g=meta.k8s.io;v=v1" }

// list reads a definition, and returns the version from which it is to be watched.
func (b *Bundles) list(ctx context.Context, client rest.Interface, name string) (string, error) {
	text, err := raw(request(client, name).SetHeader("Accept", partial("PartialObjectMetadataList")).Do(ctx))
	if err != nil {
		return "", err
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(text, &list); err != nil {
		return "", err
	}
	if len(list.Items) == 0 {
		b.remove(name)
	}
	for i := range list.Items {
		b.put(&list.Items[i])
	}
	return list.ResourceVersion, nil
}

// watchSeconds is how long a watch lasts.
const watchSeconds = "600"

// watch follows a definition from a version on, until the API ends the watch.
func (b *Bundles) watch(ctx context.Context, client rest.Interface, name, version string) error {
	stream, err := request(client, name).SetHeader("Accept", partial("PartialObjectMetadata")).
		Param("watch", "true").Param("resourceVersion", version).Param("timeoutSeconds", watchSeconds).Stream(ctx)
	if err != nil {
		return err
	}
	defer stream.Close()
	for events := json.NewDecoder(stream); ; {
		var event struct {
			Type   string
			Object metav1.PartialObjectMetadata
		}
		switch err := events.Decode(&event); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		switch event.Type {
		case "ADDED", "MODIFIED":
			b.put(&event.Object)
		case "DELETED":
			b.remove(name)
		case "ERROR": // such as for a version that is too old: list again
			return nil
		}
	}
}

func (b *Bundles) put(o *metav1.PartialObjectMetadata) {
	b.change(o.Name, func() { b.versions[o.Name] = o.Annotations[versionAnnotation] })
}

func (b *Bundles) remove(name string) { b.change(name, func() { delete(b.versions, name) }) }

func (b *Bundles) fail(name string, err error) { b.change(name, func() { b.problems[name] = err }) }

// change changes what is known of a definition, and reports all as soon as something is known of each.
func (b *Bundles) change(name string, change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.problems, name)
	change()
	b.known[name] = true
	made := status.Bundle{Versions: maps.Clone(b.versions)}
	for _, of := range Definitions() {
		if !b.known[of] {
			return
		}
		if made.Err == nil {
			made.Err = b.problems[of]
		}
	}
	b.set(made)
}
