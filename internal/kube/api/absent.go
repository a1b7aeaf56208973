package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// A cluster may lack the CustomResourceDefinition of a kind, or lose it. Then there are no
// objects of the kind. The status "not found" alone does not prove that: an API server that
// has just started, or a proxy before it, may respond so for a moment. Discovery has to
// confirm it (Kubernetes, "The Kubernetes API", "Discovery API").

// causeAbsent is in reading.causes while the cluster lacks the kind.
const causeAbsent = "absent"

// errDiscovery is wrapped when discovery fails.
var errDiscovery = errors.New("not found, and discovery can't confirm that the cluster lacks the kind")

// isAbsent reports whether err, the failure of a request, is that the cluster lacks the
// kind. If that can't be found out, it returns why instead of err.
func (r *reading) isAbsent(ctx context.Context, err error) (bool, error) {
	if !r.resource.Custom || !apierrors.IsNotFound(err) {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.source.cfg.Silence)
	defer cancel()
	served, failure := r.source.clients.serves(ctx, r.resource)
	if failure != nil {
		return false, failure
	}
	return !served, err
}

// noteAbsent deletes the objects of a kind that the cluster does not have, and records that
// nothing is lost.
func (r *reading) noteAbsent() {
	r.heard()
	r.replace(nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.causes, causeAbsent) {
		r.source.cfg.Log.Info("the cluster has no such resource; it is looked for from time to time",
			"resource", r.resource.Resource, "group", r.resource.Group.Group)
	}
	r.problem, r.causes, r.doubted, r.lost = nil, []string{causeAbsent}, false, time.Time{}
}

// serves reports whether the API server has a resource, as discovery says.
func (c *clients) serves(ctx context.Context, r *resource) (bool, error) {
	c.mu.Lock()
	client := c.byGroup[r.Group.GroupVersion]
	c.mu.Unlock()
	path := "/apis/" + r.Group.String()
	text, err := client.Get().AbsPath(path).SetHeader("Accept", runtime.ContentTypeJSON).MaxRetries(0).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	var list metav1.APIResourceList
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	switch {
	case apierrors.IsForbidden(err):
		return false, fmt.Errorf("%w: GET %s: %w; allow it with the rule {nonResourceURLs: [%s], verbs: [get]}",
			errDiscovery, path, err, path)
	case err != nil:
		return false, fmt.Errorf("%w: GET %s: %w", errDiscovery, path, err)
	}
	return slices.ContainsFunc(list.APIResources, func(a metav1.APIResource) bool { return a.Name == r.Resource }), nil
}
