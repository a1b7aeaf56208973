package compile

import (
	"cmp"
	"maps"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// contests are the HTTPRoutes and GRPCRoutes that listeners allow, by the name of the listener. Of two of different
// kinds with a hostname in common a listener serves the older one (Gateway API, GRPCRouteSpec.hostnames).
type contests map[string]*contest

// contest is the routes of a listener.
type contest struct {
	http, grpc map[cluster.Ref]*route
	// lost are those that are not served, and why.
	lost map[cluster.Ref]cluster.Ref
}

// of returns the routes of a kind.
func (c *contest) of(k cluster.Kind) map[cluster.Ref]*route {
	if k == cluster.KindGRPCRoute {
		return c.grpc
	}
	return c.http
}

// lost reports whether a listener does not serve a route, and because of which other one.
func (c contests) lost(l *listener, ref cluster.Ref) (by cluster.Ref, lost bool) {
	if at := c[l.name()]; at != nil {
		by, lost = at.lost[ref]
	}
	return by, lost
}

// insert adds a route at the listeners that allow it, and returns their names.
func (c contests) insert(r *route) map[string]struct{} {
	touched := make(map[string]struct{})
	if k := r.from.Kind; r.useless() || k != cluster.KindHTTPRoute && k != cluster.KindGRPCRoute {
		return touched // it excludes no other one
	}
	for name := range r.listeners() {
		if c[name] == nil {
			c[name] = &contest{http: make(map[cluster.Ref]*route), grpc: make(map[cluster.Ref]*route)}
		}
		c[name].of(r.from.Kind)[r.from.Ref()] = r
		touched[name] = struct{}{}
	}
	return touched
}

// remove removes a route, which may be nil, and returns the names of its listeners.
func (c contests) remove(r *route) map[string]struct{} {
	touched := make(map[string]struct{})
	if r == nil {
		return touched
	}
	for name := range r.listeners() {
		if at := c[name]; at != nil {
			delete(at.of(r.from.Kind), r.from.Ref())
			touched[name] = struct{}{}
		}
	}
	return touched
}

// listeners returns the names of the listeners that allow a route.
func (r *route) listeners() map[string]struct{} {
	names := make(map[string]struct{})
	for i := range r.parents {
		for _, a := range r.parents[i].allow {
			names[a.listener.name()] = struct{}{}
		}
	}
	return names
}

// decide decides at some listeners which routes they serve, and returns those of which that changed. It takes time in
// proportion to a listener's routes only where there are both kinds.
func (c contests) decide(listeners map[string]struct{}) map[cluster.Ref]struct{} {
	changed := make(map[cluster.Ref]struct{})
	for name := range listeners {
		at := c[name]
		was := at.lost
		at.lost = at.losers(name)
		for _, refs := range []map[cluster.Ref]cluster.Ref{was, at.lost} {
			for ref := range refs {
				if was[ref] != at.lost[ref] {
					changed[ref] = struct{}{}
				}
			}
		}
		if len(at.http)+len(at.grpc) == 0 {
			delete(c, name)
		}
	}
	return changed
}

// losers returns the routes that a listener does not serve: those that have a hostname in common with a route of the
// other kind that is older, and is served itself.
func (c *contest) losers(listener string) map[cluster.Ref]cluster.Ref {
	if len(c.http) == 0 || len(c.grpc) == 0 {
		return nil
	}
	lost := make(map[cluster.Ref]cluster.Ref)
	served := map[cluster.Kind][]*route{}
	contenders := slices.AppendSeq(slices.Collect(maps.Values(c.http)), maps.Values(c.grpc))
	slices.SortFunc(contenders, func(a, b *route) int {
		return cmp.Or(a.age.Compare(b.age), alphabetical(a.from.Key, b.from.Key), cmp.Compare(a.from.Kind, b.from.Kind))
	})
	for _, r := range contenders {
		others := served[cluster.KindHTTPRoute]
		if r.from.Kind == cluster.KindHTTPRoute {
			others = served[cluster.KindGRPCRoute]
		}
		mine := r.hostnamesAt(listener)
		i := slices.IndexFunc(others, func(o *route) bool { return meet(mine, o.hostnamesAt(listener)) })
		if i >= 0 {
			lost[r.from.Ref()] = others[i].from.Ref()
			continue
		}
		served[r.from.Kind] = append(served[r.from.Kind], r)
	}
	return lost
}

// hostnamesAt returns those that a listener would serve the route for.
func (r *route) hostnamesAt(listener string) (all []hostname) {
	for i := range r.parents {
		for _, a := range r.parents[i].allow {
			if a.listener.name() == listener {
				return a.hostnames
			}
		}
	}
	return nil
}

// meet reports whether there is a name that two lists of hostnames stand for.
func meet(a, b []hostname) bool {
	return slices.ContainsFunc(a, func(h hostname) bool {
		return slices.ContainsFunc(b, func(o hostname) bool {
			_, ok := intersection(h.name, o.name)
			return ok
		})
	})
}
