package api

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestUnzip(t *testing.T) {
	const text = "a list of Services"
	zip := func(w http.ResponseWriter) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, text)
		z.Close()
	}
	for name, c := range map[string]struct {
		serve func(http.ResponseWriter)
		want  string
		fails bool
	}{
		"packed": {serve: zip, want: text},
		"plain":  {serve: func(w http.ResponseWriter) { _, _ = io.WriteString(w, text) }, want: text},
		"said to be, but is not": {serve: func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, text)
		}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			asked := ""
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = r.Header.Get("Accept-Encoding")
				c.serve(w)
			}))
			defer server.Close()
			req := httptest.NewRequest(http.MethodGet, server.URL, strings.NewReader(""))
			req.RequestURI = ""
			res, err := newUnzipper(http.DefaultTransport).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			got, err := io.ReadAll(res.Body)
			if asked != "gzip" || c.fails != (err != nil) || !c.fails && string(got) != c.want {
				t.Errorf("asked for %q, got %q (%v), want %q, an error: %v", asked, got, err, c.want, c.fails)
			}
		})
	}
}
