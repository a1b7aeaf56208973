package object

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portolan.dev/portolan/internal/cluster"
)

// ingressClassAnnotation names the class of an Ingress in the old way (Kubernetes, "Ingress", "Deprecated
// annotation").
const ingressClassAnnotation = "kubernetes.io/ingress.class"

// meta returns an object's age and generation.
func meta(m *metav1.ObjectMeta) cluster.Meta {
	made := cluster.Meta{Generation: m.Generation}
	if !m.CreationTimestamp.IsZero() {
		made.Created = m.CreationTimestamp.Unix()
	}
	return made
}

// host returns a name as the model has it.
func host(name string) string {
	return strings.TrimSuffix(strings.ToLower(strings.TrimSpace(name)), ".")
}

// Ingress converts an Ingress.
func Ingress(i *networkingv1.Ingress) (*cluster.Frontend, field.ErrorList) {
	k, errs := key(&i.ObjectMeta, validation.IsDNS1123Subdomain)
	f := &cluster.Frontend{Kind: cluster.KindIngress, Key: k}
	spec := &cluster.IngressSpec{
		Meta: meta(&i.ObjectMeta), Class: or(i.Spec.IngressClassName, ""), OldClass: i.Annotations[ingressClassAnnotation],
		Annotations: ingressAnnotations(i.Annotations),
	}
	f.Ingress = spec
	for n := range i.Spec.Rules {
		addHosts(&f.External, i.Spec.Rules[n].Host)
	}
	addHosts(&f.External, annotatedHosts(i.Annotations)...)
	for _, at := range i.Status.LoadBalancer.Ingress {
		addPlace(&f.External, at.IP, at.Hostname)
		spec.LoadBalancer = append(spec.LoadBalancer, cluster.LoadBalancerIngress{IP: at.IP, Hostname: at.Hostname})
	}
	for n := range i.Spec.TLS {
		t := cluster.IngressTLS{Secret: i.Spec.TLS[n].SecretName}
		for _, name := range i.Spec.TLS[n].Hosts {
			t.Hosts = append(t.Hosts, host(name))
		}
		spec.TLS = append(spec.TLS, t)
	}
	if i.Spec.DefaultBackend != nil {
		to, bad := ingressBackend(i.Spec.DefaultBackend, k.Namespace, "spec.defaultBackend")
		spec.Default, errs = &to, append(errs, in(bad, "spec", "defaultBackend")...)
	}
	for n := range i.Spec.Rules {
		rule, bad := ingressRule(&i.Spec.Rules[n], k.Namespace, n)
		spec.Rules, errs = append(spec.Rules, rule), append(errs, in(bad, "spec", "rules", n)...)
	}
	f.Backends = serviceBackends(spec)
	return f, errs
}

// ingressAnnotations returns the annotations of the model.
func ingressAnnotations(all map[string]string) map[string]string {
	kept := maps.Clone(all)
	maps.DeleteFunc(kept, func(name, _ string) bool {
		return !slices.ContainsFunc(cluster.IngressAnnotations, func(p string) bool { return strings.HasPrefix(name, p) })
	})
	if len(kept) == 0 {
		return nil
	}
	return kept
}

// serviceBackends returns the backends of an Ingress that are Services.
func serviceBackends(spec *cluster.IngressSpec) (all []cluster.Backend) {
	add := func(b *cluster.IngressBackend) {
		if b.Resource == nil && b.Service != "" {
			all = append(all, b.Backend)
		}
	}
	if spec.Default != nil {
		add(spec.Default)
	}
	for i := range spec.Rules {
		for k := range spec.Rules[i].Paths {
			add(&spec.Rules[i].Paths[k].Backend)
		}
	}
	return all
}

// ingressRule converts the n-th rule.
func ingressRule(
	r *networkingv1.IngressRule,
	namespace string,
	n int,
) (rule cluster.IngressRule, errs field.ErrorList) {
	rule.Host = host(r.Host)
	if r.HTTP == nil {
		return rule, nil
	}
	for i := range r.HTTP.Paths {
		p := &r.HTTP.Paths[i]
		path := cluster.IngressPath{Path: p.Path}
		bad := ingressPath(p, &path)
		errs = append(errs, in(bad, "http", "paths", i)...)
		path.Backend, bad = ingressBackend(&p.Backend, namespace, fmt.Sprintf("spec.rules[%d].http.paths[%d].backend", n, i))
		errs = append(errs, in(bad, "http", "paths", i, "backend")...)
		rule.Paths = append(rule.Paths, path)
	}
	return rule, errs
}

// ingressPath checks a path and sets its type.
func ingressPath(p *networkingv1.HTTPIngressPath, path *cluster.IngressPath) field.ErrorList {
	if p.PathType == nil {
		return in(nowhere(field.Required(nil, "pathType must be specified")), "pathType")
	}
	path.Type = cluster.PathType(*p.PathType)
	switch path.Type {
	case cluster.PathExact, cluster.PathPrefix:
		return in(checkPath(p.Path), "path")
	case cluster.PathImplementationSpecific:
		if p.Path != "" && p.Path[0] != '/' {
			return in(nowhere(field.Invalid(nil, p.Path, "must be an absolute path")), "path")
		}
		return nil
	}
	known := []cluster.PathType{cluster.PathExact, cluster.PathImplementationSpecific, cluster.PathPrefix}
	return in(nowhere(field.NotSupported(nil, path.Type, known)), "pathType")
}

// checkPath checks a path that is compared as it is, as both APIs do.
func checkPath(path string) (errs field.ErrorList) {
	if path == "" || path[0] != '/' {
		errs = nowhere(field.Invalid(nil, path, "must be an absolute path"))
	}
	for _, part := range []string{"//", "/./", "/../", "%2f", "%2F"} {
		if strings.Contains(path, part) {
			errs = append(errs, nowhere(field.Invalid(nil, path, "must not contain "+part))...)
		}
	}
	for _, end := range []string{"/..", "/."} {
		if strings.HasSuffix(path, end) {
			errs = append(errs, nowhere(field.Invalid(nil, path, "must not end with "+end))...)
		}
	}
	return errs
}

// ingressBackend converts the backend in the field at.
func ingressBackend(
	b *networkingv1.IngressBackend, namespace, at string,
) (to cluster.IngressBackend, errs field.ErrorList) {
	switch {
	case b.Service != nil && b.Resource != nil:
		return to, nowhere(field.Invalid(nil, "", "cannot set both resource and service backends"))
	case b.Resource != nil:
		to.Field = at + ".resource"
		to.Resource = &cluster.ObjectRef{
			Group: or(b.Resource.APIGroup, ""), Kind: b.Resource.Kind, Namespace: namespace, Name: b.Resource.Name,
		}
		return to, nil
	case b.Service == nil:
		return to, nowhere(field.Required(nil, "must have a service or a resource"))
	}
	to.Field, to.Service, to.Port = at+".service", b.Service.Name, b.Service.Port.Name
	switch number := b.Service.Port.Number; {
	case to.Port != "" && number != 0:
		errs = in(nowhere(field.Invalid(nil, to.Port, "cannot set both port name & port number")), "service", "port")
	case to.Port == "":
		to.Number, errs = portNumber(number)
		errs = in(errs, "service", "port", "number")
	}
	return to, append(errs, in(checkName(to.Service, validation.IsDNS1035Label), "service", "name")...)
}

// IngressClass converts an IngressClass.
func IngressClass(c *networkingv1.IngressClass) (*cluster.IngressClass, field.ErrorList) {
	made := &cluster.IngressClass{
		Name: c.Name, Meta: meta(&c.ObjectMeta), Controller: c.Spec.Controller,
		Default: c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true",
	}
	errs := in(checkName(c.Name, validation.IsDNS1123Subdomain), "metadata", "name")
	p := c.Spec.Parameters
	if p == nil {
		return made, errs
	}
	made.Parameters = &cluster.ObjectRef{
		Group: or(p.APIGroup, ""), Kind: p.Kind, Namespace: or(p.Namespace, ""), Name: p.Name,
	}
	namespaced := or(p.Scope, networkingv1.IngressClassParametersReferenceScopeCluster) ==
		networkingv1.IngressClassParametersReferenceScopeNamespace
	switch {
	case namespaced && made.Parameters.Namespace == "":
		bad := nowhere(field.Required(nil, "must be set with the scope Namespace"))
		errs = append(errs, in(bad, "spec", "parameters", "namespace")...)
	case !namespaced && made.Parameters.Namespace != "":
		bad := nowhere(field.Forbidden(nil, "may only be set with the scope Namespace"))
		errs = append(errs, in(bad, "spec", "parameters", "namespace")...)
	}
	return made, errs
}
