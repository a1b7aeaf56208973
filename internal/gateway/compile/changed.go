package compile

import (
	"reflect"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// A status that is written changes its object, and nothing that is compiled. What follows finds that out, and
// which verdicts differ.

// sameRoute reports whether a route differs from the one that was compiled in its status alone. The verdict is
// then one of the new object.
func (c *Compiler) sameRoute(v *cluster.View, ref cluster.Ref) bool {
	was, is := c.routes[ref], cluster.RouteOf(v, ref)
	if was == nil || is == nil || is.Spec == nil || !slices.Equal(was.from.Hosts, is.Hosts) {
		return false
	}
	a, b := *was.from.Spec, *is.Spec
	a.Statuses, b.Statuses = nil, nil
	if !reflect.DeepEqual(a, b) {
		return false
	}
	was.from = is
	return true
}

// sameIngress is sameRoute for an Ingress.
func (c *Compiler) sameIngress(v *cluster.View, key cluster.Key) bool {
	was, is := c.ingresses[key], cluster.Ingresses.Get(v, key)
	if was == nil || is == nil || is.Ingress == nil {
		return false
	}
	a, b := *was.from.Ingress, *is.Ingress
	a.LoadBalancer, b.LoadBalancer = nil, nil
	if !reflect.DeepEqual(a, b) {
		return false
	}
	was.from = is
	return true
}

// same is sameRoute for a Gateway or ListenerSet.
func (g *gateways) same(v *cluster.View, ref cluster.Ref) bool {
	h, is := g.holders[ref], v.Object(ref.Kind, ref.Key)
	if h == nil || is == nil || !reflect.DeepEqual(withoutStatus(h.from), withoutStatus(is)) {
		return false
	}
	h.from = is
	return true
}

// withoutStatus returns what matters of a Gateway or ListenerSet but its status. The addresses in the status
// of a Gateway matter: it keeps them.
func withoutStatus(o cluster.Object) any {
	switch o := o.(type) {
	case *cluster.Frontend:
		if o.Gateway == nil {
			return nil
		}
		spec := *o.Gateway
		spec.Status = cluster.GatewayStatus{Addresses: spec.Status.Addresses}
		return spec
	case *cluster.ListenerSet:
		set := *o
		set.Conditions, set.ListenerStatuses = nil, nil
		return set
	}
	return o
}

// equal reports whether holders are compiled alike. Either may be nil.
func (h *holder) equal(o *holder) bool {
	if h == nil || o == nil {
		return h == o
	}
	a, b := *h, *o
	a.from, b.from = nil, nil
	return reflect.DeepEqual(a, b)
}

// holders notes a Gateway or ListenerSet that is compiled differently, and of a ListenerSet the Gateway, which
// counts it.
func (d *dirty) holders(ref cluster.Ref, before, after *holder) {
	d.verdicts[ref] = struct{}{}
	for _, h := range []*holder{before, after} {
		if h != nil {
			d.verdicts[cluster.Ref{Kind: cluster.KindGateway, Key: h.gateway}] = struct{}{}
		}
	}
}

// attached notes the Gateways and ListenerSets one of whose listeners has a route more or less.
func (d *dirty) attached(before, after *route) {
	note := func(of, other *route) {
		if of == nil {
			return
		}
		for _, a := range of.at {
			if !other.isAt(a.listener.name()) {
				d.verdicts[a.listener.owner] = struct{}{}
			}
		}
	}
	note(before, after)
	note(after, before)
}

// isAt reports whether a listener took the route; it may be nil.
func (r *route) isAt(listener string) bool {
	return r != nil && slices.ContainsFunc(r.at, func(a attachment) bool { return a.listener.name() == listener })
}
