package plan

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/proxy/frontend"
)

// TestRoom checks which Services are served if not all fit, first and after a change. Each has a
// size of 10 for a port: 8, and 1 for each of 2 endpoints.
func TestRoom(t *testing.T) {
	t.Parallel()
	const size = 10
	put := func(k cluster.Key, created int64, ip string, ports int) func(*cluster.Tx) {
		s := &cluster.Service{Key: k, Created: created, ClusterIPs: addrs(ip), Spec: &cluster.ServiceSpec{Type: cluster.ClusterIP}}
		endpoints := &cluster.EndpointSlice{Key: k, Service: k.Name, AddressType: cluster.IPv4}
		for i := range ports {
			p := cluster.Port{Name: string(rune('a' + i)), Protocol: cluster.TCP, Number: 80 + uint16(i)}
			s.Ports, endpoints.Ports = append(s.Ports, p), append(endpoints.Ports, p)
		}
		for _, a := range addrs("10.1.0.1", "10.1.0.2") {
			endpoints.Endpoints = append(endpoints.Endpoints, cluster.Endpoint{Addr: a, Ready: true, Serving: true})
		}
		return func(tx *cluster.Tx) { tx.Put(s); tx.Put(endpoints) }
	}
	// The Services by age, but for one that a change adds.
	oldest, first, second := key("shop", "oldest"), key("shop", "first"), key("shop", "second")
	other, last := key("bank", "other"), key("bank", "last")
	for claim, test := range map[string]struct {
		room    int
		change  func(*cluster.Tx)
		changed cluster.Key
		// before and after are the Services that are left out.
		before, after []cluster.Key
	}{
		"all fit":              {4 * size, func(*cluster.Tx) {}, first, nil, nil},
		"a namespace has half": {4*size - 1, func(*cluster.Tx) {}, first, []cluster.Key{second, last}, []cluster.Key{second, last}},
		"a namespace has more while all fit": {
			3 * size, func(tx *cluster.Tx) { tx.Delete(cluster.KindService, other) }, other, []cluster.Key{second, last}, nil,
		},
		"none fits":                 {size, func(*cluster.Tx) {}, first, []cluster.Key{first, second, other, last}, []cluster.Key{first, second, other, last}},
		"one goes, and another has": {2 * size, func(tx *cluster.Tx) { tx.Delete(cluster.KindService, first) }, first, []cluster.Key{second, last}, []cluster.Key{last}},
		"one shrinks, and another has": {
			4*size - 4, func(tx *cluster.Tx) { tx.Delete(cluster.KindEndpointSlice, first) }, first,
			[]cluster.Key{second, last}, []cluster.Key{last},
		},
		"an older one comes, and the youngest of its namespace goes": {
			4 * size, put(oldest, 1, "10.96.0.9", 1), oldest, nil, []cluster.Key{second},
		},
		"an older one grows, and the younger one goes": {4 * size, put(first, 2, "10.96.0.1", 2), first, nil, []cluster.Key{second}},
		"one that is too large keeps no younger one out": {
			4 * size, put(oldest, 1, "10.96.0.9", 3), oldest, nil, []cluster.Key{oldest},
		},
		"one that does not fit comes": {
			4 * size, put(key("shop", "new"), 9, "10.96.0.9", 1), key("shop", "new"), nil, []cluster.Key{key("shop", "new")},
		},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			node := theNode
			node.Room = test.room
			store := cluster.NewStore()
			for i, k := range []cluster.Key{first, second, other, last} {
				ip := addrs("10.96.0.1", "10.96.0.2", "10.96.0.3", "10.96.0.4")[i]
				store.Update(put(k, 2+int64(i), ip.String(), 1))
			}
			c := NewCompiler(node)
			var state *frontend.Evaluator
			store.View(func(v *cluster.View) { state = frontend.NewEvaluator(frontend.Node{}, c.All(v, node)) })
			checkLeftOut(t, "All", c, state, test.before)
			store.Update(test.change)
			store.View(func(v *cluster.View) { state.Apply(c.Apply(v, slices.Values([]cluster.Key{test.changed}))) })
			checkLeftOut(t, "Apply", c, state, test.after)
		})
	}
}

// checkLeftOut checks which Services a compiler leaves out, and that the others are served.
func checkLeftOut(t *testing.T, call string, c *Compiler, state *frontend.Evaluator, want []cluster.Key) {
	t.Helper()
	keys, _ := c.LeftOut()
	got := slices.SortedFunc(keys, cluster.Key.Compare)
	want = slices.SortedFunc(slices.Values(want), cluster.Key.Compare)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s leaves out (-want +got):\n%s", call, diff)
	}
	served := make(map[frontend.Address]struct{})
	for _, f := range state.State().Frontends {
		served[f.Address] = struct{}{}
	}
	for k := range c.services {
		s := c.Service(k)
		if out := slices.Contains(s.Verdicts, Verdict{Reason: NoRoom}); out != slices.Contains(want, k) {
			t.Errorf("after %s, Service(%s) says that it is left out: %v", call, k, out)
		}
		for _, f := range s.Frontends {
			if _, ok := served[f.Address]; !ok {
				t.Errorf("after %s, %s of %s is not served", call, f.Address, k)
			}
		}
	}
}
