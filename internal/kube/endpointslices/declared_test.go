package endpointslices_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/endpointslices"
)

// edited is a slice that was made for web, as it is declared when somebody took
// it and changed its address.
func edited(s *cluster.EndpointSlice) *cluster.EndpointSlice {
	now := *s
	now.Endpoints = []cluster.Endpoint{{Addr: netip.MustParseAddr("192.0.2.1"), Pod: "web-001", Ready: true}}
	return &now
}

// stored are the slices of a Service in the Store.
func (m *model) stored(service cluster.Key) (all []*cluster.EndpointSlice) {
	m.View(func(v *cluster.View) { all = slices.Clone(v.SlicesOf(service)) })
	return all
}

// TestDeclaredSliceLikeGeneratedOne checks that a declared slice replaces the generated
// one even if it has the same name and labels, and that the generated one is restored
// when it is deleted.
func TestDeclaredSliceLikeGeneratedOne(t *testing.T) {
	full := func(tx *cluster.Tx) {
		tx.Put(web())
		putPods(tx, 0, 150)
		for i := range 20 { // enough that they are many
			tx.Put(web(func(s *cluster.Service) {
				s.Name, s.Selector = fmt.Sprintf("one-%d", i), map[string]string{"app": "one"}
			}))
		}
	}
	made := newModel(t, full).stored(webKey)
	declared := edited(made[1])
	elsewhere := edited(made[1])
	elsewhere.Service = "other"
	nobodys := edited(made[1])
	nobodys.Service = ""
	put := func(s *cluster.EndpointSlice) func(tx *cluster.Tx) {
		return func(tx *cluster.Tx) { tx.Put(s) }
	}
	for claim, tt := range map[string]struct {
		first, then func(tx *cluster.Tx)
		counts      *cluster.EndpointSlice
		sizes       []int // of what is made
	}{
		"declared from the first":                     {put(declared), nil, declared, nil},
		"declared later":                              {nil, put(declared), declared, nil},
		"declared later, while all is looked at":      {nil, func(tx *cluster.Tx) { full(tx); tx.Put(declared) }, declared, nil},
		"of another Service, from the first":          {put(elsewhere), nil, elsewhere, []int{50, 100}},
		"of another Service, later":                   {nil, put(elsewhere), elsewhere, []int{50, 100}},
		"of no Service, from the first":               {put(nobodys), nil, nobodys, []int{50, 100}},
		"of no Service, later":                        {nil, put(nobodys), nobodys, []int{50, 100}},
		"Pods change that have declared ones":         {put(declared), func(tx *cluster.Tx) { tx.Delete(cluster.KindPod, pod(3).Key) }, declared, nil},
		"Pods change beside one of another Service":   {put(elsewhere), func(tx *cluster.Tx) { tx.Delete(cluster.KindPod, pod(3).Key) }, elsewhere, []int{50, 99}},
		"the Service changes that has declared ones":  {put(declared), func(tx *cluster.Tx) { tx.Put(web(func(s *cluster.Service) { s.PublishNotReady = true })) }, declared, nil},
		"the Service goes whose declared ones stay":   {put(declared), func(tx *cluster.Tx) { tx.Delete(cluster.KindService, webKey) }, declared, nil},
		"the Service goes and one of another's stays": {put(elsewhere), func(tx *cluster.Tx) { tx.Delete(cluster.KindService, webKey) }, elsewhere, nil},
	} {
		t.Run(claim, func(t *testing.T) {
			m := newModel(t, func(tx *cluster.Tx) {
				full(tx)
				if tt.first != nil {
					tt.first(tx)
				}
			})
			if tt.then != nil {
				m.update(tt.then)
			}
			service := cluster.Key{Namespace: "shop", Name: tt.counts.Service}
			if got := m.find(tt.counts.Key); got != tt.counts {
				t.Errorf("at %s is %+v of %s, want what is declared", tt.counts.Key, got, service)
			}
			if got := m.sizes(); !slices.Equal(got, tt.sizes) {
				t.Errorf("made slices of %v endpoints, want %v", got, tt.sizes)
			}
			if got, want := len(m.stored(webKey)), max(len(tt.sizes), len(m.declaredFor(tt.counts))); got != want {
				t.Errorf("%d slices of web in the store, want %d", got, want)
			}
			m.update(func(tx *cluster.Tx) {
				tx.Delete(cluster.KindEndpointSlice, tt.counts.Key)
				tx.Delete(cluster.KindService, webKey)
				full(tx)
				tx.Put(pod(3))
			})
			if got := m.sizes(); !slices.Equal(got, []int{50, 100}) || len(m.stored(webKey)) != 2 {
				t.Errorf("taken away: slices of %v endpoints, %d in the store, want [50 100]", got, len(m.stored(webKey)))
			}
		})
	}
}

// find is the slice at key, or nil.
func (m *model) find(key cluster.Key) (found *cluster.EndpointSlice) {
	m.View(func(v *cluster.View) {
		for s := range v.EndpointSlices() {
			if s.Key == key {
				found = s
			}
		}
	})
	return found
}

// declaredFor is s if it is web's.
func (m *model) declaredFor(s *cluster.EndpointSlice) []*cluster.EndpointSlice {
	if s.Service != webKey.Name {
		return nil
	}
	return []*cluster.EndpointSlice{s}
}

// TestReplacementKeepsName checks that a generated slice that replaces another one has
// its name.
func TestReplacementKeepsName(t *testing.T) {
	m := newModel(t, func(tx *cluster.Tx) { tx.Put(web()); tx.Put(pod(1)) })
	before := m.names()
	m.update(func(tx *cluster.Tx) {
		tx.Put(web(func(s *cluster.Service) { s.Spec.Families = []cluster.AddressType{cluster.IPv6} }))
	})
	if diff := cmp.Diff(before, m.names()); diff != "" || m.stored(webKey)[0].AddressType != cluster.IPv6 {
		t.Errorf("of another family: slices %v (-before +after):\n%s", m.stored(webKey), diff)
	}
}

// TestDeclaredSliceEqualToGeneratedOne checks that a slice declared exactly as generated
// can be deleted by its name, and is generated again.
func TestDeclaredSliceEqualToGeneratedOne(t *testing.T) {
	m := newModel(t, func(tx *cluster.Tx) { tx.Put(web()); putPods(tx, 0, 150) })
	made := m.stored(webKey)
	same := *made[0]
	m.update(func(tx *cluster.Tx) { tx.Put(&same) })
	m.update(func(tx *cluster.Tx) { tx.Delete(cluster.KindEndpointSlice, same.Key) })
	m.update(func(tx *cluster.Tx) { tx.Delete(cluster.KindPod, pod(149).Key) })
	m.update(func(tx *cluster.Tx) { tx.Put(pod(149)) })
	if got := m.stored(webKey); len(got) != 2 || len(got[0].Endpoints)+len(got[1].Endpoints) != 150 {
		t.Errorf("taken away: %d slices, want 2 with 150 endpoints", len(got))
	}
}

// TestRandomDeclaredSlices checks that after any declarations and deletions of slices
// all declared ones are unchanged, and that a Service has either these or those
// generated for all its Pods.
func TestRandomDeclaredSlices(t *testing.T) {
	names := []string{"by-hand"}
	names = append(names, newModel(t, func(tx *cluster.Tx) { tx.Put(web()); putPods(tx, 0, 250) }).names()...)
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 0))
		declared := make(map[cluster.Key]*cluster.EndpointSlice)
		pods := make(map[string]bool)
		m := &model{cluster.NewStore(), newCompiler(t, 3)}
		for step := range 30 {
			m.update(func(tx *cluster.Tx) {
				if step == 5 {
					tx.SetFreshness(cluster.Live, cluster.Kinds()...)
				}
				tx.Put(web(func(s *cluster.Service) { s.PublishNotReady = r.IntN(8) == 0 }))
				for range r.IntN(4) {
					change(tx, r, names, declared, pods)
				}
			})
			if step < 5 {
				continue
			}
			checkDeclared(t, m, declared, pods)
			if t.Failed() {
				t.Fatalf("seed %d, step %d", seed, step)
			}
		}
	}
}

// change declares a slice or takes one away, or lets a Pod come or go.
func change(tx *cluster.Tx, r *rand.Rand, names []string, declared map[cluster.Key]*cluster.EndpointSlice, pods map[string]bool) {
	key := cluster.Key{Namespace: "shop", Name: names[r.IntN(len(names))]}
	p := pod(r.IntN(8))
	switch r.IntN(6) {
	case 0:
		s := edited(&cluster.EndpointSlice{
			Key: key, Service: []string{"web", "web", "other", ""}[r.IntN(4)], AddressType: cluster.IPv4, Spec: &cluster.SliceSpec{ManagedBy: endpointslices.ManagedBy},
		})
		tx.Put(s)
		declared[key] = s
	case 1, 2:
		if declared[key] != nil {
			tx.Delete(cluster.KindEndpointSlice, key)
			delete(declared, key)
		}
	case 3:
		tx.Delete(cluster.KindPod, p.Key)
		delete(pods, p.Name)
	default:
		tx.Put(p)
		pods[p.Name] = true
	}
}

func checkDeclared(t *testing.T, m *model, declared map[cluster.Key]*cluster.EndpointSlice, pods map[string]bool) {
	t.Helper()
	var ofWeb []string
	for key, s := range declared {
		if got := m.find(key); got == nil || got.Service != s.Service || !slices.Equal(got.Endpoints, s.Endpoints) {
			t.Errorf("at %s is %+v, want %+v as declared", key, got, s)
		}
		if s.Service == "web" {
			ofWeb = append(ofWeb, key.Name)
		}
	}
	if len(ofWeb) > 0 {
		slices.Sort(ofWeb)
		if diff := cmp.Diff(ofWeb, m.names()); diff != "" || len(m.Slices(webKey)) != 0 {
			t.Errorf("%d slices made; in the store (-declared +there):\n%s", len(m.Slices(webKey)), diff)
		}
		return
	}
	got := make(map[string]bool)
	for _, s := range m.stored(webKey) {
		for _, e := range s.Endpoints {
			if got[e.Pod] {
				t.Errorf("Pod %s has two endpoints", e.Pod)
			}
			got[e.Pod] = true
		}
	}
	if diff := cmp.Diff(pods, got); diff != "" {
		t.Errorf("endpoints of slices that are made (-Pods +endpoints):\n%s", diff)
	}
	var made []string
	for _, s := range m.Slices(webKey) {
		made = append(made, s.Name)
	}
	if diff := cmp.Diff(made, m.names()); diff != "" {
		t.Errorf("slices (-made +in the store):\n%s", diff)
	}
}

// TestInvalidHostnameIsOmitted checks that only a hostname that is not a label is
// omitted, and that this is logged once, however often the slice is written.
func TestInvalidHostnameIsOmitted(t *testing.T) {
	var log bytes.Buffer
	m := &model{cluster.NewStore(), endpointslices.New(endpointslices.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})}
	named := func(hostname string) func(*cluster.Pod) {
		return func(p *cluster.Pod) { p.Spec = &cluster.PodSpec{Hostname: hostname, Subdomain: "web"} }
	}
	check := func(claim string, told int, want map[string]string) {
		t.Helper()
		for _, of := range []map[string]string{m.hostnamesStored(), m.hostnamesMade()} {
			if diff := cmp.Diff(want, of); diff != "" {
				t.Errorf("%s: hostnames (-want +got):\n%s", claim, diff)
			}
		}
		got := strings.Count(log.String(), "level=WARN")
		if got != told || strings.Count(log.String(), "service=shop/web") != told || strings.Contains(log.String(), "level=ERROR") {
			t.Errorf("%s: told %d times, want %d, each with its Service:\n%s", claim, got, told, &log)
		}
	}
	m.update(func(tx *cluster.Tx) {
		tx.Put(web())
		tx.Put(pod(1, named("one")))
		tx.Put(pod(2, named("web.v1-0")))
		tx.Put(pod(4, func(p *cluster.Pod) { p.Spec = &cluster.PodSpec{Hostname: "a.b", Subdomain: "other"} }))
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
	})
	check("from the first", 1, map[string]string{"web-001": "one", "web-002": "", "web-004": ""})
	if !strings.Contains(log.String(), "pod=web-002") || !strings.Contains(log.String(), "web.v1-0") {
		t.Errorf("want the Pod and its hostname told:\n%s", &log)
	}
	m.update(func(tx *cluster.Tx) { tx.Put(pod(1)) })
	check("another Pod changes", 1, map[string]string{"web-001": "", "web-002": "", "web-004": ""})
	m.update(func(tx *cluster.Tx) {
		tx.Put(pod(2, named("web.v1-0"), func(p *cluster.Pod) { p.Ready = false }))
	})
	check("that Pod changes otherwise", 1, map[string]string{"web-001": "", "web-002": "", "web-004": ""})
	m.update(func(tx *cluster.Tx) { tx.Put(web(func(s *cluster.Service) { s.PublishNotReady = true })) })
	check("the Service changes", 1, map[string]string{"web-001": "", "web-002": "", "web-004": ""})
	m.update(func(tx *cluster.Tx) { tx.Put(pod(3, named("web.v1-1"))) })
	check("another comes", 2, map[string]string{"web-001": "", "web-002": "", "web-003": "", "web-004": ""})
	m.update(func(tx *cluster.Tx) { tx.Put(pod(3, named("three"))) })
	check("it is mended", 2, map[string]string{"web-001": "", "web-002": "", "web-003": "three", "web-004": ""})
	m.update(func(tx *cluster.Tx) { tx.Put(pod(3, named("web.v1-1"))) })
	check("and is refused again", 3, map[string]string{"web-001": "", "web-002": "", "web-003": "", "web-004": ""})
}

// TestInvalidAddressIsOmitted checks that only an address that endpoints cannot have is
// omitted.
func TestInvalidAddressIsOmitted(t *testing.T) {
	m := newModel(t, func(tx *cluster.Tx) {
		tx.Put(web(func(s *cluster.Service) { s.Spec.Families = []cluster.AddressType{cluster.IPv4, cluster.IPv6} }))
		tx.Put(pod(1))
		tx.Put(pod(2, func(p *cluster.Pod) { p.IPs = append(p.IPs, netip.MustParseAddr("fe80::1%eth0")) }))
		tx.Put(pod(3, func(p *cluster.Pod) { p.IPs = []netip.Addr{netip.MustParseAddr("::ffff:10.0.0.1")} }))
		tx.Put(pod(4, func(p *cluster.Pod) { p.IPs = append(p.IPs, netip.MustParseAddr("2001:db8::4")) }))
	})
	m.update(func(tx *cluster.Tx) { tx.Put(pod(5, func(p *cluster.Pod) { p.IPs = []netip.Addr{{}} })) })
	want := []string{"10.128.0.1", "10.128.0.2", "10.128.0.4", "2001:db8::4"}
	var got []string
	for _, s := range m.stored(webKey) {
		for _, e := range s.Endpoints {
			got = append(got, e.Addr.String())
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

// hostnamesStored are the hostnames of web's endpoints in the Store, by Pod.
func (m *model) hostnamesStored() map[string]string {
	names := make(map[string]string)
	for _, s := range m.stored(webKey) {
		for _, e := range s.Endpoints {
			names[e.Pod] = e.Hostname
		}
	}
	return names
}

// hostnamesMade are those of the slices that were made.
func (m *model) hostnamesMade() map[string]string {
	names := make(map[string]string)
	for _, s := range m.Slices(webKey) {
		for _, e := range s.Endpoints {
			names[e.TargetRef.Name] = ""
			if e.Hostname != nil {
				names[e.TargetRef.Name] = *e.Hostname
			}
		}
	}
	return names
}

// TestCompilerWithoutLog: a Compiler without a log makes slices all the same.
func TestCompilerWithoutLog(t *testing.T) {
	m := &model{cluster.NewStore(), endpointslices.New(endpointslices.Config{})}
	m.update(func(tx *cluster.Tx) {
		tx.Put(web())
		tx.Put(pod(1, func(p *cluster.Pod) { p.Spec = &cluster.PodSpec{Hostname: "a.b", Subdomain: "web"} }))
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
	})
	if got := slices.Collect(maps.Keys(m.hostnamesStored())); !slices.Equal(got, []string{"web-001"}) {
		t.Errorf("endpoints of %v, want of web-001", got)
	}
}
