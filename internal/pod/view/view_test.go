package view

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/policy/ruleset"
)

// shop returns a model with a Service, three Pods, of which one is not ready, and two policies.
func shop(t *testing.T, see func(*Model)) {
	t.Helper()
	shopWithout(t, cluster.KindServiceImport, see)
}

// shopWithout returns the model of shop, of which a kind is not read.
func shopWithout(t *testing.T, unread cluster.Kind, see func(*Model)) {
	t.Helper()
	store, web := cluster.NewStore(), cluster.Key{Namespace: "shop", Name: "web"}
	store.Update(func(tx *cluster.Tx) {
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
		tx.SetFreshness(cluster.Loading, unread)
		tx.Put(&cluster.Namespace{Name: "shop"})
		tx.Put(&cluster.Service{
			Key: web, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.7")}, Selector: map[string]string{"app": "web"},
			Ports: []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 80}},
			Spec:  &cluster.ServiceSpec{Type: cluster.NodePort, NodePorts: []uint16{30080}},
		})
		slice := &cluster.EndpointSlice{
			Key: web, Service: "web", AddressType: cluster.IPv4,
			Ports: []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 8080}},
		}
		for i, name := range []string{"web-0", "web-1", "web-2"} {
			at := netip.AddrFrom4([4]byte{10, 244, 0, byte(i)})
			tx.Put(&cluster.Pod{
				Key: cluster.Key{Namespace: "shop", Name: name}, IPs: []netip.Addr{at}, Labels: map[string]string{"app": "web"},
				Spec: new(cluster.PodSpec), Ready: i > 0,
			})
			slice.Endpoints = append(slice.Endpoints, cluster.Endpoint{
				Addr: at, Pod: name, Ready: i == 1, Serving: i > 0, Terminating: i == 2,
			})
		}
		tx.Put(slice)
		tx.Put(&cluster.NetworkPolicy{
			Key: web, Pods: cluster.Selector{Labels: map[string]string{"app": "web"}}, Ingress: true, Egress: true, Audit: true,
			IngressRules: []cluster.PolicyRule{{
				Peers: []cluster.PolicyPeer{
					{Pods: &cluster.Selector{Labels: map[string]string{"app": "client"}}},
					{Namespaces: &cluster.Selector{Labels: map[string]string{labelOfName: "ops"}}},
					{
						Block:  netip.MustParsePrefix("10.0.0.0/8"),
						Except: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")},
					},
				},
				Ports: []cluster.PolicyPort{{Protocol: cluster.TCP, Number: 8080}, {Protocol: cluster.UDP, Number: 1, End: 9}},
			}},
		})
		tx.Put(&cluster.ClusterNetworkPolicy{
			Name: "guard", Tier: cluster.AdminTier, Priority: 5, IngressRules: []cluster.TierRule{{
				Action: cluster.Deny, Peers: []cluster.TierPeer{{Networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}},
			}},
		})
	})
	store.View(func(v *cluster.View) {
		m := &Model{
			View: v, Whole: true, Linter: &lint.Linter{
				View: v, Domains: []string{"cluster.local"}, Node: func(*dnsconfig.Subject) (n dnsconfig.NodeSettings) { return n },
			},
			Ask: func(name string, typ dnswire.Type) []dnswire.Record {
				if typ != dnswire.TypeA {
					return nil
				}
				return []dnswire.Record{{Name: name, TTL: 5, Type: "A", Data: "10.96.0.7"}}
			},
		}
		m.Found = m.Linter.CheckAll
		see(m)
	})
}

func TestService(t *testing.T) {
	t.Parallel()
	shop(t, func(m *Model) {
		s := m.Service(cluster.Key{Namespace: "shop", Name: "web"})
		if s == nil || s.Type != "NodePort" || len(s.Names) != 1 || s.Names[0].Data[0] != "10.96.0.7" {
			t.Fatalf("Service(shop/web) = %+v, want its type and its A record", s)
		}
		want := []struct {
			pod  string
			used bool
			why  string
		}{{"web-0", false, "not ready"}, {"web-2", false, "terminating"}, {"web-1", true, ""}}
		for i, w := range want {
			if e := s.Endpoints[i]; e.Pod != w.pod || e.Used != w.used || !strings.HasPrefix(e.Why, w.why) ||
				!slices.Equal(e.Ports, []string{"http 8080/TCP"}) {
				t.Errorf("Service(shop/web): endpoint %d is %+v, want %+v", i, e, w)
			}
		}
		if at := s.Addresses[len(s.Addresses)-1]; at.Kind != "NodePort" || at.Ports[0] != "http 30080/TCP" {
			t.Errorf("Service(shop/web): the last address is %+v, want the node port", at)
		}
		if len(s.PolicyIn) != 2 || s.PolicyIn[0].Name != "guard" || s.PolicyIn[1].Pods != 3 || s.PodsJudged != 3 {
			t.Errorf("Service(shop/web): policies %+v of %d Pods, want guard before web", s.PolicyIn, s.PodsJudged)
		}
	})
}

// TestNotRead verifies that a view says which setting would have the rest read.
func TestNotRead(t *testing.T) {
	t.Parallel()
	shop(t, func(m *Model) {
		m.Whole, m.Cure = false, "set admin.page to cluster"
		s := m.Service(cluster.Key{Namespace: "shop", Name: "web"})
		if len(s.NotRead) == 0 || !strings.Contains(s.NotRead[0].Why, m.Cure) {
			t.Errorf("Service(shop/web) of names only: notRead %+v, want the setting", s.NotRead)
		}
		if len(s.Findings)+len(s.PolicyIn) > 0 {
			t.Errorf("Service(shop/web) of names only: %+v, %+v, want no findings and policies", s.Findings, s.PolicyIn)
		}
	})
}

func TestEffect(t *testing.T) {
	t.Parallel()
	shop(t, func(m *Model) {
		policy := cluster.NetworkPolicies.Get(m.View, cluster.Key{Namespace: "shop", Name: "web"})
		guard := cluster.ClusterNetworkPolicies.Get(m.View, cluster.Key{Name: "guard"})
		const audit = " (audit mode: what it denies is logged only)"
		for claim, test := range map[string]struct{ got, want string }{
			"ingress": {effect(policy, ruleset.Ingress), "allows from Pods app=client of the namespace, " +
				"all Pods of namespace ops, 10.0.0.0/8 except 10.1.0.0/16 on TCP 8080, UDP 1-9" + audit},
			"no rules": {effect(policy, ruleset.Egress), "allows nothing" + audit},
			"a tier":   {effectOfTier(guard, ruleset.Ingress), "Admin, priority 5: denies from 192.0.2.0/24"},
		} {
			if test.got != test.want {
				t.Errorf("effect of %s: %q, want %q", claim, test.got, test.want)
			}
		}
	})
}

// TestFinishedPod: a Pod that has finished is not ready, whatever its conditions are, and is found by its address.
func TestFinishedPod(t *testing.T) {
	t.Parallel()
	const done = "---\napiVersion: v1\nkind: Pod\nmetadata: {namespace: shop, name: done}\nspec: {containers: [{name: a}]}\n" +
		"status: {phase: Succeeded, podIP: 10.244.0.9, podIPs: [{ip: 10.244.0.9}], conditions: [{type: Ready, status: 'True'}]}\n"
	routes(t, done, func(m *Model) {
		m.ResolvConf = func(*dnsconfig.Subject) (r dnsconfig.Resolution) { return r }
		if p := m.Pod(cluster.Key{Namespace: "shop", Name: "done"}); !p.Finished || p.Ready || p.Why != "it has finished" {
			t.Errorf("Pod(shop/done) = finished %t, ready %t, %q", p.Finished, p.Ready, p.Why)
		}
		const want = "had the address 10.244.0.9, and has finished"
		if found := m.Search("10.244.0.9", 2).Items; len(found) != 1 || found[0].Title != "shop/done" || found[0].Detail != want {
			t.Errorf("Search(10.244.0.9) = %+v, want %s", found, want)
		}
	})
}

// TestReadinessNotRead: whether Pods and nodes are ready is not known where their conditions are not read.
func TestReadinessNotRead(t *testing.T) {
	t.Parallel()
	store, key := cluster.NewStore(), func(name string) cluster.Key { return cluster.Key{Namespace: "shop", Name: name} }
	store.Update(func(tx *cluster.Tx) {
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
		tx.Put(&cluster.Node{Name: "n1"})
		tx.Put(&cluster.Pod{Key: key("web-0")})
		tx.Put(&cluster.Pod{Key: key("done"), Finished: true})
	})
	store.View(func(v *cluster.View) {
		m := &Model{View: v}
		if p := m.Pod(key("web-0")); p.Ready || !p.Unknown || p.Finished {
			t.Errorf("Pod(shop/web-0) of names only = %+v, want that its readiness is not known", p)
		}
		if p := m.Pod(key("done")); p.Ready || p.Unknown || !p.Finished || p.Why != "it has finished" {
			t.Errorf("Pod(shop/done) of names only = %+v, want that it has finished", p)
		}
		for _, whole := range []bool{false, true} {
			o, m := Overview{}, &Model{View: v, Whole: whole}
			if m.Overview(&o); o.Agents[0].Ready || o.Agents[0].Unknown == whole {
				t.Errorf("Overview of whole objects (%t): node %+v, want that its readiness is known: %t", whole, o.Agents[0], whole)
			}
			if n := o.Agents[0].Pods; (n != nil) != whole {
				t.Errorf("Overview of whole objects (%t): the number of Pods is known: %t", whole, n != nil)
			}
		}
	})
}

// TestPolicyKindsNotRead: a view without some kind that decides which policies apply says so.
func TestPolicyKindsNotRead(t *testing.T) {
	t.Parallel()
	kinds := []cluster.Kind{cluster.KindNetworkPolicy, cluster.KindClusterNetworkPolicy, cluster.KindNamespace}
	for _, k := range kinds {
		shopWithout(t, k, func(m *Model) {
			m.ResolvConf = func(*dnsconfig.Subject) (r dnsconfig.Resolution) { return r }
			s, p := m.Service(cluster.Key{Namespace: "shop", Name: "web"}), m.Pod(cluster.Key{Namespace: "shop", Name: "web-0"})
			for view, notRead := range map[string][]NotRead{"Service": s.NotRead, "Pod": p.NotRead} {
				if len(notRead) != 1 || notRead[0].Kind != k.String() {
					t.Errorf("%s(shop/web) without %s: notRead %+v, want that kind", view, k.Plural(), notRead)
				}
			}
		})
	}
}

// TestPodsJudged: a Service with many Pods says that the policies of some of them are not known.
func TestPodsJudged(t *testing.T) {
	t.Parallel()
	store, web := cluster.NewStore(), cluster.Key{Namespace: "shop", Name: "web"}
	store.Update(func(tx *cluster.Tx) {
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
		selector := map[string]string{"app": "web"}
		tx.Put(&cluster.Service{Key: web, Headless: true, Selector: selector, Spec: new(cluster.ServiceSpec)})
		for i := range mostJudged + 7 {
			tx.Put(&cluster.Pod{
				Key: cluster.Key{Namespace: "shop", Name: fmt.Sprintf("web-%d", i)}, Labels: map[string]string{"app": "web"},
				Spec: new(cluster.PodSpec),
			})
		}
	})
	store.View(func(v *cluster.View) {
		more := More{}
		m := &Model{View: v, Whole: true}
		if ends := m.endsOf(m.View.Service(web), nil, &more); len(ends) != mostJudged || more["podsJudged"] != 7 {
			t.Errorf("endsOf(shop/web) = %d Pods, more %v, want %d and 7 more", len(ends), more, mostJudged)
		}
	})
}

func TestSearch(t *testing.T) {
	t.Parallel()
	shop(t, func(m *Model) {
		for text, want := range map[string]string{
			"web": "Service shop/web", "WEB": "Service shop/web", "web-1": "Pod shop/web-1", "shop/web": "Service shop/web",
			"web.shop": "Service shop/web", "web.shop.svc.cluster.local": "Service shop/web", "10.96.0.7": "Service shop/web",
			"10.96.0.7:80": "Service shop/web", "10.244.0.1": "Pod shop/web-1", "eb-2": "Pod shop/web-2",
			"guard": "ClusterNetworkPolicy guard", "www.example.com": "name www.example.com",
			"http://web.shop:80/a?b": "Service shop/web", "https://www.example.com/": "name www.example.com", "192.0.2.1": "address 192.0.2.1",
			"gard": "ClusterNetworkPolicy guard", "wbe.shop": "Service shop/web", "web.shpo": "Service shop/web",
			"shpo/web": "Service shop/web", "wbe.shop.svc.cluster.local": "Service shop/web", "http://wbe.shop/": "Service shop/web",
		} {
			found := m.Search(text, 1)
			if len(found.Items) != 1 || found.Items[0].Kind+" "+found.Items[0].Title != want {
				t.Errorf("Search(%q, 1) = %+v, want %s", text, found, want)
			}
		}
		if found := m.Search("web", 2); !found.More || len(found.Items) != 2 {
			t.Errorf(`Search("web", 2) = %+v, want two and more`, found)
		}
	})
}

// TestNetworkPolicy: the view of a policy has its rules by direction, and the Pods that it applies to.
func TestNetworkPolicy(t *testing.T) {
	t.Parallel()
	shop(t, func(m *Model) {
		p := m.NetworkPolicy(cluster.Key{Namespace: "shop", Name: "web"})
		if p == nil || p.Selects != "Pods app=web of the namespace" || len(p.Pods) != 3 || p.Pods[2].Href != "#/pod/shop/web-2" || !p.Audit {
			t.Fatalf("NetworkPolicy(shop/web) = %+v, want its three Pods", p)
		}
		if len(p.In) != 1 || p.In[0].Field != "spec.ingress[0]" || p.In[0].Effect != "allows" || len(p.In[0].Peers) != 3 ||
			!slices.Equal(p.In[0].Ports, []string{"TCP 8080", "UDP 1-9"}) || p.Out == nil || len(p.Out) != 0 {
			t.Errorf("NetworkPolicy(shop/web): rules %+v and %+v, want one for ingress and none for egress", p.In, p.Out)
		}
		if p = m.NetworkPolicy(cluster.Key{Name: "guard"}); p == nil || *p.Tier != cluster.AdminTier || len(p.Pods) != 3 || p.Out != nil ||
			p.Selects != "all Pods of all namespaces" || p.In[0].Effect != "denies" {
			t.Errorf("NetworkPolicy(guard) = %+v, want what applies to ingress of all Pods", p)
		}
		if p = m.NetworkPolicy(cluster.Key{Namespace: "shop", Name: "guard"}); p != nil {
			t.Errorf("NetworkPolicy(shop/guard) = %+v, want nil", p)
		}
		m.Whole, m.Cure = false, "set admin.page to cluster"
		if p = m.NetworkPolicy(cluster.Key{Namespace: "shop", Name: "web"}); len(p.Pods) > 0 || len(p.NotRead) != 1 {
			t.Errorf("NetworkPolicy(shop/web) of names only: Pods %+v, notRead %+v", p.Pods, p.NotRead)
		}
	})
}

// TestLongPolicy: the lists of a policy are cut, and each says how many elements are left out.
func TestLongPolicy(t *testing.T) {
	t.Parallel()
	store, long := cluster.NewStore(), cluster.Key{Namespace: "shop", Name: "long"}
	rule := cluster.PolicyRule{
		Peers: make([]cluster.PolicyPeer, mostOfPolicy+2), Ports: make([]cluster.PolicyPort, mostOfPolicy+3),
	}
	store.Update(func(tx *cluster.Tx) {
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
		tx.Put(&cluster.NetworkPolicy{
			Key: long, Ingress: true, Egress: true, EgressRules: []cluster.PolicyRule{{}, rule},
			IngressRules: make([]cluster.PolicyRule, mostOfPolicy+5),
		})
		tx.Put(&cluster.ClusterNetworkPolicy{
			Name: "long", Tier: cluster.AdminTier, EgressRules: make([]cluster.TierRule, mostOfPolicy+6),
		})
	})
	store.View(func(v *cluster.View) {
		m := &Model{View: v, Whole: true, Linter: &lint.Linter{
			View: v, Node: func(*dnsconfig.Subject) (n dnsconfig.NodeSettings) { return n },
		}}
		m.Found = m.Linter.CheckAll
		p := m.NetworkPolicy(long)
		if len(p.In) != mostOfPolicy || !maps.Equal(p.More, More{"rulesIn": 5}) {
			t.Errorf("NetworkPolicy(shop/long): %d rules for ingress, more %v, want 5 more", len(p.In), p.More)
		}
		r := p.Out[1]
		if len(r.Peers) != mostOfPolicy || !maps.Equal(r.More, More{"peers": 2, "ports": 3}) || p.Out[0].More != nil {
			t.Errorf("NetworkPolicy(shop/long): more of the rules %v and %v, want 2 peers and 3 ports", p.Out[0].More, r.More)
		}
		p = m.NetworkPolicy(cluster.Key{Name: "long"})
		if len(p.Out) != mostOfPolicy || !maps.Equal(p.More, More{"rulesOut": 6}) {
			t.Errorf("NetworkPolicy(long): %d rules for egress, more %v, want 6 more", len(p.Out), p.More)
		}
	})
}

// TestFindings: what is wrong with any object is listed, the most severe first, with the view of the object.
func TestFindings(t *testing.T) {
	t.Parallel()
	const broken = "---\napiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: lost}\n" +
		"spec: {selector: {app: lots}, clusterIP: 10.96.0.77, ports: [{port: 80}]}\n"
	routes(t, broken, func(m *Model) {
		m.Linter.Node = func(*dnsconfig.Subject) (n dnsconfig.NodeSettings) { return n }
		m.Found = m.Linter.CheckAll
		f := m.Findings(mostFindings)
		at := slices.IndexFunc(f.Items, func(i Finding) bool { return i.Href == "#/service/shop/lost" })
		if at < 0 || f.Items[at].Severity != "warning" || f.Counts["warning"] != 3 || len(f.NotRead) > 0 {
			t.Errorf("Findings() = %+v, want a warning of Service shop/lost", f)
		}
		for i := 1; i < len(f.Items); i++ {
			if f.Items[i-1].Severity == "note" && f.Items[i].Severity != "note" {
				t.Errorf("Findings(): %+v comes before %+v", f.Items[i-1], f.Items[i])
			}
		}
		m.Whole, m.Cure = false, "set admin.page to cluster"
		if f = m.Findings(mostFindings); len(f.Items) > 0 || len(f.NotRead) != 1 || !strings.Contains(f.NotRead[0].Why, m.Cure) || f.Checked {
			t.Errorf("Findings() of names only = %+v, want the setting", f)
		}
	})
}

// TestFindingsNotRead: findings of what is read are listed, with the kinds that are not.
func TestFindingsNotRead(t *testing.T) {
	t.Parallel()
	for _, k := range append(lint.Kinds(), cluster.KindServiceImport) {
		shopWithout(t, k, func(m *Model) {
			f := m.Findings(mostFindings)
			var want []string
			if slices.Contains(lint.Kinds(), k) && !slices.Contains(cluster.ReferencedKinds(), k) { // to which nothing refers
				want = []string{k.String()}
			}
			var got []string
			for _, n := range f.NotRead {
				got = append(got, n.Kind)
			}
			if !f.Checked || !slices.Equal(got, want) {
				t.Errorf("Findings() without %s: checked %t, notRead %q, want %q", k.Plural(), f.Checked, got, want)
			}
		})
	}
	shopWithout(t, cluster.KindNode, func(m *Model) {
		if f := m.Findings(mostFindings); len(f.Items) == 0 {
			t.Errorf("Findings() without Nodes = %+v, want those of Services", f)
		}
	})
}

// TestFindingsOfReferencedKinds: Secrets are missed where something refers to one.
func TestFindingsOfReferencedKinds(t *testing.T) {
	t.Parallel()
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		tx.SetFreshness(cluster.Live, lint.Kinds()...)
		tx.SetFreshness(cluster.Loading, cluster.ReferencedKinds()...)
		tx.Put(&cluster.Frontend{
			Kind: cluster.KindIngress, Key: cluster.Key{Namespace: "shop", Name: "web"},
			Ingress: &cluster.IngressSpec{TLS: []cluster.IngressTLS{{Secret: "web"}}},
		})
	})
	store.View(func(v *cluster.View) {
		m := &Model{View: v, Whole: true, Linter: &lint.Linter{View: v}}
		m.Found = m.Linter.CheckAll
		if f := m.Findings(mostFindings); len(f.NotRead) != 1 || f.NotRead[0].Kind != "Secret" {
			t.Errorf("Findings() without Secrets and ConfigMaps: notRead %+v, want Secrets only", f.NotRead)
		}
	})
}
