package request

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/pod/lint"
)

// serve says what a rule does with the request, in the order of package proxy.
func (x *explainer) serve(a *Answer, r *Rule) {
	rule := r.route.Rule
	switch {
	case rule.Status != 0:
		a.Status, a.Reason = rule.Status, string(rule.Reason)
		x.ruleProblem(r)
	case rule.Secure != nil && rule.Redirect == nil && x.Message.Scheme == "http":
		x.secure(a, rule.Secure)
	case rule.CORS != nil && x.isPreflight():
		a.Demands = demands(rule.Guard)
		a.Status, a.Reason = http.StatusNoContent, "it is a CORS preflight request"
		x.add(
			"cors-preflight",
			"ask for the method of the request itself, with --method",
			"the rule's CORS filter answers it",
		)
	case rule.Redirect != nil:
		a.Demands = demands(rule.Guard)
		x.redirect(a, r)
	default:
		a.Demands, a.Changes = demands(rule.Guard), x.changes(r.route)
		x.backends(a, r)
	}
}

// isPreflight reports whether the request asks what another one may do (Fetch, "CORS-preflight request").
func (x *explainer) isPreflight() bool {
	has := func(name string) bool { return len(x.Message.Header[name]) > 0 }
	return x.Message.Method == http.MethodOptions && has("Origin") && has("Access-Control-Request-Method")
}

// redirect says where a rule redirects to.
func (x *explainer) redirect(a *Answer, r *Rule) {
	m := &x.Message
	to := r.route.Rule.Redirect
	from := table.Target{Scheme: m.Scheme, Host: m.Host, Port: m.Port, Path: m.Path, Query: m.Query}
	a.Status, a.Reason, a.Location = to.Status, "redirect", to.Location(&from, &r.route.Match)
	same := *m
	same.Name = m.Host
	if a.Location == same.URL() {
		x.add(
			"redirect-loop",
			"have the redirect change the scheme, host, port or path, or attach its route to another listener",
			"%s redirects to the URL itself",
			r.Name,
		)
	}
}

// secure says where a rule redirects that is for HTTPS (table.SecureRedirect).
func (x *explainer) secure(a *Answer, s *table.SecureRedirect) {
	to := x.Message
	to.Scheme, to.Name, to.Port = "https", to.Host, 443
	a.Status, a.Reason, a.Location = http.StatusPermanentRedirect, "redirect", to.URL()
	if !s.KeepSlash {
		a.Location = strings.TrimSuffix(a.Location, "/")
	}
}

// changes returns what a rule does to the request before a backend gets it.
func (x *explainer) changes(r *table.Route) (all []string) {
	a := &r.Rule.Actions
	if w := a.Rewrite; w != nil {
		if w.Host != "" {
			all = append(all, "the host becomes "+w.Host)
		}
		if path := w.Path.Apply(x.Message.Path, &r.Match); path != x.Message.Path {
			all = append(all, "the path becomes "+path)
		}
	}
	if h := a.Request; h != nil {
		for _, name := range h.Remove {
			all = append(all, "the header "+name+" is removed")
		}
		for _, f := range slices.Concat(h.Set, h.Add) {
			all = append(all, fmt.Sprintf("the header %s: %s is added", f.Name, f.Value))
		}
	}
	for _, m := range a.Mirrors {
		all = append(
			all,
			fmt.Sprintf("%d of %d requests are copied to Service %s", m.Numerator, m.Denominator, nameOf(m.Upstream)),
		)
	}
	return all
}

// nameOf returns a port of a Service as in "shop/web, port 80".
func nameOf(u table.Upstream) string {
	return fmt.Sprintf("%s/%s, port %d", u.Namespace, u.Service, u.Port)
}

// backends lists the backends of a rule by weight, with their endpoints.
func (x *explainer) backends(a *Answer, r *Rule) {
	all := r.route.Rule.Backends
	total := uint64(0)
	for i := range all {
		total += uint64(all[i].Weight)
	}
	if total == 0 {
		a.Status, a.Reason = 500, string(table.NoBackend)
		if len(all) > 0 {
			x.add("no-backend", "give a backend a weight", "all backends of %s have weight 0", r.Name)
		} else {
			x.add("no-backend", "add backendRefs, or a redirect", "%s has no backendRefs", r.Name)
		}
	}
	for i := range all {
		b := Backend{Weight: all[i].Weight, Endpoints: []Endpoint{}}
		if total > 0 {
			b.Share = 100 * float64(b.Weight) / float64(total)
		}
		up := all[i].Upstream
		if up == (table.Upstream{}) {
			b.Status, b.Reason = 500, string(all[i].Reason)
		} else {
			b.Service, b.Port = up.Namespace+"/"+up.Service, up.Port
			if b.Endpoints = x.endpointsOf(up); len(b.Endpoints) == 0 {
				b.Status, b.Reason = 503, string(table.NoEndpoint)
			}
		}
		a.Backends = append(a.Backends, b)
		switch {
		case b.Weight == 0 || b.Status == 0:
		case b.Status == 500:
			x.invalid(r, i)
		default:
			x.noEndpoint(up)
		}
	}
	if len(all) == 1 && total > 0 {
		a.Status, a.Reason = a.Backends[0].Status, a.Backends[0].Reason
	}
}

// endpointsOf returns the endpoints that a port of a Service has.
func (x *explainer) endpointsOf(up table.Upstream) []Endpoint {
	key := cluster.Key{Namespace: up.Namespace, Name: up.Service}
	pods := make(map[netip.Addr]string)
	for _, s := range x.view.SlicesOf(key) {
		for i := range s.Endpoints {
			if e := &s.Endpoints[i]; e.Pod != "" {
				pods[e.Addr] = key.Namespace + "/" + e.Pod
			}
		}
	}
	all := []Endpoint{}
	for _, at := range x.endpoints[up] {
		all = append(all, Endpoint{at.String(), pods[at.Addr()]})
	}
	return all
}

// ruleProblem adds why a rule answers by itself.
func (x *explainer) ruleProblem(r *Rule) {
	rule := r.route.Rule
	name, isIngress := strings.CutPrefix(rule.Object, "ingress ")
	if !isIngress {
		cure := "remove the filter, or write it as one of the types that are supported"
		if rule.Status == http.StatusServiceUnavailable {
			cure = "correct the RoutePolicy, or what it refers to"
		}
		x.add("rule-invalid", cure, "%s: %s%s", r.Name, rule.Reason, x.extensionOf(rule))
		return
	}
	namespace, name, _ := strings.Cut(name, "/")
	key := cluster.Key{Namespace: namespace, Name: name}
	cure := "correct the backend of the Ingress"
	f := cluster.Ingresses.Get(x.view, key)
	for _, p := range x.verdicts.Ingresses[key].Problems {
		if p.Reason == string(rule.Reason) {
			cure = cmp.Or(x.cureOfIngress(f, p.Field), cure)
		}
	}
	x.add("backend-invalid", cure, "%s: %s", r.Name, rule.Reason)
}

// extensionOf returns which filter of another API a rule of an HTTPRoute has, as the end of a sentence; empty if none.
func (x *explainer) extensionOf(rule *table.Rule) string {
	namespace, name, _ := strings.Cut(strings.TrimPrefix(rule.Object, "httproute "), "/")
	route := cluster.HTTPRoutes.Get(x.view, cluster.Key{Namespace: namespace, Name: name})
	if route == nil || rule.Index >= len(route.Spec.Rules) {
		return ""
	}
	for _, f := range route.Spec.Rules[rule.Index].Filters {
		if e := f.Extension; e != nil {
			return fmt.Sprintf(", an ExtensionRef to %s %s of group %s", e.Kind, e.Name, e.Group)
		}
	}
	return ""
}

// cureOfIngress returns how the backend of an Ingress in a field is cured; empty if that is not known.
func (x *explainer) cureOfIngress(f *cluster.Frontend, field string) string {
	for _, b := range f.Backends {
		if !strings.HasPrefix(b.Field, field) && !strings.HasPrefix(field, b.Field) {
			continue
		}
		key := cluster.Key{Namespace: f.Namespace, Name: b.Service}
		if s := x.view.Service(key); s != nil {
			return cureOfPort(s)
		}
		if near := x.Linter.SimilarService(key); near != "" {
			return "write " + near + ", or create the Service"
		}
		return "create the Service in namespace " + f.Namespace + ", or correct the name"
	}
	return "name a Service instead of a resource"
}

// cureOfPort returns how a backend is cured whose Service exists, and has not its port.
func cureOfPort(s *cluster.Service) string {
	if s.ExternalName != "" {
		return "name a Service of type ClusterIP; the target of this one may be in an EndpointSlice of it"
	}
	var ports []string
	for _, p := range s.Ports {
		ports = append(ports, strings.TrimSpace(fmt.Sprintf("%d %s", p.Number, p.Name)))
	}
	return "write a port of the Service; it has " + cmp.Or(few(ports), "none")
}

// invalid adds why the n-th backend of a rule is invalid.
func (x *explainer) invalid(r *Rule, n int) {
	rule := r.route.Rule
	cure := "correct the backendRef"
	namespace, name, _ := strings.Cut(strings.TrimPrefix(rule.Object, "httproute "), "/")
	route := cluster.HTTPRoutes.Get(x.view, cluster.Key{Namespace: namespace, Name: name})
	if route != nil && rule.Index < len(route.Spec.Rules) && n < len(route.Spec.Rules[rule.Index].Backends) {
		cure = cmp.Or(x.cureOf(namespace, &route.Spec.Rules[rule.Index].Backends[n].BackendRef), cure)
	}
	x.add("backend-invalid", cure, "%s: %s", r.Name, rule.Backends[n].Reason)
}

// cureOf returns how a reference of a route in a namespace to a backend is cured; empty if that is not known.
func (x *explainer) cureOf(namespace string, ref *cluster.BackendRef) string {
	key, ok := ref.Core(cluster.KindService)
	if !ok {
		return "name a Service in the backendRef"
	}
	granted := slices.ContainsFunc(
		cluster.GrantsByNamespace.Get(x.view, key.Namespace),
		func(g *cluster.ReferenceGrant) bool {
			return g.Allows(cluster.GroupKind{Group: gatewayGroup, Kind: "HTTPRoute"}, namespace, &ref.ObjectRef)
		},
	)
	s := x.view.Service(key)
	switch {
	case key.Namespace != namespace && !granted:
		const cure = "create a ReferenceGrant in namespace %s from HTTPRoutes of namespace %s to Service %s"
		return fmt.Sprintf(cure, key.Namespace, namespace, key.Name)
	case s == nil:
		if near := x.Linter.SimilarService(key); near != "" {
			return "write " + near + ", or create the Service"
		}
		if other := x.serviceElsewhere(key); other != "" {
			return fmt.Sprintf("write namespace: %s in the backendRef, with a ReferenceGrant in that namespace, or create the "+
				"Service", other)
		}
		return "create the Service, or correct the name"
	}
	return cureOfPort(s)
}

// serviceElsewhere returns the first namespace that has a Service with the name of one that does not exist; empty if
// none has.
func (x *explainer) serviceElsewhere(key cluster.Key) (namespace string) {
	for s := range x.view.Services() {
		if s.Name == key.Name && (namespace == "" || s.Namespace < namespace) {
			namespace = s.Namespace
		}
	}
	return namespace
}

// noEndpoint adds why a port of a Service has no endpoint.
func (x *explainer) noEndpoint(up table.Upstream) {
	key := cluster.Key{Namespace: up.Namespace, Name: up.Service}
	s := x.view.Service(key)
	before := len(x.e.Diagnoses)
	for _, f := range x.Linter.CheckService(s) {
		switch f.Rule {
		case lint.ServiceTargetPortMissing, lint.ServiceSelectsNoPod, lint.ServiceNoReadyEndpoint, lint.ServiceNoEndpoints,
			lint.ServiceScaledToZero:
			x.e.Diagnoses = append(
				x.e.Diagnoses,
				explain.Diagnosis{Rule: f.Rule, Why: f.Object.String() + ": " + f.Message, Cure: f.Fix},
			)
		}
	}
	if len(x.e.Diagnoses) > before {
		return
	}
	cure := "check that kube-controller-manager runs"
	if !x.Linter.Observed {
		cure = "simulate the control plane (--simulate), add an EndpointSlice to the manifests, or set gateway.endpoints " +
			"(--endpoint of portolan gateway)"
	}
	if len(x.view.SlicesOf(key)) > 0 {
		cure = "give the port the same name and protocol in the Service and in its EndpointSlices, and see whether its " +
			"Pods are ready"
	}
	x.add("no-endpoint", cure, "Service %s has no endpoint at port %d", key, up.Port)
}
