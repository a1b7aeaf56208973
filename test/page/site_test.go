package page

import (
	"net/http"
	"testing"

	"portolan.dev/portolan/internal/ops/web"
)

// site adds the files of the page to mux, as the admin server has them.
func site(tb testing.TB, mux *http.ServeMux) {
	tb.Helper()
	s, err := web.New()
	if err != nil {
		tb.Fatal(err)
	}
	mux.Handle("GET "+web.Prefix, s)
	mux.HandleFunc("GET /{$}", s.Index)
}
