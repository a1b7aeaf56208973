package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Documents is an API server for tests that keeps objects as JSON by their
// path, such as /api/v1/namespaces/shop, whatever their kind. It gets, creates,
// replaces and patches them, and of two writers only one wins, by
// resourceVersion.
type Documents struct {
	http *httptest.Server

	mu        sync.Mutex
	version   int
	objects   map[string]map[string]any
	misbehave func(method, path string) (status int)
	writes    []string // METHOD PATH of those that were done
}

// NewDocuments starts a server without objects. It ends with the test.
func NewDocuments(t testing.TB) *Documents {
	t.Helper()
	d := &Documents{objects: make(map[string]map[string]any), misbehave: func(string, string) int { return 0 }}
	d.http = httptest.NewServer(http.HandlerFunc(d.serve))
	t.Cleanup(d.http.Close)
	return d
}

// Kubeconfig writes a kubeconfig file for the server.
func (d *Documents) Kubeconfig(t testing.TB) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "kubeconfig")
	WriteKubeconfig(t, file, d.http.URL)
	return file
}

// Misbehave sets what says, from now on, with which status a request is refused,
// and when; with 0 it is not.
func (d *Documents) Misbehave(refuse func(method, path string) (status int)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.misbehave = refuse
}

// Put creates or replaces the object at a path.
func (d *Documents) Put(path string, object any) {
	var document map[string]any
	if err := json.Unmarshal(marshal(object), &document); err != nil {
		panic(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.store(path, document)
}

// Get reads the object at a path, and tells whether there is one.
func (d *Documents) Get(path string, into any) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	document, ok := d.objects[path]
	if ok {
		if err := json.Unmarshal(marshal(document), into); err != nil {
			panic(err)
		}
	}
	return ok
}

// Delete removes the object at a path.
func (d *Documents) Delete(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.objects, path)
}

// Writes are those that were done since the start, as METHOD PATH.
func (d *Documents) Writes() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.writes)
}

func marshal(object any) []byte {
	text, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return text
}

// store keeps a document with a new version.
func (d *Documents) store(path string, document map[string]any) {
	d.version++
	meta, _ := document["metadata"].(map[string]any)
	if meta == nil {
		meta = make(map[string]any)
		document["metadata"] = meta
	}
	meta["resourceVersion"] = strconv.Itoa(d.version)
	d.objects[path] = document
}

func (d *Documents) serve(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	misbehave := d.misbehave
	d.mu.Unlock()
	code := misbehave(r.Method, r.URL.Path)
	d.mu.Lock()
	defer d.mu.Unlock()
	if code != 0 {
		refusal := status(code, reasons[code], "told to refuse "+r.Method)
		refusal.Details = &metav1.StatusDetails{Name: path.Base(r.URL.Path)} // a JSON patch that fails names none
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write(marshal(refusal))
		return
	}
	at := r.URL.Path
	there := d.objects[at]
	var document map[string]any
	var patch []Operation
	var err error
	switch r.Method {
	case http.MethodPatch:
		err = json.NewDecoder(r.Body).Decode(&patch)
	case http.MethodPost, http.MethodPut:
		err = json.NewDecoder(r.Body).Decode(&document)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	if r.Method == http.MethodPost {
		at = path.Join(at, nameOf(document))
		if d.objects[at] != nil {
			refuse(w, http.StatusConflict, metav1.StatusReasonAlreadyExists, at+" is there")
			return
		}
	} else if there == nil {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, at+" is not there")
		return
	}
	switch r.Method {
	case http.MethodPut:
		if versionOf(document) != versionOf(there) {
			refuse(w, http.StatusConflict, metav1.StatusReasonConflict, "another version")
			return
		}
	case http.MethodPatch:
		if err := json.Unmarshal(marshal(there), &document); err != nil {
			panic(err)
		}
		if err := Apply(document, patch); err != nil {
			refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error())
			return
		}
	}
	if r.Method != http.MethodGet {
		d.store(at, document)
		d.writes = append(d.writes, r.Method+" "+at)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(marshal(d.objects[at])) // the client has gone
}

func nameOf(document map[string]any) string {
	meta, _ := document["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	return name
}

func versionOf(document map[string]any) string {
	meta, _ := document["metadata"].(map[string]any)
	version, _ := meta["resourceVersion"].(string)
	return version
}

// Operation is one of a JSON patch (RFC 6902): add or test.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Apply applies a JSON patch to a document, as far as the operations go that
// this project's patches have. One that fails may be half done.
func Apply(document map[string]any, patch []Operation) error {
	for _, o := range patch {
		steps := strings.Split(o.Path, "/")
		if len(steps) < 2 || steps[0] != "" {
			return fmt.Errorf("%q is no path", o.Path)
		}
		parent, err := walk(document, steps[1:len(steps)-1])
		if err != nil {
			return fmt.Errorf("%s: %w", o.Path, err)
		}
		members, ok := parent.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: the parent is no object", o.Path)
		}
		last := unescape(steps[len(steps)-1])
		switch {
		case o.Op == "add":
			members[last] = o.Value
		case o.Op != "test":
			return fmt.Errorf("%s: operation %q", o.Path, o.Op)
		case !reflect.DeepEqual(members[last], o.Value):
			return fmt.Errorf("%s: the test failed", o.Path)
		}
	}
	return nil
}

// walk gives what steps lead to.
func walk(at any, steps []string) (any, error) {
	for _, step := range steps {
		switch of := at.(type) {
		case map[string]any:
			at = of[unescape(step)]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(of) {
				return nil, fmt.Errorf("%q is no place in the list", step)
			}
			at = of[i]
		default:
			return nil, fmt.Errorf("%q is not there", step)
		}
	}
	return at, nil
}

// unescape is a step of a JSON pointer (RFC 6901, section 4).
func unescape(step string) string {
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
}
