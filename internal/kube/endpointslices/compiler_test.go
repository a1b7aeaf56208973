package endpointslices_test

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/endpointslices"
)

// TestConditions checks the page EndpointSlices, "Conditions".
func TestConditions(t *testing.T) {
	publish := func(s *cluster.Service) { s.PublishNotReady = true }
	terminating := func(p *cluster.Pod) { p.Deleting = true }
	unready := func(p *cluster.Pod) { p.Ready = false }
	for claim, tt := range map[string]struct {
		service *cluster.Service
		pod     *cluster.Pod
		want    string // ready, serving, terminating; empty for no endpoint
	}{
		"a ready Pod is ready and serving":                   {web(), pod(1), "true true false"},
		"an unready Pod is neither":                          {web(), pod(1, unready), "false false false"},
		"a terminating Pod is never ready, but serving":      {web(), pod(1, terminating), "false true true"},
		"a terminating Pod that is unready serves no more":   {web(), pod(1, terminating, unready), "false false true"},
		"published, an unready Pod is ready and not serving": {web(publish), pod(1, unready), "true false false"},
		"published, a terminating Pod is ready":              {web(publish), pod(1, terminating), "true true true"},
		"a Pod that ended has no endpoint":                   {web(), pod(1, func(p *cluster.Pod) { p.Finished = true }), ""},
		"a Pod without addresses has no endpoint":            {web(), pod(1, func(p *cluster.Pod) { p.IPs = nil }), ""},
		"a Pod of other labels has no endpoint":              {web(), pod(1, func(p *cluster.Pod) { p.Labels = map[string]string{"app": "db"} }), ""},
		"a Pod of another Namespace has no endpoint":         {web(), pod(1, func(p *cluster.Pod) { p.Namespace = "else" }), ""},
	} {
		t.Run(claim, func(t *testing.T) {
			conditions := func(m *model) string {
				var got strings.Builder
				for _, s := range m.Slices(webKey) {
					for _, e := range s.Endpoints {
						fmt.Fprintf(&got, "%t %t %t", *e.Conditions.Ready, *e.Conditions.Serving, *e.Conditions.Terminating)
					}
				}
				return got.String()
			}
			m := newModel(t, func(tx *cluster.Tx) { tx.Put(tt.service); tx.Put(tt.pod) })
			if got := conditions(m); got != tt.want {
				t.Errorf("Complete: conditions %q, want %q", got, tt.want)
			}
		})
	}
}

// TestSlicesOfServices checks the slices of a Service (page EndpointSlices, and
// "IPv4/IPv6 dual-stack").
func TestSlicesOfServices(t *testing.T) {
	named := func(s *cluster.Service) { s.Targets = []string{"web"} }
	port := func(n uint16) func(*cluster.Pod) {
		return func(p *cluster.Pod) {
			p.Spec = &cluster.PodSpec{Ports: []cluster.Port{{Name: "web", Protocol: cluster.TCP, Number: n}}}
		}
	}
	dual := func(s *cluster.Service) { s.Spec.Families = []cluster.AddressType{cluster.IPv4, cluster.IPv6} }
	six := func(p *cluster.Pod) { p.IPs = append(p.IPs, netip.MustParseAddr("2001:db8::1")) }
	for claim, tt := range map[string]struct {
		service *cluster.Service
		pods    []*cluster.Pod
		want    []string // family, ports, Pods
	}{
		"a Service without Pods has a slice without endpoints": {web(), nil, []string{"IPv4 [] []"}},
		"a numeric target is the port of the slice":            {web(), []*cluster.Pod{pod(1), pod(2)}, []string{"IPv4 [http TCP 8080] [web-001 web-002]"}},
		"without a target it is the Service's own": {web(func(s *cluster.Service) { s.Targets = nil }),
			[]*cluster.Pod{pod(1)}, []string{"IPv4 [http TCP 80] [web-001]"}},
		"a named target that differs by Pod gives two slices": {web(named), []*cluster.Pod{pod(1, port(80)), pod(2, port(81)), pod(3, port(80))},
			[]string{"IPv4 [http TCP 80] [web-001 web-003]", "IPv4 [http TCP 81] [web-002]"}},
		"a named target that a Pod has not is left out": {web(named), []*cluster.Pod{pod(1)}, []string{"IPv4 [] [web-001]"}},
		"two families give two slices": {web(dual), []*cluster.Pod{pod(1, six), pod(2)},
			[]string{"IPv4 [http TCP 8080] [web-001 web-002]", "IPv6 [http TCP 8080] [web-001]"}},
		"a Service without selector gets none":       {web(func(s *cluster.Service) { s.Selector = nil }), []*cluster.Pod{pod(1)}, nil},
		"a Service with an empty selector gets none": {web(func(s *cluster.Service) { s.Selector = map[string]string{} }), []*cluster.Pod{pod(1)}, nil},
		"an external name gets none": {web(func(s *cluster.Service) {
			s.ExternalName, s.Spec.Type = "example.com", cluster.ExternalName
		}), []*cluster.Pod{pod(1)}, nil},
		"a headless Service without ports gets slices without": {web(func(s *cluster.Service) {
			s.Headless, s.ClusterIPs, s.Ports, s.Targets = true, nil, nil, nil
		}), []*cluster.Pod{pod(1)}, []string{"IPv4 [] [web-001]"}},
	} {
		t.Run(claim, func(t *testing.T) {
			m := newModel(t, func(tx *cluster.Tx) {
				tx.Put(tt.service)
				for _, p := range tt.pods {
					tx.Put(p)
				}
			})
			var got []string
			for _, s := range m.Slices(webKey) {
				var ports, pods []string
				for _, p := range s.Ports {
					ports = append(ports, fmt.Sprintf("%s %s %d", *p.Name, *p.Protocol, *p.Port))
				}
				for _, e := range s.Endpoints {
					pods = append(pods, e.TargetRef.Name)
				}
				got = append(got, fmt.Sprintf("%s %v %v", s.AddressType, ports, pods))
			}
			slices.Sort(got)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Complete: slices (-want +got):\n%s", diff)
			}
		})
	}
}

// TestHostname checks that an endpoint has its Pod's hostname if the Pod's subdomain is
// the Service (DNS for Services and Pods, "Pod's hostname and subdomain fields").
func TestHostname(t *testing.T) {
	for claim, tt := range map[string]struct {
		spec *cluster.PodSpec
		want string
	}{
		"of the Service's subdomain it is": {&cluster.PodSpec{Hostname: "one", Subdomain: "web"}, "hostname one "},
		"of another it is not":             {&cluster.PodSpec{Hostname: "one", Subdomain: "db"}, "hostname - "},
		"without a subdomain it is not":    {&cluster.PodSpec{Hostname: "one"}, "hostname - "},
		"without a hostname there is none": {&cluster.PodSpec{Subdomain: "web"}, "hostname - "},
	} {
		t.Run(claim, func(t *testing.T) {
			named := pod(1, func(p *cluster.Pod) { p.Spec = tt.spec })
			m := newModel(t, func(tx *cluster.Tx) { tx.Put(web()); tx.Put(named) })
			if got := m.endpoints(); len(got) != 1 || !strings.Contains(got[0], tt.want) {
				t.Errorf("Complete: endpoints %q, want one with %q", got, tt.want)
			}
		})
	}
}

// TestDistribution checks the page EndpointSlices, "Distribution of EndpointSlices".
// Each step is a transaction.
func TestDistribution(t *testing.T) {
	m := newModel(t, func(tx *cluster.Tx) { tx.Put(web()); putPods(tx, 0, 200) })
	step := func(claim string, change func(tx *cluster.Tx), want ...int) {
		t.Helper()
		m.update(change)
		if diff := cmp.Diff(want, m.sizes()); diff != "" {
			t.Fatalf("%s: sizes of slices (-want +got):\n%s", claim, diff)
		}
	}
	step("100 a slice", func(*cluster.Tx) {}, 100, 100)
	five := func(s *discoveryv1.EndpointSlice, tx *cluster.Tx) {
		for _, e := range s.Endpoints[:5] {
			tx.Delete(cluster.KindPod, cluster.Key{Namespace: "shop", Name: e.TargetRef.Name})
		}
	}
	before := m.Slices(webKey)
	step("Pods that went leave room", func(tx *cluster.Tx) { five(before[0], tx); five(before[1], tx) }, 95, 95)
	step("10 new endpoints and 2 slices with room for 5 each: a new slice", func(tx *cluster.Tx) { putPods(tx, 300, 310) }, 10, 95, 95)
	step("5 new endpoints fill the slice that is full with them", func(tx *cluster.Tx) { putPods(tx, 310, 315) }, 10, 95, 100)
	step("a slice that changes anyway takes new endpoints first", func(tx *cluster.Tx) {
		i := slices.IndexFunc(m.Slices(webKey), func(s *discoveryv1.EndpointSlice) bool { return len(s.Endpoints) == 10 })
		tx.Delete(cluster.KindPod, cluster.Key{Namespace: "shop", Name: m.Slices(webKey)[i].Endpoints[0].TargetRef.Name})
		putPods(tx, 320, 323)
	}, 12, 95, 100)
	step("a slice without endpoints goes", func(tx *cluster.Tx) {
		for p := range maps.Values(maps.Collect(podsIn(m, 12))) {
			tx.Delete(cluster.KindPod, p)
		}
	}, 95, 100)
	step("without Pods one empty slice stays", func(tx *cluster.Tx) {
		for p := range maps.Values(maps.Collect(podsIn(m, 0))) {
			tx.Delete(cluster.KindPod, p)
		}
	}, 0)
}

// podsIn are the Pods of slices with so many endpoints, 0 for all.
func podsIn(m *model, endpoints int) func(func(string, cluster.Key) bool) {
	return func(yield func(string, cluster.Key) bool) {
		for _, s := range m.Slices(webKey) {
			for _, e := range s.Endpoints {
				if (endpoints == 0 || len(s.Endpoints) == endpoints) && !yield(e.TargetRef.Name, cluster.Key{Namespace: "shop", Name: e.TargetRef.Name}) {
					return
				}
			}
		}
	}
}

// TestMaxEndpoints checks the setting for the maximum number of endpoints per slice.
func TestMaxEndpoints(t *testing.T) {
	for most, want := range map[int][]int{0: {50, 100}, 1000: {150}, 60: {30, 60, 60}} {
		m := &model{cluster.NewStore(), newCompiler(t, most)}
		m.update(func(tx *cluster.Tx) {
			tx.Put(web())
			putPods(tx, 0, 150)
			tx.SetFreshness(cluster.Live, cluster.Kinds()...)
		})
		if diff := cmp.Diff(want, m.sizes()); diff != "" {
			t.Errorf("MaxEndpoints %d: sizes of slices (-want +got):\n%s", most, diff)
		}
	}
	for _, most := range []int{-1, 1001} {
		if err := (endpointslices.Config{MaxEndpoints: most}).Validate(); err == nil {
			t.Errorf("Validate of MaxEndpoints %d: no error", most)
		}
	}
}

// TestLabels checks that slices have their Service's labels and name, and the label of
// their manager (page EndpointSlices, "Management" and "Ownership").
func TestLabels(t *testing.T) {
	labeled := web(func(s *cluster.Service) {
		s.Spec.Labels = map[string]string{"team": "a", "kubernetes.io/service-name": "other"}
		s.Spec.UID = "uid-1"
	})
	m := newModel(t, func(tx *cluster.Tx) { tx.Put(labeled); tx.Put(pod(1)) })
	check := func(want map[string]string) {
		t.Helper()
		for _, s := range m.Slices(webKey) {
			if diff := cmp.Diff(want, s.Labels); diff != "" || s.OwnerReferences[0].Name != "web" || s.OwnerReferences[0].UID != "uid-1" {
				t.Errorf("owners %v, labels (-want +got):\n%s", s.OwnerReferences, diff)
			}
		}
	}
	check(map[string]string{"team": "a", "kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"})
	m.update(func(tx *cluster.Tx) { tx.Put(web(func(s *cluster.Service) { s.Spec.UID = "uid-1" })) })
	check(map[string]string{"kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"})
}

// TestDeclaredSlicesReplaceGeneratedOnes checks that a Service with declared slices has
// no generated ones.
func TestDeclaredSlicesReplaceGeneratedOnes(t *testing.T) {
	declared := &cluster.EndpointSlice{
		Key: cluster.Key{Namespace: "shop", Name: "by-hand"}, Service: "web", AddressType: cluster.IPv4,
		Endpoints: []cluster.Endpoint{{Addr: netip.MustParseAddr("192.0.2.1"), Ready: true}},
	}
	m := newModel(t, func(tx *cluster.Tx) { tx.Put(web()); tx.Put(pod(1)) })
	ours := m.names()
	check := func(claim string, stored []string, made int) {
		t.Helper()
		if diff := cmp.Diff(stored, m.names()); diff != "" || len(m.Slices(webKey)) != made {
			t.Errorf("%s: %d slices made, want %d; in the store (-want +got):\n%s", claim, len(m.Slices(webKey)), made, diff)
		}
	}
	check("none declared", ours, 1)
	m.update(func(tx *cluster.Tx) { tx.Put(declared) })
	check("one declared", []string{"by-hand"}, 0)
	m.update(func(tx *cluster.Tx) { tx.Put(pod(2)); tx.Put(pod(1, func(p *cluster.Pod) { p.Ready = false })) })
	check("Pods change", []string{"by-hand"}, 0)
	m.update(func(tx *cluster.Tx) { tx.Delete(cluster.KindEndpointSlice, declared.Key) })
	check("the declared went", ours, 1)
	if got := m.sizes(); !slices.Equal(got, []int{2}) {
		t.Errorf("the declared went: sizes of slices %v, want [2]", got)
	}
	m.update(func(tx *cluster.Tx) { tx.Delete(cluster.KindService, webKey) })
	check("the Service went", nil, 0)
}

// TestRecalledSlicesAreRegenerated checks that slices generated before a restart, which
// the source deletes because they are not declared, are generated again with the same
// names, and that declared ones are retained, whatever their names.
func TestRecalledSlicesAreRegenerated(t *testing.T) {
	before := newModel(t, func(tx *cluster.Tx) { tx.Put(web()); putPods(tx, 0, 150) })
	recalled := before.stored(webKey)
	recall := func(s *cluster.Store) {
		s.Update(func(tx *cluster.Tx) {
			for _, s := range recalled {
				tx.Put(s)
			}
			tx.SetFreshness(cluster.Recalled, cluster.KindEndpointSlice)
		})
	}
	m := &model{cluster.NewStore(), newCompiler(t, 0)}
	recall(m.Store)
	m.update(func(tx *cluster.Tx) {
		for _, s := range recalled {
			tx.Delete(cluster.KindEndpointSlice, s.Key)
		}
		tx.Put(web())
		putPods(tx, 0, 50)
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
	})
	if got := m.names(); len(got) != 1 || !slices.Contains(before.names(), got[0]) || !slices.Equal(m.sizes(), []int{50}) {
		t.Errorf("after a restart: slices %v of %v endpoints, want one of %v with 50", got, m.sizes(), before.names())
	}

	m = &model{cluster.NewStore(), newCompiler(t, 0)}
	recall(m.Store)
	declared := *recalled[0]
	m.update(func(tx *cluster.Tx) {
		tx.Delete(cluster.KindEndpointSlice, recalled[1].Key)
		tx.Put(&declared)
		tx.Put(web())
		tx.Put(pod(1))
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
	})
	if got := m.names(); !slices.Equal(got, []string{declared.Name}) || len(m.stored(webKey)[0].Endpoints) != len(declared.Endpoints) {
		t.Errorf("with a slice that was recalled and is declared: slices %v of %v endpoints, want just that", got, m.sizes())
	}
}

// TestZonesOfNodes checks that endpoints have their Node's zone, and that a Pod on a
// missing Node is omitted until it exists, unless there are no Nodes.
func TestZonesOfNodes(t *testing.T) {
	on := func(node string) func(*cluster.Pod) { return func(p *cluster.Pod) { p.Node = node } }
	m := newModel(t, func(tx *cluster.Tx) {
		tx.Put(web())
		tx.Put(pod(1, on("a")))
		tx.Put(pod(2, on("b")))
		tx.Put(pod(3))
	})
	check := func(claim string, want ...string) {
		t.Helper()
		var got []string
		for _, line := range m.endpoints() {
			_, line, _ = strings.Cut(line, " node ")
			line, _, _ = strings.Cut(line, " of ")
			got = append(got, line)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: endpoints (-want +got):\n%s", claim, diff)
		}
	}
	check("no Node is declared", "a zone -", "b zone -", "- zone -")
	m.update(func(tx *cluster.Tx) { tx.Put(&cluster.Node{Name: "a", Zone: "north"}) })
	check("one is", "a zone north", "- zone -")
	m.update(func(tx *cluster.Tx) { tx.Put(pod(2, on("b"), func(p *cluster.Pod) { p.Ready = false })) })
	check("a Pod changes whose Node is not there", "a zone north", "- zone -")
	m.update(func(tx *cluster.Tx) { tx.Put(&cluster.Node{Name: "b"}) })
	check("its Node comes", "a zone north", "b zone -", "- zone -")
	m.update(func(tx *cluster.Tx) { tx.Put(&cluster.Node{Name: "a", Zone: "south"}) })
	check("a Node moves", "a zone south", "b zone -", "- zone -")
	m.update(func(tx *cluster.Tx) {
		tx.Delete(cluster.KindNode, cluster.Key{Name: "a"})
		tx.Put(web(func(s *cluster.Service) { s.PublishNotReady = true }))
	})
	check("published, a Pod stays whose Node went", "a zone -", "b zone -", "- zone -")
}

// TestResultIsIndependentOfOrder checks that the slices do not depend on the order of
// objects, including their names and the distribution of endpoints.
func TestResultIsIndependentOfOrder(t *testing.T) {
	var want []*discoveryv1.EndpointSlice
	for range 5 {
		m := newModel(t, func(tx *cluster.Tx) {
			for i := range 40 { // enough for all processors
				tx.Put(web(func(s *cluster.Service) {
					s.Name, s.Selector = fmt.Sprintf("other-%d", i), map[string]string{"app": "other"}
				}))
			}
			tx.Put(web(func(s *cluster.Service) {
				s.Spec.Families = []cluster.AddressType{cluster.IPv6, cluster.IPv4}
				s.Targets = []string{"web"}
			}))
			for i := range 330 {
				tx.Put(pod(i, func(p *cluster.Pod) {
					p.IPs = append(p.IPs, netip.AddrFrom16([16]byte{0x20, 1, 14: byte(i >> 8), 15: byte(i)}))
					p.Spec = &cluster.PodSpec{Ports: []cluster.Port{{Name: "web", Protocol: cluster.TCP, Number: 80 + uint16(i%2)}}}
				}))
			}
		})
		got := m.Slices(webKey)
		if want == nil {
			want = got
		}
		if diff := cmp.Diff(want, got); diff != "" || len(got) != 8 {
			t.Fatalf("%d slices, want 8 (-first +now):\n%s", len(got), diff)
		}
		form := regexp.MustCompile(`^web-[bcdfghjklmnpqrstvwxz2456789]{5}$`)
		for _, s := range got {
			if !form.MatchString(s.Name) {
				t.Errorf("a slice is called %q, want %s", s.Name, form)
			}
		}
	}
}

// TestLongNameIsTruncated checks that a generated name stays valid (k8s.io/apiserver,
// names).
func TestLongNameIsTruncated(t *testing.T) {
	long := web(func(s *cluster.Service) { s.Name = strings.Repeat("a", 63) })
	m := newModel(t, func(tx *cluster.Tx) { tx.Put(long); tx.Put(pod(1)) })
	made := m.Slices(long.Key)
	if len(made) != 1 || len(made[0].Name) != 63 || !strings.HasPrefix(made[0].Name, strings.Repeat("a", 58)) {
		t.Errorf("slices %v, want one with a name of 63 bytes", made)
	}
}

// TestCompleteIsIdempotent checks that a second Complete changes nothing, with and
// without changes of all objects.
func TestCompleteIsIdempotent(t *testing.T) {
	m := &model{cluster.NewStore(), newCompiler(t, 0)}
	m.update(func(tx *cluster.Tx) {
		tx.Put(web())
		putPods(tx, 0, 150)
		tx.SetFreshness(cluster.Live, cluster.KindsOfNames()...)
	})
	before, version := m.Slices(webKey), m.Version()
	m.update(func(*cluster.Tx) {})
	m.update(func(tx *cluster.Tx) { putPods(tx, 0, 150) })
	if m.Version() != version {
		t.Error("what is there already was a change")
	}
	m.update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Live, cluster.KindNetworkPolicy) })
	if diff := cmp.Diff(before, m.Slices(webKey)); diff != "" {
		t.Errorf("after a look at everything (-before +after):\n%s", diff)
	}
	m.update(func(tx *cluster.Tx) {
		tx.Delete(cluster.KindService, webKey)
		tx.SetFreshness(cluster.Live, cluster.KindDeployment)
	})
	if got := m.names(); len(got) != 0 {
		t.Errorf("a Service went while everything changed: slices %v, want none", got)
	}
}

// TestConcurrentReaders checks that slices may be read while others are generated.
func TestConcurrentReaders(t *testing.T) {
	m := newModel(t, func(tx *cluster.Tx) { tx.Put(web()); putPods(tx, 0, 20) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 200 {
			m.update(func(tx *cluster.Tx) { tx.Put(pod(i%30, func(p *cluster.Pod) { p.Ready = i%2 == 0 })) })
		}
	}()
	for finished := false; !finished; {
		select {
		case <-done:
			finished = true
		default:
		}
		for _, line := range m.endpoints() {
			if !strings.Contains(line, " of Pod shop/web-0") {
				t.Errorf("read the endpoint %q", line)
			}
		}
	}
}

// TestNoSlicesWhileLoading checks that no slices are generated while Pods may be
// missing.
func TestNoSlicesWhileLoading(t *testing.T) {
	m := &model{cluster.NewStore(), newCompiler(t, 0)}
	m.update(func(tx *cluster.Tx) {
		tx.Put(web())
		tx.SetFreshness(cluster.Live, cluster.KindService, cluster.KindEndpointSlice, cluster.KindNode)
	})
	if got := m.names(); len(got) != 0 {
		t.Errorf("slices %v while Pods are not loaded, want none", got)
	}
	m.update(func(tx *cluster.Tx) { tx.Put(pod(1)); tx.SetFreshness(cluster.Live, cluster.KindPod) })
	if got := m.sizes(); !slices.Equal(got, []int{1}) {
		t.Errorf("sizes of slices %v when all is loaded, want [1]", got)
	}
}
