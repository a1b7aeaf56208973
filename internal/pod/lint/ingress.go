package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/support/suggest"
)

// useAnnotation is the port of a backend that is an action in an annotation, and no Service
// (AWS Load Balancer Controller, “Ingress annotations”).
const useAnnotation = "use-annotation"

// CheckIngress checks that the backends of an Ingress exist, its class, its paths and its certificates.
func (c *Linter) CheckIngress(f *cluster.Frontend) []Finding {
	j := c.reporterFor(f.Kind, f.Key)
	if j.loaded(cluster.KindService) {
		j.ingressBackends(f)
	}
	if f.Ingress == nil || !j.loaded(cluster.KindIngressClass) {
		return j.found()
	}
	j.ingressClass(f.Ingress)
	j.ingressPaths(f.Ingress)
	j.ingressTLS(f.Ingress)
	for _, s := range c.routing().shadows[f.Ref()] {
		j.shadowed("spec.rules"+at(s.Index), &s)
	}
	for _, p := range c.routing().own.Ingresses[f.Key].Problems {
		if p.Field == "spec.rules" || p.Field == "spec.tls" { // a Gateway has the port
			j.add(
				ListenerConflict,
				p.Field,
				"give the listener of the Gateway another port",
				"%s: it is not served there",
				p.Reason,
			)
		}
	}
	return j.found()
}

// ingressBackends checks that the backends of an Ingress exist.
func (j *reporter) ingressBackends(f *cluster.Frontend) {
	for i := range f.Backends {
		b := &f.Backends[i]
		if b.Port == useAnnotation {
			continue
		}
		key := cluster.Key{Namespace: f.Namespace, Name: b.Service}
		if s := j.View.Service(key); s != nil {
			j.backendPort(s, b)
		} else {
			j.missingService(IngressBackendMissing, b.Field+".name", key, "requests for it fail")
		}
	}
}

// missingService reports a Service that does not exist, unless it may be in manifests that
// were not read.
func (j *reporter) missingService(rule, field string, key cluster.Key, consequence string) {
	if !j.Observed && len(j.indexed().services[key.Namespace]) == 0 || j.unread(cluster.KindService, key.Namespace) {
		return
	}
	severity, fix := Error, "create the Service, or correct the name"
	near := j.indexed().similarService(key.Namespace, key.Name)
	switch {
	case near != "":
		fix = "write " + near + ", or create the Service"
	case !j.Observed:
		severity = Warning
	}
	j.addAs(severity, rule, field, fix, "Service %s does not exist%s: %s", key, didYouMean(near), consequence)
}

// backendPort checks that the Service has the port of a backend.
func (j *reporter) backendPort(s *cluster.Service, b *cluster.Backend) {
	if s.ExternalName != "" || slices.ContainsFunc(s.Ports, b.Matches) {
		return
	}
	field, text := b.Field+".port.name", b.Port
	if b.Port == "" {
		field, text = b.Field+".port.number", strconv.Itoa(int(b.Number))
	}
	j.add(IngressBackendMissing, field, "write a port of the Service, or add this one to it",
		"Service %s has no port %s: requests for it fail; its ports are %s", s.Key, text, servicePorts(s))
}

// servicePorts lists the ports of a Service.
func servicePorts(s *cluster.Service) string {
	var ports []string
	for _, p := range s.Ports {
		ports = append(ports, strings.TrimSpace(p.Name+" "+strconv.Itoa(int(p.Number))))
	}
	return cmp.Or(strings.Join(ports, ", "), "none")
}

// ingressClass checks that a controller serves the class of an Ingress.
func (j *reporter) ingressClass(i *cluster.IngressSpec) {
	field, name, severity := "spec.ingressClassName", i.Class, Error
	if name == "" && i.OldClass != "" {
		field, name, severity = "metadata.annotations", i.OldClass, Warning
	}
	if name == "" {
		j.noIngressClass()
		return
	}
	if cluster.IngressClasses.Get(j.View, cluster.Key{Name: name}) != nil {
		return
	}
	var names []string
	for class := range cluster.IngressClasses.All(j.View) {
		names = append(names, class.Name)
	}
	slices.Sort(names)
	near := suggest.Closest(name, names)
	if near == "" && !j.Observed {
		return
	}
	fix := "name an IngressClass that exists, or create it"
	if near != "" {
		fix = "write " + near + ", or create the IngressClass"
	}
	j.addAs(
		severity,
		IngressClassUnserved,
		field,
		fix,
		"IngressClass %s does not exist%s: nobody serves the Ingress",
		name,
		didYouMean(near),
	)
}

// noIngressClass checks that there is one default for an Ingress that names no class.
func (j *reporter) noIngressClass() {
	const fix = "set ingressClassName, or the annotation ingressclass.kubernetes.io/is-default-class of one IngressClass"
	switch defaults := j.defaultClasses(); {
	case len(defaults) > 1:
		j.add(
			IngressClassUnserved,
			"spec",
			fix,
			"it names no class, and %d IngressClasses are the default: %s",
			len(defaults),
			firstFew(defaults),
		)
	case len(defaults) == 0 && j.Observed:
		j.addAs(Warning, IngressClassUnserved, "spec", fix,
			"it names no class, and no IngressClass is the default: only a controller that needs no class serves it")
	}
}

// ingressPaths checks the paths of an Ingress. What type ImplementationSpecific means is up to the controller.
func (j *reporter) ingressPaths(i *cluster.IngressSpec) {
	for n := range i.Rules {
		rule := &i.Rules[n]
		for k := range rule.Paths {
			p := &rule.Paths[k]
			field := fmt.Sprintf("spec.rules[%d].http.paths[%d].path", n, k)
			m, err := compile.PathMatchOf(p)
			if err != nil || p.Type == cluster.PathImplementationSpecific {
				continue
			}
			j.path(field, p.Path, m.Kind)
			serves := func(path string) bool { return servesPath(i, rule.Host, path) }
			if m.Kind == table.Exact && j.trailingSlash(p.Path, serves) {
				j.slash(field, p.Path)
			}
		}
	}
}

// servesPath reports whether an Ingress has a rule for a path of a host.
func servesPath(i *cluster.IngressSpec, host, path string) bool {
	for n := range i.Rules {
		for k := range i.Rules[n].Paths {
			m, err := compile.PathMatchOf(&i.Rules[n].Paths[k])
			if i.Rules[n].Host == host && err == nil && m.OnPath(path) {
				return true
			}
		}
	}
	return i.Default != nil
}

// ingressTLS checks the certificates of an Ingress.
func (j *reporter) ingressTLS(i *cluster.IngressSpec) {
	for n := range i.TLS {
		t := &i.TLS[n]
		field := "spec.tls" + at(n)
		hosts := t.Hosts
		for k, h := range t.Hosts {
			if !hasRule(i, h) {
				j.add(IngressTLSHost, field+".hosts"+at(k), "write the host of a rule",
					"no rule has the host %s; there are rules for %s", h, firstFew(ruleHosts(i)))
			}
		}
		if len(hosts) == 0 {
			hosts = ruleHosts(i)
		}
		if t.Secret != "" {
			secret := j.certificate(field+".secretName", cluster.Key{Namespace: j.object.Namespace, Name: t.Secret})
			j.certificateFor(field+".secretName", secret, hosts...)
		}
	}
}

// hasRule reports whether requests for a host of tls are served.
func hasRule(i *cluster.IngressSpec, host string) bool {
	sameLabel := func(wildcard, name string) bool {
		above, wild := strings.CutPrefix(wildcard, "*.")
		_, rest, _ := strings.Cut(name, ".")
		return wild && rest == above
	}
	return i.Default != nil || slices.ContainsFunc(i.Rules, func(r cluster.IngressRule) bool {
		return r.Host == "" || r.Host == host || sameLabel(r.Host, host) || sameLabel(host, r.Host)
	})
}

// ruleHosts returns the hosts of an Ingress' rules.
func ruleHosts(i *cluster.IngressSpec) (all []string) {
	for n := range i.Rules {
		if host := i.Rules[n].Host; host != "" && !slices.Contains(all, host) {
			all = append(all, host)
		}
	}
	return all
}
