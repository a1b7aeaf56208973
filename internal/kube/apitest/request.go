package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// query is a parsed request.
type query struct {
	resource, namespace string
	name                string // empty for lists, watches and creation
	status              bool   // the subresource
	labels              labels.Selector
	fields              fields.Selector
	watch, initial      bool // initial: the watch begins with all objects
	version             string
	discovery           string // the GROUP/VERSION whose resources are asked for; empty for all other queries
}

// parse parses a path of the forms RESOURCE[/NAME] and
// namespaces/NAMESPACE/RESOURCE[/NAME], below /api/VERSION or /apis/GROUP/VERSION, or
// the latter alone.
func parse(r *http.Request) (q query, err error) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	prefix := 2
	if parts[0] == "apis" {
		prefix = 3
	}
	if parts[0] == "apis" && len(parts) == prefix {
		q.discovery = parts[1] + "/" + parts[2]
		return q, nil
	}
	if len(parts) <= prefix {
		return q, fmt.Errorf("no resource in %s", r.URL.Path)
	}
	if parts = parts[prefix:]; len(parts) > 2 && parts[0] == "namespaces" {
		q.namespace, parts = parts[1], parts[2:]
	}
	q.resource = parts[0]
	if len(parts) > 1 {
		q.name = parts[1]
	}
	q.status = len(parts) > 2 && parts[2] == "status"
	if resources[q.resource].object == nil {
		return q, fmt.Errorf("no resource %s", q.resource)
	}
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

func (q *query) id() id { return id{q.resource, q.namespace, q.name} }

// selects reports whether a list or watch includes an object.
func (q *query) selects(resource string, o metav1.Object) bool {
	set := fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}
	if p, ok := o.(*corev1.Pod); ok {
		set["status.phase"] = string(p.Status.Phase)
	}
	return resource == q.resource && (q.namespace == "" || q.namespace == o.GetNamespace()) &&
		q.labels.Matches(labels.Set(o.GetLabels())) && q.fields.Matches(set)
}

func (q *query) verb(method string) string {
	switch {
	case q.watch:
		return "watch"
	case method == http.MethodGet && q.name == "":
		return "list"
	}
	return strings.ToLower(method)
}

// eventKind returns the kind of an event as a watch sees it: an object that enters its
// selection is added, one that leaves it is deleted.
func (q *query) eventKind(e event) (kind string, visible bool) {
	was := e.before != nil && q.selects(e.resource, e.before)
	is := e.kind != "DELETED" && q.selects(e.resource, e.object)
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
	s.requests = append(s.requests, Request{time.Now(), q.resource, q.watch, q.version, r.URL.String()})
	fault := s.fault
	unauthorized := s.token != "" && r.Header.Get("Authorization") != "Bearer "+s.token
	removed := s.removed[q.resource]
	s.mu.Unlock()
	select {
	case <-r.Context().Done():
		return
	case <-time.After(fault.Slow):
	}
	refusal := 0
	if fault.Refuse != nil {
		refusal = fault.Refuse(r.Method, r.URL.Path)
	}
	switch {
	case err != nil:
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
	case unauthorized:
		refuse(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
	case fault.HangUp && fault.affects(q.resource):
		panic(http.ErrAbortHandler)
	case fault.Status != 0 && fault.affects(q.resource):
		refuse(w, fault.Status, reasons[fault.Status], fmt.Sprintf("told to refuse %s of %s", q.verb(r.Method), q.resource))
	case refusal != 0:
		body := status(refusal, reasons[refusal], "told to refuse "+r.Method)
		body.Details = &metav1.StatusDetails{Name: path.Base(r.URL.Path)} // unlike a JSON patch that fails
		writeStatus(w, body)
	case removed:
		http.NotFound(w, r) // without a Status, as real API servers do
	case q.discovery != "":
		s.discover(w, r, q.discovery)
	case q.initial && fault.NoWatchList:
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden")
	case q.watch:
		s.watch(w, r, &q)
	case fault.Silent:
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case r.Method == http.MethodGet && q.name == "":
		s.list(w, &q)
	default:
		s.access(w, r, &q)
	}
}

var reasons = map[int]metav1.StatusReason{
	http.StatusForbidden:           metav1.StatusReasonForbidden,
	http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError: metav1.StatusReasonInternalError,
	http.StatusUnauthorized:        metav1.StatusReasonUnauthorized,
	http.StatusGone:                metav1.StatusReasonExpired,
}

func status(code int, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	}
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	writeStatus(w, status(code, reason, message))
}

func writeStatus(w http.ResponseWriter, body *metav1.Status) {
	w.Header().Set("Content-Type", "application/json")
	if body.Code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(int(body.Code))
	_ = json.NewEncoder(w).Encode(body) // the client may have gone
}

// encoded returns the object as JSON, with its type.
func encoded(o metav1.Object) map[string]any {
	_, kind := resourceOf(o)
	m := document(o)
	m["apiVersion"], m["kind"] = kind.APIVersion, kind.Kind
	return m
}

// document returns the object as JSON.
func document(o metav1.Object) (m map[string]any) {
	text, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		panic(err)
	}
	return m
}
