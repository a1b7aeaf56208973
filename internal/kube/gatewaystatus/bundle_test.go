package gatewaystatus_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/internal/gateway/status"
	"portolan.dev/portolan/internal/kube/apitest"
	"portolan.dev/portolan/internal/kube/gatewaystatus"
)

// definition returns the metadata of a CustomResourceDefinition.
func definition(name, version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: name, Annotations: map[string]string{"gateway.networking.k8s.io/bundle-version": version},
	}}
}

// follow returns what a Bundles says of a server.
func follow(t *testing.T, server *apitest.Server) <-chan status.Bundle {
	t.Helper()
	said := make(chan status.Bundle)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	b := gatewaystatus.NewBundles(client(t, server.URL()), slog.New(slog.DiscardHandler))
	go func() {
		ended <- b.Follow(ctx, func(b status.Bundle) {
			select {
			case said <- b:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() {
		stop()
		server.Stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Follow = %v", err)
		}
	})
	return said
}

// TestBundles: versions are known as soon as all definitions were looked for, and follow their changes.
func TestBundles(t *testing.T) {
	t.Parallel()
	names := gatewaystatus.Definitions()
	if len(names) < 5 || !slices.Contains(names, "httproutes.gateway.networking.k8s.io") {
		t.Fatalf("Definitions() = %q", names)
	}
	server := apitest.New(t)
	server.Put(definition(names[0], "v1.6.3"), definition(names[1], "v1.6.3"), definition("others.example.com", "v9"))
	said := follow(t, server)
	want := map[string]string{names[0]: "v1.6.3", names[1]: "v1.6.3"}
	check := func(what string) {
		t.Helper()
		if b := <-said; b.Err != nil || !maps.Equal(b.Versions, want) {
			t.Errorf("%s: %+v, want %v", what, b, want)
		}
	}
	check("at first")
	server.Put(definition(names[1], "v1.7.0"))
	want[names[1]] = "v1.7.0"
	check("an upgrade")
	server.Put(definition(names[2], "v1.7.0"))
	want[names[2]] = "v1.7.0"
	check("one more")
	server.Delete(definition(names[0], ""))
	delete(want, names[0])
	check("one less")
	for _, r := range server.Requests() {
		if strings.Contains(r.URL, "customresourcedefinitions/") || !strings.Contains(r.URL, "metadata.name%3D") {
			t.Errorf("request %s, want those of names alone", r.URL)
		}
	}
}

// TestBundlesForbidden: without the right to read a definition Bundles says which one is missing.
func TestBundlesForbidden(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	server.Misbehave(apitest.Fault{Status: http.StatusForbidden, Resource: "customresourcedefinitions"})
	b := <-follow(t, server)
	if b.Err == nil || !strings.Contains(b.Err.Error(), "allow list and watch of the resourceName "+gatewaystatus.Definitions()[0]) {
		t.Errorf("Bundle %+v, want that it is forbidden", b)
	}
}
