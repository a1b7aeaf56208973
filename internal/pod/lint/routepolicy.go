package lint

import (
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/support/suggest"
)

// CheckRoutePolicy checks that a RoutePolicy is obeyed at its targets.
func (c *Linter) CheckRoutePolicy(p *cluster.RoutePolicy) []Finding {
	j := c.reporterFor(cluster.KindRoutePolicy, p.Key)
	if !j.loaded(routeKinds...) || p.Invalid != "" && !j.Observed { // the manifests have a problem then
		return nil
	}
	for i := range p.Targets {
		t := &p.Targets[i]
		field := "spec.targetRefs" + at(i)
		switch condition := compile.PolicyAcceptance(j.View, p, t); condition.Reason {
		case "TargetNotFound":
			j.noTarget(field, t, condition.Message)
		case "Conflicted":
			j.addAs(Warning, RoutePolicyNotAccepted, field, "leave one policy for the target", "%s: this one does nothing there",
				condition.Message)
		case "Invalid":
			j.closes(p, condition.Message)
			return j.found()
		}
	}
	return j.found()
}

// noTarget reports a target that does not exist, unless it may be in manifests that were not read.
func (j *reporter) noTarget(field string, t *cluster.PolicyTarget, why string) {
	kind, _ := cluster.KindOf(t.Kind)
	if kind != cluster.KindHTTPRoute && kind != cluster.KindGRPCRoute {
		j.add(RoutePolicyNotAccepted, field, "name an HTTPRoute or a GRPCRoute", "%s: nothing is restricted", why)
		return
	}
	exists, names := false, []string(nil)
	for r := range cluster.Routes(j.View) {
		if r.Kind == kind && r.Namespace == t.Namespace {
			exists = exists || r.Name == t.Name
			names = append(names, r.Name)
		}
	}
	slices.Sort(names)
	near := ""
	if !exists {
		near = suggest.Closest(t.Name, names[:min(len(names), mostHints)])
	}
	if !exists && near == "" && (!j.Observed || j.unread(kind, t.Namespace)) {
		return
	}
	j.add(RoutePolicyNotAccepted, field, "name a route, and a rule of it, that exist", "%s%s: nothing is restricted", why,
		didYouMean(near))
}

// closes reports a policy that cannot be obeyed, unless its Secret may be in manifests that were not read.
func (j *reporter) closes(p *cluster.RoutePolicy, why string) {
	if s := p.Passwords; p.Invalid == "" && s != nil {
		key, _ := s.Secret.Core(cluster.KindSecret)
		unknown := !j.Observed || !j.loaded(cluster.KindSecret) || j.unread(cluster.KindSecret, key.Namespace)
		if cluster.Secrets.Get(j.View, key) == nil && unknown {
			return
		}
	}
	j.add(RoutePolicyNotAccepted, "spec", "correct the policy, or what it refers to",
		"%s: requests for its targets are answered with 503", why)
}
