package endpointslices_test

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/endpointslices"
)

func newCompiler(t testing.TB, max int) *endpointslices.Compiler {
	t.Helper()
	cfg := endpointslices.Config{MaxEndpoints: max, Log: slog.New(slog.DiscardHandler)}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	return endpointslices.New(cfg)
}

func web(change func(*cluster.Service)) *cluster.Service {
	s := &cluster.Service{
		Key: cluster.Key{Namespace: "shop", Name: "web"}, Selector: map[string]string{"app": "web"},
		Ports: []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 80}}, Targets: []string{"8080"},
		ClusterIPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		Spec:       &cluster.ServiceSpec{Type: cluster.ClusterIP, Families: []cluster.AddressType{cluster.IPv4}},
	}
	if change != nil {
		change(s)
	}
	return s
}

func webPod(i int, change func(*cluster.Pod)) *cluster.Pod {
	p := &cluster.Pod{
		Key: cluster.Key{Namespace: "shop", Name: fmt.Sprintf("web-%03d", i)}, Labels: map[string]string{"app": "web"},
		IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 128, byte(i >> 8), byte(i)})}, Ready: true, Node: "node",
	}
	if change != nil {
		change(p)
	}
	return p
}

func TestFirst(t *testing.T) {
	c := newCompiler(t, 0)
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		tx.PutService(web(nil))
		for i := range 250 {
			tx.PutPod(webPod(i, nil))
		}
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
		c.Complete(tx)
	})
	store.View(func(v *cluster.View) {
		for _, s := range v.SlicesOf(web(nil).Key) {
			t.Log(s.Name, len(s.Endpoints), s.Endpoints[0], s.Ports)
		}
	})
}
