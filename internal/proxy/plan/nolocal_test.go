package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
)

// TestWithoutLocal: a port counts once for each policy Local and family, if it has endpoints and
// none on the node, and as long as that is so.
func TestWithoutLocal(t *testing.T) {
	t.Parallel()
	const ipv4 = cluster.IPv4
	internal, external := NoLocal{Internal, ipv4}, NoLocal{External, ipv4}
	service := func(spec cluster.ServiceSpec) *cluster.Service {
		return &cluster.Service{
			Key: key("shop", "web"), ClusterIPs: addrs("10.96.0.1"), Spec: &spec,
			Ports: []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 80}},
		}
	}
	endpoints := func(node string) *cluster.EndpointSlice {
		s := slice("web", ep("10.1.0.1").on(node))
		s.Service = "web"
		return s
	}
	both := cluster.ServiceSpec{
		Type: cluster.NodePort, InternalLocal: true, ExternalLocal: true, NodePorts: []uint16{30080}, ExternalIPs: addrs("203.0.113.1"),
	}
	node := Node{Name: "here", NodePorts: addrs("192.0.2.1")}
	for claim, steps := range map[string][]struct {
		put  cluster.Object
		want map[NoLocal]int
	}{
		"both policies, at several addresses": {
			{service(both), map[NoLocal]int{}},
			{endpoints("there"), map[NoLocal]int{internal: 1, external: 1}},
		},
		"an endpoint on the node": {
			{service(both), map[NoLocal]int{}},
			{endpoints("there"), map[NoLocal]int{internal: 1, external: 1}},
			{endpoints("here"), map[NoLocal]int{internal: 0, external: 0}},
		},
		"policies Cluster": {
			{service(cluster.ServiceSpec{Type: cluster.NodePort, NodePorts: []uint16{30080}}), map[NoLocal]int{}},
			{endpoints("there"), map[NoLocal]int{}},
		},
		"no address for clients outside": {
			{service(cluster.ServiceSpec{ExternalLocal: true}), map[NoLocal]int{}},
			{endpoints("there"), map[NoLocal]int{}},
		},
	} {
		store := cluster.NewStore()
		c := NewCompiler(node)
		for i, step := range steps {
			store.Update(func(tx *cluster.Tx) { tx.Put(step.put) })
			store.View(func(v *cluster.View) {
				if i == 0 {
					c.All(v, node)
				}
				if known := c.IsCompiled(key("shop", "web"), v.Service(key("shop", "web"))); !known {
					t.Errorf("%s, step %d: the Service is another one than was compiled", claim, i)
				}
				c.Apply(v, func(yield func(cluster.Key) bool) { yield(key("shop", "web")) })
			})
			if diff := cmp.Diff(step.want, c.noLocal); diff != "" {
				t.Errorf("%s, step %d (-want +got):\n%s", claim, i, diff)
			}
		}
	}
}
