package request

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// HasHost reports whether a listener of the port of a request has rules for its host, other than those for any host, or
// whether a route or an Ingress names it, whatever becomes of those.
func (w *World) HasHost(m *Message) bool {
	return w.narrowest(m) > forAny || w.Names(m)
}

// Takes reports whether a listener of the port of a request has rules for its host, those for any host included.
func (w *World) Takes(m *Message) bool { return w.narrowest(m) > unserved }

// narrowest returns how narrow the hostname is of the rules that serve the host of a request, at any address.
func (w *World) narrowest(m *Message) (most int) {
	for _, at := range w.socketsOf(m.Port) {
		most = max(most, narrowness(w.table.Port(at), m.Host))
	}
	return most
}

// How narrow the hostname of rules is that serve a host.
const (
	unserved = iota
	forAny
	byWildcard
	byName
)

// narrowness returns how narrow the hostname is of the rules of a port that serve a host.
func narrowness(p *table.Port, host string) int {
	l, h := p.Host(host)
	if h == nil {
		return unserved
	}
	switch name := hostnameOf(l, h); {
	case name == "":
		return forAny
	case strings.HasPrefix(name, "*"):
		return byWildcard
	}
	return byName
}

// hostnameOf returns the hostname of one of a listener's hosts; "" is any.
func hostnameOf(l *table.Listener, host *table.Host) string {
	for name, h := range l.Hosts() {
		if h == host {
			return name
		}
	}
	return ""
}

// Names reports whether a route or an Ingress names the host of a request.
func (w *World) Names(m *Message) bool {
	return len(w.routesOf(m.Host)) > 0 || len(w.ingressesOf(m.Host)) > 0
}

// AddressesFor returns the addresses of the Gateway or Ingress that serves the host of a request, or that a route which
// names the host is for, and which one that is; none if there is none, or if it has no address.
func (w *World) AddressesFor(m *Message) (addrs []netip.Addr, owner string) {
	all := w.socketsOf(m.Port)
	slices.SortStableFunc(all, func(a, b table.Socket) int { // the name is most likely that of the narrowest
		return narrowness(w.table.Port(b), m.Host) - narrowness(w.table.Port(a), m.Host)
	})
	for _, at := range all {
		l, host := w.table.Port(at).Host(m.Host)
		switch {
		case l == nil, host == nil && l.Hostname == "": // one for any host
		case l.Name == ingresses:
			for _, name := range slices.Sorted(maps.Keys(w.known)) {
				if strings.HasPrefix(name, "Ingress ") {
					return w.known[name], name
				}
			}
		case w.listeners[l.Name] != nil:
			name := "Gateway " + w.listeners[l.Name].gateway.String()
			if len(w.known[name]) > 0 {
				return w.known[name], name
			}
		}
	}
	return w.addressesMeant(m.Host)
}

// addressesMeant returns the addresses of the Gateway or Ingress that has a host by what routes and Ingresses name, and
// which one that is.
func (w *World) addressesMeant(host string) (addrs []netip.Addr, owner string) {
	for _, r := range w.routesOf(host) {
		for i := range r.Spec.Parents {
			if gw, _ := w.gatewayOf(&r.Spec.Parents[i]); gw != nil && len(gw.Addresses) > 0 {
				return gw.Addresses, "Gateway " + gw.String()
			}
		}
	}
	for _, f := range w.ingressesOf(host) {
		if len(f.Addresses) > 0 {
			return f.Addresses, "Ingress " + f.String()
		}
	}
	if len(w.known) > 0 && len(w.routesOf(host))+len(w.ingressesOf(host)) > 0 {
		name := slices.Min(slices.Collect(maps.Keys(w.known)))
		return w.known[name], name
	}
	return nil, ""
}

// routesOf returns the HTTPRoutes with a hostname that stands for a host, sorted.
func (w *World) routesOf(host string) (all []*cluster.Route) {
	for r := range cluster.HTTPRoutes.All(w.view) {
		if _, ok := rankOf(r.Hosts, host, manyLabels); ok && len(r.Hosts) > 0 && r.Spec != nil {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *cluster.Route) int { return a.Compare(b.Key) })
	return all
}

// ingressesOf returns the Ingresses with a rule whose host stands for a host, sorted.
func (w *World) ingressesOf(host string) (all []*cluster.Frontend) {
	for f := range cluster.Ingresses.All(w.view) {
		if f.Ingress != nil && slices.ContainsFunc(f.Ingress.Rules, func(r cluster.IngressRule) bool {
			_, ok := rankOf([]string{r.Host}, host, oneLabel)
			return ok && r.Host != ""
		}) {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b *cluster.Frontend) int { return a.Compare(b.Key) })
	return all
}
