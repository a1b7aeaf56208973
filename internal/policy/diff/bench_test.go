package diff

import (
	"fmt"
	"net/netip"
	"strconv"
	"testing"

	"portolan.dev/portolan/internal/cluster"
)

// largeCluster returns 100 Namespaces with 100 Pods of 10 applications and 10 NetworkPolicies each.
func largeCluster() *cluster.Store {
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		for n := range 100 {
			namespace := fmt.Sprintf("team-%d", n)
			tx.Put(&cluster.Namespace{Name: namespace, Labels: map[string]string{"zone": strconv.Itoa(n % 7)}})
			addr := netip.AddrFrom4([4]byte{192, 0, 2, byte(n)})
			tx.Put(&cluster.Node{Name: namespace, Addresses: []netip.Addr{addr}})
			for i := range 100 {
				tx.Put(&cluster.Pod{
					Key: cluster.Key{Namespace: namespace, Name: fmt.Sprintf("pod-%d", i)}, Node: fmt.Sprintf("team-%d", i),
					Labels: map[string]string{"app": fmt.Sprintf("app-%d", i%10)},
					IPs:    []netip.Addr{netip.AddrFrom4([4]byte{10, 244, byte(n), byte(i)})},
					Spec:   &cluster.PodSpec{Ports: []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 8080}}},
				})
			}
			for i := range 10 {
				tx.Put(largePolicy(namespace, i, 8000))
			}
		}
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
	})
	return store
}

// largePolicy returns the NetworkPolicy of an application, with a port of its own.
func largePolicy(namespace string, i int, port uint16) *cluster.NetworkPolicy {
	app := func(i int) *cluster.Selector {
		return &cluster.Selector{Labels: map[string]string{"app": fmt.Sprintf("app-%d", i%10)}}
	}
	port += uint16(i)
	ports := []cluster.PolicyPort{{Protocol: cluster.TCP, Number: port, End: port}, {Protocol: cluster.TCP, Name: "http"}}
	zone := &cluster.Selector{Labels: map[string]string{"zone": strconv.Itoa(i % 7)}}
	block := netip.PrefixFrom(netip.AddrFrom4([4]byte{203, 0, byte(i), 0}), 24)
	return &cluster.NetworkPolicy{
		Key: cluster.Key{Namespace: namespace, Name: fmt.Sprintf("policy-%d", i)}, Pods: *app(i), Ingress: true, Egress: true,
		IngressRules: []cluster.PolicyRule{{
			Peers: []cluster.PolicyPeer{{Pods: app(i + 1)}, {Namespaces: zone, Pods: app(i + 2)}, {Block: block}}, Ports: ports,
		}},
		EgressRules: []cluster.PolicyRule{{Peers: []cluster.PolicyPeer{{Namespaces: &cluster.Selector{}, Pods: app(i + 3)}}}, {Ports: ports}},
	}
}

// BenchmarkCompare measures changes of a cluster with 10,000 Pods and 1,000 NetworkPolicies.
func BenchmarkCompare(b *testing.B) {
	store := largeCluster()
	deny := &cluster.ClusterNetworkPolicy{
		Name: "deny", Tier: cluster.AdminTier,
		IngressRules: []cluster.TierRule{{Action: cluster.Deny, Peers: []cluster.TierPeer{{Pods: &cluster.PodPeer{}}}}},
	}
	all := Manifests{}
	for n := range 100 {
		for i := range 10 {
			all.Objects = append(all.Objects, largePolicy(fmt.Sprintf("team-%d", n), i, 9000))
		}
	}
	for name, m := range map[string]Manifests{
		"one-policy":       {Objects: []cluster.Object{largePolicy("team-1", 1, 9000)}},
		"namespace-labels": {Objects: []cluster.Object{&cluster.Namespace{Name: "team-1", Labels: map[string]string{"zone": "5"}}}},
		"deny-all":         {Objects: []cluster.Object{deny}},
		"every-policy":     all,
		"no-policy":        {Prune: true},
		"nothing":          {},
	} {
		b.Run(name, func(b *testing.B) {
			store.View(func(was *cluster.View) {
				for b.Loop() {
					Apply(was, m).View(func(is *cluster.View) { b.ReportMetric(float64(len(Compare(was, is))), "lines") })
				}
			})
		})
	}
}
