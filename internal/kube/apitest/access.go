package apitest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
)

// access reads or writes one object. Of two clients that write the same version only
// one succeeds.
func (s *Server) access(w http.ResponseWriter, r *http.Request, q *query) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodPost {
		s.create(w, r, body)
		return
	}
	stored := s.objects[q.id()]
	if stored == nil {
		body := status(http.StatusNotFound, metav1.StatusReasonNotFound, r.URL.Path+" does not exist")
		body.Details = &metav1.StatusDetails{Name: q.name, Kind: q.resource} // unlike for a resource that does not exist
		writeStatus(w, body)
		return
	}
	switch r.Method {
	case http.MethodGet:
		reply(w, http.StatusOK, stored)
	case http.MethodPut:
		s.update(w, r, stored, body)
	case http.MethodPatch:
		s.patch(w, r, q, stored, body)
	case http.MethodDelete:
		s.remove(q.id())
		s.writes = append(s.writes, r.Method+" "+r.URL.Path)
		reply(w, http.StatusOK, stored)
	default:
		refuse(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, r.Method)
	}
}

// create stores a new object; generateName becomes a name.
func (s *Server) create(w http.ResponseWriter, r *http.Request, body []byte) {
	o, err := decode(body)
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	if o.GetName() == "" {
		o.SetName(fmt.Sprint(o.GetGenerateName(), s.version+1))
	}
	path := r.URL.Path + "/" + o.GetName()
	if s.objects[idOf(o)] != nil {
		refuse(w, http.StatusConflict, metav1.StatusReasonAlreadyExists, path+" already exists")
		return
	}
	o.SetUID(types.UID(fmt.Sprint("uid-", s.version+1)))
	o.SetGeneration(1)
	s.writes = append(s.writes, r.Method+" "+path)
	reply(w, http.StatusCreated, s.put(o))
}

// update replaces an object unless the request is about another version of it.
func (s *Server) update(w http.ResponseWriter, r *http.Request, stored metav1.Object, body []byte) {
	o, err := decode(body)
	switch {
	case err != nil:
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
	case o.GetResourceVersion() != "" && o.GetResourceVersion() != stored.GetResourceVersion():
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict, "the object has been modified")
	default:
		s.replace(w, r, stored, o, stored.GetGeneration()+1)
	}
}

// patch applies a JSON patch, a merge patch or a strategic merge patch to an object, or to its status alone.
func (s *Server) patch(w http.ResponseWriter, r *http.Request, q *query, stored metav1.Object, body []byte) {
	patched, o := document(stored), newObject(q.resource)
	patched, err := applied(types.PatchType(r.Header.Get("Content-Type")), patched, body, o)
	if q.status {
		status := patched["status"]
		metadata, _ := patched["metadata"].(map[string]any)
		patched = document(stored)
		patched["status"] = status
		patched["metadata"].(map[string]any)["resourceVersion"] = metadata["resourceVersion"]
	}
	if err == nil {
		var text []byte
		if text, err = json.Marshal(patched); err == nil {
			err = json.Unmarshal(text, o)
		}
	}
	if err != nil {
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error())
		return
	}
	if o.GetResourceVersion() != stored.GetResourceVersion() {
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict, "the object has been modified")
		return
	}
	generation := stored.GetGeneration()
	if !q.status {
		generation++
	}
	s.replace(w, r, stored, o, generation)
}

// applied returns a document with a patch of a type. of is an object of the document's type.
func applied(as types.PatchType, document map[string]any, body []byte, of metav1.Object) (map[string]any, error) {
	if as == types.JSONPatchType {
		var patch []Operation
		err := json.Unmarshal(body, &patch)
		if err == nil {
			err = Apply(document, patch)
		}
		return document, err
	}
	var patch map[string]any
	if err := json.Unmarshal(body, &patch); err != nil {
		return nil, err
	}
	if as == types.StrategicMergePatchType {
		return strategicpatch.StrategicMergeMapPatch(document, patch, of)
	}
	merge(document, patch)
	return document, nil
}

// merge applies a merge patch (RFC 7386).
func merge(to, patch map[string]any) {
	for name, value := range patch {
		inner, isObject := value.(map[string]any)
		switch {
		case value == nil:
			delete(to, name)
		case isObject:
			of, ok := to[name].(map[string]any)
			if !ok {
				of = make(map[string]any)
				to[name] = of
			}
			merge(of, inner)
		default:
			to[name] = value
		}
	}
}

func (s *Server) replace(w http.ResponseWriter, r *http.Request, stored, o metav1.Object, generation int64) {
	o.SetUID(stored.GetUID())
	o.SetGeneration(generation)
	s.writes = append(s.writes, r.Method+" "+r.URL.Path)
	reply(w, http.StatusOK, s.put(o))
}

// decode decodes an object in JSON or protobuf.
func decode(body []byte) (metav1.Object, error) {
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	object, ok := o.(metav1.Object)
	if !ok {
		return nil, fmt.Errorf("%T is not a single object", o)
	}
	return object, nil
}

func reply(w http.ResponseWriter, code int, o metav1.Object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(encoded(o)) // the client may have gone
}
