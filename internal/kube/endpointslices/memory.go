package endpointslices

import (
	"context"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typeddiscovery "k8s.io/client-go/kubernetes/typed/discovery/v1"
)

// memory is a client that keeps the slices of one Service at a time. What is not
// overridden must not be called.
type memory struct {
	kubernetes.Interface
	discovery
}

func (m *memory) DiscoveryV1() typeddiscovery.DiscoveryV1Interface { return &m.discovery }

type discovery struct {
	typeddiscovery.DiscoveryV1Interface
	writer
}

func (d *discovery) EndpointSlices(string) typeddiscovery.EndpointSliceInterface { return &d.writer }

// writer takes what the library writes. Slices that it creates have no name yet.
type writer struct {
	typeddiscovery.EndpointSliceInterface
	// take makes a slice one that may be kept.
	take    func(*discoveryv1.EndpointSlice)
	kept    []*discoveryv1.EndpointSlice // by name
	created []*discoveryv1.EndpointSlice
}

// begin makes the slices those that a Service has.
func (w *writer) begin(existing []*discoveryv1.EndpointSlice) {
	w.kept, w.created = slices.Clone(existing), nil
}

func (w *writer) Create(_ context.Context, s *discoveryv1.EndpointSlice, _ metav1.CreateOptions) (*discoveryv1.EndpointSlice, error) {
	w.take(s)
	w.created = append(w.created, s)
	return s, nil
}

func (w *writer) Update(_ context.Context, s *discoveryv1.EndpointSlice, _ metav1.UpdateOptions) (*discoveryv1.EndpointSlice, error) {
	i := w.find(s.Name)
	if i < 0 {
		return nil, apierrors.NewNotFound(discoveryv1.Resource("endpointslices"), s.Name)
	}
	w.take(s)
	w.kept[i] = s
	return s, nil
}

func (w *writer) Delete(_ context.Context, name string, _ metav1.DeleteOptions) error {
	i := w.find(name)
	if i < 0 {
		return apierrors.NewNotFound(discoveryv1.Resource("endpointslices"), name)
	}
	w.kept = slices.Delete(w.kept, i, i+1)
	return nil
}

func (w *writer) find(name string) int {
	return slices.IndexFunc(w.kept, func(s *discoveryv1.EndpointSlice) bool { return s.Name == name })
}
