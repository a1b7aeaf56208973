// Package translate translates Ingresses with the annotations of ingress-nginx into objects of Gateway API (v1), and
// says of each annotation what becomes of it.
//
//	Ingresses ──► translate.go: settings of all Ingresses, their hosts, notes
//	              route.go:     the routes of an Ingress for a host
//	              rule.go:      matches, filters and backends of a location
//	              gateway.go:   the Gateway, listeners for TLS, policies
//	          ──► Objects, Notes
//
// What cannot be translated, and would be served to more clients or with another path, has rules without backends:
// they answer with 500 until somebody completes them.
package translate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/annotation"
)

// Config is what is translated, and into what.
type Config struct {
	// Class is the name of the IngressClass; Ingresses without a class are translated, too.
	Class string
	// Gateway is the Gateway that the routes refer to, and GatewayClass its class.
	Gateway      cluster.Key
	GatewayClass string
	// Namespace restricts the Ingresses to one namespace; empty for all.
	Namespace string
}

// Object is an object of the Kubernetes API, as it is encoded.
type Object map[string]any

// Note says what becomes of an annotation of an Ingress, or of a field of it.
type Note struct {
	Namespace string `json:"namespace"`
	Ingress   string `json:"ingress"`
	// Annotation is a name without prefix, or a field such as spec.rules.
	Annotation string             `json:"annotation"`
	Outcome    annotation.Outcome `json:"outcome"`
	Text       string             `json:"text"`
}

// String returns the note as a line.
func (n Note) String() string {
	return fmt.Sprintf("ingress %s/%s: %s: %v: %s", n.Namespace, n.Ingress, n.Annotation, n.Outcome, n.Text)
}

// Result is a translation.
type Result struct {
	// Objects are in the order in which they should be applied, and Notes in that of the Ingresses and annotations.
	Objects []Object
	Notes   []Note
}

// Complete reports whether nothing is missing.
func (r *Result) Complete() bool {
	return !slices.ContainsFunc(r.Notes, func(n Note) bool { return n.Outcome == annotation.Missing })
}

// Ingresses translates those of a cluster.
func Ingresses(v *cluster.View, cfg Config) *Result {
	t := &translator{
		cfg: cfg, view: v, hosts: make(map[string][]*source), aliases: make(map[string]string),
		backendTLS: make(map[cluster.Key]Object),
	}
	for f := range cluster.Ingresses.All(v) {
		if i := f.Ingress; i != nil && cfg.translates(f) {
			t.read(f)
		}
	}
	slices.SortFunc(t.sources, func(a, b *source) int {
		return cmp.Or(a.Spec.Compare(b.Spec.Age), a.Key.Compare(b.Key))
	})
	for _, s := range t.sources {
		t.enter(s)
	}
	for _, name := range sortedKeys(t.hosts) {
		t.host(name)
	}
	for _, s := range t.sources {
		t.catchAll(s)
		t.policy(s)
	}
	return t.result()
}

// translates reports whether an Ingress is to be translated.
func (c *Config) translates(f *cluster.Frontend) bool {
	class := cmp.Or(f.Ingress.Class, f.Ingress.OldClass)
	return (class == "" || class == c.Class) && (c.Namespace == "" || c.Namespace == f.Namespace)
}

// translator translates Ingresses.
type translator struct {
	cfg     Config
	view    *cluster.View
	sources []*source
	hosts   map[string][]*source
	// aliases are the hosts of which a name is an alias.
	aliases map[string]string
	// secure are the listeners for TLS, of the namespace of their Secret.
	secure     []secure
	routes     []Object
	policies   []Object
	backendTLS map[cluster.Key]Object
}

// source is an Ingress that is translated.
type source struct {
	*annotation.Ingress
	notes map[string]Note
	// routes are the HTTPRoutes that policies of the Ingress are for.
	routes []string
	names  map[string]bool
}

// read reads the annotations of an Ingress.
func (t *translator) read(f *cluster.Frontend) {
	settings, verdicts := annotation.Parse(f.Ingress.Annotations)
	s := &source{
		Ingress: &annotation.Ingress{Key: f.Key, Spec: f.Ingress, Settings: settings},
		notes:   make(map[string]Note), names: make(map[string]bool),
	}
	for _, v := range verdicts {
		k, known := annotation.Find(v.Name)
		outcome, text := k.Outcome, k.Routes
		switch {
		case !known:
			outcome, text = annotation.Differs, "there is no annotation with this name"
		case v.Effect == annotation.Invalid:
			outcome, text = annotation.Differs, "invalid, and without effect: "+v.Text
			if settings.Denied != "" && strings.HasPrefix(settings.Denied, v.Name+" ") {
				outcome, text = annotation.Missing, "invalid: "+v.Text
			}
		case v.Effect == annotation.Ignored && k.Effect == annotation.Used:
			outcome, text = annotation.Done, v.Text
		case v.Effect == annotation.Unsupported && k.Effect == annotation.Used:
			outcome, text = annotation.Missing, v.Text
		}
		s.note(v.Name, outcome, text)
	}
	if settings.Body.Set && settings.Body.Octets == 0 {
		s.note("proxy-body-size", annotation.Done, "there is no limit without a RoutePolicy")
	}
	t.sources = append(t.sources, s)
}

// note sets what becomes of an annotation.
func (s *source) note(name string, o annotation.Outcome, text string) {
	s.notes[name] = Note{Namespace: s.Key.Namespace, Ingress: s.Key.Name, Annotation: name, Outcome: o, Text: text}
}

// noteField is note for a field, of which several things may be said: the most severe ones are.
func (s *source) noteField(name string, o annotation.Outcome, text string) {
	was, said := s.notes[name]
	switch {
	case !said || o < was.Outcome:
		s.note(name, o, text)
	case o == was.Outcome && !slices.Contains(strings.Split(was.Text, "; "), text):
		s.note(name, o, was.Text+"; "+text)
	}
}

// noteIf is note for an annotation that the Ingress has, unless something more severe is said of it.
func (s *source) noteIf(name string, o annotation.Outcome, text string) {
	if was, ok := s.notes[name]; ok && was.Outcome >= o {
		s.note(name, o, text)
	}
}

// enter enters the hosts of an Ingress.
func (t *translator) enter(s *source) {
	for i := range s.Spec.Rules {
		host := s.Spec.Rules[i].Host
		if !slices.Contains(t.hosts[host], s) {
			t.hosts[host] = append(t.hosts[host], s)
		}
	}
}

// host translates what Ingresses have of a host.
func (t *translator) host(name string) {
	of := make([]*annotation.Ingress, 0, len(t.hosts[name]))
	sources := make(map[*annotation.Ingress]*source)
	for _, s := range t.hosts[name] {
		of = append(of, s.Ingress)
		sources[s.Ingress] = s
	}
	h := &host{Host: annotation.Merge(name, of), sources: sources}
	h.hostnames = t.hostnames(h, of)
	h.listener = t.secureListener(h, of)
	h.prefixes = h.allPrefixes()
	for i := range h.Lost {
		l := &h.Lost[i]
		sources[l.Of].note("canary", annotation.Missing, fmt.Sprintf("no other Ingress has the path %s of %s",
			l.Text, name))
	}
	for _, i := range of {
		if i.Settings.Canary == nil {
			t.ingress(h, sources[i])
		}
	}
}

// host is a host that is translated.
type host struct {
	*annotation.Host
	sources map[*annotation.Ingress]*source
	// hostnames are those of its routes, none for the host of rules that name none.
	hostnames []string
	// listener is that with TLS; nil without one.
	listener *secure
	// prefixes: all its paths can be prefixes, so that parts of paths can be replaced.
	prefixes bool
}

// hostnames returns those of the routes of a host.
func (t *translator) hostnames(h *host, of []*annotation.Ingress) (names []string) {
	if h.Name == "" {
		return nil
	}
	names = append(names, h.Name)
	for _, i := range of {
		for _, alias := range i.Settings.Aliases {
			_, other := t.aliases[alias]
			if _, own := t.hosts[alias]; own || other && t.aliases[alias] != h.Name {
				h.sources[i].noteIf("server-alias", annotation.Differs, alias+" is the host of another Ingress")
				continue
			}
			if !slices.Contains(names, alias) && len(names) < 16 {
				names, t.aliases[alias] = append(names, alias), h.Name
			}
		}
	}
	return names
}

// result returns the objects and notes.
func (t *translator) result() *Result {
	r := &Result{}
	r.Objects = append(r.Objects, t.gateway())
	r.Objects = append(r.Objects, t.listenerSets()...)
	for _, key := range slices.SortedFunc(keys(t.backendTLS), cluster.Key.Compare) {
		r.Objects = append(r.Objects, t.backendTLS[key])
	}
	r.Objects = append(r.Objects, t.policies...) // before the routes, so that no request is served without
	r.Objects = append(r.Objects, t.routes...)
	for _, s := range t.sources {
		for _, name := range sortedKeys(s.notes) {
			r.Notes = append(r.Notes, s.notes[name])
		}
	}
	slices.SortStableFunc(r.Notes, func(a, b Note) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Ingress, b.Ingress))
	})
	return r
}
