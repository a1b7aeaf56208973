package lint

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/compile"
)

// gatewayGroup is the API group of Gateway API.
const gatewayGroup = "gateway.networking.k8s.io"

// routeKinds are the kinds that decide which routes are accepted.
var routeKinds = []cluster.Kind{
	cluster.KindNamespace, cluster.KindGatewayClass, cluster.KindGateway, cluster.KindListenerSet, cluster.KindHTTPRoute,
	cluster.KindGRPCRoute,
}

// routing is what gateways make of the model.
type routing struct {
	// any are the verdicts on all Gateways and their routes, whoever serves them: what the API alone decides.
	// Each Gateway has an address of its own.
	any *compile.Verdicts
	// own are the verdicts on the Gateways and Ingresses that our gateway serves.
	own *compile.Verdicts
	// shadows are the matches that never serve, by their route or Ingress.
	shadows map[cluster.Ref][]compile.Shadow
}

// routing compiles the model, once.
func (c *Linter) routing() *routing {
	c.compileOnce.Do(func() { c.compiled = newRouting(c) })
	return c.compiled
}

// compiled is what a Linter compiles once.
type compiledRouting struct {
	compileOnce sync.Once
	compiled    *routing
}

// The controllers of the classes in a neutral copy of a model. Each IngressClass has one of its own.
const (
	anyController     = "any"
	nobody            = "nobody"
	ingressController = "ingress/"
)

func newRouting(c *Linter) *routing {
	own := compile.NewCompiler(c.Gateway)
	everything := &cluster.Changes{Everything: true}
	own.Apply(c.View, everything)
	made := &routing{own: own.Verdicts(), shadows: make(map[cluster.Ref][]compile.Shadow)}
	store, pool, classes := c.neutral()
	store.View(func(v *cluster.View) {
		routes := compile.NewCompiler(compile.Config{
			GatewayController: anyController, IngressController: nobody, Pool: pool, PoolByDefault: true,
		})
		routes.Apply(v, everything)
		made.any = routes.Verdicts()
		made.add(made.any.Shadows)
		for _, class := range classes {
			of := compile.NewCompiler(compile.Config{GatewayController: nobody, IngressController: ingressController + class})
			of.Apply(v, everything)
			made.add(of.Verdicts().Shadows)
		}
	})
	return made
}

// add adds shadows, each once for all listeners of a hostname.
func (r *routing) add(all []compile.Shadow) {
	for _, s := range all {
		if of := r.shadows[s.Route]; !slices.Contains(of, s) {
			r.shadows[s.Route] = append(of, s)
		}
	}
}

// neutral returns a copy of the model in which one controller serves all Gateways, without what is a
// controller's own business, and another one each class of Ingresses; the addresses for its Gateways, and the
// classes.
func (c *Linter) neutral() (store *cluster.Store, pool []netip.Addr, classes []string) {
	store = cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		for _, k := range []cluster.Kind{
			cluster.KindNamespace, cluster.KindService, cluster.KindReferenceGrant, cluster.KindListenerSet,
			cluster.KindHTTPRoute, cluster.KindGRPCRoute,
		} {
			for o := range c.View.Objects(k) {
				tx.Put(o)
			}
		}
		next := netip.MustParseAddr("100.64.0.1") // any will do
		for f := range cluster.Gateways.All(c.View) {
			if f.Gateway == nil {
				continue
			}
			copied, spec := *f, *f.Gateway
			spec.Addresses, spec.Parameters, spec.Status = nil, nil, cluster.GatewayStatus{}
			copied.Gateway = &spec
			tx.Put(&copied)
			tx.Put(&cluster.GatewayClass{Name: spec.Class, Controller: anyController})
			pool, next = append(pool, next), next.Next()
		}
		for f := range cluster.Ingresses.All(c.View) {
			if copied := c.neutralIngress(f); copied != nil {
				tx.Put(copied)
				if class := copied.Ingress.Class; !slices.Contains(classes, class) {
					classes = append(classes, class)
					tx.Put(&cluster.IngressClass{Name: class, Controller: ingressController + class})
				}
			}
		}
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
	})
	return store, pool, classes
}

// neutralIngress returns an Ingress with its class, and without paths that mean what its controller says; nil
// for one whose rules are not compared with those of others.
func (c *Linter) neutralIngress(f *cluster.Frontend) *cluster.Frontend {
	const canary = "nginx.ingress.kubernetes.io/canary" // has the rules of another Ingress
	if f.Ingress == nil || f.Ingress.Annotations[canary] == "true" {
		return nil
	}
	copied, spec := *f, *f.Ingress
	if spec.Class = c.classOf(f.Ingress); spec.Class == "" {
		spec.Class = "none"
	}
	spec.OldClass, spec.TLS, spec.Default = "", nil, nil
	spec.Rules = slices.Clone(spec.Rules)
	for i := range spec.Rules {
		r := &spec.Rules[i]
		r.Paths = slices.DeleteFunc(slices.Clone(r.Paths), func(p cluster.IngressPath) bool {
			return p.Type == cluster.PathImplementationSpecific
		})
	}
	copied.Ingress = &spec
	return &copied
}

// classOf returns the class of an Ingress: that it names, else the only default; empty if there is none.
func (c *Linter) classOf(i *cluster.IngressSpec) string {
	if name := cmp.Or(i.Class, i.OldClass); name != "" {
		return name
	}
	if defaults := c.defaultClasses(); len(defaults) == 1 {
		return defaults[0]
	}
	return ""
}

// defaultClasses returns the IngressClasses that are the default, sorted.
func (c *Linter) defaultClasses() (names []string) {
	for class := range cluster.IngressClasses.All(c.View) {
		if class.Default {
			names = append(names, class.Name)
		}
	}
	slices.Sort(names)
	return names
}

// isOurs reports whether our gateway serves a Gateway.
func (c *Linter) isOurs(f *cluster.Frontend) bool {
	_, ours := c.routing().own.Gateways[f.Key]
	return ours
}
