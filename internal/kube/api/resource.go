package api

import (
	"reflect"
	"time"
	"unique"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/object"
)

// resource is how a kind is read, and how it is written into the model.
type resource struct {
	kind    cluster.Kind
	group   schema.GroupVersion
	name    string // plural, as in URLs and RBAC rules
	example runtime.Object
	scopes  func(*Config) []scope
	// clear empties an object for the next one to be read into it. What the model
	// does not take over is used again.
	clear func(object any)

	convert func(runtime.Object, *Config) item // set by as
}

// scope is which objects one reading is of.
type scope struct {
	namespace, name string // only these, where they are given
	labels, fields  string // selectors
}

// holds tells whether the scope has room for an object of that key.
func (s scope) holds(k cluster.Key) bool {
	return (s.namespace == "" || s.namespace == k.Namespace) && (s.name == "" || s.name == k.Name)
}

// item is one object, converted.
type item struct {
	key   cluster.Key
	model cluster.Object // nil when the object was refused
	err   error          // why it was refused
	// caused is when the change was caused that the object shows; zero when
	// it does not say.
	caused time.Time
}

var (
	core       = corev1.SchemeGroupVersion
	discovery  = discoveryv1.SchemeGroupVersion
	apps       = appsv1.SchemeGroupVersion
	batch      = batchv1.SchemeGroupVersion
	networking = networkingv1.SchemeGroupVersion
)

// notFinished: the addresses of finished Pods are given back.
const notFinished = "status.phase!=Succeeded,status.phase!=Failed"

var resources = []*resource{
	as(object.Namespace, trimNamespace, resource{
		kind: cluster.KindNamespace, group: core, name: "namespaces", example: new(corev1.Namespace),
		scopes: namespaceScopes,
	}),
	as(object.Service, trimService, resource{
		kind: cluster.KindService, group: core, name: "services", example: new(corev1.Service),
		scopes: func(c *Config) []scope { return namespaced(c, scope{labels: c.ServiceSelector}) },
		clear:  clearService,
	}),
	as(object.EndpointSlice, trimSlice, resource{
		kind: cluster.KindEndpointSlice, group: discovery, name: "endpointslices", example: new(discoveryv1.EndpointSlice),
		scopes: func(c *Config) []scope { return namespaced(c, scope{}) },
		clear:  clearSlice,
	}),
	as(object.Pod, trimPod, resource{
		kind: cluster.KindPod, group: core, name: "pods", example: new(corev1.Pod),
		scopes: func(c *Config) []scope { return namespaced(c, scope{fields: notFinished}) },
	}),
	as(object.Node, trimNode, resource{
		kind: cluster.KindNode, group: core, name: "nodes", example: new(corev1.Node),
		scopes: func(*Config) []scope { return []scope{{}} },
	}),
	workloads(object.Deployment, cluster.KindDeployment, apps, "deployments", new(appsv1.Deployment)),
	workloads(object.StatefulSet, cluster.KindStatefulSet, apps, "statefulsets", new(appsv1.StatefulSet)),
	workloads(object.DaemonSet, cluster.KindDaemonSet, apps, "daemonsets", new(appsv1.DaemonSet)),
	workloads(object.Job, cluster.KindJob, batch, "jobs", new(batchv1.Job)),
	workloads(object.CronJob, cluster.KindCronJob, batch, "cronjobs", new(batchv1.CronJob)),
	as(object.NetworkPolicy, nil, resource{
		kind: cluster.KindNetworkPolicy, group: networking, name: "networkpolicies", example: new(networkingv1.NetworkPolicy),
		scopes: func(c *Config) []scope { return namespaced(c, scope{}) },
	}),
}

// workloads is the resource of a kind of them.
func workloads[API interface {
	metav1.Object
	runtime.Object
}](convert func(API) (*cluster.Workload, field.ErrorList), k cluster.Kind, group schema.GroupVersion, name string, example API) *resource {
	return as(convert, nil, resource{
		kind: k, group: group, name: name, example: example,
		scopes: func(c *Config) []scope { return namespaced(c, scope{}) },
	})
}

// read tells whether the kind is read.
func (r *resource) read(c *Config) bool {
	if c.ForSlices {
		return r.kind == cluster.KindService || r.kind == cluster.KindPod || r.kind == cluster.KindNode
	}
	switch r.kind {
	case cluster.KindNamespace, cluster.KindService, cluster.KindEndpointSlice:
		return true
	case cluster.KindPod:
		return c.Pods || c.Whole
	case cluster.KindNode:
		return c.Nodes || c.Whole
	default:
		return c.Whole
	}
}

// namespaced is one scope for each Namespace that is read, or one for all.
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

// namespaceScopes: a Namespace is in none, and chosen by its name.
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

// as is r with objects of the API type converted to those of the model's. Trim, where it is given, drops what the model has room for and
// answers don't need.
func as[API metav1.Object, Model cluster.Object](convert func(API) (Model, field.ErrorList), trim func(Model, *Config), r resource) *resource {
	if r.clear == nil {
		r.clear = func(object any) { reflect.ValueOf(object).Elem().SetZero() }
	}
	r.convert = func(o runtime.Object, cfg *Config) item {
		api := o.(API)
		it := item{key: cluster.Key{Namespace: interned(api.GetNamespace()), Name: api.GetName()}}
		model, errs := convert(api)
		if len(errs) > 0 {
			it.err = errs.ToAggregate()
			return it
		}
		switch {
		case trim == nil || cfg.Whole:
		case cfg.ForSlices:
			trimForSlices(model)
		default:
			trim(model, cfg)
		}
		it.model = model
		// Set by the control plane, as the measure of how long a change takes
		// to show (Kubernetes, SLI "DNS programming latency").
		if text, ok := api.GetAnnotations()[corev1.EndpointsLastChangeTriggerTime]; ok {
			it.caused, _ = time.Parse(time.RFC3339Nano, text) // else it does not say
		}
		return it
	}
	return &r
}

// interned is s as it is kept once, however often it is read.
func interned(s string) string { return unique.Make(s).Value() }

func internPorts(ports []cluster.Port) {
	for i := range ports {
		ports[i].Name = interned(ports[i].Name)
		ports[i].Protocol = cluster.Protocol(interned(string(ports[i].Protocol)))
	}
}

func trimNamespace(n *cluster.Namespace, _ *Config) { n.Labels = nil }

func trimService(s *cluster.Service, _ *Config) {
	s.Selector, s.Targets, s.Spec = nil, nil, nil
	s.Namespace = interned(s.Namespace)
	internPorts(s.Ports)
}

func clearService(object any) {
	s := object.(*corev1.Service)
	*s = corev1.Service{Spec: corev1.ServiceSpec{Ports: s.Spec.Ports[:0], ClusterIPs: s.Spec.ClusterIPs[:0], IPFamilies: s.Spec.IPFamilies[:0]}}
}

func clearSlice(object any) {
	s := object.(*discoveryv1.EndpointSlice)
	clear(s.Labels)
	*s = discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Labels: s.Labels}, Endpoints: s.Endpoints[:0], Ports: s.Ports[:0]}
}

func trimSlice(s *cluster.EndpointSlice, cfg *Config) {
	s.Namespace, s.ManagedBy = interned(s.Namespace), ""
	internPorts(s.Ports)
	for i := range s.Endpoints {
		s.Endpoints[i].Terminating = false
		if !cfg.PodNames {
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

// trimForSlices drops what EndpointSlices are not made from. Most changes of a
// Pod's status are of its other conditions, and are none then.
func trimForSlices(model any) {
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
