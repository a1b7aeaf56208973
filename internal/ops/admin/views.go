package admin

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/ops/access"
	"portolan.dev/portolan/internal/ops/web"
	"portolan.dev/portolan/internal/support/httpserver"
)

// addViews adds the page's files and what it reads to mux, and returns the paths for the list of paths.
// The files are for all clients: they have no data, and the page must be there to ask for a token.
func addViews(mux *http.ServeMux, cfg *Config) (paths []string) {
	if cfg.Site != nil {
		mux.Handle("GET "+web.Prefix, cfg.Site)
	}
	if len(cfg.Views) == 0 {
		return nil
	}
	guard := cfg.Guard
	if guard == nil {
		guard = access.New(access.Config{})
	}
	for _, path := range slices.Sorted(maps.Keys(cfg.Views)) {
		mux.Handle("GET "+path, data(guard.Protect(cfg.Views[path])))
		paths = append(paths, path)
	}
	mux.Handle("GET "+viewsPrefix, data(guard.Protect(http.HandlerFunc(noView))))
	mux.HandleFunc("POST "+access.LoginPath, guard.Login)
	mux.HandleFunc("POST "+access.LogoutPath, guard.Logout)
	return paths
}

// viewsPrefix is what the paths of views begin with.
const viewsPrefix = "/api/v1/"

// noView responds that there is no such view, as JSON like the errors of views; absent tells it from those.
func noView(w http.ResponseWriter, r *http.Request) {
	why := fmt.Sprintf("this process has no %.100q; GET / lists the paths that it has", r.URL.Path)
	httpserver.RespondJSON(w, http.StatusNotFound, map[string]any{"error": why, "absent": true})
}

// data sets the header fields of what the page reads.
func data(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		web.Harden(w.Header())
		w.Header().Set("Cache-Control", "no-store")
		h.ServeHTTP(w, r)
	})
}

// root serves the page to browsers, and to others the list of paths.
func root(site *web.Site, paths []string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Accept")
		if site != nil && strings.Contains(r.Header.Get("Accept"), "text/html") {
			site.Index(w, r)
			return
		}
		fmt.Fprintln(w, strings.Join(paths, "\n"))
	}
}
