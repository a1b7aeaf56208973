// Package apitest is a Kubernetes API server for tests: lists and watches of
// what is put into it, over HTTP on loopback, with the bad manners that real
// ones have. It knows no defaults, no validation and no users, but an account.
package apitest

import (
	"encoding/json"
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
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"portolan.dev/portolan/internal/kube/object"
)

// Server is an API server of the kinds in object.Kinds.
type Server struct {
	http *httptest.Server

	mu      sync.Mutex
	version int // of the last change
	oldest  int // changes up to this one are forgotten
	objects map[id]metav1.Object
	log     []event // all changes since oldest
	changed chan struct{}
	fault   Fault
	token   string        // that requests must have; any may be, or none, when empty
	cut     chan struct{} // closed to end the watches that there are
	asked   []Request
}

type id struct{ resource, namespace, name string }

type event struct {
	version  int
	resource string
	kind     string // ADDED, MODIFIED, DELETED, BOOKMARK
	object   metav1.Object
	before   metav1.Object // what object replaced, or nil
}

// Request is one that the server got.
type Request struct {
	At       time.Time
	Resource string
	Watch    bool
	Version  string // resourceVersion
	URL      string
}

// Fault makes the server misbehave; the zero value does not.
type Fault struct {
	// Status refuses requests with this HTTP status; 0 refuses none.
	Status int
	// HangUp closes connections instead of answering, as load balancers do that
	// have no server.
	HangUp bool
	// Resource is the one that Status and HangUp are for; all when empty.
	Resource string
	// Silent sends no events, and answers no list, though the connection is
	// there.
	Silent bool
	// NoWatchList refuses to send lists as streams, as old servers do.
	NoWatchList bool
	// Slow is how long each request waits.
	Slow time.Duration
}

func (f *Fault) hits(resource string) bool { return f.Resource == "" || f.Resource == resource }

// New starts a server that holds the Namespace default. It ends with the test.
func New(t testing.TB) *Server {
	t.Helper()
	return start(t, (*httptest.Server).Start)
}

// NewTLS is New over TLS and HTTP/2, as clusters have it.
func NewTLS(t testing.TB) *Server {
	t.Helper()
	return start(t, func(h *httptest.Server) {
		h.EnableHTTP2 = true
		h.StartTLS()
	})
}

func start(t testing.TB, begin func(*httptest.Server)) *Server {
	t.Helper()
	s := &Server{objects: make(map[id]metav1.Object), changed: make(chan struct{}), cut: make(chan struct{})}
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	begin(s.http)
	t.Cleanup(s.Stop)
	s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	return s
}

// Stop ends the server; its address is then refused.
func (s *Server) Stop() {
	s.Cut()
	s.http.CloseClientConnections()
	s.http.Close()
}

// Kubeconfig writes a kubeconfig file for the server.
func (s *Server) Kubeconfig(t testing.TB) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "kubeconfig")
	WriteKubeconfig(t, path, s.http.URL)
	return path
}

// Account writes the files of a Pod's account into dir, as a kubelet does. From
// now on the server accepts no token but this one.
func (s *Server) Account(t testing.TB, dir, token string) {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
	for name, text := range map[string]string{"ca.crt": string(ca), "token": token} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
}

// URL is the server's address.
func (s *Server) URL() string { return s.http.URL }

// WriteKubeconfig writes a kubeconfig file for the server at url.
func WriteKubeconfig(t testing.TB, path, url string) {
	t.Helper()
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
users: [{name: test, user: {}}]
current-context: test
`, url)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// resources are those that the server has, by their names: every kind of the
// model.
var resources = func() map[string]resource {
	all := make(map[string]resource)
	for _, k := range object.Kinds {
		version, kind := k.Group.WithKind(k.Model.String()).ToAPIVersionAndKind()
		all[k.Resource] = resource{k.New(), metav1.TypeMeta{APIVersion: version, Kind: kind}}
	}
	return all
}()

// resource is a kind of API object.
type resource struct {
	object metav1.Object // a pointer to the type
	metav1.TypeMeta
}

// resourceOf is the resource of an object, by its type.
func resourceOf(o metav1.Object) (resource string, kind metav1.TypeMeta) {
	for name, r := range resources {
		if reflect.TypeOf(o) == reflect.TypeOf(r.object) {
			return name, r.TypeMeta
		}
	}
	panic(fmt.Sprintf("apitest: no resource of %T", o))
}

// Put creates or replaces objects; the server keeps copies.
func (s *Server) Put(objects ...metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objects {
		resource, _ := resourceOf(o)
		key := id{resource, o.GetNamespace(), o.GetName()}
		kind, before := "ADDED", s.objects[key]
		if before != nil {
			kind = "MODIFIED"
		}
		s.objects[key] = s.happen(event{resource: resource, kind: kind, object: o, before: before})
	}
}

// Delete removes objects of these names, if they are there.
func (s *Server) Delete(objects ...metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objects {
		resource, _ := resourceOf(o)
		key := id{resource, o.GetNamespace(), o.GetName()}
		if there, ok := s.objects[key]; ok {
			delete(s.objects, key)
			s.happen(event{resource: resource, kind: "DELETED", object: there, before: there})
		}
	}
}

// Objects are all that the server holds; nobody may change them.
func (s *Server) Objects() []metav1.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.objects))
}

// Bookmark tells all watches that they have heard everything.
func (s *Server) Bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.happen(event{kind: "BOOKMARK", object: new(corev1.Namespace)})
}

// happen notes a change with a copy of its object, which it gives, and wakes
// the watches.
func (s *Server) happen(e event) metav1.Object {
	s.version++
	e.version = s.version
	e.object = e.object.(runtime.Object).DeepCopyObject().(metav1.Object)
	e.object.SetResourceVersion(strconv.Itoa(s.version))
	s.log = append(s.log, e)
	close(s.changed)
	s.changed = make(chan struct{})
	return e.object
}

// Forget makes the server forget what changed up to now, as when etcd is
// compacted: a watch from before that is refused as expired.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.oldest, s.log = s.version, nil
}

// Misbehave sets what is wrong with the server from now on.
func (s *Server) Misbehave(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Cut ends all watches that there are.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.cut)
	s.cut = make(chan struct{})
}

// Requests are those that came since the start.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// query is what one request asks for.
type query struct {
	resource, namespace string
	labels              labels.Selector
	fields              fields.Selector
	watch, initial      bool
	version             string
}

func parse(r *http.Request) (q query, err error) {
	path := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/api/v1/"), "/apis/discovery.k8s.io/v1/")
	parts := strings.Split(path, "/")
	if len(parts) == 3 && parts[0] == "namespaces" {
		q.namespace = parts[1]
	}
	q.resource = parts[len(parts)-1]
	values := r.URL.Query()
	if q.labels, err = labels.Parse(values.Get("labelSelector")); err != nil {
		return q, err
	}
	if q.fields, err = fields.ParseSelector(values.Get("fieldSelector")); err != nil {
		return q, err
	}
	q.watch, q.initial = values.Get("watch") == "true", values.Get("sendInitialEvents") == "true"
	q.version = values.Get("resourceVersion")
	return q, nil
}

func (q *query) wants(resource string, o metav1.Object) bool {
	set := fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}
	if p, ok := o.(*corev1.Pod); ok {
		set["status.phase"] = string(p.Status.Phase)
	}
	return resource == q.resource && (q.namespace == "" || q.namespace == o.GetNamespace()) &&
		q.labels.Matches(labels.Set(o.GetLabels())) && q.fields.Matches(set)
}

func (q *query) verb() string {
	if q.watch {
		return "watch"
	}
	return "list"
}

// shows is how an event looks to a watch that asks for this: an object that
// enters its selection is added, one that leaves it is deleted.
func (q *query) shows(e event) (kind string, shown bool) {
	was := e.before != nil && q.wants(e.resource, e.before)
	is := e.kind != "DELETED" && q.wants(e.resource, e.object)
	switch {
	case is && was:
		return "MODIFIED", true
	case is:
		return "ADDED", true
	case was:
		return "DELETED", true
	}
	return "", false
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	q, err := parse(r)
	s.mu.Lock()
	s.asked = append(s.asked, Request{time.Now(), q.resource, q.watch, q.version, r.URL.String()})
	fault := s.fault
	stranger := s.token != "" && r.Header.Get("Authorization") != "Bearer "+s.token
	s.mu.Unlock()
	select {
	case <-r.Context().Done():
		return
	case <-time.After(fault.Slow):
	}
	switch {
	case err != nil:
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
	case stranger:
		refuse(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
	case fault.HangUp && fault.hits(q.resource):
		panic(http.ErrAbortHandler)
	case fault.Status != 0 && fault.hits(q.resource):
		refuse(w, fault.Status, reasons[fault.Status], fmt.Sprintf("told to refuse %s of %s", q.verb(), q.resource))
	case q.initial && fault.NoWatchList:
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden")
	case q.watch:
		s.watch(w, r, &q)
	case fault.Silent:
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		s.list(w, &q)
	}
}

var reasons = map[int]metav1.StatusReason{
	http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError: metav1.StatusReasonInternalError, http.StatusUnauthorized: metav1.StatusReasonUnauthorized,
	http.StatusGone: metav1.StatusReasonExpired,
}

func status(code int, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	}
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status(code, reason, message))
}

// encoded is the object as JSON, with its type.
func encoded(o metav1.Object) map[string]any {
	_, kind := resourceOf(o)
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		panic(err)
	}
	m["apiVersion"], m["kind"] = kind.APIVersion, kind.Kind
	return m
}

func (s *Server) list(w http.ResponseWriter, q *query) {
	s.mu.Lock()
	items := []map[string]any{}
	for key, o := range s.objects {
		if q.wants(key.resource, o) {
			items = append(items, encoded(o))
		}
	}
	version := s.version
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	kind := resources[q.resource]
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": kind.APIVersion, "kind": kind.Kind + "List", "metadata": map[string]string{"resourceVersion": strconv.Itoa(version)}, "items": items,
	})
}

// stream sends the events of one watch.
type stream struct {
	http.ResponseWriter
	q    *query
	sent int // the version up to which it is sent
}

func (st *stream) send(kind string, object any) {
	_ = json.NewEncoder(st).Encode(map[string]any{"type": kind, "object": object})
	st.ResponseWriter.(http.Flusher).Flush()
}

func (st *stream) bookmark(version int, annotations map[string]string) {
	kind := resources[st.q.resource]
	st.send("BOOKMARK", map[string]any{
		"apiVersion": kind.APIVersion, "kind": kind.Kind,
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(version), "annotations": annotations},
	})
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, q *query) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	st := &stream{ResponseWriter: w, q: q}
	s.mu.Lock()
	cut := s.cut
	s.mu.Unlock()
	if q.initial {
		s.sendAll(st)
	} else {
		st.sent, _ = strconv.Atoi(q.version)
	}
	for {
		s.mu.Lock()
		changed, silent, expired := s.changed, s.fault.Silent, st.sent < s.oldest
		var news []event
		if !silent {
			first, _ := slices.BinarySearchFunc(s.log, st.sent+1, func(e event, v int) int { return e.version - v })
			news = slices.Clone(s.log[first:])
		}
		if len(news) > 0 {
			st.sent = s.version
		}
		s.mu.Unlock()
		if expired && !silent {
			st.send("ERROR", status(http.StatusGone, metav1.StatusReasonExpired, "too old resource version"))
			return
		}
		for _, e := range news {
			if e.kind == "BOOKMARK" {
				st.bookmark(e.version, nil)
			} else if kind, shown := q.shows(e); shown {
				st.send(kind, encoded(e.object))
			}
		}
		select {
		case <-r.Context().Done():
			return
		case <-cut:
			return
		case <-changed:
		}
	}
}

// sendAll sends everything, and says when that is done.
func (s *Server) sendAll(st *stream) {
	s.mu.Lock()
	silent := s.fault.Silent
	var all []map[string]any
	for key, o := range s.objects {
		if st.q.wants(key.resource, o) {
			all = append(all, encoded(o))
		}
	}
	st.sent = s.version
	s.mu.Unlock()
	if silent {
		return
	}
	for _, o := range all {
		st.send("ADDED", o)
	}
	st.bookmark(st.sent, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
}
