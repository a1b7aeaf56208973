package docs

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/migrate/kubeproxy"
)

// TestKubeProxyFields: proxy.md says of each field of kube-proxy's configuration what becomes
// of it. Paths begin with a dot, as in kubectl, so that nobody takes them for keys.
func TestKubeProxyFields(t *testing.T) {
	page, err := os.ReadFile("proxy.md")
	if err != nil {
		t.Fatal(err)
	}
	const head = "| field | becomes |\n|---|---|\n"
	var table strings.Builder
	for _, f := range kubeproxy.Fields() {
		becomes := "no effect: " + f.Text
		switch {
		case f.Key != "" && f.Text != "":
			becomes = fmt.Sprintf("`%s`: %s", f.Key, f.Text)
		case f.Key != "":
			becomes = fmt.Sprintf("`%s`", f.Key)
		}
		fmt.Fprintf(&table, "| `.%s` | %s |\n", f.Path, becomes)
	}
	before, rest, found := strings.Cut(string(page), head)
	_, after, ended := strings.Cut(rest, "\n\n")
	if !found || !ended {
		t.Fatal("proxy.md has no table of fields")
	}
	wantFile(t, "proxy.md", before+head+table.String()+"\n"+after)
}
