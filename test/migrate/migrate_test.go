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
	for i := range shapes {
		for n := range perShape {
			s := &shapes[i]
			name := fmt.Sprintf("%s-%d", s.name, n)
			host := name + ".example"
			w.hosts = append(w.hosts, host)
			w.shapeOf[host] = s
			w.add(t, name, host, s, s.annotations)
			if s.canary != nil {
				w.add(t, name+"-canary", host, s, s.canary)
			}
		}
	}
	return w
}

// add adds an Ingress and its Services.
func (w *world) add(t *testing.T, name, host string, s *shape, annotations pairs) {
	t.Helper()
	all := object{}
	for short, value := range annotations {
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

// serve compiles what a store has, and returns what serves it over HTTP.
func (w *world) serve(t *testing.T, store *cluster.Store) http.Handler {
	t.Helper()
	c := compile.NewCompiler(compile.Config{
		GatewayController: "portolan.dev/gateway", IngressController: "k8s.io/ingress-nginx", Annotated: true,
		Endpoints: w.endpoints,
	})
	var made compile.Output
	store.View(func(v *cluster.View) { made = c.Apply(v, &cluster.Changes{Everything: true}) })
	endpoints := new(balance.Set[table.Upstream])
	endpoints.Update(made.Endpoints)
	p := proxy.New(proxy.Config{Endpoints: endpoints})
	t.Cleanup(p.Close)
	p.SetTable(made.Table)
	return p.At(table.Socket{Port: 80})
}

// answer is what a client sees of a response.
func answer(h http.Handler, r *http.Request) string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	body := w.Body.String()
	if w.Code != http.StatusOK {
		body = ""
	}
	return fmt.Sprintf("%d %s %s %s", w.Code, w.Header().Get("Location"), w.Header().Get("Access-Control-Allow-Origin"), body)
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

// TestTranslation sends 2,000 requests to 200 Ingresses and to what they are translated into. The answers are the same,
// or a note tells what differs.
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
	told := make(map[string][]string)
	for _, n := range made.Notes {
		if n.Outcome != annotation.Done {
			host := strings.TrimSuffix(n.Ingress, "-canary") + ".example"
			told[host] = append(told[host], n.String())
		}
	}
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
	after := w.serve(t, read(t, objects...))

	equal, differ, hosts := 0, 0, make(map[string]int)
	for h, host := range w.hosts {
		for n, path := range paths {
			was, is := answer(before, request(host, path, h+n)), answer(after, request(host, path, h+n))
			if was == is {
				equal++
				continue
			}
			differ++
			hosts[w.shapeOf[host].name]++
			if told[host] == nil {
				t.Errorf("%s%s: %s, translated %s, and no note tells it", host, path, was, is)
			}
		}
	}
	t.Logf("%d Ingresses, %d requests: %d equal answers, %d that differ and are told: %v", len(w.ingresses), equal+differ, equal, differ, hosts)
	if len(w.hosts) != 200 || equal+differ != 2000 {
		t.Errorf("there are %d hosts and %d requests, want 200 and 2,000", len(w.hosts), equal+differ)
	}
	if equal < 1700 {
		t.Errorf("only %d of the answers are equal", equal)
	}
}
