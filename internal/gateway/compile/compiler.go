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
//	                 affected.go: what a change makes necessary to compile again
//	                 host.go:     the hosts, of all routes that have a hostname, and their listeners
//	                 compiler.go: runs these
//	                 port.go:     the ports
//	                 upstream.go: the endpoints of the Service ports that rules refer to
//	             ──► table.Table, addresses of Upstreams, Verdicts
package compile

import (
	"cmp"
	"maps"
	"net/netip"

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

// noHost is the place of what serves requests that no host of an Ingress has a route for. No hostname
// has a space.
const noHost = " "
