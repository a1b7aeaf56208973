// Package compile compiles Ingresses and the objects of Gateway API into the table of a gateway, and
// into what is said of them (Kubernetes, "Ingress"; Gateway API v1).
//
//	cluster.View ──► listener.go: the listeners of Gateways and ListenerSets, and which conflict
//	                 pool.go:     the addresses of Gateways
//	                 certificate.go: the certificates of listeners and Ingresses
//	                 clientvalidation.go: which clients they accept
//	                 attach.go:   which listeners take a route, for which hostnames
//	                 contest.go:  HTTPRoutes and GRPCRoutes that exclude each other
//	                 route.go:    what becomes of a route
//	                 rule.go:     its rules
//	                 backendtls.go: how TLS is spoken with backends
//	                 trafficpolicy.go: how many requests are sent to them again
//	                 routepolicy.go: what they demand of requests
//	                 experimental.go: their fields of the experimental channel
//	                 ingress.go:  the paths of an Ingress
//	                 compiler.go: the hosts, of all routes that have a hostname; what changed
//	                 port.go:     the ports
//	                 upstream.go: the endpoints of the Service ports that rules refer to
//	             ──► table.Table, addresses of Upstreams, Verdicts
package compile

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// Config is whose objects are compiled, and where they are served.
type Config struct {
	// GatewayController and IngressController are the controllers of our GatewayClasses and
	// IngressClasses.
	GatewayController, IngressController string
	// IngressPort and IngressTLSPort are where Ingresses are served; 0 is 80 and 443.
	IngressPort, IngressTLSPort uint16
	// DefaultCertificate: whoever serves the table has a certificate for hosts of Ingresses that have none.
	DefaultCertificate bool
	// Node is where the gateway runs, for topology hints; empty without one.
	Node string
	// Annotated has Ingresses be served as their annotations of ingress-nginx say.
	Annotated bool
	// Unclassed has Ingresses be ours while there is no IngressClass, as in the manifests of many projects.
	Unclassed bool
	// Pool are the addresses of which Gateways can have some of their own, in order and no IPv4 address as an
	// IPv6 one. Without it all share those of the process.
	Pool []netip.Addr
	// PoolByDefault has Gateways that request no address have one of Pool.
	PoolByDefault bool
	// Publish is where the addresses come from that Gateways without their own share with Ingresses.
	Publish Publish
	// Experimental has fields of the experimental channel of Gateway API have an effect.
	Experimental bool
	// Endpoints are those of Services in place of the cluster's.
	Endpoints map[ServicePort][]netip.AddrPort
}

// ServicePort is a port of a Service, 0 for all of them.
type ServicePort struct {
	Namespace, Service string
	Port               uint16
}

// Compiler compiles what changed of a cluster. What it holds is what compiling everything anew yields.
type Compiler struct {
	cfg       Config
	gateways  gateways
	routes    map[cluster.Ref]*route   // with a parent of ours
	ingresses map[cluster.Key]*ingress // that are ours
	// foreign are the routes that refer to objects in other namespaces, by namespace.
	foreign      map[string]map[cluster.Ref]struct{}
	contests     contests
	upstreams    upstreams
	certificates certificates
	policies     map[cluster.Key]*policy
	// routePolicies are all that there are.
	routePolicies map[cluster.Key]*routePolicy
	// trafficPolicies are all XBackendTrafficPolicies.
	trafficPolicies map[cluster.Key]*trafficPolicy
	// attached is how many routes a listener took, and parts what each host is made of.
	attached map[string]int32
	parts    map[place][]part
	hosts    map[string]map[string]*host // by listener and hostname
	// listeners are those that serve; ports are what has them.
	listeners map[string]*table.Listener
	ports     map[table.Socket]*port
	// taken are the ports of Ingresses at which they are not served, and what the listener in the way serves.
	taken map[uint16]string
	table *table.Table
}

// place is where a host is: the name of a listener, and a hostname.
type place struct{ listener, hostname string }

// ingresses is the name of the listener of Ingresses.
const ingresses = "Ingress"

// part is what an object has of a host.
type part struct {
	of cluster.Ref
	// by is the object's own hostname, for which it has its part.
	by     string
	age    cluster.Age
	routes []table.Route
	// rest serves what no route of the host does; nil for none.
	rest *table.Rule
	// annotated is nil unless annotations have an effect.
	annotated *annotated
	// borrows is the host whose paths are served for this one, too; empty if it is a host of the object.
	borrows string
	// redirects: requests are redirected to the host of borrows instead.
	redirects bool
}

// host is a compiled host, and the routes of it that never serve.
type host struct {
	*table.Host
	shadows []Shadow
	// problems are those of Ingresses that come of others of the host.
	problems []hostProblem
}

// NewCompiler returns a Compiler that has compiled nothing.
func NewCompiler(cfg Config) *Compiler {
	cfg.IngressPort, cfg.IngressTLSPort = cmp.Or(cfg.IngressPort, 80), cmp.Or(cfg.IngressTLSPort, 443)
	return &Compiler{
		cfg: cfg, routes: make(map[cluster.Ref]*route), ingresses: make(map[cluster.Key]*ingress),
		foreign: make(map[string]map[cluster.Ref]struct{}), contests: make(contests),
		policies: make(map[cluster.Key]*policy), routePolicies: make(map[cluster.Key]*routePolicy),
		trafficPolicies: make(map[cluster.Key]*trafficPolicy), attached: make(map[string]int32),
		parts: make(map[place][]part), hosts: make(map[string]map[string]*host),
		listeners: make(map[string]*table.Listener),
		upstreams: upstreams{set: cfg.Endpoints, services: make(map[cluster.Key]*service)}, certificates: newCertificates(),
	}
}

// dirty is what must be compiled again.
type dirty struct {
	routes    map[cluster.Ref]struct{}
	ingresses map[cluster.Key]struct{}
	places    map[place]struct{}
	listeners map[string]struct{}
	// serverNames are hosts of Ingresses whose certificate may be another one.
	serverNames map[string]struct{}
	// policies are to be judged again, and those of the backends.
	policies map[cluster.Key]struct{}
	backends map[cluster.ObjectRef]struct{}
	// routePolicies are to be judged again.
	routePolicies map[cluster.Key]struct{}
	// trafficPolicies are XBackendTrafficPolicies that are to be judged again.
	trafficPolicies map[cluster.Key]struct{}
	// verdicts are the objects of Output.Changed.
	verdicts map[cluster.Ref]struct{}
}

// Output is what a change is compiled into.
type Output struct {
	// Table is the same as before if only endpoints changed.
	Table *table.Table
	// Endpoints are the addresses of the Upstreams that may have other ones than before; nil for those that no
	// rule refers to any more.
	Endpoints map[table.Upstream][]netip.AddrPort
	// Changed are the objects that may have another verdict than before, and those whose status may have been
	// written since. Some may not exist, or have no verdict.
	Changed map[cluster.Ref]struct{}
}

// Apply compiles what a change may have changed.
func (c *Compiler) Apply(v *cluster.View, changes *cluster.Changes) Output {
	c.upstreams.begin(v, changes.Everything, c.cfg.Node)
	d := &dirty{
		make(map[cluster.Ref]struct{}), make(map[cluster.Key]struct{}),
		make(map[place]struct{}), make(map[string]struct{}), make(map[string]struct{}),
		make(map[cluster.Key]struct{}), make(map[cluster.ObjectRef]struct{}), make(map[cluster.Key]struct{}),
		make(map[cluster.Key]struct{}),
		make(map[cluster.Ref]struct{}),
	}
	if changes.Everything {
		for ref := range c.routes {
			d.routes[ref] = struct{}{}
		}
		d.insertRoutes(cluster.Routes(v))
		addKeys(d.ingresses, maps.Keys(c.ingresses), cluster.Ingresses.All(v))
		c.certificates.forget(v)
		for _, k := range []cluster.Kind{cluster.KindGatewayClass, cluster.KindGateway, cluster.KindListenerSet} {
			for o := range v.Objects(k) {
				d.verdicts[o.Ref()] = struct{}{}
			}
		}
		addKeys(d.policies, maps.Keys(c.policies), cluster.BackendTLSPolicies.All(v))
		addKeys(d.routePolicies, maps.Keys(c.routePolicies), cluster.RoutePolicies.All(v))
		addKeys(d.trafficPolicies, maps.Keys(c.trafficPolicies), cluster.BackendTrafficPolicies.All(v))
		c.replaceGateways(v, d)
	} else {
		c.affected(v, changes, d)
	}
	c.putRoutes(v, d)
	for key := range d.ingresses {
		c.putIngress(v, key, d)
	}
	c.judgePolicies(v, d)
	c.judgeRoutePolicies(v, d)
	c.judgeTrafficPolicies(v, d)
	c.buildHosts(d)
	if c.table == nil || len(d.listeners) > 0 {
		c.buildListeners(d)
		c.table = c.newTable()
	}
	return Output{c.table, c.upstreams.endpoints(v), d.verdicts}
}

// Published returns the addresses that all Gateways and Ingresses share, as they were at the last Apply; nil if none
// are configured.
func (c *Compiler) Published() []cluster.GatewayAddress { return c.gateways.shared.published }

func (c *Compiler) newTable() *table.Table {
	ports := make(map[table.Socket]*table.Port, len(c.ports))
	for s, p := range c.ports {
		ports[s] = p.Port
	}
	return table.New(ports)
}

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

// putIngress replaces what an Ingress was compiled into.
func (c *Compiler) putIngress(v *cluster.View, key cluster.Key, d *dirty) {
	ref := cluster.Ref{Kind: cluster.KindIngress, Key: key}
	d.listeners[ingresses], d.verdicts[ref] = struct{}{}, struct{}{}
	was := c.ingresses[key]
	if was != nil {
		for hostname := range was.routes {
			c.takePart(place{ingresses, hostname}, ref, d)
		}
		for hostname := range was.annotated.borrowers() {
			c.takePart(place{ingresses, hostname}, ref, d)
		}
		if was.rest != nil {
			c.takePart(place{ingresses, noHost}, ref, d)
		}
		for _, routes := range was.all() {
			c.upstreams.release(routes)
		}
		delete(c.ingresses, key)
	}
	made := c.compileIngress(v, key, was)
	if c.putHostCertificates(key, was, made, d); made == nil {
		return
	}
	c.ingresses[key] = made
	for _, routes := range made.all() {
		c.upstreams.use(v, routes)
	}
	for hostname, routes := range made.routes {
		c.putPart(place{ingresses, hostname}, part{
			of: ref, by: hostname, age: made.age, routes: routes, rest: made.rest, annotated: made.annotated,
		}, d)
	}
	c.putBorrowers(ref, made, d)
	if made.rest != nil {
		c.putPart(place{ingresses, noHost}, part{of: ref, age: made.age, rest: made.rest}, d)
	}
}

// compileIngress compiles an Ingress; nil if there is none or it is not ours. Was is what it was compiled into
// before.
func (c *Compiler) compileIngress(v *cluster.View, key cluster.Key, was *ingress) *ingress {
	f := cluster.Ingresses.Get(v, key)
	if f == nil || f.Ingress == nil {
		return nil
	}
	made := c.cfg.compileIngress(v, f)
	if made != nil {
		c.certifyIngress(v, f, made, was)
		for _, routes := range made.all() {
			c.cfg.limitRetries(v, routes)
		}
	}
	return made
}

// noHost is the place of what serves requests that no host of an Ingress has a route for. No hostname
// has a space.
const noHost = " "

// putPart adds what an object has of a host, of which it has nothing.
func (c *Compiler) putPart(at place, p part, d *dirty) {
	c.parts[at] = append(c.parts[at], p)
	d.places[at] = struct{}{}
}

// takePart removes what an object has of a host.
func (c *Compiler) takePart(at place, of cluster.Ref, d *dirty) {
	c.parts[at] = slices.DeleteFunc(c.parts[at], func(p part) bool { return p.of == of })
	if len(c.parts[at]) == 0 {
		delete(c.parts, at)
	}
	d.places[at] = struct{}{}
}

// buildHosts builds the hosts of places from their parts.
func (c *Compiler) buildHosts(d *dirty) {
	c.borrow(d)
	for at := range d.places {
		d.listeners[at.listener] = struct{}{}
		parts := c.parts[at]
		if len(parts) == 0 {
			if delete(c.hosts[at.listener], at.hostname); len(c.hosts[at.listener]) == 0 {
				delete(c.hosts, at.listener)
			}
			continue
		}
		if c.hosts[at.listener] == nil {
			c.hosts[at.listener] = make(map[string]*host)
		}
		if c.cfg.Annotated && at.listener == ingresses && at.hostname != noHost {
			was, made := c.hosts[at.listener][at.hostname], c.annotatedHost(at.hostname, parts)
			if c.hosts[at.listener][at.hostname] = made; was != nil {
				d.judge(was.problems)
			}
			d.judge(made.problems)
			continue
		}
		c.hosts[at.listener][at.hostname] = newHost(at.hostname, parts)
	}
}

// judge notes the Ingresses that have problems.
func (d *dirty) judge(problems []hostProblem) {
	for i := range problems {
		d.verdicts[problems[i].of] = struct{}{}
	}
}

// newHost builds a host. Routes whose own hostname is more specific come first (HTTPRouteSpec.hostnames), then
// those of older objects, and what serves the rest last. It sorts parts so.
func newHost(hostname string, parts []part) *host {
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(specificity(a.by, b.by), a.age.Compare(b.age), alphabetical(a.of.Key, b.of.Key))
	})
	var groups [][]table.Route
	var late, rest []table.Route
	owners := make(map[*table.Rule]cluster.Ref)
	for i, p := range parts {
		if i == 0 || p.by != parts[i-1].by {
			groups = append(groups, nil)
		}
		for _, r := range p.routes {
			owners[r.Rule] = p.of
			if r.AnyService {
				late = append(late, r)
			} else {
				groups[len(groups)-1] = append(groups[len(groups)-1], r)
			}
		}
		if last := i == len(parts)-1 || parts[i+1].by != p.by; last && late != nil {
			groups, late = append(groups, late), nil
		}
		if p.rest != nil {
			rest = append(rest, table.Route{Match: table.Match{Kind: table.Prefix, Path: "/"}, Rule: p.rest})
		}
	}
	if rest != nil {
		groups = append(groups, rest)
	}
	made := &host{Host: table.NewHost(groups...)}
	made.shadows = shadows(hostname, made.Routes(), owners)
	return made
}

// shadows returns the routes of a host that never serve, by the owners of their rules. Rules without an owner
// serve the rest, which are not counted.
func shadows(hostname string, routes []table.Route, owners map[*table.Rule]cluster.Ref) (all []Shadow) {
	serves := make(map[string]*table.Rule)
	for _, r := range routes {
		of, counts := owners[r.Rule]
		if !counts {
			continue
		}
		key := r.String()
		by, taken := serves[key]
		if !taken {
			serves[key] = r.Rule
		} else if by != r.Rule {
			all = append(all, Shadow{hostname, of, r.Rule.Index, owners[by]})
		}
	}
	return all
}

// buildListeners builds the listeners whose hosts changed, and the ports that have them.
func (c *Compiler) buildListeners(d *dirty) {
	serving := make(map[string]*listener)
	for _, l := range c.gateways.serving {
		serving[l.name()] = l
	}
	for name := range d.listeners {
		from := serving[name]
		made := c.listeners[name]
		switch {
		case name == ingresses && len(c.ingresses) > 0:
			made = cmp.Or(made, table.NewIngresses())
		case from == nil:
			delete(c.listeners, name)
			continue
		case made == nil || made.Hostname != from.hostname:
			made = table.NewListener(name, from.hostname)
		}
		made = c.withHosts(made, name, d)
		if name == ingresses {
			made = c.withHostCertificates(made, d)
		} else {
			made = made.WithMode(from.mode()).WithCertificates(c.certificates.list(name)).
				WithClientCertificate(c.certificates.clients[from.gateway].shown()).WithClients(from.clients)
		}
		c.listeners[name] = made
	}
	taken := c.taken
	if c.buildPorts(); !maps.Equal(taken, c.taken) {
		for key := range c.ingresses {
			d.verdicts[cluster.Ref{Kind: cluster.KindIngress, Key: key}] = struct{}{}
		}
	}
}

// withHosts returns a listener with the hosts that it is to have.
func (c *Compiler) withHosts(l *table.Listener, name string, d *dirty) *table.Listener {
	differ := make(map[string]*table.Host)
	if l != c.listeners[name] { // it has none
		for hostname, h := range c.hosts[name] {
			differ[hostname] = h.Host
		}
	} else {
		for at := range d.places {
			if at.listener == name {
				differ[at.hostname] = c.hosts[name][at.hostname].table()
			}
		}
	}
	if rest, ok := differ[noHost]; ok {
		l = l.WithRest(rest)
		delete(differ, noHost)
	}
	return l.WithHosts(differ)
}

// of returns the problems of an Ingress.
func (h *host) of(ref cluster.Ref) (all []hostProblem) {
	if h != nil {
		for _, p := range h.problems {
			if p.of == ref {
				all = append(all, p)
			}
		}
	}
	return all
}

// table returns the Host of h; nil if there is no h.
func (h *host) table() *table.Host {
	if h == nil {
		return nil
	}
	return h.Host
}

// unserved returns what users must know of an Ingress of which a Gateway has a port, or that another Ingress of a host
// affects.
func (c *Compiler) unserved(i *ingress) (problems []Problem) {
	for _, hostname := range slices.Sorted(maps.Keys(i.routes)) {
		for _, p := range c.hosts[ingresses][hostname].of(i.from.Ref()) {
			problems = append(problems, p.Problem)
		}
	}
	if by := c.taken[c.cfg.IngressPort]; by != "" {
		problems = append(problems, Problem{"spec.rules", fmt.Sprintf("%s at port %d", by, c.cfg.IngressPort)})
	}
	if by := c.taken[c.cfg.IngressTLSPort]; by != "" && len(i.certificates) > 0 {
		problems = append(problems, Problem{"spec.tls", fmt.Sprintf("%s at port %d", by, c.cfg.IngressTLSPort)})
	}
	return problems
}
