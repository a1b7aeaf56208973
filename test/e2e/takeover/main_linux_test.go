package takeover

import (
	"testing"

	"portolan.dev/portolan/test/e2e/nodens"
	"portolan.dev/portolan/test/namespace"
)

// TestMain runs the tests in the network namespace of a node.
func TestMain(m *testing.M) { nodens.Main(m) }

// newPod links a new namespace with these addresses, that of a Pod, to the node.
func newPod(t *testing.T, link string, addresses ...string) *namespace.Network {
	t.Helper()
	pod, err := namespace.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pod.Close() })
	outer := []string{
		"link add " + link + " type veth peer name eth0 netns " + pod.Path(),
		"address add " + nodens.GatewayIP + "/32 dev " + link, "link set " + link + " up",
	}
	inner := []string{"link set lo up", "link set eth0 up"}
	for _, a := range addresses {
		outer = append(outer, "route add "+a+"/32 dev "+link)
		inner = append(inner, "address add "+a+"/32 dev eth0")
	}
	inner = append(inner, "route add "+nodens.GatewayIP+" dev eth0", "route add default via "+nodens.GatewayIP)
	if err := namespace.IP(outer...); err != nil {
		t.Fatal(err)
	}
	if err := pod.Do(func() error { return namespace.IP(inner...) }); err != nil {
		t.Fatal(err)
	}
	return pod
}
