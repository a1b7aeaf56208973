package endpointslices_test

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/endpointslices"
)

func newCompiler(tb testing.TB, most int) *endpointslices.Compiler {
	tb.Helper()
	cfg := endpointslices.Config{MaxEndpoints: most, Log: slog.New(slog.DiscardHandler)}
	if err := cfg.Validate(); err != nil {
		tb.Fatalf("Validate(%+v): %v", cfg, err)
	}
	return endpointslices.New(cfg)
}

// model is a Store whose slices a Compiler keeps.
type model struct {
	*cluster.Store
	*endpointslices.Compiler
}

// newModel is one with what declare puts into it, and all kinds loaded.
func newModel(t *testing.T, declare func(tx *cluster.Tx)) *model {
	t.Helper()
	m := &model{cluster.NewStore(), newCompiler(t, 0)}
	m.update(func(tx *cluster.Tx) {
		declare(tx)
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
	})
	return m
}

func (m *model) update(change func(tx *cluster.Tx)) {
	m.Update(func(tx *cluster.Tx) {
		change(tx)
		m.Complete(tx)
	})
}

// names are those of the slices of web in the Store.
func (m *model) names() (names []string) {
	m.View(func(v *cluster.View) {
		for _, s := range v.SlicesOf(webKey) {
			names = append(names, s.Name)
		}
	})
	return names
}

// endpoints are those of the slices of web, as text.
func (m *model) endpoints() (lines []string) {
	for _, s := range m.Slices(webKey) {
		for i := range s.Endpoints {
			lines = append(lines, describeEndpoint(nil, &s.Endpoints[i]))
		}
	}
	slices.Sort(lines)
	return lines
}

// sizes are how many endpoints each slice of web has, in order.
func (m *model) sizes() (sizes []int) {
	for _, s := range m.Slices(webKey) {
		sizes = append(sizes, len(s.Endpoints))
	}
	slices.Sort(sizes)
	return sizes
}

var webKey = cluster.Key{Namespace: "shop", Name: "web"}

// web is a Service, with changes.
func web(changes ...func(*cluster.Service)) *cluster.Service {
	s := &cluster.Service{
		Key: webKey, Selector: map[string]string{"app": "web"},
		Ports: []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 80}}, Targets: []string{"8080"},
		ClusterIPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		Spec:       &cluster.ServiceSpec{Type: cluster.ClusterIP, Families: []cluster.AddressType{cluster.IPv4}},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

// pod is number i of web's Pods, ready, with changes.
func pod(i int, changes ...func(*cluster.Pod)) *cluster.Pod {
	p := &cluster.Pod{
		Key: cluster.Key{Namespace: "shop", Name: fmt.Sprintf("web-%03d", i)}, Labels: map[string]string{"app": "web", "tier": "front"},
		IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 128, byte(i >> 8), byte(i)})}, Ready: true,
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func putPods(tx *cluster.Tx, from, to int) {
	for i := from; i < to; i++ {
		tx.Put(pod(i))
	}
}
