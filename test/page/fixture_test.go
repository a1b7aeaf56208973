package page

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// files are those of the page, as they are in the working tree.
const files = "../../internal/ops/web/files"

//go:embed testdata
var testdata embed.FS

// server stands in for the admin server, with data that a test chooses.
type server struct {
	testing.TB
	URL string

	mu sync.Mutex
	// answers are values for JSON, by path below /api/v1/; those of testdata are the default. An
	// http.Handler answers by itself.
	answers map[string]any
	asked   []string // the paths and queries of requests
}

// serve starts a server.
func serve(tb testing.TB) *server {
	tb.Helper()
	s := &server{TB: tb, answers: make(map[string]any)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/", s.data)
	mux.HandleFunc("POST /api/v1/", s.data)
	site(tb, mux)
	started := httptest.NewServer(mux)
	tb.Cleanup(func() {
		started.CloseClientConnections()
		started.Close()
	})
	s.URL = started.URL
	return s
}

// answer sets what the server answers at a path.
func (s *server) answer(path string, value any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[path] = value
}

// requests returns the paths and queries of requests so far that contain a text.
func (s *server) requests(part string) (found []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.asked {
		if strings.Contains(r, part) {
			found = append(found, r)
		}
	}
	return found
}

// data answers with JSON.
func (s *server) data(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.EscapedPath(), "/api/v1/")
	s.mu.Lock()
	s.asked = append(s.asked, path+"?"+r.URL.RawQuery)
	value, chosen := s.answers[path]
	s.mu.Unlock()
	if h, ok := value.(http.Handler); ok {
		h.ServeHTTP(w, r)
		return
	}
	if path == "evidence" && !chosen {
		events(s.TB, nil).ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if chosen {
		_ = json.NewEncoder(w).Encode(value)
		return
	}
	text, err := fs.ReadFile(testdata, "testdata/"+strings.ReplaceAll(path, "/", "_")+".json")
	if err != nil {
		failure(http.StatusNotFound, "there is no "+path).ServeHTTP(w, r)
		return
	}
	_, _ = fmt.Fprint(w, dated(string(text)))
}

// failure is a handler that answers with an error.
func failure(status int, sentence string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": sentence})
	})
}

// events is a handler that answers with events as JSON lines, and as server-sent events; then further ones follow.
// Without a channel nothing follows.
func events(tb testing.TB, further <-chan string) http.Handler {
	tb.Helper()
	text, err := fs.ReadFile(testdata, "testdata/evidence.jsonl")
	if err != nil {
		tb.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(dated(string(text))), "\n")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") != "text/event-stream" {
			_, _ = fmt.Fprintln(w, strings.Join(lines, "\n"))
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		flush := http.NewResponseController(w).Flush
		for i, line := range lines {
			_, _ = fmt.Fprintf(w, "id: %d\ndata: %s\n\n", i+1, line)
		}
		_ = flush()
		for n := len(lines) + 1; ; n++ {
			select {
			case <-r.Context().Done():
				return
			case line := <-further:
				_, _ = fmt.Fprintf(w, "id: %d\ndata: %s\n\n", n, line)
				_ = flush()
			}
		}
	})
}

// dated replaces DAYS(n) by the time in n days, and SECONDS(n) by the time n seconds ago.
func dated(text string) string {
	now := time.Now().UTC()
	for _, unit := range []struct {
		name  string
		after time.Duration
	}{{"DAYS", 24 * time.Hour}, {"AGO", -time.Second}} {
		for {
			before, rest, found := strings.Cut(text, unit.name+"(")
			if !found {
				break
			}
			number, rest, _ := strings.Cut(rest, ")")
			var n int
			_, _ = fmt.Sscan(number, &n)
			at := now.Add(time.Duration(n) * unit.after).Format("2006-01-02T15:04:05.000Z")
			text = before + at + rest
		}
	}
	return text
}
