package compile

import (
	"crypto/tls"
	"fmt"
	"iter"
	"maps"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// ingress is what an Ingress is compiled into.
type ingress struct {
	from *cluster.Frontend
	// routes are those of each host. rest serves what no rule of any Ingress does; nil without a
	// defaultBackend.
	routes map[string][]table.Route
	rest   *table.Rule
	// certificates are those for hosts. unread: a Secret is not read yet.
	certificates map[string]*tls.Certificate
	unread       bool
	age          cluster.Age
	annotated    *annotated // nil unless annotations have an effect
	IngressVerdict
}

// all yields all routes, by host.
func (i *ingress) all() iter.Seq2[string, []table.Route] {
	return func(yield func(string, []table.Route) bool) {
		if i.rest != nil && !yield(noHost, []table.Route{{Rule: i.rest}}) {
			return
		}
		for host, routes := range i.routes {
			if !yield(host, routes) {
				return
			}
		}
	}
}

// serves reports whether an Ingress is ours: its class has our controller (IngressSpec.ingressClassName;
// the annotation kubernetes.io/ingress.class is the older way). problem is why that cannot be said.
func (c *Config) serves(v *cluster.View, i *cluster.IngressSpec) (ours bool, problem *Problem) {
	name := i.Class
	if name == "" {
		name = i.OldClass
	}
	unclassed := c.Unclassed && v.Len(cluster.KindIngressClass) == 0
	if name != "" && !unclassed {
		class := cluster.IngressClasses.Get(v, cluster.Key{Name: name})
		return class != nil && class.Controller == c.IngressController, nil
	}
	if unclassed {
		return true, nil
	}
	var found []*cluster.IngressClass
	for class := range cluster.IngressClasses.All(v) {
		if class.Default {
			found = append(found, class)
			ours = ours || class.Controller == c.IngressController
		}
	}
	if ours && len(found) > 1 {
		return false, &Problem{
			"spec.ingressClassName",
			fmt.Sprintf("is not set, and %d IngressClasses are the default", len(found)),
		}
	}
	return ours, nil
}

// compileIngress compiles an Ingress; nil if it is not ours.
func (c *Config) compileIngress(v *cluster.View, f *cluster.Frontend) *ingress {
	made := &ingress{
		from: f, routes: make(map[string][]table.Route), certificates: make(map[string]*tls.Certificate),
		age: f.Ingress.Age,
	}
	ours, problem := c.serves(v, f.Ingress)
	if problem != nil {
		made.Problems, made.Unclear = []Problem{*problem}, true
		return made
	}
	if !ours {
		return nil
	}
	spec := f.Ingress
	if c.Annotated {
		made.annotate(v, f)
	}
	for n := range spec.Rules {
		rule := &spec.Rules[n]
		made.routes[rule.Host] = slices.Clip(made.routes[rule.Host]) // also without paths: a host that has a rule
		for m := range rule.Paths {
			path := &rule.Paths[m]
			match, err := ingressMatch(path)
			if err != nil {
				field := fmt.Sprintf("spec.rules[%d].http.paths[%d].path", n, m)
				made.Problems = append(made.Problems, Problem{field, err.Error()})
				continue
			}
			to := made.rule(v, f, &path.Backend)
			to.Index, to.Name = n, fmt.Sprintf("rules[%d].paths[%d]", n, m)
			made.annotated.decoratePath(to, n, m)
			made.routes[rule.Host] = append(made.routes[rule.Host], table.Route{Match: match, Rule: to})
		}
	}
	if spec.Default != nil {
		made.rest = made.rule(v, f, spec.Default)
		made.rest.Name = "defaultBackend"
		made.annotated.decorateRest(made.rest)
	}
	return made
}

// ingressMatch compiles a path (HTTPIngressPath.pathType).
func ingressMatch(p *cluster.IngressPath) (m table.Match, err error) {
	m.Kind = table.Prefix
	if p.Type == cluster.PathExact {
		m.Kind = table.Exact
	}
	if p.Path == "" { // ImplementationSpecific may have none
		m.Path = "/"
		return m, nil
	}
	m.Path, err = table.Normalize(p.Path)
	return m, err
}

// rule compiles a backend. One that is invalid answers with 503.
func (i *ingress) rule(v *cluster.View, f *cluster.Frontend, b *cluster.IngressBackend) *table.Rule {
	to := &table.Rule{Object: f.Ref().String()}
	up, problem := i.upstream(v, f, b)
	if problem != "" {
		i.Problems = append(i.Problems, Problem{b.Field, problem})
		to.Status, to.Reason = 503, table.Reason(problem)
		return to
	}
	to.Backends = []table.Backend{{Upstream: up, Weight: 1}}
	return to
}

// upstream returns the port of a Service that a backend is, or why it is none.
func (i *ingress) upstream(
	v *cluster.View,
	f *cluster.Frontend,
	b *cluster.IngressBackend,
) (up table.Upstream, problem string) {
	if b.Resource != nil {
		return up, fmt.Sprintf("backends of kind %s are not supported", b.Resource.Kind)
	}
	key := cluster.Key{Namespace: f.Namespace, Name: b.Service}
	s := v.Service(key)
	if s == nil {
		return up, fmt.Sprintf("Service %s does not exist", key)
	}
	n := slices.IndexFunc(s.Ports, func(p cluster.Port) bool { return b.Matches(p) && p.Protocol == cluster.TCP })
	switch {
	case s.ExternalName != "":
		return up, fmt.Sprintf("Service %s is of type ExternalName, which is not supported", key)
	case n < 0 && b.Port != "":
		return up, fmt.Sprintf("Service %s has no TCP port called %s", key, b.Port)
	case n < 0:
		return up, fmt.Sprintf("Service %s has no TCP port %d", key, b.Number)
	}
	return secure(v, newUpstream(s, n), s.Ports[n].Name)
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
