// Package migrate_test compares Ingresses that are served as their annotations say with the routes that they are
// translated into.
package migrate_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/annotation"
	"portolan.dev/portolan/internal/gateway/balance"
	"portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/gateway/proxy"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/gateway/translate"
	"portolan.dev/portolan/internal/kube/source"
)

// perShape is how many hosts there are of a shape.
const perShape = 5

// world is the Ingresses of all shapes.
type world struct {
	ingresses, services []any
	hosts               []string
	names               []string // of the Ingresses
	shapeOf             map[string]*shape
	endpoints           map[compile.ServicePort][]netip.AddrPort
}

type object = map[string]any

// newWorld makes them, with a backend for each Service, which says who it is and what it was asked for.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{shapeOf: make(map[string]*shape), endpoints: make(map[compile.ServicePort][]netip.AddrPort)}
	w.services = append(w.services, object{
		"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": "users", "namespace": "apps"},
		"stringData": object{"auth": "ann:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g="},
	})
	all := slices.Concat(shapes, shared)
	for i := range all {
		for n := range perShape {
			s := &all[i]
			name := fmt.Sprintf("%s-%d", s.name, n)
			host := name + ".example"
			w.hosts = append(w.hosts, host)
			w.shapeOf[host] = s
			w.add(t, name, host, &other{s.annotations, s.paths, s.tls})
			if s.canary != nil {
				w.add(t, name+"-canary", host, &other{s.canary, s.paths, s.tls})
			}
			for k := range s.others {
				w.add(t, fmt.Sprintf("%s-other%d", name, k), host, &s.others[k])
			}
		}
	}
	return w
}

// add adds an Ingress and its Services.
func (w *world) add(t *testing.T, name, host string, s *other) {
	t.Helper()
	all := object{}
	for short, value := range s.annotations {
		all[annotation.Prefix+short] = value
	}
	var paths []any
	for i := 0; i < len(s.paths); i += 2 {
		service := fmt.Sprintf("%s-s%d", name, i/2)
		w.service(t, service)
		paths = append(paths, object{
			"path": s.paths[i], "pathType": s.paths[i+1],
			"backend": object{"service": object{"name": service, "port": object{"number": 80}}},
		})
	}
	spec := object{"ingressClassName": "nginx", "rules": []any{object{"host": host, "http": object{"paths": paths}}}}
	if s.tls {
		spec["tls"] = []any{object{"hosts": []any{host}, "secretName": "cert"}}
	}
	w.names = append(w.names, name)
	w.ingresses = append(w.ingresses, object{
		"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
		"metadata": object{"name": name, "namespace": "apps", "annotations": all}, "spec": spec,
	})
}

// service adds a Service and starts its endpoint.
func (w *world) service(t *testing.T, name string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, "%s %s %s %s", name, r.Host, r.RequestURI, r.Header.Get("X-Forwarded-Prefix"))
	}))
	t.Cleanup(s.Close)
	at := compile.ServicePort{Namespace: "apps", Service: name}
	w.endpoints[at] = []netip.AddrPort{netip.MustParseAddrPort(s.Listener.Addr().String())}
	w.services = append(w.services, object{
		"apiVersion": "v1", "kind": "Service", "metadata": object{"name": name, "namespace": "apps"},
		"spec": object{"ports": []any{object{"port": 80}}},
	})
}

// read writes objects as YAML and reads them, as a gateway does.
func read(t *testing.T, objects ...any) *cluster.Store {
	t.Helper()
	var text bytes.Buffer
	e := yaml.NewEncoder(&text)
	for _, o := range objects {
		if err := e.Encode(o); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "all.yaml")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	store := cluster.NewStore()
	report, err := source.ReadFiles(source.Files{Paths: []string{file}}, store)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		t.Errorf("the manifests have a problem: %v", p)
	}
	return store
}

// gateway serves what a store has.
type gateway struct {
	http.Handler
	// of is the object whose rule the last request had; empty for none.
	of string
}

// serve compiles what a store has, and returns what serves it over HTTP.
func (w *world) serve(t *testing.T, store *cluster.Store) *gateway {
	t.Helper()
	c := compile.NewCompiler(compile.Config{
		GatewayController: "portolan.dev/gateway", IngressController: "k8s.io/ingress-nginx", Annotated: true,
		Endpoints: w.endpoints,
	})
	var made compile.Output
	store.View(func(v *cluster.View) { made = c.Apply(v, &cluster.Changes{Everything: true}) })
	endpoints := new(balance.Set[table.Upstream])
	endpoints.Update(made.Endpoints)
	g := new(gateway)
	p := proxy.New(proxy.Config{Endpoints: endpoints, Done: func(r *proxy.Record) {
		if g.of = ""; r.Rule != nil {
			_, g.of, _ = strings.Cut(r.Rule.Object, "apps/")
		}
	}})
	t.Cleanup(p.Close)
	p.SetTable(made.Table)
	g.Handler = p.At(table.Socket{Port: 80})
	return g
}

// answer is what a client sees of a response, and what the backend was asked for.
type answer struct {
	code                          int
	location, origin              string
	service, host, target, prefix string
	of                            string // the Ingress, or the route
}

// ask sends a request.
func (g *gateway) ask(r *http.Request) answer {
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	a := answer{
		code: w.Code, location: w.Header().Get("Location"), origin: w.Header().Get("Access-Control-Allow-Origin"), of: g.of,
	}
	if words := strings.Split(w.Body.String(), " "); w.Code == http.StatusOK && len(words) == 4 {
		a.service, a.host, a.target, a.prefix = words[0], words[1], words[2], words[3]
	}
	return a
}

// difference is how an answer differs from another one.
type difference string

// The differences, and the annotations or fields of which a note can tell each.
var tells = map[difference][]string{
	"closed": {
		"auth-secret", "auth-tls-secret", "auth-type", "auth-url", "configuration-snippet", "denylist-source-range",
		"rewrite-target", "server-snippet", "spec.rules", "whitelist-source-range",
	},
	"redirect": {
		"app-root", "force-ssl-redirect", "from-to-www-redirect", "permanent-redirect", "spec.tls", "ssl-redirect",
		"temporal-redirect",
	},
	"origin":  {"cors-allow-origin"},
	"backend": {"canary", "rewrite-target", "spec.rules", "use-regex"},
	"host":    {"upstream-vhost"},
	"path":    {"rewrite-target", "spec.rules"},
	"prefix":  {"x-forwarded-prefix"},
}

// differences returns how an answer differs from that before.
func differences(was, is answer) (all []difference) {
	if is.code == http.StatusInternalServerError && was.code != is.code {
		return []difference{"closed"}
	}
	if was.location != is.location {
		return []difference{"redirect"}
	}
	for d, differs := range map[difference]bool{
		"origin":  was.origin != is.origin,
		"backend": was.code != is.code || was.service != is.service,
		"host":    was.service == is.service && was.host != is.host,
		"path":    was.service == is.service && was.target != is.target,
		"prefix":  was.service == is.service && was.prefix != is.prefix,
	} {
		if differs {
			all = append(all, d)
		}
	}
	return all
}

// told reports whether a note tells a difference, of one of the Ingresses that serve the request.
func told(notes []translate.Note, d difference, of ...string) bool {
	return slices.ContainsFunc(notes, func(n translate.Note) bool {
		enough := n.Outcome == annotation.Missing || d != "closed" && n.Outcome == annotation.Differs
		return enough && slices.Contains(of, n.Ingress) && slices.Contains(tells[d], n.Annotation)
	})
}

// ingressOf returns the Ingress that a route was made of: that with the longest name that the route's begins with.
func (w *world) ingressOf(route string) (name string) {
	for _, i := range w.names {
		if (route == i || strings.HasPrefix(route, i+"-")) && len(i) > len(name) {
			name = i
		}
	}
	return name
}

// paths are what is asked for of each host.
var paths = []string{
	"/", "/foobar?q=1", "/api/x/y", "/grafana/d/1", "/old/a/b/", "/app/deep/er", "/users/12/x", "/static/A", "/a/b/c", "/EXACT/",
}

// request returns the n-th request for a host.
func request(host, path string, n int) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "http://"+host+path, http.NoBody)
	r.RemoteAddr = "192.0.2.7:4711"
	r.Header.Set("Origin", []string{"https://a.example", "https://x.b.example", "https://c.example"}[n%3])
	r.Header.Set("X-Canary", []string{"always", "never", "beta", "other"}[n%4])
	r.SetBasicAuth("ann", []string{"password", "other"}[n%2])
	r.Header.Set("Cookie", "a=b; canary="+[]string{"always", "never", "other"}[n%3])
	return r
}

// TestTranslation sends requests to Ingresses, 4,000 to 400 hosts, and to what they are translated into. The answers are
// the same, or a note of the Ingress tells what differs.
func TestTranslation(t *testing.T) {
	w := newWorld(t)
	class := object{
		"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": object{"name": "nginx"},
		"spec": object{"controller": "k8s.io/ingress-nginx"},
	}
	store := read(t, append(append([]any{class}, w.ingresses...), w.services...)...)
	before := w.serve(t, store)

	var made *translate.Result
	store.View(func(v *cluster.View) {
		made = translate.Ingresses(v, translate.Config{
			Class: "nginx", Gateway: cluster.Key{Namespace: "edge", Name: "public"}, GatewayClass: "ours",
		})
	})
	after := w.serve(t, read(t, w.translated(made)...))

	all, sharing := counts{hosts: make(map[string]int)}, counts{hosts: make(map[string]int)}
	for h, host := range w.hosts {
		count := &all
		if s := w.shapeOf[host]; len(s.others) > 0 {
			count = &sharing
		}
		for n, path := range paths {
			was, is := before.ask(request(host, path, h+n)), after.ask(request(host, path, h+n))
			found := differences(was, is)
			if len(found) == 0 {
				count.equal++
				continue
			}
			count.differ++
			count.hosts[w.shapeOf[host].name]++
			for _, d := range found {
				if !told(made.Notes, d, was.of, w.ingressOf(is.of)) {
					t.Errorf("%s%s: %+v, translated %+v, and no note tells that the %s differs", host, path, was, is, d)
				}
			}
		}
	}
	t.Logf("%d Ingresses; of hosts with one: %v; with several: %v", len(w.ingresses), &all, &sharing)
	for _, c := range []*counts{&all, &sharing} {
		if c.equal+c.differ != 2000 || c.equal < 1700 {
			t.Errorf("%v: want 2,000 requests, of which at least 1,700 have equal answers", c)
		}
	}
}

// counts are how many answers are equal and how many differ, and these by shape.
type counts struct {
	equal, differ int
	hosts         map[string]int
}

// String returns them in words.
func (c *counts) String() string {
	return fmt.Sprintf("%d requests, %d equal answers, %d that differ and are told %v", c.equal+c.differ, c.equal, c.differ, c.hosts)
}

// translated returns what a cluster has after a translation.
func (w *world) translated(made *translate.Result) []any {
	objects := append([]any{object{
		"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": object{"name": "ours"},
		"spec": object{"controllerName": "portolan.dev/gateway"},
	}}, w.services...)
	for _, namespace := range []string{"edge", "apps"} {
		objects = append(objects, object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": namespace}})
	}
	for _, o := range made.Objects {
		objects = append(objects, o)
	}
	return objects
}

// TestTold: a note tells a difference of its own Ingress only, of the kind that its annotation is for, and one that is
// missing only that nothing is served.
func TestTold(t *testing.T) {
	note := func(name string, o annotation.Outcome) []translate.Note {
		return []translate.Note{{Ingress: "web", Annotation: name, Outcome: o}}
	}
	for claim, test := range map[string]struct {
		notes []translate.Note
		d     difference
		of    string
		want  bool
	}{
		"its own":              {note("rewrite-target", annotation.Differs), "path", "web", true},
		"of another Ingress":   {note("rewrite-target", annotation.Differs), "path", "other", false},
		"of another kind":      {note("proxy-body-size", annotation.Missing), "path", "web", false},
		"done":                 {note("rewrite-target", annotation.Done), "path", "web", false},
		"closed":               {note("auth-url", annotation.Missing), "closed", "web", true},
		"closed, and not said": {note("rewrite-target", annotation.Differs), "closed", "web", false},
	} {
		if got := told(test.notes, test.d, test.of); got != test.want {
			t.Errorf("%s: told(%v, %s, %s) = %t, want %t", claim, test.notes, test.d, test.of, got, test.want)
		}
	}
}
