package api

import (
	"reflect"
	"slices"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/object"
)

// resource is how a kind is read.
type resource struct {
	object.Kind
	tuning
}

// tuning is what is particular about reading a kind. The zero tuning reads all
// objects and keeps all that the model has fields for.
type tuning struct {
	// scopes returns the scopes that the kind is read in; nil is one for each
	// Namespace that is read, or one for all.
	scopes func(*Config) []scope
	// trim drops fields of the model that DNS answers don't need; nil drops none.
	trim func(cluster.Object, *Config)
	// clear empties an API object for the next one to be decoded into it, and
	// keeps its memory; nil sets it to zero.
	clear func(apiObject any)
}

// tunings are the kinds that there is anything particular about: those of which a
// large cluster has many.
var tunings = map[cluster.Kind]tuning{
	cluster.KindNamespace: {scopes: namespaceScopes, trim: trims(trimNamespace)},
	cluster.KindService: {
		scopes: func(c *Config) []scope { return namespaced(c, scope{labels: c.ServiceSelector}) },
		trim:   trims(trimService), clear: clearService,
	},
	cluster.KindEndpointSlice: {scopes: sliceScopes, trim: trims(trimSlice), clear: clearSlice},
	cluster.KindPod: {
		scopes: func(c *Config) []scope { return namespaced(c, scope{fields: notFinished}) },
		trim:   trims(trimPod),
	},
	cluster.KindNode:      {scopes: nodeScopes, trim: trims(trimNode)},
	cluster.KindIngress:   {trim: trims(trimFrontend)},
	cluster.KindGateway:   {trim: trims(trimFrontend)},
	cluster.KindHTTPRoute: {trim: trims(func(r *cluster.Route, _ *Config) { r.Spec = nil })},
}

// notFinished: the addresses of finished Pods are released.
const notFinished = "status.phase!=Succeeded,status.phase!=Failed"

// resources are all kinds, in the order of object.Kinds.
var resources = func() (all []*resource) {
	for _, k := range object.Kinds {
		all = append(all, &resource{k, tunings[k.Model]})
	}
	return all
}()

// scope selects the objects of one reading.
type scope struct {
	namespace, name string // only these, unless empty
	labels, fields  string // selectors
}

// holds reports whether an object with that key can be in the scope.
func (s scope) holds(k cluster.Key) bool {
	return (s.namespace == "" || s.namespace == k.Namespace) && (s.name == "" || s.name == k.Name)
}

// item is one object, converted.
type item struct {
	key   cluster.Key
	model cluster.Object // nil when the object was refused
	err   error          // why it was refused, or what of it lets nothing through
	// caused is when the change was caused that the object shows; zero when
	// it does not say.
	caused time.Time
}

// scopesOf returns the scopes that the kind is read in.
func (r *resource) scopesOf(c *Config) []scope {
	switch {
	case r.scopes != nil:
		return r.scopes(c)
	case r.Model.Namespaced():
		return namespaced(c, scope{})
	}
	return []scope{{}}
}

// namespaced returns one scope for each Namespace that is read, or one for all.
func namespaced(c *Config, s scope) []scope {
	if len(c.Namespaces) == 0 {
		return []scope{s}
	}
	var each []scope
	for _, ns := range c.Namespaces {
		s.namespace = ns
		each = append(each, s)
	}
	return each
}

// namespaceScopes returns the scopes of Namespaces, which are selected by name.
func namespaceScopes(c *Config) []scope {
	if len(c.Namespaces) == 0 {
		return []scope{{}}
	}
	var each []scope
	for _, ns := range c.Namespaces {
		each = append(each, scope{name: ns, fields: metav1.ObjectNameField + "=" + ns})
	}
	return each
}

// sliceScopes returns the scopes of EndpointSlices. Service proxies do not read those of
// headless Services.
func sliceScopes(c *Config) []scope {
	if c.Detail == ForProxy || c.Detail == ForPolicy {
		return namespaced(c, scope{labels: "!" + corev1.IsHeadlessService})
	}
	return namespaced(c, scope{})
}

// nodeScopes returns the scopes of Nodes.
func nodeScopes(c *Config) []scope {
	if c.Node == "" {
		return []scope{{}}
	}
	return []scope{{name: c.Node, fields: metav1.ObjectNameField + "=" + c.Node}}
}

// convert decodes an object of the API into the model's type.
func (r *resource) convert(o runtime.Object, cfg *Config) item {
	api := o.(object.API)
	it := item{key: cluster.Key{Namespace: interned(api.GetNamespace()), Name: api.GetName()}}
	var errs field.ErrorList
	it.model, errs = r.Decode(api)
	it.err = errs.ToAggregate()
	if it.model == nil {
		return it
	}
	switch {
	case cfg.Detail == All:
	case cfg.Detail == ForSlices:
		trimForSlices(it.model)
	case cfg.Detail == ForProxy, cfg.Detail == ForPolicy:
		trimForNode(it.model, cfg)
	case cfg.Detail == ForGateway:
		trimForGateway(it.model, cfg)
	case cfg.Detail == ForLoadBalancer:
		trimForLoadBalancer(it.model, cfg)
	case r.trim != nil:
		r.trim(it.model, cfg)
	}
	// Set by the control plane, as the measure of how long a change takes to take
	// effect (Kubernetes SLI "DNS programming latency").
	if text, ok := api.GetAnnotations()[corev1.EndpointsLastChangeTriggerTime]; ok {
		it.caused, _ = time.Parse(time.RFC3339Nano, text) // zero if it is malformed
	}
	return it
}

// empty makes an API object ready for the next one to be decoded into it.
func (r *resource) empty(apiObject any) {
	if r.clear != nil {
		r.clear(apiObject)
		return
	}
	reflect.ValueOf(apiObject).Elem().SetZero()
}

// trims returns trim for objects of any type.
func trims[Obj cluster.Object](trim func(Obj, *Config)) func(cluster.Object, *Config) {
	return func(o cluster.Object, c *Config) { trim(o.(Obj), c) }
}

// interned returns s, of which only one copy is kept.
func interned(s string) string { return unique.Make(s).Value() }

func internPorts(ports []cluster.Port) {
	for i := range ports {
		ports[i].Name = interned(ports[i].Name)
		ports[i].Protocol = cluster.Protocol(interned(string(ports[i].Protocol)))
	}
}

func trimNamespace(n *cluster.Namespace, _ *Config) { n.Labels = nil }

func trimService(s *cluster.Service, cfg *Config) {
	if !cfg.External {
		s.External = nil
	}
	s.Created, s.Selector, s.Targets, s.Spec = 0, nil, nil, nil
	s.Namespace = interned(s.Namespace)
	internPorts(s.Ports)
}

func clearService(apiObject any) {
	s := apiObject.(*corev1.Service)
	*s = corev1.Service{
		Spec: corev1.ServiceSpec{
			Ports:      s.Spec.Ports[:0],
			ClusterIPs: s.Spec.ClusterIPs[:0],
			IPFamilies: s.Spec.IPFamilies[:0],
		},
	}
}

func clearSlice(apiObject any) {
	s := apiObject.(*discoveryv1.EndpointSlice)
	clear(s.Labels)
	*s = discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Labels: s.Labels},
		Endpoints:  s.Endpoints[:0],
		Ports:      s.Ports[:0],
	}
}

func trimSlice(s *cluster.EndpointSlice, cfg *Config) {
	s.Namespace, s.Cluster, s.Spec = interned(s.Namespace), interned(s.Cluster), nil
	internPorts(s.Ports)
	for i := range s.Endpoints {
		s.Endpoints[i].Terminating = false
		if cfg.Detail != ForPodNames {
			s.Endpoints[i].Pod = ""
		}
	}
}

func trimNode(n *cluster.Node, _ *Config) {
	*n = cluster.Node{Name: n.Name, Addresses: n.Addresses}
}

func trimPod(p *cluster.Pod, _ *Config) {
	*p = cluster.Pod{Key: cluster.Key{Namespace: interned(p.Namespace), Name: p.Name}, IPs: p.IPs, Finished: p.Finished}
}

// trimFrontend drops what names don't need, such as what Backends are for.
func trimFrontend(f *cluster.Frontend, _ *Config) { f.Backends, f.Ingress, f.Gateway = nil, nil, nil }

// trimForGateway drops what gateways don't need.
func trimForGateway(model cluster.Object, cfg *Config) {
	switch o := model.(type) {
	case *cluster.Service:
		trimServiceForGateway(o)
	case *cluster.EndpointSlice, *cluster.Node, *cluster.Namespace:
		trimForNode(o, cfg)
	case *cluster.Frontend:
		o.Backends = nil // the spec has them
	}
}

func trimServiceForGateway(s *cluster.Service) {
	spec := &cluster.ServiceSpec{
		Type:         cluster.ServiceType(interned(string(s.Spec.Type))),
		AppProtocols: s.Spec.AppProtocols, TrafficDistribution: interned(s.Spec.TrafficDistribution),
		TopologyMode: interned(s.Spec.TopologyMode), EndpointChoice: interned(s.Spec.EndpointChoice),
		SlowStart: interned(s.Spec.SlowStart), InternalLocal: s.Spec.InternalLocal,
		AffinitySeconds: s.Spec.AffinitySeconds, Ingress: s.Spec.Ingress, ExternalIPs: s.Spec.ExternalIPs,
		LoadBalancer: s.Spec.LoadBalancer,
	}
	*s = cluster.Service{
		Key:      cluster.Key{Namespace: interned(s.Namespace), Name: s.Name},
		Headless: s.Headless, PublishNotReady: s.PublishNotReady, Created: s.Created,
		ClusterIPs: s.ClusterIPs, ExternalName: s.ExternalName, Ports: s.Ports, External: s.External, Spec: spec,
	}
	internPorts(s.Ports)
	if reflect.DeepEqual(spec, plainSpec) {
		s.Spec = plainSpec
	}
}

// trimForLoadBalancer drops what load balancers' addresses do not depend on: nearly all of Services of other types.
func trimForLoadBalancer(model cluster.Object, cfg *Config) {
	s, ok := model.(*cluster.Service)
	if !ok {
		trimForNode(model, cfg)
		return
	}
	was := s.Spec
	spec := &cluster.ServiceSpec{Type: cluster.ServiceType(interned(string(was.Type))), Ingress: was.Ingress}
	made := cluster.Service{Key: cluster.Key{Namespace: interned(s.Namespace), Name: s.Name}, Spec: spec}
	if was.Type == cluster.LoadBalancer {
		spec.Labels, spec.Families, spec.FamilyPolicy = internLabels(was.Labels), was.Families, was.FamilyPolicy
		spec.ExternalLocal, spec.LoadBalancer = was.ExternalLocal, was.LoadBalancer
		made.Created, made.ClusterIPs, made.Ports = s.Created, s.ClusterIPs, s.Ports
		made.Selector = internLabels(s.Selector)
		if s.External != nil && len(s.External.Targets) > 0 { // names that somebody else wrote into the status
			made.External = &cluster.External{Targets: s.External.Targets}
		}
		internPorts(made.Ports)
	}
	if *s = made; reflect.DeepEqual(spec, plainSpec) {
		s.Spec = plainSpec
	}
}

// trimForSlices drops what EndpointSlices are not made from, such as a Pod's
// other conditions: most updates of a Pod then change nothing.
func trimForSlices(model cluster.Object) {
	p, ok := model.(*cluster.Pod)
	if !ok {
		return
	}
	p.Namespace, p.Unmet = interned(p.Namespace), nil
	if p.Spec != nil {
		p.Spec = &cluster.PodSpec{Hostname: p.Spec.Hostname, Subdomain: p.Spec.Subdomain, Ports: p.Spec.Ports}
		internPorts(p.Spec.Ports)
	}
}

// trimForNode drops what service proxies and policies don't need, such as all that Services that are not
// proxied have.
func trimForNode(model cluster.Object, cfg *Config) {
	policy := cfg.Detail == ForPolicy
	switch o := model.(type) {
	case *cluster.Service:
		selector, targets, asked := o.Selector, o.Targets, o.Spec.LoadBalancer
		trimServiceForProxy(o)
		if cfg.Announce && asked != nil && asked.Class != "" {
			o.Spec.LoadBalancer = &cluster.LoadBalancerSpec{Class: interned(asked.Class)}
		}
		if policy && slices.ContainsFunc(o.Ports, func(p cluster.Port) bool { return p.Number == dnsPort }) {
			o.Selector, o.Targets = selector, targets
		}
	case *cluster.EndpointSlice:
		trimSliceForProxy(o)
	case *cluster.Node:
		ready, cordoned := o.Ready, o.Cordoned
		if policy {
			trimNodeForPolicy(o)
		} else {
			trimNodeForProxy(o)
		}
		o.Ready, o.Cordoned = cfg.Announce && ready, cfg.Announce && cordoned
	case *cluster.Namespace:
		o.Labels = internLabels(o.Labels)
	case *cluster.Pod:
		trimPodForPolicy(o)
	}
}

// dnsPort is the port of Services that answer DNS.
const dnsPort = 53

func trimNodeForProxy(n *cluster.Node) {
	of := *n
	*n = cluster.Node{
		Name: of.Name, Zone: interned(of.Zone), InternalIPs: of.InternalIPs, PodCIDRs: of.PodCIDRs, Leaving: of.Leaving,
		Created: of.Created,
	}
}

func trimNodeForPolicy(n *cluster.Node) {
	labels, addrs, key := internLabels(n.Labels), n.Addresses, n.WireGuardKey
	trimNodeForProxy(n)
	n.Labels, n.Addresses, n.WireGuardKey = labels, addrs, key
}

func trimPodForPolicy(p *cluster.Pod) {
	spec := plainPod
	if ports := p.Spec.Ports; p.Spec.HostNetwork || len(ports) > 0 {
		internPorts(ports)
		spec = &cluster.PodSpec{HostNetwork: p.Spec.HostNetwork, Ports: ports}
	}
	*p = cluster.Pod{
		Key: cluster.Key{Namespace: interned(p.Namespace), Name: p.Name}, Labels: internLabels(p.Labels), IPs: p.IPs,
		Finished: p.Finished, Deleting: p.Deleting, Node: interned(p.Node), UID: p.UID, StaticUID: p.StaticUID, Spec: spec,
	}
}

// plainPod is the spec of Pods without ports, which all share.
var plainPod = new(cluster.PodSpec)

// internLabels returns labels that share their texts with those of other objects; nil if there are none.
func internLabels(labels map[string]string) map[string]string {
	if len(labels) == 0 {
		return nil
	}
	shared := make(map[string]string, len(labels))
	for k, v := range labels {
		shared[interned(k)] = interned(v)
	}
	return shared
}

func trimServiceForProxy(s *cluster.Service) {
	spec := &cluster.ServiceSpec{
		Type:      cluster.ServiceType(interned(string(s.Spec.Type))),
		NodePorts: s.Spec.NodePorts, HealthCheckNodePort: s.Spec.HealthCheckNodePort,
		ExternalLocal: s.Spec.ExternalLocal, InternalLocal: s.Spec.InternalLocal,
		AffinitySeconds: s.Spec.AffinitySeconds, EndpointChoice: interned(s.Spec.EndpointChoice),
		SlowStart:   interned(s.Spec.SlowStart),
		ExternalIPs: s.Spec.ExternalIPs, Ingress: s.Spec.Ingress, SourceRanges: s.Spec.SourceRanges,
	}
	if name, ok := s.Spec.Labels[cluster.LabelProxyName]; ok {
		spec.Labels = map[string]string{cluster.LabelProxyName: interned(name)}
	}
	*s = cluster.Service{
		Key:      cluster.Key{Namespace: interned(s.Namespace), Name: s.Name},
		Headless: s.Headless, Created: s.Created,
		ClusterIPs: s.ClusterIPs, ExternalName: s.ExternalName, Ports: s.Ports, Spec: spec,
	}
	internPorts(s.Ports)
	switch {
	case s.Headless || spec.Type == cluster.ExternalName:
		s.Created, s.Ports, s.Spec = 0, nil, &cluster.ServiceSpec{Type: spec.Type}
	case reflect.DeepEqual(spec, plainSpec):
		s.Spec = plainSpec
	}
}

// plainSpec is the spec of most Services, which all share.
var plainSpec = &cluster.ServiceSpec{Type: cluster.ClusterIP}

func trimSliceForProxy(s *cluster.EndpointSlice) {
	*s = cluster.EndpointSlice{
		Key:     cluster.Key{Namespace: interned(s.Namespace), Name: s.Name},
		Service: interned(s.Service), AddressType: cluster.AddressType(interned(string(s.AddressType))),
		Ports: s.Ports, Endpoints: s.Endpoints, Spec: trimSliceSpec(s.Spec),
	}
	if s.Service == "" {
		s.Ports, s.Endpoints, s.Spec = nil, nil, nil
	}
	internPorts(s.Ports)
	for i := range s.Endpoints {
		s.Endpoints[i].Hostname, s.Endpoints[i].Pod = "", ""
	}
	places := s.Places()
	for i := range places {
		p := &places[i]
		p.Node = interned(p.Node)
		if p.Hints == nil {
			continue
		}
		internNames(p.Hints.Zones)
		internNames(p.Hints.Nodes)
		if i > 0 && reflect.DeepEqual(p.Hints, places[i-1].Hints) {
			p.Hints = places[i-1].Hints
		}
	}
}

// trimSliceSpec returns a spec with what service proxies need; nil without any of that.
func trimSliceSpec(s *cluster.SliceSpec) *cluster.SliceSpec {
	if s == nil || s.Places == nil && s.EndpointWeight == "" {
		return nil
	}
	return &cluster.SliceSpec{Places: s.Places, EndpointWeight: interned(s.EndpointWeight)}
}

func internNames(names []string) {
	for i := range names {
		names[i] = interned(names[i])
	}
}
