package compile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
)

// route is what a Route is compiled into.
type route struct {
	from *cluster.Route
	*rules
	parents []parent
	age     cluster.Age
	// at are the listeners that serve it, and verdicts what is said of it at its parents.
	at       []attachment
	verdicts []ParentVerdict
}

// putRoutes replaces what routes were compiled into, and what becomes of others that they exclude.
func (c *Compiler) putRoutes(v *cluster.View, d *dirty) {
	was, touched := make(map[cluster.Ref]*route), make(map[string]struct{})
	for ref := range d.routes {
		before := c.routes[ref]
		was[ref] = before
		c.removeRoute(before, d)
		maps.Copy(touched, c.contests.remove(before))
		if made := c.compileRoute(v, ref); made != nil {
			c.routes[ref] = made
			maps.Copy(touched, c.contests.insert(made))
		}
	}
	for ref := range c.contests.decide(touched) {
		if _, done := d.routes[ref]; done || c.routes[ref] == nil {
			continue
		}
		d.routes[ref] = struct{}{}
		before, again := c.routes[ref], *c.routes[ref]
		was[ref] = before
		c.removeRoute(before, d)
		again.at, again.verdicts = nil, nil
		c.routes[ref] = &again
	}
	for ref := range d.routes {
		if made := c.routes[ref]; made != nil {
			made.judge(c.contests)
			c.insertRoute(v, made, d)
		}
		d.verdicts[ref] = struct{}{}
		d.attached(was[ref], c.routes[ref])
		d.insertRoutePolicies(v, ref)
		if v.Len(cluster.KindBackendTLSPolicy)+v.Len(cluster.KindBackendTrafficPolicy) > 0 {
			d.insertBackends(was[ref])
			d.insertBackends(c.routes[ref])
		}
	}
}

// removeRoute removes what a route was compiled into; nil is nothing.
func (c *Compiler) removeRoute(r *route, d *dirty) {
	if r == nil {
		return
	}
	ref := r.from.Ref()
	for _, a := range r.at {
		c.attached[a.listener.name()]--
		for _, h := range a.hostnames {
			c.takePart(place{a.listener.name(), h.name}, ref, d)
		}
	}
	for _, namespace := range r.foreign {
		delete(c.foreign[namespace], ref)
	}
	c.upstreams.release(r.routes)
	delete(c.routes, ref)
}

// insertRoute has listeners serve a route.
func (c *Compiler) insertRoute(v *cluster.View, r *route, d *dirty) {
	ref := r.from.Ref()
	c.upstreams.use(v, r.routes)
	for _, a := range r.at {
		c.attached[a.listener.name()]++
		for _, h := range a.hostnames {
			c.putPart(place{a.listener.name(), h.name}, part{of: ref, by: h.by, age: r.age, routes: r.routes}, d)
		}
	}
	for _, namespace := range r.foreign {
		if c.foreign[namespace] == nil {
			c.foreign[namespace] = make(map[cluster.Ref]struct{})
		}
		c.foreign[namespace][ref] = struct{}{}
	}
}

// compileRoute compiles a Route; nil if it does not exist or has no parent of ours.
func (c *Compiler) compileRoute(v *cluster.View, ref cluster.Ref) *route {
	r := cluster.RouteOf(v, ref)
	if r == nil || r.Spec == nil {
		return nil
	}
	made := &route{from: r, age: r.Spec.Age, parents: c.gateways.attach(v, r)}
	if len(made.parents) == 0 {
		return nil
	}
	made.rules = c.cfg.compileRules(v, r)
	c.cfg.limitRetries(v, made.routes)
	return made
}

// judge finds the listeners that serve a route, and what is said of it.
func (r *route) judge(of contests) {
	refs := yes(resolvedRefs, "ResolvedRefs", "")
	if r.unresolved != nil {
		refs = *r.unresolved
	}
	for i := range r.parents {
		p := &r.parents[i]
		condition := p.accepted
		lost := cluster.Ref{}
		kept := slices.DeleteFunc(slices.Clone(p.allow), func(a attachment) bool {
			by, excluded := of.lost(a.listener, r.from.Ref())
			if excluded {
				lost = by
			}
			return excluded
		})
		if len(p.allow) > 0 && len(kept) == 0 {
			const message = "%s, which is older, has a hostname of the route; one hostname has either HTTPRoutes or GRPCRoutes"
			condition = no(accepted, "Conflicted", fmt.Sprintf(message, lost))
		}
		for _, a := range kept {
			if !slices.ContainsFunc(r.at, func(o attachment) bool { return o.listener == a.listener }) {
				r.at = append(r.at, a)
			}
		}
		r.verdicts = append(r.verdicts, ParentVerdict{p.ref, []cluster.Condition{condition, refs}})
	}
	for i := range r.verdicts {
		if c := &r.verdicts[i].Conditions[0]; c.Status == "True" {
			c.Message = strings.Join(r.notes, "; ")
		}
	}
	if len(r.dropped) > 0 {
		r.drop()
	}
}

// useless reports whether all rules are dropped.
func (r *route) useless() bool { return len(r.dropped) == len(r.from.Spec.Rules) }

// drop says in the verdicts which rules are dropped. If they are all, no listener serves the route.
func (r *route) drop() {
	var texts []string
	for _, d := range r.dropped {
		texts = append(texts, fmt.Sprintf("rule %d: %s", d.index, d.message))
	}
	message := strings.Join(texts, "; ")
	all := r.useless()
	if all {
		r.at = nil
	}
	for i := range r.verdicts {
		of := &r.verdicts[i]
		switch {
		case of.Conditions[0].Status != "True": // which says why
		case all:
			of.Conditions[0] = no(accepted, r.dropped[0].reason, message)
		default:
			of.Conditions = append(of.Conditions, yes(partiallyInvalid, r.dropped[0].reason, "Dropped Rule: "+message))
		}
	}
}
