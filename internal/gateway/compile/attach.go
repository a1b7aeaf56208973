package compile

import (
	"fmt"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// attachment is a listener that allows a route.
type attachment struct {
	listener  *listener
	hostnames []hostname // that it serves the route for
}

// hostname is one that a listener serves a route for, and the route's own that it comes from: the most specific of
// those that have it in common with the listener.
type hostname struct{ name, by string }

// parent is a parent of a route that is ours, the listeners that allow the route, and the condition Accepted.
type parent struct {
	ref      cluster.ParentRef
	allow    []attachment
	accepted cluster.Condition
}

// attach finds the parents of a route, and the listeners that allow it.
func (g *gateways) attach(v *cluster.View, r *cluster.Route) (all []parent) {
	for _, p := range r.Spec.Parents {
		if h := g.parent(&p); h != nil {
			at, condition := h.allow(v, r, &p)
			all = append(all, parent{p, at, condition})
		}
	}
	return all
}

// parent returns the Gateway or ListenerSet that a reference leads to, if it is ours.
func (g *gateways) parent(p *cluster.ParentRef) *holder {
	if p.Group != gatewayGroup {
		return nil
	}
	for _, k := range []cluster.Kind{cluster.KindGateway, cluster.KindListenerSet} {
		if p.Kind == k.String() {
			return g.holders[cluster.Ref{Kind: k, Key: cluster.Key{Namespace: p.Namespace, Name: p.Name}}]
		}
	}
	return nil
}

// allow returns the listeners that allow a route, and the condition Accepted.
func (h *holder) allow(v *cluster.View, r *cluster.Route, p *cluster.ParentRef) (at []attachment, c cluster.Condition) {
	// The furthest that any listener got says why none took it.
	c = no(accepted, "NoMatchingParent", "there is no listener"+sectionText(p))
	allowed := false
	for _, l := range h.listeners {
		if p.Section != "" && p.Section != l.spec.Name || p.Port != 0 && p.Port != l.spec.Port {
			continue
		}
		if !l.allows(v, r) {
			if !allowed {
				message := fmt.Sprintf("no listener%s allows %ss of namespace %s", sectionText(p), r.Kind, r.Namespace)
				c = no(accepted, "NotAllowedByListeners", message)
			}
			continue
		}
		allowed = true
		hostnames := l.hostnames(r)
		if len(hostnames) == 0 {
			message := fmt.Sprintf("no listener%s has a hostname in common with the route", sectionText(p))
			c = no(accepted, "NoMatchingListenerHostname", message)
			continue
		}
		at = append(at, attachment{l, hostnames})
	}
	if len(at) > 0 {
		c = yes(accepted, "Accepted", "")
	}
	return at, c
}

// sectionText returns what a parentRef narrows to.
func sectionText(p *cluster.ParentRef) (text string) {
	if p.Section != "" {
		text = " called " + p.Section
	}
	if p.Port != 0 {
		text += fmt.Sprintf(" at port %d", p.Port)
	}
	return text
}

// allows reports whether a listener allows a route to attach (AllowedRoutes).
func (l *listener) allows(v *cluster.View, r *cluster.Route) bool {
	namespace := v.Namespace(r.Namespace)
	return slices.Contains(l.kinds, groupKind(r.Kind)) && namespace != nil &&
		l.spec.Namespaces.Selects(namespace, l.owner.Key.Namespace)
}

// hostnames returns those that a listener serves a route for, see attachment; none if they have none in common.
func (l *listener) hostnames(r *cluster.Route) (all []hostname) {
	if len(r.Hosts) == 0 {
		return []hostname{{name: l.hostname}}
	}
	for _, h := range r.Hosts {
		both, ok := intersection(l.hostname, h)
		if !ok {
			continue
		}
		n := slices.IndexFunc(all, func(has hostname) bool { return has.name == both })
		switch {
		case n < 0:
			all = append(all, hostname{both, h})
		case specificity(h, all[n].by) < 0:
			all[n].by = h
		}
	}
	return all
}
