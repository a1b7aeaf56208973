package web

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

func site(t *testing.T) *Site {
	t.Helper()
	s, err := newSite(fstest.MapFS{
		"index.html":  {Data: []byte(`<script type="module" src="/page/app.js"></script><a href="/pages">`)},
		"app.js":      {Data: []byte("import './lib/list.js';" + strings.Repeat(" ", 1000))},
		"lib/list.js": {Data: []byte("export {}")},
	})
	if err != nil {
		t.Fatalf("newSite: %v", err)
	}
	return s
}

func get(s *Site, path string, fields ...string) *http.Response {
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	if path == "/" {
		s.Index(w, r)
	} else {
		s.ServeHTTP(w, r)
	}
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestFiles verifies how files are found, kept and compressed.
func TestFiles(t *testing.T) {
	t.Parallel()
	s := site(t)
	hash := s.hash
	const forever, ask = "public, max-age=31536000, immutable", "no-cache"
	for claim, c := range map[string]struct {
		path   string
		status int
		cache  string
		body   string
	}{
		"index.html has the hash in its paths": {
			"/", http.StatusOK, ask, `<script type="module" src="/page/` + hash + `/app.js"></script><a href="/pages">`,
		},
		"a file with the hash is kept":            {"/page/" + hash + "/lib/list.js", http.StatusOK, forever, "export {}"},
		"a file without it is asked for":          {"/page/lib/list.js", http.StatusOK, ask, "export {}"},
		"a file with another hash does not exist": {"/page/0123456789abcdef/lib/list.js", http.StatusNotFound, "", ""},
		"a folder is no file":                     {"/page/lib", http.StatusNotFound, "", ""},
		"the root is no file":                     {"/page/", http.StatusNotFound, "", ""},
		"a path upwards does not exist":           {"/page/../web.go", http.StatusNotFound, "", ""},
	} {
		r := get(s, c.path)
		got := body(t, r)
		if r.StatusCode != c.status || r.Header.Get("Cache-Control") != c.cache || c.body != "" && got != c.body {
			t.Errorf("%s: GET %s: %d, Cache-Control %q, %q, want %d, %q, %q", claim, c.path, r.StatusCode,
				r.Header.Get("Cache-Control"), got, c.status, c.cache, c.body)
		}
		for field, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Content-Security-Policy": policy,
		} {
			if got := r.Header.Get(field); got != want {
				t.Errorf("GET %s: %s: %q, want %q", c.path, field, got, want)
			}
		}
	}
	r := get(s, "/page/app.js", "Accept-Encoding", "gzip, br")
	z, err := gzip.NewReader(r.Body)
	if err != nil {
		t.Fatalf("GET /page/app.js: %v", err)
	}
	if text, err := io.ReadAll(z); err != nil || !bytes.Equal(text, s.files["app.js"].text) {
		t.Errorf("GET /page/app.js as gzip: %d octets, %v", len(text), err)
	}
	again := get(s, "/page/app.js", "If-None-Match", r.Header.Get("Etag"))
	if again.StatusCode != http.StatusNotModified || body(t, again) != "" {
		t.Errorf("GET /page/app.js with its ETag: %d, want 304", again.StatusCode)
	}
}

// TestEmbedded verifies the files of the binary: they are small, and refer to nothing outside and to no
// script or style in the HTML, which the policy would not let run.
func TestEmbedded(t *testing.T) {
	t.Parallel()
	const most = 150 << 10 // of the first view
	s, err := New()
	if err != nil {
		t.Fatalf("New() = %v", err)
	}
	size := 0
	for name, f := range s.files {
		size += len(f.zipped())
		if at := regexp.MustCompile(`(src|href)="(https?:)?//|@import url\(["']?http`).Find(f.text); at != nil {
			t.Errorf("%s has %q, want nothing outside", name, at)
		}
	}
	if size > most {
		t.Errorf("all files are %d octets as gzip, want at most %d", size, most)
	}
	inline := regexp.MustCompile(`(?i)<style|<script(>|[^>]*[^c]>[^<])|\son[a-z]+=|\sstyle=`)
	if at := inline.Find(s.files["index.html"].text); at != nil {
		t.Errorf("index.html has %q, which its policy does not let run", at)
	}
}
