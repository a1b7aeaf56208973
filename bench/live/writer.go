package live

import (
	"context"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// put is a synthetic.Put.
func (b *bench) put(ctx context.Context, o *discoveryv1.EndpointSlice) error {
	_, err := b.client.DiscoveryV1().EndpointSlices(o.Namespace).Update(ctx, o, metav1.UpdateOptions{})
	return err
}

// changedIPs is the first of the addresses that timed changes set as the first address
// of a Service's endpoints.
const changedIPs = "10.208.0.0"
