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

// memory is a client that holds the slices of one Service at a time. Methods that
// it does not override must not be called.
type memory struct {
	kubernetes.Interface
	discovery
}

func (m *memory) DiscoveryV1() typeddiscovery.DiscoveryV1Interface { return &m.discovery }

type discovery struct {
	typeddiscovery.DiscoveryV1Interface
	memoryWriter
}

func (d *discovery) EndpointSlices(string) typeddiscovery.EndpointSliceInterface {
	return &d.memoryWriter
}

// memoryWriter takes the slices that the library writes. Created slices have no name
// yet.
type memoryWriter struct {
	typeddiscovery.EndpointSliceInterface
	// detach makes a written slice independent of the library's scratch objects.
	detach   func(*discoveryv1.EndpointSlice)
	existing []*discoveryv1.EndpointSlice // by name
	created  []*discoveryv1.EndpointSlice
}

// reset replaces all slices by those that a Service has.
func (w *memoryWriter) reset(existing []*discoveryv1.EndpointSlice) {
	w.existing, w.created = slices.Clone(existing), nil
}

func (w *memoryWriter) Create(
	_ context.Context, s *discoveryv1.EndpointSlice, _ metav1.CreateOptions,
) (*discoveryv1.EndpointSlice, error) {
	w.detach(s)
	w.created = append(w.created, s)
	return s, nil
}

func (w *memoryWriter) Update(
	_ context.Context, s *discoveryv1.EndpointSlice, _ metav1.UpdateOptions,
) (*discoveryv1.EndpointSlice, error) {
	i := w.find(s.Name)
	if i < 0 {
		return nil, apierrors.NewNotFound(discoveryv1.Resource("endpointslices"), s.Name)
	}
	w.detach(s)
	w.existing[i] = s
	return s, nil
}

func (w *memoryWriter) Delete(_ context.Context, name string, _ metav1.DeleteOptions) error {
	i := w.find(name)
	if i < 0 {
		return apierrors.NewNotFound(discoveryv1.Resource("endpointslices"), name)
	}
	w.existing = slices.Delete(w.existing, i, i+1)
	return nil
}

func (w *memoryWriter) find(name string) int {
	return slices.IndexFunc(w.existing, func(s *discoveryv1.EndpointSlice) bool { return s.Name == name })
}
