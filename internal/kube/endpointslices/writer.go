package endpointslices

import (
	"context"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typeddiscovery "k8s.io/client-go/kubernetes/typed/discovery/v1"
)

// writerUntil returns a client that writes slices until ctx is done. The library takes
// no context: without this client it would continue through all slices of a Service
// although another process may be the leader by then. Methods that it does not
// override must not be called.
func writerUntil(ctx context.Context, client kubernetes.Interface) kubernetes.Interface {
	return boundClient{discovery: boundDiscovery{ctx: ctx, client: client.DiscoveryV1()}}
}

type boundClient struct {
	kubernetes.Interface
	discovery boundDiscovery
}

func (c boundClient) DiscoveryV1() typeddiscovery.DiscoveryV1Interface { return c.discovery }

type boundDiscovery struct {
	typeddiscovery.DiscoveryV1Interface
	ctx    context.Context
	client typeddiscovery.DiscoveryV1Interface
}

func (d boundDiscovery) EndpointSlices(namespace string) typeddiscovery.EndpointSliceInterface {
	return boundWriter{ctx: d.ctx, slices: d.client.EndpointSlices(namespace)}
}

// boundWriter uses ctx for its requests instead of the context they are given.
type boundWriter struct {
	typeddiscovery.EndpointSliceInterface
	ctx    context.Context
	slices typeddiscovery.EndpointSliceInterface
}

func (w boundWriter) Create(
	_ context.Context,
	s *discoveryv1.EndpointSlice,
	o metav1.CreateOptions,
) (*discoveryv1.EndpointSlice, error) {
	if err := w.ctx.Err(); err != nil {
		return nil, err
	}
	return w.slices.Create(w.ctx, s, o)
}

func (w boundWriter) Update(
	_ context.Context,
	s *discoveryv1.EndpointSlice,
	o metav1.UpdateOptions,
) (*discoveryv1.EndpointSlice, error) {
	if err := w.ctx.Err(); err != nil {
		return nil, err
	}
	return w.slices.Update(w.ctx, s, o)
}

func (w boundWriter) Delete(_ context.Context, name string, o metav1.DeleteOptions) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	return w.slices.Delete(w.ctx, name, o)
}
