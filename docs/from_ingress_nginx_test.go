package docs

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/gateway/annotation"
)

// TestAnnotations: from-ingress-nginx.md lists all annotations, and what becomes of them.
func TestAnnotations(t *testing.T) {
	const mark = "<!-- From here on: go test ./docs -update, from the table of the package gateway/annotation. -->\n"
	page, err := os.ReadFile("from-ingress-nginx.md")
	if err != nil {
		t.Fatal(err)
	}
	intro, _, ok := strings.Cut(string(page), mark)
	if !ok {
		t.Fatalf("from-ingress-nginx.md has no line %q", mark)
	}
	var b strings.Builder
	b.WriteString("| annotation | as a route | | with `annotations: nginx` |\n|---|---|---|---|\n")
	for _, k := range annotation.All() {
		with := k.Effect.String()
		if k.Text != "" {
			with += ": " + k.Text
		}
		fmt.Fprintf(&b, "| `%s` | %v | %s | %s |\n", k.Name, k.Outcome, k.Routes, with)
	}
	wantFile(t, "from-ingress-nginx.md", intro+mark+b.String())
}
