package status

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/support/testcert"
)

// of returns the kind and key of an object in the namespace a.
func of(k cluster.Kind, name string) cluster.Ref {
	return cluster.Ref{Kind: k, Key: cluster.Key{Namespace: "a", Name: name}}
}

// TestStatuses checks the statuses of objects, which are written once.
func TestStatuses(t *testing.T) {
	t.Parallel()
	set := &cluster.ListenerSet{
		Key: cluster.Key{Namespace: "a", Name: "set"}, Meta: cluster.Meta{Generation: 5}, Parent: parent("g").ObjectRef,
		Listeners: []cluster.Listener{listener("more:8080")},
	}
	taken, refused := *set, *set
	taken.Listeners = []cluster.Listener{listener("http:80")}
	refused.Namespace = "b"
	const bad, good = "Accepted=False ", "Accepted=True Accepted "
	served := func(generation int) string {
		return fmt.Sprintf("Accepted=True Accepted %d, ResolvedRefs=True ResolvedRefs %[1]d, "+
			"Conflicted=False NoConflicts %[1]d, Programmed=True Programmed %[1]d", generation)
	}
	for claim, tt := range map[string]struct {
		objects []cluster.Object
		of      cluster.Ref
		want    []string
	}{
		"a GatewayClass": {
			nil, ourClass.Ref(),
			[]string{good + "1, SupportedVersion=True SupportedVersion 1", strings.Join(Features(false), " ")},
		},
		"a GatewayClass of another controller": {nil, otherClass.Ref(), []string{"", ""}},
		"a Gateway": {
			[]cluster.Object{gateway("g", "ours", 3, "http:80"), route("a", "r", 1, "g"), route("b", "r", 1, "g")},
			of(cluster.KindGateway, "g"),
			[]string{good + "3, Programmed=True Programmed 3", "[{IPAddress 192.0.2.1}], 0 sets", "http: HTTPRoute GRPCRoute, 2 routes, " + served(3)},
		},
		"a Gateway of another class": {
			[]cluster.Object{gateway("g", "other", 3, "http:80")}, of(cluster.KindGateway, "g"), []string{"", "[], 0 sets"},
		},
		"listeners that conflict": {
			[]cluster.Object{gateway("g", "ours", 3, "http:80", "http:80")}, of(cluster.KindGateway, "g"),
			[]string{
				bad + "ListenersNotValid 3, Programmed=False Invalid 3", "[{IPAddress 192.0.2.1}], 0 sets",
				"http: HTTPRoute GRPCRoute, 0 routes, " + bad + "HostnameConflict 3, ResolvedRefs=True ResolvedRefs 3, " +
					"Conflicted=True HostnameConflict 3, Programmed=False HostnameConflict 3",
				"http: HTTPRoute GRPCRoute, 0 routes, " + bad + "HostnameConflict 3, ResolvedRefs=True ResolvedRefs 3, " +
					"Conflicted=True HostnameConflict 3, Programmed=False HostnameConflict 3",
			},
		},
		"a ListenerSet": {
			[]cluster.Object{gateway("g", "ours", 3, "http:80"), set}, set.Ref(),
			[]string{good + "5, Programmed=True Programmed 5", "more: HTTPRoute GRPCRoute, 0 routes, " + served(5)},
		},
		"a Gateway with a ListenerSet": {
			[]cluster.Object{gateway("g", "ours", 3, "http:80"), set}, of(cluster.KindGateway, "g"),
			[]string{
				good + "3, Programmed=True Programmed 3", "[{IPAddress 192.0.2.1}], 1 sets", "http: HTTPRoute GRPCRoute, 0 routes, " + served(3),
			},
		},
		"a ListenerSet without a valid listener": {
			[]cluster.Object{gateway("g", "ours", 3, "http:80"), &taken}, taken.Ref(),
			[]string{
				bad + "ListenersNotValid 5, Programmed=False ListenersNotValid 5",
				"http: HTTPRoute GRPCRoute, 0 routes, " + bad + "HostnameConflict 5, ResolvedRefs=True ResolvedRefs 5, " +
					"Conflicted=True HostnameConflict 5, Programmed=False HostnameConflict 5",
			},
		},
		"a ListenerSet that is not allowed": {
			[]cluster.Object{gateway("g", "ours", 3, "http:80"), &refused}, refused.Ref(),
			[]string{
				bad + "NotAllowed 5, Programmed=False NotAllowed 5",
				"more: HTTPRoute GRPCRoute, 0 routes, Accepted=True Accepted 5, ResolvedRefs=True ResolvedRefs 5, " +
					"Conflicted=False NoConflicts 5, Programmed=False Invalid 5",
			},
		},
		"a route of two Gateways, and of one of another class": {
			[]cluster.Object{
				gateway("g", "ours", 3, "http:80"), gateway("h", "ours", 1, "http:81"), gateway("o", "other", 1, "http:82"),
				route("a", "r", 4, "g", "o", "h"),
			},
			of(cluster.KindHTTPRoute, "r"),
			[]string{
				"g of portolan.dev/gateway: Accepted=True Accepted 4, ResolvedRefs=True ResolvedRefs 4",
				"h of portolan.dev/gateway: Accepted=True Accepted 4, ResolvedRefs=True ResolvedRefs 4",
			},
		},
		"a RoutePolicy of two routes, and of one that does not exist": {
			[]cluster.Object{
				gateway("g", "ours", 3, "http:80"), gateway("h", "ours", 1, "http:81"),
				route("a", "r", 4, "g"), route("a", "s", 4, "h"), policy("p", 7, "r", "none", "s"),
			},
			of(cluster.KindRoutePolicy, "p"),
			[]string{
				"Gateway g of portolan.dev/gateway: Accepted=True Accepted 7",
				"Gateway h of portolan.dev/gateway: Accepted=True Accepted 7",
				"HTTPRoute none of portolan.dev/gateway: Accepted=False TargetNotFound 7",
			},
		},
		"an XBackendTrafficPolicy of a Service, without the setting": {
			[]cluster.Object{
				gateway("g", "ours", 3, "http:80"), gateway("h", "ours", 1, "http:81"),
				leading(route("a", "r", 4, "g"), "s"), route("a", "s", 4, "h"), trafficPolicy("p", 7, "s"),
			},
			of(cluster.KindBackendTrafficPolicy, "p"),
			[]string{"Gateway g of portolan.dev/gateway: Accepted=False Invalid 7"},
		},
		"a RoutePolicy of a route of another class": {
			[]cluster.Object{gateway("o", "other", 1, "http:80"), route("a", "r", 4, "o"), policy("p", 7, "r")},
			of(cluster.KindRoutePolicy, "p"), nil,
		},
		"an Ingress": {[]cluster.Object{ingress("i", "s")}, of(cluster.KindIngress, "i"), []string{"[{192.0.2.1 }]"}},
		"an Ingress, and two classes are the default": {
			[]cluster.Object{ingress("i", "s"), &cluster.IngressClass{Name: "more", Default: true}},
			of(cluster.KindIngress, "i"), []string{"[]"},
		},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			test(t, base(tt.objects...), func(p *process) {
				t := p.t
				if diff := cmp.Diff(tt.want, said(get[cluster.Object](p.server, tt.of))); diff != "" {
					t.Errorf("status of %v (-want +got):\n%s", tt.of, diff)
				}
				p.server.taken()
				later(time.Hour)
				if writes := p.server.taken(); len(writes) > 0 || p.Waiting() > 0 {
					t.Errorf("at rest %q are written, %d objects wait", writes, p.Waiting())
				}
			})
		})
	}
}

// TestOnlyOurs: entries and conditions of others stay, whatever they are and wherever they stand, and ours go when
// their parents do. What stays as it was keeps its time.
func TestOnlyOurs(t *testing.T) {
	t.Parallel()
	r := route("a", "r", 2, "g")
	condition := func(name, status string, changed int64) cluster.StatusCondition {
		return cluster.StatusCondition{
			Condition: cluster.Condition{Type: name, Status: status}, Generation: 1, Changed: changed,
		}
	}
	entry := func(gateway, controller string, conditions ...cluster.StatusCondition) cluster.ParentStatus {
		return cluster.ParentStatus{Parent: parent(gateway), Controller: controller, Conditions: conditions}
	}
	theirs := entry("g", other, condition("Accepted", "False", 7))
	foreign := condition("example.com/Seen", "True", 8)
	r.Spec.Statuses = []cluster.ParentStatus{
		theirs, entry("gone", controller, condition("Accepted", "True", 7)),
		entry("g", controller, foreign, condition("ResolvedRefs", "False", 9), condition("Accepted", "True", 10),
			condition("PartiallyInvalid", "True", 11)),
		entry("g", controller, condition("Accepted", "True", 12)),
		entry("gone", other),
	}
	test(t, base(gateway("g", "ours", 1, "http:80"), r), func(p *process) {
		t := p.t
		now := time.Now().Unix()
		want := []cluster.ParentStatus{
			theirs,
			entry("g", controller, foreign,
				cluster.StatusCondition{
					Condition: cluster.Condition{Type: "ResolvedRefs", Status: "True", Reason: "ResolvedRefs"}, Generation: 2, Changed: now,
				},
				cluster.StatusCondition{
					Condition: cluster.Condition{Type: "Accepted", Status: "True", Reason: "Accepted"}, Generation: 2, Changed: 10,
				}),
			entry("gone", other),
		}
		if diff := cmp.Diff(want, get[*cluster.Route](p.server, r.Ref()).Spec.Statuses); diff != "" {
			t.Errorf("statuses (-want +got):\n%s", diff)
		}
		p.server.delete(of(cluster.KindGateway, "g"))
		synctest.Wait()
		want = slices.Delete(want, 1, 2)
		if diff := cmp.Diff(want, get[*cluster.Route](p.server, r.Ref()).Spec.Statuses); diff != "" {
			t.Errorf("without the Gateway: statuses (-want +got):\n%s", diff)
		}
	})
}

// TestRoomForParents: a route has no more entries than the API allows.
func TestRoomForParents(t *testing.T) {
	t.Parallel()
	r := route("a", "r", 1, "g", "h")
	for i := range maxParents - 1 {
		r.Spec.Statuses = append(r.Spec.Statuses, cluster.ParentStatus{Parent: parent(fmt.Sprint("other", i)), Controller: other})
	}
	objects := base(gateway("g", "ours", 1, "http:80"), gateway("h", "ours", 1, "http:81"), r)
	test(t, objects, func(p *process) {
		t := p.t
		got := get[*cluster.Route](p.server, r.Ref()).Spec.Statuses
		if len(got) != maxParents || got[maxParents-1].Parent != parent("g") {
			t.Errorf("%d entries, the last %+v, want %d with g", len(got), got[len(got)-1], maxParents)
		}
	})
}

// TestProgrammed: a Gateway is programmed while its sockets are bound.
func TestProgrammed(t *testing.T) {
	t.Parallel()
	objects := base(gateway("g", "ours", 1, "http:80", "also:81"), gateway("h", "ours", 1, "other:82"))
	test(t, objects, func(p *process) {
		t := p.t
		check := func(want ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for _, name := range []string{"g", "h"} {
				s := get[*cluster.Frontend](p.server, of(cluster.KindGateway, name)).Gateway.Status
				got = append(got, programmedText(s.Conditions))
				for _, l := range s.Listeners {
					got = append(got, programmedText(l.Conditions))
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("conditions Programmed\n%q, want\n%q", got, want)
			}
		}
		check("True ", "True ", "True ", "True ", "True ")
		p.troubles <- map[table.Socket]error{{Port: 81}: errors.New("listen on :81: address already in use")}
		check("False listener also: listen on :81: address already in use", "True ",
			"False listen on :81: address already in use", "True ", "True ")
		if n := len(p.server.events); n != 1 {
			t.Errorf("Events %q, want one", p.server.events)
		}
		p.troubles <- nil
		check("True ", "True ", "True ", "True ", "True ")
		p.server.taken()
		p.troubles <- map[table.Socket]error{{Port: 99}: errors.New("it is nobody's")}
		synctest.Wait()
		if writes := p.server.taken(); len(writes) > 0 {
			t.Errorf("for a socket of nobody %q are written", writes)
		}
	})
}

func programmedText(all []cluster.StatusCondition) string {
	for _, c := range all {
		if c.Type == programmed {
			return c.Status + " " + c.Message
		}
	}
	return "none"
}

// TestPublish checks the addresses of Gateways and Ingresses, and that they follow what they come from.
func TestPublish(t *testing.T) {
	t.Parallel()
	service := func(addr, name string) *cluster.Service {
		s := &cluster.Service{Key: cluster.Key{Namespace: "a", Name: "lb"}, Spec: &cluster.ServiceSpec{}}
		if addr != "" {
			s.Spec.Ingress = []cluster.IngressIP{{Addr: netip.MustParseAddr(addr)}}
		}
		if name != "" {
			s.External = &cluster.External{Targets: []string{name}}
		}
		return s
	}
	node := func(addrs ...string) *cluster.Node {
		n := &cluster.Node{Name: "n"}
		for _, a := range addrs {
			n.InternalIPs = append(n.InternalIPs, netip.MustParseAddr(a))
		}
		return n
	}
	key := cluster.Key{Namespace: "a", Name: "lb"}
	for claim, tt := range map[string]struct {
		publish  compile.Publish
		first    cluster.Object
		addrs    string // of the Gateway
		balancer string
		then     cluster.Object
		later    string // the addresses, and those of the Ingress
	}{
		"a list": {
			compile.Publish{Addresses: []string{"192.0.2.1", "lb.test"}}, nil,
			"[{IPAddress 192.0.2.1} {Hostname lb.test}] True ", "[{192.0.2.1 } { lb.test}]", nil,
			"[{IPAddress 192.0.2.1} {Hostname lb.test}] True  [{192.0.2.1 } { lb.test}]",
		},
		"a load balancer": {
			compile.Publish{Service: key}, service("192.0.2.7", ""), "[{IPAddress 192.0.2.7}] True ", "[{192.0.2.7 }]",
			service("", "lb.test"), "[{Hostname lb.test}] True  [{ lb.test}]",
		},
		"a load balancer that loses its address": {
			compile.Publish{Service: key}, service("192.0.2.7", ""), "[{IPAddress 192.0.2.7}] True ", "[{192.0.2.7 }]",
			service("", ""), "[] False " + noAddress + " []",
		},
		"a load balancer that does not exist": {
			compile.Publish{Service: key, Addresses: []string{"192.0.2.1"}}, nil, "[] False " + noAddress, "[]",
			service("192.0.2.7", ""), "[{IPAddress 192.0.2.7}] True  [{192.0.2.7 }]",
		},
		"a Node": {
			compile.Publish{Node: "n"}, node("192.0.2.9", "2001:db8::9"),
			"[{IPAddress 192.0.2.9} {IPAddress 2001:db8::9}] True ", "[{192.0.2.9 } {2001:db8::9 }]",
			node("192.0.2.8"), "[{IPAddress 192.0.2.8}] True  [{192.0.2.8 }]",
		},
		"nothing": {compile.Publish{}, nil, "[] False " + noAddress, "[{198.51.100.1 }]", nil, "[] False " + noAddress + " [{198.51.100.1 }]"},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				i := ingress("i", "s")
				i.Ingress.LoadBalancer = []cluster.LoadBalancerIngress{{IP: "198.51.100.1"}} // by others
				s := newServer(base(gateway("g", "ours", 1, "http:80"), i)...)
				if tt.first != nil {
					s.put(tt.first)
				}
				followAt(t.Context(), t, s, tt.publish, nil)
				synctest.Wait()
				addresses := func() (string, string) {
					status := get[*cluster.Frontend](s, of(cluster.KindGateway, "g")).Gateway.Status
					return fmt.Sprint(status.Addresses, " ", programmedText(status.Conditions)),
						fmt.Sprint(get[*cluster.Frontend](s, i.Ref()).Ingress.LoadBalancer)
				}
				if addrs, balancer := addresses(); addrs != tt.addrs || balancer != tt.balancer {
					t.Errorf("addresses %s, Ingress %s, want %s, %s", addrs, balancer, tt.addrs, tt.balancer)
				}
				if tt.then != nil {
					s.put(tt.then)
				}
				synctest.Wait()
				if addrs, balancer := addresses(); addrs+" "+balancer != tt.later {
					t.Errorf("later: addresses %s, Ingress %s, want %s", addrs, balancer, tt.later)
				}
			})
		})
	}
}

// TestNamedAddresses checks the status of Gateways that name addresses of the gateway's Service, as the Service gets and
// loses them.
func TestNamedAddresses(t *testing.T) {
	t.Parallel()
	const one, two = "192.0.2.7", "192.0.2.8"
	key := cluster.Key{Namespace: "a", Name: "lb"}
	service := func(external string, ingress ...string) *cluster.Service {
		spec := &cluster.ServiceSpec{LoadBalancer: &cluster.LoadBalancerSpec{Addresses: two}}
		for _, text := range ingress {
			spec.Ingress = append(spec.Ingress, cluster.IngressIP{Addr: netip.MustParseAddr(text)})
		}
		if external != "" {
			spec.ExternalIPs = []netip.Addr{netip.MustParseAddr(external)}
		}
		return &cluster.Service{Key: key, Spec: spec}
	}
	const waits = "[] False Service a/lb requests the address " + two + " and does not have it: see its Events"
	const lost = "[] False the address " + one + " is not one of Service a/lb; " +
		"the Service can request it by its annotation portolan.dev/load-balancer-ips"
	has := func(addr string) string { return "[{IPAddress " + addr + "}] True " }
	for claim, tt := range map[string]struct {
		then     *cluster.Service
		one, two string // of the Gateways that name these addresses
		others   string // of one that names none
	}{
		"the Service does not have what it requests": {service("", one), has(one), waits, has(one)},
		"it has both":  {service("", one, two), has(one), has(two), "[{IPAddress " + one + "} {IPAddress " + two + "}] True "},
		"it loses one": {service("", two), lost, has(two), has(two)},
		"it has one as an external address": {
			service(one, two), has(one), has(two), "[{IPAddress " + two + "} {IPAddress " + one + "}] True ",
		},
		"it has one twice": {service(one, one), has(one), waits, has(one)},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				named := func(name, addr string) *cluster.Frontend {
					g := gateway(name, "ours", 1, "http-"+name+":80")
					g.Gateway.Addresses = []cluster.GatewayAddress{{Type: cluster.AddressIP, Value: addr}}
					return g
				}
				s := newServer(base(named("one", one), named("two", two), gateway("others", "ours", 1, "http:80"))...)
				s.put(service("", one))
				followAt(t.Context(), t, s, compile.Publish{Service: key}, nil)
				synctest.Wait()
				s.put(tt.then)
				synctest.Wait()
				for name, want := range map[string]string{"one": tt.one, "two": tt.two, "others": tt.others} {
					status := get[*cluster.Frontend](s, of(cluster.KindGateway, name)).Gateway.Status
					got := fmt.Sprint(status.Addresses, " ", programmedText(status.Conditions))
					if got != want {
						t.Errorf("Gateway %s: %s, want %s", name, got, want)
					}
				}
			})
		})
	}
}

// TestBundle checks the condition SupportedVersion.
func TestBundle(t *testing.T) {
	t.Parallel()
	for claim, tt := range map[string]struct {
		bundle Bundle
		want   string
	}{
		"supported":       {Bundle{Versions: map[string]string{"a": "v1.6.3", "b": "v1.6.0-rc.1"}}, "True "},
		"older":           {Bundle{Versions: map[string]string{"a": "v1.6.3", "b": "v1.2.1"}}, "False b has v1.2.1; supported is v1.6.x"},
		"newer":           {Bundle{Versions: map[string]string{"a": "v1.60.0"}}, "False a has v1.60.0; supported is v1.6.x"},
		"no annotation":   {Bundle{Versions: map[string]string{"a": ""}}, "False a has an unknown version; supported is v1.6.x"},
		"cannot be read":  {Bundle{Err: errors.New("forbidden")}, "Unknown forbidden"},
		"no definition":   {Bundle{}, "Unknown the cluster has no CustomResourceDefinition of Gateway API"},
		"one of two only": {Bundle{Versions: map[string]string{"a": "v1.6.3"}, Err: errors.New("forbidden")}, "Unknown forbidden"},
	} {
		c := tt.bundle.condition()
		if got := c.Status + " " + c.Message; got != tt.want || c.Type != "SupportedVersion" || c.Reason == "" {
			t.Errorf("%s: %+v, want %s", claim, c, tt.want)
		}
	}
	test(t, base(), func(p *process) {
		t := p.t
		p.bundles <- Bundle{Versions: map[string]string{"gateways": "v0.0.0"}}
		synctest.Wait()
		if got := text(get[*cluster.GatewayClass](p.server, ourClass.Ref()).Conditions); !strings.HasSuffix(got, "False UnsupportedVersion 1") {
			t.Errorf("after an upgrade: %s", got)
		}
		p.bundles <- supported
		synctest.Wait()
		if got := text(get[*cluster.GatewayClass](p.server, ourClass.Ref()).Conditions); !strings.HasSuffix(got, "True SupportedVersion 1") {
			t.Errorf("after another one: %s", got)
		}
	})
}

// TestFeatures: the list is in order, and has no feature twice.
func TestFeatures(t *testing.T) {
	t.Parallel()
	all := Features(false)
	if len(all) == 0 || len(all) > 64 || !slices.IsSorted(all) || len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Errorf("features %q, want up to 64 different ones in order", all)
	}
}

// TestExpired: when a certificate expires, the listener says so, and one Event does.
func TestExpired(t *testing.T) {
	t.Parallel()
	const life = 90 * time.Minute
	gw := gateway("g", "ours", 1, "https:443", "http:80")
	gw.Gateway.Listeners[0].Protocol = cluster.HTTPSProtocol
	gw.Gateway.Listeners[0].TLS = &cluster.ListenerTLS{
		Certificates: []cluster.ObjectRef{{Kind: "Secret", Namespace: "a", Name: "c"}},
	}
	test(t, base(gw), func(p *process) {
		t := p.t
		put := func(until time.Time) {
			t.Helper()
			made, err := testcert.New("https.test", until)
			if err != nil {
				t.Fatal(err)
			}
			certificate, key := made.PEM()
			p.server.put(&cluster.Secret{
				Key: cluster.Key{Namespace: "a", Name: "c"}, Type: "kubernetes.io/tls",
				Data: map[string]cluster.Confidential{"tls.crt": certificate, "tls.key": key},
			})
		}
		check := func(what, want string, events int) {
			t.Helper()
			synctest.Wait()
			s := get[*cluster.Frontend](p.server, of(cluster.KindGateway, "g")).Gateway.Status
			i := slices.IndexFunc(s.Listeners[0].Conditions, func(c cluster.StatusCondition) bool { return c.Type == resolvedRefs })
			if c := s.Listeners[0].Conditions[i]; c.Status+" "+c.Reason != want {
				t.Errorf("%s: ResolvedRefs is %s %s: %s, want %s", what, c.Status, c.Reason, c.Message, want)
			}
			if got := programmedText(s.Listeners[0].Conditions); got != "True " {
				t.Errorf("%s: Programmed is %s", what, got)
			}
			expiries := 0
			for _, e := range p.server.events {
				if strings.Contains(e, certificateExpired) {
					expiries++
				}
			}
			if expiries != events {
				t.Errorf("%s: %d Events, want %d: %q", what, expiries, events, p.server.events)
			}
		}
		put(time.Now().Add(life))
		check("at first", "True ResolvedRefs", 0)
		time.Sleep(life - time.Second)
		p.troubles <- nil
		check("in the last second", "True ResolvedRefs", 0)
		time.Sleep(2 * time.Second)
		p.troubles <- nil
		check("then", "False CertificateExpired", 1)
		put(time.Now().Add(life))
		check("renewed", "True ResolvedRefs", 1)
	})
}
