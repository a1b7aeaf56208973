package compile

import (
	"cmp"
	"fmt"
	"reflect"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// trafficPolicy is what an XBackendTrafficPolicy is compiled into.
type trafficPolicy struct {
	from *cluster.BackendTrafficPolicy
	// verdicts are one for each Gateway whose routes send requests to a target.
	verdicts []ParentVerdict
}

// trafficPolicyOf returns the oldest policy of an object; nil without any.
func trafficPolicyOf(v *cluster.View, target cluster.ObjectRef) (found *cluster.BackendTrafficPolicy) {
	for _, p := range cluster.TrafficPoliciesByTarget.Get(v, target) {
		if found == nil || compareTrafficPolicies(p, found) < 0 {
			found = p
		}
	}
	return found
}

// compareTrafficPolicies is negative if a precedes b.
func compareTrafficPolicies(a, b *cluster.BackendTrafficPolicy) int {
	return cmp.Or(a.Age.Compare(b.Age), alphabetical(a.Key, b.Key))
}

// limitRetries sets the retry budgets of the backends of routes.
func (c *Config) limitRetries(v *cluster.View, routes []table.Route) {
	if !c.Experimental || v.Len(cluster.KindBackendTrafficPolicy) == 0 {
		return
	}
	for i := range routes {
		for n := range routes[i].Rule.Backends {
			b := &routes[i].Rule.Backends[n]
			if up := &b.Upstream; *up != (table.Upstream{}) && (up.Protocol == table.HTTP1 || up.Protocol == table.H2C) {
				b.Retries = retryBudget(v, up)
			}
		}
	}
}

// retryBudget returns the retry budget of the Service of an upstream; nil without one.
func retryBudget(v *cluster.View, up *table.Upstream) *table.RetryBudget {
	p := trafficPolicyOf(v, targetOf(cluster.Key{Namespace: up.Namespace, Name: up.Service}))
	if p == nil || p.Retries == nil {
		return nil
	}
	r := p.Retries
	return &table.RetryBudget{Percent: r.Percent, Interval: r.Interval, Least: r.Least, Per: r.Per}
}

// trafficPolicyChanged notes what depends on an XBackendTrafficPolicy.
func (c *Compiler) trafficPolicyChanged(v *cluster.View, key cluster.Key, d *dirty) {
	was, is := c.trafficPolicies[key], cluster.BackendTrafficPolicies.Get(v, key)
	d.verdicts[cluster.Ref{Kind: cluster.KindBackendTrafficPolicy, Key: key}] = struct{}{}
	if was != nil && is != nil && sameTrafficPolicy(was.from, is) {
		was.from = is
		return
	}
	d.trafficPolicies[key] = struct{}{}
	var targets []cluster.PolicyTarget
	if was != nil {
		targets = append(targets, was.from.Targets...)
	}
	if is != nil {
		targets = append(targets, is.Targets...)
	}
	for i := range targets {
		of := targets[i].ObjectRef
		if service, ok := of.Core(cluster.KindService); ok {
			d.insertUsers(v, service)
		}
		d.insertTrafficPolicies(v, of)
	}
}

// sameTrafficPolicy reports whether two policies differ in their status alone.
func sameTrafficPolicy(a, b *cluster.BackendTrafficPolicy) bool {
	x, y := *a, *b
	x.Ancestors, y.Ancestors = nil, nil
	return reflect.DeepEqual(x, y)
}

// insertTrafficPolicies has the policies of a target be judged again.
func (d *dirty) insertTrafficPolicies(v *cluster.View, target cluster.ObjectRef) {
	for _, p := range cluster.TrafficPoliciesByTarget.Get(v, target) {
		d.trafficPolicies[p.Key] = struct{}{}
	}
}

// judgeTrafficPolicies says what is said of XBackendTrafficPolicies, once their routes are compiled.
func (c *Compiler) judgeTrafficPolicies(v *cluster.View, d *dirty) {
	for target := range d.backends {
		d.insertTrafficPolicies(v, target)
	}
	for key := range d.trafficPolicies {
		d.verdicts[cluster.Ref{Kind: cluster.KindBackendTrafficPolicy, Key: key}] = struct{}{}
		p := cluster.BackendTrafficPolicies.Get(v, key)
		if p == nil {
			delete(c.trafficPolicies, key)
			continue
		}
		made := &trafficPolicy{from: p}
		condition := c.cfg.acceptTrafficPolicy(v, p)
		for _, gw := range c.ancestors(v, p.Targets) {
			made.verdicts = append(made.verdicts, ParentVerdict{gw, []cluster.Condition{condition}})
		}
		c.trafficPolicies[key] = made
	}
}

// acceptTrafficPolicy returns the condition Accepted of a policy.
func (c *Config) acceptTrafficPolicy(v *cluster.View, p *cluster.BackendTrafficPolicy) cluster.Condition {
	const noSession = "sessionPersistence is not supported"
	for i := range p.Targets {
		of := &p.Targets[i].ObjectRef
		if _, ok := of.Core(cluster.KindService); !ok {
			return no(accepted, "Invalid", fmt.Sprintf("%s %s is not a Service", kindText(of), of.Name))
		}
		if by := trafficPolicyOf(v, *of); by.Key != p.Key {
			return no(accepted, conflicted, fmt.Sprintf("XBackendTrafficPolicy %s, which is older, has the same target", by.Key))
		}
	}
	switch {
	case !c.Experimental:
		return no(accepted, "Invalid", "XBackendTrafficPolicies have no effect without gateway.experimental")
	case p.Session && p.Retries == nil:
		return no(accepted, "Invalid", noSession)
	case p.Session:
		return yes(accepted, accepted, noSession)
	}
	return yes(accepted, accepted, "")
}

// TrafficPolicy returns what is said of an XBackendTrafficPolicy: its Parents are Gateways. It is nil if no route of
// ours needs it.
func (c *Compiler) TrafficPolicy(key cluster.Key) []ParentVerdict {
	if p := c.trafficPolicies[key]; p != nil {
		return p.verdicts
	}
	return nil
}
