package status

import (
	"slices"
	"strings"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/compile"
)

// ours are the types of conditions that this package sets and removes. All others belong to other programs.
var ours = []string{
	accepted, programmed, conflicted, supportedVersion, resolvedRefs, "PartiallyInvalid", "OverlappingTLSConfig",
	"InsecureFrontendValidationMode",
}

// Limits of the API.
const (
	maxParents   = 32
	maxAncestors = 16
	maxMessage   = 32 << 10
)

// apply returns the object with the status that is wanted; nil if it has that already. It returns nil also if the
// spec is another one than was judged: then the judgement of that one follows.
func (w *wanted) apply(o cluster.Object, controller string, now time.Time) cluster.Object {
	at := now.Unix()
	switch o := o.(type) {
	case *cluster.GatewayClass:
		return w.toClass(o, at)
	case *cluster.ListenerSet:
		return w.toSet(o, at)
	case *cluster.Route:
		return w.toRoute(o, controller, at)
	case *cluster.BackendTLSPolicy:
		if made := w.mergeAncestors(o.Ancestors, o.Meta, controller, at); made != nil {
			policy := *o
			policy.Ancestors = *made
			return &policy
		}
	case *cluster.BackendTrafficPolicy:
		if made := w.mergeAncestors(o.Ancestors, o.Meta, controller, at); made != nil {
			policy := *o
			policy.Ancestors = *made
			return &policy
		}
	case *cluster.RoutePolicy:
		if made := w.mergeAncestors(o.Ancestors, o.Meta, controller, at); made != nil {
			policy := *o
			policy.Ancestors = *made
			return &policy
		}
	case *cluster.Frontend:
		if o.Gateway != nil {
			return w.toGateway(o, at)
		}
		return w.toIngress(o)
	}
	return nil
}

func (w *wanted) toClass(o *cluster.GatewayClass, now int64) cluster.Object {
	conditions := w.merge(o.Conditions, w.conditions, now)
	if o.Generation != w.generation || slices.Equal(o.Conditions, conditions) && slices.Equal(o.Features, w.features) {
		return nil
	}
	made := *o
	made.Conditions, made.Features = conditions, w.features
	return &made
}

func (w *wanted) toSet(o *cluster.ListenerSet, now int64) cluster.Object {
	conditions, listeners := w.merge(o.Conditions, w.conditions, now), w.mergeListeners(o.ListenerStatuses, now)
	same := slices.Equal(o.Conditions, conditions) && slices.EqualFunc(o.ListenerStatuses, listeners, sameListener)
	if same || o.Generation != w.generation {
		return nil
	}
	made := *o
	made.Conditions, made.ListenerStatuses = conditions, listeners
	return &made
}

func (w *wanted) toGateway(o *cluster.Frontend, now int64) cluster.Object {
	was := &o.Gateway.Status
	status := cluster.GatewayStatus{
		Addresses: w.addresses, Conditions: w.merge(was.Conditions, w.conditions, now),
		Listeners: w.mergeListeners(was.Listeners, now), AttachedListenerSets: w.sets,
	}
	same := slices.Equal(was.Addresses, status.Addresses) && slices.Equal(was.Conditions, status.Conditions) &&
		slices.EqualFunc(was.Listeners, status.Listeners, sameListener) && was.AttachedListenerSets == w.sets
	if same || o.Gateway.Generation != w.generation {
		return nil
	}
	made, spec := *o, *o.Gateway
	spec.Status = status
	made.Gateway = &spec
	return &made
}

// toIngress sets the addresses of an Ingress.
func (w *wanted) toIngress(o *cluster.Frontend) cluster.Object {
	if o.Ingress == nil || w.balancers == nil || slices.Equal(o.Ingress.LoadBalancer, w.balancers) {
		return nil
	}
	made, spec := *o, *o.Ingress
	spec.LoadBalancer = w.balancers
	made.Ingress = &spec
	return &made
}

func (w *wanted) toRoute(o *cluster.Route, controller string, now int64) cluster.Object {
	if o.Spec == nil || o.Spec.Generation != w.generation {
		return nil
	}
	made := w.mergeParents(o.Spec.Statuses, controller, now)
	if made = made[:min(len(made), maxParents)]; slices.EqualFunc(o.Spec.Statuses, made, sameParent) {
		return nil
	}
	route, spec := *o, *o.Spec
	spec.Statuses = made
	route.Spec = &spec
	return &route
}

// mergeAncestors returns the ancestors of a policy's status as they are to be; nil if they stay.
func (w *wanted) mergeAncestors(
	was []cluster.ParentStatus, of cluster.Meta, controller string, now int64,
) *[]cluster.ParentStatus {
	made := w.mergeParents(was, controller, now)
	made = made[:min(len(made), maxAncestors)]
	if of.Generation != w.generation || slices.EqualFunc(was, made, sameParent) {
		return nil
	}
	return &made
}

// mergeParents returns the entries of a status with those of a controller as they are to be. Those of its entries that
// have no parent any more, or the same as another one, are removed; those of other controllers stay.
func (w *wanted) mergeParents(
	all []cluster.ParentStatus, controller string, now int64,
) (made []cluster.ParentStatus) {
	done := make(map[cluster.ParentRef]bool)
	for _, was := range all {
		if was.Controller != controller {
			made = append(made, was)
			continue
		}
		isIt := func(p compile.ParentVerdict) bool { return p.Parent == was.Parent }
		if i := slices.IndexFunc(w.parents, isIt); i >= 0 && !done[was.Parent] {
			was.Conditions = w.merge(was.Conditions, w.parents[i].Conditions, now)
			made, done[was.Parent] = append(made, was), true
		}
	}
	for _, p := range w.parents {
		if done[p.Parent] {
			continue
		}
		made, done[p.Parent] = append(made, cluster.ParentStatus{
			Parent: p.Parent, Controller: controller, Conditions: w.merge(nil, p.Conditions, now),
		}), true
	}
	return made
}

// merge returns conditions as they are to be: those that are wanted, and those of others. The time of one whose
// status stays is kept, and the order too.
func (w *wanted) merge(was []cluster.StatusCondition, want []cluster.Condition, now int64) []cluster.StatusCondition {
	made := make([]cluster.StatusCondition, 0, len(want))
	for _, c := range was {
		if to := find(want, c.Type); to != nil {
			if c.Status != to.Status {
				c.Changed = now
			}
			c.Condition, c.Generation = *to, w.generation
			made = append(made, c)
		} else if !slices.Contains(ours, c.Type) {
			made = append(made, c)
		}
	}
	for _, to := range want {
		isIt := func(c cluster.StatusCondition) bool { return c.Type == to.Type }
		if !slices.ContainsFunc(made, isIt) {
			made = append(made, cluster.StatusCondition{Condition: to, Generation: w.generation, Changed: now})
		}
	}
	for i := range made {
		made[i].Message = cut(made[i].Message, maxMessage)
	}
	return made
}

func (w *wanted) mergeListeners(was []cluster.ListenerStatus, now int64) (made []cluster.ListenerStatus) {
	for i := range w.listeners {
		l := &w.listeners[i]
		var conditions []cluster.StatusCondition
		isIt := func(s cluster.ListenerStatus) bool { return s.Name == l.name }
		if k := slices.IndexFunc(was, isIt); k >= 0 {
			conditions = was[k].Conditions
		}
		made = append(made, cluster.ListenerStatus{
			Name: l.name, SupportedKinds: l.kinds, AttachedRoutes: l.attached,
			Conditions: w.merge(conditions, l.conditions, now),
		})
	}
	return made
}

func sameListener(a, b cluster.ListenerStatus) bool {
	return a.Name == b.Name && slices.Equal(a.SupportedKinds, b.SupportedKinds) && a.AttachedRoutes == b.AttachedRoutes &&
		slices.Equal(a.Conditions, b.Conditions)
}

func sameParent(a, b cluster.ParentStatus) bool {
	return a.Parent == b.Parent && a.Controller == b.Controller && slices.Equal(a.Conditions, b.Conditions)
}

// cut returns the beginning of a text, of at most n octets.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}
