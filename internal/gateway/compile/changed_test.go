package compile

import (
	"fmt"
	"maps"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// TestChangedVerdicts changes clusters and statuses at random. After each change, objects that are not among the
// changed ones have the verdicts that they had, and all is compiled as from scratch.
func TestChangedVerdicts(t *testing.T) {
	t.Parallel()
	seeds, changes := 8, 150
	if testing.Short() {
		seeds, changes = 3, 60
	}
	for seed := range seeds {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(100 + uint64(seed))
			store := newStore(w.classes()...)
			feed := store.Subscribe()
			incremental := &increments{c: NewCompiler(testConfig), endpoints: make(map[table.Upstream][]netip.AddrPort)}
			for i := range changes {
				store.Update(func(tx *cluster.Tx) {
					if w.IntN(3) == 0 {
						w.writeStatus(tx)
					} else {
						w.change(tx)
					}
				})
				changes := feed.Pending()
				before := incremental.c.Verdicts()
				live := false
				store.View(func(v *cluster.View) {
					checkChanged(t, before, incremental.c, &changes, incremental.apply(v, &changes))
					live = v.Freshness(cluster.KindSecret) == cluster.Live
				})
				if live { // certificates of Secrets that are not read are those of before
					incremental.compare(t, store, w)
				}
				if t.Failed() {
					t.Fatalf("change %d: %v", i, changes.Objects)
				}
			}
		})
	}
}

// checkChanged checks that objects whose verdicts differ from before are among the changed ones, also those that
// changed themselves.
func checkChanged(t *testing.T, before *Verdicts, c *Compiler, of *cluster.Changes, changed map[cluster.Ref]struct{}) {
	t.Helper()
	was, is := byRef(before), byRef(c.Verdicts())
	for ref := range of.Objects {
		_, judged := is[ref]
		if _, ok := changed[ref]; judged && !ok {
			t.Errorf("%v changed and is not in Changed", ref)
		}
	}
	refs := maps.Clone(was)
	maps.Copy(refs, is)
	for ref := range refs {
		if _, ok := changed[ref]; ok {
			continue
		}
		if diff := cmp.Diff(was[ref], is[ref], byValue); diff != "" {
			t.Fatalf("%v: %v is not in Changed, and has another verdict (-before +after):\n%s", of.Objects, ref, diff)
		}
	}
}

// byRef returns all verdicts of objects.
func byRef(v *Verdicts) map[cluster.Ref]any {
	made := make(map[cluster.Ref]any)
	for key, verdict := range v.Classes {
		made[cluster.Ref{Kind: cluster.KindGatewayClass, Key: key}] = verdict
	}
	for key, verdict := range v.Gateways {
		made[cluster.Ref{Kind: cluster.KindGateway, Key: key}] = verdict
	}
	for key, verdict := range v.Sets {
		made[cluster.Ref{Kind: cluster.KindListenerSet, Key: key}] = verdict
	}
	for ref, verdict := range v.Routes {
		made[ref] = verdict
	}
	for key, verdict := range v.Policies {
		made[cluster.Ref{Kind: cluster.KindBackendTLSPolicy, Key: key}] = verdict
	}
	for key, verdict := range v.RoutePolicies {
		made[cluster.Ref{Kind: cluster.KindRoutePolicy, Key: key}] = verdict
	}
	for key, verdict := range v.TrafficPolicies {
		made[cluster.Ref{Kind: cluster.KindBackendTrafficPolicy, Key: key}] = verdict
	}
	for key, verdict := range v.Ingresses {
		made[cluster.Ref{Kind: cluster.KindIngress, Key: key}] = verdict
	}
	return made
}

// writeStatus changes the status of an object, and nothing else, if there is any.
func (w *world) writeStatus(tx *cluster.Tx) {
	condition := cluster.StatusCondition{
		Condition: cluster.Condition{Type: "Accepted", Status: w.of("True", "False")}, Generation: int64(w.IntN(9)),
	}
	k := []cluster.Kind{
		cluster.KindGatewayClass, cluster.KindGateway, cluster.KindListenerSet, cluster.KindHTTPRoute, cluster.KindGRPCRoute,
		cluster.KindIngress, cluster.KindRoutePolicy, cluster.KindBackendTrafficPolicy,
	}[w.IntN(8)]
	for o := range tx.Objects(k) {
		o = withStatus(o, condition)
		if f, ok := o.(*cluster.Frontend); ok && f.Gateway != nil {
			f.Gateway.Status.Addresses = w.addresses()
		}
		tx.Put(o)
		return
	}
}

// withStatus returns an object with a condition; an Ingress with an address instead.
func withStatus(o cluster.Object, condition cluster.StatusCondition) cluster.Object {
	all := []cluster.StatusCondition{condition}
	switch o := o.(type) {
	case *cluster.GatewayClass:
		class := *o
		class.Conditions = all
		return &class
	case *cluster.ListenerSet:
		set := *o
		set.Conditions = all
		return &set
	case *cluster.Route:
		route, spec := *o, *o.Spec
		spec.Statuses = []cluster.ParentStatus{{Controller: "c", Conditions: all}}
		route.Spec, route.Gateways = &spec, []cluster.Key{{Namespace: "a", Name: "g1"}}
		return &route
	case *cluster.BackendTLSPolicy:
		policy := *o
		policy.Ancestors = []cluster.ParentStatus{{Controller: "a", Conditions: all}}
		return &policy
	case *cluster.RoutePolicy:
		policy := *o
		policy.Ancestors = []cluster.ParentStatus{{Controller: "a", Conditions: all}}
		return &policy
	case *cluster.BackendTrafficPolicy:
		policy := *o
		policy.Ancestors = []cluster.ParentStatus{{Controller: "a", Conditions: all}}
		return &policy
	case *cluster.Frontend:
		f := *o
		f.Addresses = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
		if f.Gateway != nil {
			spec := *f.Gateway
			spec.Status.Conditions = all
			f.Gateway = &spec
			return &f
		}
		spec := *f.Ingress
		spec.LoadBalancer = []cluster.LoadBalancerIngress{{IP: fmt.Sprint("192.0.2.", condition.Generation)}}
		f.Ingress = &spec
		return &f
	}
	panic(fmt.Sprintf("no status of %T", o))
}

// TestStatusesCompileNothing: the status of an object that is written is noted, and the table stays the same.
func TestStatusesCompileNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(3)
	store := newStore(w.classes()...)
	for range 200 {
		store.Update(w.change)
	}
	c, before := compileAll(store)
	feed := store.Subscribe()
	feed.Pending()
	statuses := 0
	condition := cluster.StatusCondition{Condition: cluster.Condition{Type: "Accepted"}, Generation: 100}
	for ref := range byRef(c.Verdicts()) {
		store.Update(func(tx *cluster.Tx) { tx.Put(withStatus(tx.Object(ref.Kind, ref.Key), condition)) })
		changes := feed.Pending()
		store.View(func(v *cluster.View) {
			after := c.Apply(v, &changes)
			if _, ok := after.Changed[ref]; !ok || len(after.Changed) > 1 || after.Table != before.Table {
				t.Errorf("status of %v: changed %v, another table: %t", ref, after.Changed, after.Table != before.Table)
			}
		})
		statuses++
	}
	if statuses < 5 {
		t.Errorf("only %d objects have verdicts", statuses)
	}
}

// TestConflictsOfListenerSets: a listener that a Gateway, or an older ListenerSet, has is not accepted, and a
// ListenerSet is if it has any other that can be served. The Gateway counts those that are.
func TestConflictsOfListenerSets(t *testing.T) {
	t.Parallel()
	listener := func(name string) cluster.Listener {
		return cluster.Listener{Name: name, Hostname: name + ".test", Port: 80, Protocol: cluster.HTTPProtocol}
	}
	set := func(name string, age int64, listeners ...string) *cluster.ListenerSet {
		made := &cluster.ListenerSet{
			Key: cluster.Key{Namespace: "a", Name: name}, Meta: cluster.Meta{Age: cluster.Age{Created: age}},
			Parent: cluster.ObjectRef{Group: gatewayGroup, Kind: "Gateway", Namespace: "a", Name: "g"},
		}
		for _, l := range listeners {
			made.Listeners = append(made.Listeners, listener(l))
		}
		return made
	}
	tcp, alone := set("tcp", 4, "t"), set("tcp-alone", 5, "t")
	https := set("https", 6, "s")
	https.Listeners[0].Protocol, https.Listeners[0].Port = cluster.HTTPSProtocol, 443
	tcp.Listeners[0].Protocol, alone.Listeners[0].Protocol, alone.Listeners[0].Port = "example.com/other", "example.com/other", 1000
	c, _ := compileAll(newStore(
		&cluster.GatewayClass{Name: "ours", Controller: testConfig.GatewayController}, &cluster.Namespace{Name: "a"},
		&cluster.Frontend{Kind: cluster.KindGateway, Key: cluster.Key{Namespace: "a", Name: "g"}, Gateway: &cluster.GatewaySpec{
			Class: "ours", Listeners: []cluster.Listener{listener("x")},
			ListenerSets: cluster.AllowedNamespaces{From: cluster.FromSame},
		}},
		set("one", 1, "x", "y"), set("two", 2, "y", "z"), set("three", 3, "x"), tcp, alone, https,
	))
	verdicts := c.Verdicts()
	if got := verdicts.Gateways[cluster.Key{Namespace: "a", Name: "g"}].ListenerSets; got != 2 {
		t.Errorf("%d ListenerSets, want 2", got)
	}
	for name, want := range map[string]string{
		"one": "Accepted True ListenersNotValid; x Accepted False HostnameConflict, Conflicted True HostnameConflict at 0; " +
			"y Accepted True Accepted, Conflicted False NoConflicts at 1",
		"two": "Accepted True ListenersNotValid; y Accepted False HostnameConflict, Conflicted True HostnameConflict at 0; " +
			"z Accepted True Accepted, Conflicted False NoConflicts at 1",
		"tcp":   "Accepted False ListenersNotValid; t Accepted False ProtocolConflict, Conflicted True ProtocolConflict at 0",
		"https": "Accepted False ListenersNotValid; s Accepted True Accepted, Conflicted False NoConflicts at 0",
		"tcp-alone": "Accepted False ListenersNotValid; " +
			"t Accepted False UnsupportedProtocol, Conflicted False NoConflicts at 0",
		"three": "Accepted False ListenersNotValid; x Accepted False HostnameConflict, Conflicted True HostnameConflict at 0",
	} {
		verdict := verdicts.Sets[cluster.Key{Namespace: "a", Name: name}]
		texts := []string{conditionTexts(verdict.Conditions)}
		for _, l := range verdict.Listeners {
			texts = append(texts, fmt.Sprintf("%s %s at %d", l.Name, conditionTexts(l.Conditions), len(l.Sockets)))
		}
		if got := strings.Join(texts, "; "); got != want {
			t.Errorf("%s: %s\nwant %s", name, got, want)
		}
	}
}

// conditionTexts returns conditions in words, without ResolvedRefs.
func conditionTexts(all []cluster.Condition) string {
	var texts []string
	for _, c := range all {
		if c.Type != resolvedRefs {
			texts = append(texts, strings.Join([]string{c.Type, c.Status, c.Reason}, " "))
		}
	}
	return strings.Join(texts, ", ")
}
