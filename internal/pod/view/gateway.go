package view

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/request"
)

// Gateways is the view of Gateways and of the classes of Ingresses.
type Gateways struct {
	Gateways []Gateway `json:"gateways"`
	// Routes are those of HTTP and gRPC and the Ingresses, the broken ones first.
	Routes  []ListedRoute `json:"routes"`
	NotRead []NotRead     `json:"notRead,omitempty"`
	More    More          `json:"more,omitempty"`
}

// Gateway is a Gateway, or an IngressClass with its Ingresses.
type Gateway struct {
	Kind      string     `json:"kind"`
	Namespace string     `json:"namespace,omitempty"`
	Name      string     `json:"name"`
	Class     string     `json:"class,omitempty"`
	Addresses []string   `json:"addresses"`
	Listeners []Listener `json:"listeners"`
	// State and Why are as those of a Route.
	State string `json:"state"`
	Why   string `json:"why,omitempty"`
}

// Listener is a listener; of Ingresses, those with and those without TLS.
type Listener struct {
	Name        string       `json:"name"`
	Protocol    string       `json:"protocol"`
	Port        uint16       `json:"port"`
	Hostname    string       `json:"hostname,omitempty"`
	Routes      int          `json:"routes"`
	WhyNot      string       `json:"whyNot,omitempty"`
	Conditions  []Condition  `json:"conditions"`
	Certificate *Certificate `json:"certificate,omitempty"`
	// Certificates are all of them, if there are several.
	Certificates []Certificate `json:"certificates,omitempty"`
}

// Condition is a condition of a listener.
type Condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Certificate is a certificate that a listener presents.
type Certificate struct {
	Secret   string   `json:"secret"`
	Names    []string `json:"names"`
	NotAfter string   `json:"notAfter,omitempty"` // RFC 3339
	// State is ok, expiring (within soonTime), expired, broken or unknown.
	State string `json:"state"`
	Why   string `json:"why,omitempty"`
}

// soonTime is when a certificate is about to expire.
const soonTime = 14 * 24 * time.Hour

// Gateways returns the view of all Gateways and classes of Ingresses, with all routes.
func (m *Model) Gateways() *Gateways { return m.gateways(func(cluster.Key) bool { return true }) }

// GatewaysOf returns the view of all Gateways and classes of Ingresses, with the routes and Ingresses of one key.
func (m *Model) GatewaysOf(route cluster.Key) *Gateways {
	return m.gateways(func(key cluster.Key) bool { return key == route })
}

// gateways returns the view of all Gateways and classes of Ingresses, with the routes that are wanted.
func (m *Model) gateways(wanted func(cluster.Key) bool) *Gateways {
	made := &Gateways{Gateways: []Gateway{}, Routes: []ListedRoute{}}
	made.NotRead = m.lacks(
		cluster.KindGateway, cluster.KindHTTPRoute, cluster.KindIngress, cluster.KindIngressClass, cluster.KindSecret,
	)
	if !m.reads(cluster.KindGateway) && !m.reads(cluster.KindIngress) {
		made.NotRead = append(made.NotRead, m.partly("listeners", cluster.KindGateway, cluster.KindIngress)...)
		return made
	}
	var all []*cluster.Frontend
	for f := range cluster.Gateways.All(m.View) {
		if f.Gateway != nil {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b *cluster.Frontend) int { return a.Compare(b.Key) })
	for _, f := range cut(&made.More, "gateways", all, mostGateways) {
		made.Gateways = append(made.Gateways, m.gateway(f, &made.More))
	}
	made.Gateways = append(made.Gateways, m.classes(&made.More)...)
	made.Routes = cut(&made.More, "routes", m.routes(wanted), mostListed)
	return made
}

// ListedRoute is a route or an Ingress.
type ListedRoute struct {
	Kind      string   `json:"kind"`
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Hosts     []string `json:"hosts"`
	// URL is one that it may take, at a listener that serves it, if any does; empty without a host that is one name.
	URL string `json:"url,omitempty"`
	// Listeners are those that serve it, by port and name; of an Ingress, the ports of its class.
	Listeners []RouteListener `json:"listeners"`
	// Backends are the Services that its rules name, each port once.
	Backends []RouteBackend `json:"backends"`
	// State and Why are as those of a Route.
	State string `json:"state"`
	Why   string `json:"why,omitempty"`
}

// RouteListener is a listener that serves a route.
type RouteListener struct {
	// Kind, Namespace and Name are those of its Gateway or ListenerSet; Listener is empty for an Ingress.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Listener  string `json:"listener,omitempty"`
	Port      uint16 `json:"port"`
	Protocol  string `json:"protocol"`
}

// RouteBackend is a Service that a route sends requests to.
type RouteBackend struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Port is its number, or the name that an Ingress has for it; empty if the route has none.
	Port string `json:"port,omitempty"`
}

// routes returns the routes and Ingresses that are wanted, the broken ones first.
func (m *Model) routes(wanted func(cluster.Key) bool) (all []ListedRoute) {
	w := m.Gateway()
	list := func(k cluster.Kind, key cluster.Key, hosts []string) *ListedRoute {
		all = append(all, ListedRoute{
			Kind: k.String(), Namespace: key.Namespace, Name: key.Name,
			Hosts: append([]string{}, hosts[:min(len(hosts), mostListeners)]...),
		})
		return &all[len(all)-1]
	}
	for _, routes := range []*cluster.Table[*cluster.Route]{cluster.HTTPRoutes, cluster.GRPCRoutes} {
		for r := range routes.All(m.View) {
			if r.Spec == nil || !wanted(r.Key) {
				continue
			}
			listed := w.RouteOf(r)
			made := list(r.Kind, r.Key, r.Hosts)
			made.URL = routeURL(w, r)
			made.Listeners, made.Backends = listenersOf(w, r), backendsOf(r)
			made.State, made.Why = stateOf(listed.Accepted != "", append(listed.Problems, m.unserved(r.Ref(), "")...))
		}
	}
	for f := range cluster.Ingresses.All(m.View) {
		if f.Ingress == nil || !wanted(f.Key) {
			continue
		}
		listed := w.IngressOf(f)
		made := list(f.Kind, f.Key, f.Hosts)
		made.URL = ingressURL(f, listed.Ports)
		made.Listeners, made.Backends = ingressListeners(f, &listed), ingressBackends(f)
		made.State, made.Why = stateOf(listed.Served, append(listed.Problems, m.unserved(f.Ref(), "")...))
	}
	slices.SortFunc(all, func(a, b ListedRoute) int {
		return cmp.Or(
			cmp.Compare(rank(a.State), rank(b.State)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Kind, b.Kind),
		)
	})
	return all
}

func (m *Model) gateway(f *cluster.Frontend, more *More) Gateway {
	w := m.Gateway()
	listed := w.GatewayOf(f)
	made := Gateway{
		Kind: f.Kind.String(), Namespace: f.Namespace, Name: f.Name, Class: listed.Class,
		Addresses: append([]string{}, listed.Addresses...), Listeners: []Listener{},
	}
	made.State, made.Why = stateOf(listed.Accepted != "", listed.Problems)
	for _, d := range cut(more, "listeners", w.DetailsOf(f), mostListeners) {
		l := Listener{
			Name: d.Name, Protocol: d.Protocol, Port: d.Port, Hostname: d.Hostname, Routes: int(d.Routes), WhyNot: d.WhyNot,
			Conditions: []Condition{},
		}
		for _, c := range d.Conditions {
			l.Conditions = append(l.Conditions, Condition(c))
		}
		l.certify(d.Certificates, m.Linter.Now, more)
		made.Listeners = append(made.Listeners, l)
	}
	return made
}

// certify adds certificates to a listener.
func (l *Listener) certify(all []request.Certificate, now time.Time, more *More) {
	for _, c := range cut(more, "certificates", all, mostListeners) {
		l.Certificates = append(l.Certificates, certificate(c, now))
	}
	if len(l.Certificates) > 0 {
		l.Certificate = &l.Certificates[0]
	}
	if len(l.Certificates) == 1 {
		l.Certificates = nil
	}
}

// certificate judges how long a certificate is valid.
func certificate(c request.Certificate, now time.Time) Certificate {
	made := Certificate{Secret: c.Secret, Names: append([]string{}, c.Names...), State: ok, Why: c.Why}
	if !c.NotAfter.IsZero() {
		made.NotAfter = c.NotAfter.UTC().Format(time.RFC3339)
	}
	switch {
	case c.Unread:
		made.State, made.Why = unknown, "Secrets are not read here"
	case c.Why != "":
		made.State = broken
	case now.After(c.NotAfter):
		made.State, made.Why = expired, "it has expired"
	case now.Add(soonTime).After(c.NotAfter):
		made.State, made.Why = soon, "it expires soon"
	}
	return made
}

// classes returns the classes of Ingresses, by name, with what their Ingresses have in common.
func (m *Model) classes(more *More) (all []Gateway) {
	if !m.reads(cluster.KindIngress) {
		return nil
	}
	w, byName := m.Gateway(), make(map[string]*ingressClass)
	for f := range cluster.Ingresses.All(m.View) {
		if f.Ingress == nil {
			continue
		}
		name := cmp.Or(f.Ingress.Class, f.Ingress.OldClass)
		if byName[name] == nil {
			byName[name] = new(ingressClass)
		}
		byName[name].add(w, f)
	}
	for c := range cluster.IngressClasses.All(m.View) {
		if byName[c.Name] == nil {
			byName[c.Name] = new(ingressClass)
		}
	}
	names := slices.Sorted(maps.Keys(byName))
	for _, name := range cut(more, "gateways", names, mostGateways) {
		all = append(all, byName[name].made(name, m.Linter.Now, more))
	}
	return all
}

// ingressClass is the Ingresses of a class.
type ingressClass struct {
	ingresses, secured, served int
	ports                      []uint16
	addresses, problems        []string
	certificates               []request.Certificate
}

func (c *ingressClass) add(w *request.World, f *cluster.Frontend) {
	listed := w.IngressOf(f)
	c.ingresses++
	if listed.Served {
		c.served++
	}
	if len(listed.Ports) > len(c.ports) {
		c.ports = listed.Ports
	}
	for _, a := range listed.Addresses {
		if !slices.Contains(c.addresses, a) && len(c.addresses) < mostListeners {
			c.addresses = append(c.addresses, a)
		}
	}
	for _, p := range listed.Problems {
		c.problems = append(c.problems, "Ingress "+f.String()+": "+p)
	}
	if len(f.Ingress.TLS) > 0 {
		c.secured++
		for _, certificate := range w.CertificatesOf(f) {
			known := slices.ContainsFunc(
				c.certificates,
				func(o request.Certificate) bool { return o.Secret == certificate.Secret },
			)
			if !known && len(c.certificates) <= mostListeners {
				c.certificates = append(c.certificates, certificate)
			}
		}
	}
}

func (c *ingressClass) made(name string, now time.Time, more *More) Gateway {
	slices.Sort(c.addresses)
	slices.Sort(c.problems)
	slices.SortFunc(c.certificates, func(a, b request.Certificate) int { return cmp.Compare(a.Secret, b.Secret) })
	g := Gateway{
		Kind: cluster.KindIngressClass.String(), Name: cmp.Or(name, "(none)"), Addresses: append([]string{}, c.addresses...),
		Listeners: []Listener{},
	}
	g.State, g.Why = stateOf(c.served > 0 || c.ingresses == 0, c.problems)
	for i, port := range c.ports {
		l := Listener{Name: "http", Protocol: "HTTP", Port: port, Routes: c.ingresses, Conditions: []Condition{}}
		if i > 0 {
			l.Name, l.Protocol, l.Routes = "https", "HTTPS", c.secured
			l.certify(c.certificates, now, more)
		}
		g.Listeners = append(g.Listeners, l)
	}
	return g
}
