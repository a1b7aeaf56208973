package compile

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/support/testcert"
)

// world makes random objects of all kinds that the compiler reads, with few names, so that they meet. In the text
// "a-b/r1" comes before "a/r1".
type world struct{ *rand.Rand }

func newWorld(seed uint64) *world { return &world{rand.New(rand.NewPCG(seed, 1))} }

func (w *world) of(all ...string) string { return all[w.IntN(len(all))] }

// one reports true once in n times.
func (w *world) one(n int) bool { return w.IntN(n) == 0 }

func (w *world) namespace() string { return w.of("a", "a-b") }

func (w *world) key(names ...string) cluster.Key {
	return cluster.Key{Namespace: w.namespace(), Name: w.of(names...)}
}

// meta has one of few ages: of the API, or of a place in a manifest.
func (w *world) meta() cluster.Meta {
	m := cluster.Meta{Age: cluster.Age{Created: 1 + int64(w.IntN(3))}, Generation: int64(w.IntN(3))}
	if w.one(4) {
		m.Age = cluster.Age{File: w.of("f", "g"), Index: w.IntN(2)}
	}
	return m
}

// hostname is one of a few that overlap.
func (w *world) hostname() string {
	return w.of("", "x.test", "*.x.test", "a.x.test", "*.a.x.test", "b.a.x.test", "*.test", "y.test")
}

// names are some that requests have; normal ones.
var names = []string{"x.test", "a.x.test", "b.a.x.test", "c.a.x.test", "q.x.test", "y.test", "localhost"}

// classes are what a cluster begins with.
func (w *world) classes() []cluster.Object {
	return []cluster.Object{
		&cluster.GatewayClass{Name: "ours", Controller: testConfig.GatewayController},
		&cluster.GatewayClass{Name: "other", Controller: "example.com/other"},
		&cluster.IngressClass{Name: "ours", Controller: testConfig.IngressController},
		&cluster.Namespace{Name: "a", Labels: map[string]string{"team": "a"}},
		&cluster.Namespace{Name: "a-b"},
	}
}

// change puts an object, or deletes one now and then. Secrets and ConfigMaps are not always read.
func (w *world) change(tx *cluster.Tx) {
	if w.one(20) {
		tx.SetFreshness([]cluster.Freshness{cluster.Live, cluster.Live, cluster.Live, cluster.Confirming}[w.IntN(4)], []cluster.Kind{cluster.KindSecret, cluster.KindConfigMap}[w.IntN(2)])
		return
	}
	o := w.object()
	gone := 6
	switch o.Ref().Kind {
	case cluster.KindNamespace, cluster.KindGatewayClass:
		gone = 20 // without them nothing is served
	}
	if w.one(gone) {
		tx.Delete(o.Ref().Kind, o.Ref().Key)
		return
	}
	tx.Put(o)
}

// object makes an object of a random kind, of those more often that there are more of.
func (w *world) object() cluster.Object {
	switch w.IntN(38) {
	case 36, 37:
		return w.trafficPolicy()
	case 33, 34, 35:
		return w.routePolicy()
	case 30, 31:
		return w.policy()
	case 32:
		return w.authorities()
	case 0:
		return &cluster.Namespace{Name: w.namespace(), Labels: map[string]string{"team": w.of("a", "b")}}
	case 1:
		return w.gatewayClass()
	case 2:
		return &cluster.IngressClass{
			Name: w.of("ours", "also"), Controller: w.of(testConfig.IngressController, "example.com/other"), Default: w.one(2),
		}
	case 3, 4, 5:
		return w.gateway()
	case 6:
		return &cluster.ListenerSet{Key: w.key("s1", "s2"), Meta: w.meta(), Listeners: w.listeners(), Parent: cluster.ObjectRef{
			Group: gatewayGroup, Kind: "Gateway", Namespace: w.namespace(), Name: w.of("g1", "g1", "g3"),
		}}
	case 7, 8:
		return w.service()
	case 9:
		return &cluster.ReferenceGrant{
			Key: w.key("grant", "more"),
			From: []cluster.GrantFrom{
				{GroupKind: cluster.GroupKind{Group: gatewayGroup, Kind: w.of("HTTPRoute", "HTTPRoute", "GRPCRoute", "TCPRoute")}, Namespace: w.namespace()},
				{GroupKind: cluster.GroupKind{Group: gatewayGroup, Kind: w.of("Gateway", "ListenerSet")}, Namespace: w.namespace()},
			},
			To: []cluster.GrantTo{
				{GroupKind: cluster.GroupKind{Kind: "Service"}, Name: w.of("", "s1")},
				{GroupKind: cluster.GroupKind{Kind: w.of("Secret", "ConfigMap")}, Name: w.of("", "c1")},
			},
		}
	case 10, 11, 12:
		return w.ingress()
	case 13:
		return w.slice()
	case 14:
		n := &cluster.Node{Name: w.of(testConfig.Node, "n2"), Zone: w.of("", "z1", "z2")}
		if w.one(2) {
			n.InternalIPs = []netip.Addr{netip.MustParseAddr(w.of("192.0.2.8", "192.0.2.9"))}
		}
		return n
	case 15, 16:
		return w.secret()
	default:
		return w.route()
	}
}

// policy is one of a Service or of one of its ports.
func (w *world) policy() *cluster.BackendTLSPolicy {
	p := &cluster.BackendTLSPolicy{
		Key: w.key("p1", "p2"), Meta: w.meta(), Hostname: w.of("x.test", "y.test", "y.test", ""), WellKnown: w.of("System", "System", "example.com/mine"),
	}
	for range 1 + w.IntN(2) {
		p.Targets = append(p.Targets, cluster.PolicyTarget{
			ObjectRef: cluster.ObjectRef{Kind: w.of("Service", "Service", "Service", "Bucket"), Namespace: p.Namespace, Name: w.of("s1", "s2")},
			Section:   w.of("", "", "http", "more"),
		})
	}
	for range w.IntN(3) {
		p.Authorities = append(p.Authorities, cluster.ObjectRef{
			Kind: w.of("ConfigMap", "ConfigMap", "Secret"), Namespace: p.Namespace, Name: w.of("c1", "c2"),
		})
	}
	return p
}

// routePolicy is one of a route or of a rule, of which some demand what is not there.
func (w *world) routePolicy() *cluster.RoutePolicy {
	p := &cluster.RoutePolicy{Key: w.key("p1", "p2", "p3"), Meta: w.meta(), Invalid: w.of("", "", "", "", "", "x")}
	for range 1 + w.IntN(3) {
		p.Targets = append(p.Targets, cluster.PolicyTarget{
			ObjectRef: cluster.ObjectRef{
				Group: gatewayGroup, Kind: w.of("HTTPRoute", "HTTPRoute", "HTTPRoute", "GRPCRoute", "TCPRoute"),
				Namespace: p.Namespace, Name: w.of("r1", "r2", "r3", "r4", "r5", "r6"),
			},
			Section: w.of("", "", "n", "m"),
		})
	}
	if w.one(2) {
		p.Allow = []netip.Prefix{netip.MustParsePrefix(w.of("192.0.2.0/24", "2001:db8::/32"))}
	}
	for range w.IntN(3) {
		p.Limits = append(p.Limits, cluster.RequestLimit{Requests: 1 + uint32(w.IntN(3)), Per: time.Second})
	}
	if w.one(4) {
		p.Concurrent = &cluster.ConcurrencyLimit{Max: 1 + uint32(w.IntN(3))}
	}
	if w.one(4) {
		p.MaxBody = 1 + int64(w.IntN(3))
	}
	if w.one(3) {
		p.Passwords = &cluster.Passwords{
			Secret: cluster.ObjectRef{Kind: "Secret", Namespace: p.Namespace, Name: w.of("c1", "c2")}, Map: w.one(4),
		}
	}
	return p
}

// trafficPolicy is one of Services, of which some limit retries.
func (w *world) trafficPolicy() *cluster.BackendTrafficPolicy {
	p := &cluster.BackendTrafficPolicy{Key: w.key("p1", "p2"), Meta: w.meta(), Session: w.one(4)}
	for range 1 + w.IntN(2) {
		p.Targets = append(p.Targets, cluster.PolicyTarget{ObjectRef: cluster.ObjectRef{
			Kind: w.of("Service", "Service", "Service", "Service", "Bucket"), Namespace: p.Namespace, Name: w.of("s1", "s2"),
		}})
	}
	if !w.one(4) {
		p.Retries = &cluster.RetryConstraint{Percent: uint32(w.IntN(3)), Interval: time.Second, Least: 1, Per: time.Second}
	}
	return p
}

// authorities is a ConfigMap that has certificates, or something else.
func (w *world) authorities() *cluster.ConfigMap {
	m := &cluster.ConfigMap{Key: w.key("c1", "c2"), Data: make(map[string]string)}
	all := certificatesOf()
	switch w.IntN(4) {
	case 0:
		m.Data["ca.crt"] = "none"
	case 1:
	default:
		m.Data["ca.crt"] = string(all[w.IntN(len(all))]["tls.crt"])
	}
	return m
}

func (w *world) gatewayClass() *cluster.GatewayClass {
	c := &cluster.GatewayClass{Name: "ours", Meta: w.meta(), Controller: testConfig.GatewayController}
	switch w.IntN(20) {
	case 0:
		c.Controller = "example.com/other"
	case 1:
		c.Parameters = &cluster.ObjectRef{Kind: "ConfigMap", Namespace: "a", Name: "c"}
	}
	return c
}

func (w *world) allowed() cluster.AllowedNamespaces {
	return cluster.AllowedNamespaces{
		From:     cluster.From(w.of("All", "All", "All", "All", "All", "All", "Same", "Selector", "None")),
		Selector: &cluster.Selector{Labels: map[string]string{"team": "a"}},
	}
}

func (w *world) listeners() (all []cluster.Listener) {
	for i := range 1 + w.IntN(3) {
		l := cluster.Listener{
			Name: fmt.Sprint("l", i), Hostname: w.of("", w.hostname()), Port: []uint16{80, 80, 80, 8080, 443}[w.IntN(5)],
			Protocol: cluster.HTTPProtocol, Namespaces: w.allowed(),
		}
		if l.Port == 443 && !w.one(8) || w.one(20) {
			l.Protocol, l.TLS = cluster.HTTPSProtocol, &cluster.ListenerTLS{Mode: cluster.TLSTerminate}
			for range w.IntN(3) {
				l.TLS.Certificates = append(l.TLS.Certificates, cluster.ObjectRef{
					Kind: w.of("Secret", "Secret", "Secret", "ConfigMap"), Namespace: w.namespace(), Name: w.of("c1", "c2"),
				})
			}
			if w.one(10) {
				l.TLS.Mode = cluster.TLSPassthrough
			}
		}
		if w.one(10) {
			l.Protocol = "example.com/other"
		}
		if w.one(4) {
			w.stream(&l)
		}
		if w.one(6) {
			l.Kinds = []cluster.GroupKind{{Group: gatewayGroup, Kind: w.of("HTTPRoute", "OtherRoute")}}
		}
		all = append(all, l)
	}
	return all
}

// stream makes a listener one of connections or datagrams.
func (w *world) stream(l *cluster.Listener) {
	l.Protocol, l.Kinds = cluster.ListenerProtocol(w.of("TLS", "TLS", "TLS", "TCP", "TCP", "UDP", "UDP")), nil
	if l.Protocol != cluster.TLSProtocol {
		l.Port, l.TLS = []uint16{80, 81, 82, 53}[w.IntN(4)], nil
		return
	}
	l.Port = 443
	if l.TLS == nil {
		l.TLS = &cluster.ListenerTLS{Certificates: []cluster.ObjectRef{{Kind: "Secret", Namespace: w.namespace(), Name: w.of("c1", "c2")}}}
	}
	l.TLS.Mode = []cluster.TLSMode{cluster.TLSPassthrough, cluster.TLSTerminate}[w.IntN(2)]
}

func (w *world) gateway() *cluster.Frontend {
	spec := &cluster.GatewaySpec{
		Meta: w.meta(), Class: w.of("ours", "ours", "ours", "ours", "ours", "other"), Listeners: w.listeners(), ListenerSets: w.allowed(),
	}
	if w.one(4) {
		spec.Addresses = w.addresses()
	}
	if w.one(2) {
		spec.Status.Addresses = w.addresses()
	}
	if w.one(3) {
		spec.Status.Listeners = []cluster.ListenerStatus{{Name: "l0", AttachedRoutes: int32(w.IntN(2))}}
	}
	if w.one(4) {
		spec.ClientCertificate = &cluster.ObjectRef{
			Kind: w.of("Secret", "Secret", "Secret", "ConfigMap"), Namespace: w.namespace(), Name: w.of("c1", "c2"),
		}
	}
	if w.one(4) {
		spec.ClientValidation = w.clientValidation()
	}
	if w.one(4) {
		spec.ClientValidationOf = []cluster.PortClientValidation{{Port: 443}}
		if w.one(2) {
			spec.ClientValidationOf[0].Validation = w.clientValidation()
		}
	}
	if w.one(20) {
		spec.Parameters = &cluster.ObjectRef{Kind: "ConfigMap", Namespace: "a", Name: "c"}
	}
	return &cluster.Frontend{Kind: cluster.KindGateway, Key: w.key("g1", "g2", "g3"), Gateway: spec}
}

// clientValidation demands certificates of clients.
func (w *world) clientValidation() *cluster.ClientValidation {
	made := &cluster.ClientValidation{Optional: w.one(3)}
	for range 1 + w.IntN(2) {
		made.Authorities = append(made.Authorities, cluster.ObjectRef{
			Kind: w.of("ConfigMap", "ConfigMap", "ConfigMap", "Secret"), Namespace: w.namespace(), Name: w.of("c1", "c2"),
		})
	}
	return made
}

// addresses are those of a Gateway: in the pool, shared or not, or any.
func (w *world) addresses() []cluster.GatewayAddress {
	of := []string{"192.0.2.1", "192.0.2.2", "192.0.2.2", "192.0.2.9", "192.0.2.9", "", "", "here"}
	all := []cluster.GatewayAddress{{Type: cluster.AddressIP, Value: w.of(of...)}}
	switch w.IntN(8) {
	case 0:
		all[0].Type = cluster.AddressHostname
	case 1, 2:
		all = append(all, cluster.GatewayAddress{Type: cluster.AddressIP, Value: w.of(of...)})
	}
	return all
}

func (w *world) service() *cluster.Service {
	s := &cluster.Service{Key: w.key("s1", "s2"), Ports: []cluster.Port{{Name: w.of("http", "http", "web"), Number: 80, Protocol: cluster.TCP}}}
	s.Spec = &cluster.ServiceSpec{Families: []cluster.AddressType{cluster.IPv4}}
	switch w.IntN(8) {
	case 0:
		s.Ports[0].Number = 81
	case 1:
		s.Ports[0].Protocol = cluster.UDP
	case 2:
		s.Ports = append(s.Ports, cluster.Port{Name: "more", Number: 81, Protocol: cluster.TCP})
	case 3:
		s.ExternalName = "example.com"
	case 4:
		protocol := w.of("https", "kubernetes.io/ws", "kubernetes.io/wss", "kubernetes.io/h2c", "kubernetes.io/h2c")
		s.Spec.AppProtocols = []*string{&protocol}
	case 5:
		s.Spec.Families = []cluster.AddressType{cluster.IPv6, cluster.IPv4}
	case 6:
		s.Spec = nil
	}
	if s.Spec != nil && w.one(2) {
		s.Spec.Ingress = []cluster.IngressIP{{Addr: netip.MustParseAddr(w.of("192.0.2.8", "192.0.2.9", "192.0.2.2"))}}
	}
	if s.Spec != nil && w.one(4) {
		s.Spec.LoadBalancer = &cluster.LoadBalancerSpec{IP: "192.0.2.9"}
	}
	if w.one(2) {
		s.Ports = append(s.Ports, cluster.Port{Name: "dns", Number: 80, Protocol: cluster.UDP})
		if s.Spec != nil && s.Spec.AppProtocols != nil {
			s.Spec.AppProtocols = append(s.Spec.AppProtocols, nil)
		}
	}
	return s
}

// slice is one of a Service, whose endpoints are in some state and place.
func (w *world) slice() *cluster.EndpointSlice {
	s := &cluster.EndpointSlice{
		Key: w.key("s1-a", "s1-b", "s2-a"), AddressType: cluster.AddressType(w.of("IPv4", "IPv4", "IPv6")), Spec: new(cluster.SliceSpec),
		Ports: []cluster.Port{{Name: w.of("http", "http", "more"), Protocol: cluster.TCP, Number: 8000 + uint16(w.IntN(2))}},
	}
	if s.Service = s.Name[:2]; w.one(8) {
		s.Service = w.of("s1", "s2")
	}
	switch w.IntN(20) {
	case 0:
		s.Ports[0].Protocol = cluster.UDP
	case 1:
		s.Ports[0].Number = 0
	case 2:
		s.Ports = append(s.Ports, cluster.Port{Name: w.of("web", "more"), Protocol: cluster.TCP, Number: 9000})
	case 3, 4, 5:
		s.Ports = append(s.Ports, cluster.Port{Name: "dns", Protocol: cluster.UDP, Number: 5353})
	}
	for i := range w.IntN(4) {
		terminating := w.one(4)
		e := cluster.Endpoint{
			Addr: netip.AddrFrom4([4]byte{10, 0, byte(w.IntN(2)), byte(i)}), Ready: !terminating && w.IntN(4) > 0,
			Serving: w.IntN(4) > 0, Terminating: terminating,
		}
		if s.AddressType == cluster.IPv6 {
			e.Addr = netip.AddrFrom16([16]byte{0xfd, 15: byte(i)})
		}
		place := cluster.Place{Node: w.of("n1", "n2"), Additional: w.one(8)}
		switch w.IntN(4) {
		case 0, 1:
			place.Hints = &cluster.Hints{Zones: []string{w.of("z1", "z2")}}
		case 2:
			place.Hints = &cluster.Hints{Nodes: []string{w.of("n1", "n2")}}
		}
		s.Endpoints, s.Spec.Places = append(s.Endpoints, e), append(s.Spec.Places, place)
	}
	return s
}

// certificatesOf returns key pairs for Secrets.
var certificatesOf = sync.OnceValue(func() (all []map[string]cluster.Confidential) {
	for _, name := range []string{"x.test", "a.x.test", "y.test"} {
		made, err := testcert.New(name, time.Now().Add(time.Hour))
		if err != nil {
			panic(err)
		}
		certificate, key := made.PEM()
		all = append(all, map[string]cluster.Confidential{"tls.crt": certificate, "tls.key": key})
	}
	return all
})

// secret is one with a key pair, or with something else.
func (w *world) secret() *cluster.Secret {
	s := &cluster.Secret{Key: w.key("c1", "c2"), Type: "kubernetes.io/tls"}
	all := certificatesOf()
	s.Data = all[w.IntN(len(all))]
	switch w.IntN(8) {
	case 6, 7:
		const user = "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g="
		s.Type, s.Data = "Opaque", []map[string]cluster.Confidential{
			{"auth": []byte("a:" + user)}, {"auth": []byte("a:" + user + "\nb:" + user + "\nc:none\n")}, {"auth": []byte("a:b")},
			{"u1": []byte(user), "u2": []byte("none")},
		}[w.IntN(4)]
	case 0:
		s.Data = map[string]cluster.Confidential{"tls.crt": s.Data["tls.crt"], "tls.key": all[w.IntN(len(all))]["tls.key"]}
	case 1:
		s.Type = "Opaque"
	}
	return s
}

// path is one of a few, of which some are equal in their normal form.
func (w *world) path() string { return w.of("/", "/a", "/a/", "/a/b", "/%61/b", "/a%2fb", "/b") }

func (w *world) ingress() *cluster.Frontend {
	spec := &cluster.IngressSpec{Meta: w.meta(), Class: w.of("", "ours", "ours", "also")}
	if spec.Class == "" {
		spec.OldClass = w.of("", "ours", "unknown")
	}
	for range w.IntN(4) {
		rule := cluster.IngressRule{Host: w.hostname()}
		for range w.IntN(4) {
			path := cluster.IngressPath{
				Path: w.path(), Type: cluster.PathType(w.of("Exact", "Prefix", "ImplementationSpecific")), Backend: w.backend(),
			}
			rule.Paths = append(rule.Paths, path)
		}
		spec.Rules = append(spec.Rules, rule)
	}
	if w.one(3) {
		spec.Default = new(w.backend())
	}
	if w.one(3) {
		spec.LoadBalancer = []cluster.LoadBalancerIngress{{IP: w.of("192.0.2.1", "192.0.2.2")}}
	}
	for w.one(3) {
		t := cluster.IngressTLS{Secret: w.of("c1", "c2", "c2", "")}
		if w.IntN(3) > 0 {
			t.Hosts = []string{w.of("x.test", "*.x.test", "a.x.test", "y.test")}
		}
		spec.TLS = append(spec.TLS, t)
	}
	spec.Annotations = w.annotations()
	return &cluster.Frontend{Kind: cluster.KindIngress, Key: w.key("i1", "i2", "i3"), Ingress: spec}
}

// annotations are some of ingress-nginx, of those more often that concern other Ingresses of a host.
func (w *world) annotations() map[string]string {
	all := make(map[string]string)
	for w.one(2) {
		pair := [][2]string{
			{"use-regex", "true"}, {"rewrite-target", "/$1"}, {"rewrite-target", "/a"}, {"canary", "true"}, {"canary-weight", "30"},
			{"canary-by-header", "x-a"}, {"canary-by-cookie", "c"}, {"server-alias", "q.x.test,y.test"},
			{"server-alias", "c.a.x.test"}, {"from-to-www-redirect", "true"}, {"app-root", "/app"}, {"ssl-redirect", "false"},
			{"force-ssl-redirect", "true"}, {"auth-type", "basic"}, {"auth-secret", "c1"}, {"whitelist-source-range", "x"},
			{"limit-rps", "5"}, {"affinity", "cookie"}, {"backend-protocol", "GRPC"}, {"permanent-redirect", "https://a.test/"},
			{"auth-url", "http://auth.test/check"}, {"enable-cors", "true"}, {"backend-protocol", "HTTPS"},
			{"auth-tls-secret", "a/ca"},
		}[w.IntN(24)]
		all["nginx.ingress.kubernetes.io/"+pair[0]] = pair[1]
	}
	return all
}

// backend is one of an Ingress.
func (w *world) backend() cluster.IngressBackend {
	b := cluster.IngressBackend{Backend: cluster.Backend{Field: "f", Service: w.of("s1", "s2"), Number: 80}}
	switch w.IntN(8) {
	case 0, 1:
		b.Port, b.Number = "http", 0
	case 2:
		b = cluster.IngressBackend{Backend: cluster.Backend{Field: "f"}, Resource: &cluster.ObjectRef{Kind: "Bucket", Name: "b"}}
	}
	return b
}

func (w *world) route() *cluster.Route {
	spec := &cluster.RouteSpec{Meta: w.meta()}
	for range 1 + w.IntN(5) {
		spec.Parents = append(spec.Parents, cluster.ParentRef{
			ObjectRef: cluster.ObjectRef{
				Group: gatewayGroup, Kind: w.of("Gateway", "Gateway", "Gateway", "ListenerSet"),
				Namespace: w.namespace(), Name: w.of("g1", "g2", "g3", "s1"),
			},
			Section: w.of("", "", "", "l0"), Port: []uint16{0, 0, 0, 80}[w.IntN(4)],
		})
	}
	if w.one(10) {
		spec.Parents[0].ObjectRef = cluster.ObjectRef{Kind: "Service", Namespace: w.namespace(), Name: "s1"}
	}
	for range 1 + w.IntN(3) {
		spec.Rules = append(spec.Rules, w.rule())
	}
	if w.one(2) {
		spec.Statuses = []cluster.ParentStatus{{Parent: spec.Parents[0], Controller: w.of("a", "b")}}
	}
	r := &cluster.Route{Kind: cluster.KindHTTPRoute, Key: w.key("r1", "r2", "r3", "r4", "r5"), Spec: spec}
	switch w.IntN(6) {
	case 0:
		w.makeRPC(r)
	case 1, 2:
		r.Kind = []cluster.Kind{cluster.KindTLSRoute, cluster.KindTCPRoute, cluster.KindUDPRoute}[w.IntN(3)]
		for i := range spec.Rules {
			rule := cluster.RouteRule{Name: spec.Rules[i].Name}
			for range w.IntN(3) {
				rule.Backends = append(rule.Backends, cluster.RouteBackend{Weight: int32(w.IntN(3)), BackendRef: w.backendRef()})
			}
			spec.Rules[i] = rule
		}
		if r.Kind != cluster.KindTLSRoute {
			return r
		}
	}
	for w.one(3) {
		if h := w.hostname(); h != "" {
			r.Hosts = append(r.Hosts, h)
		}
	}
	return r
}

// makeRPC makes a route a GRPCRoute.
func (w *world) makeRPC(r *cluster.Route) {
	r.Kind = cluster.KindGRPCRoute
	for i := range r.Spec.Rules {
		rule := &r.Spec.Rules[i]
		rule.Request, rule.BackendRequest = cluster.Timeout{}, cluster.Timeout{}
		ofHTTP := func(f cluster.Filter) bool {
			return f.Type == cluster.URLRewrite || f.Type == cluster.RequestRedirect || f.Type == cluster.CORSFilter
		}
		rule.Filters = slices.DeleteFunc(rule.Filters, ofHTTP)
		for k := range rule.Backends {
			rule.Backends[k].Filters = slices.DeleteFunc(rule.Backends[k].Filters, ofHTTP)
		}
		for k := range rule.Matches {
			rule.Matches[k] = cluster.RouteMatch{Headers: rule.Matches[k].Headers, RPC: []cluster.RPCMatch{
				{}, {Service: "a"}, {Service: "a", Method: "b"}, {Method: "b"}, {Service: "b"}, {Regex: true, Service: "[ab]"},
				{Regex: true, Service: "("},
			}[w.IntN(7)]}
		}
	}
}

func (w *world) rule() cluster.RouteRule {
	rule := cluster.RouteRule{Name: w.of("", "n"), Filters: w.filters()}
	for range 1 + w.IntN(3) {
		rule.Matches = append(rule.Matches, w.match())
	}
	for range w.IntN(3) {
		rule.Backends = append(rule.Backends, cluster.RouteBackend{Weight: int32(w.IntN(3)), BackendRef: w.backendRef()})
		if w.one(2) {
			rule.Backends[0].Filters = w.filters()
		}
	}
	if w.one(8) {
		rule.Unknown = []cluster.UnknownValue{{Field: "f", Value: "v"}}
	}
	if w.one(8) {
		rule.Request = cluster.Timeout{Set: true, Limit: time.Duration(w.IntN(3)) * time.Second}
		rule.BackendRequest = cluster.Timeout{Set: true, Limit: time.Duration(w.IntN(2)) * time.Second}
	}
	return rule
}

func (w *world) backendRef() cluster.BackendRef {
	return cluster.BackendRef{Port: 80, ObjectRef: cluster.ObjectRef{
		Kind: w.of("Service", "Service", "Service", "Service", "Bucket"), Namespace: w.namespace(), Name: w.of("s1", "s2"),
	}}
}

func (w *world) match() cluster.RouteMatch {
	m := cluster.RouteMatch{
		Path:   cluster.PathMatch{Type: cluster.PathType(w.of("Exact", "PathPrefix", "PathPrefix")), Value: w.of("/", "/", "/a", w.path())},
		Method: w.of("", "", "", "", "GET", "PUT"),
	}
	if w.one(4) {
		m.Path = cluster.PathMatch{Type: cluster.PathRegularExpression, Value: w.of("/a.*", "/a/.+", "/[ab]", "/a|/b", ".*", "/.*", "/(", "/a")}
	}
	for w.one(3) {
		m.Headers = append(m.Headers, w.value("A", "a", "B", "C"))
	}
	for w.one(3) {
		m.Query = append(m.Query, w.value("q", "Q", "r"))
	}
	return m
}

// value is a condition for a header or a parameter.
func (w *world) value(names ...string) cluster.ValueMatch {
	v := cluster.ValueMatch{Name: w.of(names...), Value: w.of("1", "2")}
	if w.one(4) {
		v.Regex, v.Value = true, w.of("[12]", "[12]", "1.*", ".", "[")
	}
	return v
}

// filters are seldom any.
func (w *world) filters() (all []cluster.Filter) {
	switch w.IntN(16) {
	case 5:
		all = append(all, cluster.Filter{Type: cluster.CORSFilter, CORS: &cluster.CORS{Origins: []string{"*"}, Credentials: w.one(2)}})
	case 6:
		all = append(all, cluster.Filter{Type: cluster.ResponseHeaderModifier, Headers: &cluster.HeaderModifier{
			Add: []cluster.Header{{Name: "a", Value: "1"}}, Remove: []string{w.of("a", "b")},
		}})
	case 0:
		all = append(all, cluster.Filter{Type: cluster.RequestRedirect, Redirect: &cluster.Redirect{Hostname: w.of("b.test", "c.test")}})
		if w.one(2) {
			all = append(all, cluster.Filter{Type: cluster.URLRewrite, Rewrite: new(cluster.Rewrite)})
		}
	case 1:
		all = append(all, cluster.Filter{Type: cluster.ExtensionRef, Extension: &cluster.ObjectRef{Kind: "Auth", Name: "a"}})
	case 2:
		all = append(all, cluster.Filter{Type: cluster.RequestMirror, Mirror: &cluster.Mirror{
			Backend: w.backendRef(), Numerator: int32(w.IntN(2)), Denominator: 2,
		}})
	case 3:
		rewrite := &cluster.Rewrite{Hostname: w.of("b.test", "c.test")}
		if w.one(2) {
			rewrite.Path = &cluster.PathModifier{Prefix: w.one(2), Value: w.of("/x", "/y")}
		}
		all = append(all, cluster.Filter{Type: cluster.URLRewrite, Rewrite: rewrite})
	case 4:
		all = append(all, cluster.Filter{Type: cluster.RequestHeaderModifier, Headers: &cluster.HeaderModifier{
			Set: []cluster.Header{{Name: w.of("a", "b"), Value: "1"}},
		}})
	}
	return all
}

// query is a request at one of some sockets.
func (w *world) query(at []table.Socket) *query {
	q := &query{
		host: w.of(names...), method: w.of("GET", "GET", "PUT", "POST"),
		path:  w.of("/", "/a", "/a", "/a/", "/a/b", "/a/b", "/a/b/c", "/a%2Fb", "/ab", "/b", "/b/c"),
		query: w.of("", "", "q=1", "q=2", "q=2&q=1", "Q=1", "r=1&q=1", "q=%31", "&q=1", "r=2"),
	}
	socket := table.Socket{Port: 80}
	if len(at) > 0 && !w.one(3) {
		socket = at[w.IntN(len(at))]
	}
	q.addr, q.port, q.transport = socket.Addr, socket.Port, socket.Transport
	q.header = make(map[string][]string)
	for range w.IntN(4) {
		name := w.of("A", "A", "B", "C")
		q.header[name] = append(q.header[name], w.of("1", "2"))
	}
	return q
}

// String returns a query as a user would write it.
func (q *query) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s http://%s%s?%s at %v:%d", q.method, q.host, q.path, q.query, q.addr, q.port)
	for _, name := range []string{"A", "B", "C"} {
		for _, v := range q.header[name] {
			b.WriteString(" " + name + "=" + v)
		}
	}
	return b.String()
}
