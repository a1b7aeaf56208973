package connection

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strconv"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/plan"
)

// TestServicesOfAnAddress: what a proxy does with an address is the same whether the Services that may have it are
// compiled, or all.
func TestServicesOfAnAddress(t *testing.T) {
	t.Parallel()
	const clusters = 500
	for seed := range uint64(clusters) {
		store := randomCluster(rand.New(rand.NewPCG(seed, 1)))
		store.View(func(v *cluster.View) {
			s := new(Settings)
			c := newClaims(v)
			if !c.fit {
				t.Fatalf("seed %d: a few Services do not fit", seed)
			}
			for _, node := range []string{"n1", "n2", "none"} {
				whole := newProxy(v, s, node)
				for at := range addressesToTry() {
					some := newProxyAt(v, s, node, c.of(at.Addr))
					for _, source := range []string{"10.1.0.1", "10.1.0.2", "192.0.2.9"} {
						asked := frontend.Connection{Source: netip.MustParseAddr(source), To: at}
						got, want := some.kernel.Forward(asked), whole.kernel.Forward(asked)
						got.Hairpins, want.Hairpins = nil, nil // are no part of explanations
						if !reflect.DeepEqual(got, want) {
							t.Fatalf("seed %d, node %s: Forward(%v) = %+v, want %+v", seed, node, asked, got, want)
						}
					}
					got, want := fmt.Sprint(some.owner(at)), fmt.Sprint(whole.owner(at))
					if got != want {
						t.Fatalf("seed %d, node %s: owner(%v) = %s, want %s", seed, node, at, got, want)
					}
					if got, want := some.rivals(at), whole.rivals(at); !reflect.DeepEqual(got, want) {
						t.Fatalf("seed %d, node %s: rivals(%v) = %v, want %v", seed, node, at, got, want)
					}
				}
			}
		})
	}
}

// addressesToTry are some that randomCluster gives, and some that it does not.
func addressesToTry() func(yield func(frontend.Address) bool) {
	return func(yield func(frontend.Address) bool) {
		for _, addr := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.9", "203.0.113.1", "192.0.2.1", "192.0.2.2"} {
			for _, port := range []uint16{80, 81, 30000, 30001} {
				for _, p := range []frontend.Protocol{frontend.TCP, frontend.UDP} {
					if !yield(frontend.Address{Addr: netip.MustParseAddr(addr), Protocol: p, Port: port}) {
						return
					}
				}
			}
		}
	}
}

// randomCluster returns a cluster of two nodes with a few Services, which share addresses.
func randomCluster(r *rand.Rand) *cluster.Store {
	store := cluster.NewStore()
	addr := func(prefix string, n int) netip.Addr { return netip.MustParseAddr(fmt.Sprint(prefix, 1+r.IntN(n))) }
	store.Update(func(tx *cluster.Tx) {
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
		for i, name := range []string{"n1", "n2"} {
			a := netip.MustParseAddr(fmt.Sprint("192.0.2.", 1+i))
			tx.Put(&cluster.Node{Name: name, Addresses: []netip.Addr{a}, InternalIPs: []netip.Addr{a}, Ready: true})
		}
		if r.IntN(2) == 0 {
			tx.Put(&cluster.ServiceCIDR{Name: "a", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}})
		}
		for i := range 1 + r.IntN(5) {
			s := &cluster.Service{
				Key: cluster.Key{Namespace: "a", Name: fmt.Sprint("s", i)}, ClusterIPs: []netip.Addr{addr("10.0.0.", 3)},
				Created: int64(r.IntN(3)), Ports: []cluster.Port{{Name: "p", Protocol: cluster.TCP, Number: uint16(80 + r.IntN(2))}},
				Targets: []string{"8080"}, Spec: &cluster.ServiceSpec{Type: cluster.LoadBalancer, ExternalLocal: r.IntN(2) == 0},
			}
			if r.IntN(4) == 0 {
				s.Spec.SlowStart = "60s"
			}
			if r.IntN(2) == 0 {
				s.Spec.NodePorts = []uint16{uint16(30000 + r.IntN(2))}
			}
			if r.IntN(3) == 0 {
				s.Spec.ExternalIPs = []netip.Addr{addr("203.0.113.", 1), addr("192.0.2.", 2), addr("10.0.0.", 3)}
			}
			tx.Put(s)
			slice := &cluster.EndpointSlice{
				Key: cluster.Key{Namespace: "a", Name: fmt.Sprint("s", i, "-x")}, Service: s.Name, AddressType: cluster.IPv4,
				Ports: []cluster.Port{{Name: "p", Protocol: cluster.TCP, Number: 8080}}, Spec: new(cluster.SliceSpec),
			}
			if r.IntN(4) == 0 {
				slice.Spec.EndpointWeight = strconv.Itoa(r.IntN(1000))
			}
			for range r.IntN(4) {
				slice.Endpoints = append(slice.Endpoints, cluster.Endpoint{
					Addr: addr("10.1.0.", 3), Ready: r.IntN(4) > 0, Serving: true,
				})
				slice.Spec.Places = append(slice.Spec.Places, cluster.Place{Node: fmt.Sprint("n", 1+r.IntN(2))})
			}
			tx.Put(slice)
		}
	})
	return store
}

// TestMostSize: no Service is larger than what it is taken to be at most.
func TestMostSize(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		randomCluster(rand.New(rand.NewPCG(seed, 2))).View(func(v *cluster.View) {
			for s := range v.Services() {
				node := new(Settings).nodeOf(v, "n1")
				size, most := plan.Compile(v, &node, s.Key).Size, plan.MostSize(v, s, len(node.Addresses))
				if size > most {
					t.Errorf("seed %d: Service %s has size %d, more than %d", seed, s.Key, size, most)
				}
			}
		})
	}
}
