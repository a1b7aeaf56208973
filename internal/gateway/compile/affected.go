package compile

import (
	"iter"
	"maps"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// insertRoutes has routes be compiled again.
func (d *dirty) insertRoutes(all iter.Seq[*cluster.Route]) {
	for r := range all {
		d.routes[r.Ref()] = struct{}{}
	}
}

// insertUsers has what sends requests to a Service be compiled again.
func (d *dirty) insertUsers(v *cluster.View, service cluster.Key) {
	d.insertRoutes(cluster.RoutesByBackend.Get(v, targetOf(service)))
	addKeys(d.ingresses, noKeys, slices.Values(cluster.IngressesByService.Get(v, service)))
}

// noKeys yields none.
func noKeys(func(cluster.Key) bool) {}

// addKeys adds keys, and those of objects.
func addKeys[T cluster.Object](to map[cluster.Key]struct{}, keys iter.Seq[cluster.Key], objects iter.Seq[T]) {
	for key := range keys {
		to[key] = struct{}{}
	}
	for o := range objects {
		to[o.Ref().Key] = struct{}{}
	}
}

// affected adds what depends on objects that changed.
func (c *Compiler) affected(v *cluster.View, changes *cluster.Changes, d *dirty) {
	listeners := false
	for ref := range changes.Objects {
		switch ref.Kind {
		case cluster.KindHTTPRoute, cluster.KindGRPCRoute, cluster.KindTLSRoute, cluster.KindTCPRoute, cluster.KindUDPRoute:
			if d.verdicts[ref] = struct{}{}; !c.sameRoute(v, ref) {
				d.routes[ref] = struct{}{}
			}
		case cluster.KindIngress:
			if d.verdicts[ref] = struct{}{}; !c.sameIngress(v, ref.Key) {
				d.ingresses[ref.Key] = struct{}{}
			}
		case cluster.KindGatewayClass, cluster.KindGateway, cluster.KindListenerSet:
			d.verdicts[ref] = struct{}{}
			listeners = listeners || !c.gateways.same(v, ref)
		case cluster.KindIngressClass:
			addKeys(d.ingresses, noKeys, cluster.Ingresses.All(v))
		case cluster.KindService:
			if !c.upstreams.replaced(v, ref.Key) {
				continue // but its endpoints
			}
			d.insertUsers(v, ref.Key)
		case cluster.KindReferenceGrant:
			maps.Copy(d.routes, c.foreign[ref.Key.Namespace])
			c.grantChanged(v, ref.Key.Namespace, d)
			listeners = listeners || c.gateways.hasAuthoritiesIn(ref.Key.Namespace)
		case cluster.KindSecret:
			c.secretChanged(v, ref, d)
		case cluster.KindBackendTLSPolicy:
			c.policyChanged(v, ref.Key, d)
		case cluster.KindRoutePolicy:
			c.routePolicyChanged(v, ref.Key, d)
		case cluster.KindBackendTrafficPolicy:
			c.trafficPolicyChanged(v, ref.Key, d)
		case cluster.KindConfigMap:
			for _, p := range cluster.PoliciesByReference.Get(v, ref) {
				c.policyChanged(v, p.Key, d)
			}
			listeners = listeners || len(cluster.GatewaysByReference.Get(v, ref)) > 0 // authorities of clients
		case cluster.KindNamespace: // its labels
			listeners = true
			for r := range cluster.Routes(v) {
				if r.Namespace == ref.Key.Name {
					d.routes[r.Ref()] = struct{}{}
				}
			}
		}
	}
	if changes.Freshness {
		c.secretsRead(v, d)
		c.authoritiesRead(v, d)
		listeners = listeners || c.gateways.lackAuthorities()
		c.passwordsRead(v, d)
	}
	if is := c.cfg.Publish.find(v); listeners || !c.gateways.shared.equal(&is) {
		c.replaceGateways(v, d)
	}
}

// replaceGateways compiles the Gateways again, and adds the routes of those that changed.
func (c *Compiler) replaceGateways(v *cluster.View, d *dirty) {
	was := c.gateways
	c.gateways = c.cfg.compileGateways(v)
	refs := maps.Clone(was.holders)
	if refs == nil {
		refs = make(map[cluster.Ref]*holder)
	}
	maps.Copy(refs, c.gateways.holders)
	for ref := range refs {
		before, after := was.holders[ref], c.gateways.holders[ref]
		if before.equal(after) {
			continue
		}
		d.holders(ref, before, after)
		of := cluster.ObjectRef{
			Group: gatewayGroup, Kind: ref.Kind.String(), Namespace: ref.Key.Namespace, Name: ref.Key.Name,
		}
		d.insertRoutes(cluster.RoutesByParent.Get(v, of))
		for _, h := range []*holder{before, after} {
			if h != nil {
				for _, l := range h.listeners {
					d.listeners[l.name()] = struct{}{}
				}
			}
		}
	}
	c.certifyAll(v, d)
}
