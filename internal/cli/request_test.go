package cli

import (
	"slices"
	"testing"

	"portolan.dev/portolan/internal/cluster"
)

// TestGatewayKinds: commands that say what becomes of a request read all that a gateway does.
func TestGatewayKinds(t *testing.T) {
	t.Parallel()
	always := []cluster.Kind{
		cluster.KindNamespace, cluster.KindService, cluster.KindEndpointSlice, cluster.KindNode, cluster.KindIngress,
	}
	for _, k := range cluster.KindsOfGateway() {
		if !slices.Contains(gatewayKinds, k) && !slices.Contains(always, k) {
			t.Errorf("%v is not read", k)
		}
	}
}
