package plan

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/ruleset"
)

// The size of the benchmarks' cluster: each policy has three peers, which select some 170 Pods each.
const (
	benchPods       = 10_000
	benchNamespaces = 100
	benchPolicies   = 1_000
)

// benchConfig is the node of the benchmarks. The Pods of app0 in a namespace are those of the DNS.
var benchConfig = Config{Node: "n1", DNS: DNS{
	Service: cluster.Key{Namespace: "ns0", Name: "dns"}, Addrs: []netip.Addr{netip.MustParseAddr("169.254.20.10")},
}}

// benchCluster is a cluster in which all policies select Pods of node n1.
func benchCluster() *cluster.Store {
	r := &random{rand.New(rand.NewPCG(1, 1))}
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		for i := range benchNamespaces {
			tx.Put(&cluster.Namespace{Name: fmt.Sprint("ns", i), Labels: map[string]string{"team": fmt.Sprint("t", i%10)}})
		}
		tx.Put(&cluster.Node{Name: "n1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}})
		tx.Put(&cluster.Service{Key: benchConfig.DNS.Service, Selector: map[string]string{"app": "app0"}})
		addr := netip.MustParseAddr("10.0.0.1")
		for i := range benchPods {
			tx.Put(benchPod(r, i, addr))
			addr = addr.Next()
		}
		for i := range benchPolicies {
			tx.Put(benchPolicy(r, i))
		}
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
	})
	return store
}

// benchPod returns a Pod: the first tenth is on n1.
func benchPod(r *random, i int, addr netip.Addr) *cluster.Pod {
	p := &cluster.Pod{
		Key: cluster.Key{Namespace: fmt.Sprint("ns", i%benchNamespaces), Name: fmt.Sprint("pod-", i)}, Node: "n2",
		IPs: []netip.Addr{addr}, Labels: map[string]string{"app": fmt.Sprint("app", i/benchNamespaces%10)}, Spec: &cluster.PodSpec{},
	}
	if i < benchPods/10 {
		p.Node = "n1"
	}
	for label := range 5 {
		p.Labels[fmt.Sprint("l", label)] = fmt.Sprint("v", r.IntN(16))
	}
	return p
}

// benchPolicy returns a policy for one app of a namespace.
func benchPolicy(r *random, i int) *cluster.NetworkPolicy {
	p := &cluster.NetworkPolicy{
		Key:  cluster.Key{Namespace: fmt.Sprint("ns", i%benchNamespaces), Name: fmt.Sprint("policy", i)},
		Pods: cluster.Selector{Labels: map[string]string{"app": fmt.Sprint("app", i/benchNamespaces)}}, Ingress: true,
	}
	for rule := range 3 {
		values := map[string]bool{}
		for len(values) < 3 {
			values[fmt.Sprint("v", r.IntN(16))] = true
		}
		q := cluster.Requirement{Label: fmt.Sprint("l", r.IntN(5)), Operator: cluster.In}
		for v := range values {
			q.Values = append(q.Values, v)
		}
		p.IngressRules = append(p.IngressRules, cluster.PolicyRule{
			Peers: []cluster.PolicyPeer{{
				Namespaces: &cluster.Selector{Labels: map[string]string{"team": fmt.Sprint("t", r.IntN(10))}},
				Pods:       &cluster.Selector{Requirements: []cluster.Requirement{q}},
			}},
			Ports: []cluster.PolicyPort{{Protocol: cluster.TCP, Number: uint16(8000 + rule), End: uint16(8000 + rule)}},
		})
	}
	return p
}

// everything compiles the whole model.
func everything(store *cluster.Store, c *Compiler) (d *ruleset.Delta) {
	store.View(func(v *cluster.View) { d = c.Apply(v, &cluster.Changes{Everything: true}) })
	return d
}

// BenchmarkFull compiles the cluster anew. It reports the heap that the Compiler takes beside the Store,
// for each Pod and each element.
func BenchmarkFull(b *testing.B) {
	store := benchCluster()
	before := heapInUse()
	c := New(benchConfig)
	everything(store, c)
	heap, stats := float64(heapInUse()-before), c.Stats()
	b.ReportAllocs()
	for b.Loop() {
		everything(store, New(benchConfig))
	}
	b.ReportMetric(heap/(1<<20), "MiB/heap")
	b.ReportMetric(heap/float64(stats.Elements), "B/element")
	b.ReportMetric(heap/float64(stats.Pods), "B/Pod")
	b.ReportMetric(float64(stats.Elements), "elements")
	b.ReportMetric(float64(stats.Groups), "groups")
	runtime.KeepAlive(c)
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// change changes one object back and forth, and reports how many elements change in the mean.
func change(b *testing.B, store *cluster.Store, c *Compiler, versions ...cluster.Object) {
	b.Helper()
	feed := store.Subscribe()
	feed.Pending()
	b.Cleanup(feed.Close)
	b.ReportAllocs()
	elements, i := 0, 0
	var took time.Duration
	for b.Loop() {
		o := versions[i%len(versions)]
		store.Update(func(tx *cluster.Tx) { tx.Put(o) })
		i++
		changes := feed.Pending()
		store.View(func(v *cluster.View) {
			begin := time.Now()
			for _, e := range c.Apply(v, &changes).Elements {
				elements += len(e.Add) + len(e.Remove)
			}
			took += time.Since(begin)
		})
	}
	b.ReportMetric(float64(elements)/float64(i), "elements/op")
	b.ReportMetric(float64(took.Nanoseconds())/float64(i), "ns/Apply")
}

func BenchmarkChange(b *testing.B) {
	store := benchCluster()
	c := New(benchConfig)
	everything(store, c)
	pods := make(map[string]*cluster.Pod)
	store.View(func(v *cluster.View) {
		pods["Local"] = v.Pod(cluster.Key{Namespace: "ns7", Name: "pod-7"})
		pods["Remote"] = v.Pod(cluster.Key{Namespace: "ns7", Name: "pod-107"})
	})
	for where, p := range pods {
		with := func(change func(*cluster.Pod)) *cluster.Pod {
			other := *p
			other.Labels = maps.Clone(p.Labels)
			change(&other)
			return &other
		}
		b.Run("PeerLabelOf"+where, func(b *testing.B) {
			change(b, store, c, with(func(p *cluster.Pod) { p.Labels["l0"] = "v0" }), with(func(p *cluster.Pod) { p.Labels["l0"] = "v1" }))
		})
		b.Run("SubjectLabelOf"+where, func(b *testing.B) {
			change(b, store, c, with(func(p *cluster.Pod) { p.Labels["app"] = "app1" }), p)
		})
		b.Run("OtherLabelOf"+where, func(b *testing.B) {
			change(b, store, c, with(func(p *cluster.Pod) { p.Labels["x"] = "1" }), p)
		})
		b.Run("ReadinessOf"+where, func(b *testing.B) {
			change(b, store, c, with(func(p *cluster.Pod) { p.Ready = true }), p)
		})
		b.Run("AddressOf"+where, func(b *testing.B) { // as of a Pod that starts
			change(b, store, c, with(func(p *cluster.Pod) { p.IPs = nil }), p)
		})
	}
	b.Run("Namespace", func(b *testing.B) { // of 100 Pods
		ns := func(team string) cluster.Object {
			return &cluster.Namespace{Name: "ns7", Labels: map[string]string{"team": team}}
		}
		change(b, store, c, ns("t1"), ns("t7"))
	})
	b.Run("Policy", func(b *testing.B) {
		r := &random{rand.New(rand.NewPCG(1, 2))}
		change(b, store, c, benchPolicy(r, 7), benchPolicy(r, 7))
	})
}

// BenchmarkJudge judges flows between Pods as after a change.
func BenchmarkJudge(b *testing.B) {
	c := New(benchConfig)
	everything(benchCluster(), c)
	r := &random{rand.New(rand.NewPCG(1, 3))}
	addr := func(pods int) netip.Addr {
		n := 1 + r.IntN(pods)
		return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})
	}
	packets := make([]ruleset.Packet, 20_000)
	for i := range packets {
		packets[i] = ruleset.Packet{
			Source: addr(benchPods), Destination: addr(benchPods / 10), Protocol: ruleset.TCP, DestinationPort: uint16(8000 + r.IntN(3)),
		}
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		ruleset.Judge(c, packets[i%len(packets)], nil)
		i++
	}
}

// BenchmarkLargeNamespace relabels a Namespace of 5,000 Pods of which each is in five groups.
func BenchmarkLargeNamespace(b *testing.B) {
	store := cluster.NewStore()
	ns := func(team string) cluster.Object {
		return &cluster.Namespace{Name: "large", Labels: map[string]string{"team": team}}
	}
	store.Update(func(tx *cluster.Tx) {
		addr := netip.MustParseAddr("10.0.0.1")
		for i := range 5000 {
			tx.Put(&cluster.Pod{Key: cluster.Key{Namespace: "large", Name: strconv.Itoa(i)}, IPs: []netip.Addr{addr}, Node: "n2"})
			addr = addr.Next()
		}
		tx.Put(&cluster.Pod{Key: cluster.Key{Namespace: "here", Name: "a"}, IPs: []netip.Addr{addr}, Node: "n1"})
		p := &cluster.NetworkPolicy{Key: cluster.Key{Namespace: "here", Name: "p"}, Ingress: true}
		for i := range 5 {
			p.IngressRules = append(p.IngressRules, cluster.PolicyRule{
				Peers: []cluster.PolicyPeer{{
					Namespaces: &cluster.Selector{Labels: map[string]string{"team": "a"}},
					Pods:       &cluster.Selector{Requirements: []cluster.Requirement{{Label: strconv.Itoa(i), Operator: cluster.DoesNotExist}}},
				}},
				Ports: []cluster.PolicyPort{{Protocol: cluster.TCP, Number: uint16(i + 1), End: uint16(i + 1)}},
			})
		}
		tx.Put(p)
		tx.Put(ns("a"))
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
	})
	c := New(benchConfig)
	everything(store, c)
	change(b, store, c, ns("b"), ns("a"))
}

// longestWay returns the largest number of rules that a packet to one of the policies' ports passes.
func longestWay(c *Compiler) (most int) {
	pod, _ := c.Pod(netip.MustParseAddr("10.0.0.1"))
	for port := range uint16(benchPolicies + 1) {
		n := 0
		for chain := c.Chain(pod.Ingress); chain != nil; {
			rules := chain.Rules
			chain = nil
			for i := range rules {
				n++
				in := func(p ruleset.Ports) bool { return p.Protocol == ruleset.TCP && p.First <= port && port <= p.Last }
				if rules[i].Action == ruleset.Goto && (len(rules[i].Ports) == 0 || slices.ContainsFunc(rules[i].Ports, in)) {
					chain = c.Chain(rules[i].Chain)
					break
				}
			}
		}
		most = max(most, n)
	}
	return most
}

// BenchmarkManyPolicies has 1,000 policies select a Pod, whose label changes. It reports the number of
// rules that a packet passes.
func BenchmarkManyPolicies(b *testing.B) {
	for name, distinct := range map[string]int{"EqualPorts": 1, "TenPorts": 10, "DistinctPorts": benchPolicies} {
		b.Run(name, func(b *testing.B) {
			store := cluster.NewStore()
			p := &cluster.Pod{
				Key: cluster.Key{Namespace: "a", Name: "a"}, Node: "n1", Labels: map[string]string{"app": "a"},
				IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
			}
			other := *p
			other.Labels = nil
			store.Update(func(tx *cluster.Tx) {
				tx.Put(p)
				for i := range benchPolicies {
					port := uint16(1 + i%distinct)
					tx.Put(&cluster.NetworkPolicy{
						Key: cluster.Key{Namespace: "a", Name: fmt.Sprint("p", i)}, Pods: cluster.Selector{Labels: p.Labels}, Ingress: true,
						IngressRules: []cluster.PolicyRule{{
							Peers: []cluster.PolicyPeer{{Pods: &cluster.Selector{Labels: map[string]string{"peer": strconv.Itoa(i)}}}},
							Ports: []cluster.PolicyPort{{Protocol: cluster.TCP, Number: port, End: port}},
						}},
					})
				}
				tx.SetFreshness(cluster.Live, cluster.Kinds()...)
			})
			c := New(benchConfig)
			everything(store, c)
			rules := longestWay(c)
			change(b, store, c, &other, p)
			b.ReportMetric(float64(rules), "rules")
		})
	}
}
