package request

import (
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// Attached is a listener that serves a route.
type Attached struct {
	// Owner is its Gateway or ListenerSet.
	Owner    cluster.Ref
	Name     string
	Port     uint16
	Protocol cluster.ListenerProtocol
	// Hosts are those that it serves for the route, in order; "" is any.
	Hosts []string
}

// Scheme returns the scheme of URLs that the listener serves, and the port that they have without naming one.
func (a *Attached) Scheme() (scheme string, port uint16) {
	switch a.Protocol {
	case cluster.HTTPSProtocol, cluster.TLSProtocol:
		return "https", 443
	}
	return "http", 80
}

// AttachedTo returns the listeners that serve a route, by port and name.
func (w *World) AttachedTo(r *cluster.Route) (all []Attached) {
	hosts := w.uses()[r.Ref().String()].hosts
	for _, l := range w.sorted(func(l *listener) bool { return hosts[l.name()] != nil }) {
		all = append(all, l.attached(hosts[l.name()]))
	}
	return all
}

// MeantBy returns the listeners that the parents of a route name, whether they serve it or not, by port and name.
func (w *World) MeantBy(r *cluster.Route) (all []Attached) {
	meant := func(l *listener) bool {
		return slices.ContainsFunc(r.Spec.Parents, func(p cluster.ParentRef) bool {
			return l.owner.Kind.String() == p.Kind && l.owner.Key == (cluster.Key{Namespace: p.Namespace, Name: p.Name}) &&
				(p.Section == "" || p.Section == l.spec.Name) && (p.Port == 0 || p.Port == l.spec.Port)
		})
	}
	for _, l := range w.sorted(meant) {
		all = append(all, l.attached(nil))
	}
	return all
}

func (l *listener) attached(hosts []string) Attached {
	return Attached{Owner: l.owner, Name: l.spec.Name, Port: l.spec.Port, Protocol: l.spec.Protocol, Hosts: hosts}
}
