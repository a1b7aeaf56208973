package suite

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/path"
)

// Draft is the first suite of a cluster: what each client gets of each Service and route.
type Draft struct {
	view *cluster.View
	// namespace is that of the Services and routes; empty is all.
	namespace string
	clients   []dnsconfig.Subject
	tests     []drafted
}

// drafted is a test as it is written.
type drafted struct {
	From   any `yaml:"from"` // a text, or several
	To     any `yaml:"to"`
	Expect any `yaml:"expect"`
}

// NewDraft returns the Draft of a cluster, without tests.
func NewDraft(v *cluster.View, namespace string) *Draft {
	x := &expander{view: v}
	d := &Draft{view: v, namespace: namespace}
	for _, s := range x.all() {
		if !s.Finished() {
			d.clients = append(d.clients, s)
		}
	}
	return d
}

// Judge explains the way of a case; nil if that is not possible.
type Judge func(*Case) *path.Explanation

// MostDrafted is the maximum number of ways from a client to a port that a Draft judges, which takes some minutes.
const MostDrafted = 1_000_000

// Services adds what the clients get of each port of each Service: a test for each outcome in each namespace. It
// returns an error, and adds nothing, if these are more than MostDrafted ways.
func (d *Draft) Services(judge Judge) error {
	var services []*cluster.Service
	ports := 0
	for s := range d.view.Services() {
		if (d.namespace == "" || s.Namespace == d.namespace) && s.ExternalName == "" {
			services = append(services, s)
			ports += len(s.Ports)
		}
	}
	if n := len(d.clients) * ports; n > MostDrafted {
		return fmt.Errorf(
			"%d Pods and %d ports of Services are %d ways, and %d are judged at most: choose the Services of a "+
				"namespace, with --namespace",
			len(d.clients),
			ports,
			n,
			MostDrafted,
		)
	}
	slices.SortFunc(services, func(a, b *cluster.Service) int { return a.Compare(b.Key) })
	for _, s := range services {
		for _, p := range s.Ports {
			to := fmt.Sprintf("svc/%s:%d", s.Key, p.Number)
			if p.Protocol != cluster.TCP {
				to += "/" + strings.ToLower(string(p.Protocol))
			}
			d.service(to, judge)
		}
	}
	return nil
}

// service adds the tests of a port of a Service.
func (d *Draft) service(to string, judge Judge) {
	x := &expander{view: d.view}
	targets, err := x.targets(&Test{}, to)
	if err != nil {
		return // its name is that of a kind
	}
	outcomes := make(map[string]map[string]Outcome) // by namespace, and by the name of the client
	for _, s := range d.clients {
		c := targets[0]
		c.Client, c.Namespace = s, s.Namespace
		seen := Outcome("")
		if e := judge(&c); e != nil {
			seen = Outcome(Seen(e))
		}
		of := outcomes[s.Namespace]
		if of == nil {
			of = make(map[string]Outcome)
			outcomes[s.Namespace] = of
		}
		if by := selectorOf(&s); by == "" {
			of[name(&s)] = seen
		} else if before, ok := of[by]; ok && before != seen {
			of[by] = "" // its Pods differ
		} else {
			of[by] = seen
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(outcomes)) {
		d.add(namespace, to, outcomes[namespace])
	}
}

// add adds the tests of the clients of a namespace.
func (d *Draft) add(namespace, to string, outcomes map[string]Outcome) {
	byOutcome := make(map[Outcome][]string)
	for _, client := range slices.Sorted(maps.Keys(outcomes)) {
		if o := outcomes[client]; o == Connects || o == Refused || o == Dropped {
			byOutcome[o] = append(byOutcome[o], client)
		}
	}
	for _, o := range []Outcome{Connects, Refused, Dropped} {
		clients := byOutcome[o]
		switch {
		case len(clients) == 0:
		case len(clients) == len(outcomes):
			d.tests = append(d.tests, drafted{namespace + "/" + everything, to, o})
		case len(clients) == 1:
			d.tests = append(d.tests, drafted{clients[0], to, o})
		default:
			d.tests = append(d.tests, drafted{clients, to, o})
		}
	}
}

// selectorOf returns a selector of a client by a label that names an application; empty if it has none.
func selectorOf(s *dnsconfig.Subject) string {
	for _, label := range []string{"app.kubernetes.io/name", "app", "k8s-app"} {
		if value := s.Labels[label]; value != "" {
			return fmt.Sprintf("%s/%s=%s", s.Namespace, label, value)
		}
	}
	return ""
}

// Routes adds what a client outside gets of each host and path of Ingresses and HTTPRoutes.
func (d *Draft) Routes(judge Judge) {
	x := &expander{view: d.view}
	for _, url := range d.urls() {
		targets, err := x.targets(&Test{}, url)
		if err != nil {
			continue // a path that is an expression
		}
		clients, _ := x.clients("outside")
		c := targets[0]
		c.Elsewhere, c.Namespace = clients[0].Elsewhere, clients[0].Namespace
		e := judge(&c)
		if e == nil || e.Request == nil || !e.Request.Served() {
			continue
		}
		var backends []string
		for _, b := range e.Request.Answer().Backends {
			if b.Weight > 0 && !slices.Contains(backends, b.Service) {
				backends = append(backends, b.Service)
			}
		}
		d.tests = append(d.tests, drafted{"outside", url, map[Outcome]any{Backend: backends}})
	}
}

// urls returns a URL for each host and path of Ingresses and HTTPRoutes, sorted: those of hosts without a wildcard.
func (d *Draft) urls() (all []string) {
	add := func(namespace, host, path string) {
		if host == "" || strings.Contains(host, "*") || d.namespace != "" && namespace != d.namespace {
			return
		}
		for _, scheme := range []string{"http", "https"} {
			all = append(all, scheme+"://"+host+cmp.Or(path, "/"))
		}
	}
	for r := range cluster.HTTPRoutes.All(d.view) {
		if r.Spec == nil {
			continue
		}
		for _, host := range r.Hosts {
			for i := range r.Spec.Rules {
				for _, m := range r.Spec.Rules[i].Matches {
					if m.Path.Type != cluster.PathRegularExpression && m.Method == "" && len(m.Headers) == 0 && len(m.Query) == 0 {
						add(r.Namespace, host, m.Path.Value)
					}
				}
			}
		}
	}
	for f := range cluster.Ingresses.All(d.view) {
		if f.Ingress == nil {
			continue
		}
		for i := range f.Ingress.Rules {
			for _, p := range f.Ingress.Rules[i].Paths {
				add(f.Namespace, f.Ingress.Rules[i].Host, p.Path)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Write writes the suite.
func (d *Draft) Write(w io.Writer) error {
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	if err := encoder.Encode(map[string]any{"tests": d.tests}); err != nil {
		return err
	}
	return encoder.Close()
}
