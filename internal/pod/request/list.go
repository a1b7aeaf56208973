package request

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/compile"
)

// Route is an HTTPRoute as it is listed: what the gateway makes of it.
type Route struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Hostnames []string `json:"hostnames,omitempty"` // none are those of the listeners
	Parents   []Parent `json:"parents"`
	// Accepted is True or False, or how many of the parents that are ours accept it, as in 1/2; empty if
	// none is ours.
	Accepted string `json:"accepted,omitempty"`
	Rules    int    `json:"rules"`
	// Backends are the Service ports that its rules send requests to, invalid ones included, and Ready those
	// that have an endpoint; that is not counted if no parent is ours.
	Backends int `json:"backends"`
	Ready    int `json:"readyBackends"`
	// Problems are why parts of it do not work.
	Problems []string `json:"problems,omitempty"`
	// Created is its creationTimestamp, in seconds since 1970; 0 without one.
	Created int64 `json:"-"`
}

// Parent is a Gateway or ListenerSet that a route attaches to.
type Parent struct {
	// Name is as in "infra/public", with the section and port that the route names.
	Name string `json:"name"`
	// Accepted is True or False, and Reason why; empty if it is not ours.
	Accepted string `json:"accepted,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// Gateway is a Gateway as it is listed.
type Gateway struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Class     string   `json:"class"`
	Addresses []string `json:"addresses,omitempty"`
	// Listeners include those of ListenerSets.
	Listeners []Listener `json:"listeners"`
	// Accepted is True or False; empty if it is not ours.
	Accepted string `json:"accepted,omitempty"`
	// Programmed is as the status has it; empty if it has none.
	Programmed string `json:"programmed,omitempty"`
	// Routes is how many routes it accepted.
	Routes   int      `json:"routes"`
	Problems []string `json:"problems,omitempty"`
	Created  int64    `json:"-"` // as that of a Route
}

// Listener is a listener of a Gateway or of a ListenerSet.
type Listener struct {
	Name     string `json:"name"` // a ListenerSet's with its namespace and name before a colon
	Port     uint16 `json:"port"`
	Protocol string `json:"protocol"`
	Hostname string `json:"hostname,omitempty"`
	Routes   int32  `json:"routes"`
	// WhyNot is why it is not served; empty if it is.
	WhyNot string `json:"whyNot,omitempty"`
}

// Ingress is an Ingress as it is listed.
type Ingress struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Class     string   `json:"class,omitempty"`
	Hosts     []string `json:"hosts,omitempty"` // none are all
	Addresses []string `json:"addresses,omitempty"`
	Ports     []uint16 `json:"ports"`
	// Served: it is ours.
	Served   bool     `json:"served"`
	Problems []string `json:"problems,omitempty"`
	Created  int64    `json:"-"` // as that of a Route
}

// Routes lists all HTTPRoutes, by namespace and name.
func (w *World) Routes() (all []Route) {
	for r := range cluster.HTTPRoutes.All(w.view) {
		if r.Spec != nil {
			all = append(all, w.route(r))
		}
	}
	slices.SortFunc(all, func(a, b Route) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all
}

func (w *World) route(r *cluster.Route) Route {
	made := Route{
		Namespace: r.Namespace, Name: r.Name, Hostnames: r.Hosts, Parents: []Parent{}, Rules: len(r.Spec.Rules),
		Created: r.Spec.Created,
	}
	accepting, ours := 0, 0
	for i := range r.Spec.Parents {
		p := w.parent(r, &r.Spec.Parents[i], &made.Problems)
		made.Parents = append(made.Parents, p)
		if p.Accepted != "" {
			ours++
		}
		if p.Accepted == "True" {
			accepting++
		}
	}
	switch {
	case ours == 0:
	case accepting == ours:
		made.Accepted = "True"
	case accepting == 0:
		made.Accepted = "False"
	default:
		made.Accepted = fmt.Sprintf("%d/%d", accepting, ours)
	}
	made.Backends, made.Ready = w.backendsOf(r)
	for _, s := range w.verdicts.Shadows {
		if s.Route == r.Ref() {
			made.problem("rule %d never serves %s: %s has the same match, and comes first", s.Index,
				cmp.Or(s.Hostname, "any host"), s.By)
		}
	}
	return made
}

// problem adds a problem, once.
func (r *Route) problem(format string, args ...any) {
	r.Problems = once(r.Problems, fmt.Sprintf(format, args...))
}

// once appends a text that is not in a list yet.
func once(all []string, text string) []string {
	if slices.Contains(all, text) {
		return all
	}
	return append(all, text)
}

// parent returns a parent of a route, and adds what is wrong with it to problems.
func (w *World) parent(r *cluster.Route, p *cluster.ParentRef, problems *[]string) Parent {
	made := Parent{Name: p.Namespace + "/" + p.Name}
	if p.Section != "" {
		made.Name += " " + p.Section
	}
	if p.Port != 0 {
		made.Name += ":" + strconv.Itoa(int(p.Port))
	}
	add := func(format string, args ...any) {
		*problems = once(*problems, p.Kind+" "+made.Name+": "+fmt.Sprintf(format, args...))
	}
	gw, exists := w.gatewayOf(p)
	switch {
	case !exists:
		add("it does not exist")
	case gw == nil:
		add("its Gateway does not exist")
	case !w.isOurs(gw):
		add("it %s", w.whoseGateway(gw))
	}
	for _, v := range w.verdicts.Routes[r.Ref()] {
		if v.Parent != *p {
			continue
		}
		for _, c := range v.Conditions {
			if c.Type == "Accepted" {
				made.Accepted, made.Reason = c.Status, c.Reason
			}
			switch {
			case (c.Status == "True") != (c.Type == "PartiallyInvalid"):
			case c.Type == "Accepted":
				add("%s, %s", c.Reason, c.Message)
			default: // whatever the parent is
				*problems = once(*problems, c.Reason+", "+c.Message)
			}
		}
	}
	return made
}

// backendsOf returns how many Service ports the rules of a route name, and how many of these have endpoints.
func (w *World) backendsOf(r *cluster.Route) (total, ready int) {
	counted := make(map[cluster.BackendRef]bool)
	for i := range r.Spec.Rules {
		for _, b := range r.Spec.Rules[i].Backends {
			if counted[b.BackendRef] {
				continue
			}
			counted[b.BackendRef] = true
			total++
			if w.hasEndpoint(&b.BackendRef) {
				ready++
			}
		}
	}
	return total, ready
}

// hasEndpoint reports whether a gateway sends requests for a backend to some endpoint.
func (w *World) hasEndpoint(ref *cluster.BackendRef) bool {
	return w.ready[compile.ServicePort{Namespace: ref.Namespace, Service: ref.Name, Port: ref.Port}]
}

// Gateways lists all Gateways, by namespace and name. Certificates that have expired by then are among their problems.
func (w *World) Gateways(now time.Time) (all []Gateway) {
	for f := range cluster.Gateways.All(w.view) {
		if f.Gateway == nil {
			continue
		}
		listed := w.gateway(f)
		for _, d := range w.DetailsOf(f) {
			for _, why := range expired(d.Certificates, now) {
				listed.Problems = once(listed.Problems, "listener "+d.Name+": "+why)
			}
		}
		all = append(all, listed)
	}
	slices.SortFunc(all, func(a, b Gateway) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all
}

func (w *World) gateway(f *cluster.Frontend) Gateway {
	made := Gateway{
		Namespace: f.Namespace, Name: f.Name, Class: f.Gateway.Class, Listeners: []Listener{}, Created: f.Gateway.Created,
	}
	v := w.verdicts.Gateways[f.Key]
	for _, a := range f.Gateway.Status.Addresses {
		made.Addresses = once(made.Addresses, a.Value)
	}
	for _, c := range f.Gateway.Status.Conditions {
		if c.Type == "Programmed" {
			made.Programmed = c.Status
		}
	}
	for _, l := range w.sorted(func(l *listener) bool { return l.gateway == f }) {
		made.Listeners = append(made.Listeners, w.listedAs(l))
	}
	if v == nil {
		made.Problems = []string{"it " + w.whoseGateway(f)}
		return made
	}
	for _, a := range slices.Concat(v.Addresses, v.Named) {
		if a.IsValid() {
			made.Addresses = once(made.Addresses, a.String())
		}
	}
	for _, c := range v.Conditions {
		if c.Type == "Accepted" {
			made.Accepted = c.Status
		}
		if c.Status != "True" && c.Reason != "ListenersNotValid" {
			made.Problems = once(made.Problems, c.Reason+", "+c.Message)
		}
	}
	for _, l := range made.Listeners {
		if l.WhyNot != "" {
			made.Problems = once(made.Problems, "listener "+l.Name+": "+l.WhyNot)
		}
	}
	if v.Unprogrammed != nil && v.Unprogrammed.Reason != "Invalid" { // which listeners say better
		made.Problems = once(made.Problems, v.Unprogrammed.Reason+", "+v.Unprogrammed.Message)
	}
	made.Routes = w.routesAt(f)
	return made
}

// listedAs returns a listener as it is listed.
func (w *World) listedAs(l *listener) Listener {
	made := Listener{
		Name: l.spec.Name, Port: l.spec.Port, Protocol: string(l.spec.Protocol), Hostname: l.spec.Hostname,
	}
	if l.owner.Kind == cluster.KindListenerSet {
		made.Name = l.owner.Key.String() + ":" + made.Name
	}
	if v := l.verdict; v != nil {
		made.Routes = v.AttachedRoutes
		unknown := l.spec.TLS != nil && w.noSecrets
		if made.WhyNot = l.conflict(); made.WhyNot == "" && v.Unprogrammed != nil && !unknown {
			made.WhyNot = v.Unprogrammed.Message
			for _, c := range v.Conditions {
				if c.Type == "ResolvedRefs" && c.Status != "True" {
					made.WhyNot = c.Message
				}
			}
		}
	}
	return made
}

// routesAt returns how many routes a Gateway, with its ListenerSets, accepted.
func (w *World) routesAt(f *cluster.Frontend) (n int) {
	for _, parents := range w.verdicts.Routes {
		for _, p := range parents {
			gw, _ := w.gatewayOf(&p.Parent)
			if gw == f && len(p.Conditions) > 0 && p.Conditions[0].Status == "True" {
				n++
				break
			}
		}
	}
	return n
}

// Ingresses lists all Ingresses, by namespace and name. Certificates that have expired by then are among their
// problems.
func (w *World) Ingresses(now time.Time) (all []Ingress) {
	for f := range cluster.Ingresses.All(w.view) {
		if f.Ingress == nil {
			continue
		}
		listed := w.ingress(f)
		listed.Problems = append(listed.Problems, expired(w.CertificatesOf(f), now)...)
		all = append(all, listed)
	}
	slices.SortFunc(all, func(a, b Ingress) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all
}

func (w *World) ingress(f *cluster.Frontend) Ingress {
	made := Ingress{
		Namespace: f.Namespace, Name: f.Name, Class: cmp.Or(f.Ingress.Class, f.Ingress.OldClass),
		Ports: w.ingressPorts()[:1], Created: f.Ingress.Created,
	}
	for i := range f.Ingress.Rules {
		if host := f.Ingress.Rules[i].Host; host != "" {
			made.Hosts = once(made.Hosts, host)
		}
	}
	for _, at := range f.Ingress.LoadBalancer {
		made.Addresses = once(made.Addresses, cmp.Or(at.IP, at.Hostname))
	}
	if len(f.Ingress.TLS) > 0 {
		made.Ports = w.ingressPorts()
	}
	v, ours := w.verdicts.Ingresses[f.Key]
	if made.Served = ours; !ours {
		made.Problems = []string{"it " + w.whoseIngress(f)}
	}
	for _, p := range v.Problems {
		if w.noSecrets && strings.HasSuffix(p.Field, ".secretName") {
			continue
		}
		made.Problems = append(made.Problems, strings.TrimSpace(p.Field+": "+p.Reason))
	}
	return made
}
