package compile

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/htpasswd"
	"portolan.dev/portolan/internal/gateway/table"
)

// routePolicy is what a RoutePolicy is compiled into.
type routePolicy struct {
	from *cluster.RoutePolicy
	guarding
	// verdicts are one for each Gateway that serves a target, and one for each target that does not exist.
	verdicts []ParentVerdict
}

// guarding is what a RoutePolicy has rules demand of requests.
type guarding struct {
	by    cluster.Key
	guard *table.Guard // nil for nothing
	// closed says why the policy cannot be obeyed, so that no request is served. It is empty if it can be.
	closed string
	notes  []string // what users should know of a policy that can be obeyed
}

// routeTarget returns the target that is a route.
func routeTarget(r cluster.Ref) cluster.ObjectRef {
	return cluster.ObjectRef{
		Group: gatewayGroup, Kind: r.Kind.String(), Namespace: r.Key.Namespace, Name: r.Key.Name,
	}
}

// targeted returns the route that is a target; ok is false for what no RoutePolicy can be for.
func targeted(t *cluster.ObjectRef) (ref cluster.Ref, ok bool) {
	kind, _ := cluster.KindOf(t.Kind)
	ref = cluster.Ref{Kind: kind, Key: cluster.Key{Namespace: t.Namespace, Name: t.Name}}
	return ref, t.Group == gatewayGroup && (kind == cluster.KindHTTPRoute || kind == cluster.KindGRPCRoute)
}

// compareRoutePolicies is negative if a precedes b.
func compareRoutePolicies(a, b *cluster.RoutePolicy) int {
	return cmp.Or(a.Age.Compare(b.Age), alphabetical(a.Key, b.Key))
}

// guards finds what the policies of a route demand.
type guards struct {
	view     *cluster.View
	target   cluster.ObjectRef
	policies []*cluster.RoutePolicy // those that precede first
	made     map[cluster.Key]guarding
}

func newGuards(v *cluster.View, r *cluster.Route) *guards {
	g := &guards{view: v, target: routeTarget(r.Ref()), made: make(map[cluster.Key]guarding)}
	if _, ok := targeted(&g.target); ok {
		g.policies = slices.SortedFunc(slices.Values(cluster.RoutePoliciesByTarget.Get(v, g.target)), compareRoutePolicies)
	}
	return g
}

// of returns what is demanded of requests for a rule: what the first policy for it says or, without any, the first one
// for its route. Nothing of the other ones holds (GEP-713, "Hierarchy of target kinds").
func (g *guards) of(rule string) guarding {
	sections := []string{rule, ""}
	if rule == "" {
		sections = sections[1:]
	}
	for _, section := range sections {
		for _, p := range g.policies {
			if !slices.Contains(p.Targets, cluster.PolicyTarget{ObjectRef: g.target, Section: section}) {
				continue
			}
			made, ok := g.made[p.Key]
			if !ok {
				made = compileGuard(g.view, p)
				g.made[p.Key] = made
			}
			return made
		}
	}
	return guarding{}
}

// apply has a rule demand it, besides what a filter demands.
func (g *guarding) apply(rule *table.Rule) {
	if g.guard != nil {
		made := *g.guard
		if rule.Guard != nil {
			made.External = rule.Guard.External
		}
		rule.Guard = &made
	}
	if g.closed != "" && rule.Status == 0 {
		rule.Status, rule.Backends = 503, nil
		rule.Reason = table.Reason(fmt.Sprintf("RoutePolicy %s: %s", g.by, g.closed))
	}
}

// compileGuard compiles what a policy demands.
func compileGuard(v *cluster.View, p *cluster.RoutePolicy) (made guarding) {
	made.by = p.Key
	if made.closed = p.Invalid; made.closed != "" {
		return made
	}
	key := p.Ref().String()
	g := &table.Guard{Allow: p.Allow, Deny: p.Deny, MaxBody: p.MaxBody}
	for i, l := range p.Limits {
		g.Limits = append(g.Limits, table.RateLimit{
			Key: key + " " + strconv.Itoa(i), Requests: l.Requests, Per: l.Per, Burst: l.Burst, Exempt: l.Except,
		})
	}
	if c := p.Concurrent; c != nil {
		g.Concurrent = &table.Concurrency{Key: key, Max: c.Max, Exempt: c.Except}
	}
	if p.Passwords != nil {
		if g.BasicAuth, made.notes, made.closed = passwords(v, p.Passwords); made.closed != "" {
			return made
		}
	}
	if !reflect.DeepEqual(g, new(table.Guard)) {
		made.guard = g
	}
	return made
}

// passwords reads users and their passwords. Why is empty, or says why there are none; problems are users that cannot
// log in.
func passwords(v *cluster.View, of *cluster.Passwords) (made *table.BasicAuth, problems []string, why string) {
	key, _ := of.Secret.Core(cluster.KindSecret)
	secret := cluster.Secrets.Get(v, key)
	switch {
	case secret == nil && v.Freshness(cluster.KindSecret) != cluster.Live:
		return nil, nil, fmt.Sprintf("Secret %s is not read yet", key)
	case secret == nil:
		return nil, nil, fmt.Sprintf("Secret %s does not exist", key)
	}
	file := []byte(secret.Data["auth"])
	if of.Map {
		var lines [][]byte
		for _, name := range slices.Sorted(maps.Keys(secret.Data)) {
			hash := bytes.TrimSpace(secret.Data[name])
			if bytes.ContainsAny(hash, "\r\n") {
				problems = append(problems, fmt.Sprintf("Secret %s: key %q has several lines", key, name))
				continue
			}
			lines = append(lines, append([]byte(name+":"), hash...))
		}
		file = bytes.Join(lines, []byte("\n"))
	}
	users, errs := htpasswd.Parse(file)
	for _, err := range errs {
		problems = append(problems, fmt.Sprintf("Secret %s: %v", key, err))
	}
	if len(users) == 0 {
		return nil, nil, fmt.Sprintf("Secret %s has no user that can log in", key)
	}
	return &table.BasicAuth{Realm: of.Realm, Users: users}, problems, ""
}

// routePolicyChanged notes what depends on a RoutePolicy, or on the Secret that it refers to.
func (c *Compiler) routePolicyChanged(v *cluster.View, key cluster.Key, d *dirty) {
	was, is := c.routePolicies[key], cluster.RoutePolicies.Get(v, key)
	d.verdicts[cluster.Ref{Kind: cluster.KindRoutePolicy, Key: key}] = struct{}{}
	var targets []cluster.PolicyTarget
	if was != nil {
		targets = was.from.Targets
	}
	if is != nil {
		if was != nil && sameRoutePolicy(was.from, is) && reflect.DeepEqual(was.guarding, compileGuard(v, is)) {
			was.from = is
			return
		}
		targets = append(slices.Clip(targets), is.Targets...)
	}
	d.routePolicies[key] = struct{}{}
	for i := range targets {
		if ref, ok := targeted(&targets[i].ObjectRef); ok {
			d.routes[ref] = struct{}{} // and its policies are judged again
		}
	}
}

// sameRoutePolicy reports whether two policies differ in their status alone.
func sameRoutePolicy(a, b *cluster.RoutePolicy) bool {
	x, y := *a, *b
	x.Ancestors, y.Ancestors = nil, nil
	return reflect.DeepEqual(x, y)
}

// insertRoutePolicies has the policies of a route be judged again.
func (d *dirty) insertRoutePolicies(v *cluster.View, route cluster.Ref) {
	for _, p := range cluster.RoutePoliciesByTarget.Get(v, routeTarget(route)) {
		d.routePolicies[p.Key] = struct{}{}
	}
}

// passwordsRead notes the policies that lack a Secret, which may be read now, or not be any more.
func (c *Compiler) passwordsRead(v *cluster.View, d *dirty) {
	for key, p := range c.routePolicies {
		if p.closed != "" {
			c.routePolicyChanged(v, key, d)
		}
	}
}

// judgeRoutePolicies says what is said of RoutePolicies, once their routes are compiled.
func (c *Compiler) judgeRoutePolicies(v *cluster.View, d *dirty) {
	for key := range d.routePolicies {
		d.verdicts[cluster.Ref{Kind: cluster.KindRoutePolicy, Key: key}] = struct{}{}
		p := cluster.RoutePolicies.Get(v, key)
		if p == nil {
			delete(c.routePolicies, key)
			continue
		}
		made := &routePolicy{from: p, guarding: compileGuard(v, p)}
		made.judge(c, v)
		c.routePolicies[key] = made
	}
}

// judge finds the verdicts. What is said first of a target that is not served as the policy says, is said of all.
func (p *routePolicy) judge(c *Compiler, v *cluster.View) {
	conditions := make(map[cluster.ParentRef]cluster.Condition)
	for i := range p.from.Targets {
		condition := p.acceptance(v, &p.from.Targets[i])
		for _, ancestor := range c.ancestorsOf(v, &p.from.Targets[i].ObjectRef) {
			if was, ok := conditions[ancestor]; !ok || was.Status == "True" {
				conditions[ancestor] = condition
			}
		}
	}
	for _, ancestor := range slices.SortedFunc(maps.Keys(conditions), compareParents) {
		p.verdicts = append(p.verdicts, ParentVerdict{ancestor, []cluster.Condition{conditions[ancestor]}})
	}
}

// compareParents orders Gateways before what is none, by their names.
func compareParents(a, b cluster.ParentRef) int {
	return cmp.Or(
		cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Group, b.Group),
	)
}

// PolicyAcceptance returns the condition Accepted of a RoutePolicy for one of its targets, whoever serves that.
func PolicyAcceptance(v *cluster.View, p *cluster.RoutePolicy, target *cluster.PolicyTarget) cluster.Condition {
	return (&routePolicy{from: p, guarding: compileGuard(v, p)}).acceptance(v, target)
}

// acceptance returns the condition Accepted of a policy, as far as a target goes.
func (p *routePolicy) acceptance(v *cluster.View, t *cluster.PolicyTarget) cluster.Condition {
	missing := func(format string, args ...any) cluster.Condition {
		return no(accepted, "TargetNotFound", fmt.Sprintf(format, args...))
	}
	ref, ok := targeted(&t.ObjectRef)
	if !ok {
		return missing("%s %s is neither an HTTPRoute nor a GRPCRoute", kindText(&t.ObjectRef), t.Name)
	}
	r := cluster.RouteOf(v, ref)
	if r == nil || r.Spec == nil {
		return missing("%s %s does not exist", t.Kind, ref.Key)
	}
	isIt := func(rule cluster.RouteRule) bool { return rule.Name == t.Section }
	if t.Section != "" && !slices.ContainsFunc(r.Spec.Rules, isIt) {
		return missing("%s %s has no rule called %s", t.Kind, ref.Key, t.Section)
	}
	for _, o := range cluster.RoutePoliciesByTarget.Get(v, t.ObjectRef) {
		if slices.Contains(o.Targets, *t) && compareRoutePolicies(o, p.from) < 0 {
			message := fmt.Sprintf("RoutePolicy %s, which is older, has the same target", o.Key)
			return no(accepted, conflicted, message)
		}
	}
	if p.closed != "" {
		return no(accepted, "Invalid", p.closed)
	}
	return yes(accepted, accepted, strings.Join(p.notes, "; "))
}

// ancestorsOf returns the Gateways that serve a target or, if there is no such target, that itself.
func (c *Compiler) ancestorsOf(v *cluster.View, t *cluster.ObjectRef) (all []cluster.ParentRef) {
	ref, ok := targeted(t)
	if r := cluster.RouteOf(v, ref); !ok || r == nil || r.Spec == nil {
		return []cluster.ParentRef{{ObjectRef: *t}}
	}
	if made := c.routes[ref]; made != nil {
		for _, a := range made.at {
			all = append(all, gatewayRef(a.listener.gateway))
		}
	}
	return all
}

// RoutePolicy returns what is said of a RoutePolicy: its Parents are Gateways, or targets that do not exist. It is nil
// if no route of ours needs it.
func (c *Compiler) RoutePolicy(key cluster.Key) []ParentVerdict {
	if p := c.routePolicies[key]; p != nil {
		return p.verdicts
	}
	return nil
}
