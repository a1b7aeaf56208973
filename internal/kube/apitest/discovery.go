package apitest

import (
	"encoding/json"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// discover answers with the resources of a GROUP/VERSION. The server does not have one
// whose resources were all uninstalled.
func (s *Server) discover(w http.ResponseWriter, r *http.Request, groupVersion string) {
	list := metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: groupVersion,
	}
	s.mu.Lock()
	for name, kind := range resources {
		if kind.APIVersion == groupVersion && !s.removed[name] {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: name, Kind: kind.Kind, Verbs: metav1.Verbs{"get", "list", "watch"},
			})
		}
	}
	s.mu.Unlock()
	if list.APIResources == nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list) // the client may have gone
}
