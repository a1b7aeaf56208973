// Package apitest is a Kubernetes API server for tests. It serves lists, watches, reads
// and writes of single objects, and the discovery of API groups other than the core
// group, over HTTP on loopback, and misbehaves as real API servers do. It has no
// defaulting, no validation and no authorization except for one token.
//
// It follows "Kubernetes API Concepts" and "API Conventions" of the Kubernetes
// documentation.
package apitest

import (
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portolan.dev/portolan/internal/kube/object"
)

// Server is an API server. It holds objects of the kinds that Portolan uses.
type Server struct {
	http *httptest.Server

	mu       sync.Mutex
	version  int // of the last change
	oldest   int // changes up to this version are forgotten
	objects  map[id]metav1.Object
	log      []event // all changes since oldest
	changed  chan struct{}
	fault    Fault
	token    string          // that requests must have; empty accepts all requests
	cut      chan struct{}   // closed to end the present watches
	removed  map[string]bool // resources that the server does not have
	requests []Request
	writes   []string
}

type id struct{ resource, namespace, name string }

type event struct {
	version  int
	resource string
	kind     string // ADDED, MODIFIED, DELETED, BOOKMARK
	object   metav1.Object
	before   metav1.Object // what object replaced, or nil
}

// Request is one that the server received.
type Request struct {
	At       time.Time
	Resource string
	Watch    bool
	Version  string // resourceVersion
	URL      string
}

// Fault makes the server misbehave. The zero value does not.
type Fault struct {
	// Status is the HTTP status that requests are refused with; 0 refuses none.
	Status int
	// HangUp closes connections instead of answering, as a load balancer without a
	// backend does.
	HangUp bool
	// Resource restricts Status and HangUp to a resource; empty is all.
	Resource string
	// Refuse returns the HTTP status that a request is refused with, 0 to serve it. It
	// may block. nil refuses none.
	Refuse func(method, path string) (status int)
	// Silent sends no events and answers no list, but keeps connections open.
	Silent bool
	// NoWatchList refuses to stream lists, as old API servers do.
	NoWatchList bool
	// Slow delays each request.
	Slow time.Duration
}

func (f *Fault) affects(resource string) bool { return f.Resource == "" || f.Resource == resource }

// New starts a server that holds the Namespace default. It ends with the test.
func New(tb testing.TB) *Server {
	tb.Helper()
	return start(tb, (*httptest.Server).Start)
}

// NewTLS is New with TLS and HTTP/2, as in real clusters.
func NewTLS(tb testing.TB) *Server {
	tb.Helper()
	return start(tb, func(h *httptest.Server) {
		h.EnableHTTP2 = true
		h.StartTLS()
	})
}

func start(tb testing.TB, listen func(*httptest.Server)) *Server {
	tb.Helper()
	s := &Server{
		objects: make(map[id]metav1.Object), removed: make(map[string]bool),
		changed: make(chan struct{}), cut: make(chan struct{}),
	}
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	listen(s.http)
	tb.Cleanup(s.Stop)
	s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	return s
}

// Stop ends the server; connections to its address are refused from then on.
func (s *Server) Stop() {
	s.Cut()
	s.http.CloseClientConnections()
	s.http.Close()
}

// Kubeconfig writes a kubeconfig file for the server.
func (s *Server) Kubeconfig(tb testing.TB) (path string) {
	tb.Helper()
	path = filepath.Join(tb.TempDir(), "kubeconfig")
	WriteKubeconfig(tb, path, s.http.URL)
	return path
}

// Account writes the files of a Pod's service account into dir, as a kubelet does.
// From then on the server accepts only this token.
func (s *Server) Account(tb testing.TB, dir, token string) {
	tb.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
	for name, text := range map[string]string{"ca.crt": string(ca), "token": token} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			tb.Fatal(err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
}

// URL returns the server's address.
func (s *Server) URL() string { return s.http.URL }

// WriteKubeconfig writes a kubeconfig file for the server at url.
func WriteKubeconfig(tb testing.TB, path, url string) {
	tb.Helper()
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
users: [{name: test, user: {}}]
current-context: test
`, url)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
}

// resource is a kind of API object.
type resource struct {
	object metav1.Object // a pointer to the type
	metav1.TypeMeta
}

// resources are those that the server has, by name: every kind of the model, and those
// that Portolan writes.
var resources = func() map[string]resource {
	registration := admissionregistrationv1.SchemeGroupVersion.String()
	all := map[string]resource{
		"leases": {new(coordinationv1.Lease), metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}},
		"mutatingwebhookconfigurations": {
			new(admissionregistrationv1.MutatingWebhookConfiguration),
			metav1.TypeMeta{APIVersion: registration, Kind: "MutatingWebhookConfiguration"},
		},
		"validatingwebhookconfigurations": {
			new(admissionregistrationv1.ValidatingWebhookConfiguration),
			metav1.TypeMeta{APIVersion: registration, Kind: "ValidatingWebhookConfiguration"},
		},
	}
	all["events"] = resource{
		new(eventsv1.Event), metav1.TypeMeta{APIVersion: eventsv1.SchemeGroupVersion.String(), Kind: "Event"},
	}
	all["customresourcedefinitions"] = resource{
		new(metav1.PartialObjectMetadata),
		metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
	}
	for _, k := range object.Kinds {
		version, kind := k.Group.WithKind(k.Model.String()).ToAPIVersionAndKind()
		all[k.Resource] = resource{k.New(), metav1.TypeMeta{APIVersion: version, Kind: kind}}
	}
	return all
}()

// newObject returns an empty object of a resource.
func newObject(resource string) metav1.Object {
	return reflect.New(reflect.TypeOf(resources[resource].object).Elem()).Interface().(metav1.Object)
}

// resourceOf returns the resource of an object and its type.
func resourceOf(o metav1.Object) (resource string, kind metav1.TypeMeta) {
	for name, r := range resources {
		if reflect.TypeOf(o) == reflect.TypeOf(r.object) {
			return name, r.TypeMeta
		}
	}
	panic(fmt.Sprintf("apitest: no resource of %T", o))
}

func idOf(o metav1.Object) id {
	resource, _ := resourceOf(o)
	return id{resource, o.GetNamespace(), o.GetName()}
}

// Put creates or replaces objects, whatever their versions; the server keeps copies.
func (s *Server) Put(objects ...metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objects {
		s.put(o)
	}
}

// put stores a copy of an object with a new version and returns the copy.
func (s *Server) put(o metav1.Object) metav1.Object {
	key := idOf(o)
	kind, before := "ADDED", s.objects[key]
	if before != nil {
		kind = "MODIFIED"
	}
	stored := s.record(event{resource: key.resource, kind: kind, object: o, before: before})
	s.objects[key] = stored
	return stored
}

// Delete removes objects of these names, if they exist.
func (s *Server) Delete(objects ...metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objects {
		s.remove(idOf(o))
	}
}

// remove removes an object and reports whether it existed.
func (s *Server) remove(key id) bool {
	stored, ok := s.objects[key]
	if ok {
		delete(s.objects, key)
		s.record(event{resource: key.resource, kind: "DELETED", object: stored, before: stored})
	}
	return ok
}

// Get copies the object of that name into into and reports whether it exists.
func (s *Server) Get(namespace, name string, into metav1.Object) bool {
	resource, _ := resourceOf(into)
	s.mu.Lock()
	defer s.mu.Unlock()
	stored, ok := s.objects[id{resource, namespace, name}]
	if ok {
		stored = stored.(runtime.Object).DeepCopyObject().(metav1.Object)
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(stored).Elem())
	}
	return ok
}

// Objects returns all objects; the caller must not change them.
func (s *Server) Objects() []metav1.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.objects))
}

// Bookmark sends a bookmark to all watches: they have received all changes.
func (s *Server) Bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record(event{kind: "BOOKMARK", object: new(corev1.Namespace)})
}

// record records a change with a copy of its object, wakes the watches, and returns
// the copy.
func (s *Server) record(e event) metav1.Object {
	s.version++
	e.version = s.version
	e.object = e.object.(runtime.Object).DeepCopyObject().(metav1.Object)
	e.object.SetResourceVersion(strconv.Itoa(s.version))
	s.log = append(s.log, e)
	close(s.changed)
	s.changed = make(chan struct{})
	return e.object
}

// Forget drops the history of changes, as when etcd is compacted: the server refuses a
// watch from an earlier version as expired.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.oldest, s.log = s.version, nil
}

// Misbehave sets the fault that the server has from now on.
func (s *Server) Misbehave(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Cut ends all present watches.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.cut)
	s.cut = make(chan struct{})
}

// Uninstall removes resources with all their objects, as when their
// CustomResourceDefinitions are deleted while no client watches. It ends all watches.
func (s *Server) Uninstall(resources ...string) {
	s.mu.Lock()
	for _, name := range resources {
		s.removed[name] = true
	}
	maps.DeleteFunc(s.objects, func(key id, _ metav1.Object) bool { return s.removed[key.resource] })
	s.mu.Unlock()
	s.Cut()
}

// Install brings back resources that were uninstalled, without objects.
func (s *Server) Install(resources ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range resources {
		delete(s.removed, name)
	}
}

// Requests returns all requests since the start.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Writes returns the successful writes of clients since the start, each as METHOD PATH;
// the path of a POST has the name of the created object.
func (s *Server) Writes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.writes)
}
