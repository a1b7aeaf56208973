// Package web has the files of the page for operators, and serves them: HTML, ES modules and style
// sheets, as they are in the folder files. They hold no data; the page reads that from the admin
// server as JSON.
//
// The page may load nothing but these files, and runs no script or style inside its HTML (Content
// Security Policy Level 3). index.html refers to files by paths that begin with /page/, which get
// the hash of all files, so that browsers keep them for as long as they like (RFC 8246). Modules
// refer to one another by relative paths, and so have the same hash.
package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

//go:embed files
var embedded embed.FS

// Prefix is that of the paths of files.
const Prefix = "/page/"

// policy is the Content-Security-Policy of all files.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// Harden sets the header fields that hold for every response of the page, its data included.
func Harden(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// Site has the files.
type Site struct {
	hash  string // of all files
	files map[string]*file
}

// file is a file as it is sent.
type file struct {
	contentType, tag string
	text             []byte
	// zipped returns the text as gzip, which is made at its first use: most processes are never
	// looked at.
	zipped func() []byte
}

// contentTypes are those of the files, by the ends of their names.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".svg":  "image/svg+xml",
	".png":  "image/png",
	".txt":  "text/plain; charset=utf-8",
}

// New returns the site of the files in the binary.
func New() (*Site, error) {
	root, err := fs.Sub(embedded, "files")
	if err != nil {
		return nil, err
	}
	return newSite(root)
}

// newSite returns the site of the files in a folder.
func newSite(root fs.FS) (*Site, error) {
	s, all := &Site{files: make(map[string]*file)}, sha256.New()
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		contentType, known := contentTypes[path.Ext(name)]
		if !known {
			return fmt.Errorf("%s: no content type for its name", name)
		}
		fmt.Fprintf(all, "%s %d\n", name, len(text))
		all.Write(text)
		s.files[name] = newFile(contentType, text)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("page: %w", err)
	}
	index := s.files["index.html"]
	if index == nil {
		return nil, fmt.Errorf("page: %w", fs.ErrNotExist)
	}
	s.hash = hex.EncodeToString(all.Sum(nil)[:8])
	text := bytes.ReplaceAll(index.text, []byte(`"`+Prefix), []byte(`"`+Prefix+s.hash+"/"))
	s.files["index.html"] = newFile(index.contentType, text)
	return s, nil
}

func newFile(contentType string, text []byte) *file {
	sum := sha256.Sum256(text)
	return &file{
		contentType: contentType, tag: `"` + hex.EncodeToString(sum[:8]) + `"`, text: text,
		zipped: sync.OnceValue(func() []byte { return zip(text) }),
	}
}

func zip(text []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is valid
	_, _ = w.Write(text)                                  // a buffer takes everything
	_ = w.Close()
	return b.Bytes()
}

// Index serves the page itself.
func (s *Site) Index(w http.ResponseWriter, r *http.Request) {
	s.files["index.html"].serve(w, r, "no-cache")
}

// ServeHTTP serves the files below Prefix: with the hash of all files for as long as the client
// likes, and without it if the client asks each time whether they have changed.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, Prefix)
	keep := "no-cache"
	if hash, rest, ok := strings.Cut(name, "/"); ok && hash == s.hash {
		name, keep = rest, "public, max-age=31536000, immutable"
	}
	f := s.files[name]
	if f == nil {
		Harden(w.Header())
		http.Error(w, "there is no such file", http.StatusNotFound)
		return
	}
	f.serve(w, r, keep)
}

// serve responds with a file. keep is how caches may keep it.
func (f *file) serve(w http.ResponseWriter, r *http.Request, keep string) {
	h := w.Header()
	Harden(h)
	h.Set("Cache-Control", keep)
	h.Set("Content-Type", f.contentType)
	h.Set("ETag", f.tag)
	h.Add("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("If-None-Match"), f.tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	text := f.text
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		text = f.zipped()
	}
	h.Set("Content-Length", strconv.Itoa(len(text)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(text) // it fails if the client closed the connection
	}
}
