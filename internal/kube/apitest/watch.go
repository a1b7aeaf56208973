package apitest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// list answers with all objects that a query selects.
func (s *Server) list(w http.ResponseWriter, q *query) {
	s.mu.Lock()
	items := []map[string]any{}
	for key, o := range s.objects {
		if q.selects(key.resource, o) {
			items = append(items, encoded(o))
		}
	}
	version := s.version
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	kind := resources[q.resource]
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": kind.APIVersion,
		"kind":       kind.Kind + "List",
		"metadata":   map[string]string{"resourceVersion": strconv.Itoa(version)},
		"items":      items,
	})
}

// stream sends the events of one watch.
type stream struct {
	http.ResponseWriter
	q    *query
	sent int // version of the last change sent
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

// watch sends the changes that a query selects until the client, the server or Cut ends
// the request.
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
			} else if kind, visible := q.eventKind(e); visible {
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

// sendAll sends all objects, then a bookmark that marks their end.
func (s *Server) sendAll(st *stream) {
	s.mu.Lock()
	silent := s.fault.Silent
	var all []map[string]any
	for key, o := range s.objects {
		if st.q.selects(key.resource, o) {
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
