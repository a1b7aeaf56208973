package httpserver

import (
	"encoding/json"
	"net/http"
)

// RespondJSON responds with a status and JSON, which no cache keeps. The header fields that w has already stay.
func RespondJSON(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // it fails if the client closed the connection
}

// RespondError responds with a status and {"error": why}.
func RespondError(w http.ResponseWriter, status int, why string) {
	RespondJSON(w, status, map[string]string{"error": why})
}
